//! Files that no client gets by their names (`hide`), in every spelling of a path, and the backups and exports that an
//! operator is told of.

use crate::support::h2::H2;
use crate::support::member::{Member, ok};
use crate::support::wire::{Over, Wire};
use crate::support::{Folder, Server, anthill, server_table, site_table};
use std::os::unix::fs::symlink;

const MARK: &str = "kept from clients";

/// Folder with files of editors in the site, below a route's root, and beside scripts.
fn folder() -> Folder {
    let folder = Folder::new()
        .with("public/index.html", "front page")
        .with("public/page.html", "page")
        .with("public/wp-config.php~", MARK)
        .with("public/wp-config.php~.gz", MARK)
        .with("public/index.html~", MARK)
        .with("public/.page.html.swp", MARK)
        .with("public/page.swp", MARK)
        .with("public/#page.html#", MARK)
        .with("public/page.html.orig", MARK)
        .with("public/sub/deep~/page.html", MARK)
        .with("public/sub/page.html", "page below")
        .with(
            "public/run.txt",
            "printf 'Content-Type: text/plain\\n\\nrun\\n'",
        )
        .with("public/run.txt~", MARK)
        .with("public/dump.sql", "sent")
        .with("public/old.bak", "sent")
        .with("other/a.html~", MARK)
        .with("other/a.html", "page of the root")
        .with("other/open/b.html~", "shown");
    folder.program(
        "scripts/hello",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nhello\\n'\n",
    );
    folder.program(
        "scripts/hello~",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nkept from clients\\n'\n",
    );
    symlink("wp-config.php~", folder.path("public/link~")).expect("a link");
    folder
}

fn config(hide: &str) -> String {
    let site = format!(
        "http = \"serve\"\nlisting = true\ntry = [\"$path\", \"$path~\", \"$path.html\"]\n{hide}"
    );
    let routes = "[[site.route]]\npath = \"/other/\"\nroot = \"other\"\n\
         [[site.route]]\npath = \"/other/open/\"\nhide = []\n\
         [[site.route]]\npath = \"/cgi/\"\ncgi = \"scripts\"\n\
         [[site.route]]\npath = \"/\"\ninterpreter = { \".txt\" = \"/bin/sh\" }\n\
         [[site.route]]\npath = \"/moved/\"\nrewrite = \"/\"\n";
    server_table("") + &site_table(&site) + routes
}

/// Spellings of paths to hidden files and folders, none of which shows a content.
const HIDDEN: &[&str] = &[
    "/wp-config.php~",
    "/wp-config.php%7E",
    "/wp-config.php%7e",
    "/wp-config%2Ephp~",
    "/%77p-config.php~",
    "//wp-config.php~",
    "/x/../wp-config.php~",
    "/./wp-config.php~",
    "/wp-config.php~/",
    "/wp-config.php~/more",
    "/wp-config.php~.",
    "/wp-config.php~;x",
    "/wp-config.php~%3Bx",
    "/wp-config.php~?x=1",
    "/wp-config.php~.gz",
    "/wp-config.php",
    "/index.html~",
    "/page.swp",
    "/.page.html.swp",
    "/%23page.html%23",
    "/page.html.orig",
    "/sub/deep~",
    "/sub/deep~/",
    "/sub/deep~/page.html",
    "/sub/deep%7E/page.html",
    "/sub/deep",
    "/run.txt~",
    "/run.txt%7E/more",
    "/run.txt~/x.txt",
    "/link~",
    "/link",
    "/other/a.html~",
    "/other/a.html%7e",
    "/cgi/hello~",
    "/cgi/hello%7E",
    "/cgi/hello~/more",
    "/moved/wp-config.php~",
    "/moved/index.html%7E",
];

#[test]
fn no_spelling_of_a_path_shows_a_hidden_file() {
    let server = Server::start_in(folder(), &config(""));
    let mut h2 = H2::open(&server, Over::Tls);
    for path in HIDDEN {
        for head in ["", "Accept-Encoding: gzip\r\n", "Range: bytes=0-3\r\n"] {
            let response = Wire::plain(&server).get(path, head);
            assert_eq!(response.status, 404, "{path} {head}");
            assert!(!response.text().contains(MARK), "{path}");
        }
        let response = h2.get(path);
        assert_eq!(response.status, 404, "{path} over HTTP/2");
    }
    server.output.wait_for("the rule", |line| {
        line.contains("GET /wp-config.php~ ") && line.contains("rule=R520")
    });
    // Listings leave the names out, and the other files are served.
    let list = String::from_utf8_lossy(&server.body("/sub/?format=json")).into_owned();
    assert!(
        list.contains("page.html") && !list.contains("deep~"),
        "{list}"
    );
    let pages = [
        ("/", "front page"),
        ("/page", "page"),
        ("/sub/page.html", "page below"),
        ("/other/a.html", "page of the root"),
        ("/other/open/b.html~", "shown"),
        ("/cgi/hello", "hello\n"),
        ("/run.txt", "run\n"),
        ("/dump.sql", "sent"),
        ("/old.bak", "sent"),
    ];
    for (path, text) in pages {
        let response = Wire::plain(&server).get(path, "");
        assert_eq!(
            (response.status, response.text().as_str()),
            (200, text),
            "{path}"
        );
    }
}

#[test]
fn an_empty_list_hides_nothing_and_a_list_hides_what_it_names() {
    let server = Server::start_in(folder(), &config("hide = []\n"));
    for path in ["/wp-config.php~", "/sub/deep~/page.html", "/other/a.html~"] {
        let response = Wire::plain(&server).get(path, "");
        assert_eq!(
            (response.status, response.text().as_str()),
            (200, MARK),
            "{path}"
        );
    }
    server.reload(&config("hide = [\"*.{sql,bak}\", \"/sub/**\"]\n"));
    for (path, status) in [
        ("/dump.sql", 404),
        ("/old.bak", 404),
        ("/sub/page.html", 404),
        ("/page.html", 200),
        ("/wp-config.php~", 200),
    ] {
        assert_eq!(Wire::plain(&server).get(path, "").status, status, "{path}");
    }
    // A final slash names the folder, below the root or anywhere.
    for (hide, path, status) in [
        ("/sub/", "/sub/page.html", 404),
        ("/sub/", "/sub/deep~/page.html", 404),
        ("/deep~/", "/sub/deep~/page.html", 200),
        ("deep~/", "/sub/deep~/page.html", 404),
        ("deep~/", "/sub/page.html", 200),
        ("/sub/deep~/", "/sub/deep~/page.html", 404),
        ("*/", "/sub/page.html", 404),
        ("*/", "/page.html", 200),
    ] {
        server.reload(&config(&format!("hide = [\"{hide}\"]\n")));
        let response = Wire::plain(&server).get(path, "");
        assert_eq!(response.status, status, "{hide} {path}");
    }
    server.reload(&config("hide = [\"*.{sql,bak}\", \"/sub/**\"]\n"));
    // A file that appears is hidden from its first moment.
    let path = server.folder.path("public/new.sql");
    std::fs::write(&path, MARK).expect("a file");
    assert_eq!(Wire::plain(&server).get("/new.sql", "").status, 404);
    std::fs::rename(&path, server.folder.path("public/new.txt.html")).expect("a file");
    assert_eq!(Wire::plain(&server).get("/new.txt.html", "").text(), MARK);
}

/// The server knows no names of a member's pages.
#[test]
fn a_proxied_route_hides_nothing() {
    let member = Member::start(|request| ok(request.line()));
    let route = format!(
        "[[site.route]]\npath = \"/app/\"\nproxy = \"{}\"\n",
        member.url()
    );
    let config = server_table("") + &site_table("http = \"serve\"") + &route;
    let server = Server::start_in(Folder::new().with("public/app/x~", MARK), &config);
    let response = Wire::plain(&server).get("/app/x~", "");
    assert_eq!(
        (response.status, response.text().as_str()),
        (200, "GET /app/x~ HTTP/1.1")
    );
}

#[test]
fn backups_and_exports_are_named_with_their_number() {
    let routes = "[[site.route]]\npath = \"/closed/\"\nstatus = 404\n\
         [[site.route]]\npath = \"/downloads/\"\nhide = []\n";
    let base = server_table("") + &site_table("http = \"serve\"");
    let folder = Folder::new()
        .with("public/index.html", "page")
        .with("public/sub/dump.sql.gz", "1")
        .with("public/sub/wp-config.php.bak", "2")
        .with("public/a.OLD", "3")
        .with("public/hidden.sql~", "not sent")
        .with("public/closed/dump.sql", "not sent")
        .with("public/downloads/example.sql", "meant");
    folder.write("anthill.toml", base.clone() + routes);
    let file = folder.path("anthill.toml");
    let file = file.to_str().expect("a path");
    let checked = anthill(&["check", file]);
    let text = checked.stderr;
    assert!(
        text.contains("sends 3 files with names of backups or exports, such as"),
        "{text}"
    );
    assert!(
        text.contains("public/a.OLD") && text.contains("\"*.bak\", \"*.sql\", \"*.old\"]"),
        "{text}"
    );
    let server = Server::start_in(folder, &(base.clone() + routes));
    let status = server.ask(&["status"]).stdout;
    assert!(status.contains("sends 3 files"), "{status}");
    let json = server.ask(&["status", "--json"]).stdout;
    assert!(
        json.contains("\"doubtful_files\":[{\"site\":\"*\",\"count\":3,\"first\":"),
        "{json}"
    );
    // The operator has decided.
    let decided = base.replace("http = \"serve\"", "http = \"serve\"\nhide = [\"*~\"]");
    server.reload(&(decided + routes));
    let status = server.ask(&["status"]).stdout;
    assert!(!status.contains("backups or exports"), "{status}");
}
