//! Tables of targets, paths and hosts, and invariants of arbitrary ones.

use crate::invariants;
use crate::request_target::*;
use proptest::prelude::*;

fn rule<T>(result: Result<T, Reject>) -> u16 {
    result.map_or_else(|reject| reject.rule, |_| 0)
}

#[test]
#[rustfmt::skip] // Keeps the columns of the table.
fn paths_are_normalised() {
    let table: &[(&str, &[u8])] = &[
        ("/", b"/"),
        ("/a", b"/a"),
        ("/a/", b"/a/"),
        ("/a/b.html", b"/a/b.html"),
        ("//", b"/"),
        ("///a////b//", b"/a/b/"),
        ("/.", b"/"),
        ("/./", b"/"),
        ("/a/.", b"/a/"),
        ("/a/./b", b"/a/b"),
        ("/a/..", b"/"),
        ("/a/../", b"/"),
        ("/a/b/..", b"/a/"),
        ("/a/b/../c", b"/a/c"),
        ("/a/b/../../c", b"/c"),
        ("/a//../b", b"/b"),
        ("/a/%2e/b", b"/a/b"),
        ("/a/%2E%2e/b", b"/b"),
        ("/a/.%2e/b", b"/b"),
        ("/...", b"/..."),
        ("/.../a", b"/.../a"),
        ("/..a/b..", b"/..a/b.."),
        ("/.well-known/x", b"/.well-known/x"),
        ("/%61%2D%7e", b"/a-~"),
        ("/a%20b", b"/a b"),
        ("/caf%C3%A9", b"/caf\xc3\xa9"),
        ("/%ff", b"/\xff"),
        ("/%0d%0a", b"/\r\n"),
        ("/%25", b"/%"),
        ("/%252e%252e/", b"/%2e%2e/"),
        ("/%252f", b"/%2f"),
        ("/%3f%23", b"/?#"),
        ("/a|b^c\"d{e}", b"/a|b^c\"d{e}"),
        ("/a+b&c;d=e", b"/a+b&c;d=e"),
        ("/a:b@c", b"/a:b@c"),
    ];
    for (raw, path) in table {
        let found = normalise(raw.as_bytes()).unwrap_or_else(|reject| panic!("{raw} {reject:?}"));
        assert_eq!(found, *path, "{raw}");
    }
    assert!(matches!(normalise(b"/css/a.b/c.css"), Ok(Cow::Borrowed(_))));
}

/// Known attacks that leave the root. Each path is refused, or stays inside as the harmless path beside it.
#[test]
#[rustfmt::skip]
fn paths_above_the_root_are_refused() {
    type Expected = Result<&'static [u8], u16>;
    const PERCENT: Expected = Err(112);
    const CLIMBS: Expected = Err(111);
    const NUL: Expected = Err(113);
    const SLASH: Expected = Err(114);
    const BACKSLASH: Expected = Err(115);
    const MALFORMED: Expected = Err(110);
    let table: &[(&[u8], Expected)] = &[
        (b"/..", CLIMBS),
        (b"/../", CLIMBS),
        (b"/../etc/passwd", CLIMBS),
        (b"/../../../../etc/passwd", CLIMBS),
        (b"/a/../../etc/passwd", CLIMBS),
        (b"/a/b/../../../etc/passwd", CLIMBS),
        (b"//../etc/passwd", CLIMBS),
        (b"/./../etc/passwd", CLIMBS),
        (b"/a/./../../etc/passwd", CLIMBS),
        (b"/a//../../etc/passwd", CLIMBS),
        (b"/a/..//../etc/passwd", CLIMBS),
        (b"/a/.././../etc/passwd", CLIMBS),
        (b"/%2e%2e/etc/passwd", CLIMBS),
        (b"/%2E%2E/etc/passwd", CLIMBS),
        (b"/.%2e/etc/passwd", CLIMBS),
        (b"/%2e./etc/passwd", CLIMBS),
        (b"/a/%2e%2e/%2e%2e/etc/passwd", CLIMBS),
        (b"/%2e/%2e%2e/etc/passwd", CLIMBS),
        (b"/..%2fetc/passwd", SLASH),
        (b"/..%2Fetc%2Fpasswd", SLASH),
        (b"/%2e%2e%2fetc%2fpasswd", SLASH),
        (b"/a%2f..%2f..%2fetc", SLASH),
        (b"/%2f", SLASH),
        (b"/..\\etc\\passwd", BACKSLASH),
        (b"/..\\..\\windows\\win.ini", BACKSLASH),
        (b"/..%5cetc%5cpasswd", BACKSLASH),
        (b"/%2e%2e%5C", BACKSLASH),
        (b"/a%5c..%5c..%5cetc", BACKSLASH),
        (b"/etc/passwd%00", NUL),
        (b"/etc/passwd%00.html", NUL),
        (b"/%00/../etc", NUL),
        (b"/..%00/etc", NUL),
        (b"/etc/passwd\0.html", NUL),
        (b"/%", PERCENT),
        (b"/%2", PERCENT),
        (b"/%2/etc", PERCENT),
        (b"/%zz", PERCENT),
        (b"/%u002e%u002e/etc", PERCENT),
        (b"/%+2e", PERCENT),
        (b"/%%32%65%%32%65/etc", PERCENT),
        (b"etc/passwd", MALFORMED),
        (b"../etc/passwd", MALFORMED),
        (b"", MALFORMED),
        // Ordinary names that resemble an attack.
        (b"/%252e%252e/etc", Ok(b"/%2e%2e/etc")),
        (b"/..%252fetc", Ok(b"/..%2fetc")),
        (b"/..%255cetc", Ok(b"/..%5cetc")),
        (b"/.../etc", Ok(b"/.../etc")),
        (b"/....//etc", Ok(b"/..../etc")),
        (b"/..;/etc", Ok(b"/..;/etc")),
        (b"/%c0%ae%c0%ae/etc", Ok(b"/\xc0\xae\xc0\xae/etc")),
        (b"/%c0%af..", Ok(b"/\xc0\xaf..")),
        (b"/%e0%80%ae%e0%80%ae/", Ok(b"/\xe0\x80\xae\xe0\x80\xae/")),
        (b"/.%20./etc", Ok(b"/. ./etc")),
        (b"/..%20/etc", Ok(b"/.. /etc")),
        (b"/..%09/etc", Ok(b"/..\t/etc")),
        (b"/..%0d/etc", Ok(b"/..\r/etc")),
        (b"/~root/etc", Ok(b"/~root/etc")),
        (b"/C:/windows", Ok(b"/C:/windows")),
    ];
    for (raw, expected) in table {
        let found = normalise(raw).map_err(|reject| reject.rule);
        assert_eq!(found.as_deref(), expected.as_ref().map(|path| *path), "{}", raw.escape_ascii());
    }
}

#[test]
#[rustfmt::skip]
fn forms_of_targets_are_parsed() {
    use Method::{Connect, Get, Options};
    type Parts<'a> = (Option<&'a str>, &'a str, &'a str, Option<&'a str>);
    let table: &[(Method, &str, Result<Parts<'_>, u16>)] = &[
        (Get, "/", Ok((None, "/", "/", None))),
        (Get, "/?", Ok((None, "/", "/", Some("")))),
        (Get, "/a?b?c", Ok((None, "/a", "/a", Some("b?c")))),
        (Get, "/a%20b?c%zz%00\\|^\"{}", Ok((None, "/a%20b", "/a b", Some("c%zz%00\\|^\"{}")))),
        (Get, "/a?../../x", Ok((None, "/a", "/a", Some("../../x")))),
        (Get, "//a/b", Ok((None, "//a/b", "/a/b", None))),
        (Get, "http://a", Ok((Some("a"), "/", "/", None))),
        (Get, "http://a/", Ok((Some("a"), "/", "/", None))),
        (Get, "HTTPS://a:1/b//c?d", Ok((Some("a:1"), "/b//c", "/b/c", Some("d")))),
        (Get, "http://a?b", Ok((Some("a"), "/", "/", Some("b")))),
        (Get, "http://[::1]:8080/", Ok((Some("[::1]:8080"), "/", "/", None))),
        (Options, "*", Ok((None, "*", "*", None))),
        (Options, "/", Ok((None, "/", "/", None))),
        (Options, "http://a/b", Ok((Some("a"), "/b", "/b", None))),
        (Connect, "a:443", Ok((Some("a:443"), "*", "*", None))),
        (Connect, "a", Ok((Some("a"), "*", "*", None))),
        (Get, "", Err(110)),
        (Get, "*", Err(110)),
        (Get, "a", Err(110)),
        (Get, "a/b", Err(110)),
        (Get, "?a", Err(110)),
        (Get, "/a#b", Err(110)),
        (Get, "/a?b#c", Err(110)),
        (Get, "/a b", Err(110)),
        (Get, "/a\tb", Err(110)),
        (Get, "/a\0", Err(110)),
        (Get, "/a\x7f", Err(110)),
        (Get, "/\u{e9}", Err(110)),
        (Get, "/a?\u{e9}", Err(110)),
        (Get, "http:/a", Err(110)),
        (Get, "http://", Err(110)),
        (Get, "http:///a", Err(110)),
        (Get, "http://u@a/", Err(110)),
        (Get, "http://a:x/", Err(110)),
        (Get, "ftp://a/", Err(110)),
        (Get, "file:///etc/passwd", Err(110)),
        (Get, "http://a/../b", Err(111)),
        (Options, "**", Err(110)),
        (Options, "*?a", Err(110)),
        (Connect, "/", Err(110)),
        (Connect, "http://a/", Err(110)),
        (Connect, "", Err(110)),
    ];
    for (method, text, expected) in table {
        let found = parse_target(*method, text.as_bytes());
        match expected {
            Err(expected) => assert_eq!(rule(found), *expected, "{text:?}"),
            Ok((authority, raw_path, path, query)) => {
                let expected = RequestTarget {
                    authority: authority.map(str::as_bytes),
                    raw_path: raw_path.as_bytes(),
                    path: Cow::Borrowed(path.as_bytes()),
                    query: query.map(str::as_bytes),
                };
                assert_eq!(found, Ok(expected), "{text:?}");
            }
        }
    }
}

#[test]
#[rustfmt::skip]
fn hosts_are_validated() {
    let valid: &[(&str, &str, Option<u16>)] = &[
        ("a", "a", None),
        ("Example.ORG", "Example.ORG", None),
        ("example.org.", "example.org.", None),
        ("a_b-c.d", "a_b-c.d", None),
        ("xn--caf-dma.example", "xn--caf-dma.example", None),
        ("127.0.0.1", "127.0.0.1", None),
        ("localhost:8443", "localhost", Some(8443)),
        ("a:", "a", None),
        ("a:0", "a", Some(0)),
        ("a:00080", "a", Some(80)),
        ("a:65535", "a", Some(65535)),
        ("[::1]", "[::1]", None),
        ("[::1]:80", "[::1]", Some(80)),
        ("[2001:db8::ffff:192.0.2.1]", "[2001:db8::ffff:192.0.2.1]", None),
        ("[1:2:3:4:5:6:7:8]", "[1:2:3:4:5:6:7:8]", None),
    ];
    for (host, name, port) in valid {
        assert_eq!(valid_host(host.as_bytes()), Some((name.as_bytes(), *port)), "{host}");
    }
    let malformed = [
        "", ":", ":80", " ", "a b", "a ", "a,b", "a/b", "a\\b", "a?b", "a#b", "u@a", "u:p@a", "a%20b", "a;b",
        ".", "..", ".a", "a..b", "a..", "a:x", "a:80x", "a:-1", "a:+1", "a:65536", "a:99999", "a:80:80", "::1",
        "[", "]", "[]", "[]:80", "[::1", "::1]", "[::1]x", "[::1]80", "[::1]:x", "[a]", "[1:2]", "[:::::::::]",
        "[fe80::1%25eth0]", "[v1.a:b:c]", "[::g]", "\u{e9}", "a\0", "a\t", "*", "*.a", "<script>", "a'b", "a\"b",
    ];
    for host in malformed {
        assert_eq!(valid_host(host.as_bytes()), None, "{host:?}");
    }
    assert!(valid_host("a".repeat(254).as_bytes()).is_some());
    assert!(valid_host("a".repeat(255).as_bytes()).is_none());
}

proptest! {
    #[test]
    fn invariants_of_arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        invariants::target(&bytes);
    }

    #[test]
    fn invariants_of_near_paths(
        text in "(/|\\.|\\.\\.|%2e|%2E|%2f|%5c|%00|%25|%|\\\\|//|a|b|%61|\\?|#|:){0,16}"
    ) {
        invariants::target(text.as_bytes());
        invariants::target(format!("/{text}").as_bytes());
        invariants::target(format!("http://a/{text}").as_bytes());
    }

    #[test]
    fn encoded_paths_are_decoded_back(names in proptest::collection::vec("[^/\\\\\0]{1,12}", 0..6)) {
        prop_assume!(names.iter().all(|name| name != "." && name != ".."));
        let path = format!("/{}", names.join("/"));
        let mut encoded = Vec::new();
        encode_path(path.as_bytes(), &mut encoded);
        let target = parse_target(Method::Get, &encoded);
        prop_assert_eq!(target.map(|t| t.path.into_owned()), Ok(path.into_bytes()));
    }
}
