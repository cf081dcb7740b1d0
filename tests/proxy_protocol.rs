//! PROXY protocol: headers from trusted proxies on listeners, and headers sent to members.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use wire::ip_endpoint::IpEndpoint;
use wire::proxy_protocol::{ParsedProxyHeader, ProxyHeader, parse_proxy_header, push_v1, push_v2};

use crate::support::h2::H2;
use crate::support::member::{Member, ok};
use crate::support::programs::{Program, free_port};
use crate::support::wire::{Wire, wait_until};
use crate::support::{Folder, Server, server_table, site_table, tool};
use crate::trust::{ROUTES, folder};

const ASK: &str = "GET /run/env HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Returns a configuration with the PROXY protocol on both listeners.
fn config(more: &str) -> String {
    let listen = "{ listen = \"127.0.0.1:0\", proxy_protocol = true }";
    let server = server_table(&format!("trust = [\"127.0.0.1\", \"10.0.0.0/8\"]\n{more}"))
        .replace("\"127.0.0.1:0\"", listen);
    server + &site_table("http = \"serve\"") + ROUTES
}

fn start() -> Server {
    Server::start_in(folder(), &config(""))
}

fn endpoint(text: &str) -> IpEndpoint {
    text.parse::<SocketAddr>().expect("an address").into()
}

fn relayed(source: &str, destination: &str) -> ProxyHeader {
    ProxyHeader::Relayed {
        source: endpoint(source),
        destination: endpoint(destination),
    }
}

fn v1(header: &ProxyHeader) -> Vec<u8> {
    let mut out = Vec::new();
    push_v1(header, &mut out);
    out
}

fn v2(header: &ProxyHeader) -> Vec<u8> {
    let mut out = Vec::new();
    push_v2(header, &mut out);
    out
}

/// Headers, and the output of the script: address and port of the client, and address of the server.
fn headers() -> Vec<(Vec<u8>, &'static str)> {
    let v4 = relayed("192.0.2.7:4711", "198.51.100.1:443");
    let v6 = relayed("[2001:db8::7]:4711", "[2001:db8::1]:443");
    let chain = relayed("10.1.1.1:4711", "198.51.100.1:443");
    let line = |text: &str| text.as_bytes().to_vec();
    vec![
        (v1(&v4), "192.0.2.7 4711 off 198.51.100.1"),
        (v2(&v4), "192.0.2.7 4711 off 198.51.100.1"),
        (v1(&v6), "2001:db8::7 4711 off 2001:db8::1"),
        (v2(&v6), "2001:db8::7 4711 off 2001:db8::1"),
        (v2(&chain), "10.1.1.1 4711 off 198.51.100.1"),
        (v1(&ProxyHeader::Unknown), "127.0.0.1 PORT off 127.0.0.1"),
        (v2(&ProxyHeader::Unknown), "127.0.0.1 PORT off 127.0.0.1"),
        (
            line("PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n"),
            "127.0.0.1 PORT off 127.0.0.1",
        ),
    ]
}

#[test]
fn the_header_replaces_the_addresses_of_the_connection() {
    let server = start();
    for (header, expected) in headers() {
        let mut wire = Wire::plain(&server);
        let port = wire.socket.local_addr().expect("an address").port();
        wire.send([&header, ASK.as_bytes()].concat());
        let expected = expected.replace("PORT", &port.to_string());
        assert_eq!(wire.response("GET").text(), expected);

        // The header precedes TLS, too.
        let connect = || {
            let mut socket = TcpStream::connect(("127.0.0.1", server.https_port)).expect("a port");
            socket.write_all(&header).expect("room");
            socket
        };
        let client = |text: &str| text.split(' ').next().map(str::to_owned);
        let mut wire = Wire::tls_on(connect(), "localhost", &[]);
        let output = wire.get("/run/env", "").text();
        assert_eq!(client(&output), client(&expected), "{output}");
        assert!(output.contains(" on "), "{output}");
        // The protocol has no header for QUIC.
        assert_eq!(wire.get("/", "").field("alt-svc"), None);
        let wire = Wire::tls_on(connect(), "localhost", &[b"h2"]);
        let output = H2::on(wire).begin(b"").get("/run/env").text();
        assert_eq!(client(&output), client(&expected), "{output}");
    }
    server.output.wait_for("the client in the log", |line| {
        line.starts_with("192.0.2.7 ") && line.contains("HTTP/2.0")
    });
}

#[test]
fn headers_arrive_split_at_every_byte() {
    let server = start();
    for (header, expected) in headers().into_iter().take(4) {
        let bytes = [&header, ASK.as_bytes()].concat();
        let mut wires = Vec::new();
        for at in 1..=header.len() {
            let mut wire = Wire::plain(&server);
            wire.send(&bytes[..at]);
            wires.push((wire, at));
        }
        // By now the server has seen the first parts.
        wait_until(Duration::from_secs(20), "the first parts", || {
            let mut probe = Wire::plain(&server);
            probe.send(&bytes);
            (probe.response("GET").status == 200).then_some(())
        });
        for (mut wire, at) in wires {
            wire.send(&bytes[at..]);
            assert_eq!(wire.response("GET").text(), expected, "split at {at}");
        }
        let mut wire = Wire::plain(&server);
        wire.drip(&bytes[..header.len() + 1]);
        wire.send(&bytes[header.len() + 1..]);
        assert_eq!(wire.response("GET").text(), expected, "byte by byte");
    }
}

#[test]
fn connections_without_a_valid_header_are_closed() {
    let server = start();
    let valid = v2(&relayed("192.0.2.7:1", "192.0.2.1:2"));
    let mut local_family = valid.clone();
    local_family[13] = 0x41;
    let mut huge = valid.clone();
    huge[14] = 0xff;
    let table: Vec<(Vec<u8>, &str)> = vec![
        (ASK.into(), "R221"),
        (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
            "R221",
        ),
        (b"proxy TCP4 1.2.3.4 1.2.3.4 1 2\r\n".to_vec(), "R221"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n".to_vec(), "R220"),
        (b"PROXY TCP4 ::1 ::1 1 2\r\n".to_vec(), "R220"),
        (b"PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n".to_vec(), "R220"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n".to_vec(), "R220"),
        (format!("PROXY UNKNOWN {}", "x".repeat(100)).into(), "R220"),
        (local_family, "R220"),
        (huge, "R220"),
    ];
    let before = server.counter("rejects");
    for (bytes, _) in &table {
        let mut wire = Wire::plain(&server);
        wire.send(bytes);
        wire.send(ASK);
        assert!(
            wire.next_response("GET").is_none(),
            "{}",
            bytes.escape_ascii()
        );
    }
    let refused = server.counter("rejects") - before;
    assert_eq!(refused, table.len() as u64);
    // The log has a line for the first refusal, and not for each.
    let lines = server.errors.all();
    let complaints = lines
        .iter()
        .filter(|line| line.contains("(rule R22"))
        .count();
    assert_eq!(complaints, 1, "{lines:?}");
    for (bytes, rule) in &table {
        let server = start();
        Wire::plain(&server).send(bytes);
        server.errors.wait_for(rule, |line| {
            line.contains("connection of 127.0.0.1 closed") && line.contains(rule)
        });
    }
}

#[test]
fn headers_of_untrusted_peers_are_refused() {
    let server = start();
    let mut wire = Wire::of(&server, [127, 0, 0, 9].into());
    wire.send([&v2(&relayed("127.0.0.1:1", "127.0.0.1:2")), ASK.as_bytes()].concat());
    assert!(wire.next_response("GET").is_none());
    server.errors.wait_for("the rule", |line| {
        line.contains("connection of 127.0.0.9 closed") && line.contains("(rule R222)")
    });
    // A listener without the key takes the header for a malformed request.
    let plain = server_table("trust = [\"127.0.0.1\"]\n") + &site_table("http = \"serve\"");
    let server = Server::start(&plain);
    let mut wire = Wire::plain(&server);
    wire.send(v1(&relayed("192.0.2.7:1", "192.0.2.1:2")));
    assert_eq!(wire.response("GET").status, 400);
}

#[test]
fn a_missing_header_ends_with_the_deadline_of_heads() {
    let server = Server::start_in(folder(), &config("limits = { head_seconds = 1 }\n"));
    let late = server.counter("deadlines");
    let mut wires = [Wire::plain(&server), Wire::plain(&server)];
    wires[0].send("PROXY TCP4 192.0.2.7");
    wires[1].send("\r\n\r\n\0");
    for wire in &mut wires {
        assert!(wire.next_response("GET").is_none());
    }
    assert_eq!(server.counter("deadlines") - late, 2);
}

#[test]
fn connections_are_counted_by_the_address_in_the_header() {
    let server = Server::start_in(
        folder(),
        &config("limits = { connections_per_address = 2 }\n"),
    );
    let connect = |client: &str| {
        let mut wire = Wire::plain(&server);
        wire.send(v2(&relayed(client, "192.0.2.1:80")));
        wire.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let status = wire.next_response("GET").map(|response| response.status);
        (wire, status)
    };
    let first = connect("192.0.2.7:1");
    let second = connect("192.0.2.7:2");
    assert_eq!((first.1, second.1), (Some(200), Some(200)));
    assert_eq!(connect("192.0.2.7:3").1, None);
    assert_eq!(connect("192.0.2.8:1").1, Some(200));
    // Connections of proxies, by the header or without addresses, are not bounded.
    let proxies: Vec<_> = (0..4).map(|_| connect("10.0.0.1:1")).collect();
    assert!(proxies.iter().all(|(_, status)| *status == Some(200)));
}

#[test]
fn fields_of_a_relayed_untrusted_client_have_no_effect() {
    let server = start();
    let ask = |client: &str| {
        let mut wire = Wire::plain(&server);
        wire.send(v2(&relayed(client, "192.0.2.1:80")));
        wire.get("/run/env", "X-Forwarded-For: 203.0.113.5\r\n")
            .text()
    };
    assert!(ask("192.0.2.7:4711").starts_with("192.0.2.7 4711 "));
    // A trusted proxy in front of the proxy that sent the header.
    assert!(ask("10.1.1.1:4711").starts_with("203.0.113.5 - "));
}

#[test]
fn a_reload_changes_the_protocol_of_new_connections() {
    let server = start();
    let mut kept = Wire::plain(&server);
    kept.send(v1(&relayed("192.0.2.7:1", "192.0.2.1:2")));
    assert_eq!(kept.get("/", "").status, 200);
    let with = config("");
    let without = with.replace(
        "{ listen = \"127.0.0.1:0\", proxy_protocol = true }",
        "\"127.0.0.1:0\"",
    );
    server.reload(&without);
    assert_eq!(Wire::plain(&server).get("/", "").status, 200);
    assert_eq!(kept.get("/", "").status, 200, "the connection stays open");
    server.reload(&with);
    let mut plain = Wire::plain(&server);
    plain.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(plain.next_response("GET").is_none());
    assert_eq!(kept.get("/", "").status, 200, "the connection stays open");
}

// ---- Headers for members ----

/// Starts a member that expects a header: removes the header of each connection and passes the rest to
/// `member`. Returns the port, and the headers.
fn header_reader(member: &Member) -> (u16, std::sync::mpsc::Receiver<ProxyHeader>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (headers, received) = std::sync::mpsc::channel();
    let behind = member.port;
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut bytes = Vec::new();
            let (header, header_bytes) = loop {
                let mut byte = [0];
                client.read_exact(&mut byte).expect("a header");
                bytes.push(byte[0]);
                if let ParsedProxyHeader::Complete {
                    header,
                    header_bytes,
                } = parse_proxy_header(&bytes).expect("a valid header")
                {
                    break (header, header_bytes);
                }
            };
            assert_eq!(bytes.len(), header_bytes);
            headers.send(header).expect("a receiver");
            let mut server = TcpStream::connect(("127.0.0.1", behind)).expect("the member");
            let (mut up, mut down) = (
                client.try_clone().expect("a second descriptor"),
                server.try_clone().expect("a second descriptor"),
            );
            thread::spawn(move || std::io::copy(&mut up, &mut down));
            thread::spawn(move || std::io::copy(&mut server, &mut client));
        }
    });
    (port, received)
}

#[test]
fn members_get_a_header_on_a_connection_for_each_request() {
    for version in ["v1", "v2"] {
        let member = Member::start(|request| ok(&request.body));
        let (port, headers) = header_reader(&member);
        let route = format!(
            "[[site.route]]\npath = \"/\"\n\
             proxy = {{ url = \"http://127.0.0.1:{port}\", send_proxy_header = \"{version}\" }}\n"
        );
        let trust = server_table("trust = [\"127.0.0.1\"]\n");
        let server = Server::start(&(trust + &site_table("http = \"serve\"") + &route));
        let mut wire = Wire::plain(&server);
        let local = wire.socket.local_addr().expect("an address");
        let remote = wire.socket.peer_addr().expect("an address");
        let own = relayed(&local.to_string(), &remote.to_string());
        for _ in 0..2 {
            assert_eq!(wire.get("/", "").status, 200);
            assert_eq!(headers.recv().expect("a header"), own, "{version}");
        }
        wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(wire.response("POST").text(), "hello");
        assert_eq!(headers.recv().expect("a header"), own, "{version}");
        let fields = "Forwarded: for=\"192.0.2.7:4711\"\r\n";
        assert_eq!(wire.get("/", fields).status, 200);
        let expected = relayed("192.0.2.7:4711", &remote.to_string());
        assert_eq!(headers.recv().expect("a header"), expected, "{version}");
        assert_eq!(member.connections(), 4);
    }
}

#[test]
fn connections_to_members_begin_at_the_configured_address() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (peers, received) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for (mut stream, peer) in listener.incoming().flatten().map(|it| {
            let peer = it.peer_addr().expect("an address");
            (it, peer)
        }) {
            peers.send(peer.ip()).expect("a receiver");
            let mut bytes = [0; 4096];
            let _ = stream.read(&mut bytes);
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
        }
    });
    let table = [
        ("", Ipv4Addr::LOCALHOST),
        (", from = \"127.0.0.3\"", Ipv4Addr::new(127, 0, 0, 3)),
    ];
    for (from, expected) in table {
        let route = format!(
            "[[site.route]]\npath = \"/\"\nproxy = {{ url = \"http://127.0.0.1:{port}\"{from} }}\n"
        );
        let site = site_table("http = \"serve\"");
        let server = Server::start(&(server_table("") + &site + &route));
        assert_eq!(Wire::plain(&server).get("/", "").status, 204);
        assert_eq!(received.recv().expect("a connection"), IpAddr::V4(expected));
    }
    // An address of another machine.
    let route = format!(
        "[[site.route]]\npath = \"/\"\n\
         proxy = {{ url = \"http://127.0.0.1:{port}\", from = \"192.0.2.99\" }}\n"
    );
    let server = Server::start(&(server_table("") + &site_table("http = \"serve\"") + &route));
    assert_eq!(Wire::plain(&server).get("/", "").status, 503);
}

// ---- Real proxies in front ----

/// Sends a request from a loopback address to a port, and returns the content of the response.
fn ask_from(from: [u8; 4], port: u16, fields: &str) -> String {
    let url = format!("http://127.0.0.1:{port}/run/env");
    let from = Ipv4Addr::from(from).to_string();
    let mut arguments = vec!["-sS", "--interface", &from, &url];
    for field in fields.lines() {
        arguments.extend(["-H", field]);
    }
    let ran = crate::support::run("curl", &arguments, b"");
    assert!(ran.success, "{}", ran.errors());
    ran.text()
}

#[test]
fn haproxy_in_front() {
    let with_header = start();
    let plain =
        server_table("trust = [\"127.0.0.1\"]\n") + &site_table("http = \"serve\"") + ROUTES;
    let by_fields = Server::start_in(folder(), &plain);
    let [v1, v2, fields] = [free_port(), free_port(), free_port()];
    let folder = Folder::new();
    let section = |name: &str, mode: &str, port: u16, to: &str| {
        format!(
            "listen {name}\n    mode {mode}\n    bind 127.0.0.1:{port}\n    server a 127.0.0.1:{to}\n"
        )
    };
    let header = with_header.http_port;
    let config = format!(
        "defaults\n    timeout connect 5s\n    timeout client 20s\n    timeout server 20s\n{}{}{}    option forwardfor\n",
        section("v1", "tcp", v1, &format!("{header} send-proxy")),
        section("v2", "tcp", v2, &format!("{header} send-proxy-v2")),
        section("fields", "http", fields, &by_fields.http_port.to_string()),
    );
    folder.write("haproxy.cfg", &config);
    let mut command = Command::new(tool("haproxy"));
    command.arg("-db").arg("-f").arg(folder.path("haproxy.cfg"));
    // haproxy binds all ports before it listens on the last one.
    let _front = Program::start(command, fields, folder);
    for port in [v1, v2, fields] {
        let output = ask_from([127, 0, 0, 7], port, "X-Forwarded-For: 6.6.6.6");
        assert!(output.starts_with("127.0.0.7 "), "{output}");
    }
}

#[test]
fn nginx_in_front() {
    let plain =
        server_table("trust = [\"127.0.0.1\"]\n") + &site_table("http = \"serve\"") + ROUTES;
    let server = Server::start_in(folder(), &plain);
    let location = format!(
        "location / {{ proxy_pass http://127.0.0.1:{}; proxy_set_header Host $host;\n\
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
         proxy_set_header X-Forwarded-Proto https; }}",
        server.http_port
    );
    let front = Program::nginx(Folder::new(), &location);
    let output = ask_from([127, 0, 0, 7], front.port, "X-Forwarded-For: 6.6.6.6");
    assert!(output.starts_with("127.0.0.7 - on "), "{output}");
    // nginx passes Forwarded on as the client sent the field.
    let output = ask_from([127, 0, 0, 7], front.port, "Forwarded: for=6.6.6.6");
    assert!(output.contains("400"), "{output}");
}
