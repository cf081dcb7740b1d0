//! Tests with all installed servers, and with shell scripts as misbehaving servers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256 as AES_128;
use rustls::pki_types::{CertificateDer, pem::PemObject};

use super::*;
use crate::catalogue::Catalogue;
use crate::load;
use crate::program::Missing;
use crate::template::placeholder;

const SIZES: [u64; 3] = [5100, 64 * 1024, 300_000];

struct TestSite {
    folder: tempfile::TempDir,
    site: Site,
}

impl TestSite {
    fn new() -> TestSite {
        let folder = tempfile::tempdir().expect("a folder");
        let site = Site::create(&folder.path().join("served"), &SIZES).expect("a site");
        TestSite { folder, site }
    }

    fn work(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn catalogue() -> Catalogue {
    Catalogue::load(None).expect("the built-in catalogue")
}

/// Creates a contender that runs a shell script.
fn scripted(folder: &Path, script: &str) -> Entry {
    let file = folder.join("scripted.toml");
    let text = format!(
        "[[contender]]\nname = \"scripted\"\ntitle = \"a script\"\nabilities = [\"http\", \"hello\"]\n\
         install = {{}}\n[[contender.program]]\nkey = \"sh\"\nnames = [\"sh\"]\n\
         [[contender.start]]\ncommand = [\"{{sh}}\", \"-c\", '''{script}''']\n"
    );
    fs::write(&file, text).expect("a file");
    let catalogue = Catalogue::load(Some(&file)).expect("a sound file");
    catalogue.contender("scripted").expect("the entry").clone()
}

/// Returns every combination of settings that the entry's abilities allow.
fn setups<'a>(test_site: &'a TestSite, folder: &'a Path, entry: &Entry) -> Vec<Setup<'a>> {
    let members =
        ["127.0.0.1:7001", "127.0.0.1:7002"].map(|member| member.parse().expect("an address"));
    let roles = [
        Role::Static,
        Role::Cgi,
        Role::Published,
        Role::Balancer {
            members: members.to_vec(),
        },
    ];
    let mut all = Vec::new();
    for role in roles {
        for bits in 0..16 {
            all.push(Setup {
                role: role.clone(),
                tls: bits & 1 != 0,
                keep_alive: bits & 2 != 0,
                access_log: bits & 4 != 0,
                workers: 1 + (bits >> 3),
                ..Setup::new(&test_site.site, folder)
            });
        }
    }
    all.retain(|setup| setup.suits(entry).is_ok());
    all
}

#[test]
fn no_placeholder_is_left_in_any_template() {
    let test_site = TestSite::new();
    for entry in catalogue().entries() {
        let paths = entry
            .programs
            .iter()
            .map(|program| (program.key.clone(), "/bin/it".into()));
        let found = Found {
            paths: paths.collect(),
            program: "/bin/it".into(),
            program_bytes: 1,
            version: "1".into(),
        };
        let folder = test_site.work(&entry.name);
        let setups = setups(&test_site, &folder, entry);
        assert!(!setups.is_empty(), "{} can do nothing", entry.name);
        for setup in setups {
            let workload =
                StartPlan::make(entry, &setup, &found).unwrap_or_else(|error| panic!("{error}"));
            assert!(
                !workload.launches.is_empty(),
                "{}: nothing to start for {setup:?}",
                entry.name
            );
            for (file, text) in &workload.configuration {
                assert_eq!(placeholder(text), None, "{}: {file}", entry.name);
                assert!(
                    !text.lines().any(|line| line.starts_with('@')),
                    "{}: {file}",
                    entry.name
                );
            }
            for command in workload.launches.iter().map(command_line) {
                assert_eq!(placeholder(&command), None, "{}", entry.name);
            }
        }
    }
}

/// Contenders that are not installed are reported and skipped. Installed contenders are tested for all
/// their abilities.
#[test]
fn every_installed_contender_has_its_claimed_abilities() {
    let catalogue = catalogue();
    let test_site = TestSite::new();
    let names = std::env::var("CONTENDERS").unwrap_or_default();
    let wanted =
        |entry: &&Entry| names.is_empty() || names.split(',').any(|name| name == entry.name);
    let queue = Mutex::new(catalogue.entries().iter().filter(wanted));
    let next = || queue.lock().expect("the queue").next();
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(entry) = next() {
                    if let Err(Missing(why)) = entry.find() {
                        println!("not tested: {}: {why}", entry.name);
                    } else if let Err(why) = check(&test_site, entry) {
                        failures
                            .lock()
                            .expect("the failures")
                            .push(format!("{}: {why}", entry.name));
                    } else {
                        println!("tested: {}", entry.name);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("the failures");
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Starts an entry in each of its roles and checks the responses.
fn check(test_site: &TestSite, entry: &Entry) -> Result<(), String> {
    for tls in [false, true] {
        let protocol = if tls { Ability::Https } else { Ability::Http };
        if entry.can(protocol) && entry.can(Ability::Hello) {
            run(test_site, entry, Role::Static, tls, |contender| {
                check_static(test_site, entry, contender, tls)
            })?;
        }
    }
    if entry.can(Ability::Cgi) {
        run(
            test_site,
            entry,
            Role::Cgi,
            !entry.can(Ability::Http),
            |contender| check_scripts(test_site, entry, contender),
        )?;
    }
    if entry.can(Ability::PageCache) {
        // With a separate site, because the test changes the script.
        let test_site = TestSite::new();
        run(&test_site, entry, Role::Cgi, false, |contender| {
            check_page_cache(&test_site, contender)
        })?;
    }
    if entry.can(Ability::Balancer) {
        for tls in [false, true] {
            if entry.can(if tls { Ability::Https } else { Ability::Http }) {
                let members = [Member::new("one"), Member::new("two")];
                let addresses = members.iter().map(|member| member.address).collect();
                run(
                    test_site,
                    entry,
                    Role::Balancer { members: addresses },
                    tls,
                    |contender| check_balancer(test_site, entry, contender, &members, tls),
                )?;
            }
        }
    }
    if entry.can(Ability::Published) {
        run(test_site, entry, Role::Published, false, |contender| {
            let published = entry
                .published
                .as_ref()
                .and_then(|published| published.body.clone());
            let body = published.unwrap_or_else(|| {
                String::from_utf8(test_site.site.hello().content().expect("a page")).expect("text")
            });
            let answer = get(contender, "/", None)?;
            expect(answer.body == body.as_bytes(), || {
                "another published body".into()
            })
        })?;
    }
    Ok(())
}

/// Starts a contender, runs a check, stops the contender, and checks that no process and no listener is
/// left.
fn run(
    test_site: &TestSite,
    entry: &Entry,
    role: Role,
    tls: bool,
    check: impl FnOnce(&Contender) -> Result<(), String>,
) -> Result<(), String> {
    let what = format!("{role:?}, {}", if tls { "TLS" } else { "plain" });
    let folder = test_site.work(&format!("{}-{tls}-{}", entry.name, &what[..4]));
    let setup = Setup {
        role,
        tls,
        access_log: true,
        ..Setup::new(&test_site.site, &folder)
    };
    let contender = Contender::start(entry, &setup).map_err(|error| format!("{what}: {error}"))?;
    check(&contender).map_err(|why| format!("{what}: {why}; log: {}", contender.last_line()))?;
    contender.alive().map_err(|died| died.to_string())?;
    let facts = contender.facts();
    expect(
        !facts.version.is_empty() && facts.version != "unknown",
        || "no version".into(),
    )?;
    expect(
        facts.program_bytes > 0 && !facts.commands.is_empty(),
        || "no facts".into(),
    )?;
    expect(contender.tree().pss() > 0, || "no memory".into())?;
    let (tree, address) = (contender.tree().clone(), contender.address(tls));
    contender.stop();
    expect(tree.pids().is_empty(), || {
        format!("{what}: processes are left")
    })?;
    let listens = TcpListener::bind(address).err();
    expect(listens.is_none(), || {
        format!("{what}: {address} is still in use: {listens:?}")
    })
}

/// Checks that a balancer asks its members in turn, on connections that it keeps alive.
fn check_balancer(
    test_site: &TestSite,
    entry: &Entry,
    contender: &Contender,
    members: &[Member; 2],
    tls: bool,
) -> Result<(), String> {
    let authority = tls.then_some(test_site.site.certificate.authority_pem.as_str());
    let mut seen: Vec<Vec<u8>> = Vec::new();
    for _ in 0..REQUESTS_BALANCED {
        seen.push(get(contender, "/hello.html", authority)?.body);
    }
    for member in members {
        let answered = seen.iter().filter(|body| *body == member.name.as_bytes());
        let answered = answered.count();
        expect(answered == REQUESTS_BALANCED / 2, || {
            format!("{} answered {answered} requests", member.name)
        })?;
    }
    let connections = members.iter().map(Member::connections).sum::<usize>();
    let kept = connections <= CONNECTIONS_KEPT_MAX;
    expect(kept || NOT_KEPT.contains(&entry.name.as_str()), || {
        format!("{connections} connections to the members for {REQUESTS_BALANCED} requests")
    })
}

/// Requests through a balancer.
const REQUESTS_BALANCED: usize = 60;
/// Largest number of connections to the members for the requests: each of Apache's 11 processes has
/// connections of its own to both members.
const CONNECTIONS_KEPT_MAX: usize = 30;
/// Balancers that open a connection to a member for each request.
const NOT_KEPT: [&str; 1] = ["lighttpd"];

/// Checks that a cached page is served without running the changed script.
fn check_page_cache(test_site: &TestSite, contender: &Contender) -> Result<(), String> {
    let page = fs::read(test_site.site.root.join("cached.html")).expect("the page");
    let kept = get(contender, Site::KEPT_SCRIPT, None)?;
    expect(kept.body == page, || {
        "another page than the script's".into()
    })?;
    let script = test_site.site.cgi_root.join("cgi-bin/complex.py");
    let text = "#!/bin/sh\nprintf 'Content-Type: text/html\\r\\n\\r\\nnew'\n";
    fs::write(&script, text).expect("a script");
    // A file open for writing can't be executed (ETXTBSY), and a child process forked by a concurrent test
    // holds a copy of every open file descriptor.
    let mut made = get(contender, Site::COMPLEX_SCRIPT, None)?;
    for _ in 0..100 {
        if made.body == b"new" {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
        made = get(contender, Site::COMPLEX_SCRIPT, None)?;
    }
    expect(made.body == b"new", || "the script didn't change".into())?;
    let kept = get(contender, Site::KEPT_SCRIPT, None)?;
    expect(kept.body == page, || "the page isn't kept".into())
}

fn check_static(
    test_site: &TestSite,
    entry: &Entry,
    contender: &Contender,
    tls: bool,
) -> Result<(), String> {
    let authority = tls.then_some(test_site.site.certificate.authority_pem.as_str());
    for page in &test_site.site.pages {
        if page.path != test_site.site.hello().path && !entry.can_serve(page.bytes) {
            continue;
        }
        let answer = get(contender, &page.path, authority)?;
        let right = page.content().expect("a page");
        expect(answer.status == 200 && answer.body == right, || {
            format!(
                "{}: status {}, {} bytes",
                page.path,
                answer.status,
                answer.body.len()
            )
        })?;
        let is_html = answer
            .head
            .to_ascii_lowercase()
            .contains("content-type: text/html");
        expect(is_html, || {
            format!("{}: no HTML: {}", page.path, answer.head)
        })?;
        if tls && entry.can(Ability::Http2) {
            check_http2(test_site, contender, page)?;
        }
    }
    if entry.can_serve(10_000) {
        let journal = get(contender, Site::JOURNAL, authority)?;
        let known = fs::read(test_site.site.root.join("journal/index.html")).expect("the journal");
        let whole = entry.largest_file_bytes.is_some() || journal.body == known;
        expect(whole, || {
            format!("{}: status {}", Site::JOURNAL, journal.status)
        })?;
        let missing = get(contender, "/no-such-page.html", authority)?;
        expect(missing.status == 404, || {
            format!("no such page: status {}", missing.status)
        })?;
    }
    if tls {
        check_tls(test_site, entry, contender)?;
        check_http3(test_site, entry, contender)?;
    } else {
        let kept = keeps_alive(contender, &test_site.site.hello().path)
            .map_err(|error| error.to_string())?;
        let claims = entry.can(Ability::KeepAlive);
        expect(kept == claims, || {
            format!("claims keep-alive: {claims}, does it: {kept}")
        })?;
    }
    Ok(())
}

/// Checks TLS settings that all contenders must share, so that no contender gains from a cheaper cipher:
/// AES-128-GCM for a client that lists AES-128-GCM first, X25519, a P-256 certificate, and resumption by
/// ticket.
fn check_tls(test_site: &TestSite, entry: &Entry, contender: &Contender) -> Result<(), String> {
    let client = Arc::new(aes_128_client(test_site, entry.can(Ability::X25519)));
    let mut handshakes = Vec::new();
    for _ in 0..3 {
        let mut tls =
            rustls::ClientConnection::new(client.clone(), "localhost".try_into().expect("a name"))
                .expect("a client");
        let mut socket =
            TcpStream::connect(contender.address(true)).map_err(|error| error.to_string())?;
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a socket");
        let mut stream = rustls::Stream::new(&mut tls, &mut socket);
        let request = "GET /hello.html HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream
            .write_all(request.as_bytes())
            .map_err(|error| error.to_string())?;
        // Some servers close without close_notify.
        let _ = stream.read_to_end(&mut Vec::new());
        let suite = tls.negotiated_cipher_suite().map(|suite| suite.suite());
        expect(suite == Some(AES_128.suite()), || {
            format!("another cipher suite: {suite:?}")
        })?;
        handshakes.push(tls.handshake_kind());
    }
    let resumes = handshakes.contains(&Some(rustls::HandshakeKind::Resumed));
    expect(resumes == entry.can(Ability::Tickets), || {
        format!("resumption: {handshakes:?}")
    })
}

fn aes_128_client(test_site: &TestSite, x25519_alone: bool) -> rustls::ClientConfig {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider
        .cipher_suites
        .sort_by_key(|suite| *suite != AES_128);
    if x25519_alone {
        provider.kx_groups = vec![rustls::crypto::aws_lc_rs::kx_group::X25519];
    }
    let mut roots = rustls::RootCertStore::empty();
    let pem = test_site.site.certificate.authority_pem.as_bytes();
    roots
        .add(CertificateDer::from_pem_slice(pem).expect("a certificate"))
        .expect("an authority");
    rustls::ClientConfig::builder_with_provider(provider.into())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

fn check_scripts(test_site: &TestSite, entry: &Entry, contender: &Contender) -> Result<(), String> {
    let tls = !entry.can(Ability::Http);
    let authority = tls.then_some(test_site.site.certificate.authority_pem.as_str());
    let cached = fs::read(test_site.site.root.join("cached.html")).expect("the cached page");
    expect(
        get(contender, Site::CACHED_PAGE, authority)?.body == cached,
        || "the cached page".into(),
    )?;
    let complex = get(contender, Site::COMPLEX_SCRIPT, authority)?;
    expect(complex.status == 200 && complex.body == cached, || {
        format!(
            "the complex script: {} {}",
            complex.status,
            String::from_utf8_lossy(&complex.body)
        )
    })?;
    for path in [Site::SIMPLE_SCRIPT, Site::SHELL_SCRIPT] {
        let simple = get(contender, path, authority)?;
        let text = String::from_utf8_lossy(&simple.body).into_owned();
        let right = simple.status == 200 && text.contains("Hello World!");
        expect(right, || format!("{path}: {} {text}", simple.status))?;
    }
    Ok(())
}

/// Checks HTTP/2 with curl, an independent client.
fn check_http2(
    test_site: &TestSite,
    contender: &Contender,
    page: &crate::site::Page,
) -> Result<(), String> {
    let address = contender.address(true);
    let output = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--http2",
            "--max-time",
            "20",
            "--output",
            "-",
        ])
        .args([
            "--write-out",
            "%{stderr}%{http_version} %{http_code}",
            "--cacert",
        ])
        .arg(&test_site.site.certificate.authority)
        .args([
            "--resolve",
            &format!("localhost:{}:{}", address.port(), address.ip()),
        ])
        .arg(format!("https://localhost:{}{}", address.port(), page.path))
        .output()
        .expect("curl");
    let said = String::from_utf8_lossy(&output.stderr);
    let right = said == "2 200" && output.stdout == page.content().expect("a page");
    expect(right, || format!("HTTP/2 {}: {said}", page.path))
}

/// Checks HTTP/3 with the built-in load generator, which compares every byte. Debian 12 has no other HTTP/3
/// client.
fn check_http3(test_site: &TestSite, entry: &Entry, contender: &Contender) -> Result<(), String> {
    let claims = entry.can(Ability::Http3);
    let page = test_site.site.hello();
    let workload = load::Workload {
        protocol: load::Protocol::Http3,
        tls: Some(load::Tls {
            trust: load::Trust::Authority(test_site.site.certificate.authority_pem.clone()),
            ..load::Tls::default()
        }),
        host: probe::HOST.to_owned(),
        paths: vec![page.path.clone()],
        length: load::Length::Requests(2),
        expect: load::Expect {
            body: Some(page.content().expect("a page").into()),
            ..load::Expect::default()
        },
        // A server without HTTP/3 sends no response at all.
        timeout_seconds: if claims { 20.0 } else { 0.3 },
        ..load::Workload::new(contender.address(true))
    };
    let outcome =
        load::run(&workload, &AtomicBool::new(false)).map_err(|error| error.to_string())?;
    let speaks = outcome.requests == 2;
    expect(speaks == claims, || {
        format!("claims HTTP/3: {claims}, {:?}", outcome.first_failures)
    })
}

/// Returns true if a second request on the same connection is answered.
fn keeps_alive(contender: &Contender, path: &str) -> io::Result<bool> {
    let mut socket = TcpStream::connect(contender.address(false))?;
    socket.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut reader = BufReader::new(socket.try_clone()?);
    for number in 0..2 {
        let sent = write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let mut length = None;
        loop {
            let mut line = String::new();
            // A server without keep-alive has closed the connection.
            let read = reader.read_line(&mut line);
            if number == 1 && (sent.is_err() || matches!(read, Ok(0) | Err(_))) {
                return Ok(false);
            }
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse::<u64>().ok();
            }
            if line.is_empty() {
                break;
            }
        }
        let Some(length) = length else {
            return Ok(false);
        };
        io::copy(&mut reader.by_ref().take(length), &mut io::sink())?;
    }
    Ok(true)
}

fn get(
    contender: &Contender,
    path: &str,
    authority: Option<&str>,
) -> Result<probe::Answer, String> {
    let address = contender.address(authority.is_some());
    probe::get(address, path, authority).map_err(|error| format!("{path}: {error}"))
}

fn expect(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

/// A member of a balancer that answers every request with its name, until the end of the test process.
struct Member {
    name: &'static str,
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl Member {
    fn new(name: &'static str) -> Member {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("a local address");
        let accepted = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&accepted);
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                counter.fetch_add(1, Ordering::Relaxed);
                std::thread::spawn(move || answer_all(socket, name));
            }
        });
        Member {
            name,
            address,
            accepted,
        }
    }

    /// Returns the number of connections so far.
    fn connections(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

fn answer_all(socket: TcpStream, name: &str) -> Option<()> {
    let mut reader = BufReader::new(socket.try_clone().ok()?);
    loop {
        let mut line = String::new();
        while reader.read_line(&mut line).ok()? > 2 {
            line.clear();
        }
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length:";
        write!(&socket, "{head} {}\r\n\r\n{name}", name.len()).ok()?;
    }
}

#[test]
fn a_port_in_use_is_an_error_that_names_it() {
    let test_site = TestSite::new();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("a local address");
    let entry = scripted(test_site.folder.path(), "exit 0");
    let folder = test_site.work("port");
    let setup = Setup {
        http: address.port(),
        ..Setup::new(&test_site.site, &folder)
    };
    let error = Contender::start(&entry, &setup).expect_err("the port is in use");
    assert_eq!(
        error.to_string(),
        format!("scripted: port in use: {address}")
    );
}

#[test]
fn a_dead_contender_is_reported_with_the_last_line_of_its_log() {
    let test_site = TestSite::new();
    let folder = test_site.work("dies");
    let setup = Setup::new(&test_site.site, &folder);
    let entry = scripted(
        test_site.folder.path(),
        "echo begun; echo no such certificate >&2; exit 3",
    );
    let error = Contender::start(&entry, &setup)
        .expect_err("the contender ends at once")
        .to_string();
    let said = "scripted: sh ended (exit status: 3); its log ends with: no such certificate";
    assert_eq!(error, said);
    let entry = scripted(
        test_site.folder.path(),
        "echo 'error: no such key' >&2; echo '  --> a.toml:3:1' >&2; echo 'help: leave the key out' >&2; exit 2",
    );
    let folder = test_site.work("dies with advice");
    let error = Contender::start(&entry, &Setup::new(&test_site.site, &folder))
        .expect_err("the contender ends at once")
        .to_string();
    let said = "; its log ends with: error: no such key; help: leave the key out";
    assert!(error.ends_with(said), "{error}");
    let entry = scripted(test_site.folder.path(), "kill -KILL $$");
    let folder = test_site.work("dies silently");
    let error = Contender::start(&entry, &Setup::new(&test_site.site, &folder))
        .expect_err("the contender is killed");
    assert!(error.to_string().ends_with("; its log is empty"), "{error}");
}

#[test]
fn a_silent_contender_is_reported_and_killed() {
    let test_site = TestSite::new();
    let folder = test_site.work("silent");
    let entry = scripted(
        test_site.folder.path(),
        "echo waiting; sleep 1000 & echo $! >pid; wait",
    );
    // Long enough for the script to write its log line.
    let setup = Setup {
        ready_within: Duration::from_secs(3),
        ..Setup::new(&test_site.site, &folder)
    };
    let error = Contender::start(&entry, &setup)
        .expect_err("the contender never answers")
        .to_string();
    assert!(
        error.starts_with("scripted was not ready on 127.0.0.1:"),
        "{error}"
    );
    assert!(error.ends_with("; its log ends with: waiting"), "{error}");
    let pid = fs::read_to_string(folder.join("pid")).expect("its child's id");
    let status = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    assert!(
        status.is_empty() || status.contains(") Z "),
        "its child lives: {status}"
    );
}

#[test]
fn a_contender_with_unexpected_content_is_not_ready() {
    let test_site = TestSite::new();
    let member = Member::new("a lie");
    let ready = Ready {
        path: Site::HELLO,
        body: Some(test_site.site.hello().content().expect("a page")),
    };
    let answer = probe::get(member.address, ready.path, None).expect("an answer");
    let said = ready.judge(&answer).expect("something is wrong");
    assert_eq!(said, "unexpected content of 5 bytes for /hello.html");
    let anything = Ready {
        path: Site::HELLO,
        body: None,
    };
    assert_eq!(anything.judge(&answer), None);
}

#[test]
fn a_missing_program_or_ability_is_reported_before_the_start() {
    let test_site = TestSite::new();
    let folder = test_site.work("never");
    let mut entry = scripted(test_site.folder.path(), "exit 0");
    let setup = Setup {
        tls: true,
        ..Setup::new(&test_site.site, &folder)
    };
    let error = Contender::start(&entry, &setup).expect_err("a contender without TLS");
    assert_eq!(error.to_string(), "scripted does not support: HTTPS");
    entry.programs[0].names = vec!["no-such-program".into()];
    entry.install.debian = vec!["a-package".into()];
    let error =
        Contender::start(&entry, &Setup::new(&test_site.site, &folder)).expect_err("no program");
    let said =
        "scripted: no no-such-program found; Debian packages: a-package (make peers installs all)";
    assert_eq!(error.to_string(), said);
    assert!(!folder.exists());
}

#[test]
fn commands_are_formatted_with_shell_quoting() {
    let launch = Launch {
        program: "/bin/it".into(),
        arguments: vec!["-c".into(), "a b".into(), "it's".into(), String::new()],
        environment: BTreeMap::from([("N".into(), "1".into())]),
        ..Launch::default()
    };
    assert_eq!(command_line(&launch), r"N=1 /bin/it -c 'a b' 'it'\''s' ''");
}

/// Number of contenders tested at the same time. The tests wait most of the time.
const AT_ONCE: usize = 4;
