//! Response heads of scripts split at every byte, and variables that no client can forge.

use super::*;
use crate::invariants;
use crate::limits::STATUS_REASON_BYTES_MAX;
use proptest::prelude::*;

fn parse(text: &str) -> Result<Option<(CgiResponse, usize)>, CgiHeadError> {
    CgiResponse::parse(text.as_bytes(), &mut 0)
}

fn document(text: &str) -> CgiDocument {
    match parse(text) {
        Ok(Some((CgiResponse::Document(document), _))) => document,
        other => panic!("{text:?}: {other:?}"),
    }
}

const GOOD: [&str; 4] = [
    "Content-Type: text/plain\n\nbody",
    "Status: 404 Not Found\r\nContent-Type:text/html \r\nX-A: b\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\r\nbody",
    "Location: /other?x=1\n\nbody",
    "HTTP/1.1 201 Created\r\nContent-Type: a/b\nContent-Length: 4\r\n\nbody",
];

#[test]
fn heads_at_every_split_point() {
    for text in GOOD {
        let whole = parse(text).unwrap().expect("a head");
        assert_eq!(&text[whole.1..], "body");
        for cut in 0..whole.1 {
            let mut scanned = 0;
            assert_eq!(
                CgiResponse::parse(&text.as_bytes()[..cut], &mut scanned),
                Ok(None)
            );
            let rest = CgiResponse::parse(text.as_bytes(), &mut scanned);
            assert_eq!(rest, Ok(Some(whole.clone())), "{text:?} cut at {cut}");
        }
        let mut scanned = 0;
        let bytewise = (0..=text.len())
            .find_map(|end| CgiResponse::parse(&text.as_bytes()[..end], &mut scanned).transpose());
        assert_eq!(bytewise, Some(Ok(whole)));
    }
}

#[test]
fn document_heads_are_parsed() {
    assert_eq!(document(GOOD[0]).status.0, 200);
    let second = document(GOOD[1]);
    assert_eq!(second.status.0, 404);
    let names: Vec<&str> = second
        .fields
        .iter()
        .map(|(name, _)| std::str::from_utf8(name).expect("a name"))
        .collect();
    assert_eq!(names, ["Content-Type", "X-A", "Set-Cookie", "Set-Cookie"]);
    assert_eq!(second.fields.first("Content-Type"), Some(&b"text/html"[..]));
    let fourth = document(GOOD[3]);
    assert_eq!((fourth.status.0, fourth.length), (201, Some(4)));
    // Fields keep the order of the script.
    let ordered = document(
        "Expires: 0\nStatus: 301 x\nContent-type: a/b\nContent-Length: 1\nlocation: /c\nX-A: b\nLocation: /c\n\n",
    );
    let names: Vec<&str> = ordered
        .fields
        .iter()
        .map(|(name, _)| std::str::from_utf8(name).expect("a name"))
        .collect();
    assert_eq!(names, ["Expires", "Content-Type", "Location", "X-A"]);
    // Fields that the server sets are left out.
    let fields =
        document("Content-Type: a/b\nDate: now\nserver: x\nConnection: close\nKeep-Alive: 1\n\n");
    assert_eq!(fields.fields.iter().count(), 1);
    // A script may send its own Date: the first valid Date counts.
    let when = "Sun, 06 Nov 1994 08:49:37 GMT";
    let dated = document(&format!(
        "Date: x\nStatus: 200\nDate: {when}\ndate: {when}\n\n"
    ));
    assert_eq!(dated.fields.lines(), format!("Date: {when}\r\n").as_bytes());
    // Fields that Connection names are dropped, wherever Connection stands among the fields.
    // Cache-Control is never dropped.
    let text = "X-A: 1\nConnection: x-a, close\nX-C: 3\nConnection: X-B , cache-control\nx-b: 2\n\
        Cache-Control: private\nContent-Type: a/b\n\n";
    let named = document(text).fields;
    let text = |name| std::str::from_utf8(name).expect("a name");
    let names: Vec<&str> = named.iter().map(|(name, _)| text(name)).collect();
    assert_eq!(names, ["X-C", "Cache-Control", "Content-Type"]);
    // A page that varies by a request field must not be stored for all clients.
    let named =
        document("Connection: vary, Set-Cookie\nVary: X-A\nSet-Cookie: a=b\nContent-Type: a/b\n\n");
    let names: Vec<&str> = named.fields.iter().map(|(name, _)| text(name)).collect();
    assert_eq!(names, ["Vary", "Set-Cookie", "Content-Type"]);
    // A repeated equal value counts once.
    assert_eq!(
        document("Content-Type: a/b\nContent-Type: a/b\n\n")
            .fields
            .iter()
            .count(),
        1
    );
    assert_eq!(document("Status: 204\n\n").status.0, 204);
}

#[test]
fn reason_phrases_are_kept_or_filled_in() {
    let long = "x".repeat(STATUS_REASON_BYTES_MAX);
    for (head, reason) in [
        (
            "Status: 404 Something else\n\n".to_owned(),
            "Something else",
        ),
        ("Status: 404   Nicht da \r\n\r\n".to_owned(), "Nicht da"),
        (
            "Status: 404 caf\u{e9}\tnoir\n\n".to_owned(),
            "caf\u{e9}\tnoir",
        ),
        (
            "HTTP/1.1 404 Something else\nA: b\n\n".to_owned(),
            "Something else",
        ),
        (
            "HTTP/1.0 404 First\nStatus: 404 Second\n\n".to_owned(),
            "First",
        ),
        ("HTTP/1.0 404\nStatus: 404 Second\n\n".to_owned(), "Second"),
        (format!("Status: 404 {long}\n\n"), &long),
        // The expected reason is the phrase of the IANA registry.
        ("Status: 404 Not Found\n\n".to_owned(), "Not Found"),
        ("Status: 404\n\n".to_owned(), "Not Found"),
        ("Status: 404 \n\n".to_owned(), "Not Found"),
        (format!("Status: 404 {long}x\n\n"), "Not Found"),
        ("HTTP/1.1 404 a\x01b\nA: b\n\n".to_owned(), "Not Found"),
        ("HTTP/1.1 404 a\rb\nA: b\n\n".to_owned(), "Not Found"),
        ("Status: 299\n\n".to_owned(), ""),
    ] {
        let status = document(&head).status;
        assert_eq!(status.reason(), reason.as_bytes(), "{head:?}");
        let mut line = Vec::new();
        status.push(&mut line);
        let expected = format!("HTTP/1.1 {} {reason}\r\n", status.0);
        assert_eq!(line, expected.as_bytes());
    }
    let wrong = CgiHeadError::Malformed("two values for one field");
    let text = "Status: 404 Same\nStatus: 403 Same\n\n";
    assert_eq!(parse(text), Err(wrong));
}

#[test]
fn local_and_client_redirects_are_distinguished() {
    let local = |text: &str| matches!(parse(text), Ok(Some((CgiResponse::LocalRedirect(_), _))));
    assert!(local("Location: /a\n\n"));
    assert!(local("Location: /a?b=c\r\n\r\n"));
    for text in [
        "Location: /a\nContent-Type: a/b\n\n",
        "Location: /a\nContent-Length: 0\n\n",
        "Location: /a#b\n\n",
        "Location: /a?b#c\n\n",
    ] {
        assert_eq!(document(text).status.0, 302, "{text:?}");
    }
    assert!(!local("Location: //evil.test/a\n\n"));
    assert!(!local("Location: https://a.test/\n\n"));
    assert!(!local("Status: 302\nLocation: /a\n\n"));
    // A redirect with a cookie is left to the client.
    let cookie = document("Location: /a\nSet-Cookie: b=c\n\n");
    assert_eq!(cookie.status.0, 302);
    assert_eq!(cookie.fields.iter().count(), 2);
    assert_eq!(document("Location: https://a.test/\n\n").status.0, 302);
    assert_eq!(document("Status: 301 Gone\nLocation: b\n\n").status.0, 301);
}

#[test]
fn malformed_heads_are_refused() {
    for text in [
        "\nbody",
        "\r\nbody",
        "hello\n\n",
        "X-A: b\n\n",
        "Content-Type: a/b\n folded\n\n",
        "Content-Type : a/b\n\n",
        ": a/b\n\n",
        "Content-Type: a\0b\n\n",
        "Content-Type: a/b\rX: y\n\n",
        "Content-Type: a/b\nContent-Type: c/d\n\n",
        "Content-Type: a/b\nContent-Length: 1\nContent-Length: 2\n\n",
        "Content-Type: a/b\nContent-Length: -1\n\n",
        "Content-Type: a/b\nContent-Length: \n\n",
        "Content-Type: a/b\nTransfer-Encoding: chunked\n\n",
        "Status: 100 Continue\n\n",
        "Status: 600\n\n",
        "Status: 20\n\n",
        "Status: 200OK\n\n",
        "Status: two hundred\n\n",
        "HTTP/1.1\n\n",
        "HTTP/2 200\n\n",
    ] {
        let wrong = parse(text);
        assert!(
            matches!(wrong, Err(CgiHeadError::Malformed(_))),
            "{text:?}: {wrong:?}"
        );
    }
    let long = format!(
        "Content-Type: a/b\nX-A: {}\n\n",
        "x".repeat(CGI_HEAD_BYTES_MAX)
    );
    assert_eq!(parse(&long), Err(CgiHeadError::TooLarge));
    assert_eq!(
        parse(&long[..CGI_HEAD_BYTES_MAX]),
        Err(CgiHeadError::TooLarge)
    );
    let many = "X-A: b\n".repeat(CGI_FIELDS_MAX + 1) + "\n";
    assert_eq!(parse(&many), Err(CgiHeadError::TooLarge));
}

fn meta<'a>(fields: &'a str) -> MetaVariables<'a> {
    MetaVariables {
        method: "POST",
        version: Version::Http11,
        host: b"a.test",
        port: "8080",
        raw_path: b"/cgi-bin/a.cgi/x%20y",
        query: Some(b"q=1&r"),
        rewritten_query: None,
        fields: Fields(fields.as_bytes()),
        peer: "192.0.2.7",
        peer_port: Some("50000"),
        server: Some("192.0.2.1"),
        secure: true,
        user: None,
        hides_login: false,
        length: Some("5"),
        script_name: b"/cgi-bin/a.cgi",
        path_info: b"/x y",
        script_file: b"/srv/cgi/a.cgi",
        root: b"/srv/www",
    }
}

fn variables(all: &Environment) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(all.as_bytes());
    let texts = text.split_terminator('\0');
    let pair = |text: &str| {
        let (name, value) = text.split_once('=').expect("a variable");
        (name.to_owned(), value.to_owned())
    };
    texts.map(pair).collect()
}

fn variable(all: &Environment, name: &str) -> Option<String> {
    let mut all = variables(all).into_iter();
    all.find_map(|(its, value)| (its == name).then_some(value))
}

#[test]
fn variables_follow_rfc_3875() {
    let all = Environment::of(&meta("Host: a.test:8080\r\nContent-Type: text/x\r\n"));
    #[rustfmt::skip] // Keeps the columns of the table.
    let expected = [
        ("CONTENT_LENGTH", "5"), ("CONTENT_TYPE", "text/x"), ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("PATH_INFO", "/x y"), ("PATH_TRANSLATED", "/srv/www/x y"), ("QUERY_STRING", "q=1&r"),
        ("REMOTE_ADDR", "192.0.2.7"), ("REMOTE_HOST", "192.0.2.7"), ("REQUEST_METHOD", "POST"),
        ("SCRIPT_NAME", "/cgi-bin/a.cgi"), ("SERVER_NAME", "a.test"), ("SERVER_PORT", "8080"),
        ("SERVER_PROTOCOL", "HTTP/1.1"), ("SERVER_SOFTWARE", "anthill"), ("HTTPS", "on"),
        ("REQUEST_URI", "/cgi-bin/a.cgi/x%20y?q=1&r"), ("SCRIPT_FILENAME", "/srv/cgi/a.cgi"),
        ("DOCUMENT_ROOT", "/srv/www"), ("REDIRECT_STATUS", "200"), ("HTTP_HOST", "a.test:8080"),
        ("REQUEST_SCHEME", "https"), ("SERVER_ADDR", "192.0.2.1"), ("REMOTE_PORT", "50000"),
    ];
    for (name, value) in expected {
        assert_eq!(variable(&all, name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(variables(&all).len(), expected.len());
    let mut bare = meta("");
    (bare.query, bare.path_info, bare.length, bare.secure) = (None, b"", None, false);
    let bare = Environment::of(&bare);
    assert_eq!(variable(&bare, "QUERY_STRING").as_deref(), Some(""));
    for name in ["PATH_TRANSLATED", "CONTENT_LENGTH", "HTTPS", "AUTH_TYPE"] {
        assert_eq!(variable(&bare, name), None, "{name}");
    }
}

#[test]
fn fields_become_variables_that_cannot_be_forged() {
    let fields = "Proxy: evil\r\nX-Real-Ip: a\r\nX_Real_Ip: b\r\nx-real-ip: c\r\nX.Y: d\r\n\
        Content_Length: 9\r\nCookie: a=1\r\nCookie: b=2\r\nTransfer-Encoding: chunked\r\n\
        Authorization: Basic eDp5\r\nPROXY: evil\r\n";
    let all = Environment::of(&meta(fields));
    assert_eq!(variable(&all, "HTTP_PROXY"), None);
    assert_eq!(variable(&all, "HTTP_X_REAL_IP").as_deref(), Some("a, c"));
    assert_eq!(variable(&all, "HTTP_COOKIE").as_deref(), Some("a=1; b=2"));
    assert_eq!(variable(&all, "HTTP_CONTENT_LENGTH"), None);
    assert_eq!(variable(&all, "HTTP_TRANSFER_ENCODING"), None);
    assert!(variable(&all, "HTTP_AUTHORIZATION").is_some());
    let all = variables(&all);
    let told = all.iter().filter(|(name, _)| name.starts_with("HTTP_"));
    assert_eq!(told.count(), 3);
    // A password checked by the server never reaches the script.
    let mut known = meta(fields);
    known.user = Some("alice");
    known.hides_login = true;
    let all = Environment::of(&known);
    assert_eq!(variable(&all, "HTTP_AUTHORIZATION"), None);
    assert_eq!(variable(&all, "REMOTE_USER").as_deref(), Some("alice"));
    assert_eq!(variable(&all, "AUTH_TYPE").as_deref(), Some("Basic"));
    // The same for a password that was not checked, because the guards leave the method out. Other logins are the script's.
    for (field, reaches_script) in [
        ("authorization: basic eDp5", false),
        ("Authorization: BASIC\teDp5", false),
        ("Authorization: Basic", false),
        ("Authorization: Basics eDp5", true),
        ("Authorization: Bearer eDp5", true),
        ("X-Authorization: Basic eDp5", true),
    ] {
        let fields = format!("{field}\r\n");
        let mut unchecked = meta(&fields);
        unchecked.hides_login = true;
        let all = variables(&Environment::of(&unchecked));
        let has_field = all.iter().any(|(name, _)| name.starts_with("HTTP_"));
        assert_eq!(has_field, reaches_script, "{field}");
        assert!(!all.iter().any(|(name, _)| name == "REMOTE_USER"));
    }
}

#[test]
fn variables_with_nul_or_invalid_names_are_left_out() {
    let mut all = Environment::default();
    all.push("A", b"b=c");
    all.push("B", b"x\0C=y");
    all.push("D=E", b"f");
    all.push("", b"g");
    assert_eq!(all.as_bytes(), b"A=b=c\0");
    assert_eq!(variable(&all, "A").as_deref(), Some("b=c"));
    all.push("AB", b"c");
    all.set("A", b"d");
    assert_eq!(all.as_bytes(), b"AB=c\0A=d\0");
    let mut odd = meta("X-Odd: a\0b\r\n");
    odd.raw_path = b"/a\0b";
    let all = Environment::of(&odd);
    assert_eq!(variable(&all, "HTTP_X_ODD"), None);
    assert_eq!(variable(&all, "REQUEST_URI"), None);
}

#[test]
fn variables_of_the_operator_override_those_of_the_request() {
    let own = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    };
    let told = |own: &[(String, String)]| {
        let mut all = Environment::default();
        let mut instead = OverridingSink { own, all: &mut all };
        instead.write_all(&meta("Host: a.test\r\n"));
        all
    };
    assert_eq!(
        told(&[]).as_bytes(),
        Environment::of(&meta("Host: a.test\r\n")).as_bytes()
    );
    let all = told(&own(&[
        ("HTTPS", "off"),
        ("APP", "1"),
        ("APP", "2"),
        ("A=B", "c"),
        ("N", "\0"),
    ]));
    assert_eq!(variable(&all, "HTTPS").as_deref(), Some("off"));
    assert_eq!(variable(&all, "APP").as_deref(), Some("2"));
    let names: Vec<String> = variables(&all).into_iter().map(|(name, _)| name).collect();
    for name in ["HTTPS", "APP"] {
        assert_eq!(names.iter().filter(|its| *its == name).count(), 1);
    }
    assert!(!names.iter().any(|name| name == "A" || name == "N"));
}

proptest! {
    #[test]
    fn invariants_of_arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        invariants::script(&bytes);
    }

    #[test]
    fn invariants_of_near_heads(
        text in "((Status|Content-Type|Location|Proxy|X_Y|X-Y): ?(404 No|a/b|/c|x)?(\n|\r\n|\r)){0,5}\n?"
    ) {
        invariants::script(text.as_bytes());
    }
}
