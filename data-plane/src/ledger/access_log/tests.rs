//! Tests: for any input of a peer, one request is one line, and JSON is well-formed.

use proptest::prelude::*;

use crate::ledger::access_log::*;
use base::clock::log_time;
use base::visible_text::is_hidden;

const AT_MS: u64 = 1_795_199_954_123;

fn line() -> AccessLogLine<'static> {
    AccessLogLine {
        peer: "192.0.2.7".parse().unwrap(),
        user: None,
        unix_ms: AT_MS,
        request: b"GET /a.html HTTP/1.1",
        status: 200,
        bytes: 5100,
        referer: Some(b"https://example.org/"),
        agent: Some(b"curl/8.0"),
        host: Some(b"www.example.org"),
        port: 443,
        rule: 0,
        tls: Some("TLSv1.3"),
        micros: 431,
        member: None,
    }
}

fn text(line: &AccessLogLine<'_>, format: AccessLogFormat) -> Vec<u8> {
    let mut out = Vec::new();
    line.append(format, &log_time(line.unix_ms / 1_000), &mut out);
    out
}

fn combined(line: &AccessLogLine<'_>) -> String {
    String::from_utf8(text(line, AccessLogFormat::Combined)).unwrap()
}

#[test]
fn combined_lines_have_the_format_of_apache() {
    assert_eq!(
        combined(&line()),
        "192.0.2.7 - - [20/Nov/2026:18:39:14 +0000] \"GET /a.html HTTP/1.1\" 200 5100 \
         \"https://example.org/\" \"curl/8.0\"\n"
    );
    let refused = AccessLogLine {
        peer: "::ffff:10.0.0.1".parse().unwrap(),
        user: Some("an ant"),
        request: b"GET /\"\\\x00\r\n\xc3\xa9\xff HTTP/1.1",
        status: 400,
        bytes: 0,
        referer: None,
        agent: None,
        rule: 301,
        ..line()
    };
    assert_eq!(
        combined(&refused),
        "10.0.0.1 - an\\x20ant [20/Nov/2026:18:39:14 +0000] \
         \"GET /\\\"\\\\\\x00\\x0d\\x0a\u{e9}\\xff HTTP/1.1\" 400 - \"-\" \"-\" rule=R301\n"
    );
    let nameless = AccessLogLine {
        user: Some(""),
        ..line()
    };
    assert!(combined(&nameless).starts_with("192.0.2.7 - \"\" ["));
}

#[test]
fn lines_with_the_host_begin_with_the_host_in_lower_case_and_the_port() {
    let text_of = |line| String::from_utf8(text(&line, AccessLogFormat::VhostCombined)).unwrap();
    assert_eq!(
        text_of(line()),
        format!("www.example.org:443 {}", combined(&line()))
    );
    for (host, logged) in [
        (Some(&b"WWW.Example.ORG"[..]), "www.example.org:443 "),
        (Some(b"[::1]"), "[::1]:443 "),
        (Some(b""), "-:443 "),
        (None, "-:443 "),
        (Some(b"a\n\xff"), "a\\x0a\\xff:443 "),
    ] {
        let text = text_of(AccessLogLine { host, ..line() });
        assert!(
            text.starts_with(&format!("{logged}192.0.2.7 - - [")),
            "{text}"
        );
    }
}

#[test]
fn json_lines_leave_out_missing_values() {
    let full = AccessLogLine {
        user: Some("ant"),
        rule: 503,
        request: b"GET /\"\\\x01\x7f\xc2\x9b\xff\xe2\x82 HTTP/1.1",
        ..line()
    };
    assert_eq!(
        String::from_utf8(text(&full, AccessLogFormat::Json)).unwrap(),
        "{\"time\":\"2026-11-20T18:39:14.123Z\",\"remote\":\"192.0.2.7\",\"user\":\"ant\",\
         \"host\":\"www.example.org\",\"request\":\"GET /\\\"\\\\\\u0001\\u007f\\u009b\u{fffd}\u{fffd} HTTP/1.1\",\
         \"status\":200,\"bytes\":5100,\"referer\":\"https://example.org/\",\"agent\":\"curl/8.0\",\
         \"rule\":503,\"tls\":\"TLSv1.3\",\"us\":431}\n"
    );
    let little = AccessLogLine {
        referer: None,
        agent: None,
        host: None,
        tls: None,
        ..line()
    };
    assert_eq!(
        String::from_utf8(text(&little, AccessLogFormat::Json)).unwrap(),
        "{\"time\":\"2026-11-20T18:39:14.123Z\",\"remote\":\"192.0.2.7\",\
         \"request\":\"GET /a.html HTTP/1.1\",\"status\":200,\"bytes\":5100,\"us\":431}\n"
    );
}

#[test]
fn the_json_checker_of_the_tests_rejects_malformed_json() {
    for good in ["{\"a\":\"\",\"b\":10}", "{\"a\":\"\\u00ffx\\\"é\"}"] {
        assert!(json_strings(good).is_some(), "{good}");
    }
    for bad in [
        "{}x",
        "{\"a\":01}",
        "{\"a\":\"\n\"}",
        "{\"a\":\"\\x41\"}",
        "{\"a\"}",
        "{\"a\":\"",
        "{\"a\":1,}",
    ] {
        assert_eq!(json_strings(bad), None, "{bad}");
    }
}

/// Returns the strings (names and values) of a flat JSON object of strings and whole numbers, or `None` for
/// any other text (RFC 8259).
fn json_strings(text: &str) -> Option<Vec<String>> {
    let mut rest = text.strip_prefix('{')?;
    let mut strings = Vec::new();
    loop {
        let (name, after) = json_string(rest)?;
        strings.push(name);
        rest = after.strip_prefix(':')?;
        if rest.starts_with('"') {
            let (value, after) = json_string(rest)?;
            strings.push(value);
            rest = after;
        } else {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            if digits == 0 || (digits > 1 && rest.starts_with('0')) {
                return None;
            }
            rest = &rest[digits..];
        }
        match rest.strip_prefix(',') {
            Some(after) => rest = after,
            None if rest == "}" => return Some(strings),
            None => return None,
        }
    }
}

fn json_string(text: &str) -> Option<(String, &str)> {
    let mut chars = text.strip_prefix('"')?.chars();
    let mut value = String::new();
    loop {
        match chars.next()? {
            '"' => return Some((value, chars.as_str())),
            '\\' => match chars.next()? {
                plain @ ('"' | '\\') => value.push(plain),
                'u' => {
                    let mut unit = || {
                        // The second unit of a pair has an escape of its own.
                        let digits = chars.as_str().trim_start_matches("\\u");
                        let skipped = chars.as_str().len() - digits.len();
                        chars = chars.as_str().get(skipped..)?.chars();
                        let digits: String = chars.by_ref().take(4).collect();
                        u16::from_str_radix(&digits, 16).ok()
                    };
                    let mut units = vec![unit()?];
                    if (0xd800..0xdc00).contains(&units[0]) {
                        units.push(unit()?);
                    }
                    value.push_str(&String::from_utf16(&units).ok()?);
                }
                _ => return None,
            },
            control if control < ' ' => return None,
            plain => value.push(plain),
        }
    }
}

/// Reverts the escapes of a quoted field.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'\\' {
            out.push(first);
        } else if let Some(hex) = rest.strip_prefix(b"x") {
            let digits = std::str::from_utf8(&hex[..2]).unwrap();
            out.push(u8::from_str_radix(digits, 16).unwrap());
            rest = &hex[2..];
        } else {
            out.push(rest[0]);
            rest = &rest[1..];
        }
    }
    out
}

/// Generates bytes as hostile peers send them.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..6),
        any::<char>().prop_map(|char| char.to_string().into_bytes()),
        prop::sample::select(vec![
            &b"\r\n"[..],
            b"\"",
            b"\\",
            b"\x1b[31m",
            b"\xc2\x9b",
            b"\xc2\x85",
            b"\xe2\x80\xa8",
            b"\xf3\xa0\x81\x81",
            b"\xed\xa0\x80",
            b"\xf4\x90\x80\x80",
            b"\xc0\x80",
            b"\xf0\x9f\x90",
            b"a",
        ])
        .prop_map(<[u8]>::to_vec),
    ];
    proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn every_line_is_one_line_of_visible_text(
        request in hostile(), referer in hostile(), agent in hostile(), host in hostile(),
        user in any::<String>(), rule in any::<u16>(), bytes in any::<u64>(),
    ) {
        let line = AccessLogLine {
            request: &request, referer: Some(&referer), agent: Some(&agent), host: Some(&host),
            user: Some(&user), rule, bytes, ..line()
        };
        for format in [AccessLogFormat::Combined, AccessLogFormat::VhostCombined, AccessLogFormat::Json] {
            let text = String::from_utf8(text(&line, format)).unwrap();
            let body = text.strip_suffix('\n').unwrap();
            prop_assert!(!body.contains(is_hidden), "{body:?}");
        }
        let json = String::from_utf8(text(&line, AccessLogFormat::Json)).unwrap();
        let strings = json_strings(json.trim_end()).unwrap();
        prop_assert_eq!(&strings[5], &user);
        let decoded = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        prop_assert_eq!(&strings[7], &decoded(&host));
        prop_assert_eq!(&strings[9], &decoded(&request));
    }

    #[test]
    fn escapes_are_reversible(field in hostile()) {
        let mut out = Vec::new();
        push_escaped(&mut out, &field);
        prop_assert_eq!(unescaped(&out), field);
    }
}
