//! Requirements of a site towards its clients (a client certificate, a login, an address) over every
//! transport, and reloads that add requirements to existing connections.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, HandshakeKind};

use crate::clients::Authority;
use crate::support::h2::H2;
use crate::support::trust::{client_config_of, client_config_with_certificate};
use crate::support::wire::{Over, Wire};
use crate::support::{Folder, Server, anthill, run, server_table};

const PLAIN: &str = "http = \"serve\"";
const CERTIFICATE: &str = "client_ca = \"ca.pem\"";

fn folder() -> Folder {
    let authority = Authority::new("the clients' CA");
    let hash = run("openssl", &["passwd", "-1", "-stdin"], b"crumb");
    Folder::new()
        .with("public/index.html", "the site")
        .with("open/index.html", "the other site")
        .with("users", format!("ant:{}\n", hash.text().trim()))
        .with("ca.pem", &authority.pem)
        .with("other-ca.pem", &Authority::new("another CA").pem)
        .with("client.pem", authority.client("ant").combined())
}

/// Returns a configuration with one site for the name `localhost`, and one for `open.test` without
/// requirements.
fn config(server: &str, site: &str, route: &str) -> String {
    let route = match route {
        "" => String::new(),
        route => format!("[[site.route]]\npath = \"/\"\n{route}\n"),
    };
    server_table(server)
        + &format!("[[site]]\nnames = [\"localhost\"]\nroot = \"public\"\n{site}\n{route}")
        + "[[site]]\nnames = [\"open.test\"]\nroot = \"open\"\nhttp = \"serve\"\n"
}

/// Returns the error of `anthill check`, which equals the error of a start, or None if both accept the
/// configuration.
fn check_error(folder: &Folder, text: &str) -> Option<String> {
    folder.write("anthill.toml", text);
    let file = folder.path("anthill.toml");
    let checked = anthill(&["check".as_ref(), file.as_os_str()]);
    if checked.code == Some(0) {
        return None;
    }
    let started = anthill(&["serve".as_ref(), file.as_os_str()]);
    assert_eq!(started.code, checked.code, "{started:?} {checked:?}");
    let error = |stderr: &str| {
        let at = stderr.find("error:").unwrap_or_else(|| panic!("{stderr}"));
        stderr[at..].to_owned()
    };
    assert_eq!(error(&checked.stderr), error(&started.stderr));
    Some(checked.stderr)
}

#[test]
fn a_certificate_requirement_that_plain_http_would_ignore_is_refused() {
    let folder = folder();
    let without = |table: &str, key: &str| {
        let off = format!("{key} = []");
        table.replace(&format!("{key} = [\"127.0.0.1:0\"]"), &off)
    };
    for server in ["", "h2c = true", "public_port = 443"] {
        for (plain, key) in [
            (PLAIN, "\"serve\""),
            ("http = \"redirect\"", "redirect"),
            ("", ""),
        ] {
            let site = format!("{plain}\n{CERTIFICATE}");
            let text = config(server, &site, "");
            // Plain HTTP besides https.
            let said = check_error(&folder, &text);
            assert_eq!(said.is_some(), plain == PLAIN, "{text}: {said:?}");
            if let Some(said) = said {
                assert!(said.contains(&format!("| http = {key}")), "{said}");
                assert!(
                    said.contains("plain HTTP only redirects to https"),
                    "{said}"
                );
            }
            // Without an https address a redirect has no target.
            let said = check_error(&folder, &without(&text, "https"));
            let said = said.unwrap_or_else(|| panic!("{text}"));
            assert!(said.contains("the server has no https address"), "{said}");
            assert!(said.contains(&format!("| {CERTIFICATE}")), "{said}");
            // Without an http address the configuration is accepted.
            assert_eq!(
                check_error(&folder, &without(&text, "http")),
                None,
                "{text}"
            );
        }
    }
    // The other requirements hold over plain HTTP as well.
    for route in ["users = \"users\"", "allow = []"] {
        assert_eq!(check_error(&folder, &config("", PLAIN, route)), None);
        let text = without(&config("", PLAIN, route), "https");
        assert_eq!(check_error(&folder, &text), None);
    }
    // A command-line option causes the same error.
    folder.write("anthill.toml", config("", CERTIFICATE, ""));
    let file = folder.path("anthill.toml");
    let off = [
        "check".as_ref(),
        file.as_os_str(),
        "--https".as_ref(),
        "off".as_ref(),
    ];
    let checked = anthill(&off);
    assert_eq!(checked.code, Some(2), "{checked:?}");
    assert!(checked.stderr.contains("no https address"), "{checked:?}");
}

#[test]
fn a_reload_that_would_serve_without_certificates_is_refused() {
    let folder = folder();
    let demanding = config("", CERTIFICATE, "");
    let server = Server::start_in(folder, &demanding);
    let site = format!("{CERTIFICATE}\n{PLAIN}");
    server.folder.write("anthill.toml", config("", &site, ""));
    let reloaded = server.ask(&["reload"]);
    assert_ne!(reloaded.code, Some(0), "{reloaded:?}");
    assert!(
        reloaded.stderr.contains("serves the site without TLS"),
        "{reloaded:?}"
    );
    let mut wire = Wire::plain(&server);
    assert_eq!(wire.get("/", "").status, 308);
}

/// The response over each transport to a client without credentials: a status, or 0 for a refused
/// connection.
#[test]
fn every_requirement_holds_over_every_transport() {
    for (demand, site, route, plain, tls) in [
        ("a certificate", CERTIFICATE, "", 308, 0),
        ("a login", PLAIN, "users = \"users\"", 401, 401),
        ("an address", PLAIN, "allow = [\"127.0.0.9\"]", 403, 403),
        ("nothing", PLAIN, "", 200, 200),
    ] {
        let server = Server::start_in(folder(), &config("h2c = true", site, route));
        let said = |got: Option<crate::support::wire::Response>| {
            let secret = got
                .as_ref()
                .is_some_and(|got| got.text().contains("the site"));
            assert_eq!(secret, demand == "nothing", "{demand}: {got:?}");
            got.map_or(0, |got| got.status)
        };
        assert_eq!(
            said(Some(Wire::plain(&server).get("/", ""))),
            plain,
            "{demand}"
        );
        assert_eq!(
            said(Some(H2::open(&server, Over::Plain).get("/"))),
            plain,
            "{demand}"
        );
        for http in ["--http1.1", "--http2"] {
            let ran = server.curl(&[http, "-w", "\n%{http_code}", &server.https("/")]);
            let text = ran.text();
            let (body, status) = text.rsplit_once('\n').unwrap_or(("", "000"));
            assert_eq!(status.parse(), Ok(tls), "{demand} {http}: {text}");
            assert_eq!(body.contains("the site"), demand == "nothing", "{text}");
        }
        #[cfg(feature = "http3")]
        {
            let status = crate::h3::run_scenario(&server, &["status", "localhost"]);
            assert_eq!(status, tls.to_string(), "{demand}");
        }
        // A connection of another site does not reach a site with a client certificate requirement.
        let through = Wire::tls_as(&server, "open.test", &[]).get("/", "");
        let expected = if tls == 0 { 421 } else { tls };
        assert_eq!(through.status, expected, "{demand} {through:?}");
    }
}

/// The client's end of a TLS connection, driven step by step.
struct ManualClient {
    socket: TcpStream,
    connection: ClientConnection,
}

impl ManualClient {
    fn connect(server: &Server, config: Arc<rustls::ClientConfig>) -> ManualClient {
        let name = ServerName::try_from("localhost").expect("a name");
        let socket = TcpStream::connect(("127.0.0.1", server.https_port)).expect("a connection");
        ManualClient {
            socket,
            connection: ClientConnection::new(config, name).expect("a TLS client"),
        }
    }

    /// Sends all pending bytes, at first the ClientHello.
    fn send_pending(&mut self) {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut self.socket).expect("sent");
        }
    }

    /// Reads until the server waits for the client.
    fn receive(&mut self) {
        while self.connection.is_handshaking() && !self.connection.wants_write() {
            let read = self.connection.read_tls(&mut self.socket).expect("read");
            assert_ne!(read, 0, "the server closed");
            self.connection.process_new_packets().expect("a handshake");
        }
    }

    /// Finishes the handshake and sends a request. Returns None if the server closes or refuses the
    /// connection.
    fn ask(mut self) -> Option<String> {
        let mut stream = rustls::Stream::new(&mut self.connection, &mut self.socket);
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .ok()?;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        (!answer.is_empty()).then(|| String::from_utf8_lossy(&answer).into_owned())
    }
}

fn is_refused(answer: Option<String>) {
    let is_out = answer
        .as_ref()
        .is_none_or(|answer| answer.starts_with("HTTP/1.1 421 ") && !answer.contains("the site"));
    assert!(is_out, "{answer:?}");
}

/// The server fixes the requirement at the start of the handshake, and applies the current requirement to
/// the request.
#[test]
fn a_handshake_begun_before_a_reload_does_not_reach_the_site() {
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let server = Server::start_in(folder(), &config("", "", ""));
        let client = Arc::new(client_config_of(version));
        let connected = ManualClient::connect(&server, client.clone());
        let mut greeted = ManualClient::connect(&server, client.clone());
        greeted.send_pending();
        let mut answered = ManualClient::connect(&server, client.clone());
        answered.send_pending();
        answered.receive();
        let mut control = ManualClient::connect(&server, client.clone());
        control.send_pending();
        control.receive();
        assert!(
            control
                .ask()
                .is_some_and(|answer| answer.contains("the site"))
        );
        server.reload(&config("", CERTIFICATE, ""));
        for slow in [connected, greeted, answered] {
            is_refused(slow.ask());
        }
    }
}

#[test]
fn connections_and_tickets_from_before_a_reload_do_not_meet_new_requirements() {
    let open = config("h2c = true", PLAIN, "");
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let server = Server::start_in(folder(), &open);
        let client = Arc::new(client_config_of(version));
        let first = ManualClient::connect(&server, client.clone());
        assert!(
            first
                .ask()
                .is_some_and(|answer| answer.contains("the site"))
        );
        // A client resumes its session by ticket.
        let mut again = ManualClient::connect(&server, client.clone());
        again.send_pending();
        again.receive();
        assert_eq!(
            again.connection.handshake_kind(),
            Some(HandshakeKind::Resumed)
        );
        drop(again);
        let mut plain = Wire::plain(&server);
        let mut h2c = H2::open(&server, Over::Plain);
        let mut tls = server.keep_alive_tls();
        let mut h2 = H2::open(&server, Over::Tls);
        assert_eq!(plain.get("/", "").status, 200);
        assert_eq!(h2c.get("/").status, 200);
        assert_eq!(tls.get("/").status, 200);
        assert_eq!(h2.get("/").status, 200);
        server.reload(&config("h2c = true", CERTIFICATE, ""));
        assert_eq!(plain.get("/", "").status, 308);
        assert_eq!(h2c.get("/").status, 308);
        assert_eq!(tls.try_get("/").map_or(421, |got| got.status), 421);
        assert_eq!(h2.get("/").status, 421);
        let resumed = server.counter("handshakes_resumed");
        is_refused(ManualClient::connect(&server, client).ask());
        assert_eq!(server.counter("handshakes_resumed"), resumed);
    }
}

/// The CA file changes to another CA. The connection of a client with a certificate of the old CA no longer
/// reaches the site.
#[test]
fn a_connection_with_a_certificate_of_a_removed_ca_is_misdirected() {
    let server = Server::start_in(folder(), &config("", CERTIFICATE, ""));
    let pem = std::fs::read_to_string(server.folder.path("client.pem")).expect("a certificate");
    let client = client_config_with_certificate(&pem);
    let mut kept = ManualClient::connect(&server, Arc::new(client));
    let mut get = || {
        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let mut stream = rustls::Stream::new(&mut kept.connection, &mut kept.socket);
        stream.write_all(request).expect("sent");
        let mut answer = Vec::new();
        let mut byte = [0];
        while !answer.ends_with(b"\r\n\r\n") && stream.read(&mut byte).expect("read") == 1 {
            answer.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&answer).into_owned();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "));
        let mut body = vec![0; length.expect("a length").parse().expect("a number")];
        stream.read_exact(&mut body).expect("a body");
        head
    };
    assert!(get().starts_with("HTTP/1.1 200 "));
    let other = std::fs::read(server.folder.path("other-ca.pem")).expect("a CA");
    server.folder.write("ca.pem", other);
    server.reload(&config("", CERTIFICATE, ""));
    assert!(get().starts_with("HTTP/1.1 421 "));
}
