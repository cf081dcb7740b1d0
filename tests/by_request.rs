//! Rules by request: request rates, cross-origin access, methods, denied addresses and sizes of contents.
//! tests/versions.rs compares the responses of all versions of HTTP.

use std::os::unix::fs::symlink;

use crate::support::h2::H2;
use crate::support::member::{Member, ok};
use crate::support::wire::{Over, Response, Wire};
use crate::support::{Folder, Server, run, server_table, site_table};

fn site(more: &str) -> String {
    server_table("") + &site_table(&format!("http = \"serve\"\n{more}"))
}

fn folder() -> Folder {
    let hash = run("openssl", &["passwd", "-1", "-stdin"], b"crumb");
    Folder::new()
        .with("users", format!("ant:{}\n", hash.text().trim()))
        .with("public/index.html", "front")
        .with("public/limited/index.html", "limited")
        .with("public/limited/slow/index.html", "slow")
        .with("public/later.html", "come back later")
        .with(
            "public/edit.sh",
            "printf 'Content-Type: text/plain\\n\\nedited'\n",
        )
}

/// Credentials of `ant:crumb`.
const LOGIN: &str = "Authorization: Basic YW50OmNydW1i\r\n";

fn get(server: &Server, path: &str) -> Response {
    Wire::plain(server).get(path, "")
}

/// Sends a GET over HTTP/3, and returns the status and the value of Retry-After.
#[cfg(feature = "http3")]
fn get_h3(server: &Server, path: &str) -> (u16, u64) {
    let told = crate::h3::run_scenario(server, &["ask", &format!("GET {path}")]);
    let status = told
        .split("\"status\": ")
        .nth(1)
        .and_then(|rest| rest.get(..3));
    let wait = told.split("\"retry-after\", \"").nth(1);
    let wait = wait.and_then(|rest| rest.split('"').next());
    (
        status.and_then(|it| it.parse().ok()).expect("a status"),
        wait.and_then(|it| it.parse().ok()).unwrap_or(0),
    )
}

fn wait_of(response: &Response) -> u64 {
    let wait = response.field("retry-after").expect("Retry-After");
    wait.parse().expect("a number of seconds")
}

/// A rate of 3 requests at once, and one more each day.
const RATE: &str = "rate = { requests = 1, per = \"1d\", burst = 3 }";
/// Seconds of the day, and the least wait of a test that takes less than an hour.
const DAY: std::ops::RangeInclusive<u64> = 82_800..=86_400;

#[test]
fn a_rate_is_one_for_all_versions_and_workers() {
    let config = site(&format!(
        "errors = {{ 429 = \"later.html\" }}\n[[site.route]]\npath = \"/limited\"\n{RATE}"
    ));
    let server = Server::start_in(folder(), &config.replace("workers = 1", "workers = 2"));
    let first = get(&server, "/limited/");
    assert_eq!((first.status, first.text().as_str()), (200, "limited"));
    let mut h2 = H2::open(&server, Over::Tls);
    assert_eq!(h2.get("/limited/").status, 200);
    // A request for a missing page counts too.
    #[cfg(feature = "http3")]
    assert_eq!(get_h3(&server, "/limited/none").0, 404);
    #[cfg(not(feature = "http3"))]
    assert_eq!(get(&server, "/limited/none").status, 404);
    // The first refusal loads the error page, and stays a refusal.
    for _ in 0..3 {
        let refused = get(&server, "/limited/");
        assert_eq!(
            (refused.status, refused.text().as_str()),
            (429, "come back later")
        );
        assert!(DAY.contains(&wait_of(&refused)), "{refused:?}");
        let refused = h2.get("/limited/");
        assert_eq!(
            (refused.status, refused.text().as_str()),
            (429, "come back later")
        );
        assert!(DAY.contains(&wait_of(&refused)), "{refused:?}");
    }
    #[cfg(feature = "http3")]
    {
        let (status, wait) = get_h3(&server, "/limited/");
        assert!(status == 429 && DAY.contains(&wait), "{status} {wait}");
    }
    server
        .output
        .wait_for("the rule", |line| line.contains("R610"));
    // Other paths and other clients are not limited.
    assert_eq!(get(&server, "/").status, 200);
    let mut other = Wire::of(&server, [127, 0, 0, 2].into());
    assert_eq!(other.get("/limited/", "").status, 200);
    // A reload keeps the counts of the same rate, and another rate begins anew.
    server.reload(&config.replace("workers = 1", "workers = 2\nh2c = true"));
    assert_eq!(get(&server, "/limited/").status, 429);
    server.reload(&config.replace("burst = 3", "burst = 4"));
    assert_eq!(get(&server, "/limited/").status, 200);
}

#[test]
fn an_error_page_has_the_operators_retry_after_alone() {
    let server = Server::start_in(
        folder(),
        &site(&format!(
            "errors = {{ 429 = \"later.html\" }}\n\
             headers = [{{ files = \"later.html\", set = {{ Retry-After = \"120\" }} }}]\n\
             [[site.route]]\npath = \"/limited\"\n{}",
            RATE.replace('3', "1")
        )),
    );
    assert_eq!(get(&server, "/limited/").status, 200);
    let mut h2 = H2::open(&server, Over::Tls);
    // The first refusal loads the error page.
    for _ in 0..2 {
        for refused in [get(&server, "/limited/"), h2.get("/limited/")] {
            assert_eq!(refused.status, 429);
            assert_eq!(refused.field("retry-after"), Some("120"));
        }
    }
    #[cfg(feature = "http3")]
    assert_eq!(get_h3(&server, "/limited/"), (429, 120));
}

#[test]
fn a_request_counts_once_in_each_rate_of_its_path() {
    let config = site(&format!(
        "{}\n[[site.route]]\npath = \"/limited/slow\"\n{RATE}\nusers = \"users\"\n\
         [[site.route]]\npath = \"/edit.sh\"\ninterpreter = {{ \".sh\" = \"/bin/sh\" }}",
        RATE.replace('3', "5")
    ));
    let server = Server::start_in(folder(), &config);
    let ask = |fields: &str| Wire::plain(&server).get("/limited/slow/", fields);
    // The check of the password and the load of the page repeat the dispatch.
    assert_eq!(ask(LOGIN).status, 200);
    assert_eq!(ask(LOGIN).status, 200);
    // A request without the login counts too.
    assert_eq!(ask("").status, 401);
    assert_eq!(ask(LOGIN).status, 429);
    assert_eq!(ask("").status, 429);
    // The refused requests took nothing from the rate of the site.
    let mut wire = Wire::plain(&server);
    let posted = |wire: &mut Wire, path: &str| {
        let body = "x".repeat(1_000);
        wire.send(format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        wire.response("POST").status
    };
    assert_eq!(posted(&mut wire, "/edit.sh"), 200);
    assert_eq!(posted(&mut wire, "/"), 405);
    assert_eq!(posted(&mut wire, "/"), 429);
    assert_eq!(posted(&mut wire, "/edit.sh"), 429);
}

#[test]
fn rates_and_sizes_hold_under_every_path_of_a_page() {
    let folder = folder()
        .with("public/login.html", "log in")
        .with("public/admin/index.html", "admin");
    let config = site(&format!(
        "try = [\"$path\", \"$path.html\"]\n\
         [[site.route]]\npath = \"/login.html\"\n{RATE}\n\
         [[site.route]]\npath = \"/admin/index.html\"\n{RATE}\n\
         [[site.route]]\npath = \"/limited\"\nusers = \"users\"\n\
         [[site.route]]\npath = \"/limited/index.html\"\n{RATE}\n\
         [[site.route]]\npath = \"/short\"\nrewrite = \"/later.html\"\n\
         [[site.route]]\npath = \"/later.html\"\n{RATE}\n\
         [[site.route]]\npath = \"/send\"\nrewrite = \"/edit.sh\"\n\
         [[site.route]]\npath = \"/edit.sh\"\ninterpreter = {{ \".sh\" = \"/bin/sh\" }}\nbody_bytes = 10\n"
    ));
    let server = Server::start_in(folder, &config);
    let ask = |path: &str, fields: &str| Wire::plain(&server).get(path, fields);
    for paths in [
        ["/login", "/login.html"],
        ["/admin/", "/admin/index.html"],
        ["/short", "/later.html"],
    ] {
        for path in [paths[0], paths[0], paths[1]] {
            assert_eq!(ask(path, "").status, 200, "{path}");
        }
        for path in paths {
            let refused = ask(path, "");
            assert_eq!(refused.status, 429, "{path}");
            assert!(DAY.contains(&wait_of(&refused)), "{refused:?}");
        }
    }
    // The check of the password comes before the file is found.
    for status in [200, 200, 200, 429] {
        assert_eq!(ask("/limited/", LOGIN).status, status);
    }
    let posted = |path: &str, bytes: usize| {
        let fields = format!("Content-Length: {bytes}\r\n\r\n{}", "x".repeat(bytes));
        let mut wire = Wire::plain(&server);
        wire.send(format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\n{fields}"
        ));
        wire.response("POST").status
    };
    let posts = [("/send", 10), ("/send", 11), ("/edit.sh", 11)];
    let posts = posts.map(|(path, bytes)| posted(path, bytes));
    assert_eq!(posts, [200, 413, 413]);
}

#[test]
fn parameters_of_a_proxied_path_do_not_evade_a_rate() {
    let member = Member::start(|request| ok(request.line()));
    let config = site(&format!(
        "[[site.route]]\npath = \"/api\"\nproxy = \"{}\"\n\
         [[site.route]]\npath = \"/api/login\"\n{RATE}\nbody_bytes = 10\n",
        member.url()
    ));
    let server = Server::start_in(folder(), &config);
    let paths = ["/api/login;x=1", "/api/login;", "/api/;y/login%3Bz"];
    for path in paths {
        assert_eq!(get(&server, path).status, 200, "{path}");
    }
    for path in paths {
        assert_eq!(get(&server, path).status, 429, "{path}");
    }
    assert_eq!(get(&server, "/api/logins;x").status, 200);
    let mut other = Wire::of(&server, [127, 0, 0, 2].into());
    let large =
        "POST /api/login;x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\r\n01234567890";
    other.send(large);
    assert_eq!(other.response("POST").status, 413);
}

#[test]
fn discarded_content_that_arrives_slowly_counts_once() {
    let server = Server::start_in(folder(), &site(RATE));
    let mut wire = Wire::plain(&server);
    for _ in 0..3 {
        let head = "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
        wire.drip(head.as_bytes());
        wire.drip(b"1\r\nx\r\n");
        wire.drip(b"1\r\nx\r\n0\r\n\r\n");
        assert_eq!(wire.response("POST").status, 405);
    }
    assert_eq!(wire.get("/", "").status, 429);
}

#[test]
fn the_innermost_cors_decides_and_replaces_the_fields_of_a_script() {
    let folder = folder().with(
        "public/own.sh",
        "printf 'Access-Control-Allow-Origin: https://own.example\\nContent-Type: text/plain\\n\\nown'\n",
    );
    let config = site(
        "cors = \"*\"\nhsts = true\n\
         [[site.route]]\npath = \"/\"\ninterpreter = { \".sh\" = \"/bin/sh\" }\ncache = { seconds = 1000 }\n\
         [[site.route]]\npath = \"/limited\"\ncors = { origins = [\"https://a.example\"], max_age = \"1h\" }\n\
         [[site.route]]\npath = \"/limited/slow\"\ncors = { origins = [] }\n",
    );
    let server = Server::start_in(folder, &config);
    let origin = "Origin: https://a.example\r\n";
    let allowed = |over: Over, path: &str, fields: &str| {
        let response = Wire::over(&server, over).get(path, fields);
        assert_eq!(response.status, 200, "{path}");
        let hsts = response.field("strict-transport-security");
        assert_eq!(hsts.is_some(), over == Over::Tls, "{path}");
        let allowed = response.field("access-control-allow-origin");
        let vary = response
            .fields
            .iter()
            .any(|(name, value)| name == "Vary" && value == "Origin");
        (allowed.map(str::to_owned), vary)
    };
    let all = (Some("*".to_owned()), false);
    for over in [Over::Plain, Over::Tls] {
        assert_eq!(allowed(over, "/", ""), all);
        assert_eq!(allowed(over, "/", origin), all);
        // The first response comes from the script, and the later ones from the page cache.
        assert_eq!(allowed(over, "/own.sh", origin), all);
        assert_eq!(allowed(over, "/own.sh", ""), all);
        let one = (Some("https://a.example".to_owned()), true);
        assert_eq!(allowed(over, "/limited/", origin), one);
        assert_eq!(allowed(over, "/limited/", ""), (None, true));
        assert_eq!(allowed(over, "/limited/slow/", origin), (None, true));
    }
    let asked = format!("{origin}Access-Control-Request-Method: DELETE\r\n");
    let preflight = Wire::plain(&server).ask("OPTIONS", "/limited/", &asked);
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.field("access-control-max-age"), Some("3600"));
    assert_eq!(
        preflight.field("access-control-allow-methods"),
        Some("GET, HEAD, POST")
    );
    let other = Wire::plain(&server).ask("OPTIONS", "/limited/slow/", &asked);
    assert_eq!(
        (other.status, other.field("access-control-allow-methods")),
        (204, None)
    );
}

#[test]
fn guards_by_method_hold_under_every_name_of_a_script() {
    let folder = folder();
    symlink("edit.sh", folder.path("public/door.sh")).expect("a link");
    let config = site(
        "[[site.route]]\npath = \"/\"\ninterpreter = { \".sh\" = \"/bin/sh\" }\n\
         [[site.route]]\npath = \"/edit.sh\"\nguard_methods = [\"POST\"]\nusers = \"users\"\n\
         [[site.route]]\npath = \"/run/\"\ncgi = \"scripts\"\n\
         [[site.route]]\npath = \"/run/edit\"\nguard_methods = [\"POST\"]\nusers = \"users\"\n\
         [[site.route]]\npath = \"/limited/\"\nmethods = [\"GET\", \"PROPFIND\"]\n",
    );
    folder.program(
        "scripts/edit",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nran'\n",
    );
    symlink("edit", folder.path("scripts/door")).expect("a link");
    let server = Server::start_in(folder, &config);
    let ask =
        |method: &str, path: &str, fields: &str| Wire::plain(&server).ask(method, path, fields);
    for path in ["/edit.sh", "/door.sh", "/run/edit", "/run/door"] {
        assert_eq!(ask("GET", path, "").status, 200, "{path}");
        assert_eq!(
            ask("POST", path, "Content-Length: 0\r\n").status,
            401,
            "{path}"
        );
        let login = format!("{LOGIN}Content-Length: 0\r\n");
        assert_eq!(ask("POST", path, &login).status, 200, "{path}");
    }
    let refused = ask("DELETE", "/limited/", "");
    assert_eq!(
        (refused.status, refused.field("allow")),
        (405, Some("GET, HEAD, PROPFIND"))
    );
    assert_eq!(ask("HEAD", "/limited/", "").status, 200);
    assert_eq!(ask("OPTIONS", "/limited/", "").status, 405);
}

#[test]
fn a_cached_page_is_dropped_when_a_guard_gets_further_methods() {
    let folder = folder();
    folder.program(
        "scripts/door",
        "#!/bin/sh\nprintf 'Location: /later.html\\n\\n'\n",
    );
    let guarded = |methods: &str| {
        site(&format!(
            "[[site.route]]\npath = \"/run/\"\ncgi = \"scripts\"\ncache = {{ seconds = 1000 }}\n\
             [[site.route]]\npath = \"/later.html\"\nusers = \"users\"\nguard_methods = [{methods}]\n"
        ))
    };
    let server = Server::start_in(folder, &guarded("\"POST\""));
    for _ in 0..2 {
        assert_eq!(get(&server, "/run/door").text(), "come back later");
    }
    server.reload(&guarded("\"POST\", \"GET\""));
    assert_eq!(get(&server, "/run/door").status, 401);
    server.reload(&guarded("\"POST\""));
    assert_eq!(get(&server, "/run/door").text(), "come back later");
}

#[test]
fn deny_wins_over_allow() {
    let config = site(
        "[[site.route]]\npath = \"/limited/\"\nallow = [\"127.0.0.0/8\"]\ndeny = [\"127.0.0.2\", \"::1\"]\n\
         [[site.route]]\npath = \"/limited/slow/\"\ndeny = [\"127.0.0.3\"]\nguard_methods = [\"POST\"]\n\
         users = \"users\"\n",
    );
    let server = Server::start_in(folder(), &config);
    let status = |last: u8, path: &str| {
        Wire::of(&server, [127, 0, 0, last].into())
            .get(path, "")
            .status
    };
    for (last, path, expected) in [
        (1, "/limited/", 200),
        (2, "/limited/", 403),
        (2, "/", 200),
        (3, "/limited/", 200),
        // `deny` applies to all methods, and guards add up.
        (3, "/limited/slow/", 403),
        (2, "/limited/slow/", 403),
        (1, "/limited/slow/", 200),
    ] {
        assert_eq!(status(last, path), expected, "127.0.0.{last} {path}");
    }
}

#[test]
fn check_warns_of_methods_without_a_guard() {
    let folder = folder().with(
        "anthill.toml",
        "[[site]]\n\
         [[site.route]]\npath = \"/a/\"\nproxy = \"http://127.0.0.1:1\"\nusers = \"users\"\n\
         guard_methods = [\"POST\"]\n\
         [[site.route]]\npath = \"/b/\"\nproxy = \"http://127.0.0.1:1\"\nusers = \"users\"\n\
         guard_methods = [\"POST\"]\nmethods = [\"GET\", \"POST\"]\n\
         [[site.route]]\npath = \"/c/\"\nproxy = \"http://127.0.0.1:1\"\n\
         [[site.route]]\npath = \"/c/wiki/\"\nusers = \"users\"\n\
         guard_methods = [\"POST\", \"PUT\", \"PATCH\", \"DELETE\"]\n\
         [[site.route]]\npath = \"/d/\"\nproxy = \"http://127.0.0.1:1\"\nmethods = [\"GET\", \"POST\"]\n\
         [[site.route]]\npath = \"/d/wiki/\"\nusers = \"users\"\nguard_methods = [\"POST\"]\n\
         [[site.route]]\npath = \"/files/\"\nusers = \"users\"\nguard_methods = [\"POST\"]\n",
    );
    let config = folder.path("anthill.toml");
    let done = run(
        crate::support::program(),
        &["check".as_ref(), config.as_os_str()],
        b"",
    );
    assert!(done.success, "{}", done.errors());
    let warnings = done.errors() + &done.text();
    for about in [
        "the route /a/ guards POST, and PUT, PATCH, DELETE pass without the guard",
        "the route /c/wiki/ guards POST, PUT, PATCH, DELETE, and MKCOL, COPY, MOVE, PROPPATCH, LOCK pass without",
    ] {
        assert!(warnings.contains(about), "{about}: {warnings}");
    }
    assert_eq!(
        warnings.matches("pass without the guard").count(),
        2,
        "{warnings}"
    );
}
