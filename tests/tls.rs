//! TLS, end to end: versions, certificates and their replacement, session tickets across restarts and
//! between servers, and client certificates.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::clients::{
    Authority, Leaf, Session, anthill, command, curl, reload, visit, visit_with, wait_until,
};
use crate::support::{Folder, Server, lossy, run, server_table};

/// Returns a configuration with one site `name` with the pair `pair.pem`, and with further keys of `[tls]`
/// and the site.
fn config(name: &str, tls: &str, site: &str) -> String {
    let server = server_table("");
    format!(
        "{server}[tls]\n{tls}\n[[site]]\nnames = [\"{name}\"]\nroot = \"public\"\n\
         certificate = \"pair.pem\"\n{site}\n"
    )
}

fn site_folder(authority: &Authority, leaf: &Leaf) -> Folder {
    Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("ca.pem", &authority.pem)
        .with("pair.pem", leaf.combined())
}

fn site(tls: &str, more: &str) -> Server {
    let authority = Authority::new("anthill's test CA");
    let leaf = authority.server(&["a.test"]);
    Server::start_in(site_folder(&authority, &leaf), &config("a.test", tls, more))
}

fn session(server: &Server, arguments: &[&str]) -> Session {
    Session::open(server.https_port, "a.test", arguments)
}

#[test]
fn both_versions_and_alpn() {
    let server = site("", "");
    for (version, name) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let session = session(&server, &[version, "-alpn", "http/1.1"]);
        assert!(session.is_served(), "{}{}", session.text, session.errors);
        assert!(
            session.text.contains(&format!("New, {name}, ")),
            "{}",
            session.text
        );
        assert!(
            session.text.contains("ALPN protocol: http/1.1"),
            "{}",
            session.text
        );
    }
    // An old client offers only HTTP/1.0; a client that offers both versions gets HTTP/1.1.
    for (offered, agreed) in [("http/1.0", "http/1.0"), ("http/1.0,http/1.1", "http/1.1")] {
        let session = session(&server, &["-alpn", offered]);
        let agreed = format!("ALPN protocol: {agreed}\n");
        assert!(session.is_served(), "{}{}", session.text, session.errors);
        assert!(session.text.contains(&agreed), "{}", session.text);
    }
    let url = format!("https://a.test:{}/", server.https_port);
    let resolve = format!("a.test:{}:127.0.0.1", server.https_port);
    let old = server.curl(&["-0", "-w", "%{http_code}", "--resolve", &resolve, &url]);
    assert!(old.text().ends_with("200"), "{}", old.errors());
    // A client without ALPN gets HTTP/1.1, and a client with unknown protocols alone gets an alert.
    let session = session(&server, &["-alpn", "imap"]);
    assert!(!session.connected, "{}", session.text);
    assert!(
        session.errors.contains("no application protocol"),
        "{}",
        session.errors
    );
    for version in ["-tls1", "-tls1_1"] {
        let old = Session::open(
            server.https_port,
            "a.test",
            &[version, "-cipher", "ALL:@SECLEVEL=0"],
        );
        assert!(!old.connected, "{version}: {}", old.text);
        assert!(old.errors.contains("alert"), "{version}: {}", old.errors);
    }
}

#[test]
fn min_version_refuses_the_older_version() {
    let server = site("min_version = \"1.3\"", "");
    let old = session(&server, &["-tls1_2"]);
    assert!(!old.connected, "{}", old.text);
    assert!(old.errors.contains("protocol version"), "{}", old.errors);
    let new = session(&server, &["-tls1_3"]);
    assert!(new.is_served(), "{}{}", new.text, new.errors);
    // A reload restores the old minimum for new connections.
    reload(&server, &config("a.test", "", ""));
    assert!(session(&server, &["-tls1_2"]).is_served());
}

#[test]
fn the_list_of_ciphers_and_its_order_apply() {
    let server = site(
        "ciphers = [\"TLS_CHACHA20_POLY1305_SHA256\", \"TLS_AES_256_GCM_SHA384\", \
         \"ECDHE-ECDSA-AES256-GCM-SHA384\"]",
        "",
    );
    for (arguments, cipher) in [
        // The client prefers another cipher, and the server's order takes precedence.
        (
            &[
                "-tls1_3",
                "-ciphersuites",
                "TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256",
            ][..],
            "TLS_CHACHA20_POLY1305_SHA256",
        ),
        (
            &["-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"],
            "TLS_AES_256_GCM_SHA384",
        ),
        (&["-tls1_2"], "ECDHE-ECDSA-AES256-GCM-SHA384"),
    ] {
        let session = session(&server, arguments);
        let said = format!("Cipher is {cipher}\n");
        assert!(
            session.text.contains(&said),
            "{}{}",
            session.text,
            session.errors
        );
    }
    for arguments in [
        ["-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"],
        ["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"],
        ["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-SHA"],
    ] {
        let session = session(&server, &arguments);
        assert!(!session.connected, "{arguments:?}: {}", session.text);
        assert!(
            session.errors.contains("handshake failure"),
            "{}",
            session.errors
        );
    }
}

#[test]
fn ecdsa_and_rsa_by_server_name_combined_and_apart() {
    let authority = Authority::new("anthill's test CA");
    let (ecdsa, rsa) = (authority.server(&["a.test"]), authority.rsa(&["b.test"]));
    let folder = site_folder(&authority, &ecdsa)
        .with("certificates/b.crt", &rsa.certificate)
        .with("private/b.key", &rsa.key);
    let more = "[[site]]\nnames = [\"b.test\"]\nroot = \"public\"\n\
                certificate = \"certificates/b.crt\"\nkey = \"private/b.key\"\n";
    let server = Server::start_in(folder, &(config("a.test", "", "") + more));
    for (name, leaf, signature) in [("a.test", &ecdsa, "ECDSA"), ("b.test", &rsa, "RSA-PSS")] {
        for version in ["-tls1_2", "-tls1_3"] {
            let session = Session::open(server.https_port, name, &[version]);
            assert!(
                session.is_served(),
                "{name}: {}{}",
                session.text,
                session.errors
            );
            assert!(session.presents(leaf), "{name}: {}", session.text);
            let said = format!("Peer signature type: {signature}");
            assert!(session.text.contains(&said), "{name}: {}", session.text);
        }
        assert_eq!(visit(&server, name, "/").status, 200);
    }
}

#[test]
fn a_pair_is_replaced_when_both_files_match() {
    let authority = Authority::new("anthill's test CA");
    let old = authority.server(&["a.test"]);
    let folder = Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("ca.pem", &authority.pem)
        .with("a.crt", &old.certificate)
        .with("a.key", &old.key);
    let keys = "[[site]]\nnames = [\"a.test\"]\nroot = \"public\"\n\
                certificate = \"a.crt\"\nkey = \"a.key\"\n";
    let server = Server::start_in(folder, &(server_table("") + keys));
    let mut kept = Kept::open(&server, &authority);
    assert!(session(&server, &[]).presents(&old));

    // The certificate is replaced first: until the new key arrives, the server presents the old pair.
    let new = authority.server(&["a.test"]);
    server.folder.write("a.crt", &new.certificate);
    server
        .errors
        .wait_for("an error about the mismatch", |line| {
            line.contains("the previous pair stays in use until both match")
        });
    assert!(session(&server, &[]).presents(&old));
    // A reload in between does not change the pair.
    let reloaded = command(&server, "reload");
    assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
    assert!(session(&server, &[]).presents(&old));
    server.folder.write("a.key", &new.key);
    wait_until("new certificate", || {
        session(&server, &[]).presents(&new).then_some(())
    });

    // The key is replaced first, at first with half of its bytes, and then by a rename.
    let third = authority.server(&["a.test"]);
    server.folder.write("a.key", &third.key[..60]);
    server
        .errors
        .wait_for("an error about the broken key", |line| {
            line.contains("a changed file is not taken over") && line.contains("a.key")
        });
    assert!(session(&server, &[]).presents(&new));
    for (name, content) in [("a.key", &third.key), ("a.crt", &third.certificate)] {
        server.folder.write("incoming", content);
        fs::rename(server.folder.path("incoming"), server.folder.path(name)).expect("a rename");
    }
    wait_until("third certificate", || {
        session(&server, &[]).presents(&third).then_some(())
    });
    assert!(
        kept.ask().starts_with("HTTP/1.1 200 "),
        "a connection outlives it all"
    );
}

#[test]
fn a_pair_behind_links_is_replaced() {
    // Pairs in the layout of certbot and of Kubernetes secrets: a link above the last link changes.
    let authority = Authority::new("anthill's test CA");
    let old = authority.server(&["a.test"]);
    let folder = site_folder(&authority, &old).with("one/pair.pem", old.combined());
    let link = |to: &str, name: &str| {
        std::os::unix::fs::symlink(to, folder.path("incoming")).expect("a link");
        fs::rename(folder.path("incoming"), folder.path(name)).expect("a rename");
    };
    link("one", "..data");
    link("..data/pair.pem", "pair.pem");
    let server = Server::start_in(folder, &config("a.test", "", ""));
    assert!(session(&server, &[]).presents(&old));
    let new = authority.server(&["a.test"]);
    server.folder.write("two/pair.pem", new.combined());
    std::os::unix::fs::symlink("two", server.folder.path("incoming")).expect("a link");
    fs::rename(server.folder.path("incoming"), server.folder.path("..data")).expect("a rename");
    wait_until("new certificate", || {
        session(&server, &[]).presents(&new).then_some(())
    });
    // The file behind the links is rewritten in place.
    let third = authority.server(&["a.test"]);
    server.folder.write("two/pair.pem", third.combined());
    wait_until("third certificate", || {
        session(&server, &[]).presents(&third).then_some(())
    });
}

/// A persistent connection of a client inside the test process.
struct Kept {
    tls: rustls::StreamOwned<ClientConnection, TcpStream>,
}

impl Kept {
    fn open(server: &Server, authority: &Authority) -> Kept {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(authority.pem.as_bytes()).expect("a CA");
        roots.add(ca).expect("a root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("a.test").expect("a name");
        let connection = ClientConnection::new(Arc::new(config), name).expect("a client");
        let socket = TcpStream::connect(("127.0.0.1", server.https_port)).expect("a connection");
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("a time-out");
        let mut kept = Kept {
            tls: rustls::StreamOwned::new(connection, socket),
        };
        assert!(kept.ask().starts_with("HTTP/1.1 200 "));
        kept
    }

    /// Sends one request and returns the beginning of the response.
    fn ask(&mut self) -> String {
        let request = b"HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n";
        self.tls.write_all(request).expect("a request");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.tls.read_exact(&mut byte).expect("a response");
            answer.push(byte[0]);
        }
        lossy(&answer)
    }
}

#[test]
fn the_post_quantum_exchange_is_offered() {
    let authority = Authority::new("anthill's test CA");
    let leaf = authority.server(&["a.test"]);
    let server = Server::start_in(site_folder(&authority, &leaf), &config("a.test", "", ""));
    let kept = Kept::open(&server, &authority);
    let group = kept
        .tls
        .conn
        .negotiated_key_exchange_group()
        .expect("a group");
    assert_eq!(group.name(), rustls::NamedGroup::X25519MLKEM768);
    // openssl 3.0 has only classic groups.
    let session = session(&server, &["-groups", "X25519"]);
    assert!(
        session.text.contains("Server Temp Key: X25519"),
        "{}",
        session.text
    );
    let other = Session::open(server.https_port, "a.test", &["-groups", "P-256"]);
    assert!(other.is_served(), "{}{}", other.text, other.errors);
}

/// Gets a session ticket and stores it in the server's folder under a name.
fn ticket(server: &Server, host: &str, file: &str, more: &[&str]) -> String {
    let path = server
        .folder
        .path(file)
        .to_str()
        .expect("a plain path")
        .to_owned();
    let mut arguments = vec!["-sess_out", &path];
    arguments.extend(more);
    let session = Session::open(server.https_port, host, &arguments);
    assert!(session.is_served(), "{}{}", session.text, session.errors);
    assert!(!session.is_resumed());
    path
}

/// Stops the server and starts it again in the same folder.
fn restarted(mut server: Server, config: &str) -> Server {
    server.signal("TERM");
    assert_eq!(server.wait(Duration::from_secs(60)), Some(0));
    let folder = std::mem::replace(&mut server.folder, Folder::new());
    drop(server);
    Server::start_in(folder, config)
}

#[test]
fn tickets_outlive_a_restart() {
    let authority = Authority::new("anthill's test CA");
    let leaf = authority.server(&["a.test"]);
    let config = config("a.test", "", "");
    let mut server = Server::start_in(site_folder(&authority, &leaf), &config);
    for version in ["-tls1_3", "-tls1_2"] {
        let file = ticket(&server, "a.test", version, &[version]);
        let back = [version, "-sess_in", &file];
        assert!(session(&server, &back).is_resumed(), "{version}");
        server = restarted(server, &config);
        let session = session(&server, &back);
        assert!(
            session.is_resumed() && session.is_served(),
            "{version}: {}",
            session.text
        );
    }
    let keys = fs::metadata(server.folder.path("state/tickets.keys"));
    let mode = |metadata: fs::Metadata| metadata.permissions().mode() & 0o777;
    assert_eq!(mode(keys.expect("the ticket keys")), 0o600);
    assert_eq!(
        mode(fs::metadata(server.folder.path("state")).expect("the state")),
        0o700
    );
}

#[test]
fn tickets_are_shared_only_by_a_key_file() {
    let authority = Authority::new("anthill's test CA");
    let leaf = authority.server(&["a.test"]);
    let generated = run(
        "python3",
        &[
            "-c",
            "import secrets; [print(secrets.token_hex(32)) for _ in range(3)]",
        ],
        b"",
    );
    let keys = generated.text();
    let (newest, keys) = keys.split_once('\n').expect("three keys");
    let shared = config("a.test", "tickets = \"keys\"", "");
    let start = |keys: &str, config: &str| {
        Server::start_in(site_folder(&authority, &leaf).with("keys", keys), config)
    };
    let one = start(keys, &shared);
    let two = start(&format!("# of node two\n\n{keys}"), &shared);
    let own = start(keys, &config("a.test", "", ""));
    let file = ticket(&one, "a.test", "ticket", &[]);
    let back = ["-sess_in", &file];
    assert!(session(&two, &back).is_resumed());
    assert!(!session(&own, &back).is_resumed());

    // Key rotation: a new key precedes the old keys, and the old keys still decrypt.
    two.folder.write("keys", format!("{newest}\n{keys}"));
    let newer = wait_until("ticket by the new key", || {
        let file = ticket(&two, "a.test", "newer", &[]);
        let opens = session(&one, &["-sess_in", &file]).is_resumed();
        (!opens).then_some(file)
    });
    assert!(session(&two, &["-sess_in", &newer]).is_resumed());
    assert!(session(&two, &back).is_resumed(), "the old ticket");
    // A broken file changes nothing and is logged.
    two.folder.write("keys", "no key\n");
    two.errors
        .wait_for("an error about the broken key file", |line| {
            line.contains("ticket keys")
        });
    assert!(session(&two, &["-sess_in", &newer]).is_resumed());
}

/// Starts a server with sites that share one pair: `a.test` for all clients, and `private.test` and
/// `other.test` for clients of the CA.
fn server_with_client_ca() -> (Server, Authority) {
    let authority = Authority::new("anthill's test CA");
    let leaf = authority.server(&["a.test", "private.test", "other.test"]);
    let (client, stranger) = (
        authority.client("somebody"),
        Authority::new("another CA").client("stranger"),
    );
    let folder = site_folder(&authority, &leaf)
        .with("client.pem", client.combined())
        .with("stranger.pem", stranger.combined())
        .with("server-as-client.pem", leaf.combined());
    let demand = |name: &str| {
        format!(
            "[[site]]\nnames = [\"{name}\"]\nroot = \"public\"\ncertificate = \"pair.pem\"\n\
             client_ca = \"ca.pem\"\n"
        )
    };
    let config = config("a.test", "", "") + &demand("private.test") + &demand("other.test");
    (Server::start_in(folder, &config), authority)
}

#[test]
fn a_client_certificate_is_required_where_configured() {
    let (server, _) = server_with_client_ca();
    let path = |name: &str| {
        server
            .folder
            .path(name)
            .to_str()
            .expect("a path")
            .to_owned()
    };
    let client = path("client.pem");
    assert_eq!(visit(&server, "a.test", "/").status, 200);
    for version in ["--tls-max=1.2", "--tlsv1.3"] {
        let version: Vec<&str> = version.split('=').collect();
        let with = |certificate: &str| {
            let mut arguments = version.clone();
            arguments.extend(["--cert", certificate]);
            let url = format!("https://private.test:{}/", server.https_port);
            arguments.push(&url);
            curl(&server.folder, &arguments)
        };
        let url = format!("https://private.test:{}/", server.https_port);
        let mut none = version.clone();
        none.push(&url);
        let refused = curl(&server.folder, &none);
        assert!(
            !refused.success && refused.stdout.is_empty(),
            "{}",
            refused.text()
        );
        assert!(refused.errors().contains("alert"), "{}", refused.errors());
        for wrong in ["stranger.pem", "server-as-client.pem"] {
            let refused = with(&path(wrong));
            assert!(
                !refused.success && refused.stdout.is_empty(),
                "{wrong}: {}",
                refused.text()
            );
        }
        let welcome = with(&client);
        assert!(
            welcome.text().starts_with("HTTP/2 200"),
            "{}{}",
            welcome.text(),
            welcome.errors()
        );
    }
    // The connection of the open site does not reach the private site.
    let host = ["-H", "Host: private.test"];
    assert_eq!(visit_with(&server, "a.test", "/", &host).status, 421);
    // Sites with equal requirements share connections.
    let cert = ["--cert", &client, "-H", "Host: other.test"];
    assert_eq!(visit_with(&server, "private.test", "/", &cert).status, 200);
}

#[test]
fn a_ticket_resumes_a_session_only_for_its_site() {
    let (server, _) = server_with_client_ca();
    let client = server
        .folder
        .path("client.pem")
        .to_str()
        .expect("a path")
        .to_owned();
    let cert = ["-cert", &client, "-key", &client];
    for version in ["-tls1_3", "-tls1_2"] {
        let open = ticket(&server, "a.test", &format!("open{version}"), &[version]);
        let mut arguments = vec![version];
        arguments.extend(cert);
        let closed = ticket(
            &server,
            "private.test",
            &format!("closed{version}"),
            &arguments,
        );
        let back = |host: &str, file: &str, more: &[&str]| {
            let mut arguments = vec![version, "-sess_in", file];
            arguments.extend(more);
            Session::open(server.https_port, host, &arguments)
        };
        assert!(back("a.test", &open, &[]).is_resumed(), "{version}");
        assert!(back("private.test", &closed, &[]).is_resumed(), "{version}");
        // Without a certificate, a ticket of another site does not resume a session.
        assert!(!back("private.test", &open, &[]).is_served(), "{version}");
        assert!(!back("other.test", &closed, &[]).is_served(), "{version}");
        // With a certificate, the handshake is full.
        let full = back("private.test", &open, &cert);
        assert!(full.is_served() && !full.is_resumed(), "{version}");
        let full = back("a.test", &closed, &[]);
        assert!(full.is_served() && !full.is_resumed(), "{version}");
    }
}

#[test]
fn the_self_signed_certificate_is_made_once_and_kept() {
    let config = server_table("") + "[[site]]\nnames = [\"a.test\"]\nroot = \"public\"\n";
    let mut server = Server::start_in(Folder::new().with("public/index.html", "hello"), &config);
    let mut seen = Vec::new();
    for _ in 0..2 {
        let session = session(&server, &[]);
        let pem = run(
            "openssl",
            &["x509", "-noout", "-fingerprint", "-sha256"],
            session.text.as_bytes(),
        );
        let fingerprint = pem
            .text()
            .trim()
            .rsplit('=')
            .next()
            .expect("a fingerprint")
            .to_owned();
        let said = server.errors.all();
        assert!(
            said.iter().any(|line| line.trim() == fingerprint),
            "{fingerprint}: {said:?}"
        );
        seen.push(fingerprint);
        server = restarted(server, &config);
    }
    assert_eq!(seen[0], seen[1]);
    let mode = |name: &str| {
        let file = fs::metadata(server.folder.path(name)).expect(name);
        file.permissions().mode() & 0o777
    };
    assert_eq!(mode("state/self-signed.key"), 0o600);
    // The operator may trust the printed certificate: curl accepts it as a CA.
    fs::copy(
        server.folder.path("state/self-signed.pem"),
        server.folder.path("ca.pem"),
    )
    .expect("a copy");
    for name in ["a.test", "localhost"] {
        let answer = curl(
            &server.folder,
            &[format!("https://{name}:{}/", server.https_port)],
        );
        assert_eq!(
            answer.success,
            name == "a.test",
            "{name}: {}",
            answer.errors()
        );
    }
    // `check` creates no files.
    fs::remove_dir_all(server.folder.path("state")).expect("the state");
    let checked = anthill(&server.folder.path("."), &["check", "anthill.toml"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(!server.folder.path("state").exists());
}

#[test]
fn a_request_of_plain_http_gets_a_readable_answer() {
    // Without a demand for client certificates, and with one, the ClientHello is read by other code.
    let (private, _) = server_with_client_ca();
    for server in [site("", ""), private] {
        for request in [
            "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "POST /long HTTP/1.1\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ] {
            let mut socket =
                TcpStream::connect(("127.0.0.1", server.https_port)).expect("a connection");
            socket.write_all(request.as_bytes()).expect("a write");
            let mut answer = String::new();
            socket.read_to_string(&mut answer).expect("an answer");
            assert!(
                answer.starts_with("HTTP/1.1 400 Bad Request\r\n"),
                "{answer}"
            );
            assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
            assert!(answer.contains("https://"), "{answer}");
            let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
            assert!(head.contains(&format!("Content-Length: {}", body.len())));
        }
        // Other bytes get an alert of TLS: type 21.
        let mut socket =
            TcpStream::connect(("127.0.0.1", server.https_port)).expect("a connection");
        socket
            .write_all(b"\x01\x02\x03\x04\x05\x06")
            .expect("a write");
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).expect("an answer");
        assert_eq!(answer.first(), Some(&21), "{answer:?}");
    }
}
