//! Clients of the manager that ask for much and read nothing: the sites keep the memory of bodies, and logins keep
//! their places.

use anthill::manager::limits::MANAGER_STREAMS_MAX;

use crate::manager::{LOCAL, Manager, config, events, open};
use crate::support::Server;
use crate::support::h2::H2;
use crate::support::member::{Member, ok};
use crate::support::wire::Wire;

/// SETTINGS with flow-control windows of 0 bytes.
const NO_WINDOW: &[u8] = b"\0\x04\0\0\0\0";

/// Sends requests without a login on one connection that reads no content. Returns the connection, and the number of
/// responses with status 200.
fn flood(manager: &Manager, path: &str, count: usize) -> (H2, usize) {
    let mut client = H2::on(open(manager)).begin(NO_WINDOW);
    let host = manager.url.trim_start_matches("http://").to_owned();
    let request = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", path),
        (":authority", &*host),
    ];
    let ids: Vec<u32> = (0..count).map(|_| client.ask_all(&request, true)).collect();
    let mut has_begun = 0;
    for id in ids {
        while client.partial_response(id).is_none() {
            let frame = client.next().expect("a frame");
            client.record_frame(&frame);
        }
        let response = client.partial_response(id).expect("a response");
        has_begun += usize::from(response.status == 200);
    }
    (client, has_begun)
}

#[test]
fn clients_that_read_nothing_leave_the_memory_to_the_sites() {
    let member = Member::start(|_| ok("a"));
    let port = member.port;
    let many: Vec<String> = (1..=250)
        .map(|at| format!("http://127.7.7.{at}:{port}"))
        .collect();
    let own = member.url();
    let members: Vec<&str> = std::iter::once(&*own)
        .chain(many.iter().map(|url| &**url))
        .collect();
    let text = config(LOCAL, &members);
    let text = text.replace("h2c = true", "h2c = true\nmemory_max = \"16MiB\"");
    let server = Server::start(&text);
    let manager = Manager::of(&server);
    let large = manager.get("/?xml=1").body.len();
    assert!(large * 60 > 16 << 20 >> 1, "{large} bytes");
    let (_client, _) = flood(&manager, "/?xml=1", 60);
    let answer = Wire::plain(&server).get("/app/", "");
    assert_eq!(answer.status, 200, "{answer:?}");
    // A compressed page needs little.
    let cookie = manager.session(&server);
    let page = manager.curl("/", &["-b", &cookie, "--compressed"]);
    assert_eq!(page.status, 200, "{page:?}");
}

#[test]
fn clients_without_a_login_leave_streams_to_logins() {
    let server = Server::start(&config(LOCAL, &[]));
    let manager = Manager::of(&server);
    let (_client, open) = flood(&manager, "/events", MANAGER_STREAMS_MAX);
    assert!(open < MANAGER_STREAMS_MAX, "{open} streams");
    let cookie = manager.session(&server);
    let mut stream = events(&manager, &["-b", &cookie]);
    stream.kill().expect("the end of curl");
    stream.wait().expect("the end of curl");
}
