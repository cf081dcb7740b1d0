//! Tables of request heads and results. The input arrives whole, in two parts split at every position, and
//! byte by byte.

use crate::fields::FieldValues;
use crate::h1::body_decoder::BodyLength;
use crate::h1::request::*;
use crate::invariants;
use proptest::prelude::*;

/// Parses a whole head; panics if the head is refused or partial.
fn complete(text: &[u8]) -> (RequestHead<'_>, usize) {
    // The head borrows the copy.
    let copy = Box::leak(Box::default());
    match parse_head(text, copy, &mut 0, &HeadLimits::default()) {
        Ok(ParsedHead::Complete { head, head_bytes }) => (head, head_bytes),
        other => panic!("{}: {other:?}", text.escape_ascii()),
    }
}

/// Returns the result, after a check for independence of the split.
fn verdict(text: &[u8], limits: &HeadLimits) -> Result<Option<String>, Reject> {
    let whole = invariants::head_verdict(text, &mut 0, limits);
    let shown = text.escape_ascii();
    for cut in 0..text.len() {
        let parted = invariants::head_in_two(text, cut, limits);
        assert_eq!(parted, whole, "cut at {cut}: {shown}");
    }
    let dripped = invariants::head_byte_by_byte(text, limits);
    assert_eq!(dripped, whole, "byte by byte: {shown}");
    whole
}

/// Returns the rule that refuses the head, 0 for a complete head, 1 for a partial head.
fn rule(text: &[u8]) -> u16 {
    match verdict(text, &HeadLimits::default()) {
        Ok(Some(_)) => 0,
        Ok(None) => 1,
        Err(reject) => {
            assert!(reject.close);
            reject.rule
        }
    }
}

const BROWSER: &[u8] = b"GET /articles/ants.html?from=feed HTTP/1.1\r\n\
    Host: www.example.org:8443\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Referer: https://www.example.org/\r\n\
    Connection: keep-alive\r\n\
    If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
    If-None-Match: \"abc\", W/\"def\"\r\n\
    Priority: u=0, i\r\n\r\n";

#[test]
fn a_request_of_a_browser_is_parsed() {
    let (head, head_bytes) = complete(BROWSER);
    assert_eq!(head_bytes, BROWSER.len());
    assert_eq!(head.method, Method::Get);
    assert_eq!(head.version, Version::Http11);
    assert_eq!(head.line, b"GET /articles/ants.html?from=feed HTTP/1.1");
    assert_eq!(head.host, b"www.example.org");
    assert_eq!(head.raw_path, b"/articles/ants.html");
    assert_eq!(head.path, &b"/articles/ants.html"[..]);
    assert!(matches!(head.path, std::borrow::Cow::Borrowed(_)));
    assert_eq!(head.query, Some(&b"from=feed"[..]));
    assert!(head.keep_alive && !head.expect_continue);
    assert_eq!(head.body, BodyLength::None);
    let asks = &head.known_fields;
    assert!(matches!(
        asks.accept_encoding,
        FieldValues::One(b"gzip, deflate, br, zstd")
    ));
    assert!(matches!(
        asks.if_none_match,
        FieldValues::One(b"\"abc\", W/\"def\"")
    ));
    assert!(asks.if_match.is_none());
    assert_eq!(
        asks.if_modified_since,
        Some(&b"Sun, 06 Nov 1994 08:49:37 GMT"[..])
    );
    assert_eq!(asks.referer, Some(&b"https://www.example.org/"[..]));
    assert!(
        asks.user_agent
            .is_some_and(|agent| agent.starts_with(b"Mozilla/5.0"))
    );
    assert_eq!(head.fields.iter().count(), 10);
    assert_eq!(head.fields.first("priority"), Some(&b"u=0, i"[..]));
    assert_eq!(rule(BROWSER), 0);
}

/// Heads with an added Host field, unless they have their own.
#[test]
#[rustfmt::skip] // Keeps the columns of the table.
fn well_formed_heads_are_accepted() {
    let table: &[&[u8]] = &[
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nhOsT:a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost:\t a:8080 \t\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: [::1]:8443\r\n\r\n",
        b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.0\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.2\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.9\r\nHost: a\r\n\r\n",
        b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        b"OPTIONS / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551615\r\n\r\n",
        b"DELETE / HTTP/1.1\r\nHost: a\r\nContent-Length: 0005\r\n\r\n",
        b"PATCH / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\ntransfer-encoding:\tCHUNKED \r\n\r\n",
        b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
        b"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET https://b:8443/c?d HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://b/ HTTP/1.0\r\n\r\n",
        b"GET /a|b^c\"d{e}?f|^\"{} HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /?a=[1]&b=<c>&d=`e`\\ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: caf\xe9 \xff\x80\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\tb\t\tc\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX:\r\nY: \r\nZ:\t\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a:b::c\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n!#$%&'*+-.^_`|~09azAZ: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nCookie: a\r\nCookie: b\r\n\r\n",
    ];
    for text in table {
        assert_eq!(rule(text), 0, "{}", text.escape_ascii());
        let (_, head_bytes) = complete(text);
        assert_eq!(head_bytes, text.len());
        // Bytes behind a head do not change the head.
        let pipelined = [text, &b"GET /next HTTP/1.1\r\n"[..]].concat();
        assert_eq!(complete(&pipelined).1, text.len());
    }
}

#[test]
#[rustfmt::skip]
fn malformed_request_lines_are_refused() {
    let table: &[(&[u8], u16)] = &[
        // Malformed request lines.
        (b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 101),
        (b" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 101),
        (b"\tGET / HTTP/1.1\r\nHost: a\r\n\r\n", 101),
        (b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 101),
        (b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n", 101),
        (b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 101),
        (b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 101),
        (b"GET /\tHTTP/1.1\r\nHost: a\r\n\r\n", 101),
        (b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 101),
        (b"GET /a\tb HTTP/1.1\r\nHost: a\r\n\r\n", 101),
        (b"GET /a\0b HTTP/1.1\r\nHost: a\r\n\r\n", 101),
        (b"GET /a\x0bb HTTP/1.1\r\nHost: a\r\n\r\n", 101),
        (b"G\0T / HTTP/1.1\r\nHost: a\r\n\r\n", 101),
        (b"G(T / HTTP/1.1\r\nHost: a\r\n\r\n", 101),
        (b"G\xc9T / HTTP/1.1\r\nHost: a\r\n\r\n", 101),
        (b"GET\r\nHost: a\r\n\r\n", 101),
        (b"GET \r\nHost: a\r\n\r\n", 101),
        (b"GET HTTP/1.1\r\nHost: a\r\n\r\n", 101),
        (b"GET  HTTP/1.1\r\nHost: a\r\n\r\n", 101),
        (b"GET /\r\n", 101),
        (b"GET / \r\nHost: a\r\n\r\n", 101),
        (b"GET / HTTP\r\nHost: a\r\n\r\n", 101),
        (b"GET / HTTP/\r\nHost: a\r\n\r\n", 101),
        (b"GET / HTTP/1\r\nHost: a\r\n\r\n", 101),
        (b"GET / HTTP/1.\r\nHost: a\r\n\r\n", 101),
        (b"GET / HTTP/.1\r\nHost: a\r\n\r\n", 101),
        (b"GET / HTTP/11\r\nHost: a\r\n\r\n", 101),
        (b"GET / HTTP/1.10\r\nHost: a\r\n\r\n", 101),
        (b"GET / HTTP/01.1\r\nHost: a\r\n\r\n", 101),
        (b"GET / HTTP/1.x\r\nHost: a\r\n\r\n", 101),
        (b"GET / HTTP/1,1\r\nHost: a\r\n\r\n", 101),
        (b"GET / http/1.1\r\nHost: a\r\n\r\n", 101),
        (b"GET / HTTPS/1.1\r\nHost: a\r\n\r\n", 101),
        (b"GET / ICY/1.1\r\nHost: a\r\n\r\n", 101),
        (b"GET /HTTP/1.1\r\nHost: a\r\n\r\n", 101),
        (b"GET / HTTP/1.1\x00\r\nHost: a\r\n\r\n", 101),
        (b": / HTTP/1.1\r\nHost: a\r\n\r\n", 101),
        // TLS on a plain port.
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 101),
        // Methods and versions.
        (b"get / HTTP/1.1\r\nHost: a\r\n\r\n", 103),
        (b"Get / HTTP/1.1\r\nHost: a\r\n\r\n", 103),
        (b"BREWBREWBREWBREWBREWBREWB / HTTP/1.1\r\nHost: a\r\n\r\n", 103),
        (b"trace / HTTP/1.1\r\nHost: a\r\n\r\n", 103),
        (b"TRACK / HTTP/1.1\r\nHost: a\r\n\r\n", 103),
        (b"PropFind / HTTP/1.1\r\nHost: a\r\n\r\n", 103),
        (b"PRI / HTTP/1.1\r\nHost: a\r\n\r\n", 103),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 104),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 104),
        (b"GET / HTTP/0.9\r\nHost: a\r\n\r\n", 104),
        (b"GET / HTTP/3.0\r\nHost: a\r\n\r\n", 104),
        // Targets.
        (b"GET * HTTP/1.1\r\nHost: a\r\n\r\n", 110),
        (b"GET a HTTP/1.1\r\nHost: a\r\n\r\n", 110),
        (b"GET /#a HTTP/1.1\r\nHost: a\r\n\r\n", 110),
        (b"GET /?a#b HTTP/1.1\r\nHost: a\r\n\r\n", 110),
        (b"GET /caf\xe9 HTTP/1.1\r\nHost: a\r\n\r\n", 110),
        (b"GET /?\x80 HTTP/1.1\r\nHost: a\r\n\r\n", 110),
        (b"GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n", 110),
        (b"GET http:// HTTP/1.1\r\nHost: a\r\n\r\n", 110),
        (b"GET http://u:p@b/ HTTP/1.1\r\nHost: a\r\n\r\n", 110),
        (b"GET ftp://b/ HTTP/1.1\r\nHost: a\r\n\r\n", 110),
        (b"CONNECT / HTTP/1.1\r\nHost: a\r\n\r\n", 110),
        (b"GET /../a HTTP/1.1\r\nHost: a\r\n\r\n", 111),
        (b"GET http://b/%2e%2e/a HTTP/1.1\r\nHost: a\r\n\r\n", 111),
        (b"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 112),
        (b"GET /a%00 HTTP/1.1\r\nHost: a\r\n\r\n", 113),
        (b"GET /a%2Fb HTTP/1.1\r\nHost: a\r\n\r\n", 114),
        (b"GET /a\\b HTTP/1.1\r\nHost: a\r\n\r\n", 115),
        (b"GET /a%5cb HTTP/1.1\r\nHost: a\r\n\r\n", 115),
        // Line ends.
        (b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 205),
        (b"\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", 205),
        (b"\r\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 205),
        (b"GET / HTTP/1.1\nHost: a\r\n\r\n", 205),
        (b"GET / HTTP/1.1\r\r\nHost: a\r\n\r\n", 205),
        (b"GET / HTTP/1.1\rHost: a\r\n\r\n", 205),
        (b"GET /\r HTTP/1.1\r\nHost: a\r\n\r\n", 205),
        (b"GET\r/ HTTP/1.1\r\nHost: a\r\n\r\n", 205),
        (b"GET /\n", 205),
    ];
    for (text, expected) in table {
        assert_eq!(rule(text), *expected, "{}", text.escape_ascii());
    }
}

#[test]
#[rustfmt::skip]
fn malformed_fields_are_refused() {
    // Field lines, placed between Host and the empty line of an HTTP/1.1 head.
    let table: &[(&[u8], u16)] = &[
        (b"X\r\n", 201),
        (b"no colon here\r\n", 201),
        (b"GET / HTTP/1.1\r\n", 201),
        (b": x\r\n", 202),
        (b"X : x\r\n", 202),
        (b"X\t: x\r\n", 202),
        (b"Content-Length : 5\r\n", 202),
        (b"Transfer-Encoding : chunked\r\n", 202),
        (b"X Y: x\r\n", 202),
        (b"X\0: x\r\n", 202),
        (b"X\x01: x\r\n", 202),
        (b"X\x7f: x\r\n", 202),
        (b"X\xe9: x\r\n", 202),
        (b"X(a): x\r\n", 202),
        (b"\"X\": x\r\n", 202),
        (b"X/Y: x\r\n", 202),
        (b"[X]: x\r\n", 202),
        (b"{X}: x\r\n", 202),
        (b"X@: x\r\n", 202),
        (b"\0: x\r\n", 202),
        (b"X: \0\r\n", 203),
        (b"X: a\0b\r\n", 203),
        (b"X: \x01\r\n", 203),
        (b"X: a\x08\r\n", 203),
        (b"X: a\x0bb\r\n", 203),
        (b"X: a\x0cb\r\n", 203),
        (b"X: \x1b[31m\r\n", 203),
        (b"X: a\x1f\r\n", 203),
        (b"X: a\x7f\r\n", 203),
        (b" X: x\r\n", 204),
        (b"\tX: x\r\n", 204),
        (b"X: x\r\n y\r\n", 204),
        (b"X: x\r\n\ty\r\n", 204),
        (b"X:\r\n x\r\n", 204),
        (b"X: x\r\n \r\n", 204),
        (b"X: x\n", 205),
        (b"X: x\nY: y\r\n", 205),
        (b"X: x\rY: y\r\n", 205),
        (b"X: x\r\r\n", 205),
        (b"X: \r\r\n", 205),
        (b"X\r: x\r\n", 205),
        (b"X\n: x\r\n", 205),
        (b"\rX: x\r\n", 205),
        (b"\n", 205),
        (b"\r\r\n", 205),
        (b"Host: a\r\n", 211),
        (b"Host: b\r\n", 211),
        (b"hOST: a\r\n", 211),
        (b"Authorization: a\r\nAuthorization: b\r\n", 213),
        (b"Expect: 100-continue, x\r\n", 214),
        (b"Expect: x\r\n", 214),
        (b"Expect:\r\n", 214),
        (b"Expect: x\r\nExpect: 100-continue\r\n", 214),
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 301),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 301),
        (b"Transfer-Encoding: gzip\r\nContent-Length: 5\r\n", 301),
        (b"Transfer-Encoding: chunked\r\nContent-Length: x\r\n", 301),
        (b"Content-Length: 5\r\nContent-Length: 6\r\n", 302),
        (b"Content-Length: 5\r\nContent-Length: 5\r\n", 302),
        (b"Content-Length: 5\r\nX: y\r\ncontent-length: 5\r\n", 302),
        (b"Content-Length: +5\r\n", 303),
        (b"Content-Length: -5\r\n", 303),
        (b"Content-Length: 5, 5\r\n", 303),
        (b"Content-Length: 5,6\r\n", 303),
        (b"Content-Length: 5 5\r\n", 303),
        (b"Content-Length: 0x5\r\n", 303),
        (b"Content-Length: 5.0\r\n", 303),
        (b"Content-Length: 5;\r\n", 303),
        (b"Content-Length: \"5\"\r\n", 303),
        (b"Content-Length: five\r\n", 303),
        (b"Content-Length:\r\n", 303),
        (b"Content-Length: 1_000\r\n", 303),
        (b"Content-Length: \xb2\r\n", 303),
        (b"Content-Length: 18446744073709551616\r\n", 303),
        (b"Content-Length: 99999999999999999999999999\r\n", 303),
        (b"Transfer-Encoding: gzip\r\n", 312),
        (b"Transfer-Encoding: identity\r\n", 312),
        (b"Transfer-Encoding: gzip, chunked\r\n", 305),
        (b"Transfer-Encoding: chunked, gzip\r\n", 312),
        (b"Transfer-Encoding: chunked, chunked\r\n", 312),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 312),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", 312),
        (b"Transfer-Encoding: xchunked\r\n", 312),
        (b"Transfer-Encoding: chunked;q=1\r\n", 312),
        (b"Transfer-Encoding: \"chunked\"\r\n", 312),
        (b"Transfer-Encoding: chunked,\r\n", 312),
        (b"Transfer-Encoding: ,chunked\r\n", 305),
        (b"Transfer-Encoding: \xe9\r\n", 312),
        (b"Transfer-Encoding:\r\n", 312),
        (b"Transfer-Encoding: chunked, gzip, chunked\r\n", 312),
        (b"Transfer-Encoding: gzip, chunked, chunked\r\n", 312),
        (b"Transfer-Encoding: gzip, chunked,\r\n", 312),
        (b"Transfer-Encoding: gzip;a=\"b, chunked\"\r\n", 312),
        (b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", 305),
        (b"Transfer-Encoding: gzip, deflate ,\tChunked\r\n", 305),
        (b"Transfer-Encoding: \x0bchunked\r\n", 203),
    ];
    for (fields, expected) in table {
        let text = [b"GET / HTTP/1.1\r\nHost: a\r\n", *fields, b"\r\n"].concat();
        assert_eq!(rule(&text), *expected, "{}", text.escape_ascii());
    }
}

#[test]
#[rustfmt::skip]
fn hosts_are_checked_by_version() {
    let table: &[(&[u8], u16)] = &[
        (b"GET / HTTP/1.1\r\n\r\n", 210),
        (b"GET / HTTP/1.1\r\nX-Host: a\r\n\r\n", 210),
        (b"GET http://b/ HTTP/1.1\r\n\r\n", 210),
        (b"OPTIONS * HTTP/1.1\r\n\r\n", 210),
        (b"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", 211),
        (b"GET http://b/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 211),
        (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", 212),
        (b"GET / HTTP/1.0\r\nHost:\r\n\r\n", 212),
        (b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 212),
        (b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 212),
        (b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 212),
        (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 212),
        (b"GET / HTTP/1.1\r\nHost: ..\r\n\r\n", 212),
        (b"GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", 212),
        (b"GET / HTTP/1.1\r\nHost: a:99999\r\n\r\n", 212),
        (b"GET / HTTP/1.1\r\nHost: http://a\r\n\r\n", 212),
        (b"GET http://b/ HTTP/1.1\r\nHost: a b\r\n\r\n", 212),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 304),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: gzip\r\n\r\n", 304),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 301),
    ];
    for (text, expected) in table {
        assert_eq!(rule(text), *expected, "{}", text.escape_ascii());
    }
}

#[test]
fn partial_heads_are_partial_or_refused() {
    let table: &[&[u8]] = &[
        b"",
        b"\r",
        b"\r\n",
        b"G",
        b"GET / HTTP/1.1",
        b"GET / HTTP/1.1\r",
        b"GET / HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r",
        // A line is checked once complete.
        b"GET / HTTP/1.1\r\nBad Name: x",
        b"GET / HTTP/9.9",
    ];
    for text in table {
        assert_eq!(rule(text), 1, "{}", text.escape_ascii());
    }
    for end in 0..BROWSER.len() {
        assert!(matches!(
            parse_head(
                &BROWSER[..end],
                &mut Vec::new(),
                &mut 0,
                &HeadLimits::default()
            ),
            Ok(ParsedHead::Partial)
        ));
    }
}

/// Checks that raw UTF-8 in a target is percent-encoded in every part of the head, and that the body follows in its place.
#[test]
fn raw_utf_8_in_a_target_is_encoded() {
    let text =
        "GET http://a/\u{e9}/..?\u{65e5} HTTP/1.1\r\nHost: a\r\nX: \u{e9}\r\n\r\nbody".as_bytes();
    let (head, head_bytes) = complete(text);
    assert_eq!(head.line, b"GET http://a/%C3%A9/..?%E6%97%A5 HTTP/1.1");
    assert_eq!(
        (head.raw_path, &*head.path),
        (&b"/%C3%A9/.."[..], &b"/"[..])
    );
    assert_eq!(head.query, Some(&b"%E6%97%A5"[..]));
    assert_eq!(head.fields.first("x"), Some("\u{e9}".as_bytes()));
    assert_eq!(&text[head_bytes..], b"body");
    assert_eq!(
        verdict(text, &HeadLimits::default()).map(|it| it.is_some()),
        Ok(true)
    );
    // The limit holds for the encoded line.
    let limits = HeadLimits {
        request_line_bytes: 30,
        ..HeadLimits::default()
    };
    let text = "GET /\u{e9}\u{e9}\u{e9}\u{e9}\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n".as_bytes();
    assert_eq!(verdict(text, &limits), Err(Reject::LINE_TOO_LONG));
    for target in [
        &b"/\xe9"[..],
        b"/?\xc0\xaf",
        b"/#\xc3\xa9",
        b"\xc3\xa9",
        b"/\xc3\xa9\x7f",
    ] {
        let text = [b"GET ", target, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        let refused = verdict(&text, &HeadLimits::default());
        assert_eq!(
            refused,
            Err(Reject::TARGET_MALFORMED),
            "{}",
            target.escape_ascii()
        );
    }
}

#[test]
fn limits_hold_for_whole_and_partial_heads() {
    let limits = HeadLimits {
        request_line_bytes: 20,
        head_bytes: 60,
        fields: 3,
        ..HeadLimits::default()
    };
    let rule = |text: &str| match verdict(text.as_bytes(), &limits) {
        Ok(whole) => u16::from(whole.is_none()),
        Err(reject) => reject.rule,
    };
    #[rustfmt::skip] // Keeps the columns of the table.
    let table = [
        ("GET /67890 HTTP/1.1\r\nHost: a\r\n\r\n", 0),
        ("GET /567890 HTTP/1.1\r\nHost: a\r\n\r\n", 0),
        ("\r\nGET /567890 HTTP/1.1\r\nHost: a\r\n\r\n", 0),
        ("GET /5678901 HTTP/1.1\r\nHost: a\r\n\r\n", 102),
        ("\r\nGET /5678901 HTTP/1.1\r\nHost: a\r\n\r\n", 102),
        ("GET /567890 HTTP/1.1", 1),
        ("GETGETGETGETGETGETGE", 1),
        ("GETGETGETGETGETGETGET", 102),
        ("GETGETGETGET /34567890 HTTP/1.1\r\n\r\n", 102),
        ("GETGETGETGET / HTTP/1.1\r\n\r\n", 102),
        ("get /567890123456789012", 103),
        ("GET(GETGETGETGETGETGETGET", 102),
        ("GET /567890 HTTP/1.1\r", 1),
        ("GET /567890 HTTP/1.1\rX", 102),
        ("GET /567890 HTTP/1.1\n", 205),
        ("GET /567890 HTTP/1.1X", 102),
        ("GET /567890123456789", 1),
        ("GET /5678901234567890", 102),
        ("GET /5678901234567890 HTTP/1.1\r\n\r\n", 102),
        // 18 bytes before the value, 4 bytes behind.
        ("GET / HTTP/1.1\r\nA:12345678901234567890123456789\r\nHost: a\r\n\r\n", 0),
        ("GET / HTTP/1.1\r\nA:123456789012345678901234567890\r\nHost: a\r\n\r\n", 206),
        ("GET / HTTP/1.1\r\nA:123456789012345678901234567890123456789012", 1),
        ("GET / HTTP/1.1\r\nA:1234567890123456789012345678901234567890123", 206),
        ("GET / HTTP/1.1\r\nBad Name:123456789012345678901234567890123\r\n", 202),
        ("GET / HTTP/1.1\r\nBad Name:1234567890123456789012345678901234\r\n", 206),
        ("GET / HTTP/1.1\r\nA:\r\nB:\r\nHost:a\r\n\r\n", 0),
        ("GET / HTTP/1.1\r\nA:\r\nB:\r\nHost:a\r\nC:\r\n\r\n", 207),
        ("GET / HTTP/1.1\r\nA:\r\nB:\r\nHost:a\r\nC", 1),
    ];
    for (text, expected) in table {
        assert_eq!(rule(text), expected, "{text:?} of {} bytes", text.len());
    }
}

/// The default limits at their exact bounds, byte by byte.
#[test]
fn default_limits_hold_byte_by_byte() {
    let limits = HeadLimits::default();
    let line = |bytes: usize| format!("GET /{} HTTP/1.1", "a".repeat(bytes - 14));
    let fits = line(limits.request_line_bytes) + "\r\nHost: a\r\n\r\n";
    assert!(
        invariants::head_byte_by_byte(fits.as_bytes(), &limits).is_ok_and(|whole| whole.is_some())
    );
    for over in [
        line(limits.request_line_bytes + 1),
        line(40_000),
        line(9_000) + "\r\nHost: a\r\n\r\n",
    ] {
        let found = invariants::head_byte_by_byte(over.as_bytes(), &limits);
        assert_eq!(found, Err(Reject::LINE_TOO_LONG));
    }
    let sized = |bytes: usize| format!("{BRIEF}X:{}\r\n\r\n", "a".repeat(bytes - BRIEF.len() - 6));
    const BRIEF: &str = "GET / HTTP/1.1\r\nHost: a\r\n";
    let fits = sized(limits.head_bytes);
    assert!(
        invariants::head_byte_by_byte(fits.as_bytes(), &limits).is_ok_and(|whole| whole.is_some())
    );
    let over = sized(limits.head_bytes + 1);
    let found = invariants::head_byte_by_byte(over.as_bytes(), &limits);
    assert_eq!(found, Err(Reject::HEAD_TOO_LARGE));
    let many = |fields: usize| BRIEF.to_owned() + &"X:\r\n".repeat(fields - 1) + "\r\n";
    assert!(invariants::head_verdict(many(limits.fields).as_bytes(), &mut 0, &limits).is_ok());
    let found = invariants::head_byte_by_byte(many(limits.fields + 1).as_bytes(), &limits);
    assert_eq!(found, Err(Reject::FIELDS_TOO_MANY));
}

/// A head that arrives byte by byte is parsed at most once for each line.
#[test]
fn slow_heads_are_parsed_once_a_line() {
    let limits = HeadLimits::default();
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX:{}", "a".repeat(16_000));
    let bounds = RequestHeadLimits::new(&limits);
    let parsed = (1..head.len())
        .filter(|&end| without_new_line(&head.as_bytes()[..=end], end, &bounds).is_none())
        .count();
    assert!(parsed < 16, "{parsed}");
}

#[test]
fn the_host_of_the_target_takes_precedence() {
    let table = [
        (
            "GET / HTTP/1.1\r\nHost: Example.org:80\r\n\r\n",
            "Example.org",
        ),
        ("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "[::1]"),
        ("GET http://b:81/ HTTP/1.1\r\nHost: a\r\n\r\n", "b"),
        ("GET http://b/ HTTP/1.0\r\n\r\n", "b"),
        ("CONNECT b:443 HTTP/1.1\r\nHost: a\r\n\r\n", "b"),
        ("GET / HTTP/1.0\r\n\r\n", ""),
    ];
    for (text, host) in table {
        assert_eq!(complete(text.as_bytes()).0.host, host.as_bytes(), "{text}");
    }
}

#[test]
#[rustfmt::skip]
fn keep_alive_follows_version_and_connection_field() {
    let table = [
        ("1.1", "", true),
        ("1.1", "Connection: keep-alive\r\n", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: Close\r\n", false),
        ("1.1", "Connection: upgrade, CLOSE\r\n", false),
        ("1.1", "Connection: upgrade\r\nConnection: close\r\n", false),
        ("1.1", "Connection: close\r\nConnection: keep-alive\r\n", false),
        ("1.1", "Connection: keep-alive, close\r\n", false),
        ("1.1", "Connection: closed\r\n", true),
        ("1.1", "Connection:\r\n", true),
        ("1.1", "X-Connection: close\r\n", true),
        ("1.2", "", true),
        ("1.0", "", false),
        ("1.0", "Connection: close\r\n", false),
        ("1.0", "Connection: keep-alive\r\n", true),
        ("1.0", "Connection: Keep-Alive, Upgrade\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ];
    for (version, fields, stays) in table {
        let text = format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
        assert_eq!(complete(text.as_bytes()).0.keep_alive, stays, "{text:?}");
    }
}

#[test]
fn a_tunnel_is_asked_for_by_upgrade() {
    let websocket = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n";
    for (line, fields, expected) in [
        ("GET / HTTP/1.1", websocket, Some("websocket")),
        ("GET / HTTP/1.9", websocket, Some("websocket")),
        ("GET / HTTP/1.0", websocket, None),
        ("HEAD / HTTP/1.1", websocket, None),
        ("OPTIONS * HTTP/1.1", websocket, None),
        ("CONNECT a:1 HTTP/1.1", websocket, None),
        ("GET / HTTP/1.1", "Upgrade: websocket\r\n", None),
        ("GET / HTTP/1.1", "Connection: Upgrade\r\n", None),
        (
            "GET / HTTP/1.1",
            "Connection: close\r\nUpgrade: a\r\n",
            None,
        ),
        (
            "GET / HTTP/1.1",
            "connection: close\r\nConnection: UPGRADE\r\nuPGRADE: IRC/6.9\r\n",
            Some("IRC/6.9"),
        ),
        (
            "GET / HTTP/1.1",
            "Connection: upgrade\r\nUpgrade: a, b\r\n",
            None,
        ),
        (
            "GET / HTTP/1.1",
            "Connection: upgrade\r\nUpgrade:\r\n",
            None,
        ),
        (
            "GET / HTTP/1.1",
            "Connection: upgrade\r\nUpgrade: a\r\nUpgrade: a\r\n",
            None,
        ),
        (
            "GET / HTTP/1.1",
            "Connection: upgrade\r\nUpgrade: h2c\r\n",
            None,
        ),
        (
            "GET / HTTP/1.1",
            "Connection: upgrade\r\nUpgrade: TLS/1.0\r\n",
            None,
        ),
    ] {
        let text = format!("{line}\r\nHost: a\r\n{fields}\r\n");
        let upgrade = complete(text.as_bytes()).0.upgrade;
        assert_eq!(upgrade, expected.map(str::as_bytes), "{text:?}");
    }
    for (length, expected) in [
        ("Content-Length: 0\r\n", Some("websocket")),
        ("Content-Length: 1\r\n", None),
        ("Transfer-Encoding: chunked\r\n", None),
    ] {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{websocket}{length}\r\n");
        let upgrade = complete(text.as_bytes()).0.upgrade;
        assert_eq!(upgrade, expected.map(str::as_bytes), "{length:?}");
    }
}

#[test]
fn trailers_are_accepted_by_te() {
    for (lines, expected) in [
        ("", false),
        ("TE:\r\n", false),
        ("TE: gzip\r\n", false),
        ("te: Trailers\r\n", true),
        ("TE: gzip;q=0.5, trailers\r\n", true),
        ("TE: trailers\r\nTE: gzip\r\n", true),
        ("TE: trailers;q=1\r\n", false),
    ] {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let head = complete(text.as_bytes()).0;
        assert_eq!(head.accepts_trailers, expected, "{lines:?}");
    }
}

#[test]
#[rustfmt::skip]
fn body_lengths_and_expectations_are_determined() {
    let table = [
        ("1.1", "", BodyLength::None, false),
        ("1.1", "Content-Length: 0\r\n", BodyLength::Length(0), false),
        ("1.1", "Content-Length: 0017\r\n", BodyLength::Length(17), false),
        ("1.1", "Content-Length: 18446744073709551615\r\n", BodyLength::Length(u64::MAX), false),
        ("1.1", "Transfer-Encoding: Chunked\r\n", BodyLength::Chunked, false),
        ("1.0", "Content-Length: 5\r\n", BodyLength::Length(5), false),
        ("1.1", "Expect: 100-continue\r\nContent-Length: 5\r\n", BodyLength::Length(5), true),
        ("1.1", "Expect: 100-CONTINUE\r\nExpect: 100-continue\r\n", BodyLength::None, true),
        // An HTTP/1.0 client does not know interim responses (RFC 9110 §10.1.1).
        ("1.0", "Expect: 100-continue\r\nContent-Length: 5\r\n", BodyLength::Length(5), false),
    ];
    for (version, fields, body, expects) in table {
        let text = format!("POST / HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
        let (head, _) = complete(text.as_bytes());
        assert_eq!((head.body, head.expect_continue), (body, expects), "{text:?}");
    }
}

#[test]
fn duplicate_fields_are_joined_ignored_or_refused() {
    let text = b"GET / HTTP/1.1\r\nHost: a\r\n\
        Range: bytes=0-1\r\nrange: bytes=2-3\r\nRANGE: bytes=4-5\r\n\
        If-Range: \"a\"\r\nIf-Range: \"a\"\r\n\
        If-Modified-Since: x\r\nIf-Modified-Since: y\r\n\
        If-Unmodified-Since: x\r\nIf-Unmodified-Since: y\r\n\
        Referer: x\r\nReferer: y\r\n\
        User-Agent: x\r\nUser-Agent: y\r\n\
        If-Match: \"a\"\r\nIf-Match: \"b\"\r\nif-match: \"c\"\r\n\
        If-None-Match: *\r\nif-none-match: \"d\"\r\n\
        Accept-Encoding: gzip\r\nAccept-Encoding: br\r\n\r\n";
    let (head, _) = complete(text);
    let asks = &head.known_fields;
    assert_eq!(asks.range, None);
    assert_eq!(asks.if_range, Some(&b""[..]));
    assert_eq!(asks.if_modified_since, Some(&b""[..]));
    assert_eq!(asks.if_unmodified_since, Some(&b""[..]));
    assert_eq!(asks.referer, Some(&b"x"[..]));
    assert_eq!(asks.user_agent, Some(&b"x"[..]));
    let lines = |values: &FieldValues<'_>| -> Vec<String> {
        let lines = values.lines().map(String::from_utf8_lossy);
        lines.map(|line| line.into_owned()).collect()
    };
    assert_eq!(lines(&asks.if_match), ["\"a\"", "\"b\"", "\"c\""]);
    assert_eq!(lines(&asks.if_none_match), ["*", "\"d\""]);
    assert_eq!(lines(&asks.accept_encoding), ["gzip", "br"]);
    let once = complete(b"GET / HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1\r\n\r\n").0;
    assert_eq!(once.known_fields.range, Some(&b"bytes=0-1"[..]));
}

#[test]
fn the_first_line_is_found_for_the_log() {
    let table: &[(&[u8], &[u8])] = &[
        (b"", b""),
        (b"GET", b"GET"),
        (b"GET / HTTP/1.1\r\nHost: a", b"GET / HTTP/1.1"),
        (b"\r\nGET / HTTP/1.1\nHost: a", b"GET / HTTP/1.1"),
        (b"GET /\rX", b"GET /"),
        (b"\n", b""),
    ];
    for (text, line) in table {
        assert_eq!(first_line(text), *line);
    }
}

proptest! {
    #[test]
    fn invariants_of_arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        invariants::head(&bytes);
    }

    #[test]
    fn invariants_of_near_heads(
        line in "(\r\n)?(GET|HEAD|OPTIONS|POST|CONNECT|PROPFIND|GOT) (/|\\*|http://a/|/[a-z%2.]{0,8}) HTTP/1\\.[01]",
        fields in proptest::collection::vec(
            "(\r\n|\r\n|\r\n|\n|\r|\r\n )(Host|host|Range|Content-Length|Transfer-Encoding|Connection|\
             Accept-Encoding|If-None-Match|Expect|X) ?: ?(a|chunked|5|close|gzip, br|\"a\", W/\"b\"|\
             100-continue|bytes=0-1|\t|\u{7f}|\0)?", 0..6),
        end in "\r\n\r\n|\r\n\r|\n\n|"
    ) {
        let text = line + "\r\nHost: a" + &fields.concat() + &end;
        invariants::head(text.as_bytes());
        invariants::head(text.replacen("\r\nHost: a", "", 1).as_bytes());
    }
}
