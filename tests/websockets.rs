//! WebSocket through the proxy, with Python's websockets as the member and as the client.

use crate::h3::PythonMember;
use crate::support::h2::H2;
use crate::support::python::{python, script};
use crate::support::wire::Over;
use crate::support::{Server, finish, server_table, site_table};

fn proxy(member: &PythonMember) -> Server {
    let port = member.port;
    let route = format!("[[site.route]]\npath = \"/\"\nproxy = \"http://127.0.0.1:{port}\"\n");
    let site = site_table("http = \"serve\"\n");
    Server::start(&format!("{}{site}{route}", server_table("")))
}

#[test]
fn messages_pass_over_http_1_with_and_without_tls() {
    let member = PythonMember::start("websocket_member.py", &[]);
    let server = proxy(&member);
    let urls = [
        format!("ws://127.0.0.1:{}/chat", server.http_port),
        format!("wss://127.0.0.1:{}/chat", server.https_port),
    ];
    for url in urls {
        let mut command = python();
        command.arg(script("websocket_client.py")).arg(&url);
        let done = finish(command, b"");
        assert_eq!(done.stdout, "ok\n", "{url}: {}", done.stderr);
    }
}

#[test]
fn messages_pass_over_extended_connect_of_http_2() {
    let member = PythonMember::start("websocket_member.py", &[]);
    let server = proxy(&member);
    let mut h2 = H2::open(&server, Over::Tls);
    let id = h2.ask_all(
        &[
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "https"),
            (":path", "/chat"),
            (":authority", "localhost"),
            ("sec-websocket-version", "13"),
        ],
        false,
    );
    // A text message "hello" with the mask 0.
    h2.data(id, b"\x81\x85\0\0\0\0hello", false);
    let echo = b"\x81\x05hello";
    while h2
        .partial_response(id)
        .is_none_or(|it| it.body.len() < echo.len())
    {
        let frame = h2.next().expect("a frame");
        h2.record_frame(&frame);
    }
    let response = h2.partial_response(id).expect("a response");
    assert_eq!((response.status, &response.body[..]), (200, &echo[..]));
    assert_eq!(response.field("sec-websocket-accept"), None);
}

#[test]
fn a_tunnel_outlives_reloads() {
    let member = PythonMember::start("websocket_member.py", &[]);
    let server = proxy(&member);
    let mut wire = crate::support::wire::Wire::plain(&server);
    wire.send(
        "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    let switched = wire.response("GET");
    assert_eq!(switched.status, 101);
    let accept = switched.field("sec-websocket-accept");
    assert_eq!(accept, Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    for _ in 0..3 {
        let text = std::fs::read_to_string(server.folder.path("anthill.toml")).expect("a file");
        server.reload(&text);
        wire.send(b"\x81\x85\0\0\0\0hello");
        assert_eq!(wire.take(7), b"\x81\x05hello");
    }
}
