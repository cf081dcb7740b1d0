//! A server behind a server: the member gets every request with the right client, also if the client forges lists.

use std::net::TcpListener;

use crate::support::member::{Member, Received, ok};
use crate::support::wire::Wire;
use crate::support::{Server, server_table, site_table};

/// Starts a server that trusts 127.0.0.1 and 127.0.0.2, with a route to `url`.
fn proxy(url: &str, listen: &str) -> Server {
    let route = format!("[[site.route]]\npath = \"/\"\nproxy = \"{url}\"\n");
    let table = server_table("trust = [\"127.0.0.1\", \"127.0.0.2\"]\n").replace(
        "http = [\"127.0.0.1:0\"]",
        &format!("http = [\"{listen}\"]"),
    );
    Server::start(&(table + &site_table("http = \"serve\"\n") + &route))
}

/// Returns the client by X-Forwarded-For and by Forwarded: the last address outside of `trust`, or the first.
fn clients(request: &Received) -> [String; 2] {
    let client = |addresses: Vec<String>| {
        let is_trusted = |it: &&String| ["127.0.0.1", "127.0.0.2"].contains(&it.as_str());
        let untrusted = addresses.iter().rev().find(|it| !is_trusted(it));
        untrusted.or(addresses.first()).expect("an address").clone()
    };
    let list = request.fields("x-forwarded-for").join(", ");
    let by_list = list.split(", ").map(str::to_owned).collect();
    let forwarded = request.fields("forwarded").join(", ");
    let nodes = forwarded.split(", ").map(|element| {
        let node = element
            .split(';')
            .find_map(|pair| pair.strip_prefix("for="));
        let node = node.expect("a node").trim_matches('"');
        match node.strip_prefix('[') {
            Some(node) => node.split(']').next().unwrap_or_default().to_owned(),
            None => node.split(':').next().unwrap_or_default().to_owned(),
        }
    });
    [client(by_list), client(nodes.collect())]
}

/// Fields of a request from the last part of 127.0.0.x, and the right client.
#[rustfmt::skip]
const REQUESTS: &[(u8, &str, &str)] = &[
    // A client that connects to the outer server. The claims of the client have no effect.
    (9, "", "127.0.0.9"),
    (9, "X-Forwarded-For: 6.6.6.6\r\n", "127.0.0.9"),
    (9, "X-Forwarded-For: 127.0.0.1\r\n", "127.0.0.9"),
    (9, "Forwarded: for=6.6.6.6;host=evil.test;proto=https\r\n", "127.0.0.9"),
    (9, "X-Forwarded-For: 6.6.6.6\r\nForwarded: for=7.7.7.7\r\n", "127.0.0.9"),
    (9, "X-Forwarded-For: <>\r\nForwarded: for=\"\r\n", "127.0.0.9"),
    (9, "X-Forwarded-For: 2001:db8::6\r\nForwarded: for=\"[2001:db8::7]\"\r\n", "127.0.0.9"),
    // A client of a trusted proxy in front, which writes one list or both.
    (2, "", "127.0.0.2"),
    (2, "X-Forwarded-For: 192.0.2.7\r\n", "192.0.2.7"),
    (2, "X-Forwarded-For: 6.6.6.6, 192.0.2.7\r\n", "192.0.2.7"),
    (2, "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 192.0.2.7\r\n", "192.0.2.7"),
    (2, "X-Forwarded-For: <>, 192.0.2.7\r\n", "192.0.2.7"),
    (2, "X-Forwarded-For: 192.0.2.7, 127.0.0.1\r\n", "192.0.2.7"),
    (2, "X-Forwarded-For: 2001:db8::7\r\n", "2001:db8::7"),
    (2, "Forwarded: for=192.0.2.7\r\n", "192.0.2.7"),
    (2, "Forwarded: for=6.6.6.6, for=192.0.2.7;host=shop.test;proto=https\r\n", "192.0.2.7"),
    (2, "Forwarded: for=\"[2001:db8::7]:4711\"\r\n", "2001:db8::7"),
    (2, "X-Forwarded-For: 192.0.2.7\r\nForwarded: for=192.0.2.7\r\n", "192.0.2.7"),
    (2, "X-Forwarded-For: 6.6.6.6, 192.0.2.7\r\nForwarded: for=7.7.7.7, for=192.0.2.7\r\n", "192.0.2.7"),
    (2, "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: shop.test\r\n", "192.0.2.7"),
];

#[test]
fn a_member_behind_two_servers_gets_the_right_client() {
    let member = Member::start(|_| ok("hello"));
    let inner = proxy(&member.url(), "127.0.0.1:0");
    let outer = proxy(
        &format!("http://127.0.0.1:{}", inner.http_port),
        "127.0.0.1:0",
    );
    for (nth, (from, fields, client)) in REQUESTS.iter().enumerate() {
        let mut wire = Wire::of(&outer, [127, 0, 0, *from].into());
        let response = wire.get(&format!("/{nth}"), fields);
        assert_eq!(response.status, 200, "{from} {fields}: {response:?}");
        let request = member.wait_for(nth + 1);
        assert_eq!(
            clients(&request),
            [*client; 2],
            "{from} {fields}: {}",
            request.head
        );
        for server in [&outer, &inner] {
            server.output.wait_for("the client in the log", |line| {
                line.starts_with(&format!("{client} ")) && line.contains(&format!("GET /{nth} "))
            });
        }
    }
}

#[test]
fn a_client_with_an_ipv6_address_reaches_the_member() {
    if TcpListener::bind("[::1]:0").is_err() {
        return;
    }
    let member = Member::start(|_| ok("hello"));
    let inner = proxy(&member.url(), "127.0.0.1:0");
    let outer = proxy(&format!("http://127.0.0.1:{}", inner.http_port), "[::1]:0");
    let url = format!("http://[::1]:{}/", outer.http_port);
    for (nth, forged) in [
        "X-Own: 1",
        "X-Forwarded-For: 6.6.6.6",
        "Forwarded: for=6.6.6.6",
    ]
    .iter()
    .enumerate()
    {
        let got = outer.curl(&["-g", "-H", forged, &url]);
        assert_eq!(got.text(), "hello", "{forged}");
        assert_eq!(clients(&member.wait_for(nth + 1)), ["::1"; 2], "{forged}");
    }
}
