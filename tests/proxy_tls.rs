//! Reverse proxy over TLS: verification of members, client certificates, and connections to nginx, to openssl
//! and to members that break off.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::clients::{Authority, Leaf, anthill};
use crate::support::nginx::{Nginx, free_port};
use crate::support::wire::{Response, Wire, wait_until};
use crate::support::{Folder, Lines, Server, server_table, site_table, spawn, tool};

/// Directives of nginx for its certificate.
const PAIR: &str = "ssl_certificate pair.pem;\nssl_certificate_key pair.pem;\n";
/// Location of nginx that answers with the connection, the version, the server name and the resumption.
const FACTS: &str = "location /facts { return 200 \
                     \"$connection $ssl_protocol $ssl_server_name $ssl_session_reused \
                     $ssl_client_s_dn\"; }\n";

/// Authority of the members.
fn members_ca() -> Authority {
    Authority::new("the members' CA")
}

/// Versions of TLS in nginx's notation.
const VERSIONS: [&str; 2] = ["TLSv1.2", "TLSv1.3"];

/// Starts nginx with a certificate and TLS 1.3.
fn nginx(leaf: &Leaf, authority: &Authority) -> Nginx {
    nginx_with("TLSv1.3", leaf, authority, "")
}

/// Starts nginx with one version of TLS and further directives.
fn nginx_with(version: &str, leaf: &Leaf, authority: &Authority, directives: &str) -> Nginx {
    let folder = Folder::new()
        .with("pair.pem", leaf.combined())
        .with("ca.pem", &authority.pem);
    let protocols = format!("ssl_protocols {version};\n");
    Nginx::start_tls(folder, &format!("{PAIR}{protocols}{FACTS}{directives}"))
}

/// Returns a configuration with a route `/` to a member, with further keys in the route's `proxy` table.
fn config(url: &str, keys: &str) -> String {
    let site = site_table("http = \"serve\"\n");
    let route = format!(
        "[[site.route]]\npath = \"/\"\nproxy = {{ url = \"{url}\", ca = \"ca.pem\"{keys} }}\n"
    );
    format!("{}{site}{route}", server_table(""))
}

/// Starts a server that trusts the authority.
fn server(authority: &Authority, url: &str, keys: &str) -> Server {
    let folder = Folder::new()
        .with("public/index.html", "")
        .with("ca.pem", &authority.pem);
    Server::start_in(folder, &config(url, keys))
}

fn get(server: &Server, path: &str) -> Response {
    Wire::plain(server).get(path, "")
}

/// Asserts that requests are refused by rule R748 with all texts in the log.
fn assert_refused(server: &Server, texts: &[&str]) {
    assert_eq!(get(server, "/").status, 502);
    server
        .output
        .wait_for("the rule", |line| line.contains("rule=R748"));
    let fits = |line: &str| texts.iter().all(|text| line.contains(text));
    server.errors.wait_for(&format!("{texts:?}"), fits);
}

#[test]
fn a_member_is_verified_by_its_authority() {
    let authority = members_ca();
    let nginx = nginx(&authority.server(&["127.0.0.1"]), &authority);
    let trusting = server(&authority, &nginx.url(), "");
    let facts = get(&trusting, "/facts");
    assert_eq!(facts.status, 200);
    assert!(facts.text().contains(" TLSv1.3  "), "{}", facts.text());
    assert_eq!(get(&trusting, "/index.html").text(), "hello");

    let other = server(&Authority::new("another CA"), &nginx.url(), "");
    let address = format!("127.0.0.1:{}", nginx.port);
    assert_refused(
        &other,
        &[&address, "no trusted authority", "`ca = \"FILE\"`"],
    );
}

#[test]
fn the_authorities_of_the_system_do_not_vouch_for_a_stranger() {
    let authority = members_ca();
    let nginx = nginx(&authority.server(&["127.0.0.1"]), &authority);
    let config = config(&nginx.url(), "").replace(", ca = \"ca.pem\"", "");
    let server = Server::start(&config);
    assert_refused(&server, &["no trusted authority"]);
}

#[test]
fn a_listed_self_signed_certificate_is_trusted() {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
    // As `openssl req -x509` does.
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let own = params.self_signed(&key).expect("a certificate").pem();
    let leaf = Leaf {
        certificate: own.clone(),
        key: key.serialize_pem(),
    };
    let authority = members_ca();
    let nginx = nginx(&leaf, &authority);
    let server = server(&authority, &nginx.url(), "");
    assert_refused(&server, &["is self-signed", "`ca = \"FILE\"`"]);
    // A reload reads the files again.
    server.folder.write("ca.pem", own);
    server.reload(&config(&nginx.url(), ""));
    assert_eq!(get(&server, "/index.html").text(), "hello");
}

#[test]
fn the_name_in_the_certificate_is_verified() {
    let authority = members_ca();
    let leaf = authority.server(&["member.test", "other.test", "192.0.2.7"]);
    let nginx = nginx(&leaf, &authority);
    let stranger = server(&authority, &nginx.url(), "");
    let names = "is for member.test, other.test, 192.0.2.7, and not for 127.0.0.1";
    assert_refused(&stranger, &[names, "`server_name = \"member.test\"`"]);
    let named = server(&authority, &nginx.url(), ", server_name = \"other.test\"");
    let facts = get(&named, "/facts");
    assert!(facts.text().contains(" other.test "), "{}", facts.text());
}

#[test]
fn an_expired_certificate_is_refused() {
    let authority = members_ca();
    let nginx = nginx(&authority.expired(&["127.0.0.1"]), &authority);
    let server = server(&authority, &nginx.url(), "");
    assert_refused(&server, &["expired on 2001-01-01"]);
    // A failed handshake leads any request to the next member, here the only one again.
    let mut wire = Wire::plain(&server);
    wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
    assert_eq!(wire.response("POST").status, 502);
}

#[test]
fn a_member_without_tls_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("https://{}", listener.local_addr().expect("its address"));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let _ = stream.read(&mut [0; 2_000]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let server = server(&members_ca(), &url, "");
    assert_refused(&server, &["does not speak TLS", "http://"]);
    server.errors.wait_for("the ejection", |line| {
        line.ends_with(" changed from up to ejected: TLS failed")
    });
}

#[test]
fn the_handshake_counts_towards_the_time_to_connect() {
    // The kernel accepts connections, and no program answers.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("https://{}", listener.local_addr().expect("its address"));
    let server = server(&members_ca(), &url, ", connect_timeout = \"300ms\"");
    assert_eq!(get(&server, "/").status, 504);
    server
        .output
        .wait_for("the rule", |line| line.contains("rule=R747"));
    server.errors.wait_for("the key", |line| {
        line.ends_with(": longer than `connect_timeout` (300ms) (rule R747)")
    });
}

#[test]
fn a_member_may_require_a_client_certificate() {
    let authority = members_ca();
    let leaf = authority.server(&["127.0.0.1"]);
    let demands = "ssl_client_certificate ca.pem;\nssl_verify_client on;\n";
    for version in VERSIONS {
        let nginx = nginx_with(version, &leaf, &authority, demands);
        let without = server(&authority, &nginx.url(), "");
        // nginx completes the handshake and refuses the request.
        assert_eq!(get(&without, "/facts").status, 400, "{version}");
        let client = authority.client("the proxy");
        let folder = Folder::new()
            .with("public/index.html", "")
            .with("ca.pem", &authority.pem)
            .with("client.pem", &client.certificate)
            .with("client.key", &client.key)
            .with("both.pem", client.combined());
        let apart = ", client_certificate = \"client.pem\", client_key = \"client.key\"";
        let with = Server::start_in(folder, &config(&nginx.url(), apart));
        let facts = get(&with, "/facts").text();
        assert!(
            facts.contains(version) && facts.ends_with("CN=the proxy"),
            "{facts}"
        );
        let joined = ", client_certificate = \"both.pem\"";
        with.reload(&config(&nginx.url(), joined));
        let facts = get(&with, "/facts").text();
        assert!(facts.ends_with("CN=the proxy"), "{facts}");
    }
}

#[test]
fn a_member_may_refuse_the_handshake_without_a_client_certificate() {
    let authority = members_ca();
    let folder = Folder::new()
        .with("public/index.html", "hello")
        .with("ca.pem", &authority.pem)
        .with("pair.pem", authority.server(&["127.0.0.1"]).combined());
    let member = site_table("certificate = \"pair.pem\"\nclient_ca = \"ca.pem\"\n");
    let member = Server::start_in(folder, &(server_table("") + &member));
    let url = format!("https://127.0.0.1:{}", member.https_port);
    let server = server(&authority, &url, "");
    assert_refused(
        &server,
        &["client certificate", "`client_certificate = \"FILE\"`"],
    );
    let client = authority.client("the proxy");
    server.folder.write("client.pem", client.combined());
    server.reload(&config(&url, ", client_certificate = \"client.pem\""));
    assert_eq!(get(&server, "/").text(), "hello");
}

/// Returns the number of the member's connection, and true if the connection resumed a session.
fn connection(facts: &Response) -> (u64, bool) {
    let text = facts.text();
    let mut words = text.split(' ');
    let number = words.next().and_then(|word| word.parse().ok());
    (number.expect("a number"), words.nth(2) == Some("r"))
}

#[test]
fn connections_are_kept_and_sessions_are_resumed() {
    let authority = members_ca();
    let leaf = authority.server(&["127.0.0.1"]);
    for version in VERSIONS {
        let nginx = nginx_with(version, &leaf, &authority, "");
        let server = server(&authority, &nginx.url(), "");
        let first = get(&server, "/facts");
        assert!(first.text().contains(version), "{}", first.text());
        let (number, is_resumed) = connection(&first);
        assert!(!is_resumed);
        for _ in 0..5 {
            assert_eq!(connection(&get(&server, "/facts")), (number, false));
        }
        // A POST gets a connection of its own.
        let mut wire = Wire::plain(&server);
        wire.send("POST /facts HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
        let posted = connection(&wire.response("POST"));
        assert!(posted.0 > number && posted.1, "{posted:?} after {number}");
        // An unchanged configuration keeps the connections over a reload.
        server.reload(&config(&nginx.url(), ""));
        let kept = connection(&get(&server, "/facts")).0;
        assert!([number, posted.0].contains(&kept), "{kept}");
        // Replaced authorities end the connections.
        let both = authority.pem.clone() + &Authority::new("another CA").pem;
        server.folder.write("ca.pem", both);
        server.reload(&config(&nginx.url(), ""));
        let fresh = connection(&get(&server, "/facts"));
        assert!(fresh.0 > posted.0 && !fresh.1, "{fresh:?}");
    }
}

#[test]
fn large_bodies_pass_in_both_directions() {
    let authority = members_ca();
    let leaf = authority.server(&["127.0.0.1"]);
    let body: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    for version in VERSIONS {
        let nginx = nginx_with(version, &leaf, &authority, "dav_methods PUT;\n");
        let server = server(&authority, &nginx.url(), "");
        let mut wire = Wire::plain(&server);
        wire.send(format!(
            "PUT /known HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
            body.len()
        ));
        wire.send(&body);
        assert_eq!(wire.response("PUT").status, 201, "{version}");
        wire.send("PUT /chunked HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        for part in body.chunks(100_000) {
            wire.send([format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat());
        }
        wire.send("0\r\n\r\n");
        assert_eq!(wire.response("PUT").status, 201, "{version}");
        for path in ["/known", "/chunked"] {
            assert!(wire.get(path, "").body == body, "{version} {path}");
        }
    }
}

/// Starts a member that answers each request with `bytes`, and then closes the connection with or without
/// close_notify.
fn closing_member(leaf: &Leaf, bytes: &[u8], has_goodbye: bool) -> String {
    let chain = CertificateDer::from_pem_slice(leaf.certificate.as_bytes()).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![chain], key);
    let config = Arc::new(config.expect("a pair"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("https://{}", listener.local_addr().expect("its address"));
    let bytes = bytes.to_vec();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let socket = socket.expect("a connection");
            let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
            let mut stream = StreamOwned::new(connection, socket);
            answer_and_close(&mut stream, &bytes, has_goodbye);
        }
    });
    url
}

fn answer_and_close(
    stream: &mut StreamOwned<ServerConnection, TcpStream>,
    bytes: &[u8],
    has_goodbye: bool,
) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut piece = [0; 1_000];
        match stream.read(&mut piece) {
            Ok(read @ 1..) => request.extend_from_slice(&piece[..read]),
            _ => return,
        }
    }
    let _ = stream.write_all(bytes);
    if has_goodbye {
        stream.conn.send_close_notify();
    }
    let _ = stream.flush();
    let _ = stream.sock.shutdown(Shutdown::Both);
}

#[test]
fn a_response_cut_off_is_never_taken_for_complete() {
    let authority = members_ca();
    let leaf = authority.server(&["127.0.0.1"]);
    let head = "HTTP/1.1 200 OK\r\n";
    // Response; whole with close_notify, whole without close_notify.
    let table = [
        (format!("{head}Content-Length: 9\r\n\r\nabc"), false, false),
        (
            format!("{head}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
            false,
            false,
        ),
        // The end of the connection is the end of the content.
        (format!("{head}\r\nabc"), true, false),
        (format!("{head}Content-Length: 3\r\n\r\nabc"), true, true),
    ];
    for (bytes, with, without) in table {
        for (has_goodbye, expected) in [(true, with), (false, without)] {
            let url = closing_member(&leaf, bytes.as_bytes(), has_goodbye);
            let server = server(&authority, &url, "");
            let response = get(&server, "/");
            assert_eq!(response.whole, expected, "{has_goodbye}: {response:?}");
        }
    }
}

/// `openssl s_server` in dialogue with a test. Drop kills the process.
struct Dialogue {
    child: Child,
    stdin: ChildStdin,
    output: Lines,
    port: u16,
}

impl Dialogue {
    fn start(leaf: &Leaf, folder: &Folder) -> Dialogue {
        folder.write("pair.pem", leaf.combined());
        let port = free_port();
        let mut command = Command::new(tool("openssl"));
        command
            .args(["s_server", "-accept", &format!("127.0.0.1:{port}"), "-cert"])
            .arg(folder.path("pair.pem"))
            .args(["-tls1_3", "-alpn", "http/1.1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = spawn(&mut command).expect("openssl");
        let stdin = child.stdin.take().expect("a pipe");
        let output = Lines::of(child.stdout.take().expect("a pipe"));
        output.wait_for("ACCEPT", |line| line == "ACCEPT");
        Dialogue {
            child,
            stdin,
            output,
            port,
        }
    }

    fn says(&mut self, text: &str) {
        self.stdin.write_all(text.as_bytes()).expect("a pipe");
        self.stdin.flush().expect("a pipe");
    }
}

impl Drop for Dialogue {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn openssl_renews_keys_of_an_idle_connection() {
    let authority = members_ca();
    let folder = Folder::new();
    let mut openssl = Dialogue::start(&authority.server(&["127.0.0.1"]), &folder);
    let url = format!("https://127.0.0.1:{}", openssl.port);
    let server = server(&authority, &url, "");
    // openssl serves one connection at a time, so all requests use the first connection. `K` requests new
    // keys in both directions, `k` renews openssl's own. openssl obeys before the next request.
    for (turn, command) in ["K\n", "k\n", "K\n", "k\n"].into_iter().enumerate() {
        let mut wire = Wire::plain(&server);
        wire.send(format!("GET /{turn} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let line = format!("GET /{turn} HTTP/1.1");
        openssl.output.wait_for(&line, |it| it == line);
        openssl.says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab");
        assert_eq!(wire.response("GET").text(), "ab", "turn {turn}");
        openssl.says(command);
    }
}

#[test]
fn check_points_at_the_unusable_key() {
    let authority = members_ca();
    let (one, other) = (authority.client("one"), authority.client("other"));
    let folder = Folder::new()
        .with("public/index.html", "")
        .with("ca.pem", &authority.pem)
        .with("text.pem", "no certificate")
        .with("one.pem", &one.certificate)
        .with("other.key", &other.key);
    let url = "https://127.0.0.1:9";
    let base = config(url, "");
    let cases = [
        (
            base.replace("\"ca.pem\"", "\"text.pem\""),
            "ca = \"text.pem\"",
            "the file is not PEM",
        ),
        (
            config(url, ", client_certificate = \"text.pem\""),
            "client_certificate = \"text.pem\"",
            "the file is not PEM",
        ),
        (
            config(url, ", client_certificate = \"one.pem\""),
            "client_certificate = \"one.pem\"",
            "the file has no private key",
        ),
        (
            config(
                url,
                ", client_certificate = \"one.pem\", client_key = \"other.key\"",
            ),
            "client_key = \"other.key\"",
            "the private key does not belong to the certificate",
        ),
    ];
    for (config, key, what) in cases {
        folder.write("anthill.toml", &config);
        let done = anthill(&folder.path("."), &["check", "anthill.toml"]);
        let said = format!("{}{}", done.stdout, done.stderr);
        assert_eq!(done.code, Some(2), "{said}");
        assert!(said.contains(what), "{what}: {said}");
        let column = config
            .lines()
            .find_map(|line| line.find(key))
            .map(|at| at + key.find('"').expect("a value") + 1);
        let place = format!(":{}", column.expect("the key"));
        assert!(said.contains(&place), "{place}: {said}");
    }
    folder.write("anthill.toml", &base);
    let done = anthill(&folder.path("."), &["check", "anthill.toml"]);
    assert_eq!(done.code, Some(0), "{done:?}");
}

#[test]
fn idle_connections_closed_by_the_member_serve_no_request() {
    let authority = members_ca();
    let leaf = authority.server(&["127.0.0.1"]);
    for version in VERSIONS {
        let nginx = nginx_with(version, &leaf, &authority, "keepalive_timeout 1s;\n");
        let server = server(&authority, &nginx.url(), "");
        let first = connection(&get(&server, "/facts")).0;
        // nginx closes the connection after 1 s, with close_notify.
        wait_until(Duration::from_secs(20), "closed", || {
            let open = std::fs::read_to_string("/proc/net/tcp").expect("the connections");
            let established = format!("0100007F:{:04X} 01", nginx.port);
            (!open.contains(&established)).then_some(())
        });
        let second = connection(&get(&server, "/facts"));
        assert!(second.0 > first && second.1, "{version}: {second:?}");
    }
}
