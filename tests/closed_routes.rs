//! Closed routes (`status = 404`): no path leads to the files below, in any spelling and through any target.

use crate::support::h2::H2;
use crate::support::member::{Member, ok};
use crate::support::wire::{Over, Wire};
use crate::support::{Folder, Server, server_table, site_table};
use std::os::unix::fs::symlink;

const MARK: &str = "behind the closed route";

fn start(member: &Member) -> Server {
    let folder = Folder::new()
        .with("public/index.html", "front page")
        .with("public/closed/index.html", MARK)
        .with("public/closed/page.html", MARK)
        .with(
            "public/closed/run.txt",
            "printf 'Content-Type: text/plain\\n\\nran\\n'",
        )
        .with("public/errors/404.html", "page of the site")
        .with("public/gone/a.html", MARK)
        .with("public/legal/a.html", MARK)
        .with("public/secret/a.html", MARK)
        .with("other/page.html", "opened again");
    symlink("closed/page.html", folder.path("public/link.html")).expect("a link");
    symlink("closed", folder.path("public/linked")).expect("a link");
    let routes = "[[site.route]]\npath = \"/closed/\"\nstatus = 404\n\
         [[site.route]]\npath = \"/closed/open/\"\nroot = \"other\"\n\
         [[site.route]]\npath = \"/gone/\"\nstatus = 410\n\
         [[site.route]]\npath = \"/legal/\"\nstatus = 451\n\
         [[site.route]]\npath = \"/secret/\"\nstatus = 403\n\
         [[site.route]]\npath = \"/errors/\"\nstatus = 404\n\
         [[site.route]]\npath = \"/moved/\"\nrewrite = \"/closed/\"\n\
         [[site.route]]\npath = \"/moved/page\"\nrewrite = \"/closed/page.html\"\n\
         [[site.route]]\npath = \"/\"\ninterpreter = { \".txt\" = \"/bin/sh\" }\n";
    let app = format!(
        "[[site.route]]\npath = \"/app/\"\nproxy = \"{}\"\n\
         [[site.route]]\npath = \"/app/admin/\"\nstatus = 404\n",
        member.url()
    );
    let site = "http = \"serve\"\nlisting = true\ntry = [\"$path\", \"/closed$path\"]\nerrors = { 404 = \"errors/404.html\" }\n\
         redirects = [{ from = \"/closed/old\", to = \"/\", force = true }]\n";
    Server::start_in(
        folder,
        &(server_table("") + &site_table(site) + routes + &app),
    )
}

const PATHS: &[(&str, u16)] = &[
    ("/closed", 404),
    ("/closed/", 404),
    ("/closed/page.html", 404),
    ("/closed/missing", 404),
    ("/%63losed/page.html", 404),
    ("//closed/page.html", 404),
    ("/x/../closed/page.html", 404),
    ("/closed/run.txt", 404),
    ("/closed/run.txt/more", 404),
    ("/closed;x/page.html", 404),
    // The file is opened by another path.
    ("/page.html", 404),
    ("/link.html", 404),
    ("/linked/page.html", 404),
    ("/moved/page", 404),
    ("/moved/page.html", 404),
    ("/run.txt", 404),
    ("/gone/a.html", 410),
    ("/legal/a.html", 451),
    ("/secret/a.html", 403),
    ("/secret/", 403),
    ("/app/admin/", 404),
    ("/app/admin/x", 404),
    ("/app/admin;x/y", 400),
];

#[test]
fn a_closed_route_refuses_every_request() {
    let member = Member::start(|request| ok(request.line()));
    let server = start(&member);
    let mut h2 = H2::open(&server, Over::Tls);
    for (path, status) in PATHS {
        let response = Wire::plain(&server).get(path, "");
        assert_eq!(response.status, *status, "{path}");
        assert!(!response.text().contains(MARK), "{path}");
        assert_eq!(h2.get(path).status, *status, "{path} over HTTP/2");
        let posted = Wire::plain(&server).ask("POST", path, "Content-Length: 0\r\n");
        assert!(posted.status >= 400, "{path} {}", posted.status);
    }
    assert!(member.requests().is_empty());
    server.output.wait_for("the rule", |line| {
        line.contains("GET /legal/a.html ") && line.contains("rule=R521")
    });
    // The site's page stands for the refusal, even from a closed folder.
    assert_eq!(
        Wire::plain(&server).get("/closed/page.html", "").text(),
        "page of the site"
    );
    // A forced redirect, a longer path with a target, and the rest of the site.
    assert_eq!(Wire::plain(&server).get("/closed/old", "").status, 308);
    for (path, text) in [
        ("/closed/open/page.html", "opened again"),
        ("/", "front page"),
        ("/app/x", "GET /app/x HTTP/1.1"),
    ] {
        let response = Wire::plain(&server).get(path, "");
        assert_eq!(
            (response.status, response.text().as_str()),
            (200, text),
            "{path}"
        );
    }
}
