use super::*;
use proptest::prelude::*;

/// Client at `www.test:8080`, and a member at `10.0.0.1:9000` that gets `app.test` as its host.
fn scope<'a>(path: Option<(&'a str, &'a str)>, is_secure: bool) -> LocationScope<'a> {
    LocationScope {
        client_hosts: [b"www.test:8080", b""],
        member_hosts: [b"10.0.0.1:9000", b"app.test"],
        path: path.map(|(from, to)| (from.as_bytes(), to.as_bytes())),
        is_secure,
    }
}

const SHOP: Option<(&str, &str)> = Some(("/app/", "/shop/"));
/// Path at a member behind the root of the client's host.
const ROOT: Option<(&str, &str)> = Some(("/app/", "/"));

#[track_caller]
fn check(scope: LocationScope<'_>, table: &[(&str, &str)]) {
    for (url, expected) in table {
        let rewritten = scope.rewritten(url.as_bytes());
        let rewritten = rewritten.map(|it| String::from_utf8(it).expect("UTF-8"));
        assert_eq!(rewritten.as_deref().unwrap_or(*url), *expected, "{url}");
    }
}

#[test]
#[rustfmt::skip] // Keeps the columns of the table.
fn paths_of_the_member_become_paths_of_the_route() {
    check(scope(SHOP, false), &[
        ("/app/login?a=/app/", "/shop/login?a=/app/"),
        ("/app/", "/shop/"),
        ("/app", "/shop"),
        ("/app?x", "/shop?x"),
        ("/app#x", "/shop#x"),
        ("/apple", "/apple"),
        ("/other/app/", "/other/app/"),
        ("/", "/"),
        ("login", "login"),
        ("../app/login", "../app/login"),
        ("?x", "?x"),
        ("#x", "#x"),
        ("", ""),
        ("/app//x", "/shop//x"),
        ("/app/\u{e4}", "/shop/\u{e4}"),
        ("/app/\tx", "/app/\tx"),
    ]);
    check(scope(ROOT, false), &[
        ("/app/login", "/login"),
        ("/app/", "/"),
        ("/app", "/"),
        ("/app?x", "/?x"),
        ("/app//evil.test/", "/evil.test/"),
        ("/app/\\evil.test/", "/evil.test/"),
        ("/app/\\/\\evil.test/", "/evil.test/"),
        ("/app/\t/evil.test/", "/app/\t/evil.test/"),
        ("http://app.test/app//evil.test", "/evil.test"),
        ("/app/..//evil.test/", "/..//evil.test/"),
        ("/app/http://evil.test/", "/http://evil.test/"),
    ]);
    check(scope(Some(("/", "/shop/")), false), &[
        ("/", "/shop/"),
        ("/login", "/shop/login"),
        ("//evil.test/", "//evil.test/"),
        ("/\\evil.test/", "/\\evil.test/"),
        ("http://app.test", "/shop/"),
        ("http://app.test//evil.test", "/shop/evil.test"),
    ]);
}

#[test]
#[rustfmt::skip] // Keeps the columns of the table.
fn urls_of_the_member_become_paths() {
    let table = [
        ("http://10.0.0.1:9000/app/x", "/shop/x"),
        ("HTTP://10.0.0.1:9000/app/x", "/shop/x"),
        ("https://10.0.0.1:9000/app/x", "/shop/x"),
        ("//10.0.0.1:9000/app/x", "/shop/x"),
        ("http://APP.test/app/x", "/shop/x"),
        ("http://app.test:/app/x", "/shop/x"),
        ("http://app.test:80/app/x", "/shop/x"),
        ("https://app.test:443/app/x", "/shop/x"),
        ("//app.test:443/app", "/shop"),
        ("http:/app/x", "/shop/x"),
        ("https:/app/x", "/shop/x"),
        ("http://www.test:8080/app/x", "/shop/x"),
        ("//www.test:8080/app/x", "/shop/x"),
        // URLs outside of the path, and of other hosts.
        ("http://app.test/other", "http://app.test/other"),
        ("http://app.test", "http://app.test"),
        ("http://app.test:443/app/x", "http://app.test:443/app/x"),
        ("http://app.test:8080/app/x", "http://app.test:8080/app/x"),
        ("http://10.0.0.1/app/x", "http://10.0.0.1/app/x"),
        ("http://www.test/app/x", "http://www.test/app/x"),
        ("http://app.test.evil.test/app/x", "http://app.test.evil.test/app/x"),
        ("http://app.test@evil.test/app/x", "http://app.test@evil.test/app/x"),
        ("http://evil@app.test/app/x", "http://evil@app.test/app/x"),
        ("//evil.test/app/x", "//evil.test/app/x"),
        ("http:///app/x", "http:///app/x"),
        ("http:app/x", "http:app/x"),
        ("http:/\\evil.test/app/", "http:/\\evil.test/app/"),
        ("ftp://app.test/app/x", "ftp://app.test/app/x"),
        ("mailto:a@app.test", "mailto:a@app.test"),
        ("javascript:alert(1)", "javascript:alert(1)"),
    ];
    check(scope(SHOP, true), &table);
    check(scope(SHOP, true), &[("https://www.test:8080/app/x", "/shop/x")]);
    // A redirect to https stays a redirect to https.
    check(scope(SHOP, false), &table);
    check(scope(SHOP, false), &[("https://www.test:8080/app/x", "https://www.test:8080/shop/x")]);
}

#[test]
#[rustfmt::skip] // Keeps the columns of the table.
fn a_route_without_another_path_hides_the_member() {
    check(scope(None, false), &[
        ("http://10.0.0.1:9000/app/x?y#z", "/app/x?y#z"),
        ("http://10.0.0.1:9000", "/"),
        ("http://10.0.0.1:9000?x", "/?x"),
        ("http://10.0.0.1:9000#x", "/#x"),
        ("http://10.0.0.1:9000//evil.test/", "/evil.test/"),
        ("http://10.0.0.1:9000\\\\evil.test/", "/evil.test/"),
        ("//app.test/x", "/x"),
        ("http:/x", "/x"),
        ("/x", "/x"),
        ("//evil.test/", "//evil.test/"),
        ("http://www.test:8080/x", "http://www.test:8080/x"),
        ("https://www.test:8080/x", "https://www.test:8080/x"),
        ("http://www.test/x", "http://www.test/x"),
        ("https://www.test/x", "https://www.test/x"),
        ("http://www.test:443/x", "http://www.test:443/x"),
    ]);
}

#[test]
#[rustfmt::skip] // Keeps the columns of the table.
fn a_member_without_knowledge_of_tls_leads_back_to_https() {
    // The client sent its request by https to port 8080.
    check(scope(None, true), &[
        ("http://www.test:8080/x?y", "/x?y"),
        ("http://WWW.test:8080", "/"),
        ("http://www.test:8080//evil.test/", "/evil.test/"),
        ("https://www.test:8080/x", "https://www.test:8080/x"),
        ("//www.test:8080/x", "//www.test:8080/x"),
        ("http://www.test/x", "http://www.test/x"),
        ("http://www.test:443/x", "http://www.test:443/x"),
        ("http://evil.test:8080/x", "http://evil.test:8080/x"),
        ("http://www.test.evil.test:8080/x", "http://www.test.evil.test:8080/x"),
        ("http://www.test:8080@evil.test/x", "http://www.test:8080@evil.test/x"),
    ]);
    let usual = LocationScope { client_hosts: [b"www.test", b"front.test"], ..scope(None, true) };
    check(usual, &[
        ("http://www.test/x", "/x"),
        ("http://www.test:80/x", "/x"),
        ("http://www.test:443/x", "/x"),
        ("http://front.test/x", "/x"),
        ("http://www.test:81/x", "http://www.test:81/x"),
        ("https://www.test/x", "https://www.test/x"),
    ]);
    // A site may serve plain HTTP on purpose.
    let plain = LocationScope { is_secure: false, ..usual };
    check(plain, &[
        ("http://www.test/x", "http://www.test/x"),
        ("https://www.test/x", "https://www.test/x"),
        ("http://www.test:443/x", "http://www.test:443/x"),
    ]);
}

#[test]
#[rustfmt::skip] // Keeps the columns of the table.
fn the_port_of_the_member_behind_the_clients_host_leads_back() {
    for is_secure in [false, true] {
        check(scope(None, is_secure), &[
            ("http://www.test:9000/docs/", "/docs/"),
            ("//www.test:9000/docs/", "/docs/"),
            ("http://www.test:9001/docs/", "http://www.test:9001/docs/"),
            ("http://evil.test:9000/docs/", "http://evil.test:9000/docs/"),
        ]);
        check(scope(SHOP, is_secure), &[
            ("http://www.test:9000/app/x", "/shop/x"),
            ("http://www.test:9000/other", "http://www.test:9000/other"),
        ]);
    }
}

#[test]
fn hosts_with_ipv6_addresses_are_compared() {
    let scope = LocationScope {
        member_hosts: [b"[::1]:9000", b""],
        ..scope(None, false)
    };
    check(
        scope,
        &[
            ("http://[::1]:9000/x", "/x"),
            ("http://[::1]/x", "http://[::1]/x"),
        ],
    );
}

#[test]
#[rustfmt::skip] // Keeps the columns of the table.
fn the_url_of_refresh_is_rewritten() {
    let scope = scope(SHOP, false);
    for (value, expected) in [
        ("5; url=/app/x", Some("5; url=/shop/x")),
        ("0;URL='http://app.test/app/x'; a", Some("0;URL='/shop/x'; a")),
        ("0, url=\"/app/x\"", Some("0, url=\"/shop/x\"")),
        ("5", None),
        ("5; url=", None),
        ("5; url='/app/x", None),
        ("5; url=https://evil.test/app/", None),
    ] {
        let rewritten = scope.rewritten_refresh(value.as_bytes());
        let rewritten = rewritten.map(|it| String::from_utf8(it).expect("UTF-8"));
        assert_eq!(rewritten.as_deref(), expected, "{value}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Checks that each rewritten URL leads a browser to the client's host.
    #[test]
    fn a_rewritten_url_never_leads_to_another_host(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "http:", "https:", "HTTP:", "/", "//", "\\", "/app", "/app/", "app.test", "www.test:8080",
                "10.0.0.1:9000", "evil.test", "@", ":80", ":443", "?", "#", "..", ".", "\t", "\r", " ", "%2F", "x",
            ]),
            0..8,
        ),
        path in prop::sample::select(vec![None, SHOP, ROOT, Some(("/", "/shop/")), Some(("/", "/"))]),
        is_secure: bool,
    ) {
        let url = parts.concat();
        if let Some(rewritten) = scope(path, is_secure).rewritten(url.as_bytes()) {
            let text = String::from_utf8(rewritten).expect("UTF-8");
            let local = text.strip_prefix("https://www.test:8080").filter(|_| !is_secure);
            let local = local.unwrap_or(&text);
            prop_assert!(local.starts_with('/'), "{url:?} became {text:?}");
            prop_assert!(!local[1..].starts_with(['/', '\\']), "{url:?} became {text:?}");
            prop_assert!(!text.contains(|it: char| it.is_ascii_control()), "{url:?} became {text:?}");
        }
    }
}
