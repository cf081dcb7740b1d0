//! Clients behind trusted proxies (`trust`): the address that counts for guards, logs, limits, scripts and
//! stickiness, by the fields of proxies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;

use data_plane::limits;

use crate::access::authorization;
#[cfg(feature = "http3")]
use crate::h3;
use crate::support::h2::H2;
use crate::support::member::{Member, ok};
use crate::support::wire::{BOTH, Over, Wire};
use crate::support::{Folder, Server, server_table, site_table};

/// Folder with a script that prints the client's address and port, and HTTPS.
pub fn folder() -> Folder {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    folder.write(
        "scripts/env",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n%s %s %s %s' \
         \"$REMOTE_ADDR\" \"${REMOTE_PORT:--}\" \"${HTTPS:-off}\" \"$SERVER_ADDR\"\n",
    );
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path("scripts/env"), mode).expect("a mode");
    folder
}

/// Routes to the script and to pages for the client 192.0.2.7 alone.
pub const ROUTES: &str = "[[site.route]]\npath = \"/run\"\ncgi = \"scripts\"\n\
    [[site.route]]\npath = \"/own\"\nallow = [\"192.0.2.7\"]\n";

/// Returns a configuration that trusts 127.0.0.1, 127.0.0.2 and 10.0.0.0/8.
fn config(server: &str, site: &str) -> String {
    let trust = "trust = [\"127.0.0.1\", \"127.0.0.2\", \"10.0.0.0/8\"]\n";
    server_table(&format!("{trust}{server}")) + &site_table("http = \"serve\"") + site
}

fn start() -> Server {
    Server::start_in(folder(), &config("", ROUTES))
}

type FieldList = &'static [(&'static str, &'static str)];

/// Fields of a request, and the client's address and HTTPS as seen by scripts.
#[rustfmt::skip]
const CLIENTS: &[(FieldList, &str, Option<bool>)] = &[
    (&[], "127.0.0.1", None),
    (&[("x-forwarded-for", "192.0.2.7")], "192.0.2.7", None),
    (&[("x-forwarded-for", "6.6.6.6, 192.0.2.7")], "192.0.2.7", None),
    (&[("x-forwarded-for", "6.6.6.6, 192.0.2.7, 10.1.1.1, 127.0.0.2")], "192.0.2.7", None),
    (&[("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "192.0.2.7, 10.1.1.1")], "192.0.2.7", None),
    (&[("x-forwarded-for", "192.0.2.7"), ("x-forwarded-proto", "https")], "192.0.2.7", Some(true)),
    (&[("x-forwarded-for", "192.0.2.7"), ("x-forwarded-proto", "http")], "192.0.2.7", Some(false)),
    (&[("x-forwarded-for", "2001:db8::7")], "2001:db8::7", None),
    (&[("x-forwarded-for", "::ffff:192.0.2.7")], "192.0.2.7", None),
    (&[("x-forwarded-for", "192.0.2.7, <nonsense>")], "127.0.0.1", None),
    (&[("x-forwarded-for", "192.0.2.7, unknown, 10.1.1.1")], "10.1.1.1", None),
    (&[("x-forwarded-for", "10.1.1.1")], "10.1.1.1", None),
    (&[("forwarded", "for=6.6.6.6, for=\"192.0.2.7:4711\";proto=https")], "192.0.2.7", Some(true)),
    (&[("forwarded", "for=6.6.6.6;x=\", for=192.0.2.7")], "192.0.2.7", None),
    (&[("forwarded", "for=\"[2001:db8::7]\", for=10.1.1.1")], "2001:db8::7", None),
    (&[("forwarded", "for=192.0.2.7"), ("x-forwarded-for", "192.0.2.7")], "192.0.2.7", None),
    (&[("forwarded", "for=192.0.2.7"), ("x-forwarded-proto", "https")], "192.0.2.7", Some(true)),
    (&[("x-forwarded-for", "192.0.2.7"), ("x-forwarded-proto", "wss")], "192.0.2.7", Some(true)),
    (&[("x-forwarded-for", "192.0.2.7"), ("x-forwarded-proto", "javascript")], "192.0.2.7", None),
    (&[("x-forwarded-proto", "https")], "127.0.0.1", Some(true)),
    (&[("x-forwarded-proto", "http")], "127.0.0.1", Some(false)),
    (&[("x-real-ip", "6.6.6.6")], "127.0.0.1", None),
];

fn lines(fields: &[(&str, &str)]) -> String {
    let line = |(name, value): &(&str, &str)| format!("{name}: {value}\r\n");
    fields.iter().map(line).collect()
}

/// Returns the first and the third word of the script's output.
fn client(output: &str) -> (&str, bool) {
    let mut words = output.split(' ');
    let address = words.next().expect("an address");
    (address, words.nth(1) == Some("on"))
}

#[test]
fn scripts_see_the_client_behind_trusted_proxies() {
    let server = start();
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        let is_tls = matches!(over, Over::Tls);
        for (fields, address, stated) in CLIENTS {
            let output = wire.get("/run/env", &lines(fields)).text();
            let expected = (*address, stated.unwrap_or(is_tls));
            assert_eq!(client(&output), expected, "{fields:?}: {output}");
        }
    }
    let mut h2 = H2::open(&server, Over::Tls);
    for (fields, address, stated) in CLIENTS {
        let id = h2.ask("GET", "/run/env", fields, true);
        let output = h2.response(id).text();
        let expected = (*address, stated.unwrap_or(true));
        assert_eq!(client(&output), expected, "{fields:?}: {output}");
    }
    // The port is known if the proxy states the port.
    let fields = "Forwarded: for=\"192.0.2.7:4711\"\r\n";
    let output = Wire::plain(&server).get("/run/env", fields).text();
    assert!(output.starts_with("192.0.2.7 4711 off "), "{output}");
    let fields = "X-Forwarded-For: 192.0.2.7\r\n";
    let output = Wire::plain(&server).get("/run/env", fields).text();
    assert!(output.starts_with("192.0.2.7 - off "), "{output}");
}

#[cfg(feature = "http3")]
#[test]
fn the_client_is_found_over_http_3() {
    let server = start();
    let fields = "x-forwarded-for=6.6.6.6, 192.0.2.7";
    let output = h3::run_scenario(&server, &["fetch", "/run/env", fields]);
    assert!(output.contains("192.0.2.7 - on"), "{output}");
    server.output.wait_for("the client in the log", |line| {
        line.starts_with("192.0.2.7 ") && line.contains("HTTP/3")
    });
}

#[test]
fn fields_of_untrusted_peers_have_no_effect() {
    let server = start();
    let untrusted = [127, 0, 0, 9];
    for (fields, ..) in CLIENTS {
        let mut wire = Wire::of(&server, untrusted.into());
        let output = wire.get("/run/env", &lines(fields)).text();
        assert_eq!(client(&output), ("127.0.0.9", false), "{fields:?}");
        let mut h2 = H2::open_from(&server, untrusted.into());
        let id = h2.ask("GET", "/run/env", fields, true);
        let output = h2.response(id).text();
        assert_eq!(client(&output), ("127.0.0.9", true), "{fields:?}");
    }
    // Without `trust` no peer is trusted.
    let plain = server_table("") + &site_table("http = \"serve\"") + ROUTES;
    let server = Server::start_in(folder(), &plain);
    for (fields, ..) in CLIENTS {
        let output = Wire::plain(&server).get("/run/env", &lines(fields)).text();
        assert_eq!(client(&output), ("127.0.0.1", false), "{fields:?}");
    }
}

#[test]
fn lists_that_name_two_clients_are_refused() {
    let server = start();
    let fields = [
        ("forwarded", "for=192.0.2.7"),
        ("x-forwarded-for", "6.6.6.6"),
    ];
    let mut wire = Wire::plain(&server);
    assert_eq!(wire.get("/", &lines(&fields)).status, 400);
    assert_eq!(wire.get("/", "").status, 200, "the connection stays open");
    let mut h2 = H2::open(&server, Over::Tls);
    let id = h2.ask("GET", "/", &fields, true);
    assert_eq!(h2.response(id).status, 400);
    for version in ["HTTP/1.1", "HTTP/2.0"] {
        server.output.wait_for("the rule", |line| {
            line.starts_with("127.0.0.1 ") && line.contains(version) && line.contains("rule=R218")
        });
    }
    // The fields of an untrusted peer have no effect.
    let mut wire = Wire::of(&server, [127, 0, 0, 9].into());
    assert_eq!(wire.get("/", &lines(&fields)).status, 200);
}

#[test]
fn guards_and_logs_see_the_client() {
    let server = start();
    let folder = &server.folder;
    folder.write("public/own/index.html", "own");
    let table = [
        ("192.0.2.7", 200),
        ("192.0.2.8", 403),
        ("192.0.2.7, 10.0.0.1", 200),
        ("192.0.2.8, 192.0.2.7", 200),
        ("192.0.2.7, 192.0.2.8", 403),
        ("10.0.0.1", 403),
    ];
    let mut h2 = H2::open(&server, Over::Tls);
    for (list, status) in table {
        let path = format!("/own/?{}", list.replace([',', ' '], "_"));
        let mut wire = Wire::plain(&server);
        let fields = format!("X-Forwarded-For: {list}\r\n");
        assert_eq!(wire.get(&path, &fields).status, status, "{list}");
        let id = h2.ask("GET", &path, &[("x-forwarded-for", list)], true);
        assert_eq!(h2.response(id).status, status, "{list} over HTTP/2");
        let address = match list
            .rsplit(", ")
            .find(|it| !it.starts_with("10.") || *it == list)
        {
            Some(address) => address,
            None => list,
        };
        for version in ["HTTP/1.1", "HTTP/2.0"] {
            server.output.wait_for("the client in the log", |line| {
                line.starts_with(&format!("{address} "))
                    && line.contains(&format!("{path} {version}"))
            });
        }
    }
    let spoofed =
        Wire::of(&server, [127, 0, 0, 9].into()).get("/own/", "X-Forwarded-For: 192.0.2.7\r\n");
    assert_eq!(spoofed.status, 403);
}

#[test]
fn a_site_behind_a_front_with_tls_does_not_redirect_for_ever() {
    let site = site_table("http = \"redirect\"").replace("\"*\"", "\"a.test\", \"b.test\"");
    let trust = server_table("trust = [\"127.0.0.1\"]\n");
    let server = Server::start(&(trust + &site));
    let ask = |host: &str, fields: &str| {
        let mut wire = Wire::plain(&server);
        wire.send(format!("GET /x HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"));
        let response = wire.response("GET");
        let location = response.field("location").unwrap_or_default().to_owned();
        (response.status, location)
    };
    let port = server.https_port;
    let with =
        |proto: &str| format!("X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: {proto}\r\n");
    assert_eq!(ask("a.test", &with("https")), (404, String::new()));
    let to_https = format!("https://a.test:{port}/x");
    assert_eq!(ask("a.test", &with("http")), (308, to_https.clone()));
    assert_eq!(ask("a.test", ""), (308, to_https));
    // The redirect to the canonical name keeps the port of the front.
    let canonical = |port: &str| (308, format!("https://a.test{port}/x"));
    assert_eq!(ask("b.test", &with("https")), canonical(""));
    assert_eq!(ask("b.test:443", &with("https")), canonical(""));
    assert_eq!(ask("b.test:8443", &with("https")), canonical(":8443"));
}

#[test]
fn limits_count_the_client_and_not_the_proxy() {
    let folder = folder().with("users", "ant:$1$abcdefgh$irWbblnpmw.5z7wgBnprh0\n");
    let routes = "[[site.route]]\npath = \"/login\"\nusers = \"users\"\n";
    let limits = "limits = { connections_per_address = 2 }\n";
    let server = Server::start_in(folder, &config(limits, routes));
    // A proxy may open any number of connections.
    let mut wires: Vec<Wire> = (0..5).map(|_| Wire::plain(&server)).collect();
    for wire in &mut wires {
        assert_eq!(wire.get("/", "").status, 200);
    }
    let direct = || Wire::of(&server, [127, 0, 0, 9].into());
    let mut own = [direct(), direct()];
    for wire in &mut own {
        assert_eq!(wire.get("/", "").status, 200);
    }
    let mut third = direct();
    third.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(third.next_response("GET").is_none());

    // Wrong logins of one client leave the other clients of the proxy alone.
    let mut guesses = 0;
    let mut log_in = |address: &str| {
        guesses += 1;
        let login = authorization(&guesses.to_string());
        let fields = format!("X-Forwarded-For: {address}\r\n{login}");
        wires[0].get("/login/", &fields).status
    };
    let tries = 2 * limits::LOGIN_FAILURES_MAX;
    let answers: Vec<u16> = (0..tries).map(|_| log_in("192.0.2.7")).collect();
    assert!(
        answers.starts_with(&[401]) && answers.contains(&429),
        "{answers:?}"
    );
    assert_eq!(log_in("192.0.2.8"), 401);
}

#[test]
fn members_get_the_list_of_the_proxy_with_the_proxy_at_its_end() {
    let member = Member::start(|_| ok("hello"));
    let route = format!(
        "[[site.route]]\npath = \"/\"\nproxy = \"{}\"\n",
        member.url()
    );
    let server = Server::start(&config("", &route));
    let fields = "X-Forwarded-For: 6.6.6.6, 192.0.2.7, 10.1.1.1\r\nX-Forwarded-Proto: https\r\n\
         X-Forwarded-Host: shop.test\r\nForwarded: for=192.0.2.7;host=shop.test;proto=https\r\n";
    assert_eq!(Wire::plain(&server).get("/", fields).status, 200);
    let request = member.wait_for(1);
    let expected = [
        ("x-forwarded-for", "6.6.6.6, 192.0.2.7, 10.1.1.1, 127.0.0.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "shop.test"),
        (
            "forwarded",
            "for=6.6.6.6;host=shop.test;proto=https, for=192.0.2.7;host=shop.test;proto=https, \
             for=10.1.1.1;host=shop.test;proto=https, for=127.0.0.1;host=localhost;proto=https",
        ),
    ];
    for (name, value) in expected {
        assert_eq!(request.fields(name), [value], "{name} in {}", request.head);
    }
    // The fields of an untrusted peer are replaced.
    let mut wire = Wire::of(&server, [127, 0, 0, 9].into());
    assert_eq!(wire.get("/", fields).status, 200);
    let request = member.wait_for(2);
    assert_eq!(request.fields("x-forwarded-for"), ["127.0.0.9"]);
    assert_eq!(request.fields("x-forwarded-host"), ["localhost"]);
    assert_eq!(
        request.fields("forwarded"),
        ["for=127.0.0.9;host=localhost;proto=http"]
    );
}

/// Fields of a trusted proxy, and the fields of the member's request.
#[rustfmt::skip]
const LISTS: &[(FieldList, FieldList)] = &[
    (
        &[("x-forwarded-for", "198.51.100.7, 127.0.0.2"), ("x-forwarded-proto", "https")],
        &[
            ("x-forwarded-for", "198.51.100.7, 127.0.0.2, 127.0.0.1"),
            ("forwarded", "for=198.51.100.7;proto=https, for=127.0.0.2;proto=https, for=127.0.0.1;host=localhost;proto=https"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "localhost"),
        ],
    ),
    (
        &[("x-forwarded-for", "198.51.100.7"), ("x-forwarded-proto", "javascript")],
        &[
            ("x-forwarded-for", "198.51.100.7, 127.0.0.1"),
            ("forwarded", "for=198.51.100.7, for=127.0.0.1;host=localhost;proto=http"),
            ("x-forwarded-proto", "http"),
        ],
    ),
    (
        &[("forwarded", "for=\"[2001:db8::7]:4711\";proto=https;host=a.test, for=127.0.0.2")],
        &[
            ("x-forwarded-for", "2001:db8::7, 127.0.0.2, 127.0.0.1"),
            ("forwarded", "for=\"[2001:db8::7]:4711\";proto=https;host=a.test, for=127.0.0.2, for=127.0.0.1;host=localhost;proto=https"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "a.test"),
        ],
    ),
    (
        &[("x-forwarded-proto", "https"), ("x-forwarded-host", "a.test:81")],
        &[
            ("x-forwarded-for", "127.0.0.1"),
            ("forwarded", "for=127.0.0.1;host=\"a.test:81\";proto=https"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "a.test:81"),
        ],
    ),
    (
        &[("x-real-ip", "198.51.100.7")],
        &[("x-real-ip", "198.51.100.7"), ("x-forwarded-for", "127.0.0.1")],
    ),
];

#[test]
fn members_get_both_lists_from_one_reading() {
    let member = Member::start(|_| ok("hello"));
    let route = format!(
        "[[site.route]]\npath = \"/\"\nproxy = \"{}\"\n",
        member.url()
    );
    let server = Server::start(&config("", &route));
    let next = Server::start_in(folder(), &config("", ROUTES));
    for (nth, (fields, expected)) in LISTS.iter().enumerate() {
        assert_eq!(Wire::plain(&server).get("/", &lines(fields)).status, 200);
        let request = member.wait_for(nth + 1);
        for (name, value) in *expected {
            assert_eq!(request.fields(name), [*value], "{name} in {}", request.head);
        }
        // The next server of this kind reads one client.
        let passed = ["x-forwarded-for", "x-forwarded-proto", "forwarded"];
        let passed: Vec<_> = passed.map(|name| (name, request.fields(name)[0])).into();
        let here = Wire::plain(&next).get("/run/env", &lines(fields)).text();
        let there = Wire::plain(&next).get("/run/env", &lines(&passed)).text();
        assert_eq!(client(&here), client(&there), "{fields:?}");
    }
    // An untrusted client sets none of the fields.
    let forged = lines(&[("x-real-ip", "6.6.6.6"), ("x-forwarded-proto", "https")]);
    let mut wire = Wire::of(&server, [127, 0, 0, 9].into());
    assert_eq!(wire.get("/", &forged).status, 200);
    let request = member.wait_for(LISTS.len() + 1);
    assert!(request.fields("x-real-ip").is_empty(), "{}", request.head);
    assert_eq!(request.fields("x-forwarded-proto"), ["http"]);
}

#[test]
fn stickiness_by_address_follows_the_client() {
    let members: Vec<Member> = (0..4)
        .map(|nth: u8| Member::start(move |_| ok(nth.to_string())))
        .collect();
    let urls: Vec<String> = members
        .iter()
        .map(|member| format!("\"{}\"", member.url()))
        .collect();
    let balancer = format!(
        "[[balancer]]\nname = \"app\"\nmethod = \"ip-hash\"\nmembers = [{}]\n",
        urls.join(", ")
    );
    let route = "[[site.route]]\npath = \"/\"\nbalance = \"app\"\n";
    let server = Server::start(&(config("", route) + &balancer));
    let mut by_client = BTreeMap::new();
    for _ in 0..2 {
        for last in 0..40 {
            let fields = format!("X-Forwarded-For: 192.0.2.{last}\r\n");
            let member = Wire::plain(&server).get("/", &fields).text();
            let before = by_client.insert(last, member.clone());
            assert!(
                before.is_none_or(|before| before == member),
                "client {last}"
            );
        }
    }
    let used: BTreeSet<&String> = by_client.values().collect();
    assert!(used.len() > 1, "one member for all clients: {used:?}");
}
