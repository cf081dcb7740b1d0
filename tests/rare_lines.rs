//! Lines of the error log about events that any client can cause: few of each kind, and none forged.

use std::process::Command;
use std::time::Duration;

use crate::clients::{Authority, Session, ask};
use crate::support::wire::Wire;
use crate::support::{Folder, Server, server_table, site_table, tool};
#[cfg(feature = "http3")]
use crate::support::{finish, python::python};

/// Most lines of one kind in a minute.
const LINES_MAX: usize = 5;

fn site(names: &str, more: &str) -> String {
    format!("[[site]]\nnames = [{names}]\nroot = \"public\"\n{more}\n")
}

/// Returns the lines of the error log with the text.
fn lines(server: &Server, text: &str) -> Vec<String> {
    let all = server.errors.all().into_iter();
    all.filter(|line| line.contains(text)).collect()
}

#[test]
fn a_server_name_that_no_site_has_is_logged_with_the_names() {
    for sites in [
        site("\"example.org\", \"www.example.org\"", ""),
        // A site with client certificates has another configuration of TLS.
        site("\"example.org\", \"www.example.org\"", "")
            + &site(
                "\"private.test\"",
                "certificate = \"pair.pem\"\nclient_ca = \"ca.pem\"",
            ),
    ] {
        let authority = Authority::new("anthill's test CA");
        let folder = Folder::new()
            .with("public/index.html", "hello")
            .with("pair.pem", authority.server(&["private.test"]).combined())
            .with("ca.pem", &authority.pem);
        let private = if sites.contains("private") {
            ", `private.test`"
        } else {
            ""
        };
        let server = Server::start_in(folder, &(server_table("") + &sites));
        let refused = Session::open(server.https_port, "localhost", &[]);
        assert!(!refused.is_served(), "{}", refused.text);
        let expected = format!(
            "warn TLS refused for 127.0.0.1: the client asked for `localhost`; names are `example.org`, \
             `www.example.org`{private}"
        );
        server
            .errors
            .wait_for(&expected, |line| line.ends_with(&expected));
        // A flood writes a few lines.
        for number in 0..3 * LINES_MAX {
            let name = format!("n{number}.test");
            Session::open(server.https_port, &name, &[]);
        }
        // Another kind has lines of its own, and its line ends the wait for the lines before.
        assert!(Session::open(server.https_port, "example.org", &[]).is_served());
        assert_eq!(lines(&server, "asked for").len(), LINES_MAX);
    }
}

#[test]
fn a_refused_client_certificate_is_logged_with_the_reason() {
    let (authority, other) = (
        Authority::new("anthill's test CA"),
        Authority::new("another CA"),
    );
    let folder = Folder::new()
        .with("public/index.html", "hello")
        .with("pair.pem", authority.server(&["a.test"]).combined())
        .with("ca.pem", &authority.pem)
        .with("client.pem", authority.client("ant").combined())
        .with("stranger.pem", other.client("ant").combined());
    let demand = site(
        "\"a.test\"",
        "certificate = \"pair.pem\"\nclient_ca = \"ca.pem\"",
    );
    let server = Server::start_in(folder, &(server_table("") + &demand));
    let path = |name: &str| server.folder.path(name).to_string_lossy().into_owned();
    for version in ["-tls1_2", "-tls1_3"] {
        let with = |certificate: &str| {
            let file = path(certificate);
            Session::open(
                server.https_port,
                "a.test",
                &["-cert", &file, "-key", &file, version],
            )
        };
        assert!(with("client.pem").is_served());
        assert!(!with("stranger.pem").is_served());
        assert!(!Session::open(server.https_port, "a.test", &[version]).is_served());
    }
    let start = "TLS refused for 127.0.0.1: a.test demands a client certificate: ";
    let said = server
        .errors
        .wait_until(Duration::from_secs(60), "four lines", |lines| {
            let lines = lines.iter().filter(|line| line.contains(start));
            let reasons = lines.filter_map(|line| line.split(start).nth(1));
            let reasons: Vec<String> = reasons.map(str::to_owned).collect();
            (reasons.len() >= 4).then_some(reasons)
        });
    assert_eq!(said.len(), 4, "{said:?}");
    for reasons in said.chunks(2) {
        assert!(reasons[0].contains("UnknownIssuer"), "{said:?}");
        assert!(reasons[1].contains("no certificates"), "{said:?}");
    }
}

#[test]
fn an_unreadable_file_and_a_link_out_of_the_root_are_logged_and_nothing_is_forged() {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    let folder = Folder::new()
        .with("public/index.html", "hello")
        .with("public/closed/secret.html", "secret")
        .with("public/secret.html", "secret");
    symlink("/etc", folder.path("public/link")).expect("a link");
    let closed = std::fs::Permissions::from_mode(0o000);
    std::fs::set_permissions(folder.path("public/secret.html"), closed).expect("a mode");
    let config = server_table("")
        + &site(
            "\"a.test\"",
            "http = \"serve\"\nerrors = { 404 = \"index.html\" }",
        )
        + "[[site.route]]\npath = \"/more\"\nroot = \"public\"\n";
    let mut command = Command::new(crate::support::program());
    if crate::lifecycle::is_root() {
        chown(folder.path("."), Some(65_534), Some(65_534)).expect("an owner");
        command = Command::new(tool("setpriv"));
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .args(["--inh-caps=-all", "--bounding-set=-all"])
            .arg(crate::support::program());
    }
    let server = Server::start_by(command, folder, &config);
    let root = server.folder.path("public").canonicalize().expect("a root");
    let root = root.display();
    assert_eq!(ask(&server, "a.test", "/secret.html").status, 403);
    assert_eq!(ask(&server, "a.test", "/more/secret.html").status, 403);
    for expected in [
        format!(
            "warn a.test: /secret.html refused, the server's account can't read {root}/secret.html (rule R509)"
        ),
        format!(
            "warn a.test: /more/secret.html refused, the server's account can't read {root}/secret.html (rule R509)"
        ),
    ] {
        server
            .errors
            .wait_for(&expected, |line| line.ends_with(&expected));
    }
    // The error page of the site answers, and the line is written all the same.
    let forged = "/link/%0a2026-11-20T18:39:14.123Z%20error%20forged%1b[31m";
    assert_eq!(ask(&server, "a.test", forged).status, 404);
    let expected = format!(
        "warn a.test: /link/\\x0a2026-11-20T18:39:14.123Z error forged\\x1b[31m refused, \
         {root}/link/\\x0a2026-11-20T18:39:14.123Z error forged\\x1b[31m leads out of {root} by a symbolic link; \
         `symlinks = \"follow\"` allows such links (rule R503)"
    );
    server
        .errors
        .wait_for(&expected, |line| line.ends_with(&expected));
    for number in 0..10 * LINES_MAX {
        let long = "x".repeat(4_000);
        assert_eq!(
            ask(&server, "a.test", &format!("/link/{number}{long}")).status,
            404
        );
    }
    let said = lines(&server, "(rule R503)");
    assert_eq!(said.len(), LINES_MAX);
    assert!(said.iter().all(|line| line.len() < 1_000), "{said:?}");
}

/// Checks over HTTP/3 that the line has no name: the QUIC library reports none.
#[cfg(feature = "http3")]
#[test]
fn an_unknown_name_over_http3_is_logged() {
    let server = Server::start(&(server_table("") + &site("\"example.org\"", "")));
    let script = r#"
import asyncio, ssl, sys
from aioquic.asyncio.client import connect
from aioquic.quic.configuration import QuicConfiguration
async def main():
    configuration = QuicConfiguration(alpn_protocols=["h3"], verify_mode=ssl.CERT_NONE, server_name="localhost")
    try:
        async with connect("127.0.0.1", int(sys.argv[1]), configuration=configuration):
            sys.exit("connected")
    except ConnectionError:
        pass
asyncio.run(main())
"#;
    let port = server.https_port.to_string();
    let mut command = python();
    command.args(["-c", script, &port]);
    let done = finish(command, b"");
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let expected = "the client asked for a name over HTTP/3; names are `example.org`";
    server
        .errors
        .wait_for(expected, |line| line.ends_with(expected));
}

#[test]
fn requests_for_a_repository_without_the_mark_have_few_lines() {
    let route = "[[site.route]]\npath = \"/git/\"\ngit = \"repositories\"\nexport = \"marked\"\n";
    let config = server_table("") + &site_table("http = \"serve\"") + route;
    let folder = Folder::new().with("public/index.html", "hello");
    let made = Command::new("git")
        .args(["init", "--quiet", "--bare"])
        .arg(folder.path("repositories/a.git"))
        .status();
    assert!(made.expect("git").success());
    let server = Server::start_in(folder, &config);
    for _ in 0..3 * LINES_MAX {
        let refs = "/git/a.git/info/refs?service=git-upload-pack";
        for path in [refs, "/git/a.git/"] {
            assert_eq!(Wire::plain(&server).get(path, "").status, 404, "{path}");
        }
    }
    let text = "isn't exported";
    server.errors.wait_for(text, |line| line.contains(text));
    assert!(lines(&server, text).len() <= LINES_MAX);
}
