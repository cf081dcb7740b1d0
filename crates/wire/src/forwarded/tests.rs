use super::*;
use crate::invariants;
use proptest::prelude::*;

fn address(text: &str) -> IpOctets {
    IpOctets::parse(text.as_bytes()).expect("an address")
}

/// Writes a hop as text: node, scheme and host.
fn shown(hop: Hop<'_>) -> String {
    let node = match hop.node {
        HopNode::Address(address, port) => {
            let mut out = Vec::new();
            address.push(&mut out);
            let port = port.map_or_else(String::new, |port| format!("/{port}"));
            String::from_utf8_lossy(&out).into_owned() + &port
        }
        HopNode::Obfuscated(name) => String::from_utf8_lossy(name).into_owned(),
        HopNode::Unknown => "?".to_owned(),
    };
    let text = |part: Option<&[u8]>| {
        part.map_or("-".into(), |part| {
            String::from_utf8_lossy(part).into_owned()
        })
    };
    format!("{node} {} {}", text(hop.proto), text(hop.host))
}

/// Returns the hops of one Forwarded line, from the last to the first.
fn forwarded(value: &str) -> Vec<String> {
    let line = format!("Forwarded: {value}\r\n");
    invariants::forwarded(line.as_bytes());
    Hops::by_forwarded(Fields(line.as_bytes()))
        .map(shown)
        .collect()
}

/// Returns the nodes of X-Forwarded-For, from the last to the first.
fn x_forwarded(fields: &str) -> Vec<String> {
    invariants::forwarded(fields.as_bytes());
    Hops::by_x_forwarded(Fields(fields.as_bytes()))
        .map(shown)
        .collect()
}

#[test]
#[rustfmt::skip] // Keeps the columns of the table.
fn elements_of_forwarded_are_read() {
    let table: &[(&str, &[&str])] = &[
        ("for=192.0.2.60", &["192.0.2.60 - -"]),
        ("for=192.0.2.60;proto=http;by=203.0.113.43", &["192.0.2.60 http -"]),
        ("For=\"[2001:db8:cafe::17]:4711\"", &["2001:db8:cafe::17/4711 - -"]),
        ("for=\"[::ffff:192.0.2.1]\"", &["192.0.2.1 - -"]),
        ("for=\"192.0.2.1:80\"", &["192.0.2.1/80 - -"]),
        ("for=\"192.0.2.1:_x\"", &["192.0.2.1 - -"]),
        ("for=192.0.2.43, for=198.51.100.17", &["198.51.100.17 - -", "192.0.2.43 - -"]),
        ("for=\"_gazonk\"", &["_gazonk - -"]),
        ("for=_SEVKISEK", &["_SEVKISEK - -"]),
        ("for=\"_a:99999\"", &[]),
        ("for=unknown", &["? - -"]),
        ("for=\"Unknown:_port\"", &["? - -"]),
        ("proto=https", &["? https -"]),
        ("PROTO=https;HOST=\"example.org:8080\";FOR=192.0.2.1", &["192.0.2.1 https example.org:8080"]),
        ("for=192.0.2.1;host=example.org", &["192.0.2.1 - example.org"]),
        ("for=192.0.2.1 ; proto=https", &["192.0.2.1 https -"]),
        ("for=192.0.2.1;;proto=https;", &["192.0.2.1 https -"]),
        ("for=192.0.2.1;secret=\"a,b;c\\\"d\\\\\"", &["192.0.2.1 - -"]),
        ("for=192.0.2.1;secret=\"\\\\\", for=192.0.2.2;s=\"\\\",\"", &["192.0.2.2 - -", "192.0.2.1 - -"]),
        (",, for=192.0.2.1 ,\t,", &["192.0.2.1 - -"]),
        ("", &[]),
    ];
    for (value, expected) in table {
        assert_eq!(forwarded(value), *expected, "{value}");
    }
}

#[test]
fn malformed_elements_of_forwarded_end_the_list() {
    for element in [
        "for",
        "for=",
        "for=\"\"",
        "=192.0.2.1",
        "for =192.0.2.1",
        "for= 192.0.2.1",
        "for=192.0.2.1:80",
        "for=192.0.2.256",
        "for=[::1]",
        "for=\"::1\"",
        "for=\"[192.0.2.1]\"",
        "for=\"[::1\"",
        "for=\"[::1]x\"",
        "for=\"192.0.2.1:\"",
        "for=\"192.0.2.1:123456\"",
        "for=\"192.0.2.1:+80\"",
        "for=\"192.0.2.1:65536\"",
        "for=_",
        "for=\"_a b\"",
        "for=\"192.0.2.\\1\"",
        "for=192.0.2.1;for=192.0.2.2",
        "for=192.0.2.1;proto=http;proto=https",
        "for=192.0.2.1;proto=\"a b\"",
        "for=192.0.2.1;proto=1x",
        "for=192.0.2.1;proto=javascript",
        "for=192.0.2.1;host=\"a/b\"",
        "for=192.0.2.1;host=\"u@a\"",
        "for=192.0.2.1 proto=http",
        "for=192.0.2.1;x",
        "for=192.0.2.1;x=\"",
        "for=example.org",
        "192.0.2.1",
    ] {
        let value = format!("for=192.0.2.7, {element}, for=192.0.2.9");
        assert_eq!(forwarded(&value), ["192.0.2.9 - -"], "{element}");
    }
}

#[test]
fn an_open_quotation_mark_hides_no_later_element() {
    for start in [
        "for=\"192.0.2.7",
        "\"",
        "for=\"a\\\"",
        "for=\"x, for=\"y",
        "x=\"\\",
    ] {
        let value = format!("{start}, for=192.0.2.8;secret=\",\", for=192.0.2.9");
        assert_eq!(
            forwarded(&value)[..2],
            ["192.0.2.9 - -", "192.0.2.8 - -"],
            "{start}"
        );
    }
}

#[test]
fn several_lines_form_one_list() {
    let fields = "Forwarded: for=192.0.2.1, for=192.0.2.2\r\nX: y\r\nFORWARDED: for=192.0.2.3\r\n\
        Forwarded:\r\nForwarded: for=192.0.2.4,\r\nForwardeds: for=192.0.2.5\r\n";
    let hops = Hops::by_forwarded(Fields(fields.as_bytes()));
    let nodes: Vec<String> = hops.map(shown).collect();
    let expected = ["192.0.2.4", "192.0.2.3", "192.0.2.2", "192.0.2.1"];
    assert_eq!(nodes, expected.map(|node| format!("{node} - -")));
}

#[test]
#[rustfmt::skip] // Keeps the columns of the table.
fn nodes_of_x_forwarded_for_are_read() {
    let table: &[(&str, &[&str])] = &[
        ("X-Forwarded-For: 192.0.2.1\r\n", &["192.0.2.1 - -"]),
        ("x-forwarded-for: 2001:db8::1, 192.0.2.1:80\r\n", &["192.0.2.1/80 - -", "2001:db8::1 - -"]),
        ("X-Forwarded-For: [2001:db8::1]:80,[::1]\r\n", &["::1 - -", "2001:db8::1/80 - -"]),
        ("X-Forwarded-For: a, b\r\nX-Forwarded-For: unknown\r\n", &["? - -"]),
        ("X-Forwarded-For: \"192.0.2.1\", 192.0.2.2\r\n", &["192.0.2.2 - -"]),
        ("X-Forwarded-For: \", 192.0.2.2\r\n", &["192.0.2.2 - -"]),
        ("X-Forwarded-For: 192.0.2.1 192.0.2.2\r\n", &[]),
        ("X-Forwarded-For: ::1%eth0\r\n", &[]),
        ("X-Forwarded-Proto: https\r\n", &[]),
        // One value of scheme and host holds for all hops.
        ("X-Forwarded-Proto: https\r\nX-Forwarded-Host: a.test:8080\r\nX-Forwarded-For: ::1, ::2\r\n",
            &["::2 https a.test:8080", "::1 https a.test:8080"]),
        // Lists of one length belong together.
        ("X-Forwarded-Proto: https, http\r\nX-Forwarded-Host: a, b\r\nX-Forwarded-For: ::1, ::2\r\n",
            &["::2 http b", "::1 https a"]),
        // A longer list begins with members sent by the client.
        ("X-Forwarded-Proto: https, http\r\nX-Forwarded-For: ::2\r\n", &["::2 http -"]),
        ("X-Forwarded-Proto: x y\r\nX-Forwarded-Host: u@h\r\nX-Forwarded-For: ::2\r\n", &["::2 - -"]),
    ];
    for (fields, expected) in table {
        assert_eq!(x_forwarded(fields), *expected, "{fields:?}");
    }
}

#[test]
fn the_client_is_the_first_untrusted_opener() {
    let trusted = [address("10.0.0.1"), address("10.0.0.2"), address("::7")];
    let find = |value: &str| {
        let line = format!("Forwarded: {value}\r\n");
        let hops = Hops::by_forwarded(Fields(line.as_bytes()));
        let client = ForwardedClient::find(trusted[0], hops, |it| trusted.contains(&it));
        let node = HopNode::Address(client.address, client.port);
        let (proto, host) = (client.proto, client.host);
        shown(Hop { node, proto, host })
    };
    let table = [
        ("", "10.0.0.1 - -"),
        ("for=192.0.2.1", "192.0.2.1 - -"),
        ("for=6.6.6.6, for=192.0.2.1", "192.0.2.1 - -"),
        (
            "for=6.6.6.6, for=\"192.0.2.1:5\", for=10.0.0.2",
            "192.0.2.1/5 - -",
        ),
        (
            "for=192.0.2.1, for=\"[::7]\", for=10.0.0.2",
            "192.0.2.1 - -",
        ),
        ("for=10.0.0.2", "10.0.0.2 - -"),
        ("garbage, for=10.0.0.2", "10.0.0.2 - -"),
        ("for=6.6.6.6, for=unknown, for=10.0.0.2", "10.0.0.2 - -"),
        (
            "for=6.6.6.6, for=_x;proto=https, for=10.0.0.2;host=b",
            "10.0.0.2 https b",
        ),
        (
            "for=6.6.6.6;host=evil, for=192.0.2.1;proto=https;host=a, for=10.0.0.2;proto=http;host=b",
            "192.0.2.1 https a",
        ),
        (
            "for=192.0.2.1, for=10.0.0.2;proto=http;host=b",
            "192.0.2.1 http b",
        ),
    ];
    for (value, expected) in table {
        assert_eq!(find(value), expected, "{value}");
    }
}

const HOP: OwnHop<'static> = OwnHop {
    address: Some(IpOctets::V4([192, 0, 2, 1])),
    proto: "https",
    host: b"a.test",
};

/// Returns the lines of both lists behind a trusted proxy with the given fields, or without `earlier`.
fn written(earlier: Option<&str>, hop: OwnHop<'_>) -> String {
    let lists = match earlier {
        Some(text) => ForwardedLists::of(Fields(text.as_bytes())),
        None => ForwardedLists::empty(),
    };
    let mut out = Vec::new();
    lists.push_x_forwarded_for(&hop, &mut out);
    lists.push_forwarded(&hop, &mut out);
    String::from_utf8(out).expect("lines of ASCII")
}

const OWN: &str = "for=192.0.2.1;host=a.test;proto=https\r\n";

#[test]
fn lists_without_earlier_hops_have_the_own_hop() {
    let own = format!("X-Forwarded-For: 192.0.2.1\r\nForwarded: {OWN}");
    assert_eq!(written(None, HOP), own);
    for earlier in [
        "X: y\r\n",
        "Forwarded: for=\"6.6.6.6\r\n",
        "X-Forwarded-For: evil\r\n",
    ] {
        assert_eq!(written(Some(earlier), HOP), own, "{earlier}");
    }
    let v6 = OwnHop {
        address: Some(address("2001:db8::1")),
        host: b"[::1]:8080",
        ..HOP
    };
    let lines = "X-Forwarded-For: 2001:db8::1\r\n\
        Forwarded: for=\"[2001:db8::1]\";host=\"[::1]:8080\";proto=https\r\n";
    assert_eq!(written(None, v6), lines);
    let local = OwnHop {
        address: None,
        host: b"",
        ..HOP
    };
    let lines = "X-Forwarded-For: unknown\r\nForwarded: for=unknown;proto=https\r\n";
    assert_eq!(written(None, local), lines);
}

#[test]
fn both_lists_are_extended() {
    let x_forwarded = "X-Forwarded-For: evil, 192.0.2.5\r\nX-Forwarded-For: 10.0.0.1\r\n";
    let forwarded = "Forwarded: for=\"192.0.2.5:99\" ,for=10.0.0.1;by=b\r\n";
    assert_eq!(
        written(Some(&format!("{x_forwarded}{forwarded}")), HOP),
        format!(
            "X-Forwarded-For: 192.0.2.5, 10.0.0.1, 192.0.2.1\r\n\
             Forwarded: for=\"192.0.2.5:99\" ,for=10.0.0.1;by=b, {OWN}"
        )
    );
}

#[test]
fn a_missing_list_follows_from_the_other() {
    let earlier = "X-Forwarded-For: evil, ::1, _a, unknown, 10.0.0.1\r\nX-Forwarded-Proto: http, https\r\n\
        X-Forwarded-Host: b:81\r\n";
    assert_eq!(
        written(Some(earlier), HOP),
        format!(
            "X-Forwarded-For: ::1, _a, unknown, 10.0.0.1, 192.0.2.1\r\n\
             Forwarded: for=\"[::1]\";host=\"b:81\";proto=http, for=_a;host=\"b:81\";proto=http, \
             for=unknown;host=\"b:81\";proto=http, for=10.0.0.1;host=\"b:81\";proto=https, {OWN}"
        )
    );
    let earlier = "Forwarded: for=x, for=\"[::1]\" ,for=_a;by=b\r\nForwarded:, for=192.0.2.7, proto=https,\r\n";
    assert_eq!(
        written(Some(earlier), HOP),
        format!(
            "X-Forwarded-For: ::1, _a, 192.0.2.7, unknown, 192.0.2.1\r\n\
             Forwarded: for=\"[::1]\" ,for=_a;by=b, for=192.0.2.7, proto=https, {OWN}"
        )
    );
}

#[test]
fn of_two_different_lists_the_list_of_most_proxies_counts() {
    let earlier = "X-Forwarded-For: 192.0.2.5, 10.0.0.1\r\nForwarded: for=192.0.2.5\r\n";
    assert_eq!(
        written(Some(earlier), HOP),
        format!(
            "X-Forwarded-For: 192.0.2.5, 10.0.0.1, 192.0.2.1\r\n\
             Forwarded: for=192.0.2.5, for=10.0.0.1, {OWN}"
        )
    );
}

#[test]
fn scheme_and_host_are_read_without_a_list() {
    let read = |text: &str| {
        let (proto, host) = Hops::scheme_and_host(Fields(text.as_bytes()));
        [proto, host].map(|value| value.map(|value| String::from_utf8_lossy(value).into_owned()))
    };
    let some = |text: &str| Some(text.to_owned());
    let fields =
        "X-Forwarded-Proto: http, https\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Host: a:1\r\n";
    assert_eq!(read(fields), [some("https"), some("a:1")]);
    assert_eq!(
        read("X-Forwarded-Proto: 1\r\nX-Forwarded-Host: a b\r\n"),
        [None, None]
    );
    assert_eq!(read(""), [None, None]);
}

proptest! {
    #[test]
    fn invariants_of_arbitrary_lines(value in "[ -~]{0,80}", other in "[ -~]{0,20}") {
        let fields = format!("Forwarded: {value}\r\nX-Forwarded-For: {value}\r\nforwarded: {other}\r\n");
        invariants::forwarded(fields.as_bytes());
    }

    #[test]
    fn invariants_of_near_lists(
        value in "((for|by|host|proto|x)=(192.0.2.1|\"\\[::1\\]\"|\"a,b\"|\"\\\\\"|\"|_a|unknown)[,;] ?){0,6}",
        nodes in "((::1|192.0.2.1|10.0.0.1:80|\\[::2\\]:5|x|),? ?){0,6}"
    ) {
        let fields = format!("Forwarded: {value}\r\nX-Forwarded-For: {nodes}\r\n");
        invariants::forwarded(fields.as_bytes());
    }

    /// A list of well-formed members behind any text is read whole.
    #[test]
    fn clients_never_change_the_members_of_proxies(start in "[ -~]{0,30}") {
        let line = format!("Forwarded: {start}, for=\"[::1]:5\";x=\"\\\",\", for=192.0.2.1\r\n");
        let hops: Vec<String> = Hops::by_forwarded(Fields(line.as_bytes())).take(2).map(shown).collect();
        prop_assert_eq!(hops, ["192.0.2.1 - -", "::1/5 - -"]);
    }
}
