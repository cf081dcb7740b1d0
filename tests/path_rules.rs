//! Rules by path in every spelling of the path: no spelling gets more than the plain path, since an application behind
//! the server may read the spelling as the plain path.

use std::time::Duration;

use crate::support::member::{Answer, Member, Received, ok};
use crate::support::wire::{Response, Wire};
use crate::support::{Folder, Server, run, server_table, site_table};

/// Path below the rules, in each table beside its spellings.
const PLAIN: &str = "/api/run/private/x";

/// Spellings that an application may read as [`PLAIN`].
const SPELLINGS: &[&str] = &[
    "/api/run/%70rivate/x",
    "/api/run/./private/x",
    "/api/q/../run/private/x",
    "/api/q/%2e%2E/run/private/x",
    // Doubled slashes.
    "//api/run/private/x",
    "/api//run/private/x",
    "/api/run//private/x",
    "/api/run/private//x",
    "/api/run///private/./x",
    "/api/run/q//../private/x",
    "/api/run//private/q/../x",
    // Parameters.
    "/api/run/private;v=1/x",
    "/api/run/private;/x",
    "/api/run/private%3Bv/x",
    "/api/run;v/private/x",
    "/api/run/;v/private/x",
    "/api/run/;v//private/x",
    "/api/run/private/q/..;v/x",
    "/api/run/q/..;v/private/x",
    "/api/run/.;v/private/x",
    // Encoded slashes.
    "/api/run/private%2Fx",
    "/api/run/private%2fx",
    "/api/run%2Fprivate/x",
    "/api%2Frun%2Fprivate%2Fx",
    "/api/run/%2Fprivate/x",
    "/api/run/q%2F..%2Fprivate/x",
    "/api/run/private%2F..%2Fx",
    "/api/run/q/..%2Fprivate/x",
    "/api/run/..%2Frun/private/x",
    "/api/run/q%2Fr/../private%2Fx",
    "/api/run/q%2F%2F..%2Fprivate/x",
    "/api/run/private%2F;v/x",
    "/api/run/private//q%2F../x",
];

/// Request of the table. The fields end with CRLF each.
struct Sent {
    method: &'static str,
    fields: &'static str,
    content: &'static str,
}

const GET: Sent = Sent {
    method: "GET",
    fields: "Origin: https://page.example\r\n",
    content: "",
};
const POST: Sent = Sent {
    method: "POST",
    fields: "Content-Length: 20\r\n",
    content: "twenty bytes of text",
};
const PREFLIGHT: Sent = Sent {
    method: "OPTIONS",
    fields: "Origin: https://page.example\r\nAccess-Control-Request-Method: GET\r\n",
    content: "",
};

/// Rule of a site with the rule's name, its lines, a request, and the check of a response to which the rule was applied.
struct Rule {
    name: &'static str,
    /// Lines of the site.
    site: &'static str,
    /// Lines of the route with the target.
    route: &'static str,
    /// Further routes; `TARGET` stands for the target.
    further: &'static str,
    sent: Sent,
    /// Number of requests for the plain path before the request of the table.
    before: usize,
    holds: fn(&Response) -> bool,
}

const RULE: Rule = Rule {
    name: "",
    site: "",
    route: "",
    further: "",
    sent: GET,
    before: 0,
    holds: |_| false,
};

const RULES: &[Rule] = &[
    Rule {
        name: "allow",
        further: "path = \"/api/run/private\"\nallow = [\"192.0.2.1\"]",
        holds: |response| response.status == 403,
        ..RULE
    },
    Rule {
        name: "deny",
        further: "path = \"/api/run/private\"\ndeny = [\"127.0.0.1\"]",
        holds: |response| response.status == 403,
        ..RULE
    },
    Rule {
        name: "deny for a preflight",
        site: "cors = \"*\"",
        further: "path = \"/api/run/private\"\ndeny = [\"127.0.0.1\"]",
        sent: PREFLIGHT,
        holds: |response| response.status == 403,
        ..RULE
    },
    Rule {
        name: "users",
        further: "path = \"/api/run/private\"\nusers = \"users\"",
        holds: |response| response.status == 401,
        ..RULE
    },
    Rule {
        name: "guard_methods",
        further: "path = \"/api/run/private\"\nusers = \"users\"\nguard_methods = [\"POST\"]",
        sent: POST,
        holds: |response| response.status == 401,
        ..RULE
    },
    Rule {
        name: "methods",
        further: "path = \"/api/run/private\"\nmethods = [\"PUT\"]",
        holds: |response| response.status == 405,
        ..RULE
    },
    Rule {
        name: "rate",
        further: "path = \"/api/run/private\"\nrate = { requests = 1, per = \"1d\", burst = 1 }",
        before: 1,
        holds: |response| response.status == 429,
        ..RULE
    },
    Rule {
        name: "body_bytes",
        further: "path = \"/api/run/private\"\nbody_bytes = 10",
        sent: POST,
        holds: |response| response.status == 413,
        ..RULE
    },
    Rule {
        name: "body_bytes below a larger size",
        route: "body_bytes = \"2GiB\"",
        further: "path = \"/api/run/private\"\nbody_bytes = 10",
        sent: POST,
        holds: |response| response.status == 413,
        ..RULE
    },
    Rule {
        name: "cors",
        site: "cors = \"*\"",
        further: "path = \"/api/run/private\"\ncors = { origins = [] }",
        holds: |response| response.field("access-control-allow-origin").is_none(),
        ..RULE
    },
    Rule {
        name: "cors of a preflight",
        site: "cors = \"*\"",
        further: "path = \"/api/run/private\"\ncors = { origins = [] }",
        sent: PREFLIGHT,
        holds: |response| response.field("access-control-allow-origin").is_none(),
        ..RULE
    },
    Rule {
        name: "cors of another origin",
        site: "cors = \"*\"",
        further: "path = \"/api/run/private\"\ncors = { origins = [\"https://other.example\"] }",
        holds: |response| response.field("access-control-allow-origin").is_none(),
        ..RULE
    },
    Rule {
        name: "cors of one part of a site",
        further: "path = \"/api/run/private\"\ncors = { origins = [] }",
        holds: |response| response.field("access-control-allow-origin").is_none(),
        ..RULE
    },
    Rule {
        name: "headers",
        site: "headers = [{ files = \"/api/run/private/**\", set = { X-Rule = \"1\" } }]",
        holds: |response| response.field("x-rule") == Some("1"),
        ..RULE
    },
    Rule {
        name: "forced redirect",
        site: "redirects = [{ from = \"/api/run/private/*\", status = 410, force = true }]",
        holds: |response| response.status == 410,
        ..RULE
    },
    Rule {
        name: "route without a page cache",
        route: "cache = { seconds = 100 }",
        further: "path = \"/api/run/private\"\nTARGET",
        before: 1,
        holds: |response| response.field("cache-status").is_none(),
        ..RULE
    },
];

/// Answers with the request line and with fields of cross-origin access, which the server must not pass where a rule
/// takes the access away.
fn member(request: &Received) -> Answer {
    let line = request.line();
    let head = format!(
        "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nContent-Length: {}\r\n\r\n",
        line.len()
    );
    Answer::Keep((head + line).into_bytes())
}

fn folder() -> Folder {
    let hash = run("openssl", &["passwd", "-1", "-stdin"], b"crumb");
    let folder = Folder::new()
        .with("public/index.html", "front")
        .with("users", format!("ant:{}\n", hash.text().trim()));
    folder.write("scripts/run", SCRIPT);
    folder.program("scripts/run", SCRIPT);
    folder
}

/// A script that answers with the requested URI and its path info.
const SCRIPT: &str = "#!/bin/sh\ncat >/dev/null\nprintf 'Content-Type: text/plain\\nAccess-Control-Allow-Origin: *\\n\
                      \\n%s %s' \"$REQUEST_URI\" \"$PATH_INFO\"\n";

fn ask(server: &Server, sent: &Sent, path: &str) -> Response {
    let mut wire = Wire::plain(server);
    wire.patience(Duration::from_secs(60));
    wire.send(format!(
        "{} {path} HTTP/1.1\r\nHost: localhost\r\n{}\r\n{}",
        sent.method, sent.fields, sent.content
    ));
    wire.response(sent.method)
}

#[test]
fn each_rule_holds_in_each_spelling_of_its_path() {
    let member = Member::start(member);
    let targets = [
        format!("proxy = \"{}\"\nencoded_slash = \"pass\"", member.url()),
        "cgi = \"scripts\"".to_owned(),
    ];
    for (target, rule) in targets
        .iter()
        .flat_map(|it| RULES.iter().map(move |rule| (it, rule)))
    {
        let further = rule.further.replace("TARGET", target);
        let is_cgi = target.starts_with("cgi");
        // A second folder of scripts would have other names.
        if is_cgi && rule.further.contains("TARGET") {
            continue;
        }
        let further = match further.as_str() {
            "" => String::new(),
            lines => format!("[[site.route]]\n{lines}\n"),
        };
        let routes = format!(
            "[[site.route]]\npath = \"/api\"\n{target}\n{}\n{further}",
            rule.route
        );
        let config =
            server_table("") + &site_table("http = \"serve\"") + rule.site + "\n" + &routes;
        let server = Server::start_in(folder(), &config);
        for path in [PLAIN].iter().chain(SPELLINGS) {
            // A rate has no more tokens after the first request.
            for _ in 0..rule.before {
                ask(&server, &rule.sent, path);
            }
            let response = ask(&server, &rule.sent, path);
            // No script has a name with a parameter.
            let is_refused =
                *path != PLAIN && (response.status == 400 || is_cgi && response.status == 404);
            let what = format!("{} with {target}: {path}: {response:?}", rule.name);
            assert!(is_refused || (rule.holds)(&response), "{what}");
        }
    }
}

/// Checks that rules of a path change nothing about other paths, whatever characters the other paths have.
#[test]
fn spellings_of_other_paths_stay_free() {
    let member = Member::start(|request| ok(request.line()));
    let routes = format!(
        "[[site.route]]\npath = \"/api\"\nproxy = \"{}\"\nencoded_slash = \"pass\"\ncors = \"*\"\n\
         [[site.route]]\npath = \"/api/run/private\"\nusers = \"users\"\ncors = {{ origins = [] }}\nbody_bytes = 1\n",
        member.url()
    );
    let config = server_table("") + &site_table("http = \"serve\"") + &routes;
    let server = Server::start_in(folder(), &config);
    for path in [
        "/api/run/x;private",
        "/api/run/x;v/y",
        "/api/run//x",
        "/api/run/privateer%2Fx",
        "/api//web/https://page.example//x.jpg",
        "/api/run/x%2F%2Fy",
        "/api/a//b;v//",
    ] {
        for (sent, length) in [(&GET, 0), (&POST, 20)] {
            let response = ask(&server, sent, path);
            let line = format!("{} {path} HTTP/1.1", sent.method);
            assert_eq!((response.status, response.text()), (200, line), "{path}");
            let access = response.field("access-control-allow-origin");
            assert_eq!(access, Some("*"), "{path}");
            assert_eq!(sent.content.len(), length);
        }
    }
}

/// Checks what a script gets of a path with dot segments and doubled slashes.
#[test]
fn a_script_gets_no_dot_segments() {
    let config = server_table("")
        + &site_table("http = \"serve\"")
        + "[[site.route]]\npath = \"/api\"\ncgi = \"scripts\"\n";
    let server = Server::start_in(folder(), &config);
    for (path, expected) in [
        ("/api/run/a//b", "/api/run/a//b /a/b"),
        ("/private/../api/run/a%20b", "/api/run/a%20b /a b"),
        ("/private/%2e%2e/api/run/?q", "/api/run/?q /"),
        ("//api//run", "//api//run "),
    ] {
        let response = ask(&server, &GET, path);
        assert_eq!(
            (response.status, response.text().as_str()),
            (200, expected),
            "{path}"
        );
    }
}

/// Checks that a route with a path of the member in place of its own leads below the path of the member alone.
#[test]
fn a_path_stays_below_the_path_of_its_member() {
    let member = Member::start(|request| ok(request.line()));
    let routes = format!(
        "[[site.route]]\npath = \"/shop\"\nproxy = \"{url}/app/\"\nencoded_slash = \"pass\"\n\
         [[site.route]]\npath = \"/all\"\nproxy = \"{url}/\"\nslashes = \"merge\"\n",
        url = member.url()
    );
    let config = server_table("") + &site_table("http = \"serve\"") + &routes;
    let server = Server::start_in(folder(), &config);
    for (path, expected) in [
        ("/shop/a", Ok("/app/a")),
        ("/shop/a%2Fb", Ok("/app/a%2Fb")),
        ("/shop/a/b%2F..%2Fc", Ok("/app/a/b%2F..%2Fc")),
        ("/shop//a", Ok("/app//a")),
        ("//shop//a//", Ok("/app//a//")),
        ("//shop", Ok("/app/")),
        ("/all//a", Ok("/a")),
        ("//all//a//", Ok("/a/")),
        ("/shop/%2e%2e%2Fshop/secret", Err("R118")),
        ("/shop/..%2Fshop%2Fsecret", Err("R118")),
        ("/shop/a%2F..%2F..%2Fshop/b", Err("R118")),
        ("/shop/a%2F..%2F..%2Fb", Err("R114")),
    ] {
        let response = ask(&server, &GET, path);
        match expected {
            Ok(sent) => {
                let line = format!("GET {sent} HTTP/1.1");
                assert_eq!((response.status, response.text()), (200, line), "{path}");
            }
            Err(rule) => {
                assert_eq!(response.status, 400, "{path}");
                server.output.wait_for("the rule", |line| {
                    line.contains(&format!("GET {path} ")) && line.contains(rule)
                });
            }
        }
    }
}

/// Checks that pages with doubled slashes have places of their own in the page cache.
#[test]
fn the_page_cache_keeps_doubled_slashes_apart() {
    let member = Member::start(|request| ok(request.line()));
    let routes = format!(
        "[[site.route]]\npath = \"/\"\nproxy = \"{}\"\ncache = {{ seconds = 100 }}\n",
        member.url()
    );
    let server = Server::start(&(server_table("") + &site_table("http = \"serve\"") + &routes));
    let paths = ["/a/b", "/a//b", "//a/b", "/a/b/", "/a/b//"];
    for path in paths.iter().chain(&paths) {
        let text = Wire::plain(&server).get(path, "").text();
        assert_eq!(text, format!("GET {path} HTTP/1.1"));
    }
    assert_eq!(member.requests().len(), paths.len());
}

/// Checks that a client can't lead a redirect of this server to another host by slashes.
#[test]
fn no_redirect_leads_to_another_host() {
    let folder = Folder::new()
        .with("public/folder/index.html", "page")
        .with("public/evil.example/index.html", "page");
    let config = server_table("")
        + &site_table("http = \"serve\"\nredirects = [{ from = \"/old/*\", to = \"/:splat\" }]")
        + "[[site.route]]\npath = \"/moved/\"\nredirect = \"/\"\n";
    let server = Server::start_in(folder, &config);
    for (path, location) in [
        ("//evil.example", "/evil.example/"),
        ("///evil.example", "/evil.example/"),
        ("/.//evil.example", "/evil.example/"),
        ("/x/..//evil.example", "/evil.example/"),
        ("/old//evil.example/", "/evil.example/"),
        ("/old///evil.example/", "/evil.example/"),
        ("/moved//evil.example/", "/evil.example/"),
        ("//moved///evil.example/", "/evil.example/"),
        ("//folder", "/folder/"),
    ] {
        let response = ask(&server, &GET, path);
        assert!(
            (300..400).contains(&response.status),
            "{path}: {response:?}"
        );
        assert_eq!(response.field("location"), Some(location), "{path}");
    }
}

/// Returns the paths that lenient applications look up for a path as received: with encoded slashes as separators or
/// not, without parameters or with them, and with merged slashes before or after dot segments are resolved.
fn looked_up(sent: &str) -> Vec<String> {
    let mut all = Vec::new();
    for habits in 0..32 {
        let has = |bit: u32| habits >> bit & 1 == 1;
        let mut text = sent.to_owned();
        if has(0) {
            text = text.replace("%2F", "/").replace("%2f", "/");
        }
        text = text
            .replace("%61", "a")
            .replace("%2e", ".")
            .replace("%2E", ".")
            .replace("%3B", ";");
        if has(1) {
            let segments = text.split('/');
            let plain = segments.map(|segment| segment.split(';').next().unwrap_or_default());
            text = plain.collect::<Vec<_>>().join("/");
        }
        let merged = |mut text: String| {
            while text.contains("//") {
                text = text.replace("//", "/");
            }
            text
        };
        if has(2) {
            text = merged(text);
        }
        if has(3) {
            let mut segments: Vec<&str> = Vec::new();
            for segment in text.split('/').skip(1) {
                match segment {
                    "." => {}
                    ".." => {
                        segments.pop();
                    }
                    name => segments.push(name),
                }
            }
            text = format!("/{}", segments.join("/"));
        }
        if has(4) {
            text = merged(text);
        }
        all.push(text);
    }
    all
}

/// Asks for paths of random parts. No lenient application finds a resource that a guard or the path of its route keeps
/// from the client.
#[test]
fn no_random_spelling_reaches_a_guarded_resource() {
    let is_below = |path: &str, prefix: &str| {
        let rest = path.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let member = Member::start(move |request| {
        let sent = request.line().split(' ').nth(1).unwrap_or_default();
        let found = looked_up(sent);
        let is_secret = match sent.strip_prefix("/in/") {
            // The route `/shop` leads below `/in`.
            Some(_) => found
                .iter()
                .any(|path| !is_below(path, "/in") || is_below(path, "/in/a/b")),
            None => found
                .iter()
                .any(|path| is_below(path, "/a/b") || is_below(path, "/b")),
        };
        ok(if is_secret {
            format!("SECRET {sent}")
        } else {
            "public".to_owned()
        })
    });
    let url = member.url();
    let routes = format!(
        "[[site.route]]\npath = \"/\"\nproxy = \"{url}\"\nencoded_slash = \"pass\"\n\
         [[site.route]]\npath = \"/shop\"\nproxy = \"{url}/in/\"\nencoded_slash = \"pass\"\n\
         [[site.route]]\npath = \"/a/b\"\nusers = \"users\"\n\
         [[site.route]]\npath = \"/b\"\nallow = [\"192.0.2.1\"]\n\
         [[site.route]]\npath = \"/shop/a/b\"\nmethods = [\"PUT\"]\n"
    );
    let config = server_table("") + &site_table("http = \"serve\"") + &routes;
    let server = Server::start_in(folder(), &config);
    const PARTS: [&str; 18] = [
        "/", "//", "/a", "/b", "/c", "/shop", "a", "b", "/..", "/.", "%2F", "%2f..", "%2e%2e", ";",
        ";v", "%3B", "%61", "/shop/a",
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut passed = 0;
    let mut wire = Wire::plain(&server);
    for _ in 0..6_000 {
        let mut path = String::from("/");
        let mut count = 0;
        while count < 3 + (state >> 60) {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            path += PARTS[(state >> 33) as usize % PARTS.len()];
            count += 1;
        }
        let response = wire.get(&path, "");
        if response.closes() {
            wire = Wire::plain(&server);
        }
        if response.status == 200 {
            passed += 1;
            assert!(
                !response.text().starts_with("SECRET"),
                "{path}: {}",
                response.text()
            );
        }
    }
    assert!(passed > 500, "{passed} paths passed");
}
