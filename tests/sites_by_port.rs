//! Sites by port: the key `listen` of a site.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use crate::clients::Authority;
use crate::support::programs::free_port;
use crate::support::wire::Wire;
use crate::support::{Folder, Server, finish, program, server_table, site_table};

/// Returns the addresses of the sites with `listen`, from the status of the server: each with the names of its sites.
fn own_addresses(server: &Server) -> Vec<(SocketAddr, String)> {
    let status = server.ask(&["status"]).stdout;
    let lines = status.lines().filter_map(|line| {
        let (address, sites) = line.trim().split_once(" (site ")?;
        let address = address.split_whitespace().last()?;
        let sites = sites.strip_suffix(')')?.to_owned();
        Some((address.parse().expect("an address"), sites))
    });
    lines.collect()
}

fn address_of(server: &Server, ip: &str) -> SocketAddr {
    let all = own_addresses(server);
    let found = all
        .iter()
        .find(|(address, _)| address.ip().to_string() == ip);
    found.unwrap_or_else(|| panic!("{ip} of {all:?}")).0
}

fn plain(address: SocketAddr) -> Wire {
    Wire::plain_on(TcpStream::connect(address).expect("a connection"))
}

fn tls(address: SocketAddr, name: &str) -> Wire {
    let socket = TcpStream::connect(address).expect("a connection");
    Wire::tls_on(socket, name, &[])
}

fn get(wire: &mut Wire, path: &str, host: &str) -> (u16, String) {
    wire.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let response = wire.response("GET");
    (response.status, response.text())
}

fn folder() -> Folder {
    Folder::new()
        .with("public/index.html", "of the server")
        .with("a/index.html", "first")
        .with("b/index.html", "second")
        .with("c/index.html", "third")
}

/// Three applications at one machine without names, beside a site at the addresses of the server.
fn config() -> String {
    format!(
        "{}{}\
         [[site]]\nlisten = [\"https://127.0.0.2:0\", \"http://127.0.0.3:0\"]\nroot = \"a\"\n\
         [[site]]\nlisten = \"127.0.0.4:0\"\nnames = [\"b.test\", \"*.b.test\"]\nroot = \"b\"\n\
         [[site]]\nlisten = \"127.0.0.4:0\"\nroot = \"c\"\n",
        server_table(""),
        site_table("http = \"serve\"\n")
    )
}

#[test]
fn each_site_answers_at_its_own_addresses_alone() {
    let server = Server::start_in(folder(), &config());
    let [a, open, b] = ["127.0.0.2", "127.0.0.3", "127.0.0.4"].map(|ip| address_of(&server, ip));
    // Any name reaches the site, also the address itself.
    for host in ["whatever.test", "127.0.0.2", "b.test"] {
        assert_eq!(get(&mut tls(a, host), "/", host), (200, "first".into()));
        assert_eq!(get(&mut plain(open), "/", host), (200, "first".into()));
        let own = get(&mut Wire::plain(&server), "/", host);
        assert_eq!(own, (200, "of the server".into()), "{host}");
    }
    // Names tell the sites of one address apart.
    for (host, content) in [
        ("b.test", "second"),
        ("x.b.test", "second"),
        ("c.test", "third"),
    ] {
        assert_eq!(get(&mut tls(b, host), "/", host), (200, content.into()));
        // No redirect to the first name.
        let host = format!("{host}:{}", b.port());
        let name = host.split(':').next().unwrap_or_default();
        assert_eq!(get(&mut tls(b, name), "/", &host), (200, content.into()));
    }
    // HTTP/3 is offered at the addresses of the server alone.
    let mut wire = tls(a, "localhost");
    assert_eq!(wire.get("/", "").field("alt-svc"), None);
    #[cfg(feature = "http3")]
    assert!(Wire::tls(&server).get("/", "").field("alt-svc").is_some());
    let mut curl = Command::new("curl");
    curl.args(["-sSk", "--http2", "-w", " %{http_version}"]);
    let done = finish_with(curl, &format!("https://{a}/"));
    assert_eq!(done, "first 2");
}

fn finish_with(mut curl: Command, url: &str) -> String {
    curl.arg(url);
    let done = finish(curl, b"");
    assert_eq!(done.code, Some(0), "{done:?}");
    done.stdout
}

#[test]
fn status_check_and_the_log_name_the_site_by_its_address() {
    let port = free_port();
    let further = format!("[[site]]\nlisten = \"http://127.0.0.5:{port}\"\nroot = \"a\"\n");
    let log = "[log]\naccess = \"-\"\nformat = \"vhost_combined\"\n";
    let server = Server::start_in(folder(), &format!("{log}{}{further}", config()));
    let mut wire = plain(address_of(&server, "127.0.0.5"));
    assert_eq!(get(&mut wire, "/", "x.test").0, 200);
    let line = format!("x.test:{port} 127.0.0.1 ");
    server
        .output
        .wait_for("a log line", |it| it.starts_with(&line));
    let sites: Vec<String> = own_addresses(&server)
        .into_iter()
        .map(|(_, sites)| sites)
        .collect();
    assert_eq!(
        sites,
        [
            "127.0.0.2:0",
            "127.0.0.2:0",
            "b.test@127.0.0.4:0, 127.0.0.4:0",
            &format!("127.0.0.5:{port}")
        ]
    );
    let json = server.ask(&["status", "--json"]).stdout;
    assert!(
        json.contains(r#""tls":true,"sites":["127.0.0.2:0"]}"#),
        "{json}"
    );
    let banner = server.errors.all().join("\n");
    assert!(
        banner.contains("  (site b.test@127.0.0.4:0, 127.0.0.4:0)"),
        "{banner}"
    );
    let mut check = Command::new(program());
    check.arg("check").arg(server.folder.path("anthill.toml"));
    let said = finish(check, b"");
    assert!(
        said.stdout.contains(
            "5 sites, for any name, 127.0.0.2:0, b.test@127.0.0.4:0, 127.0.0.4:0, 127.0.0.5:"
        ),
        "{said:?}"
    );
    let purged = server.ask(&["purge", "127.0.0.4:0", "/"]);
    assert!(purged.stdout.contains("0 pages"), "{purged:?}");
    let purged = server.ask(&["purge", "b.test@127.0.0.4:0", "/*"]);
    assert!(purged.stdout.contains("0 pages"), "{purged:?}");
    let unknown = server.ask(&["purge", "*.test", "/"]);
    assert!(
        unknown.stderr.contains("127.0.0.2:0, b.test@127.0.0.4:0"),
        "{unknown:?}"
    );
}

#[test]
fn pages_of_two_ports_are_two_pages() {
    let folder = folder();
    folder.program(
        "scripts/page",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n%s' \"$SERVER_NAME $ROOT\"\n",
    );
    let site = |ip: &str, root: &str| {
        format!(
            "[[site]]\nlisten = \"http://{ip}:0\"\nroot = \"{root}\"\n[[site.route]]\npath = \"/run/\"\n\
             cgi = \"scripts\"\nenv = {{ ROOT = \"{root}\" }}\ncache = {{ seconds = 60 }}\n"
        )
    };
    let config = format!(
        "{}{}{}",
        server_table(""),
        site("127.0.0.2", "a"),
        site("127.0.0.3", "b")
    );
    let server = Server::start_in(folder, &config);
    for _ in 0..2 {
        for (ip, root) in [("127.0.0.2", "a"), ("127.0.0.3", "b")] {
            let page = get(&mut plain(address_of(&server, ip)), "/run/page", "one.test");
            assert_eq!(page, (200, format!("one.test {root}")));
        }
    }
}

#[test]
fn a_reload_opens_and_closes_addresses_without_a_failed_request() {
    let server = Server::start_in(folder(), &config());
    let a = address_of(&server, "127.0.0.2");
    let mut kept = tls(a, "localhost");
    assert_eq!(get(&mut kept, "/", "x.test").1, "first");
    let more = format!(
        "{}[[site]]\nlisten = \"http://127.0.0.5:0\"\nroot = \"c\"\n",
        config().replace("root = \"a\"", "root = \"b\"")
    );
    server.reload(&more);
    // The address keeps its socket and its connections.
    assert_eq!(address_of(&server, "127.0.0.2"), a);
    assert_eq!(get(&mut kept, "/", "x.test").1, "second");
    let new = address_of(&server, "127.0.0.5");
    assert_eq!(get(&mut plain(new), "/", "x.test").1, "third");
    server.reload(&config());
    assert_eq!(get(&mut kept, "/", "x.test").1, "first");
    // A port of the server does not move to a site while the server runs.
    let taken = format!("[[site]]\nlisten = \"127.0.0.1:{}\"\n", server.https_port);
    let moved = config().replace("https = [\"127.0.0.1:0\"]", "https = \"off\"");
    server.folder.write("anthill.toml", moved + &taken);
    let refused = server.ask(&["reload"]);
    assert!(
        refused
            .stderr
            .contains("for other sites or at another address"),
        "{refused:?}"
    );
    crate::support::eventually("a closed address", || TcpStream::connect(new).err());
}

#[test]
fn a_server_may_have_sites_by_port_alone() {
    let site = "[[site]]\nlisten = \"http://127.0.0.2:0\"\nroot = \"a\"\n";
    let defaults = server_table("")
        .replace("https = ", "# ")
        .replace("http = ", "# ");
    let server = Server::start_in(folder(), &format!("{defaults}{site}"));
    // The default addresses, :8443 and :8080, are not opened.
    assert_eq!(
        (server.https_port, server.ask(&["status"]).code),
        (0, Some(0))
    );
    assert_eq!(own_addresses(&server).len(), 1);
    let status = server.ask(&["status"]).stdout;
    assert!(
        !status.contains(":8443") && !status.contains(":8080"),
        "{status}"
    );
    let address = address_of(&server, "127.0.0.2");
    assert_eq!(get(&mut plain(address), "/", "x.test").1, "first");
}

/// Returns the configuration of a site with some addresses, a certificate and further keys.
fn secure_config(addresses: &str, certificate: &str, more: &str) -> String {
    let own = format!("[[site]]\nlisten = [{addresses}]\nroot = \"a\"\n");
    format!(
        "{}{}{own}certificate = \"{certificate}.pem\"\n{more}",
        server_table(""),
        site_table("")
    )
}

#[test]
fn an_address_in_front_takes_no_connection_away_from_the_others() {
    let authority = Authority::new("Ants");
    let folder = folder().with("ca.pem", &authority.pem);
    for file in ["one", "two"] {
        folder.write(
            &format!("{file}.pem"),
            authority.server(&["localhost"]).combined(),
        );
    }
    let [one, both] = ["\"127.0.0.2:0\"", "\"127.0.0.3:0\", \"127.0.0.2:0\""];
    let server = Server::start_in(folder, &secure_config(one, "one", ""));
    let address = address_of(&server, "127.0.0.2");
    let mut kept = tls(address, "localhost");
    assert_eq!(get(&mut kept, "/", "localhost").0, 200);
    server.reload(&secure_config(both, "two", ""));
    assert_eq!(get(&mut kept, "/", "localhost"), (200, "first".into()));
    let mut new = tls(address_of(&server, "127.0.0.3"), "localhost");
    assert_eq!(get(&mut new, "/", "localhost").0, 200);
    // Other client authorities end the use of both connections.
    server.reload(&secure_config(one, "one", "client_ca = \"ca.pem\"\n"));
    assert_eq!(get(&mut kept, "/", "localhost").0, 421);
}

#[test]
fn a_client_without_a_server_name_gets_the_certificate_of_the_site_for_any_name() {
    let authority = Authority::new("Ants");
    let leaf = authority.server(&["named.test"]).combined();
    let folder = folder().with("one.pem", leaf);
    let any = secure_config("\"127.0.0.2:0\"", "one", "");
    let named = "[[site]]\nlisten = \"127.0.0.3:0\"\nnames = [\"named.test\"]\nroot = \"b\"\n\
                 certificate = \"one.pem\"\n";
    let server = Server::start_in(folder, &format!("{any}{named}"));
    for (ip, status) in [("127.0.0.2", 200), ("127.0.0.3", 421)] {
        let address = address_of(&server, ip);
        let mut client = Command::new("openssl");
        client.args([
            "s_client",
            "-noservername",
            "-connect",
            &address.to_string(),
        ]);
        let request = b"GET / HTTP/1.1\r\nHost: named.test\r\nConnection: close\r\n\r\n";
        client.arg("-ign_eof");
        let done = finish(client, request);
        let line = format!("HTTP/1.1 {status} ");
        assert!(done.stdout.contains(&line), "{ip}: {}", done.stdout);
        let is_own = done.stdout.contains("Ants");
        assert_eq!(is_own, status == 200, "{ip}: {}", done.stdout);
    }
}
