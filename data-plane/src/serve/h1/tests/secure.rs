//! Deadlines and back-pressure of a connection with TLS.

use super::*;
use crate::serve::pair::{PairEnd, fill};
use crate::tls::{PairSpec, SelfSigned, TicketKeys, Tls, TlsSettings};
use base::clock::unix_seconds_now;
use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::io::{Read as _, Write as _};

/// Client of TLS.
struct SecureClient {
    client: PairClient,
    tls: ClientConnection,
    /// Plaintext of the server.
    received: Vec<u8>,
}

/// Starts a worker with a certificate, and returns a connection in which the client is silent, and its state of TLS.
fn secure() -> (Pair, SecureClient) {
    let folder = tempfile::tempdir().expect("a folder");
    let now = unix_seconds_now();
    let key = KeyPair::generate().expect("a key");
    let parameters = CertificateParams::new(["a.test".to_owned()]).expect("a name");
    let certificate = parameters.self_signed(&key).expect("a certificate");
    let file = folder.path().join("pair.pem");
    std::fs::write(&file, certificate.pem() + &key.serialize_pem()).expect("a file");
    let spec = PairSpec {
        names: vec!["a.test".into()],
        certificate: Some(file),
        ..PairSpec::default()
    };
    let tickets = TicketKeys::in_memory(now).expect("keys");
    let self_signed = SelfSigned::in_memory(&[], now).expect("a certificate");
    let settings = TlsSettings::new(Arc::new(tickets));
    let tls = Tls::build(&[spec], &settings, &self_signed, None, now).expect("a sound pair");
    let pair = Pair::serving(PairWorld {
        tls: Some(tls),
        ..PairWorld::default()
    });
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).expect("a root");
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("a.test").expect("a name");
    let client = SecureClient {
        client: PairClient::connect_secure(&pair),
        tls: ClientConnection::new(Arc::new(config), name).expect("a client"),
        received: Vec::new(),
    };
    (pair, client)
}

impl SecureClient {
    /// Returns the bytes that the client wants to send.
    fn sealed(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut bytes).expect("a vector");
        }
        bytes
    }

    /// Exchanges bytes until both sides wait.
    fn exchange(&mut self) {
        loop {
            let bytes = self.sealed();
            self.client.send(&bytes);
            let received = self.client.receive();
            if bytes.is_empty() && received.is_empty() {
                return;
            }
            self.open(&received);
        }
    }

    fn open(&mut self, mut sealed: &[u8]) {
        while !sealed.is_empty() {
            self.tls.read_tls(&mut sealed).expect("a slice");
            let state = self.tls.process_new_packets().expect("sound records");
            let mut plain = vec![0; state.plaintext_bytes_to_read()];
            self.tls.reader().read_exact(&mut plain).expect("plaintext");
            self.received.extend_from_slice(&plain);
        }
    }

    /// Sends a request and returns the bytes of the response.
    fn request(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.tls.writer().write_all(bytes).expect("room");
        self.exchange();
        std::mem::take(&mut self.received)
    }
}

#[test]
fn a_handshake_has_10_seconds() {
    let (pair, mut it) = secure();
    pair.advance(9_999);
    assert!(it.client.hears_nothing());
    pair.advance(1);
    assert!(it.client.hears_the_end());
    assert_eq!(pair.open_connections(), 0);
    assert_eq!(pair.context().stats.deadlines.value(), 1);
}

#[test]
fn bytes_of_a_handshake_gain_no_time() {
    let (pair, mut it) = secure();
    let hello = it.sealed();
    for byte in &hello[..9] {
        pair.advance(1_000);
        it.client.send(&[*byte]);
    }
    pair.advance(999);
    assert!(it.client.hears_nothing());
    pair.advance(1);
    assert!(it.client.hears_the_end());
}

#[test]
fn a_handshake_between_its_flights_has_the_same_time() {
    let (pair, mut it) = secure();
    pair.advance(5_000);
    let hello = it.sealed();
    it.client.send(&hello);
    assert!(!it.client.receive().is_empty());
    pair.advance(4_999);
    assert!(it.client.hears_nothing());
    pair.advance(1);
    assert!(it.client.hears_the_end());
}

#[test]
fn the_idle_time_begins_at_the_end_of_the_handshake() {
    let (pair, mut it) = secure();
    pair.advance(9_999);
    it.exchange();
    assert!(!it.tls.is_handshaking());
    pair.advance(74_999);
    assert!(it.request(MISSING).starts_with(b"HTTP/1.1 404 "));
    pair.advance(74_999);
    assert!(it.client.hears_nothing());
    pair.advance(1);
    // The end is announced by an alert.
    let alert = it.client.receive();
    it.open(&alert);
    assert_eq!(it.client.end, Some(PairEnd::Closed));
    assert_eq!(it.tls.reader().read(&mut [0]).expect("an end"), 0);
}

#[test]
fn an_incomplete_record_has_the_time_of_a_head() {
    let (pair, mut it) = secure();
    it.exchange();
    pair.advance(60_000);
    it.tls.writer().write_all(MISSING).expect("room");
    let record = it.sealed();
    for byte in &record[..5] {
        it.client.send(&[*byte]);
        pair.advance(1_000);
    }
    pair.advance(4_999);
    assert!(it.client.hears_nothing());
    pair.advance(1);
    assert!(!it.client.receive().is_empty() && it.client.end.is_some());
    assert_eq!(pair.open_connections(), 0);
}

#[test]
fn a_request_over_tls_may_be_split_at_every_byte() {
    let (_pair, mut it) = secure();
    it.exchange();
    let whole = it.request(MISSING);
    it.tls.writer().write_all(MISSING).expect("room");
    let length = it.sealed().len();
    let (_pair, mut it) = secure();
    it.exchange();
    for at in 1..length {
        it.tls.writer().write_all(MISSING).expect("room");
        let record = it.sealed();
        it.client.send(&record[..at]);
        assert!(it.client.hears_nothing(), "{at}");
        it.client.send(&record[at..]);
        it.exchange();
        assert_eq!(std::mem::take(&mut it.received), whole, "{at}");
    }
}

#[test]
fn a_client_of_tls_that_does_not_read_bounds_the_bytes_of_the_handler() {
    let (pair, mut it) = secure();
    it.exchange();
    it.tls.writer().write_all(CALL).expect("room");
    let request = it.sealed();
    it.client.send(&request);
    let mut call = pair.call();
    let mut writer = call.stream(None);
    let written = fill(&pair, &mut writer);
    let held = written - it.client.unread();
    assert!(held <= PIPE_BYTES + 2 * UNSENT_BYTES_MAX, "{held}");
    pair.advance(29_999);
    assert!(!call.is_dropped());
    pair.advance(1);
    assert!(call.is_dropped());
    assert_eq!(pair.open_connections(), 0);
}
