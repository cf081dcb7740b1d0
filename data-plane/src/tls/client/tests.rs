//! Tests of the client side in memory, with rustls as the server and certificates made for the tests.

use super::*;
use crate::tls::error::TlsPart;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    CertificateError, HandshakeKind, RootCertStore, ServerConfig, ServerConnection,
    SupportedProtocolVersion,
};
use std::io::{self, Read as _, Write as _};
use std::time::Duration;
use tempfile::TempDir;

const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

/// Folder with a CA, and a server's certificate for `a.test`, `*.wild.test` and 192.0.2.1.
struct Fixture {
    folder: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Fixture {
    fn new() -> Fixture {
        let fixture = Fixture {
            folder: tempfile::tempdir().unwrap(),
            authority: authority("the members' CA"),
        };
        fixture.write("ca.pem", &fixture.authority.pem());
        fixture
    }

    fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    fn settings(&self) -> TlsClientSettings {
        TlsClientSettings {
            authorities: Some(self.folder.path().join("ca.pem")),
            client_certificate: None,
            alpn: vec![b"http/1.1".to_vec()],
        }
    }

    fn client(&self) -> Arc<TlsClient> {
        TlsClient::load(&self.settings(), []).unwrap()
    }

    /// Returns the PEM of a client's certificate, and of its key.
    fn client_pem(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["user".to_owned()]).unwrap();
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Returns the configuration of a server, which demands a client certificate if `demands`.
    fn server(&self, version: &'static SupportedProtocolVersion, demands: bool) -> ServerConfig {
        let key = KeyPair::generate().unwrap();
        let names = ["a.test", "*.wild.test", "192.0.2.1"].map(str::to_owned);
        let params = CertificateParams::new(names.to_vec()).unwrap();
        let leaf = params.signed_by(&key, &self.authority).unwrap();
        self.server_with(version, demands, vec![leaf.der().clone()], &key)
    }

    fn server_with(
        &self,
        version: &'static SupportedProtocolVersion,
        demands: bool,
        chain: Vec<CertificateDer<'static>>,
        key: &KeyPair,
    ) -> ServerConfig {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[version])
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let builder = if demands {
            builder.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.ticketer = aws_lc_rs::Ticketer::new().unwrap();
        config
    }
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let common_name = rcgen::DnType::CommonName;
    params.distinguished_name.push(common_name, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Both ends of a connection.
struct Ends {
    client: TlsClientConnection,
    server: ServerConnection,
    /// Largest number of bytes that arrive at once.
    piece: usize,
}

impl Ends {
    fn new(endpoint: &TlsEndpoint, config: &Arc<ServerConfig>) -> Ends {
        Ends {
            client: endpoint.connect().unwrap(),
            server: ServerConnection::new(Arc::clone(config)).unwrap(),
            piece: usize::MAX,
        }
    }

    /// Completes the handshake.
    fn shake_hands(&mut self) -> io::Result<()> {
        while self.client.is_handshaking() {
            self.pass_to_server();
            self.pass_to_client()?;
        }
        Ok(())
    }

    /// Passes the client's bytes to the server.
    fn pass_to_server(&mut self) {
        let sent = self.client.unsent().unwrap().to_vec();
        self.client.note_sent(sent.len());
        assert!(!self.client.has_unsent());
        let mut rest = &sent[..];
        while !rest.is_empty() {
            self.server.read_tls(&mut rest).unwrap();
            let _ = self.server.process_new_packets();
        }
    }

    /// Returns the server's bytes.
    fn of_server(&mut self) -> Vec<u8> {
        let mut sent = Vec::new();
        while self.server.wants_write() {
            self.server.write_tls(&mut sent).unwrap();
        }
        sent
    }

    /// Passes the server's bytes to the client.
    fn pass_to_client(&mut self) -> io::Result<()> {
        let sent = self.of_server();
        sent.chunks(self.piece.min(sent.len().max(1)))
            .try_for_each(|piece| self.receive(piece))
    }

    /// Passes bytes to the client, as after a read of the socket.
    fn receive(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut buffer = vec![0; 40_000];
        let kept = self.client.copy_partial(&mut buffer);
        let bytes_end = kept + bytes.len();
        buffer[kept..bytes_end].copy_from_slice(bytes);
        self.client.receive(&mut buffer[..bytes_end])
    }

    /// Sends `plain` from the client to the server.
    fn ask(&mut self, plain: &[u8]) {
        assert_eq!(self.client.seal(plain).unwrap(), plain.len());
        self.pass_to_server();
        let mut heard = vec![0; plain.len()];
        self.server.reader().read_exact(&mut heard).unwrap();
        assert!(heard == plain);
    }

    /// Sends `plain` from the server to the client.
    fn answer(&mut self, plain: &[u8]) -> io::Result<()> {
        for part in plain.chunks(10_000) {
            self.server.writer().write_all(part).unwrap();
            self.pass_to_client()?;
        }
        let mut heard = Vec::new();
        let mut buffer = [0; 1_000];
        while let Some(read) = self.client.read(&mut buffer)? {
            assert!(read > 0, "close_notify");
            heard.extend_from_slice(&buffer[..read]);
        }
        assert!(heard == plain);
        Ok(())
    }
}

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

#[test]
fn requests_and_responses_in_any_pieces() {
    let fixture = Fixture::new();
    let endpoint = fixture.client().endpoint("a.test").unwrap();
    for version in VERSIONS {
        let config = Arc::new(fixture.server(version, false));
        for piece in [1, 7, 1_000, usize::MAX] {
            let mut ends = Ends::new(&endpoint, &config);
            ends.piece = piece;
            ends.shake_hands().unwrap();
            assert!(ends.client.seal(b"").is_ok() && ends.client.is_quiet());
            for len in [1, 30_000] {
                ends.ask(&text(len));
                ends.answer(&text(len)).unwrap();
                let is_1_3 = version.version == rustls::ProtocolVersion::TLSv1_3;
                assert_eq!(ends.client.opens_in_place(), is_1_3);
                assert!(ends.client.is_quiet());
            }
        }
    }
}

#[test]
fn records_are_opened_in_place() {
    let fixture = Fixture::new();
    let endpoint = fixture.client().endpoint("a.test").unwrap();
    let config = Arc::new(fixture.server(&rustls::version::TLS13, false));
    let mut ends = Ends::new(&endpoint, &config);
    ends.shake_hands().unwrap();
    ends.ask(b"request");
    ends.answer(b"first").unwrap();
    ends.server.writer().write_all(&text(100)).unwrap();
    let sent = ends.of_server();
    let mut buffer = sent.clone();
    assert_eq!(ends.client.open(&mut buffer[..50]).unwrap(), 0);
    assert!(!ends.client.is_quiet(), "a part of a record");
    let kept = ends.client.copy_partial(&mut buffer);
    assert_eq!(kept, 50);
    buffer[kept..].copy_from_slice(&sent[kept..]);
    assert_eq!(ends.client.open(&mut buffer).unwrap(), 100);
    assert!(buffer[..100] == text(100));
    assert!(ends.client.is_quiet());
}

#[test]
fn sessions_are_resumed_at_the_same_endpoint() {
    let fixture = Fixture::new();
    let client = fixture.client();
    for version in VERSIONS {
        let config = Arc::new(fixture.server(version, false));
        let endpoint = client.endpoint("a.test").unwrap();
        let kinds = [
            HandshakeKind::Full,
            HandshakeKind::Resumed,
            HandshakeKind::Resumed,
        ];
        for kind in kinds {
            let mut ends = Ends::new(&endpoint, &config);
            ends.shake_hands().unwrap();
            ends.ask(b"request");
            ends.answer(b"response").unwrap();
            assert_eq!(ends.server.handshake_kind(), Some(kind));
        }
        let other = client.endpoint("a.test").unwrap();
        let mut ends = Ends::new(&other, &config);
        ends.shake_hands().unwrap();
        ends.pass_to_server();
        assert_eq!(ends.server.handshake_kind(), Some(HandshakeKind::Full));
    }
}

#[test]
fn the_peer_ends_the_connection_by_close_notify_alone() {
    let fixture = Fixture::new();
    let endpoint = fixture.client().endpoint("a.test").unwrap();
    for version in VERSIONS {
        let config = Arc::new(fixture.server(version, false));
        for answers in [0, 1, 2] {
            let mut ends = Ends::new(&endpoint, &config);
            ends.shake_hands().unwrap();
            for _ in 0..answers {
                ends.ask(b"request");
                ends.answer(b"response").unwrap();
            }
            ends.pass_to_server();
            ends.server.writer().write_all(b"last").unwrap();
            ends.server.send_close_notify();
            ends.pass_to_client().unwrap();
            assert!(!ends.client.is_quiet());
            let mut buffer = [0; 100];
            assert_eq!(ends.client.read(&mut buffer).unwrap(), Some(4));
            assert_eq!(ends.client.read(&mut buffer).unwrap(), Some(0));
            assert!(!ends.client.is_quiet());
        }
    }
}

#[test]
fn foreign_bytes_are_no_end() {
    let fixture = Fixture::new();
    let endpoint = fixture.client().endpoint("a.test").unwrap();
    for version in VERSIONS {
        let config = Arc::new(fixture.server(version, false));
        // Bytes in one piece with a response, and bytes behind a response.
        for is_joined in [true, false] {
            let mut ends = Ends::new(&endpoint, &config);
            ends.shake_hands().unwrap();
            ends.ask(b"request");
            ends.server.writer().write_all(b"response").unwrap();
            let mut sent = ends.of_server();
            let foreign = [23, 3, 3, 0, 30].into_iter().chain([0; 30]);
            if is_joined {
                sent.extend(foreign)
            } else {
                ends.receive(&sent).unwrap();
                assert_eq!(ends.client.read(&mut [0; 100]).unwrap(), Some(8));
                sent = foreign.collect();
            }
            assert!(ends.receive(&sent).is_err());
            assert!(!ends.client.is_quiet());
            let mut buffer = [0; 100];
            while let Ok(read) = ends.client.read(&mut buffer) {
                assert_eq!(read, Some(8));
            }
            assert!(ends.client.seal(b"more").is_err());
            assert!(ends.client.has_unsent(), "an alert");
            ends.client.close();
            ends.pass_to_server();
        }
    }
}

#[test]
fn new_keys_on_an_idle_connection_are_answered() {
    let fixture = Fixture::new();
    let endpoint = fixture.client().endpoint("a.test").unwrap();
    let config = Arc::new(fixture.server(&rustls::version::TLS13, false));
    let mut ends = Ends::new(&endpoint, &config);
    ends.shake_hands().unwrap();
    ends.ask(b"request");
    ends.answer(b"response").unwrap();
    ends.server.refresh_traffic_keys().unwrap();
    ends.pass_to_client().unwrap();
    assert!(ends.client.is_quiet() && ends.client.has_unsent());
    ends.ask(b"request");
    ends.answer(b"response").unwrap();
    ends.client.close();
    ends.pass_to_server();
    assert_eq!(ends.server.reader().read(&mut [0]).unwrap(), 0);
}

#[test]
fn servers_may_demand_a_client_certificate() {
    let fixture = Fixture::new();
    let (certificate, key) = fixture.client_pem();
    let both = fixture.write("both.pem", &(key.clone() + &certificate));
    let certificate = fixture.write("client.pem", &certificate);
    let key = fixture.write("client.key", &key);
    let pairs = [(certificate, key), (both.clone(), both)];
    for version in VERSIONS {
        let config = Arc::new(fixture.server(version, true));
        for pair in &pairs {
            let settings = TlsClientSettings {
                client_certificate: Some(pair.clone()),
                ..fixture.settings()
            };
            let client = TlsClient::load(&settings, []).unwrap();
            let mut ends = Ends::new(&client.endpoint("a.test").unwrap(), &config);
            ends.shake_hands().unwrap();
            ends.ask(b"request");
            ends.answer(b"response").unwrap();
            assert!(ends.server.peer_certificates().is_some());
        }
        let endpoint = fixture.client().endpoint("a.test").unwrap();
        let mut ends = Ends::new(&endpoint, &config);
        // In TLS 1.3 the refusal arrives after the client's last message.
        let refused = ends.shake_hands().and_then(|()| {
            ends.pass_to_server();
            ends.pass_to_client()
        });
        let refused = refused.unwrap_err().into_inner().unwrap();
        let refused = refused.downcast::<rustls::Error>().unwrap();
        assert!(
            matches!(*refused, rustls::Error::AlertReceived(_)),
            "{refused}"
        );
        assert!(ends.client.read(&mut [0]).is_err());
    }
}

/// Returns the result of a handshake with a server that has the chain.
fn verified(
    fixture: &Fixture,
    client: &Arc<TlsClient>,
    name: &str,
    certificate: &CertificateDer<'static>,
    key: &KeyPair,
) -> Result<(), CertificateError> {
    let config = fixture.server_with(
        &rustls::version::TLS13,
        false,
        vec![certificate.clone()],
        key,
    );
    let mut ends = Ends::new(&client.endpoint(name).unwrap(), &Arc::new(config));
    let Err(error) = ends.shake_hands() else {
        return Ok(());
    };
    let error = error.into_inner().unwrap();
    match *error.downcast::<rustls::Error>().unwrap() {
        rustls::Error::InvalidCertificate(error) => Err(error),
        error => panic!("{error}"),
    }
}

#[test]
fn names_and_issuers_are_verified() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let key = KeyPair::generate().unwrap();
    let names = ["a.test", "*.wild.test", "192.0.2.1", "2001:db8::1"].map(str::to_owned);
    let params = CertificateParams::new(names.to_vec()).unwrap();
    let leaf = params.signed_by(&key, &fixture.authority).unwrap();
    for name in [
        "a.test",
        "A.Test",
        "x.wild.test",
        "192.0.2.1",
        "2001:db8::1",
    ] {
        let result = verified(&fixture, &client, name, leaf.der(), &key);
        assert_eq!(result, Ok(()), "{name}");
    }
    for name in ["b.test", "x.y.wild.test", "wild.test", "192.0.2.2"] {
        let result = verified(&fixture, &client, name, leaf.der(), &key);
        let is_name = matches!(result, Err(CertificateError::NotValidForNameContext { .. }));
        assert!(is_name, "{name}: {result:?}");
    }
    let stranger = authority("another CA");
    let leaf = params.signed_by(&key, &stranger).unwrap();
    let result = verified(&fixture, &client, "a.test", leaf.der(), &key);
    assert_eq!(result, Err(CertificateError::UnknownIssuer));
}

#[test]
fn a_listed_self_signed_certificate_is_trusted_while_valid() {
    let fixture = Fixture::new();
    let key = KeyPair::generate().unwrap();
    let self_signed = |not_before, not_after, is_ca: bool| {
        let mut params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(not_before, 1, 1);
        params.not_after = rcgen::date_time_ymd(not_after, 1, 1);
        if is_ca {
            // As `openssl req -x509` does.
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        params.self_signed(&key).unwrap()
    };
    for is_ca in [true, false] {
        let own = self_signed(2000, 2100, is_ca);
        let unlisted = verified(&fixture, &fixture.client(), "a.test", own.der(), &key);
        let Err(CertificateError::Other(reason)) = unlisted else {
            panic!("{unlisted:?}");
        };
        assert!(reason.0.is::<crate::tls::UnlistedSelfSigned>());
        let cases = [(2000, 2100), (2000, 2001), (2099, 2100)];
        for (not_before, not_after) in cases {
            let own = self_signed(not_before, not_after, is_ca);
            let settings = TlsClientSettings {
                authorities: Some(fixture.write("own.pem", &own.pem())),
                ..fixture.settings()
            };
            let client = TlsClient::load(&settings, []).unwrap();
            let result = verified(&fixture, &client, "a.test", own.der(), &key);
            match (not_before, not_after) {
                (2000, 2100) => {
                    assert_eq!(result, Ok(()));
                    let result = verified(&fixture, &client, "b.test", own.der(), &key);
                    assert!(result.is_err());
                }
                (2000, _) => {
                    let Err(CertificateError::ExpiredContext { not_after, .. }) = result else {
                        panic!("{result:?}");
                    };
                    let end = UnixTime::since_unix_epoch(Duration::from_secs(978_307_200));
                    assert_eq!(not_after, end);
                }
                _ => assert!(matches!(
                    result,
                    Err(CertificateError::NotValidYetContext { .. })
                )),
            }
        }
    }
}

#[test]
fn unusable_files_are_refused_with_part_and_file() {
    let fixture = Fixture::new();
    let (certificate, key) = fixture.client_pem();
    let (_, other_key) = fixture.client_pem();
    let missing = fixture.folder.path().join("missing.pem");
    let empty = fixture.write("empty.pem", "");
    let certificate = fixture.write("client.pem", &certificate);
    let key = fixture.write("client.key", &key);
    let other_key = fixture.write("other.key", &other_key);
    let ca = |file: &PathBuf| TlsClientSettings {
        authorities: Some(file.clone()),
        ..fixture.settings()
    };
    let pair = |certificate: &PathBuf, key: &PathBuf| TlsClientSettings {
        client_certificate: Some((certificate.clone(), key.clone())),
        ..fixture.settings()
    };
    let cases = [
        (ca(&missing), TlsPart::Authorities, &missing, ""),
        (ca(&empty), TlsPart::Authorities, &empty, "-----BEGIN"),
        (ca(&key), TlsPart::Authorities, &key, "of the authority"),
        (
            pair(&missing, &key),
            TlsPart::ClientCertificate,
            &missing,
            "",
        ),
        (
            pair(&key, &certificate),
            TlsPart::ClientCertificate,
            &key,
            "`client_certificate` and `client_key` are exchanged",
        ),
        (
            pair(&certificate, &missing),
            TlsPart::ClientKey,
            &missing,
            "",
        ),
        (
            pair(&certificate, &certificate),
            TlsPart::ClientKey,
            &certificate,
            "with `client_key`",
        ),
        (
            pair(&certificate, &other_key),
            TlsPart::ClientKey,
            &other_key,
            "same certificate request",
        ),
    ];
    for (settings, part, file, hint) in cases {
        let error = TlsClient::load(&settings, []).unwrap_err();
        assert_eq!((error.part, error.file.as_ref()), (part, Some(file)));
        assert!(error.hint.contains(hint), "{error}");
    }
    let error = fixture.client().endpoint("not a name").unwrap_err();
    assert_eq!(error.part, TlsPart::ServerName);
}

#[test]
fn a_client_is_kept_until_its_settings_or_files_change() {
    let fixture = Fixture::new();
    let (certificate, key) = fixture.client_pem();
    let file = fixture.write("client.pem", &(certificate + &key));
    let settings = TlsClientSettings {
        client_certificate: Some((file.clone(), file)),
        ..fixture.settings()
    };
    let first = TlsClient::load(&settings, []).unwrap();
    let load = |settings, known: &Arc<TlsClient>| TlsClient::load(settings, [known]).unwrap();
    assert!(Arc::ptr_eq(&load(&settings, &first), &first));
    let without = fixture.settings();
    assert!(!Arc::ptr_eq(&load(&without, &first), &first));
    let (certificate, key) = fixture.client_pem();
    fixture.write("client.pem", &(certificate + &key));
    let second = load(&settings, &first);
    assert!(!Arc::ptr_eq(&second, &first));
    fixture.write("ca.pem", &authority("another CA").pem());
    assert!(!Arc::ptr_eq(&load(&settings, &second), &second));
}

#[test]
fn clients_share_the_authorities_of_the_system() {
    let settings = TlsClientSettings::default();
    let first = TlsClient::load(&settings, []).unwrap();
    let other = TlsClientSettings {
        alpn: vec![b"h2".to_vec()],
        ..settings.clone()
    };
    let second = TlsClient::load(&other, [&first]).unwrap();
    assert!(!Arc::ptr_eq(&first, &second));
    let roots = |client: &TlsClient| Arc::clone(&client.verifier.authorities().roots);
    assert!(Arc::ptr_eq(&roots(&first), &roots(&second)));
    let again = TlsClient::load(&settings, [&second, &first]).unwrap();
    assert!(Arc::ptr_eq(&again, &first));
}
