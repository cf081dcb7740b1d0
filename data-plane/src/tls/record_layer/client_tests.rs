//! Tests of the record layer in the role of the client, with rustls as the server.

use crate::tls::record_layer::tests::{GOODBYE_BYTES, SUITES, forged, text};
use crate::tls::record_layer::*;
use crate::tls::traffic_secrets::TrafficSecretLog;
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedCipherSuite};
use std::io::{Read, Write};
use std::sync::Arc;

/// Client's record layer and server of rustls.
struct Ends {
    records: RecordLayer,
    server: ServerConnection,
}

impl Ends {
    /// Completes a handshake and one record of application data, and then takes the client's keys over.
    fn new(suite: SupportedCipherSuite) -> Ends {
        let provider = Arc::new(rustls::crypto::CryptoProvider {
            cipher_suites: vec![suite],
            ..provider::default_provider()
        });
        let own = rcgen::generate_simple_self_signed(vec!["a.test".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(own.cert.der().clone()).unwrap();
        let mut wanting = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        wanting.enable_secret_extraction = true;
        wanting.key_log = Arc::new(TrafficSecretLog);
        let name = ServerName::try_from("a.test").unwrap();
        let mut client = ClientConnection::new(Arc::new(wanting), name).unwrap();
        let mut server = ServerConnection::new(Arc::new(config)).unwrap();
        let mut secrets = None;
        while client.is_handshaking() || server.is_handshaking() || client.wants_write() {
            pass(|out| client.write_tls(out), |bytes| server.read_tls(bytes));
            server.process_new_packets().unwrap();
            pass(|out| server.write_tls(out), |bytes| client.read_tls(bytes));
            client.process_new_packets().unwrap();
            secrets = TrafficSecrets::take_for_thread().or(secrets);
        }
        server.writer().write_all(b"first").unwrap();
        pass(|out| server.write_tls(out), |bytes| client.read_tls(bytes));
        client.process_new_packets().unwrap();
        client.reader().read_exact(&mut [0; 5]).unwrap();
        let records = RecordLayer::for_client(client, &secrets.unwrap(), Vec::new()).unwrap();
        Ends { records, server }
    }

    /// Returns the server's records for `plain`.
    fn said(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut said = Vec::new();
        self.server.writer().write_all(plain).unwrap();
        while self.server.wants_write() {
            self.server.write_tls(&mut said).unwrap();
        }
        said
    }

    /// Passes all sealed bytes to the server and returns the plaintext.
    fn heard(&mut self) -> Result<Vec<u8>, rustls::Error> {
        let unsent = self.records.unsent().to_vec();
        self.records.note_sent(unsent.len());
        let mut rest = &unsent[..];
        let mut heard = Vec::new();
        while !rest.is_empty() {
            self.server.read_tls(&mut rest).unwrap();
            self.server.process_new_packets()?;
            let mut piece = Vec::new();
            // The read ends without an error only after close_notify, and would otherwise block.
            let _ = self.server.reader().read_to_end(&mut piece);
            heard.extend(piece);
        }
        Ok(heard)
    }

    /// Returns a record sealed with the server's next key and number.
    fn forged(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        forged(&mut self.records.reading, kind, content)
    }

    /// Opens a forged record.
    fn open(&mut self, kind: u8, content: &[u8]) -> Result<usize, RecordError> {
        let mut record = self.forged(kind, content);
        let opened = self.records.open(&mut record)?;
        assert_eq!(opened.used, record.len());
        Ok(opened.plain)
    }
}

/// Passes bytes from one end to the other.
fn pass(
    mut write: impl FnMut(&mut dyn Write) -> std::io::Result<usize>,
    mut read: impl FnMut(&mut dyn Read) -> std::io::Result<usize>,
) {
    let mut bytes = Vec::new();
    while write(&mut bytes).unwrap() > 0 {}
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        read(&mut rest).unwrap();
    }
}

/// Returns a NewSessionTicket message with `len` bytes behind its head.
fn ticket(len: usize) -> Vec<u8> {
    let [_, high, middle, low] = (len as u32).to_be_bytes();
    [&[NEW_SESSION_TICKET, high, middle, low][..], &text(len)].concat()
}

/// Returns a KeyUpdate message that requests no update in return.
fn key_update() -> Vec<u8> {
    [&KEY_UPDATE[..], &[0]].concat()
}

#[test]
fn both_directions_in_every_suite() {
    for suite in SUITES {
        let mut ends = Ends::new(suite);
        for len in [1, 100, CONTENT_BYTES_MAX, CONTENT_BYTES_MAX + 1, 50_000] {
            let plain = text(len);
            let mut said = ends.said(&plain);
            let opened = ends.records.open(&mut said).unwrap();
            assert_eq!((opened.plain, opened.used), (len, said.len()));
            assert!(said[..len] == plain);
            assert_eq!(ends.records.seal(&[IoSlice::new(&plain)]), len);
            assert!(ends.heard().unwrap() == plain);
            assert!(ends.records.unsent().is_empty());
        }
    }
}

#[test]
fn keys_are_renewed_on_request_of_the_server() {
    for suite in SUITES {
        let mut ends = Ends::new(suite);
        for turn in 0..5 {
            // rustls requests an update in return.
            ends.server.refresh_traffic_keys().unwrap();
            let mut said = ends.said(b"under the next key");
            let opened = ends.records.open(&mut said).unwrap();
            assert_eq!(&said[..opened.plain], b"under the next key", "turn {turn}");
            ends.records.seal(&[IoSlice::new(b"so is this")]);
            assert_eq!(ends.heard().unwrap(), b"so is this");
        }
        ends.records.writing.sequence = RECORDS_OF_A_KEY;
        // The server keeps its own count, and the forged count makes the announcement unreadable.
        ends.records.seal(&[IoSlice::new(b"more")]);
        assert_eq!(ends.records.writing.sequence, 1);
    }
}

#[test]
fn session_tickets_are_dropped() {
    let two = [ticket(200), ticket(14)].concat();
    let mut ends = Ends::new(SUITES[0]);
    for content in [&ticket(200), &ticket(0), &two] {
        assert_eq!(ends.open(content::HANDSHAKE, content), Ok(0));
        assert!(!ends.records.is_inside_message());
        assert_eq!(ends.records.message.capacity(), 0);
        assert_eq!(ends.open(content::APPLICATION_DATA, b"data"), Ok(4));
    }
    // A message that changes keys ends with its record and may follow tickets.
    let before = ends.records.reading.sequence;
    let content = [&two[..], &key_update()].concat();
    assert_eq!(ends.open(content::HANDSHAKE, &content), Ok(0));
    assert!(before > 0 && ends.records.reading.sequence == 0);
    assert_eq!(ends.open(content::APPLICATION_DATA, b"data"), Ok(4));
}

#[test]
fn a_ticket_in_fragments_is_dropped() {
    let messages = [ticket(20), ticket(3), key_update()].concat();
    for split in 1..messages.len() {
        let mut ends = Ends::new(SUITES[0]);
        let (one, other) = messages.split_at(split);
        assert_eq!(ends.open(content::HANDSHAKE, one), Ok(0), "{split}");
        let is_between = split == 24 || split == 31;
        assert_eq!(ends.records.is_inside_message(), !is_between, "{split}");
        if !is_between {
            // Application data may not appear between the fragments of a message (§5.1).
            let mut data = ends.forged(content::APPLICATION_DATA, b"data");
            let sequence = ends.records.reading.sequence;
            let broken = ends.records.open(&mut data);
            assert_eq!(broken, Err(RecordError::UNEXPECTED), "{split}");
            ends.records.reading.sequence = sequence;
            ends.records.ended = false;
        }
        assert_eq!(ends.open(content::HANDSHAKE, other), Ok(0), "{split}");
        assert_eq!(ends.open(content::APPLICATION_DATA, b"data"), Ok(4));
    }
}

#[test]
fn the_largest_ticket_is_bounded() {
    let largest = ticket(TICKET_BYTES_MAX);
    let mut ends = Ends::new(SUITES[0]);
    for part in largest.chunks(CONTENT_BYTES_MAX) {
        assert_eq!(ends.open(content::HANDSHAKE, part), Ok(0));
    }
    assert_eq!(ends.open(content::APPLICATION_DATA, b"data"), Ok(4));
    let head = &ticket(TICKET_BYTES_MAX + 1)[..4];
    let broken = ends.open(content::HANDSHAKE, head);
    assert_eq!(broken, Err(RecordError::MALFORMED));
    assert!(ends.heard().is_err(), "the server gets an alert");
}

#[test]
fn tickets_without_data_are_bounded() {
    let mut ends = Ends::new(SUITES[0]);
    for _ in 0..2 {
        for _ in 0..IDLE_RECORDS_MAX {
            assert_eq!(ends.open(content::HANDSHAKE, &ticket(100)), Ok(0));
        }
        assert_eq!(ends.open(content::APPLICATION_DATA, b"data"), Ok(4));
    }
    for _ in 0..IDLE_RECORDS_MAX {
        assert_eq!(ends.open(content::HANDSHAKE, &ticket(100)), Ok(0));
    }
    let broken = ends.open(content::HANDSHAKE, &ticket(100));
    assert_eq!(broken, Err(RecordError::UNEXPECTED));
}

#[test]
fn other_messages_are_refused() {
    let after_update = [&key_update()[..], &ticket(10)].concat();
    let with_request = [&ticket(10)[..], &[13, 0, 0, 3, 0, 0, 0]].concat();
    let cases: [(&str, u8, &[u8], RecordError); 9] = [
        (
            "HelloRequest",
            content::HANDSHAKE,
            &[0, 0, 0, 0],
            RecordError::UNEXPECTED,
        ),
        (
            "ServerHello",
            content::HANDSHAKE,
            &[2, 0, 0, 1, 0],
            RecordError::UNEXPECTED,
        ),
        (
            "CertificateRequest",
            content::HANDSHAKE,
            &[13, 0, 0, 3, 0, 0, 0],
            RecordError::UNEXPECTED,
        ),
        (
            "CertificateRequest behind a ticket",
            content::HANDSHAKE,
            &with_request,
            RecordError::UNEXPECTED,
        ),
        (
            "Finished",
            content::HANDSHAKE,
            &[20, 0, 0, 1, 0],
            RecordError::UNEXPECTED,
        ),
        (
            "a ticket behind KeyUpdate",
            content::HANDSHAKE,
            &after_update,
            RecordError::UNEXPECTED,
        ),
        (
            "KeyUpdate of 2",
            content::HANDSHAKE,
            &[24, 0, 0, 1, 2],
            RecordError::ILLEGAL,
        ),
        ("change_cipher_spec", 20, &[1], RecordError::UNEXPECTED),
        ("an alert", content::ALERT, &[2, 40], RecordError::ALERT),
    ];
    for (name, kind, content, error) in cases {
        let mut ends = Ends::new(SUITES[0]);
        assert_eq!(ends.open(kind, content), Err(error), "{name}");
        assert!(ends.records.ended(), "{name}");
        assert_eq!(ends.heard().is_err(), error.sends_alert(), "{name}");
    }
}

#[test]
fn close_notify_ends_both_directions() {
    let mut ends = Ends::new(SUITES[0]);
    let mut said = ends.said(b"last words");
    ends.server.send_close_notify();
    said.extend(ends.said(b""));
    let opened = ends.records.open(&mut said).unwrap();
    assert_eq!(&said[..opened.plain], b"last words");
    assert!(ends.records.ended());
    ends.records.seal_goodbye();
    assert_eq!(ends.records.unsent().len(), GOODBYE_BYTES);
    ends.heard().unwrap();
    assert_eq!(ends.server.reader().read(&mut [0]).unwrap(), 0);
}
