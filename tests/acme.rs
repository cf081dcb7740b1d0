//! Automatic certificates from a real ACME directory (Pebble): every challenge type, and failures at every
//! step. After each test the server serves a valid certificate, old or new.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::clients::{Authority, Session, curl, wait_until};
use crate::support::pebble::{Pebble, Settings};
use crate::support::{Folder, Lines, Server, server_table};

/// Deadline for a certificate. The long limit allows for debug builds on a busy machine and a slow
/// directory.
const ISSUE: Duration = Duration::from_secs(120);

const NAME: &str = "www.example.org";

fn site_folder(pebble: &Pebble) -> Folder {
    Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("ca.pem", pebble.root())
}

/// Starts a server with certificates for the names from the directory.
fn server(pebble: &Pebble, names: &[&str], more: &str) -> Server {
    Server::start_in(site_folder(pebble), &pebble.config_for(names, more))
}

/// Waits for a line with the text.
fn wait_for_line(lines: &Lines, what: &str) -> String {
    lines.wait_until(ISSUE, what, |lines| {
        lines.iter().find(|line| line.contains(what)).cloned()
    })
}

/// Waits for `times` lines with the text.
fn wait_for_lines(lines: &Lines, what: &str, times: usize) {
    lines.wait_until(ISSUE, what, |lines| {
        let count = lines.iter().filter(|line| line.contains(what)).count();
        (count >= times).then_some(())
    });
}

/// Returns true if a client with the directory's root as its only trust anchor gets a response over HTTPS.
fn trusts(server: &Server, name: &str) -> bool {
    let url = format!("https://{name}:{}/", server.https_port);
    let ran = curl(&server.folder, &[url]);
    ran.success && ran.text().to_lowercase().contains("server: anthill")
}

/// Waits until a client trusts the server's certificate.
fn wait_until_trusted(server: &Server, name: &str) {
    wait_until("trusted certificate", || trusts(server, name).then_some(()));
}

fn stored(server: &Server, name: &str) -> PathBuf {
    let folder = server.folder.path("state/acme/certificates").join(name);
    folder.join("certificate.pem")
}

/// Returns the first certificate of a file, as PEM.
fn first_certificate(file: &PathBuf) -> String {
    let text = fs::read_to_string(file).expect("a certificate");
    let start = text.find("-----BEGIN CERT").expect("a certificate");
    let end = "-----END CERTIFICATE-----\n";
    let length = text[start..].find(end).expect("its end") + end.len();
    text[start..start + length].to_owned()
}

#[test]
fn a_certificate_is_issued_by_http_01_at_the_first_start() {
    let pebble = Pebble::start();
    let server = server(&pebble, &[NAME, "example.org"], ", challenge = \"http-01\"");
    wait_for_line(&server.errors, "certificate until");
    wait_until_trusted(&server, NAME);
    wait_until_trusted(&server, "example.org");
    let status = server.ask(&["status"]).stdout;
    assert!(status.contains("89 days left, renewal at"), "{status}");
    assert!(!status.contains("failed at"), "{status}");
    let state = server.folder.path("state/acme");
    let mode = |file: PathBuf| fs::metadata(file).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode(stored(&server, NAME)), 0o600);
    let directory = fs::read_dir(state.join("directories")).expect("directories");
    let directory = directory
        .map(|entry| entry.expect("an entry").path())
        .next();
    let directory = directory.expect("an account");
    assert_eq!(mode(directory.join("account.key")), 0o600);
    assert!(!stored(&server, NAME).with_file_name("order.json").exists());
    // A path of no pending challenge is an ordinary path, redirected to https.
    let asked = crate::clients::ask(&server, NAME, "/.well-known/acme-challenge/x");
    assert_eq!(asked.status, 308);
    // A restart keeps the certificate and orders no further certificate.
    let folder = server.into_folder();
    let server = Server::start_in(folder, &pebble.config_for(&[NAME, "example.org"], ""));
    wait_until_trusted(&server, NAME);
    assert_eq!(pebble.orders(), 1);
}

#[test]
fn the_name_of_one_preview_is_in_the_certificate_by_http_01() {
    let pebble = Pebble::start();
    let preview = "next.example.org";
    let config = pebble.config_for(&[NAME], ", challenge = \"http-01\"");
    let site = format!("release = \"www\"\npreview = \"{preview}\"");
    let config = config.replace("root = \"public\"", &site);
    assert!(config.contains(preview), "{config}");
    let server = Server::start_in(site_folder(&pebble), &config);
    wait_for_line(&server.errors, "certificate until");
    wait_until_trusted(&server, NAME);
    wait_until_trusted(&server, preview);
    assert_eq!(pebble.orders(), 1);
}

#[test]
fn a_certificate_is_issued_by_tls_alpn_01() {
    let pebble = Pebble::start();
    let server = server(&pebble, &[NAME], ", challenge = \"tls-alpn-01\"");
    wait_for_line(&server.errors, "certificate until");
    wait_until_trusted(&server, NAME);
    // A client that offers acme-tls/1 without a pending challenge is refused.
    let session = Session::open(server.https_port, NAME, &["-alpn", "acme-tls/1"]);
    assert!(!session.connected, "{}", session.text);
}

#[test]
fn a_certificate_is_issued_although_half_of_the_nonces_are_refused() {
    let pebble = Pebble::start_with(Settings {
        nonce_reject: 50,
        ..Settings::default()
    });
    let server = server(&pebble, &[NAME], "");
    wait_for_line(&server.errors, "certificate until");
    wait_until_trusted(&server, NAME);
    let status = server.ask(&["status"]).stdout;
    assert!(!status.contains("failed at"), "{status}");
}

/// Writes a dns-01 hook: the hook runs `before`, updates Pebble's DNS server, and records its arguments.
fn hook(pebble: &Pebble, folder: &Folder, before: &str) {
    let script = format!(
        "#!/bin/sh\necho \"$1 $2\" >> {}\n{before}\n\
         case $1 in present) what=set-txt ;; *) what=clear-txt ;; esac\n\
         exec curl -sSf -d '{{\"host\":\"'\"$2\"'.\",\"value\":\"'\"$3\"'\"}}' {}$what\n",
        folder.path("calls").display(),
        pebble.dns_url("")
    );
    // The hook is replaced by a rename, because the old hook may be running.
    folder.write("new-hook", script);
    let file = folder.path("new-hook");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("its mode");
    fs::rename(file, folder.path("hook")).expect("its name");
}

/// Waits until the hook has been called `count` times, and returns the recorded calls.
fn wait_for_calls(folder: &Folder, count: usize) -> Vec<String> {
    crate::support::eventually("calls of the hook", || {
        let text = fs::read_to_string(folder.path("calls")).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        (lines.len() >= count).then_some(lines)
    })
}

const HOOK: &str = ", hook = \"hook\"";

#[test]
fn a_wildcard_certificate_is_issued_by_dns_01() {
    let pebble = Pebble::start();
    let folder = site_folder(&pebble);
    hook(&pebble, &folder, "");
    let names = ["example.org", "*.example.org"];
    let server = Server::start_in(folder, &pebble.config_for(&names, HOOK));
    wait_for_line(&server.errors, "certificate until");
    for name in ["example.org", "any.example.org"] {
        wait_until_trusted(&server, name);
    }
    let called = wait_for_calls(&server.folder, 4);
    let (present, cleanup) = (
        "present _acme-challenge.example.org",
        "cleanup _acme-challenge.example.org",
    );
    assert_eq!(called, [present, present, cleanup, cleanup]);
}

#[test]
fn a_failing_or_hanging_hook_is_logged() {
    let pebble = Pebble::start();
    let folder = site_folder(&pebble);
    hook(&pebble, &folder, "echo 'no credentials' >&2; exit 3");
    let config = pebble.config_for(&[NAME], ", hook = \"hook\", hook_timeout = \"1s\"");
    let server = Server::start_in(folder, &config);
    wait_for_line(&server.errors, "exit status 3: no credentials");
    assert!(Session::open(server.https_port, NAME, &[]).is_served());
    hook(&pebble, &server.folder, "sleep 1000 & wait");
    server.reload(&config);
    wait_for_line(&server.errors, "no exit within 1 s, killed");
    let status = server.ask(&["status"]).stdout;
    assert!(
        status.contains("none yet, a self-signed certificate is served"),
        "{status}"
    );
    let patient = pebble.config_for(&[NAME], HOOK);
    hook(&pebble, &server.folder, "");
    server.reload(&patient);
    wait_for_line(&server.errors, "certificate until");
    wait_until_trusted(&server, NAME);
}

#[test]
fn a_failed_validation_is_logged_with_its_reason() {
    let pebble = Pebble::start();
    let nowhere = format!("{{\"host\":\"{NAME}\",\"addresses\":[\"127.9.9.9\"]}}");
    pebble.dns("add-a", &nowhere);
    let config = pebble.config_for(&[NAME], ", challenge = \"http-01\"");
    let server = Server::start_in(site_folder(&pebble), &config);
    let line = wait_for_line(&server.errors, "was not validated by http-01");
    assert!(
        line.contains(
            "(connection); help: the authority did not reach port 80 of www.example.org: "
        ) && line.contains("tried again at"),
        "{line}"
    );
    crate::support::eventually("the failure in the status", || {
        let status = server.ask(&["status"]).stdout;
        let tells = status
            .contains("none yet, a self-signed certificate is served, next request at")
            && status.contains("was not validated by http-01");
        let json = server.ask(&["status", "--json"]).stdout;
        (tells && json.contains("was not validated")).then_some(())
    });
    // The server serves meanwhile, and a reload retries at once after the operator has corrected the
    // record.
    assert!(Session::open(server.https_port, NAME, &[]).is_served());
    pebble.dns("clear-a", &format!("{{\"host\":\"{NAME}\"}}"));
    server.reload(&config);
    wait_for_line(&server.errors, "certificate until");
    wait_until_trusted(&server, NAME);
    let status = server.ask(&["status"]).stdout;
    assert!(!status.contains("failed at"), "{status}");
}

#[test]
fn tls_alpn_01_follows_a_failed_http_01() {
    let pebble = Pebble::start_with(Settings {
        http_01_fails: true,
        ..Settings::default()
    });
    let server = server(&pebble, &[NAME], "");
    wait_for_line(&server.errors, "was not validated by http-01");
    server.reload(&pebble.config_for(&[NAME], ""));
    wait_for_line(&server.errors, "by tls-alpn-01");
    wait_until_trusted(&server, NAME);
}

#[test]
fn slow_validation_delays_no_request() {
    let pebble = Pebble::start_with(Settings {
        sleep: Some(6),
        ..Settings::default()
    });
    let names = [NAME, "a.example.org", "b.example.org"];
    let server = server(&pebble, &names, "");
    pebble.output.wait_until(ISSUE, "an order", |lines| {
        let ordered = |line: &String| line.contains("Added order");
        lines.iter().any(ordered).then_some(())
    });
    server.reload(&pebble.config_for(&names, ""));
    assert_eq!(server.ask(&["status"]).code, Some(0));
    assert!(Session::open(server.https_port, NAME, &[]).is_served());
    wait_for_line(&server.errors, "certificate until");
    wait_until_trusted(&server, NAME);
    assert_eq!(pebble.orders(), 1);
}

/// Replaces a number in a JSON file.
fn set_number(file: &PathBuf, key: &str, number: u64) {
    let text = fs::read_to_string(file).expect("a state");
    let key = format!("\"{key}\":");
    let start = text.find(&key).expect("the key") + key.len();
    let length = text[start..].find([',', '}']).expect("its end");
    let text = format!("{}{number}{}", &text[..start], &text[start + length..]);
    fs::write(file, text).expect("a state");
}

#[test]
fn the_directory_is_down_at_renewal() {
    let mut pebble = Pebble::start();
    let config = pebble.config_for(&[NAME], "");
    let server = Server::start_in(site_folder(&pebble), &config);
    wait_for_line(&server.errors, "the directory suggests renewal between");
    wait_until_trusted(&server, NAME);
    let old = first_certificate(&stored(&server, NAME));
    let folder = server.into_folder();
    pebble.stop();
    // The renewal window of the stored state is moved into the past.
    let state = folder.path("state/acme/certificates/www.example.org/state.json");
    set_number(&state, "window_start", 1);
    set_number(&state, "window_end", 2);
    let server = Server::start_in(folder, &config);
    let line = wait_for_line(&server.errors, "tried again at");
    assert!(line.contains("refused"), "{line}");
    wait_until_trusted(&server, NAME);
    let status = server.ask(&["status"]).stdout;
    assert!(status.contains("89 days left"), "{status}");
    assert!(status.contains("failed at"), "{status}");
    // The restarted directory has a new root and no accounts, so the server registers a new account.
    pebble.run();
    server.folder.write("ca.pem", pebble.root());
    server.reload(&config);
    wait_for_line(&server.errors, "certificate until");
    wait_until_trusted(&server, NAME);
    assert_ne!(first_certificate(&stored(&server, NAME)), old);
}

#[test]
fn the_directory_requests_an_early_renewal() {
    let pebble = Pebble::start();
    let config = pebble.config_for(&[NAME], "");
    let server = Server::start_in(site_folder(&pebble), &config);
    wait_for_line(&server.errors, "the directory suggests renewal between");
    let old = first_certificate(&stored(&server, NAME));
    pebble.set_renewal_info(
        &old,
        "{\"suggestedWindow\":{\"start\":\"2020-01-01T00:00:00Z\",\"end\":\"2020-01-02T00:00:00Z\"},\
         \"explanationURL\":\"https://ca.example/why\"}",
    );
    server.reload(&config);
    wait_for_line(&server.errors, "see https://ca.example/why");
    wait_for_lines(&server.errors, "certificate until", 2);
    assert_ne!(first_certificate(&stored(&server, NAME)), old);
    wait_until_trusted(&server, NAME);
    // DER puts a zero byte before a serial number with a set first bit. Pebble then seems to find no order of the
    // certificate, and the server orders without the reference. Pebble's numbers have 63 bits, so this is rare.
    let issued = wait_for_line(&pebble.output, "Issued certificate serial ");
    let serial = issued.rsplit_once("serial ").map(|(_, serial)| serial);
    let has_zero_byte = serial.is_some_and(|it| it.len() % 2 == 0 && it.as_bytes()[0] >= b'8');
    if has_zero_byte {
        wait_for_line(&server.errors, "ordered without `replaces`")
    } else {
        wait_for_line(&pebble.output, "is a replacement of")
    };
    // One renewal covers both reasons.
    assert_eq!(pebble.orders(), 2);
}

#[test]
fn a_restart_resumes_a_pending_order() {
    let pebble = Pebble::start();
    let folder = site_folder(&pebble);
    // The hook waits for a file, for at most 60 s.
    let wait = format!(
        "n=0; until [ -e {} ] || [ $n = 600 ]; do sleep 0.1; n=$((n+1)); done",
        folder.path("go").display()
    );
    hook(&pebble, &folder, &wait);
    let config = pebble.config_for(&[NAME], HOOK);
    let server = Server::start_in(folder, &config);
    wait_for_calls(&server.folder, 1);
    server.signal("KILL");
    let folder = server.into_folder();
    folder.write("go", "");
    let server = Server::start_in(folder, &config);
    wait_for_line(&server.errors, "certificate until");
    wait_until_trusted(&server, NAME);
    assert_eq!(pebble.orders(), 1);
}

#[test]
fn a_full_disk_while_a_certificate_is_stored() {
    let pebble = Pebble::start();
    let folder = site_folder(&pebble).with("state/here", "");
    let wait = format!(
        "n=0; until [ -e {} ] || [ $n = 600 ]; do sleep 0.1; n=$((n+1)); done",
        folder.path("go").display()
    );
    hook(&pebble, &folder, &wait);
    let config = pebble.config_for(&[NAME], HOOK);
    folder.write("anthill.toml", &config);
    let mounts = "mount -t tmpfs -o size=128k none state";
    let server = Server::launch(
        Folder::new(),
        crate::lifecycle::in_own_mounts(&folder, mounts),
    );
    wait_for_calls(&folder, 1);
    let state = format!(
        "/proc/{}/root{}",
        server.pid(),
        folder.path("state").display()
    );
    let filler = PathBuf::from(state).join("filler");
    let full = fs::write(&filler, vec![0; 1 << 20]);
    assert!(full.is_err(), "the disk has room");
    folder.write("go", "");
    let line = wait_for_line(&server.errors, "certificate.pem: No space left");
    assert!(line.contains(NAME), "{line}");
    assert!(Session::open(server.https_port, NAME, &[]).is_served());
    fs::remove_file(&filler).expect("the filler");
    server.signal("HUP");
    wait_for_line(&server.errors, "certificate until");
    server.folder.write("ca.pem", pebble.root());
    wait_until_trusted(&server, NAME);
    // The failure to store caused no second order.
    assert_eq!(pebble.orders(), 1);
}

#[test]
fn two_servers_share_one_state_folder() {
    let pebble = Pebble::start();
    let folder = site_folder(&pebble);
    // The hook waits, so that the second server starts before the first server's order ends.
    let wait = format!(
        "n=0; until [ -e {} ] || [ $n = 600 ]; do sleep 0.1; n=$((n+1)); done",
        folder.path("go").display()
    );
    hook(&pebble, &folder, &wait);
    let first = Server::start_in(folder, &pebble.config_for(&[NAME], HOOK));
    wait_for_calls(&first.folder, 1);
    let state = first.folder.path("state");
    let config = pebble
        .config_for(&[NAME], HOOK)
        .replace(&pebble.https_port.to_string(), "0")
        .replace(&pebble.http_port.to_string(), "0")
        .replace("\"state\"", &format!("{:?}", state.display().to_string()));
    let folder = site_folder(&pebble);
    hook(&pebble, &folder, "");
    let second = Server::start_in(folder, &config);
    wait_for_line(&second.errors, "another server process holds the lock");
    first.folder.write("go", "");
    wait_for_line(&first.errors, "certificate until");
    wait_until_trusted(&first, NAME);
    wait_until_trusted(&second, NAME);
    assert_eq!(pebble.orders(), 1);
    let status = second.ask(&["status"]).stdout;
    assert!(status.contains("renewed by another server"), "{status}");
    // The state folder lies in the folder of the first server.
    let folder = first.into_folder();
    wait_until("the second in its place", || {
        let status = second.ask(&["status"]).stdout;
        status.contains("days left, renewal at").then_some(())
    });
    wait_until_trusted(&second, NAME);
    assert_eq!(pebble.orders(), 1);
    drop(folder);
}

#[test]
fn certificate_profiles() {
    let pebble = Pebble::start();
    let server = server(&pebble, &[NAME], ", profile = \"nonesuch\"");
    let line = wait_for_line(&server.errors, "no profile `nonesuch`");
    assert!(
        line.contains("default") && line.contains("shortlived"),
        "{line}"
    );
    assert_eq!(pebble.orders(), 0);
    server.reload(&pebble.config_for(&[NAME], ", profile = \"shortlived\""));
    wait_for_line(&server.errors, "certificate until");
    wait_until_trusted(&server, NAME);
    // The time of the renewal is recorded after the certificate is installed.
    wait_until("the time of the renewal", || {
        let status = server.ask(&["status"]).stdout;
        status.contains("5 days left, renewal at").then_some(())
    });
    assert!(
        !server
            .errors
            .all()
            .iter()
            .any(|line| line.contains("ends soon")),
        "warned of a certificate that is young"
    );
}

#[test]
fn external_account_binding() {
    let key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let pebble = Pebble::start_with(Settings {
        binding: Some(("kid-1", key)),
        ..Settings::default()
    });
    let server = server(&pebble, &[NAME], "");
    wait_for_line(&server.errors, "requires an external account binding");
    let bound = format!(", eab = {{ kid = \"kid-1\", key = \"{key}\" }}");
    server.reload(&pebble.config_for(&[NAME], &bound));
    wait_for_line(&server.errors, "certificate until");
    wait_until_trusted(&server, NAME);
}

#[test]
fn names_that_no_directory_validates_are_skipped_and_logged() {
    let pebble = Pebble::start();
    let config = pebble.config_for(&["box", NAME, "127.0.0.1", "nas.lan"], "")
        + "[[site]]\nnames = [\"*\"]\nroot = \"public\"\n";
    let server = Server::start_in(site_folder(&pebble), &config);
    let skipped = [
        "no certificate is asked for `box`: no public authority certifies a local name",
        "no certificate is asked for `127.0.0.1`: certificates for IP addresses are not requested",
        "no certificate is asked for `nas.lan`: no public authority certifies a local name",
        "no certificate is asked for `*`: a certificate cannot name every host",
    ];
    for line in skipped {
        wait_for_line(&server.errors, line);
    }
    wait_for_line(&server.errors, "certificate until");
    wait_until_trusted(&server, NAME);
    let status = server.ask(&["status"]).stdout;
    let checked = server.ask(&["check"]).stdout;
    for line in skipped {
        assert!(checked.contains(line), "{checked}");
        // The status names the problem, and the log and the check name the step that is left out.
        let problem = line.replace("no certificate is asked for `", "");
        let problem = problem.replace("`:", " gets no certificate:");
        assert!(status.contains(&problem), "{problem}: {status}");
        assert!(
            status.contains("so write a public name in `names`"),
            "{status}"
        );
    }
    assert!(
        checked.contains("for www.example.org, by http-01"),
        "{checked}"
    );
    // The ports of the test are not those of the internet.
    assert!(
        checked.contains(
            "\nthe authority connects to port 80 of each name, and the server listens on "
        ),
        "{checked}"
    );
    assert_eq!(pebble.orders(), 1);
}

/// A TLS server that reads a request and sends an arbitrary response.
struct Hostile {
    port: u16,
    ca: String,
}

impl Hostile {
    /// Starts a server with `answer` as the writer of its responses.
    fn start(answer: impl Fn(&mut dyn Write) -> std::io::Result<()> + Send + 'static) -> Hostile {
        let authority = Authority::new("the hostile directory's CA");
        let leaf = authority.server(&["localhost"]);
        let chain = CertificateDer::from_pem_slice(leaf.certificate.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![chain.expect("a certificate")], key);
        let config = Arc::new(config.expect("a configuration"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let connection = rustls::ServerConnection::new(config.clone()).expect("TLS");
                let mut stream = rustls::StreamOwned::new(connection, socket);
                let _ = stream.read(&mut [0; 4096]);
                // The client may close the connection early, so errors are ignored.
                let _ = answer(&mut stream);
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        });
        Hostile {
            port,
            ca: authority.pem,
        }
    }

    /// Starts a server with the bytes as its response.
    fn sending(bytes: impl Into<Vec<u8>>) -> Hostile {
        let bytes = bytes.into();
        Hostile::start(move |stream| stream.write_all(&bytes))
    }
}

/// Starts an anthill server with the hostile directory, checks that the server still serves, and returns
/// the logged error.
fn logged_error(hostile: &Hostile) -> String {
    let config = format!(
        "{}[tls]\nacme = {{ directory = \"https://localhost:{}/\", ca = \"hostile.pem\" }}\n\
         [[site]]\nnames = [\"{NAME}\"]\nroot = \"public\"\n",
        server_table(""),
        hostile.port
    );
    let folder = Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("hostile.pem", &hostile.ca);
    let server = Server::start_in(folder, &config);
    let line = wait_for_line(&server.errors, "tried again at");
    assert!(Session::open(server.https_port, NAME, &[]).is_served());
    assert!(!line.contains('\u{1b}') && line.len() < 1_500, "{line}");
    line
}

#[test]
fn hostile_directories_are_bounded_and_logged() {
    let json = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    let problem =
        "{\"type\":\"urn:ietf:params:acme:error:\\u001b[31m\",\"detail\":\"go\\u001b away\"}";
    let deep = "[".repeat(100_000);
    for (answer, complaint_has) in [
        (
            format!("{json}Content-Length: 9999999999\r\n\r\n"),
            "too long",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>hi".to_owned(),
            "instead of JSON",
        ),
        (format!("{json}\r\n{{\"newNonce\":"), "malformed"),
        (format!("{json}\r\n{deep}"), "malformed"),
        (format!("{json}\r\n{{}}"), "has no `newNonce`"),
        (
            format!(
                "{json}\r\n{{\"newNonce\":\"http://localhost/\",\"newAccount\":\"x\",\
          \"newOrder\":\"file:///etc/passwd\"}}"
            ),
            "is not an https:// URL",
        ),
        (
            "SSH-2.0-OpenSSH_9.2\r\n".to_owned(),
            "malformed HTTP/1.1 response",
        ),
        (String::new(), "closed before the end"),
        (
            format!("HTTP/1.1 503 No\r\nContent-Type: application/problem+json\r\n\r\n{problem}"),
            "go  away ([31m)",
        ),
        ("HTTP/1.1 500 No\r\n\r\n<html>".to_owned(), "status 500"),
    ] {
        let line = logged_error(&Hostile::sending(answer));
        assert!(line.contains(complaint_has), "{complaint_has}: {line}");
    }
    let endless = Hostile::start(|stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")?;
        loop {
            stream.write_all(&[b' '; 8_192])?;
        }
    });
    assert!(logged_error(&endless).contains("too long"));
}

#[test]
fn a_dripping_directory_is_abandoned_at_the_deadline() {
    let slow = Hostile::start(|stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nX: ")?;
        loop {
            stream.write_all(b"a")?;
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    assert!(logged_error(&slow).contains("no complete response within"));
}
