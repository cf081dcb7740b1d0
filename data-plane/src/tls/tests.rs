//! Tests of handshakes in memory, with rustls as the client and certificates made for the tests.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, HandshakeKind, NamedGroup, ProtocolVersion,
    RootCertStore, ServerConnection,
};
use tempfile::TempDir;

use super::*;

/// A time in 2027, within the validity of all test certificates.
const NOW: u64 = 1_800_000_000;

/// Folder with a CA and its certificates.
struct Fixture {
    folder: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
    self_signed: SelfSigned,
}

impl Fixture {
    fn new() -> Fixture {
        let fixture = Fixture {
            folder: tempfile::tempdir().unwrap(),
            authority: authority("the test's own CA"),
            self_signed: SelfSigned::in_memory(&[], unix_now()).unwrap(),
        };
        fixture.write("ca.pem", &fixture.authority.pem());
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: &str) -> PathBuf {
        fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    /// Returns the PEM of a certificate for `names`.
    fn certificate(&self, names: &[&str], key: &KeyPair) -> String {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = CertificateParams::new(names).unwrap();
        params.signed_by(key, &self.authority).unwrap().pem()
    }

    /// Writes a pair into one file, named after its first name.
    fn pair(&self, names: &[&str]) -> PairSpec {
        let key = KeyPair::generate().unwrap();
        let names_inside: Vec<&str> = match names {
            ["*"] => vec!["any.test"],
            names => names.to_vec(),
        };
        let pem = self.certificate(&names_inside, &key) + &key.serialize_pem();
        let file = format!("{}.pem", names[0].replace('*', "star"));
        PairSpec {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            certificate: Some(self.write(&file, &pem)),
            ..PairSpec::default()
        }
    }

    fn demanding_pair(&self, names: &[&str], client_ca: &Path) -> PairSpec {
        PairSpec {
            client_ca: Some(client_ca.to_owned()),
            ..self.pair(names)
        }
    }

    fn settings(&self) -> TlsSettings {
        TlsSettings::new(Arc::new(TicketKeys::in_memory(unix_now()).unwrap()))
    }

    fn build(&self, pairs: &[PairSpec], settings: &TlsSettings) -> Tls {
        Tls::build(pairs, settings, &self.self_signed, None, NOW).unwrap()
    }

    fn tls(&self, pairs: &[PairSpec]) -> Tls {
        self.build(pairs, &self.settings())
    }

    fn error(&self, pairs: &[PairSpec]) -> TlsError {
        Tls::build(pairs, &self.settings(), &self.self_signed, None, NOW).unwrap_err()
    }

    fn client(&self) -> ClientConfig {
        self.client_with(aws_lc_rs::default_provider(), rustls::ALL_VERSIONS)
    }

    fn client_of(&self, version: &'static SupportedProtocolVersion) -> ClientConfig {
        self.client_with(aws_lc_rs::default_provider(), &[version])
    }

    fn client_with(
        &self,
        provider: CryptoProvider,
        versions: &[&'static SupportedProtocolVersion],
    ) -> ClientConfig {
        ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(self.roots())
            .with_no_client_auth()
    }

    /// Makes a client with a certificate signed by `issuer`.
    fn certified_client(
        &self,
        issuer: &CertifiedIssuer<'static, KeyPair>,
        version: &'static SupportedProtocolVersion,
    ) -> ClientConfig {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["user".to_owned()]).unwrap();
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(self.roots())
            .with_client_auth_cert(vec![certificate.der().clone()], key)
            .unwrap()
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).unwrap();
        let own = self.self_signed.certified().cert[0].clone();
        roots.add(own).unwrap();
        roots
    }
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn unix_now() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

type Ends = (ClientConnection, Box<ServerConnection>);

/// Performs a whole handshake and processes all further messages of both ends. Returns the error of the end
/// that failed first.
fn connect(tls: &Tls, client: &ClientConfig, name: &str) -> Result<Ends, rustls::Error> {
    connect_in_pieces(tls, client, name, usize::MAX)
}

fn connect_in_pieces(
    tls: &Tls,
    client: &ClientConfig,
    name: &str,
    piece_bytes: usize,
) -> Result<Ends, rustls::Error> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(client.clone()), name).unwrap();
    let mut server = tls.accept().unwrap();
    loop {
        let mut sent = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut sent).unwrap();
        }
        for piece in sent.chunks(piece_bytes) {
            server = receive(server, piece)?;
        }
        let mut answered = Vec::new();
        if let TlsConnection::Ready(server) = &mut server {
            while server.wants_write() {
                server.write_tls(&mut answered).unwrap();
            }
        }
        let mut rest = answered.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets()?;
        }
        match server {
            TlsConnection::Ready(server) if sent.is_empty() && answered.is_empty() => {
                assert!(!client.is_handshaking() && !server.is_handshaking());
                return Ok((client, server));
            }
            other => server = other,
        }
    }
}

fn receive(mut server: TlsConnection, mut piece: &[u8]) -> Result<TlsConnection, rustls::Error> {
    while !piece.is_empty() {
        match &mut server {
            TlsConnection::Ready(server) => {
                server.read_tls(&mut piece).unwrap();
                server.process_new_packets()?;
            }
            TlsConnection::AwaitingHello(choosing) => {
                match choosing.read_hello(&mut piece).unwrap() {
                    HelloResult::More => {}
                    HelloResult::Ready(mut ready) => {
                        ready.process_new_packets()?;
                        server = TlsConnection::Ready(ready);
                    }
                    HelloResult::Refused { failure, .. } => return Err(failure.error),
                }
            }
            TlsConnection::Sealed(_) | TlsConnection::Lost => unreachable!("no handshake ends so"),
        }
    }
    Ok(server)
}

/// Returns the certificate received by the client.
fn seen(ends: &Ends) -> CertificateDer<'static> {
    ends.0.peer_certificates().unwrap()[0].clone()
}

fn certificate_in(spec: &PairSpec) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(spec.certificate.as_ref().unwrap()).unwrap()
}

fn kind(ends: &Ends) -> HandshakeKind {
    ends.1.handshake_kind().unwrap()
}

#[test]
fn the_name_chooses_the_certificate() {
    let fixture = Fixture::new();
    let exact = fixture.pair(&["a.test", "b.test"]);
    let wildcard = fixture.pair(&["*.c.test"]);
    let tls = fixture.tls(&[exact.clone(), wildcard.clone()]);
    assert!(matches!(tls.accept().unwrap(), TlsConnection::Ready(_)));
    for version in rustls::ALL_VERSIONS {
        let mut client = fixture.client_of(version);
        for (name, spec) in [
            ("a.test", &exact),
            ("B.tEst", &exact),
            ("x.c.test", &wildcard),
        ] {
            let ends = connect(&tls, &client, name).unwrap();
            assert_eq!(seen(&ends), certificate_in(spec), "{name}");
            let sni = ends.1.server_name().map(str::to_owned);
            assert_eq!(tls.identity(sni.as_deref()), tls.identity(Some(name)));
        }
        for unknown in ["c.test", "y.x.c.test", "d.test"] {
            assert!(connect(&tls, &client, unknown).is_err(), "{unknown}");
            let nobody = ConnectionIdentity::new(PairFingerprint::NONE, 1);
            assert_eq!(tls.identity(Some(unknown)), nobody);
        }
        // A client without a server name gets the self-signed certificate, which the test's client trusts.
        client.enable_sni = false;
        let ends = connect(&tls, &client, "localhost").unwrap();
        assert_eq!(seen(&ends), fixture.self_signed.certified().cert[0]);
    }
    assert_ne!(tls.identity(None), tls.identity(Some("a.test")));
    assert_eq!(tls.identity(Some("A.test")), tls.identity(Some("b.test.")));
}

#[test]
fn a_pair_for_any_name_serves_unknown_and_missing_names() {
    let fixture = Fixture::new();
    let any = fixture.pair(&["*"]);
    let tls = fixture.tls(&[fixture.pair(&["a.test"]), any.clone()]);
    let mut client = fixture.client();
    let ends = connect(&tls, &client, "any.test").unwrap();
    assert_eq!(seen(&ends), certificate_in(&any));
    client.enable_sni = false;
    let ends = connect(&tls, &client, "any.test").unwrap();
    assert_eq!(seen(&ends), certificate_in(&any));
    assert_eq!(tls.identity(None), tls.identity(Some("unknown.test")));
    assert_ne!(tls.identity(None), tls.identity(Some("a.test")));
}

#[test]
fn without_pairs_the_self_signed_certificate_is_served() {
    let fixture = Fixture::new();
    let any = PairSpec {
        names: vec!["*".to_owned()],
        ..PairSpec::default()
    };
    let named = PairSpec {
        names: vec!["192.0.2.1".to_owned()],
        ..PairSpec::default()
    };
    let tls = fixture.tls(&[any, named]);
    connect(&tls, &fixture.client(), "localhost").unwrap();
    connect(&tls, &fixture.client(), "127.0.0.1").unwrap();
    assert_eq!(tls.identity(None), tls.identity(Some("192.0.2.1")));
    assert_eq!(tls.warnings(), [""; 0]);
}

#[test]
fn versions_and_application_protocols_are_negotiated() {
    let fixture = Fixture::new();
    let pairs = [fixture.pair(&["a.test"])];
    let mut settings = fixture.settings();
    let old = fixture.client_of(&rustls::version::TLS12);
    let mut new = fixture.client();
    new.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let both = fixture.build(&pairs, &settings);
    let ends = connect(&both, &old, "a.test").unwrap();
    assert_eq!(ends.1.protocol_version(), Some(ProtocolVersion::TLSv1_2));
    let ends = connect(&both, &new, "a.test").unwrap();
    assert_eq!(ends.1.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    assert_eq!(ends.1.alpn_protocol(), Some(&b"h2"[..]));

    settings.min_version = MinVersion::Tls13;
    settings.alpn = vec![b"http/1.1".to_vec()];
    let strict = fixture.build(&pairs, &settings);
    assert!(connect(&strict, &old, "a.test").is_err());
    let ends = connect(&strict, &new, "a.test").unwrap();
    assert_eq!(ends.1.alpn_protocol(), Some(&b"http/1.1"[..]));
}

#[test]
fn the_cipher_order_of_the_server_precedes_the_order_of_the_client() {
    use CipherSuite as Suite;
    let fixture = Fixture::new();
    let rsa_key = KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
    let rsa = fixture.certificate(&["rsa.test"], &rsa_key) + &rsa_key.serialize_pem();
    let pairs = [
        fixture.pair(&["ec.test"]),
        PairSpec {
            names: vec!["rsa.test".to_owned()],
            certificate: Some(fixture.write("rsa.pem", &rsa)),
            ..PairSpec::default()
        },
    ];
    let mut settings = fixture.settings();
    for (aes_in_hardware, tls13, ec, rsa) in [
        (
            true,
            Suite::TLS13_AES_128_GCM_SHA256,
            Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        ),
        (
            false,
            Suite::TLS13_CHACHA20_POLY1305_SHA256,
            Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
            Suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
    ] {
        settings.aes_in_hardware = aes_in_hardware;
        let tls = fixture.build(&pairs, &settings);
        let suite = |client: &ClientConfig, name| {
            let ends = connect(&tls, client, name).unwrap();
            ends.1.negotiated_cipher_suite().unwrap().suite()
        };
        let [new, old] =
            [&rustls::version::TLS13, &rustls::version::TLS12].map(|v| fixture.client_of(v));
        assert_eq!(suite(&new, "ec.test"), tls13);
        assert_eq!(suite(&new, "rsa.test"), tls13);
        assert_eq!(suite(&old, "ec.test"), ec);
        assert_eq!(suite(&old, "rsa.test"), rsa);
    }
    settings.ciphers = Ciphers::List(vec!["ECDHE-ECDSA-AES256-GCM-SHA384".to_owned()]);
    let tls = fixture.build(&pairs, &settings);
    assert!(
        tls.warnings()[0].contains("TLS 1.3"),
        "{:?}",
        tls.warnings()
    );
    let ends = connect(&tls, &fixture.client(), "ec.test").unwrap();
    assert_eq!(ends.1.protocol_version(), Some(ProtocolVersion::TLSv1_2));
    settings.min_version = MinVersion::Tls13;
    let error = Tls::build(&pairs, &settings, &fixture.self_signed, None, NOW).unwrap_err();
    assert_eq!(error.part, TlsPart::Ciphers);
}

#[test]
fn the_first_key_exchange_of_the_client_needs_no_second_flight() {
    let fixture = Fixture::new();
    let tls = fixture.tls(&[fixture.pair(&["a.test"])]);
    let cases: [(
        Vec<&'static dyn rustls::crypto::SupportedKxGroup>,
        NamedGroup,
    ); 5] = [
        (vec![kx_group::X25519], NamedGroup::X25519),
        (
            vec![kx_group::X25519, kx_group::X25519MLKEM768],
            NamedGroup::X25519,
        ),
        (
            vec![kx_group::X25519MLKEM768, kx_group::X25519],
            NamedGroup::X25519MLKEM768,
        ),
        (vec![kx_group::SECP256R1], NamedGroup::secp256r1),
        (vec![kx_group::SECP384R1], NamedGroup::secp384r1),
    ];
    for (kx_groups, group) in cases {
        let provider = CryptoProvider {
            kx_groups,
            ..aws_lc_rs::default_provider()
        };
        let client = fixture.client_with(provider, rustls::ALL_VERSIONS);
        let ends = connect(&tls, &client, "a.test").unwrap();
        assert_eq!(kind(&ends), HandshakeKind::Full, "{group:?}");
        let used = ends.1.negotiated_key_exchange_group().unwrap();
        assert_eq!(used.name(), group);
    }
}

#[test]
fn a_client_resumes_by_ticket_after_a_restart_and_on_another_node() {
    let fixture = Fixture::new();
    let pairs = [fixture.pair(&["a.test"]), fixture.pair(&["b.test"])];
    let state = fixture.path("state");
    let shared = fixture.write("shared.keys", &"0123456789abcdef".repeat(4));
    let from_state = || TicketKeys::from_state(&state, unix_now()).unwrap();
    let from_file = || TicketKeys::from_file(&shared).unwrap();
    for source in [&from_state as &dyn Fn() -> TicketKeys, &from_file] {
        let start = || fixture.build(&pairs, &TlsSettings::new(Arc::new(source())));
        for version in rustls::ALL_VERSIONS {
            let client = fixture.client_of(version);
            let (one, two) = (start(), start());
            let first = connect(&one, &client, "a.test").unwrap();
            assert_eq!(kind(&first), HandshakeKind::Full);
            let tls13 = first.0.protocol_version() == Some(ProtocolVersion::TLSv1_3);
            assert_eq!(first.0.tls13_tickets_received(), u32::from(tls13));
            let second = connect(&two, &client, "a.test").unwrap();
            assert_eq!(kind(&second), HandshakeKind::Resumed);
            let third = connect(&one, &client, "a.test").unwrap();
            assert_eq!(kind(&third), HandshakeKind::Resumed);
            let other_site = connect(&two, &client, "b.test").unwrap();
            assert_eq!(kind(&other_site), HandshakeKind::Full);
        }
    }
    let client = fixture.client();
    connect(&fixture.tls(&pairs), &client, "a.test").unwrap();
    let stranger = connect(&fixture.tls(&pairs), &client, "a.test").unwrap();
    assert_eq!(kind(&stranger), HandshakeKind::Full);
}

#[test]
fn a_client_certificate_is_demanded_by_its_site_alone() {
    let fixture = Fixture::new();
    let clients = authority("the clients' CA");
    let strangers = authority("another CA");
    let client_ca = fixture.write("clients.pem", &clients.pem());
    let open = fixture.pair(&["open.test"]);
    let closed = fixture.demanding_pair(&["closed.test", "*.closed.test"], &client_ca);
    let tls = fixture.tls(&[open.clone(), closed.clone()]);
    assert!(matches!(
        tls.accept().unwrap(),
        TlsConnection::AwaitingHello(_)
    ));
    assert_ne!(
        tls.identity(Some("open.test")),
        tls.identity(Some("closed.test"))
    );
    // A connection over QUIC can't have presented a certificate, whichever configuration its handshake
    // used.
    assert_eq!(tls.identity_over_quic(Some("closed.test")), None);
    let its = tls.identity(Some("open.test"));
    assert_eq!(tls.identity_over_quic(Some("open.test")), Some(its));
    for version in rustls::ALL_VERSIONS {
        let anonymous = fixture.client_of(version);
        let known = fixture.certified_client(&clients, version);
        let stranger = fixture.certified_client(&strangers, version);
        for client in [&anonymous, &known, &stranger] {
            let ends = connect(&tls, client, "open.test").unwrap();
            assert_eq!(seen(&ends), certificate_in(&open));
            assert!(ends.1.peer_certificates().is_none());
            assert!(connect(&tls, client, "nowhere.test").is_err());
        }
        for name in ["closed.test", "x.closed.test"] {
            assert!(connect(&tls, &anonymous, name).is_err());
            assert!(connect(&tls, &stranger, name).is_err());
            let ends = connect(&tls, &known, name).unwrap();
            assert_eq!(seen(&ends), certificate_in(&closed));
            assert!(ends.1.peer_certificates().is_some());
            let again = connect(&tls, &known, name).unwrap();
            assert_eq!(kind(&again), HandshakeKind::Resumed);
            assert!(again.1.peer_certificates().is_some());
        }
    }
}

#[test]
fn a_ticket_does_not_cross_the_demand_for_a_client_certificate() {
    let fixture = Fixture::new();
    let clients = authority("the clients' CA");
    let client_ca = fixture.write("clients.pem", &clients.pem());
    let settings = fixture.settings();
    let closed_spec = fixture.demanding_pair(&["a.test"], &client_ca);
    let open_spec = PairSpec {
        client_ca: None,
        ..closed_spec.clone()
    };
    for version in rustls::ALL_VERSIONS {
        fixture.write("clients.pem", &clients.pem());
        let open = fixture.build(std::slice::from_ref(&open_spec), &settings);
        let closed = fixture.build(std::slice::from_ref(&closed_spec), &settings);
        let anonymous = fixture.client_of(version);
        connect(&open, &anonymous, "a.test").unwrap();
        assert!(connect(&closed, &anonymous, "a.test").is_err());

        let known = fixture.certified_client(&clients, version);
        connect(&closed, &known, "a.test").unwrap();
        let ends = connect(&open, &known, "a.test").unwrap();
        assert_eq!(kind(&ends), HandshakeKind::Full);
        connect(&closed, &known, "a.test").unwrap();
        // After a change of the CA in the file, an admitted client must present a certificate again on a new
        // connection, and the old connection no longer belongs to the site.
        fixture.write("clients.pem", &authority("a new CA").pem());
        let changed = fixture.build(std::slice::from_ref(&closed_spec), &settings);
        assert_ne!(
            changed.identity(Some("a.test")),
            closed.identity(Some("a.test"))
        );
        let again = fixture.build(std::slice::from_ref(&closed_spec), &settings);
        assert_eq!(
            changed.identity(Some("a.test")),
            again.identity(Some("a.test"))
        );
        assert!(connect(&changed, &known, "a.test").is_err());
    }
}

#[test]
fn the_client_hello_may_arrive_in_any_pieces() {
    let fixture = Fixture::new();
    let client_ca = fixture.path("ca.pem");
    let tls = fixture.tls(&[
        fixture.pair(&["open.test"]),
        fixture.demanding_pair(&["closed.test"], &client_ca),
    ]);
    for piece_bytes in [1, 5, 100, 1199] {
        connect_in_pieces(&tls, &fixture.client(), "open.test", piece_bytes).unwrap();
    }
    let (mut client, mut server) = connect(&tls, &fixture.client(), "open.test").unwrap();
    // Writes larger than rustls's default limit of unsent bytes are taken whole.
    assert_eq!(server.writer().write(&[7; 200_000]).unwrap(), 200_000);
    let mut received = vec![0; 200_000];
    let mut filled = 0;
    while filled < received.len() {
        let mut sent = Vec::new();
        server.write_tls(&mut sent).unwrap();
        let mut rest = sent.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().unwrap();
            filled += client.reader().read(&mut received[filled..]).unwrap_or(0);
        }
    }
    assert_eq!(received, [7; 200_000]);
}

#[test]
fn a_client_without_tls_gets_an_alert_or_no_bytes() {
    let fixture = Fixture::new();
    let client_ca = fixture.path("ca.pem");
    let tls = fixture.tls(&[fixture.demanding_pair(&["closed.test"], &client_ca)]);
    let TlsConnection::AwaitingHello(mut choosing) = tls.accept().unwrap() else {
        panic!("nothing to choose");
    };
    let HelloResult::Refused { alert, .. } = choosing
        .read_hello(&mut &b"GET / HTTP/1.1\r\n\r\n"[..])
        .unwrap()
    else {
        panic!("plain HTTP was taken for TLS");
    };
    assert!(alert.is_empty() || alert[0] == 0x15);
    let TlsConnection::AwaitingHello(mut choosing) = tls.accept().unwrap() else {
        panic!("nothing to choose");
    };
    assert!(choosing.read_hello(&mut &[][..]).is_err());
}

#[test]
fn keys_of_every_kind_and_form_are_loaded() {
    let fixture = Fixture::new();
    let name = "a.test";
    for (kind, label, algorithm) in [
        ("p256", "EC", &rcgen::PKCS_ECDSA_P256_SHA256),
        ("p384", "EC", &rcgen::PKCS_ECDSA_P384_SHA384),
        ("ed25519", "", &rcgen::PKCS_ED25519),
        ("rsa", "RSA", &rcgen::PKCS_RSA_SHA256),
    ] {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let certificate = fixture.write("cert.pem", &fixture.certificate(&[name], &key));
        let mut forms = vec![
            key.serialize_pem(),
            key.serialize_pem().replace('\n', "\r\n"),
        ];
        if !label.is_empty() {
            // PKCS #8 contains the older form of the key (RFC 5958 §2).
            let der = key.serialize_der();
            let mut inside = der::DerReader(der::DerReader(&der).next().unwrap().content);
            inside.next();
            inside.next();
            forms.push(pem(
                &format!("{label} PRIVATE KEY"),
                inside.next().unwrap().content,
            ));
        }
        for form in forms {
            let spec = PairSpec {
                names: vec![name.to_owned()],
                certificate: Some(certificate.clone()),
                key: Some(fixture.write("key.pem", &form)),
                ..PairSpec::default()
            };
            let tls = fixture.tls(std::slice::from_ref(&spec));
            let ends = connect(&tls, &fixture.client(), name);
            assert!(ends.is_ok(), "{kind}: {ends:?}\n{form}");
        }
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in der.chunks(48) {
        for three in line.chunks(3) {
            let byte = |at: usize| u32::from(*three.get(at).unwrap_or(&0));
            let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
            for digit in 0..4 {
                let shown = digit <= three.len();
                let index = (bits >> (18 - 6 * digit) & 63) as usize;
                text.push(if shown {
                    char::from(DIGITS[index])
                } else {
                    '='
                });
            }
        }
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}

#[test]
fn the_chain_is_put_in_order() {
    let fixture = Fixture::new();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "between");
    let between =
        CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), &fixture.authority)
            .unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["a.test".to_owned()])
        .unwrap()
        .signed_by(&key, &between)
        .unwrap();
    let stray = authority("has nothing to do with it");
    for (mixed, warned) in [
        (
            leaf.pem() + &between.pem() + &stray.pem() + &key.serialize_pem(),
            false,
        ),
        (
            key.serialize_pem() + &stray.pem() + &between.pem() + &leaf.pem(),
            true,
        ),
    ] {
        let spec = PairSpec {
            names: vec!["a.test".to_owned()],
            certificate: Some(fixture.write("chain.pem", &mixed)),
            ..PairSpec::default()
        };
        let tls = fixture.tls(&[spec]);
        let ends = connect(&tls, &fixture.client(), "a.test").unwrap();
        let chain = [leaf.der(), between.der(), stray.der()].map(Clone::clone);
        assert_eq!(ends.0.peer_certificates().unwrap(), chain);
        assert_eq!(
            tls.warnings().len(),
            usize::from(warned),
            "{:?}",
            tls.warnings()
        );
    }
}

#[test]
fn errors_name_the_file_and_the_remedy() {
    let fixture = Fixture::new();
    let key = KeyPair::generate().unwrap();
    let (certificate, key_pem) = (fixture.certificate(&["a.test"], &key), key.serialize_pem());
    let other_key = KeyPair::generate().unwrap().serialize_pem();
    let authority = fixture.authority.pem();
    let encrypted = pem("ENCRYPTED PRIVATE KEY", b"secret");
    let old_encrypted = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n\
                         -----END RSA PRIVATE KEY-----\n";
    let cases: [(&str, &str, &str, &str); 15] = [
        (&certificate, "", "has no private key", "append the key"),
        (&certificate, &other_key, "does not belong", "renewal"),
        (&(authority.clone() + &other_key), "", "does not belong", ""),
        (&certificate, &encrypted, "encrypted", "openssl pkey -in"),
        (&certificate, old_encrypted, "encrypted", "openssl pkey"),
        (&key_pem, "", "has no certificate", "exchanged"),
        (
            &certificate,
            &certificate,
            "has no private key",
            "exchanged",
        ),
        (&key_pem, &certificate, "has no certificate", "exchanged"),
        ("", "", "empty", "BEGIN"),
        ("hello", "", "not PEM", "BEGIN"),
        (
            &pem("CERTIFICATE REQUEST", b"x"),
            "",
            "has no certificate",
            "CA's answer",
        ),
        (&pem("CERTIFICATE", b"x"), &key_pem, "X.509", "again"),
        (&certificate[..300], &key_pem, "end is missing", "again"),
        (
            &certificate,
            &pem("PRIVATE KEY", b"x"),
            "cannot be used",
            "RSA",
        ),
        (
            &certificate,
            &pem("DSA PRIVATE KEY", b"x"),
            "DSA PRIVATE KEY",
            "RSA",
        ),
    ];
    for (certificate, key, what, hint) in cases {
        let spec = PairSpec {
            names: vec!["a.test".to_owned()],
            certificate: Some(fixture.write("cert.pem", certificate)),
            key: (!key.is_empty()).then(|| fixture.write("key.pem", key)),
            ..PairSpec::default()
        };
        let error = fixture.error(&[fixture.pair(&["b.test"]), spec]);
        assert_eq!(error.pair, Some(1));
        assert!(error.file.is_some(), "{error}");
        assert!(
            error.what.contains(what) && error.hint.contains(hint),
            "{error}"
        );
    }
}

#[test]
fn unusable_files_and_names_are_errors() {
    let fixture = Fixture::new();
    let good = fixture.pair(&["a.test"]);
    let with = |change: &dyn Fn(&mut PairSpec)| {
        let mut spec = good.clone();
        change(&mut spec);
        fixture.error(&[spec])
    };
    let certificate = |bytes: &[u8]| {
        fs::write(fixture.path("odd"), bytes).unwrap();
        with(&|spec| spec.certificate = Some(fixture.path("odd"))).to_string()
    };
    assert!(certificate(&[0x30, 0x82, 1, 0, 0x30]).contains("openssl x509 -inform der"));
    assert!(certificate(&[0x30, 0x82, 1, 0, 2, 1, 3]).contains("openssl pkcs12 -in /"));
    assert!(certificate(&vec![b'-'; 2 << 20]).contains("too large"));
    let error = with(&|spec| spec.certificate = Some(fixture.path("")));
    assert!(error.what.contains("folder"), "{error}");
    let error = with(&|spec| spec.key = Some(fixture.path("nowhere")));
    assert_eq!(
        (error.part, error.file),
        (TlsPart::Key, Some(fixture.path("nowhere")))
    );
    let error = with(&|spec| spec.client_ca = Some(fixture.path("nowhere")));
    assert_eq!(error.part, TlsPart::ClientCa);
    let key = fixture.write("only.key", &KeyPair::generate().unwrap().serialize_pem());
    let error = with(&|spec| spec.client_ca = Some(key.clone()));
    assert!(error.what.contains("PRIVATE KEY"), "{error}");
    for (name, hint) in [
        ("a b", "host name"),
        ("ü.test", "xn--"),
        ("a.*.test", "host name"),
        ("", "host name"),
    ] {
        let error = with(&|spec| spec.names = vec![name.to_owned()]);
        assert_eq!(error.part, TlsPart::Names);
        assert!(error.hint.contains(hint), "{error}");
    }
    let error = fixture.error(&[good.clone(), fixture.pair(&["b.test", "A.test"])]);
    assert_eq!((error.pair, error.part), (Some(1), TlsPart::Names));
}

#[test]
fn warnings_and_summary_describe_all_pairs() {
    let fixture = Fixture::new();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2027, 1, 1);
    params.not_after = rcgen::date_time_ymd(2027, 4, 1);
    let (from, until) = (1_798_761_600, 1_806_537_600);
    let certificate = params.signed_by(&key, &fixture.authority).unwrap().pem();
    let spec = PairSpec {
        names: vec!["a.test".to_owned(), "www.a.test".to_owned()],
        certificate: Some(fixture.write("a.pem", &(certificate + &key.serialize_pem()))),
        ..PairSpec::default()
    };
    let settings = fixture.settings();
    let at = |now| {
        let specs = std::slice::from_ref(&spec);
        Tls::build(specs, &settings, &fixture.self_signed, None, now).unwrap()
    };
    for (now, words) in [
        (from + 1, None),
        (from - 86_400, Some("becomes valid in 1 days")),
        (until - 3 * 86_400, Some("ends soon, days left: 3")),
        (until + 2 * 86_400, Some("expired 2 days ago")),
        (until + 86_400, Some("expired 1 day ago")),
    ] {
        let tls = at(now);
        let warnings = tls.warnings().join("\n");
        assert!(warnings.contains("does not name www.a.test"), "{warnings}");
        assert_eq!(tls.warnings().len(), 1 + words.iter().count(), "{warnings}");
        assert!(warnings.contains(words.unwrap_or("")), "{warnings}");
    }
    let summary = &at(from).summary()[0];
    assert_eq!(summary.names, spec.names);
    assert_eq!(summary.missing_names, ["www.a.test"]);
    assert_eq!(summary.not_after, until);
    assert_eq!(summary.days_left(from), 90);
    assert_eq!(summary.days_left(until + 1), -1);
}

#[test]
fn the_old_pair_stays_until_certificate_and_key_are_replaced() {
    let fixture = Fixture::new();
    let [old, new] = [(); 2].map(|()| KeyPair::generate().unwrap());
    let old_certificate = fixture.certificate(&["a.test"], &old);
    let spec = PairSpec {
        names: vec!["a.test".to_owned()],
        certificate: Some(fixture.write("cert.pem", &old_certificate)),
        key: Some(fixture.write("key.pem", &old.serialize_pem())),
        ..PairSpec::default()
    };
    let old_der = certificate_in(&spec);
    let settings = fixture.settings();
    let build = |previous: Option<&Tls>| {
        let specs = std::slice::from_ref(&spec);
        Tls::build(specs, &settings, &fixture.self_signed, previous, NOW)
    };
    let first = build(None).unwrap();
    fixture.write("cert.pem", &fixture.certificate(&["a.test"], &new));
    assert!(build(None).unwrap_err().what.contains("does not belong"));
    let half = build(Some(&first)).unwrap();
    assert!(
        half.warnings()[0].contains("previous pair stays"),
        "{:?}",
        half.warnings()
    );
    let client = fixture.client();
    assert_eq!(seen(&connect(&half, &client, "a.test").unwrap()), old_der);
    // The mismatched pair stays mismatched in every build.
    let half = build(Some(&half)).unwrap();
    fixture.write("key.pem", &new.serialize_pem());
    let whole = build(Some(&half)).unwrap();
    assert_eq!(whole.warnings(), [""; 0]);
    // Another client, since a resumed connection shows the certificate of the first connection.
    let ends = connect(&whole, &fixture.client(), "a.test").unwrap();
    assert_eq!(seen(&ends), certificate_in(&spec));
    let kept = whole.site_identity(Some("a.test"));
    assert_eq!(
        kept.accepts(first.identity(Some("a.test"))),
        Acceptance::Accepted
    );
    // A missing file is an error: the old World stays in use.
    fs::remove_file(fixture.path("key.pem")).unwrap();
    assert!(build(Some(&whole)).is_err());
}

/// Returns a pair with a certificate that ACME has not obtained yet.
fn later(fixture: &Fixture, name: &str, client_ca: Option<PathBuf>) -> PairSpec {
    PairSpec {
        names: vec![name.to_owned()],
        certificate: Some(fixture.write("empty", "").with_file_name("later.pem")),
        client_ca,
        is_managed: true,
        ..PairSpec::default()
    }
}

#[test]
fn the_self_signed_certificate_replaces_a_missing_managed_certificate() {
    let fixture = Fixture::new();
    let spec = later(&fixture, "a.test", None);
    let settings = fixture.settings();
    let build = |previous: Option<&Tls>| {
        let specs = std::slice::from_ref(&spec);
        Tls::build(specs, &settings, &fixture.self_signed, previous, NOW).unwrap()
    };
    let before = build(None);
    assert!(before.summary()[0].awaits_certificate);
    assert_eq!(before.warnings(), [""; 0]);
    let mut without_name = fixture.client();
    without_name.enable_sni = false;

    // An unusable file counts as missing. Once loaded, the certificate stays in use after the removal of
    // its file.
    fixture.write("later.pem", "-----BEGIN");
    assert!(build(Some(&before)).summary()[0].awaits_certificate);
    let ready = fixture.pair(&["a.test"]);
    let file = spec.certificate.clone().unwrap();
    std::fs::copy(ready.certificate.as_ref().unwrap(), &file).unwrap();
    let after = build(Some(&before));
    assert!(!after.summary()[0].awaits_certificate);
    let ends = connect(&after, &fixture.client(), "a.test").unwrap();
    assert_eq!(seen(&ends), certificate_in(&ready));
    // An earlier connection stays usable.
    let kept = after.site_identity(Some("a.test"));
    assert_eq!(
        kept.accepts(before.identity(Some("a.test"))),
        Acceptance::Accepted
    );
    std::fs::remove_file(&file).unwrap();
    let kept = build(Some(&after));
    let ends = connect(&kept, &fixture.client(), "a.test").unwrap();
    assert_eq!(seen(&ends), certificate_in(&ready));
}

#[test]
fn a_validating_directory_gets_only_the_certificate_of_the_challenge() {
    let fixture = Fixture::new();
    let issuer = authority("clients");
    let client_ca = fixture.write("clients.pem", &issuer.pem());
    let open = fixture.pair(&["a.test"]);
    let closed = fixture.demanding_pair(&["b.test"], &client_ca);
    let ledger = Arc::new(PendingChallenges::default());
    let mut settings = fixture.settings();
    settings.challenges = Some(Arc::clone(&ledger));
    let tls = fixture.build(&[open.clone(), closed], &settings);
    let asking = |alpn: &[&[u8]]| {
        let provider = aws_lc_rs::default_provider();
        let mut client = fixture.client_with(provider, rustls::ALL_VERSIONS);
        client.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        client
    };
    let validating = asking(&[ACME_TLS_ALPN]);
    for name in ["a.test", "b.test"] {
        assert!(connect(&tls, &validating, name).is_err(), "{name}");
        let posted = ledger.post_alpn(name, "token.print", unix_now()).unwrap();
        // The challenge's certificate is self-signed, so the client refuses it after receiving it.
        let error = connect(&tls, &validating, name).err().unwrap();
        assert!(
            matches!(error, rustls::Error::InvalidCertificate(_)),
            "{name}: {error}"
        );
        // A client that offers further protocols is an ordinary client: it gets the site's certificate and
        // the site's demand for a client certificate.
        let both = connect(&tls, &asking(&[ACME_TLS_ALPN, b"h2"]), name);
        match name {
            "a.test" => {
                let ends = both.unwrap();
                assert_eq!(seen(&ends), certificate_in(&open));
                assert_eq!(ends.1.alpn_protocol(), Some(&b"h2"[..]));
            }
            _ => assert!(both.is_err()),
        }
        drop(posted);
    }
    let ends = connect(&tls, &asking(&[b"http/1.1"]), "a.test").unwrap();
    assert_eq!(ends.1.alpn_protocol(), Some(&b"http/1.1"[..]));
}
