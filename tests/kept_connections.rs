//! Connections from before a reload. A reload that gives a certificate another file, or joins and orders sites and
//! names in another way, takes no connection away from its requests. Other client CAs do.

use std::net::TcpStream;
use std::sync::Arc;

use wire::h2::frame;

use crate::clients::Authority;
use crate::support::h2::H2;
use crate::support::trust::client_config_with_certificate;
use crate::support::wire::{Response, Wire};
use crate::support::{Folder, Server, server_table};

fn folder() -> Folder {
    let authority = Authority::new("Ants");
    let folder = Folder::new()
        .with("public/index.html", "the site")
        .with("other/index.html", "the other site");
    for file in ["september", "december", "other"] {
        let leaf = authority.server(&["localhost", "also.test", "other.test"]);
        folder.write(&format!("{file}.pem"), leaf.combined());
    }
    folder
}

/// Returns a site with names and further keys.
fn site(names: &str, root: &str, keys: &str) -> String {
    format!("[[site]]\nnames = [{names}]\nroot = \"{root}\"\n{keys}\n")
}

/// Connections of one client that asks two sites, over HTTP/1.1 and HTTP/2.
struct Kept {
    h1: Wire,
    h2: H2,
}

impl Kept {
    fn open(server: &Server) -> Kept {
        let h2 = Wire::tls_as(server, "localhost", &[b"h2"]);
        Kept {
            h1: Wire::tls_as(server, "localhost", &[b"http/1.1"]),
            h2: H2::on(h2).begin(b""),
        }
    }

    /// Connects with a client certificate of the server's folder.
    fn with_certificate(server: &Server, file: &str) -> Kept {
        let pem = std::fs::read_to_string(server.folder.path(file)).expect("a certificate");
        let connect = |alpn: &[u8]| {
            let mut config = client_config_with_certificate(&pem);
            config.alpn_protocols = vec![alpn.to_vec()];
            let socket = TcpStream::connect(("127.0.0.1", server.https_port));
            Wire::tls_by(socket.expect("a connection"), "localhost", Arc::new(config))
        };
        Kept {
            h1: connect(b"http/1.1"),
            h2: H2::on(connect(b"h2")).begin(b""),
        }
    }

    fn over_h1(&mut self, host: &str) -> Response {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        self.h1.send(request);
        self.h1.response("GET")
    }

    fn over_h2(&mut self, host: &str) -> Response {
        let id = self.h2.ask_all(
            &[
                (":method", "GET"),
                (":scheme", "https"),
                (":path", "/"),
                (":authority", host),
            ],
            true,
        );
        self.h2.response(id)
    }

    /// Returns how many of 5 requests to each host over both versions failed.
    fn failures(&mut self, hosts: &[(&str, &str)]) -> usize {
        let mut failed = 0;
        for (host, body) in hosts {
            for _ in 0..5 {
                let responses = [self.over_h1(host), self.over_h2(host)];
                let fails = |it: &&Response| it.status != 200 || it.text() != *body;
                failed += responses.iter().filter(fails).count();
            }
        }
        failed
    }
}

/// Reloads that change what belongs to which certificate: the change, a name of the first site that is not redirected,
/// and the sites.
fn reloads() -> Vec<(&'static str, &'static str, String)> {
    let pem = |file: &str| format!("certificate = \"{file}.pem\"");
    let [september, december, apart] = ["september", "december", "other"].map(pem);
    let both = "\"localhost\", \"also.test\"";
    let first = |keys: &str| site(both, "public", keys);
    let other = |keys: &str| site("\"other.test\"", "other", keys);
    let turned = site("\"also.test\", \"localhost\"", "public", &december);
    let longer = site(
        "\"new.test\", \"also.test\", \"localhost\"",
        "public",
        &september,
    );
    let wildcard = site("\"*.test\"", "other", &december);
    let any = site("\"*\"", "other", &apart);
    vec![
        (
            "another file",
            "localhost",
            first(&december) + &other(&december),
        ),
        ("self-signed", "localhost", first("") + &other("")),
        (
            "a file again",
            "localhost",
            first(&september) + &other(&september),
        ),
        (
            "one file each",
            "localhost",
            first(&september) + &other(&apart),
        ),
        (
            "sites reordered",
            "localhost",
            other(&apart) + &first(&september),
        ),
        ("names reordered", "also.test", turned + &other(&apart)),
        ("one name more", "new.test", longer + &other(&apart)),
        ("a wildcard", "localhost", first(&september) + &wildcard),
        ("any name", "localhost", any + &first(&december)),
        (
            "as before",
            "localhost",
            first(&september) + &other(&september),
        ),
    ]
}

/// Starts a server with two sites that share a certificate.
fn start() -> Server {
    let keys = "certificate = \"september.pem\"";
    let sites = site("\"localhost\"", "public", keys) + &site("\"other.test\"", "other", keys);
    Server::start_in(folder(), &(server_table("") + &sites))
}

#[test]
fn no_request_is_lost_by_a_reload_that_changes_certificates() {
    let server = start();
    let mut kept = Kept::open(&server);
    let hosts = |own| [(own, "the site"), ("other.test", "the other site")];
    assert_eq!(kept.failures(&hosts("localhost")), 0, "before all reloads");
    for (what, own, sites) in reloads() {
        server.reload(&(server_table("") + &sites));
        assert_eq!(kept.failures(&hosts(own)), 0, "{what}");
    }
}

/// Sites in an included file, and client CAs in a file with another name and another order.
#[test]
fn equal_client_authorities_keep_connections() {
    let clients = Authority::new("the clients");
    let more = Authority::new("more clients");
    let folder = folder()
        .with("client.pem", clients.client("ant").combined())
        .with("ca.pem", clients.pem.clone() + &more.pem)
        .with("renamed.pem", more.pem + &clients.pem);
    let keys = |pem: &str, ca: &str| format!("certificate = \"{pem}.pem\"\nclient_ca = \"{ca}\"");
    let config = |sites: &str| format!("include = [\"*.inc\"]\n{}{sites}", server_table(""));
    let inside = |pem: &str, ca: &str| config(&site("\"localhost\"", "public", &keys(pem, ca)));
    let server = Server::start_in(folder, &inside("september", "ca.pem"));
    let mut kept = Kept::with_certificate(&server, "client.pem");
    let hosts = [("localhost", "the site")];
    assert_eq!(kept.failures(&hosts), 0);
    for (pem, ca) in [
        ("september", "renamed.pem"),
        ("december", "renamed.pem"),
        ("other", "ca.pem"),
    ] {
        server.reload(&inside(pem, ca));
        assert_eq!(kept.failures(&hosts), 0, "{pem} {ca}");
    }
    let included = site("\"localhost\"", "public", &keys("september", "ca.pem"));
    server.folder.write("site.inc", included);
    server.reload(&config(""));
    assert_eq!(
        kept.failures(&hosts),
        0,
        "the site moved to an included file"
    );
}

/// Returns true if GOAWAY arrived before or with the response.
fn has_left(h2: &mut H2, host: &str) -> (u16, bool) {
    let id = h2.ask_all(
        &[
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/"),
            (":authority", host),
        ],
        true,
    );
    let mut left = false;
    loop {
        let received = h2.next().expect("a frame");
        left |= received.kind == frame::GOAWAY;
        h2.record_frame(&received);
        if received.stream == id && received.ends() {
            let status = h2.partial_response(id).expect("a response").status;
            return (status, left);
        }
    }
}

#[test]
fn other_client_authorities_end_connections() {
    let clients = Authority::new("the clients");
    let folder = |clients: &Authority| {
        folder()
            .with("client.pem", clients.client("ant").combined())
            .with("ca.pem", &clients.pem)
            .with("other-ca.pem", Authority::new("other clients").pem)
    };
    let config = |ca: &str| {
        let keys = format!("certificate = \"september.pem\"\n{ca}");
        let other = "certificate = \"other.pem\"";
        server_table("")
            + &site("\"localhost\"", "public", &keys)
            + &site("\"other.test\"", "other", other)
    };
    let [none, one, other] = ["", "client_ca = \"ca.pem\"", "client_ca = \"other-ca.pem\""];
    for (before, after) in [(none, one), (one, other), (one, none)] {
        let server = Server::start_in(folder(&clients), &config(before));
        let open = |server: &Server| match before {
            "" => Kept::open(server),
            _ => Kept::with_certificate(server, "client.pem"),
        };
        let mut kept = open(&server);
        assert_eq!(kept.failures(&[("localhost", "the site")]), 0, "{before}");
        // The connection was opened for another site, and stays usable for its own.
        let foreign = has_left(&mut kept.h2, "other.test");
        assert_eq!(foreign, (421, false), "{before}");
        assert_eq!(kept.over_h2("localhost").status, 200);
        #[cfg(feature = "http3")]
        let mut h3 = before.is_empty().then(|| {
            let mut h3 = crate::h3::Holder::with_site(&server, "localhost");
            assert_eq!(h3.echo("localhost"), "200");
            assert_eq!(h3.echo("other.test"), "421");
            assert_eq!(h3.echo("localhost"), "200");
            h3
        });
        server.reload(&config(after));
        let refused = kept.over_h1("localhost");
        assert_eq!(refused.status, 421, "{before} {after}");
        assert!(refused.closes(), "{refused:?}");
        assert!(!refused.text().contains("the site"), "{refused:?}");
        kept.h1.ends();
        assert_eq!(has_left(&mut kept.h2, "localhost"), (421, true), "{before}");
        #[cfg(feature = "http3")]
        if let Some(h3) = &mut h3 {
            // GOAWAY may come in an earlier datagram than the response.
            assert!(h3.echo("localhost").starts_with("421"));
            assert_eq!(h3.echo("goaway"), "goaway");
        }
    }
}

/// HTTP/3 connections survive the reloads that change certificates.
#[cfg(feature = "http3")]
#[test]
fn no_request_over_http_3_is_lost_by_a_reload_that_changes_certificates() {
    let server = start();
    let mut h3 = crate::h3::Holder::with_site(&server, "localhost");
    for (what, own, sites) in reloads() {
        server.reload(&(server_table("") + &sites));
        for host in [own, "other.test"].repeat(5) {
            assert_eq!(h3.echo(host), "200", "{what}: {host}");
        }
    }
}
