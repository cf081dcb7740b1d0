//! Certificates by themselves, had from a real directory (Pebble): every challenge, and whatever may
//! go wrong on the way. After each the server serves a certificate that is valid, old or new.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::clients::{Session, curl, wait_until};
use crate::support::pebble::{Pebble, Settings};
use crate::support::{Folder, Lines, Server, run};

/// Until a certificate is there: a debug build on a busy machine, and a directory that waits.
const ISSUE: Duration = Duration::from_secs(120);

const NAME: &str = "www.example.org";

fn furnished(pebble: &Pebble) -> Folder {
    Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("ca.pem", pebble.root())
}

/// A server for these names that gets its certificates from this directory.
fn server(pebble: &Pebble, names: &[&str], more: &str) -> Server {
    Server::start_in(furnished(pebble), &pebble.config_for(names, more))
}

/// Waits for a line of the log.
fn said(lines: &Lines, what: &str) -> String {
    lines.wait_until(ISSUE, what, |lines| {
        lines.iter().find(|line| line.contains(what)).cloned()
    })
}

/// Waits for this many lines of the log.
fn said_times(lines: &Lines, what: &str, times: usize) {
    lines.wait_until(ISSUE, what, |lines| {
        let count = lines.iter().filter(|line| line.contains(what)).count();
        (count >= times).then_some(())
    });
}

/// Whether a client that trusts the directory's root alone gets an answer over HTTPS.
fn trusts(server: &Server, name: &str) -> bool {
    let url = format!("https://{name}:{}/", server.https_port);
    let ran = curl(&server.folder, &[url]);
    ran.success && ran.text().contains("Server: anthill")
}

/// Waits until one does.
fn is_trusted(server: &Server, name: &str) {
    wait_until("trusted certificate", || trusts(server, name).then_some(()));
}

fn stored(server: &Server, name: &str) -> PathBuf {
    let folder = server.folder.path("state/acme/certificates").join(name);
    folder.join("certificate.pem")
}

/// The first certificate in this file, PEM.
fn leaf(file: &PathBuf) -> String {
    let text = fs::read_to_string(file).expect("a certificate");
    let start = text.find("-----BEGIN CERT").expect("a certificate");
    let end = "-----END CERTIFICATE-----\n";
    let length = text[start..].find(end).expect("its end") + end.len();
    text[start..start + length].to_owned()
}

#[test]
fn by_http_01_from_the_first_start() {
    let pebble = Pebble::start();
    let server = server(&pebble, &[NAME, "example.org"], ", challenge = \"http-01\"");
    said(&server.errors, "certificate until");
    is_trusted(&server, NAME);
    is_trusted(&server, "example.org");
    let status = server.ask(&["status"]).stdout;
    assert!(status.contains("89 days left, renewed at"), "{status}");
    assert!(!status.contains("failed at"), "{status}");
    let state = server.folder.path("state/acme");
    let mode = |file: PathBuf| fs::metadata(file).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode(stored(&server, NAME)), 0o600);
    let directory = fs::read_dir(state.join("directories")).expect("directories");
    let directory = directory.map(|entry| entry.expect("an entry").path()).next();
    let directory = directory.expect("an account");
    assert_eq!(mode(directory.join("account.key")), 0o600);
    assert!(!stored(&server, NAME).with_file_name("order.json").exists());
    // What isn't pending is as any other path: sent to https.
    let asked = crate::clients::ask(&server, NAME, "/.well-known/acme-challenge/x");
    assert_eq!(asked.status, 308);
    // A restart keeps it, and has no reason to ask for another.
    let folder = server.into_folder();
    let server = Server::start_in(folder, &pebble.config_for(&[NAME, "example.org"], ""));
    is_trusted(&server, NAME);
    assert_eq!(pebble.orders(), 1);
}

#[test]
fn by_tls_alpn_01() {
    let pebble = Pebble::start();
    let server = server(&pebble, &[NAME], ", challenge = \"tls-alpn-01\"");
    said(&server.errors, "certificate until");
    is_trusted(&server, NAME);
    // Whoever asks for that protocol when nothing is pending gets nothing.
    let session = Session::open(server.https_port, NAME, &["-alpn", "acme-tls/1"]);
    assert!(!session.connected, "{}", session.text);
}

#[test]
fn half_of_the_nonces_are_refused() {
    let pebble = Pebble::start_with(Settings {
        nonce_reject: 50,
        ..Settings::default()
    });
    let server = server(&pebble, &[NAME], "");
    said(&server.errors, "certificate until");
    is_trusted(&server, NAME);
    let status = server.ask(&["status"]).stdout;
    assert!(!status.contains("failed at"), "{status}");
}
