//! Paths with an encoded slash: refused, or passed to members of a route with `encoded_slash = "pass"`.

use crate::support::h2::H2;
use crate::support::member::{Member, ok};
use crate::support::wire::{Over, Wire};
use crate::support::{Folder, Server, server_table, site_table};

/// Starts a server with a route below `/npm` that passes encoded slashes, guarded below `/npm/private`, and a
/// route below `/app` that refuses them.
fn start(member: &Member, npm: &str) -> Server {
    let url = member.url();
    let folder = Folder::new()
        .with("public/index.html", "hello")
        .with("public/a/b.html", "file")
        .with("users", "ant:$1$abcdefgh$irWbblnpmw.5z7wgBnprh0\n");
    let routes = format!(
        "[[site.route]]\npath = \"/npm\"\nproxy = {{ url = \"{url}\"{npm} }}\nencoded_slash = \"pass\"\n\
         [[site.route]]\npath = \"/npm/private\"\nusers = \"users\"\n\
         [[site.route]]\npath = \"/npm/@scope\"\nallow = [\"127.0.0.1\"]\n\
         [[site.route]]\npath = \"/app\"\nproxy = \"{url}\"\n\
         [[site.route]]\npath = \"/to\"\nrewrite = \"/npm/\"\n\
         [[site.route]]\npath = \"/run\"\ncgi = \"scripts\"\n"
    );
    std::fs::create_dir(folder.path("scripts")).expect("a folder");
    let site = site_table("http = \"serve\"");
    Server::start_in(folder, &(server_table("") + &site + &routes))
}

/// Paths, and the path as the member gets it, or the rule that refuses the request.
#[rustfmt::skip]
const PATHS: &[(&str, Result<&str, &str>)] = &[
    ("/npm/a%2Fb", Ok("/npm/a%2Fb")),
    ("/npm/a%2fb", Ok("/npm/a%2fb")),
    ("/npm/a%2Fb/c%20d/./e/../f", Ok("/npm/a%2Fb/c%20d/f")),
    ("/npm/a%2Fb?x=%2F", Ok("/npm/a%2Fb?x=%2F")),
    ("/npm/a%2F..%2Fb", Ok("/npm/a%2F..%2Fb")),
    ("/npm/%2F", Ok("/npm/%2F")),
    ("/npm/@scope/a%2Fb", Ok("/npm/@scope/a%2Fb")),
    ("/npm/a%252Fb", Ok("/npm/a%252Fb")),
    // Each reading of the path has other guards.
    ("/npm/@scope%2Fa", Err("R114")),
    ("/npm/private%2Fa", Err("R114")),
    ("/npm/x%2F..%2Fprivate/a", Err("R114")),
    ("/npm/private/..%2Fa", Err("R114")),
    // A parameter may be cut off before or after the decoding.
    ("/npm/private;%2F../x", Err("R114")),
    ("/npm/x%2F.;/..%2Fprivate/x", Err("R114")),
    ("/npm/private%3b%2F../x", Err("R114")),
    ("/npm/a%2Fb;x=1", Err("R114")),
    ("/npm/a%2F..;b%2Fc", Err("R114")),
    // Each reading leads to another route.
    ("/npm%2Fa", Err("R114")),
    ("/%2Fnpm/a", Err("R114")),
    ("/npm/a%2F..%2F..%2Fb", Err("R114")),
    ("/npm/a%2F..%2F..%2Fapp%2Fb", Err("R114")),
    ("/npm/a%2F..%2F..%2F..%2Fb", Err("R111")),
    ("/npm/..%2F..%2F..%2Fb", Err("R111")),
    // Other routes, and files.
    ("/app/a%2Fb", Err("R114")),
    ("/app/..%2Fnpm/a", Err("R114")),
    ("/to/a%2Fb", Err("R114")),
    ("/run/a%2Fb", Err("R114")),
    ("/a%2Fb.html", Err("R114")),
    ("/%2F", Err("R114")),
    // Backslashes, NUL and malformed encodings stay refused.
    ("/npm/a%2Fb%5Cc", Err("R115")),
    ("/npm/a%5Cb", Err("R115")),
    ("/npm/a%2F%00", Err("R113")),
    ("/npm/a%2F%2", Err("R112")),
];

#[test]
fn both_readings_of_a_path_decide() {
    let member = Member::start(|request| ok(request.line()));
    let server = start(&member, "");
    let mut h2 = H2::open(&server, Over::Tls);
    for (path, expected) in PATHS {
        let over_1 = Wire::plain(&server).get(path, "");
        let over_2 = h2.get(path);
        for (response, version) in [(over_1, "HTTP/1.1"), (over_2, "HTTP/2.0")] {
            match expected {
                Ok(sent) => {
                    let line = format!("GET {sent} HTTP/1.1");
                    assert_eq!(
                        (response.status, response.text()),
                        (200, line),
                        "{path} {version}"
                    );
                }
                Err(rule) => {
                    assert_eq!(response.status, 400, "{path} {version}");
                    server.output.wait_for("the rule", |line| {
                        line.contains(&format!("GET {path} {version}"))
                            && line.contains(&format!("rule={rule}"))
                    });
                }
            }
        }
    }
    // The login of the guard is asked for where both readings are guarded.
    assert_eq!(
        Wire::plain(&server).get("/npm/private/a%2Fb", "").status,
        401
    );
    let passed = PATHS
        .iter()
        .filter(|(_, expected)| expected.is_ok())
        .count();
    assert_eq!(member.requests().len(), 2 * passed);
}

#[test]
fn a_prefix_replaces_whole_segments_alone() {
    let member = Member::start(|request| ok(request.line()));
    let server = start(&member, ", prefix = \"/registry/\"");
    let answer = Wire::plain(&server).get("/npm/@scope/a%2Fb", "");
    assert_eq!(answer.text(), "GET /registry/@scope/a%2Fb HTTP/1.1");
    assert_eq!(Wire::plain(&server).get("/npm%2F..%2Fx", "").status, 400);
}

#[test]
fn a_reload_ends_the_passage() {
    let member = Member::start(|request| ok(request.line()));
    let server = start(&member, "");
    let config = std::fs::read_to_string(server.folder.path("anthill.toml")).expect("a file");
    let mut wire = Wire::plain(&server);
    assert_eq!(wire.get("/npm/a%2Fb", "").status, 200);
    server.reload(&config.replace("encoded_slash = \"pass\"\n", ""));
    assert_eq!(wire.get("/npm/a%2Fb", "").status, 400);
}

#[test]
fn pages_in_the_cache_are_kept_apart() {
    let member = Member::start(|request| {
        let line = request.line();
        let head = format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {}\r\n\r\n",
            line.len()
        );
        crate::support::member::Answer::Keep((head + line).into_bytes())
    });
    let route = format!(
        "[[site.route]]\npath = \"/\"\nproxy = \"{}\"\nencoded_slash = \"pass\"\ncache = true\n",
        member.url()
    );
    let server = Server::start(&(server_table("") + &site_table("http = \"serve\"") + &route));
    let paths = ["/a/b", "/a%2Fb", "/a%252Fb"];
    for path in paths.iter().chain(&paths) {
        let text = Wire::plain(&server).get(path, "").text();
        assert_eq!(text, format!("GET {path} HTTP/1.1"));
    }
    assert_eq!(member.requests().len(), paths.len());
}
