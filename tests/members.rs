//! Real HTTP servers behind the proxy, and the loss of one of several members under load.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::member::{Member, ok};
use crate::support::programs::{Program, free_port};
use crate::support::wire::Wire;
use crate::support::{Folder, Server, server_table, site_table};

/// Length of `/page.html`.
pub const PAGE_BYTES: usize = 5_100;

/// Returns a folder with the pages of the members.
pub fn pages() -> Folder {
    Folder::new()
        .with("public/page.html", vec![b'p'; PAGE_BYTES])
        .with("public/big.bin", vec![b'b'; 3_000_000])
}

fn proxy_to(url: &str) -> Server {
    let route = format!("[[site.route]]\npath = \"/\"\nproxy = \"{url}\"\n");
    let site = site_table("http = \"serve\"\n");
    Server::start(&format!("{}{site}{route}", server_table("")))
}

/// Asks a server of the files in `pages` for whole pages, parts and unchanged pages.
fn ask_for_pages(member: &Program) {
    let server = proxy_to(&member.url());
    let mut wire = Wire::plain(&server);
    for _ in 0..2 {
        let page = wire.get("/page.html", "");
        assert!(
            page.status == 200 && page.body.len() == PAGE_BYTES,
            "{page:?}"
        );
    }
    let big = wire.get("/big.bin", "");
    assert!(
        big.status == 200 && big.whole && big.body.len() == 3_000_000,
        "{big:?}"
    );
    let part = wire.get("/big.bin", "Range: bytes=1000-1999\r\n");
    assert_eq!((part.status, part.body.len()), (206, 1_000));
    assert_eq!(part.field("content-range"), Some("bytes 1000-1999/3000000"));
    let head = wire.ask("HEAD", "/page.html", "");
    assert_eq!(head.field("content-length"), Some("5100"));
    let tag = head.field("etag").expect("an ETag").to_owned();
    let same = wire.get("/page.html", &format!("If-None-Match: {tag}\r\n"));
    assert_eq!(same.status, 304);
    assert_eq!(wire.get("/nothing", "").status, 404);
    for version in ["--http1.1", "--http2"] {
        let ran = server.curl(&[
            version,
            "-w",
            "%{http_code} %{size_download}",
            "-o",
            "/dev/null",
            &server.https("/big.bin"),
        ]);
        assert_eq!(ran.text(), "200 3000000", "{version}");
    }
}

#[test]
fn nginx_behind_the_proxy() {
    ask_for_pages(&Program::nginx(pages(), ""));
}

#[test]
fn apache_behind_the_proxy() {
    ask_for_pages(&Program::apache(pages()));
}

#[test]
fn caddy_behind_the_proxy() {
    ask_for_pages(&Program::caddy(pages()));
}

#[test]
fn haproxy_behind_the_proxy() {
    let nginx = Program::nginx(pages(), "");
    ask_for_pages(&Program::haproxy(Folder::new(), nginx.port));
}

#[test]
fn uwsgi_behind_the_proxy_sees_the_client_and_reads_bodies() {
    let program = "def application(environ, start):\n\
                   \x20   body = environ['wsgi.input'].read(int(environ.get('CONTENT_LENGTH') or 0))\n\
                   \x20   start('200 OK', [('Content-Type', 'text/plain')])\n\
                   \x20   names = ['REQUEST_METHOD', 'PATH_INFO', 'QUERY_STRING', 'HTTP_HOST', 'HTTP_X_FORWARDED_FOR', 'HTTP_X_FORWARDED_PROTO']\n\
                   \x20   text = ' '.join(environ.get(name, '-') for name in names)\n\
                   \x20   return [text.encode(), b' ', str(len(body)).encode()]\n";
    let member = Program::uwsgi(Folder::new(), program);
    let server = proxy_to(&member.url());
    let mut wire = Wire::plain(&server);
    let body = "x".repeat(100_000);
    wire.send(format!(
        "POST /a/b?c=d HTTP/1.1\r\nHost: www.example.org\r\nContent-Length: {}\r\n\r\n",
        body.len()
    ));
    wire.send(body);
    let response = wire.response("POST");
    assert_eq!(
        response.text(),
        "POST /a/b c=d www.example.org 127.0.0.1 http 100000"
    );
}

/// Clients on kept connections that ask for the page until the end, and count what they get.
pub struct Load {
    ends: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Load {
    /// Starts the clients.
    pub fn start(server: &Server, clients: u8, method: &'static str) -> Load {
        let (ends, answered, failed) =
            <(Arc<AtomicBool>, Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let port = server.http_port;
        let threads = (0..clients).map(|nth| {
            let (ends, answered, failed) = (ends.clone(), answered.clone(), failed.clone());
            thread::spawn(move || {
                let from = Ipv4Addr::new(127, 0, 0, 10 + nth);
                let mut stream = connect(from, port);
                while !ends.load(Ordering::Relaxed) {
                    if page(&mut stream, method) {
                        answered.fetch_add(1, Ordering::Relaxed)
                    } else {
                        stream = connect(from, port);
                        failed.fetch_add(1, Ordering::Relaxed)
                    };
                }
            })
        });
        Load {
            threads: threads.collect(),
            ends,
            answered,
            failed,
        }
    }

    /// Waits until `count` more pages were answered.
    pub fn wait_for(&self, count: usize) {
        let until = self.answered.load(Ordering::Relaxed) + count;
        crate::support::eventually("enough answers", || {
            (self.answered.load(Ordering::Relaxed) >= until).then_some(())
        });
    }

    /// Ends the clients and returns the number of failed requests.
    pub fn end(self) -> usize {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a client");
        }
        assert!(self.answered.load(Ordering::Relaxed) > 0);
        self.failed.load(Ordering::Relaxed)
    }
}

fn connect(from: Ipv4Addr, port: u16) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let socket = socket.expect("a socket");
    socket
        .bind(&std::net::SocketAddr::from((from, 0)).into())
        .expect("an address");
    let to = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    socket.connect(&to.into()).expect("a connection");
    let stream = TcpStream::from(socket);
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a time-out");
    stream
}

/// Asks for the page; returns true for the whole page with status 200.
fn page(stream: &mut TcpStream, method: &str) -> bool {
    let request = format!("{method} /page.html HTTP/1.1\r\nHost: a\r\n\r\n");
    if stream.write_all(request.as_bytes()).is_err() {
        return false;
    }
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        let end = bytes.windows(4).position(|it| it == b"\r\n\r\n");
        if let Some(end) = end
            && bytes.len() >= end + 4 + PAGE_BYTES
        {
            return bytes.starts_with(b"HTTP/1.1 200 ") && bytes.len() == end + 4 + PAGE_BYTES;
        }
        if end.is_some() && !bytes.starts_with(b"HTTP/1.1 200 ") {
            return false;
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return false,
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}

/// Starts a server with a balancer of the members.
fn balancer(members: &[Program], keys: &str) -> Server {
    Server::start(&balancer_config(members, keys))
}

fn balancer_config(members: &[Program], keys: &str) -> String {
    let urls: Vec<String> = members
        .iter()
        .map(|it| format!("\"{}\"", it.url()))
        .collect();
    let site = site_table("http = \"serve\"\n");
    format!(
        "{}{site}[[site.route]]\npath = \"/\"\nbalance = \"pool\"\n\n[[balancer]]\nname = \"pool\"\n\
         members = [{}]\n{keys}\n",
        server_table(""),
        urls.join(", ")
    )
}

/// A read that takes exactly the bytes it asked for leaves open whether further bytes wait.
#[test]
fn long_pages_leave_their_connection_to_the_next_request() {
    let member = Member::start(|received| {
        if received.line().contains("/long") {
            ok(vec![b'l'; 512 * 1024])
        } else {
            ok("short")
        }
    });
    let server = proxy_to(&member.url());
    let mut wire = Wire::plain(&server);
    for _ in 0..20 {
        let page = wire.get("/long", "");
        assert!(
            page.whole && page.body.len() == 512 * 1024,
            "{}",
            page.status
        );
        assert_eq!(wire.get("/short", "").body, b"short");
    }
    assert_eq!(member.connections(), 1);
}

#[test]
fn no_get_fails_when_one_of_four_members_is_killed() {
    let mut members: Vec<Program> = (0..4).map(|_| Program::nginx(pages(), "")).collect();
    let server = balancer(&members, "");
    let load = Load::start(&server, 8, "GET");
    load.wait_for(500);
    members[1].kill();
    load.wait_for(3_000);
    assert_eq!(load.end(), 0);
}

#[test]
fn a_restarted_member_gets_requests_again() {
    let port = free_port();
    let first = Program::nginx_on(port, pages(), "");
    let members = [
        first,
        Program::nginx(pages(), "add_header X-Member second;"),
    ];
    let server = balancer(&members, "eject = { pause = \"200ms\" }");
    let [first, _second] = members;
    let folder = first.into_folder();
    let mut wire = Wire::plain(&server);
    for _ in 0..10 {
        assert_eq!(wire.get("/page.html", "").field("x-member"), Some("second"));
    }
    let _first = Program::nginx_on(port, folder, "add_header X-Member first;");
    crate::support::eventually("an answer of the restarted member", || {
        let response = wire.get("/page.html", "");
        assert_eq!(response.status, 200);
        (response.field("x-member") == Some("first")).then_some(())
    });
}

#[test]
fn no_request_fails_during_reloads_under_load() {
    let members: Vec<Program> = (0..2).map(|_| Program::nginx(pages(), "")).collect();
    let server = balancer(&members, "");
    let load = Load::start(&server, 8, "GET");
    for nth in 0..20 {
        load.wait_for(50);
        // Every second reload changes the list of members.
        let count = 1 + nth % 2;
        server.reload(&balancer_config(&members[..count], ""));
    }
    load.wait_for(500);
    assert_eq!(load.end(), 0);
}

#[test]
fn requests_are_shared_by_weight() {
    let members = [
        Program::nginx(pages(), "add_header X-Member a;"),
        Program::nginx(pages(), "add_header X-Member b;"),
    ];
    let urls: Vec<String> = members.iter().map(Program::url).collect();
    let site = site_table("http = \"serve\"\n");
    let server = Server::start(&format!(
        "{}{site}[[site.route]]\npath = \"/\"\nbalance = \"pool\"\n\n[[balancer]]\nname = \"pool\"\n\
         members = [{{ url = \"{}\", weight = 3 }}, \"{}\"]\n",
        server_table(""),
        urls[0],
        urls[1]
    ));
    let mut wire = Wire::plain(&server);
    let answers: String = (0..8)
        .map(|_| {
            let response = wire.get("/page.html", "");
            response.field("x-member").expect("a member").to_owned()
        })
        .collect();
    assert_eq!(answers, "aabaaaba");
}

#[test]
fn no_get_fails_when_one_of_four_members_is_stopped() {
    let members: Vec<Program> = (0..4).map(|_| Program::nginx(pages(), "")).collect();
    let keys = "health = { path = \"/page.html\", every = \"500ms\", timeout = \"500ms\", fall = 2, rise = 1 }";
    let server = balancer(&members, keys);
    let load = Load::start(&server, 8, "GET");
    load.wait_for(500);
    members[2].signal("STOP");
    let port = members[2].port;
    server.errors.wait_for("the failed check", |line| {
        line.contains(&format!(":{port} changed from up to check failed"))
    });
    load.wait_for(1_000);
    members[2].signal("CONT");
    server.errors.wait_for("the passed check", |line| {
        line.contains(&format!(":{port} changed from check failed to up"))
    });
    load.wait_for(500);
    assert_eq!(load.end(), 0);
}
