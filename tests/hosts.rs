//! Virtual hosts: the choice of the site by name, redirects between names, and the hosts that a TLS
//! connection may be used for.

use crate::clients::{Answer, Authority, Session, ask, curl, visit, visit_with};
use crate::support::{Folder, Server, server_table};

/// Starts a server with sites in folders of their own, each with a page and an error page that name the
/// site, and with certificates of a test CA.
fn start(config: &str) -> Server {
    let authority = Authority::new("anthill's test CA");
    let mut folder = Folder::new().with("ca.pem", &authority.pem);
    for (site, names) in [
        ("a", ["www.a.test", "a.test"]),
        ("b", ["*.b.test", "deep.b.test"]),
        ("c", ["c.test", "d.test"]),
        ("any", ["any.test", "localhost"]),
    ] {
        folder = folder
            .with(&format!("{site}/index.html"), format!("site {site}"))
            .with(&format!("{site}/error.html"), format!("error of {site}"))
            .with(&format!("{site}.pem"), authority.server(&names).combined());
    }
    Server::start_in(folder, &(server_table("") + config))
}

fn site(names: &str, root: &str, more: &str) -> String {
    format!(
        "[[site]]\nnames = {names}\nroot = \"{root}\"\n\
         errors = {{ 404 = \"error.html\", 421 = \"error.html\", 403 = \"error.html\" }}\n{more}\n"
    )
}

fn three_sites() -> String {
    site(
        r#"["www.a.test", "a.test"]"#,
        "a",
        "certificate = \"a.pem\"",
    ) + &site(r#"["*.b.test"]"#, "b", "certificate = \"b.pem\"")
        + &site(r#"["*"]"#, "any", "certificate = \"any.pem\"")
}

#[test]
fn the_name_chooses_the_site() {
    let plain = "http = \"serve\"";
    let server = start(
        &(site(r#"["www.a.test"]"#, "a", plain)
            + &site(r#"["*.b.test"]"#, "b", plain)
            + &site(r#"["deep.b.test"]"#, "c", plain)),
    );
    for (host, body) in [
        ("www.a.test", "site a"),
        ("WWW.A.Test", "site a"),
        ("www.a.test:80", "site a"),
        ("www.a.test:65535", "site a"),
        ("x.b.test", "site b"),
        ("X.B.TEST:8080", "site b"),
        ("deep.b.test", "site c"),
    ] {
        let answer = ask(&server, host, "/");
        assert_eq!((answer.status, &*answer.body), (200, body), "{host}");
    }
    for host in [
        "a.test",
        "b.test",
        "y.x.b.test",
        "www.a.test.evil",
        "127.0.0.1",
        "localhost",
        "[::1]",
        "xwww.a.test",
        "www.a.tes",
    ] {
        let answer = ask(&server, host, "/");
        assert_eq!(answer.status, 404, "{host:?}: {answer:?}");
        assert!(!answer.body.contains("error of"), "{host:?}: {answer:?}");
        assert!(!answer.head.contains("ETag"), "{host:?}: {answer:?}");
    }
    // The target's authority takes precedence over Host (RFC 9112 §3.2.2).
    let request = b"GET http://x.b.test/ HTTP/1.1\r\nHost: www.a.test\r\nConnection: close\r\n\r\n";
    assert_eq!(Answer::parse(&server.http_raw(request)).body, "site b");
}

#[test]
fn the_start_message_lists_the_served_names() {
    let named = start(
        &(site(
            r#"["www.a.test", "a.test"]"#,
            "a",
            "certificate = \"a.pem\"",
        ) + &site(
            r#"["*.b.test", "deep.b.test"]"#,
            "b",
            "certificate = \"b.pem\"",
        )),
    );
    let said = named.errors.all().join("\n");
    for url in [
        format!("https://www.a.test:{}\n", named.https_port),
        format!("https://deep.b.test:{}\n", named.https_port),
        format!(
            "http://www.a.test:{}  (redirects to https)\n",
            named.http_port
        ),
    ] {
        assert!(said.contains(&url), "no {url} in {said}");
    }
    assert!(!said.contains("localhost"), "{said}");
    let any = start(&site(r#"["*"]"#, "any", ""));
    let said = any.errors.all().join("\n");
    let url = format!("https://localhost:{}\n", any.https_port);
    assert!(said.contains(&url), "no {url} in {said}");
}

#[test]
fn a_trailing_dot_is_the_same_name() {
    let server = start(&site(
        r#"["www.a.test", "a.test"]"#,
        "a",
        "certificate = \"a.pem\"\nhttp = \"serve\"",
    ));
    // The name with a dot is redirected or served, and is never unknown.
    for host in ["www.a.test.", "a.test.", "A.TEST.:80"] {
        let answer = ask(&server, host, "/page?x=1");
        assert_eq!(answer.status, 308, "{host}: {answer:?}");
        assert!(
            answer.location().starts_with("http://www.a.test"),
            "{host}: {answer:?}"
        );
        assert!(answer.location().ends_with("/page?x=1"), "{answer:?}");
    }
}

#[test]
fn the_star_site_serves_all_other_names() {
    let server = start(&three_sites());
    for (name, body) in [
        ("www.a.test", "site a"),
        ("x.b.test", "site b"),
        ("any.test", "site any"),
        ("localhost", "site any"),
    ] {
        let answer = visit(&server, name, "/");
        assert_eq!((answer.status, &*answer.body), (200, body), "{name}");
    }
    // A name without a matching certificate: the handshake succeeds, and verification is the client's task.
    let answer = visit_with(&server, "y.x.b.test", "/", &["-k"]);
    assert_eq!(answer.body, "site any");
    let nameless = Session::open(server.https_port, "anything.test", &["-noservername"]);
    assert!(nameless.text.contains("site any"), "{}", nameless.text);
    // Plain HTTP redirects to the requested name.
    let answer = ask(&server, "whoever.test:8080", "/x");
    assert_eq!(answer.status, 308);
    let expected = format!("https://whoever.test:{}/x", server.https_port);
    assert_eq!(answer.location(), expected);
}

#[test]
fn an_unknown_name_sees_nothing_of_any_site() {
    let server = start(
        &(site(
            r#"["www.a.test"]"#,
            "a",
            "certificate = \"a.pem\"\nhsts = true",
        ) + &site(r#"["*.b.test"]"#, "b", "certificate = \"b.pem\"")),
    );
    let answer = ask(&server, "evil.test", "/");
    assert_eq!(answer.status, 404, "plain: {answer:?}");
    assert_eq!(answer.field("location"), None);
    assert!(!answer.body.contains("error of"), "{answer:?}");

    let host = ["-H", "Host: evil.test"];
    let answer = visit_with(&server, "www.a.test", "/", &host);
    assert_eq!(answer.status, 421, "TLS: {answer:?}");
    assert!(!answer.body.contains("error of"), "{answer:?}");
    assert_eq!(answer.field("strict-transport-security"), None);

    // No site has the server name, so no certificate is presented.
    for name in ["evil.test", "a.test", "b.test", "y.x.b.test", "localhost"] {
        let session = Session::open(server.https_port, name, &[]);
        assert!(!session.connected, "{name}: {}", session.text);
        assert!(
            session.errors.contains("SSL alert number"),
            "{}",
            session.errors
        );
    }
    // Without a server name the server presents the self-signed certificate, and no site with another
    // certificate is served over the connection.
    let nameless = Session::open(server.https_port, "www.a.test", &["-noservername"]);
    assert!(
        nameless.text.contains("anthill, self-signed"),
        "{}",
        nameless.text
    );
    assert!(nameless.text.contains("HTTP/1.1 421 "), "{}", nameless.text);
    assert!(!nameless.text.contains("error of"), "{}", nameless.text);
}

#[test]
fn upper_case_and_dotted_server_names_are_the_same() {
    let server = start(&site(r#"["www.a.test"]"#, "a", "certificate = \"a.pem\""));
    for name in ["WWW.A.TEST", "www.a.test"] {
        let session = Session::open(server.https_port, name, &[]);
        assert!(
            session.is_served(),
            "{name}: {}{}",
            session.text,
            session.errors
        );
    }
}

#[test]
fn misdirected_only_where_certificate_files_or_demands_differ() {
    let shared = "certificate = \"c.pem\"";
    let server = start(
        &(site(r#"["c.test"]"#, "c", shared)
            + &site(r#"["d.test"]"#, "b", shared)
            + &site(
                r#"["d2.test"]"#,
                "b",
                "certificate = \"c.pem\"\nclient_ca = \"ca.pem\"",
            )
            + &site(r#"["www.a.test"]"#, "a", "certificate = \"a.pem\"")
            + &site(r#"["self.test"]"#, "any", "")
            + &site(r#"["self2.test"]"#, "any", "")),
    );
    let over = |sni: &str, host: &str| {
        let host = format!("Host: {host}");
        visit_with(&server, sni, "/", &["-k", "-H", &host])
    };
    for (sni, host, body) in [
        ("c.test", "d.test", "site b"),
        ("d.test", "c.test", "site c"),
        ("d.test", "C.TEST:443", "site c"),
        ("self.test", "self2.test", "site any"),
    ] {
        let answer = over(sni, host);
        assert_eq!((answer.status, &*answer.body), (200, body), "{sni} {host}");
    }
    for (sni, host) in [
        ("c.test", "www.a.test"),
        ("www.a.test", "c.test"),
        ("c.test", "self.test"),
        ("self.test", "c.test"),
        // The certificate is the same, and the access requirements differ.
        ("c.test", "d2.test"),
    ] {
        let answer = over(sni, host);
        assert_eq!(answer.status, 421, "{sni} {host}: {answer:?}");
        assert!(!answer.body.contains("error of"), "{answer:?}");
    }
}

#[test]
fn one_redirect_leads_to_https_and_the_canonical_name() {
    let server = start(
        &(site(
            r#"["www.a.test", "a.test"]"#,
            "a",
            "certificate = \"a.pem\"",
        ) + &site(
            r#"["c.test", "d.test"]"#,
            "c",
            "certificate = \"c.pem\"\nhsts = \"1d\"",
        )),
    );
    let port = server.https_port;
    for (host, target, location) in [
        (
            "a.test",
            "/x?y=1&z",
            format!("https://www.a.test:{port}/x?y=1&z"),
        ),
        ("www.a.test", "/", format!("https://www.a.test:{port}/")),
        (
            "WWW.A.TEST:8080",
            "/%41?%41",
            format!("https://www.a.test:{port}/%41?%41"),
        ),
        // With HSTS the redirect keeps the host at first, so that the browser learns the policy for the
        // host too.
        ("d.test", "/x", format!("https://d.test:{port}/x")),
        ("c.test", "/x", format!("https://c.test:{port}/x")),
    ] {
        let answer = ask(&server, host, target);
        assert_eq!(answer.status, 308, "{host}: {answer:?}");
        assert_eq!(answer.location(), location, "{host}");
        assert_eq!(
            answer.field("strict-transport-security"),
            None,
            "plain {host}"
        );
    }
    for (name, location) in [
        ("a.test", "https://www.a.test"),
        ("d.test", "https://c.test"),
    ] {
        let answer = visit(&server, name, "/x/?q");
        assert_eq!(answer.status, 308, "{answer:?}");
        assert_eq!(answer.location(), format!("{location}:{port}/x/?q"));
    }
    let hsts = Some("max-age=86400");
    let field = "strict-transport-security";
    assert_eq!(visit(&server, "d.test", "/").field(field), hsts);
    assert_eq!(visit(&server, "c.test", "/").field(field), hsts);
    assert_eq!(visit(&server, "c.test", "/nothing").field(field), hsts);
    assert_eq!(visit(&server, "www.a.test", "/").field(field), None);
    // curl follows the redirects to the page.
    let url = format!("http://a.test:{}/", server.http_port);
    let followed = curl(&server.folder, &["-L", &url]);
    assert!(followed.success, "{}", followed.errors());
    assert!(followed.text().ends_with("site a"), "{}", followed.text());
    assert_eq!(followed.text().matches("HTTP/").count(), 2, "one hop");
}

#[test]
fn redirects_to_https_stay_on_the_host() {
    let server = start(
        &(site(r#"["www.a.test"]"#, "a", "certificate = \"a.pem\"") + &site(r#"["*"]"#, "any", "")),
    );
    let port = server.https_port;
    for target in [
        "//evil.example/..",
        "//evil.example/../x",
        "/@evil.example",
        "/.evil.example/",
        "/a%20b%3F%23?c=d%20e?f",
        "/|^\"{}?|^\"{}",
        "/?",
        "/%e2%82%ac;x=1,2",
        "/a/./b/../c//d",
    ] {
        let answer = ask(&server, "www.a.test", target);
        assert_eq!(answer.status, 308, "{target}: {answer:?}");
        assert_eq!(
            answer.location(),
            format!("https://www.a.test:{port}{target}"),
            "{target}"
        );
    }
    // An invalid host name is refused before the redirect.
    for host in [
        "evil.example/",
        "evil.example#",
        "user@evil.example",
        "a b",
        "a.test:80:80",
        "a.test:x",
    ] {
        let answer = ask(&server, host, "/");
        assert_eq!(answer.status, 400, "{host}: {answer:?}");
        assert_eq!(answer.field("location"), None, "{host}");
    }
    // Without a host no redirect is possible, and plain HTTP serves no content.
    for request in [
        &b"GET / HTTP/1.0\r\n\r\n"[..],
        b"GET / HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n",
    ] {
        let answer = Answer::parse(&server.http_raw(request));
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(!answer.body.contains("site any"), "{answer:?}");
    }
    // The redirect keeps the method, for HEAD and POST too.
    for method in ["HEAD", "POST", "OPTIONS"] {
        let request =
            format!("{method} /x HTTP/1.1\r\nHost: www.a.test\r\nConnection: close\r\n\r\n");
        let answer = Answer::parse(&server.http_raw(request.as_bytes()));
        assert_eq!(answer.status, 308, "{method}: {answer:?}");
    }
}

#[test]
fn redirects_name_the_public_port() {
    let authority = Authority::new("anthill's test CA");
    for (public, named) in [("443", ""), ("8444", ":8444")] {
        let folder = Folder::new()
            .with("a/index.html", "site a")
            .with("a/error.html", "")
            .with("ca.pem", &authority.pem)
            .with(
                "a.pem",
                authority.server(&["www.a.test", "a.test"]).combined(),
            );
        let server = Server::start_in(
            folder,
            &(server_table(&format!("public_port = {public}"))
                + &site(
                    r#"["www.a.test", "a.test"]"#,
                    "a",
                    "certificate = \"a.pem\"",
                )),
        );
        let answer = ask(&server, "a.test:1234", "/x");
        assert_eq!(answer.location(), format!("https://www.a.test{named}/x"));
        let answer = visit(&server, "a.test", "/x");
        assert_eq!(answer.location(), format!("https://www.a.test{named}/x"));
    }
}

#[test]
fn plain_http_serves_where_configured() {
    let server = start(
        &(site(
            r#"["www.a.test", "a.test"]"#,
            "a",
            "certificate = \"a.pem\"\nhttp = \"serve\"\nhsts = true",
        ) + &site(r#"["c.test"]"#, "c", "certificate = \"c.pem\"")),
    );
    let answer = ask(&server, "www.a.test", "/");
    assert_eq!((answer.status, &*answer.body), (200, "site a"));
    assert_eq!(answer.field("strict-transport-security"), None);
    // The alias stays on plain HTTP and on its port.
    let answer = ask(&server, "a.test:8080", "/x");
    assert_eq!(answer.location(), "http://www.a.test:8080/x");
    assert_eq!(
        ask(&server, "a.test", "/x").location(),
        "http://www.a.test/x"
    );
    let answer = visit(&server, "www.a.test", "/");
    assert_eq!(
        answer.field("strict-transport-security"),
        Some("max-age=31536000")
    );
    assert_eq!(ask(&server, "c.test", "/").status, 308);
}
