//! Path parameters (`/a;x=1/b`) on proxied routes: application servers remove the parameters, and must not find
//! another path than the guards of this server.

use crate::support::h2::H2;
use crate::support::member::{Member, ok};
use crate::support::wire::{Over, Wire};
use crate::support::{Folder, Server, server_table, site_table};

/// Starts a server with the route `/` to the first member, and `/shop` to the second.
fn start(first: &Member, second: &Member) -> Server {
    let routes = format!(
        "[[site.route]]\npath = \"/\"\nproxy = \"{first}\"\n\
         [[site.route]]\npath = \"/admin\"\nallow = [\"192.0.2.1\"]\n\
         [[site.route]]\npath = \"/app/admin\"\nusers = \"users\"\n\
         [[site.route]]\npath = \"/shop\"\nproxy = {{ url = \"{second}\", prefix = \"/\" }}\n\
         [[site.route]]\npath = \"/kept\"\nproxy = \"{first}\"\ncache = true\n\
         [[site.route]]\npath = \"/kept/admin\"\nallow = [\"192.0.2.1\"]\n\
         [[site.route]]\npath = \"/old\"\nrewrite = \"/app/\"\n\
         [[site.route]]\npath = \"/files\"\nroot = \"public\"\n\
         [[site.route]]\npath = \"/files/secret\"\nallow = [\"192.0.2.1\"]\n",
        first = first.url(),
        second = second.url(),
    );
    let folder = Folder::new()
        .with("public/secret;x/a.html", "a name with a semicolon")
        .with("users", "ant:$1$abcdefgh$irWbblnpmw.5z7wgBnprh0\n");
    let site = site_table("http = \"serve\"").replace("root = \"public\"\n", "");
    Server::start_in(folder, &(server_table("") + &site + &routes))
}

/// Paths, and the path as the member gets it, or the rule that refuses the request.
#[rustfmt::skip]
const PATHS: &[(&str, Result<&str, &str>)] = &[
    ("/a;jsessionid=1", Ok("/a;jsessionid=1")),
    ("/a;x=1;y=2/b;c/d", Ok("/a;x=1;y=2/b;c/d")),
    ("/a%3Bx/b", Ok("/a%3Bx/b")),
    ("/a;x/../b", Ok("/b")),
    ("/a?b;c", Ok("/a?b;c")),
    ("/app;x/", Ok("/app;x/")),
    ("/administrator;x/a", Ok("/administrator;x/a")),
    ("/x;/admin/a", Ok("/x;/admin/a")),
    ("/shop/a;x/b", Ok("/a;x/b")),
    ("/shop/;jsessionid=1", Ok("/;jsessionid=1")),
    ("/kept/a;x", Ok("/kept/a;x")),
    // Members would find a guarded path.
    ("/admin;x/secret", Err("R117")),
    ("/admin;/secret", Err("R117")),
    ("/admin;x", Err("R117")),
    ("/admin%3Bx/secret", Err("R117")),
    ("/;x/admin/secret", Err("R117")),
    ("/a/..;/admin/secret", Err("R117")),
    ("/app;x/admin/secret", Err("R117")),
    ("/app/admin;x=1/secret", Err("R117")),
    ("/kept/admin;x/secret", Err("R117")),
    ("/old/admin;x/secret", Err("R117")),
    // Members would find the path of another route.
    ("/shop;x/a", Err("R117")),
    ("/shop;x", Err("R117")),
    // The path leads to the guarded folder in both readings.
    ("/admin/a;x", Err("R403")),
];

#[test]
fn both_readings_of_a_path_decide() {
    let [first, second] = [0, 1].map(|_| Member::start(|request| ok(request.line())));
    let server = start(&first, &second);
    let mut h2 = H2::open(&server, Over::Tls);
    for (path, expected) in PATHS {
        let over_1 = Wire::plain(&server).get(path, "");
        let over_2 = h2.get(path);
        for (response, version) in [(over_1, "HTTP/1.1"), (over_2, "HTTP/2.0")] {
            match expected {
                Ok(sent) => {
                    let answer = (response.status, response.text());
                    let line = format!("GET {sent} HTTP/1.1");
                    assert_eq!(answer, (200, line), "{path} {version}");
                }
                Err(rule) => {
                    let status = if *rule == "R403" { 403 } else { 400 };
                    assert_eq!(response.status, status, "{path} {version}");
                    server.output.wait_for("the rule", |line| {
                        line.contains(&format!("GET {path} {version}"))
                            && line.contains(&format!("rule={rule}"))
                    });
                }
            }
        }
    }
    let passed = PATHS.iter().filter(|row| row.1.is_ok()).count();
    let received = first.requests().len() + second.requests().len();
    assert_eq!(received, 2 * passed);
}

/// Checks that a semicolon is a part of a file's name on routes to files.
#[test]
fn names_of_files_keep_their_semicolons() {
    let [first, second] = [0, 1].map(|_| Member::start(|_| ok("member")));
    let server = start(&first, &second);
    let page = Wire::plain(&server).get("/files/secret;x/a.html", "");
    assert_eq!(
        (page.status, page.text().as_str()),
        (200, "a name with a semicolon")
    );
}
