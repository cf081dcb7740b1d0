//! Access control: address rules, passwords, and paths around a guard; and the targets of routes.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use data_plane::limits;

use crate::clients::{Answer, anthill, anthill_with_input, ask, curl, visit_with, wait_until};
use crate::support::h2::H2;
use crate::support::wire::{Over, Wire};
use crate::support::{Folder, Server, run, server_table};

/// Returns a configuration with one site for every name on plain HTTP and HTTPS: further keys of the site
/// first, the routes last.
fn config(more: &str, routes: &[&str]) -> String {
    let routes = routes.join("\n[[site.route]]\n");
    let server = server_table("");
    format!(
        "{server}[[site]]\nnames = [\"*\"]\nroot = \"public\"\nhttp = \"serve\"\n{more}\n\
         [[site.route]]\n{routes}\n"
    )
}

fn hash(kind: &str, password: &str) -> String {
    let ran = run("openssl", &["passwd", kind, "-stdin"], password.as_bytes());
    assert!(ran.success, "openssl passwd {kind}: {}", ran.errors());
    ran.text().trim().to_owned()
}

/// Returns a folder with a site with private pages, and a password file `users` with the user `ant` and the
/// password `crumb`.
fn site_folder() -> Folder {
    Folder::new()
        .with("public/index.html", "front page")
        .with("public/lost.html", "lost page")
        .with("public/stop.html", "stop page")
        .with("public/privateer/index.html", "privateer")
        .with("public/private.html", "not in the folder")
        .with("public/private/index.html", "secret index")
        .with("public/private/secret.html", "secret page")
        .with("public/private/inner/index.html", "secret inner")
        .with("users", format!("ant:{}\n", hash("-1", "crumb")))
}

fn with_login(server: &Server, login: &str, target: &str) -> Answer {
    let url = server.http(target);
    let ran = curl(&server.folder, &["-u", login, &url]);
    assert!(ran.success, "curl {target}: {}", ran.errors());
    Answer::parse(&ran.stdout)
}

/// Sends a request from another loopback address.
fn get_from(server: &Server, address: &str, target: &str) -> Answer {
    let url = server.http(target);
    let ran = curl(&server.folder, &["--interface", address, &url]);
    assert!(ran.success, "curl {target}: {}", ran.errors());
    Answer::parse(&ran.stdout)
}

#[test]
fn addresses_are_admitted_or_refused() {
    let server = Server::start_in(
        site_folder(),
        &config(
            "errors = { 403 = \"stop.html\" }",
            &[
                "path = \"/private/\"\nallow = [\"127.0.0.0/30\", \"::1\"]",
                "path = \"/private/inner/\"\nallow = [\"127.0.0.1\"]",
                "path = \"/privateer/\"\nallow = []",
            ],
        ),
    );
    for (address, target, status) in [
        ("127.0.0.1", "/private/", 200),
        ("127.0.0.3", "/private/secret.html", 200),
        ("127.0.0.4", "/private/", 403),
        ("127.0.0.4", "/private/nothing", 403),
        ("127.0.0.1", "/private/nothing", 404),
        ("127.0.0.1", "/private/inner/", 200),
        // Guards add up: an address refused by the outer guard is refused by the inner guard too.
        ("127.0.0.2", "/private/inner/", 403),
        ("127.0.0.4", "/private/inner/", 403),
        ("127.0.0.1", "/privateer/", 403),
        ("127.0.0.4", "/", 200),
    ] {
        let answer = get_from(&server, address, target);
        assert_eq!(answer.status, status, "{address} {target}: {answer:?}");
        assert_eq!(status == 403, answer.body == "stop page", "{answer:?}");
    }
    // The guards hold over TLS too.
    assert_eq!(
        visit_with(&server, "localhost", "/privateer/", &[]).status,
        403
    );
}

#[test]
fn an_ipv4_address_matches_its_rule_on_an_ipv6_socket() {
    let table = "[server]\nhttps = []\nhttp = [\"[::]:0\"]\nstate = \"state\"\n\
                 control = \"anthill.sock\"\nworkers = 1\n";
    let routes = "[[site]]\nnames = [\"*\"]\nroot = \"public\"\n\
                  [[site.route]]\npath = \"/private/\"\nallow = [\"127.0.0.1\"]\n\
                  [[site.route]]\npath = \"/privateer/\"\nallow = [\"::1\"]\n";
    let server = Server::start_in(site_folder(), &format!("{table}{routes}"));
    let status = |address: &str, target: &str| {
        let url = format!("http://{address}:{}{target}", server.http_port);
        let ran = run("curl", &["-sSi", "-g", &url], b"");
        Answer::parse(&ran.stdout).status
    };
    assert_eq!(status("127.0.0.1", "/private/"), 200);
    assert_eq!(status("127.0.0.1", "/privateer/"), 403);
    // Containers often have no IPv6, so the requests over IPv6 are conditional.
    if TcpListener::bind("[::1]:0").is_ok() {
        assert_eq!(status("[::1]", "/private/"), 403);
        assert_eq!(status("[::1]", "/privateer/"), 200);
    }
}

#[test]
fn users_log_in_with_every_kind_of_password_hash() {
    let folder = site_folder();
    let mut users = String::from("# people\n\n");
    for (name, kind) in [("six", "-6"), ("apr", "-apr1"), ("one", "-1")] {
        users += &format!("{name}:{}\n", hash(kind, "pass wörd:!"));
    }
    folder.write("users", users);
    let told = anthill_with_input(
        &folder.path("."),
        &["passwd", "users", "bee"],
        "pass wörd:!\n",
    );
    assert_eq!(told.code, Some(0), "{told:?}");
    let server = Server::start_in(
        folder,
        &config("", &["path = \"/private/\"\nusers = \"users\""]),
    );
    for (nth, name) in ["six", "apr", "one", "bee"].iter().enumerate() {
        // Each login comes from an address of its own, because the number of failed logins per address is
        // limited.
        let address = format!("127.0.0.{}", nth + 1);
        let with_login = |login: &str| {
            let url = server.http("/private/");
            let ran = curl(
                &server.folder,
                &["--interface", &address, "-u", login, &url],
            );
            assert!(ran.success, "curl: {}", ran.errors());
            Answer::parse(&ran.stdout)
        };
        let answer = with_login(&format!("{name}:pass wörd:!"));
        assert_eq!(answer.status, 200, "{name}: {answer:?}");
        assert_eq!(answer.body, "secret index", "{name}");
        for login in [
            format!("{name}:pass wörd:"),
            format!("{name}:"),
            format!("{}:pass wörd:!", name.to_uppercase()),
        ] {
            let answer = with_login(&login);
            assert_eq!(answer.status, 401, "{login}: {answer:?}");
        }
    }
    // The log names a user after a correct password, and never after a wrong password.
    server.output.wait_for("a line with the user", |line| {
        line.starts_with("127.0.0.4 - bee [") && line.contains("\" 200 ")
    });
    for line in server.output.all() {
        let user = line.split(' ').nth(2).expect("a user");
        assert_eq!(user == "-", line.contains("\" 401 "), "{line}");
    }
}

#[test]
fn a_login_is_requested_as_the_standard_says() {
    let server = Server::start_in(
        site_folder(),
        &config(
            "errors = { 401 = \"stop.html\", 404 = \"lost.html\" }",
            &["path = \"/private/\"\nusers = \"users\""],
        ),
    );
    let bare = ask(&server, "localhost", "/private/secret.html");
    assert_eq!((bare.status, &*bare.body), (401, "stop page"));
    let challenge = bare.field("www-authenticate").expect("a challenge");
    assert!(challenge.starts_with("Basic realm=\""), "{challenge}");
    assert!(challenge.ends_with("charset=\"UTF-8\""), "{challenge}");
    // Without a login, existing and absent paths get equal responses.
    let nothing = ask(&server, "localhost", "/private/nothing");
    assert_eq!((nothing.status, &*nothing.body), (401, "stop page"));
    let nothing = with_login(&server, "ant:crumb", "/private/nothing");
    assert_eq!((nothing.status, &*nothing.body), (404, "lost page"));
    for value in [
        "Basic",
        "Basic !!!!",
        "Basic YW50",
        "Bearer YW50OmNydW1i",
        "Basic YW50OmNydW1i=",
        "Basic YW50OmNydW1i, Basic YW50OmNydW1i",
        "Digest username=\"ant\"",
    ] {
        let request = format!(
            "GET /private/ HTTP/1.1\r\nHost: x\r\nAuthorization: {value}\r\nConnection: close\r\n\r\n"
        );
        let answer = Answer::parse(&server.http_raw(request.as_bytes()));
        assert_eq!(answer.status, 401, "{value}: {answer:?}");
        assert!(answer.field("www-authenticate").is_some(), "{value}");
    }
    for (method, status) in [
        ("HEAD", 401),
        ("POST", 401),
        ("OPTIONS", 401),
        ("DELETE", 401),
    ] {
        let request =
            format!("{method} /private/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let answer = Answer::parse(&server.http_raw(request.as_bytes()));
        assert_eq!(answer.status, status, "{method}: {answer:?}");
    }
    let whole = with_login(&server, "ant:crumb", "/private/secret.html");
    assert_eq!((whole.status, &*whole.body), (200, "secret page"));
    // A known ETag does not open a guarded page.
    let tag = whole.field("etag").expect("a tag");
    let request = format!(
        "GET /private/secret.html HTTP/1.1\r\nHost: x\r\nIf-None-Match: {tag}\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(
        Answer::parse(&server.http_raw(request.as_bytes())).status,
        401
    );
}

#[test]
fn no_spelling_of_a_path_bypasses_its_guard() {
    let folder = site_folder();
    std::os::unix::fs::symlink("private", folder.path("public/door")).expect("a link");
    let server = Server::start_in(
        folder,
        &config(
            "try = [\"$path\", \"$path.html\"]",
            &["path = \"/private/\"\nusers = \"users\""],
        ),
    );
    for target in [
        "/private",
        "/private/",
        "/private?x",
        "/private/secret.html",
        "/private/secret",
        "/%70rivate/secret.html",
        "/priv%61te/",
        "/%70%72%69%76%61%74%65",
        "//private/secret.html",
        "///private",
        "/./private/",
        "/x/../private/secret.html",
        "/x/y/../../private/secret.html",
        "/%2e/private/",
        "/x/%2e%2e/private/",
        "/x/.%2E/private/secret.html",
        "/private/./secret.html",
        "/private//secret.html",
        "/private/x/../secret.html",
        "/privateer/../private/secret.html",
        "/private/../private/",
        "/door/",
        "/door/secret.html",
        "http://elsewhere.test/private/",
        "HTTP://elsewhere.test/%70rivate/",
    ] {
        let answer = ask(&server, "localhost", target);
        assert_eq!(answer.status, 401, "{target}: {answer:?}");
        assert!(!answer.body.contains("secret"), "{target}: {answer:?}");
    }
    for target in [
        "/private%2fsecret.html",
        "/private%5csecret.html",
        "/private\\secret.html",
        "/..%2fprivate/",
        "/private/%00",
        "/../private/",
        "/%c0%ae/private%",
    ] {
        let answer = ask(&server, "localhost", target);
        assert_eq!(answer.status, 400, "{target}: {answer:?}");
    }
    for (target, status) in [
        ("/PRIVATE/", 404),
        ("/private.html", 200),
        ("/privateer/", 200),
        ("/privateer", 301),
        ("/private%20/", 404),
        ("/%2570rivate/", 404),
        ("/private;/secret.html", 404),
        ("/private../secret.html", 404),
        ("/private/..", 200),
    ] {
        let answer = ask(&server, "localhost", target);
        assert_eq!(answer.status, status, "{target}: {answer:?}");
    }
}

#[test]
fn a_guard_holds_for_the_file_that_is_opened() {
    let folder = site_folder()
        .with("public/docs/index.html", "secret docs")
        .with("public/page.html", "secret clean page")
        .with("public/app.html", "secret app")
        .with("other/index.html", "other index")
        .with("other/deep/secret.html", "secret other");
    let users = |path: &str| format!("path = \"{path}\"\nusers = \"users\"");
    let server = Server::start_in(
        folder,
        &config(
            "try = [\"$path\", \"$path.html\", \"/app.html\"]",
            &[
                &users("/docs/index.html"),
                &users("/page.html"),
                &users("/app.html"),
                &users("/private"),
                "path = \"/old/\"\nrewrite = \"/private/\"",
                "path = \"/one\"\nrewrite = \"/private/secret.html\"",
                "path = \"/files/\"\nroot = \"other\"",
                &users("/files/deep/secret.html"),
            ],
        ),
    );
    for target in [
        "/docs/",
        "/docs/index.html",
        "/page",
        "/page.html",
        "/whatever/else",
        "/app",
        "/old/",
        "/old",
        "/old/secret",
        "/old/secret.html",
        "/old/nothing",
        "/one",
        "/one/two",
        "/files/deep/secret.html",
        "/files/deep/secret",
        "/files/nothing/../deep/secret.html",
    ] {
        let bare = ask(&server, "localhost", target);
        assert_eq!(bare.status, 401, "{target}: {bare:?}");
        assert!(!bare.body.contains("secret"), "{target}: {bare:?}");
        let open = with_login(&server, "ant:crumb", target);
        assert!(open.body.contains("secret"), "{target}: {open:?}");
    }
    for (target, body) in [("/", "front page"), ("/files/", "other index")] {
        assert_eq!(ask(&server, "localhost", target).body, body, "{target}");
    }
}

#[test]
fn guards_add_up() {
    let folder = site_folder().with(
        "inner-users",
        format!("ant:{}\nbee:{}\n", hash("-1", "crumb"), hash("-1", "honey")),
    );
    let server = Server::start_in(
        folder,
        &config(
            "",
            &[
                "path = \"/private/inner/\"\nusers = \"inner-users\"",
                "path = \"/\"\nallow = [\"127.0.0.1\"]",
                "path = \"/private/\"\nusers = \"users\"",
                "path = \"/away/\"\nusers = \"users\"\nredirect = \"https://elsewhere.test/\"",
            ],
        ),
    );
    for (login, target, status) in [
        ("ant:crumb", "/private/", 200),
        ("bee:honey", "/private/", 401),
        ("ant:crumb", "/private/inner/", 200),
        ("bee:honey", "/private/inner/", 401),
        ("ant:crumb", "/away/", 308),
        ("ant:wrong", "/away/", 401),
    ] {
        let answer = with_login(&server, login, target);
        assert_eq!(answer.status, status, "{login} {target}: {answer:?}");
    }
    assert_eq!(get_from(&server, "127.0.0.2", "/").status, 403);
    let url = server.http("/private/");
    let right = ["--interface", "127.0.0.2", "-u", "ant:crumb", &url];
    let answer = Answer::parse(&curl(&server.folder, &right).stdout);
    assert_eq!(answer.status, 403, "the address comes first: {answer:?}");
    assert_eq!(answer.field("www-authenticate"), None);
}

#[test]
fn a_changed_user_file_takes_effect() {
    let server = Server::start_in(
        site_folder(),
        &config("", &["path = \"/private/\"\nusers = \"users\""]),
    );
    let passwd = |arguments: &[&str], input: &str| {
        let told = anthill_with_input(&server.folder.path("."), arguments, input);
        assert_eq!(told.code, Some(0), "{told:?}");
    };
    let status = |login: &str| with_login(&server, login, "/private/").status;
    assert_eq!(status("ant:crumb"), 200);
    assert_eq!(status("bee:honey"), 401);
    // The server remembers both verdicts; the new file invalidates them.
    passwd(&["passwd", "users", "bee"], "honey\n");
    wait_until("new user", || (status("bee:honey") == 200).then_some(()));
    assert_eq!(status("ant:crumb"), 200);
    passwd(&["passwd", "--delete", "users", "ant"], "");
    wait_until("lost user", || (status("ant:crumb") == 401).then_some(()));
    // A broken password file changes nothing, and the error log names its line.
    server.folder.write("users", "bee:plain text\n");
    server
        .errors
        .wait_for("an error about the broken user file", |line| {
            line.contains("users:1:") && line.contains("not a hash")
        });
    assert_eq!(status("bee:honey"), 200);
    let checked = anthill(&server.folder.path("."), &["check", "anthill.toml"]);
    assert_eq!(checked.code, Some(2), "{checked:?}");
}

#[test]
fn password_guesses_do_not_delay_other_requests() {
    // 2^14 rounds take more than a second, so the queue does not drain during the test.
    let slow = "$2y$14$abcdefghijklmnopqrstuuJ5mYmCkAqyjlIHn0B0sBKWF6xkUN5yG";
    let folder = site_folder();
    folder.write("users", format!("ant:{slow}\n"));
    let server = Server::start_in(
        folder,
        &config("", &["path = \"/private/\"\nusers = \"users\""]),
    );
    // The guesses come from several addresses, because one address may fail only a few times.
    let connect = |nth: u8| Wire::of(&server, [127, 0, 1, nth / 8].into()).socket;
    let mut guesses: Vec<_> = (0..100).map(connect).collect();
    for (nth, guess) in guesses.iter_mut().enumerate() {
        // Each guess is a different login: the server hashes equal logins once.
        let (third, fourth) = (b"FJNR"[nth % 4], b'A' + (nth / 4) as u8);
        let login = [char::from(third), char::from(fourth)];
        let request = format!(
            "GET /private/ HTTP/1.1\r\nHost: x\r\nAuthorization: Basic YW50Om{}{}\r\n\r\n",
            login[0], login[1]
        );
        guess.write_all(request.as_bytes()).expect("a request");
        guess.set_nonblocking(true).expect("no waiting");
    }
    // With more logins than the queue admits, some get a 503.
    let told = wait_until("503", || {
        guesses.iter_mut().find_map(|guess| {
            let mut answer = [0; 4096];
            let read = guess.read(&mut answer).ok()?;
            // The first guesses may have got their 401 by now.
            Some(Answer::parse(&answer[..read])).filter(|told| told.status == 503)
        })
    });
    assert!(told.field("retry-after").is_some(), "{told:?}");
    // The front page arrives while the first guesses still wait.
    assert_eq!(ask(&server, "localhost", "/").body, "front page");
    let waiting = guesses.iter_mut().filter_map(|guess| {
        let read = guess.read(&mut [0; 1]);
        read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
            .then_some(())
    });
    assert!(waiting.count() > 30, "most guesses wait");
}

/// Returns an `Authorization` field for the user `ant` with the password.
pub fn authorization(password: &str) -> String {
    let login = run(
        "openssl",
        &["base64", "-A"],
        format!("ant:{password}").as_bytes(),
    );
    format!("Authorization: Basic {}\r\n", login.text().trim())
}

/// A flood of wrong passwords is refused over every version of HTTP. Clients with other addresses and
/// earlier correct logins are still admitted.
#[test]
fn failed_logins_are_limited_by_address() {
    let server = Server::start_in(
        site_folder(),
        &config("", &["path = \"/private/\"\nusers = \"users\""]),
    );
    let get =
        |nth: u8, fields: &str| Wire::of(&server, [127, 0, 0, nth].into()).get("/private/", fields);
    let right = authorization("crumb");
    assert_eq!(get(2, &right).status, 200);
    // Each address has a fixed number of failures, and regains one failure over time.
    let (mut wrong, mut refused) = (0, 0);
    for guess in 0..3 * limits::LOGIN_FAILURES_MAX {
        let got = get(2, &authorization(&guess.to_string()));
        match got.status {
            401 => wrong += 1,
            429 => refused += 1,
            status => panic!("{status}: {got:?}"),
        }
        let seconds = (got.status == 429).then(|| limits::LOGIN_FAILURE_SECONDS.to_string());
        assert_eq!(got.field("retry-after"), seconds.as_deref(), "{got:?}");
    }
    assert!(
        wrong >= limits::LOGIN_FAILURES_MAX && refused > 0,
        "{wrong}"
    );
    server.output.wait_for("a refusal", |line| {
        line.contains(" 429 ") && line.contains("rule=R607")
    });
    assert!(server.counter("logins_refused") >= refused);
    // A request without a login and a known login do not count as guesses.
    assert_eq!(get(2, "").status, 401);
    assert_eq!(get(2, &right).status, 200);
    assert_eq!(get(3, &right).status, 200);
    assert_eq!(get(4, &authorization("wrong")).status, 401);
    // The limit holds over TLS and HTTP/2 too.
    let mut refused = None;
    for guess in 0..3 * limits::LOGIN_FAILURES_MAX {
        let login = authorization(&format!("h2-{guess}"));
        let login = login.trim_end().split_once(": ").expect("a field").1;
        let mut h2 = H2::open(&server, Over::Tls);
        let id = h2.ask("GET", "/private/", &[("authorization", login)], true);
        let got = h2.response(id);
        refused = Some(got).filter(|got| got.status == 429).or(refused);
    }
    let refused = refused.expect("429");
    assert!(refused.field("retry-after").is_some(), "{refused:?}");
}

/// Simultaneous guesses count before their passwords are hashed. Another client's correct login is answered
/// during the flood.
#[test]
fn a_flood_of_guesses_locks_no_other_client_out() {
    let server = Server::start_in(
        site_folder(),
        &config("", &["path = \"/private/\"\nusers = \"users\""]),
    );
    let is_over = AtomicBool::new(false);
    let right = authorization("crumb");
    let flood = |from: usize| {
        let mut statuses = Vec::new();
        for nth in 0.. {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            let login = authorization(&format!("{from}-{nth}"));
            let mut wire = Wire::of(&server, [127, 0, 0, 2].into());
            statuses.push(wire.get("/private/", &login).status);
        }
        statuses
    };
    thread::scope(|scope| {
        let flood = &flood;
        let floods: Vec<_> = (0..4)
            .map(|from| scope.spawn(move || flood(from)))
            .collect();
        crate::support::eventually("refusals", || {
            (server.counter("logins_refused") > 20).then_some(())
        });
        let got = Wire::of(&server, [127, 0, 0, 3].into()).get("/private/", &right);
        assert_eq!(got.status, 200, "{got:?}");
        is_over.store(true, Ordering::Relaxed);
        for flood in floods {
            let statuses = flood.join().expect("a flood");
            assert!(statuses.iter().all(|status| [401, 429].contains(status)));
        }
    });
}

#[test]
fn redirects_keep_the_path_after_their_prefix() {
    let server = Server::start_in(
        site_folder(),
        &config(
            "",
            &[
                "path = \"/old/\"\nredirect = \"/new/\"",
                "path = \"/old/kept/\"\nredirect = \"https://elsewhere.test/x\"",
                "path = \"/top\"\nredirect = \"/\"",
                "path = \"/far\"\nredirect = \"https://elsewhere.test/a/\"",
                "path = \"/asks\"\nredirect = \"/search?q=ant\"",
                "path = \"/mark\"\nredirect = \"/page#part\"",
            ],
        ),
    );
    for (target, location) in [
        ("/old/", "/new/"),
        ("/old", "/new/"),
        ("/old?", "/new/?"),
        ("/old/x/y?z=1&w", "/new/x/y?z=1&w"),
        ("/old/x/", "/new/x/"),
        ("/old/a%20b%3f%25%e2%82%ac", "/new/a%20b%3F%25%E2%82%AC"),
        ("/old//evil.example/", "/new/evil.example/"),
        ("/old/../old/x", "/new/x"),
        ("/old/kept/page?x", "https://elsewhere.test/x?x"),
        ("/old/kept", "https://elsewhere.test/x"),
        ("/top//evil.example", "/evil.example"),
        ("/top///evil.example/..", "/"),
        ("/far/b/c", "https://elsewhere.test/a/b/c"),
        ("/far/../far//b", "https://elsewhere.test/a/b"),
        ("/far/@evil", "https://elsewhere.test/a/@evil"),
        ("/asks", "/search?q=ant"),
        ("/asks?page=2", "/search?q=ant&page=2"),
        ("/mark?x=1", "/page?x=1#part"),
    ] {
        let answer = ask(&server, "localhost", target);
        assert_eq!(answer.status, 308, "{target}: {answer:?}");
        assert_eq!(answer.location(), location, "{target}");
    }
    for target in ["/older/", "/topper", "/ol", "/new/"] {
        assert_eq!(ask(&server, "localhost", target).status, 404, "{target}");
    }
}

#[test]
fn rewrites_and_routes_with_their_own_root() {
    let folder = site_folder()
        .with("public/new/index.html", "new index")
        .with("public/new/page.html", "new page")
        .with("public/new/sub/index.html", "new sub")
        .with("other/index.html", "other index")
        .with("other/sub/index.html", "other sub")
        .with("other/lost.html", "not this one")
        .with("third/index.html", "third index");
    let server = Server::start_in(
        folder,
        &config(
            "errors = { 404 = \"lost.html\" }",
            &[
                "path = \"/old/\"\nrewrite = \"/new/\"",
                "path = \"/all/\"\nrewrite = \"/new/page.html\"",
                "path = \"/files/\"\nroot = \"other\"",
                "path = \"/files/sub/third/\"\nroot = \"third\"",
            ],
        ),
    );
    for (target, body) in [
        ("/old/", "new index"),
        ("/old", "new index"),
        ("/old/page.html", "new page"),
        ("/old/sub/", "new sub"),
        ("/old/sub/../page.html?x", "new page"),
        ("/all/", "new page"),
        ("/all", "new page"),
        ("/all/a/b/c", "new page"),
        ("/files/", "other index"),
        ("/files/sub/", "other sub"),
        ("/files/sub/third/", "third index"),
    ] {
        let answer = ask(&server, "localhost", target);
        assert_eq!((answer.status, &*answer.body), (200, body), "{target}");
    }
    for (target, location) in [
        ("/files?x=1", "/files/?x=1"),
        ("/files/sub", "/files/sub/"),
        ("/files/sub/third?", "/files/sub/third/?"),
        ("//files/sub", "/files/sub/"),
        ("/old/sub?x", "/old/sub/?x"),
    ] {
        let answer = ask(&server, "localhost", target);
        assert_eq!(answer.status, 301, "{target}: {answer:?}");
        assert_eq!(answer.location(), location, "{target}");
    }
    for target in [
        "/old/nothing",
        "/files/nothing",
        "/filesystem/",
        "/files/../nothing",
    ] {
        let answer = ask(&server, "localhost", target);
        assert_eq!(
            (answer.status, &*answer.body),
            (404, "lost page"),
            "{target}"
        );
    }
}
