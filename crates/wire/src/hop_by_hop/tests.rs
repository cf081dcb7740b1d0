use super::*;
use proptest::prelude::*;

fn request(fields: &str) -> String {
    let mut out = b"start\r\n".to_vec();
    let copied = copy_request_fields(Fields(fields.as_bytes()), &mut out, |_, _| false);
    assert!(copied.is_ok(), "{fields}");
    let out = String::from_utf8_lossy(&out).into_owned();
    out.strip_prefix("start\r\n")
        .expect("the earlier bytes")
        .to_owned()
}

fn response(fields: &str) -> String {
    let mut out = Vec::new();
    let copied = copy_response_fields(Fields(fields.as_bytes()), &mut out, |_, _| false);
    assert_eq!(copied, Ok(()), "{fields}");
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
#[rustfmt::skip] // Keeps the columns of the table.
fn fields_of_the_connection_are_removed() {
    let table = [
        ("", ""),
        ("Host: a\r\nX: y\r\n", "Host: a\r\nX: y\r\n"),
        ("Host: a\r\nConnection: keep-alive\r\nX: y\r\n", "Host: a\r\nX: y\r\n"),
        ("connection:close\r\nX: y\r\nKEEP-ALIVE: timeout=5\r\n", "X: y\r\n"),
        ("Upgrade: h2c\r\nHTTP2-Settings: AAMA\r\nConnection: Upgrade, HTTP2-Settings\r\n", ""),
        ("Proxy-Connection: keep-alive\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n", ""),
        ("Proxy-Authorization: Basic eA==\r\nProxy-Authenticate: Basic\r\n", ""),
        ("Proxy-Authentication-Info: a\r\nTrailer: X\r\n", "Trailer: X\r\n"),
        ("A: b\r\nX-Hop: 1\r\nConnection: x-hop\r\nB: c\r\n", "A: b\r\nB: c\r\n"),
        ("Connection: close, A ,\r\nA: b\r\nB: c\r\nConnection:B\r\na: d\r\n", ""),
        ("Connection: \"a\"\r\nA: b\r\n", "A: b\r\n"),
        // Lines are written anew with one space.
        ("A:b\r\nC: d\r\nE:\r\nF: \t g \r\nH: \r\n", "A: b\r\nC: d\r\nE: \r\nF: g\r\nH: \r\n"),
        ("A:\tb\r\nC: d\n", "A: b\r\nC: d\r\n"),
    ];
    for (fields, expected) in table {
        assert_eq!(request(fields), expected, "{fields:?}");
        assert_eq!(response(fields), expected, "{fields:?}");
    }
}

#[test]
fn connection_never_removes_fields_for_all_recipients() {
    for name in [
        "Host",
        "Content-Length",
        "Content-Type",
        "Authorization",
        "Cookie",
        "X-Forwarded-For",
        "X-FORWARDED-Proto",
        "Forwarded",
        "Via",
        "X-Real-IP",
        "True-Client-IP",
        "X-Original-URL",
        "Cache-Control",
        "Set-Cookie",
        "Range",
        "If-Match",
        "Accept-Encoding",
        "Sec-WebSocket-Key",
        "Origin",
        "Date",
        "Vary",
        "ETag",
        "Expect",
        "Content-Digest",
        "User-Agent",
    ] {
        let fields = format!("{name}: a\r\nX-Hop: b\r\n");
        let listed = format!("{fields}Connection: close, {name}, x-hop\r\n");
        assert_eq!(request(&listed), format!("{name}: a\r\n"));
        assert_eq!(response(&listed), format!("{name}: a\r\n"));
    }
}

#[test]
fn ambiguous_names_are_removed_from_requests() {
    let fields = "X_Forwarded_For: a\r\nContent_Length: 5\r\nX.Y: c\r\nX-1: d\r\n";
    assert_eq!(request(fields), "X-1: d\r\n");
    assert_eq!(response(fields), fields);
}

#[test]
fn trailers_are_accepted_by_te() {
    for (te, accepts) in [
        ("TE: trailers\r\n", true),
        ("te: gzip;q=0.5, Trailers\r\n", true),
        ("TE: gzip\r\nTE: trailers\r\nConnection: TE, x\r\n", true),
        ("TE: trailers;q=1\r\n", false),
        ("TE: gzip\r\n", false),
        ("TEE: trailers\r\n", false),
        ("", false),
    ] {
        let mut out = Vec::new();
        let copied = copy_request_fields(Fields(te.as_bytes()), &mut out, |_, _| false);
        let expected = CopiedRequestFields {
            accepts_trailers: accepts,
        };
        assert_eq!(copied, Ok(expected), "{te}");
    }
}

#[test]
fn the_caller_removes_further_fields() {
    let fields = Fields(b"Host: a\r\nX: y\r\nX: z\r\nConnection: B\r\nB: c\r\nD: e\r\n");
    let mut out = Vec::new();
    let is_removed =
        |name: &[u8], value: &[u8]| name.eq_ignore_ascii_case(b"host") || value == b"z";
    assert!(copy_request_fields(fields, &mut out, is_removed).is_ok());
    assert_eq!(String::from_utf8_lossy(&out), "X: y\r\nD: e\r\n");
}

#[test]
fn connection_options_are_bounded() {
    let listed = |count: usize| {
        let names: Vec<String> = (0..count).map(|nth| format!("x{nth}")).collect();
        let known = "close, Host, keep-alive, x0, X1, ".repeat(50);
        format!(
            "X0: a\r\nY: b\r\nConnection: {known}{}\r\n",
            names.join(",")
        )
    };
    let fits = listed(CONNECTION_OPTIONS_MAX);
    assert_eq!(request(&fits), "Y: b\r\n");
    let over = listed(CONNECTION_OPTIONS_MAX + 1);
    let mut out = b"start".to_vec();
    let copied = copy_response_fields(Fields(over.as_bytes()), &mut out, |_, _| false);
    assert_eq!(copied, Err(TooManyConnectionOptions));
    assert_eq!(out, b"start");
}

/// Copies the lines by the plain definition.
fn slow_copy(fields: &str) -> String {
    let lines: Vec<(&str, &str)> = fields
        .split_terminator("\r\n")
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name, value.trim_matches([' ', '\t'])))
        .collect();
    let connections = lines
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("connection"));
    let options: Vec<String> = connections
        .flat_map(|(_, value)| value.split(','))
        .map(|option| option.trim_matches([' ', '\t']).to_ascii_lowercase())
        .collect();
    let kept = lines.iter().filter(|(name, _)| {
        let name = name.to_ascii_lowercase();
        let is_listed = options.contains(&name) && name != "host" && name != "close";
        !is_listed && !["connection", "keep-alive", "te"].contains(&&*name)
    });
    kept.map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect()
}

proptest! {
    #[test]
    fn lines_are_copied_as_by_the_plain_definition(
        lines in proptest::collection::vec(
            "(Host|A|a|B|Keep-Alive|TE|Close|Connection|connection):[ \t]?(a|b|close, A|b,\tHost|keep-alive| )[ ]?",
            0..8)
    ) {
        let fields: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        prop_assert_eq!(request(&fields), slow_copy(&fields));
        prop_assert_eq!(response(&fields), slow_copy(&fields));
    }
}
