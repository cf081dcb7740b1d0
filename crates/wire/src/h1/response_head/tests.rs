use super::*;
use crate::invariants;
use proptest::prelude::*;

const BOUNDS: ResponseHeadBounds = ResponseHeadBounds {
    head_bytes: 16 * 1024,
    fields: 100,
};

const MEMBER: &[u8] = b"HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Mon, 23 Nov 2026 02:00:00 GMT\r\n\
    Content-Type: text/html\r\nContent-Length: 5100\r\nLast-Modified: Mon, 23 Nov 2026 01:00:00 GMT\r\n\
    Connection: keep-alive\r\nETag: \"65-13ec\"\r\nAccept-Ranges: bytes\r\n\r\n";

/// Parses a complete head.
fn complete(text: &[u8], method: Method) -> (ResponseHead<'_>, usize) {
    match parse_response_head(text, &mut 0, method, &BOUNDS) {
        Ok(ParsedResponse::Complete { head, head_bytes }) => (head, head_bytes),
        other => panic!("{}: {other:?}", text.escape_ascii()),
    }
}

/// Returns the broken rule; 0 for a complete head and 1 for a partial head.
fn rule_at(text: &[u8], bounds: &ResponseHeadBounds) -> u16 {
    match parse_response_head(text, &mut 0, Method::Get, bounds) {
        Ok(ParsedResponse::Complete { .. }) => 0,
        Ok(ParsedResponse::Partial) => 1,
        Err(reject) => reject.rule,
    }
}

fn rule_of(text: &[u8]) -> u16 {
    rule_at(text, &BOUNDS)
}

#[test]
fn a_head_is_parsed_without_copies() {
    let text = [MEMBER, b"<html>"].concat();
    let (head, head_bytes) = complete(&text, Method::Get);
    assert_eq!(&text[head_bytes..], b"<html>");
    assert_eq!((head.status, head.minor_version), (Status(200), 1));
    assert_eq!(head.reason, b"OK");
    assert_eq!(head.body, ResponseLength::Length(5_100));
    assert_eq!(head.content_length, Some(5_100));
    assert!(head.keep_alive && head.has_connection_options && head.has_date && head.has_server);
    assert!(!head.has_trailer && head.upgrade.is_none());
    assert_eq!(head.fields.iter().count(), 8);
    assert_eq!(head.fields.first("etag"), Some(&b"\"65-13ec\""[..]));
}

#[test]
fn a_head_is_parsed_at_every_split_point() {
    for end in 0..MEMBER.len() {
        let mut scanned = 0;
        let verdict = |bytes, scanned: &mut usize| {
            invariants::response_verdict(bytes, scanned, Method::Get, &BOUNDS)
        };
        assert_eq!(verdict(&MEMBER[..end], &mut scanned), Ok(None), "{end}");
        assert_eq!(scanned, end);
        let whole = verdict(MEMBER, &mut 0);
        assert!(matches!(whole, Ok(Some(_))));
        assert_eq!(verdict(MEMBER, &mut scanned), whole, "{end}");
    }
}

#[test]
#[rustfmt::skip] // Keeps the columns of the table.
fn status_lines_are_parsed() {
    let table: &[(&[u8], u16, u8, &[u8])] = &[
        (b"HTTP/1.1 200 OK", 200, 1, b"OK"),
        (b"HTTP/1.0 200 OK", 200, 0, b"OK"),
        (b"HTTP/1.1 404 Not Found", 404, 1, b"Not Found"),
        (b"HTTP/1.1 100 Continue", 100, 1, b"Continue"),
        (b"HTTP/1.1 599 ", 599, 1, b""),
        (b"HTTP/1.1 200", 200, 1, b""),
        (b"HTTP/1.1 200  two spaces ", 200, 1, b" two spaces "),
        (b"HTTP/1.1 200 tab\there", 200, 1, b"tab\there"),
        (b"HTTP/1.1 200 \xc3\xa9", 200, 1, b"\xc3\xa9"),
    ];
    for (line, status, minor, reason) in table {
        let text = [line, &b"\r\nContent-Length: 0\r\n\r\n"[..]].concat();
        let (head, head_bytes) = complete(&text, Method::Get);
        let found = (head.status.0, head.minor_version, head.reason, head_bytes);
        assert_eq!(found, (*status, *minor, *reason, text.len()), "{}", line.escape_ascii());
    }
}

#[test]
#[rustfmt::skip] // Keeps the columns of the table.
fn malformed_status_lines_are_refused() {
    let table: &[&[u8]] = &[
        b"HTTP/1.2 200 OK\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/0.9 200 OK\r\n\r\n",
        b"HTTP/1 200 OK\r\n\r\n",
        b"HTTP/1.10 200 OK\r\n\r\n",
        b"http/1.1 200 OK\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"HTTP/1.1\t200 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/1.1 600 OK\r\n\r\n",
        b"HTTP/1.1 999 OK\r\n\r\n",
        b"HTTP/1.1 000 OK\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 +20 OK\r\n\r\n",
        b"HTTP/1.1 200OK\r\n\r\n",
        b"HTTP/1.1 200\tOK\r\n\r\n",
        b"HTTP/1.1 200\n\r\n",
        b"HTTP/1.1 200 OK\n\r\n",
        b"HTTP/1.1 200 O\rK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\r\n\r\n",
        b"HTTP/1.1 200 O\0K\r\n\r\n",
        b"HTTP/1.1 200 O\x7fK\r\n\r\n",
        b"HTTP/1.1 \r\n\r\n",
        b"\r\nHTTP/1.1 200 OK\r\n\r\n",
        b" HTTP/1.1 200 OK\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        // Another protocol is refused without a line feed.
        b"S",
        b"\x15\x03\x01",
        b"\n",
        b"\0",
        b"PRI * HTTP/2.0",
        b"HTTP/2",
        b"HTTP/1.2",
        b"HTTP/1.1_",
    ];
    for text in table {
        assert_eq!(rule_of(text), 730, "{}", text.escape_ascii());
    }
    for partial in ["", "H", "HTTP/1.", "HTTP/1.1 2", "HTTP/1.1 9", "HTTP/1.1 200 OK\r"] {
        assert_eq!(rule_of(partial.as_bytes()), 1, "{partial:?}");
    }
}

#[test]
#[rustfmt::skip] // Keeps the columns of the table.
fn malformed_fields_are_refused() {
    let table: &[(&[u8], u16)] = &[
        (b"A: b\r\n", 0),
        (b"A:b\r\nB:\r\n", 0),
        (b"A: \t b \t\r\n", 0),
        (b"A: \xff\r\n", 0),
        (b"A : b\r\n", 731),
        (b"A\t: b\r\n", 731),
        (b": b\r\n", 731),
        (b"A\r\n", 731),
        (b"A B: c\r\n", 731),
        (b"A(: c\r\n", 731),
        (b"\xe9: c\r\n", 731),
        (b"A: b\nB: c\r\n", 731),
        (b"A: b\n", 731),
        (b"A: b\rc\r\n", 731),
        (b"A: b\r\r\n", 731),
        (b"A: b\0c\r\n", 731),
        (b"A: b\x01\r\n", 731),
        (b"A: \x7f\r\n", 731),
        (b"A\0: b\r\n", 731),
        (b"\n", 731),
        (b"\r\r\n", 731),
        (b"A: b\r\n c\r\n", 732),
        (b"A: b\r\n\tc\r\n", 732),
        (b" A: b\r\n", 732),
        (b"HTTP/1.1 200 OK\r\n", 731),
    ];
    for (fields, expected) in table {
        let text = [b"HTTP/1.1 200 OK\r\n", *fields, b"\r\n"].concat();
        assert_eq!(rule_of(&text), *expected, "{}", text.escape_ascii());
    }
}

#[test]
#[rustfmt::skip] // Keeps the columns of the table.
fn doubtful_framing_is_refused() {
    let table: &[(&str, &str, u16)] = &[
        ("1.1", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 734),
        ("1.1", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 734),
        ("1.0", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 734),
        ("1.1", "Transfer-Encoding: gzip\r\nContent-Length: 5\r\n", 734),
        ("1.1", "Content-Length: 5\r\nContent-Length: 5\r\n", 734),
        ("1.1", "Content-Length: 5\r\ncontent-length: 6\r\n", 734),
        ("1.1", "Content-Length: 5, 5\r\n", 734),
        ("1.1", "Content-Length: 5,6\r\n", 734),
        ("1.1", "Content-Length: +5\r\n", 734),
        ("1.1", "Content-Length: -5\r\n", 734),
        ("1.1", "Content-Length: 0x5\r\n", 734),
        ("1.1", "Content-Length: 5 5\r\n", 734),
        ("1.1", "Content-Length:\r\n", 734),
        ("1.1", "Content-Length: 18446744073709551616\r\n", 734),
        ("1.0", "Transfer-Encoding: chunked\r\n", 735),
        ("1.1", "Transfer-Encoding: gzip\r\n", 735),
        ("1.1", "Transfer-Encoding: identity\r\n", 735),
        ("1.1", "Transfer-Encoding: gzip, chunked\r\n", 735),
        ("1.1", "Transfer-Encoding: chunked, chunked\r\n", 735),
        ("1.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 735),
        ("1.1", "Transfer-Encoding: chunked, gzip\r\n", 735),
        ("1.1", "Transfer-Encoding: chunked;a=b\r\n", 735),
        ("1.1", "Transfer-Encoding: xchunked\r\n", 735),
        ("1.1", "Transfer-Encoding: ,chunked\r\n", 735),
        ("1.1", "Transfer-Encoding:\r\n", 735),
    ];
    for (version, fields, expected) in table {
        for status in ["200 OK", "100 Continue", "204 No Content", "304 Not Modified"] {
            let text = format!("HTTP/{version} {status}\r\n{fields}\r\n");
            assert_eq!(rule_of(text.as_bytes()), *expected, "{text}");
        }
    }
}

#[test]
#[rustfmt::skip] // Keeps the columns of the table.
fn body_lengths_follow_status_and_method() {
    use ResponseLength::{Chunked, Length, None, UntilClose};
    const CHUNKED: &str = "Transfer-Encoding: Chunked\r\n";
    const FIVE: &str = "Content-Length: 5\r\n";
    let table = [
        (Method::Get, "1.1 200", FIVE, Length(5)),
        (Method::Get, "1.0 200", FIVE, Length(5)),
        (Method::Get, "1.1 200", "Content-Length: 18446744073709551615\r\n", Length(u64::MAX)),
        (Method::Get, "1.1 200", "Content-Length: 0005\r\n", Length(5)),
        (Method::Get, "1.1 200", CHUNKED, Chunked),
        (Method::Get, "1.1 200", "", UntilClose),
        (Method::Post, "1.1 500", "", UntilClose),
        (Method::Get, "1.1 205", "Content-Length: 0\r\n", Length(0)),
        (Method::Head, "1.1 200", FIVE, None),
        (Method::Head, "1.1 200", CHUNKED, None),
        (Method::Head, "1.1 200", "", None),
        (Method::Get, "1.1 100", FIVE, None),
        (Method::Get, "1.1 103", "", None),
        (Method::Get, "1.1 101", "Upgrade: websocket\r\n", None),
        (Method::Get, "1.1 204", FIVE, None),
        (Method::Get, "1.1 204", CHUNKED, None),
        (Method::Get, "1.1 304", FIVE, None),
        (Method::Connect, "1.1 200", FIVE, None),
        (Method::Connect, "1.1 299", "", None),
        (Method::Connect, "1.1 403", FIVE, Length(5)),
        (Method::Connect, "1.1 302", CHUNKED, Chunked),
    ];
    for (method, line, fields, expected) in table {
        let text = format!("HTTP/{line} x\r\n{fields}\r\n");
        let (head, _) = complete(text.as_bytes(), method);
        assert_eq!(head.body, expected, "{method:?} {text}");
        let length = (fields == FIVE).then_some(5);
        assert!(head.content_length == length || fields.contains("Content-Length"), "{text}");
    }
    let framed = [None, Length(1), Chunked, UntilClose].map(ResponseLength::framed);
    assert_eq!(framed[1..], [Some(BodyLength::Length(1)), Some(BodyLength::Chunked), Option::None]);
}

#[test]
#[rustfmt::skip] // Keeps the columns of the table.
fn keep_alive_follows_version_framing_and_connection_field() {
    let table = [
        ("1.1 200", "Content-Length: 5\r\n", true),
        ("1.1 200", "Transfer-Encoding: chunked\r\n", true),
        ("1.1 204", "", true),
        ("1.1 200", "", false),
        ("1.1 200", "Connection: keep-alive\r\n", false),
        ("1.1 200", "Content-Length: 5\r\nConnection: Close\r\n", false),
        ("1.1 200", "Content-Length: 5\r\nConnection: x, close\r\n", false),
        ("1.1 200", "Connection: keep-alive\r\nContent-Length: 5\r\nConnection: close\r\n", false),
        ("1.0 200", "Content-Length: 5\r\n", false),
        ("1.0 200", "Content-Length: 5\r\nConnection: Keep-Alive\r\n", true),
        ("1.0 200", "Content-Length: 5\r\nConnection: keep-alive, close\r\n", false),
        ("1.1 101", "Connection: upgrade\r\nUpgrade: x\r\n", false),
    ];
    for (line, fields, stays) in table {
        let text = format!("HTTP/{line} x\r\n{fields}\r\n");
        assert_eq!(complete(text.as_bytes(), Method::Get).0.keep_alive, stays, "{text}");
    }
    let tunnel = b"HTTP/1.1 200 OK\r\n\r\n";
    assert!(!complete(tunnel, Method::Connect).0.keep_alive);
    assert!(complete(tunnel, Method::Head).0.keep_alive);
}

#[test]
fn fields_for_a_proxy_are_noted() {
    let text = b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\
        TRAILER: grpc-status\r\nDates: x\r\nServers: x\r\n\r\n";
    let (head, _) = complete(text, Method::Get);
    assert_eq!(head.upgrade, Some(&b"websocket"[..]));
    assert!(head.has_trailer && head.has_connection_options && !head.has_date && !head.has_server);
    let text = b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nupgrade: h2c\r\n\r\n";
    assert_eq!(complete(text, Method::Get).0.upgrade, Some(&b""[..]));
}

#[test]
#[rustfmt::skip] // Keeps the columns of the table.
fn bounds_hold_for_whole_and_partial_heads() {
    let bounds = ResponseHeadBounds { head_bytes: 40, fields: 3 };
    let table = [
        // 17 bytes before the value, 4 bytes behind.
        ("HTTP/1.1 200 \r\nA:1234567890123456789\r\n\r\n".to_owned(), 0),
        ("HTTP/1.1 200 \r\nA:12345678901234567890\r\n\r\n".to_owned(), 733),
        ("HTTP/1.1 200 \r\nA:12345678901234567890123".to_owned(), 1),
        ("HTTP/1.1 200 \r\nA:123456789012345678901234".to_owned(), 733),
        (format!("HTTP/1.1 200 {}", "x".repeat(27)), 1),
        (format!("HTTP/1.1 200 {}", "x".repeat(28)), 733),
        ("HTTP/1.1 200 \r\nA:\r\nB:\r\nC:\r\n\r\n".to_owned(), 0),
        ("HTTP/1.1 200 \r\nA:\r\nB:\r\nC:\r\nD:\r\n\r\n".to_owned(), 733),
        ("HTTP/1.1 200 \r\nA:\r\nB:\r\nC:\r\nD".to_owned(), 1),
    ];
    for (text, expected) in table {
        assert_eq!(rule_at(text.as_bytes(), &bounds), expected, "{text:?} of {}", text.len());
        invariants::response_head(text.as_bytes());
    }
}

/// A head that arrives byte by byte is parsed at most once for each line.
#[test]
fn slow_heads_are_parsed_once_a_line() {
    let head = format!("HTTP/1.1 200 OK\r\nX:{}", "a".repeat(16_000));
    let parsed = (1..head.len())
        .filter(|&end| !is_without_new_line(&head.as_bytes()[..=end], end))
        .count();
    assert!(parsed < 16, "{parsed}");
}

/// Status, lines and framing of a head.
type SlowHead = (u16, Vec<(String, String)>, ResponseLength);

/// Reads a head by splitting lines, without regard to speed.
fn slow_reading(text: &[u8]) -> Option<SlowHead> {
    let text = std::str::from_utf8(text).ok()?;
    let (head, _) = text.split_once("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let line = lines.next()?;
    let rest = line
        .strip_prefix("HTTP/1.1 ")
        .or(line.strip_prefix("HTTP/1.0 "))?;
    let (digits, reason) = rest.split_once(' ').unwrap_or((rest, ""));
    let status = digits
        .parse::<u16>()
        .ok()
        .filter(|status| (100..600).contains(status))?;
    let is_clean = |text: &str| !text.chars().any(|c| c.is_ascii_control() && c != '\t');
    if digits.len() != 3 || digits.starts_with('+') || !is_clean(reason) {
        return None;
    }
    let mut fields = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':')?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(is_name) || !is_clean(value) {
            return None;
        }
        fields.push((
            name.to_ascii_lowercase(),
            value.trim_matches([' ', '\t']).to_owned(),
        ));
    }
    let values = |wanted: &str| -> Vec<&str> {
        let named = fields.iter().filter(|(name, _)| name == wanted);
        named.map(|(_, value)| value.as_str()).collect()
    };
    let body = match (&*values("content-length"), &*values("transfer-encoding")) {
        ([], []) => ResponseLength::UntilClose,
        ([length], []) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
            ResponseLength::Length(length.parse().ok()?)
        }
        ([], [coding])
            if coding.eq_ignore_ascii_case("chunked") && line.starts_with("HTTP/1.1") =>
        {
            ResponseLength::Chunked
        }
        _ => return None,
    };
    let is_without = matches!(status, 100..200 | 204 | 304);
    let body = if is_without {
        ResponseLength::None
    } else {
        body
    };
    Some((status, fields, body))
}

/// Compares the parser with the plain reading.
fn compare(text: &[u8]) {
    let parsed = match parse_response_head(text, &mut 0, Method::Get, &BOUNDS) {
        Ok(ParsedResponse::Complete { head, .. }) => {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let fields = head.fields.iter();
            let fields = fields.map(|(name, value)| (text(name).to_ascii_lowercase(), text(value)));
            Some((head.status.0, fields.collect(), head.body))
        }
        _ => None,
    };
    assert_eq!(parsed, slow_reading(text), "{}", text.escape_ascii());
}

#[test]
fn the_plain_reading_accepts_a_members_head() {
    assert!(slow_reading(MEMBER).is_some());
    compare(MEMBER);
}

proptest! {
    #[test]
    fn invariants_of_arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        invariants::response_head(&bytes);
    }

    #[test]
    fn near_heads_are_read_like_the_plain_reading(
        line in "HTTP/1\\.[01] ([1-5][0-9][0-9]|204|304|20x|600)( OK| |  a|)",
        fields in proptest::collection::vec(
            "(\r\n|\r\n|\r\n|\r\n|\n|\r|\r\n )(Date|Server|Content-Length|Transfer-Encoding|Connection|\
             Upgrade|Trailer|X|content-length) ?: ?(a|chunked|5|close|keep-alive|gzip, chunked|\t|\
             \u{7f}|\0)?", 0..6),
        end in "\r\n\r\n|\r\n\r\n|\r\n\r\nHTTP/1.1 200|\r\n\r|\n\n|"
    ) {
        let text = line + &fields.concat() + &end;
        invariants::response_head(text.as_bytes());
        compare(text.as_bytes());
    }

    #[test]
    fn well_formed_heads_are_read_like_the_plain_reading(
        line in "HTTP/1\\.[01] [1-5][0-9][0-9] [A-Z a-z]{0,9}",
        fields in proptest::collection::vec(
            "\r\n(Date|Content-Length|Transfer-Encoding|X): ?(5|17|chunked|Chunked)\t?", 0..3)
    ) {
        let text = line + &fields.concat() + "\r\n\r\n";
        compare(text.as_bytes());
    }
}
