//! Keys about files in a route: `listing`, `index`, `try`, `errors`, `headers` and `cache` hold for the paths of the route
//! and leave the rest of the site as it is.

use crate::support::member::{Member, ok};
use crate::support::wire::{Response, Wire};
use crate::support::{Folder, Server, anthill, server_table, site_table};

fn get(server: &Server, path: &str) -> Response {
    Wire::plain(server).get(path, "")
}

fn status(server: &Server, path: &str) -> u16 {
    get(server, path).status
}

fn page(server: &Server, path: &str) -> (u16, String) {
    let response = get(server, path);
    (response.status, response.text())
}

fn start(folder: Folder, site: &str, routes: &str) -> Server {
    let site = format!("http = \"serve\"\n{site}");
    Server::start_in(folder, &(server_table("") + &site_table(&site) + routes))
}

/// A listing of one folder shows no other folder.
#[test]
fn a_listing_of_a_route_lists_its_folders_alone() {
    let folder = Folder::new()
        .with("public/index.html", "front page")
        .with("public/files/a.txt", "a")
        .with("public/files/sub/b.txt", "b")
        .with("public/files/private/c.txt", "c")
        .with("public/files/README.md", "# The files")
        .with("public/other/secret.txt", "not listed")
        .with("public/filesystem/x.txt", "not listed")
        .with("media/sub/m.txt", "m");
    let server = start(
        folder,
        "",
        "[[site.route]]\npath = \"/files/\"\nlisting = true\n\
         [[site.route]]\npath = \"/files/private/\"\nlisting = false\n\
         [[site.route]]\npath = \"/media/\"\nroot = \"media\"\n\
         [[site.route]]\npath = \"/media/sub/\"\nlisting = true\n",
    );
    let listed = page(&server, "/files/");
    assert_eq!(listed.0, 200);
    assert!(
        listed.1.contains("a.txt") && listed.1.contains("The files"),
        "{}",
        listed.1
    );
    assert!(page(&server, "/files/sub/").1.contains("b.txt"));
    assert_eq!(get(&server, "/files").field("Location"), Some("/files/"));
    for (path, expected) in [
        ("/", 200),
        ("/other/", 404),
        ("/filesystem/", 404),
        ("/files/private/", 404),
        ("/files/private/c.txt", 200),
        ("/x/../other/", 404),
        ("/%66iles/", 200),
        ("/media/", 404),
        ("/media/sub/", 200),
    ] {
        assert_eq!(status(&server, path), expected, "{path}");
    }
}

#[test]
fn index_and_try_of_a_route_replace_those_of_the_site() {
    let folder = Folder::new()
        .with("public/index.html", "front page")
        .with("public/about.html", "about")
        .with("public/docs/main.htm", "index of the docs")
        .with("public/docs/index.html", "not the index")
        .with("public/docs/page.html", "page of the docs")
        .with("public/app/index.html", "the application")
        .with("public/app/assets/a.js", "script")
        .with("spa/start.html", "of the root")
        .with("spa/index.html", "index of the root");
    let server = start(
        folder,
        "try = [\"$path\", \"$path.html\"]\n",
        "[[site.route]]\npath = \"/docs/\"\nindex = [\"main.htm\"]\ntry = [\"$path\"]\n\
         [[site.route]]\npath = \"/app/\"\ntry = [\"$path\", \"/app/index.html\"]\n\
         [[site.route]]\npath = \"/app/assets/\"\ntry = [\"$path\"]\n\
         [[site.route]]\npath = \"/spa/\"\nroot = \"spa\"\nindex = [\"start.html\"]\ntry = [\"$path\", \"/start.html\"]\n",
    );
    for (path, expected) in [
        ("/about", (200, "about")),
        ("/docs/", (200, "index of the docs")),
        ("/app/users/7", (200, "the application")),
        ("/app/", (200, "the application")),
        ("/app/assets/a.js", (200, "script")),
        ("/spa/", (200, "of the root")),
        ("/spa/users/7", (200, "of the root")),
    ] {
        let (status, text) = page(&server, path);
        assert_eq!((status, text.as_str()), expected, "{path}");
    }
    for path in ["/docs/page", "/app/assets/b.js", "/application/x"] {
        assert_eq!(status(&server, path), 404, "{path}");
    }
    // A file that appears is found by the entries of its route at once.
    server.folder.write("public/app/new.html", "new");
    assert_eq!(page(&server, "/app/new.html").1, "new");
    assert_eq!(page(&server, "/app/new").1, "the application");
}

/// `try` of a route may end with the handler of another route.
#[test]
fn try_of_a_route_leads_to_another_handler() {
    let member = Member::start(|request| ok(request.line()));
    let routes = format!(
        "[[site.route]]\npath = \"/app/\"\nproxy = \"{}\"\n\
         [[site.route]]\npath = \"/shop/\"\ntry = [\"$path\", \"/app$path\"]\n",
        member.url()
    );
    let folder = Folder::new()
        .with("public/index.html", "front page")
        .with("public/shop/a.html", "a page");
    let server = start(folder, "", &routes);
    assert_eq!(page(&server, "/shop/a.html"), (200, "a page".to_owned()));
    assert_eq!(
        page(&server, "/shop/b"),
        (200, "GET /app/shop/b HTTP/1.1".to_owned())
    );
    assert_eq!(status(&server, "/other"), 404);
}

#[test]
fn headers_and_cache_of_a_route_go_before_those_of_the_site() {
    let member = Member::start(|request| ok(request.line()));
    let folder = Folder::new()
        .with("public/index.html", "front page")
        .with("public/files/a.css", "a")
        .with("public/files/deep/b.css", "b")
        .with("public/filesx/a.css", "x")
        .with("media/a.css", "m");
    let routes = format!(
        "[[site.route]]\npath = \"/files/\"\n\
         headers = [{{ files = \"*\", set = {{ \"X-Of\" = \"route\", \"X-Route\" = \"1\" }} }}]\n\
         cache = [{{ files = \"*.css\", max_age = \"1h\" }}]\n\
         [[site.route]]\npath = \"/files/deep/\"\n\
         headers = [{{ files = \"*\", set = {{ \"X-Of\" = \"deep\" }} }}]\n\
         [[site.route]]\npath = \"/media/\"\nroot = \"media\"\n\
         headers = [{{ files = \"/a.css\", set = {{ \"X-Of\" = \"media\" }} }}]\n\
         cache = [{{ files = \"*\", max_age = \"2h\", immutable = true }}]\n\
         [[site.route]]\npath = \"/app/\"\nproxy = \"{}\"\n\
         headers = [{{ files = \"*\", set = {{ \"X-Of\" = \"member\" }} }}]\n",
        member.url()
    );
    let site = "headers = [{ files = \"*\", set = { \"X-Of\" = \"site\", \"X-Site\" = \"1\" } }]\n\
         cache = [{ files = \"*\", max_age = \"1m\" }]\n";
    let server = start(folder, site, &routes);
    for (path, of, route, cache) in [
        ("/", "site", None, Some("max-age=60")),
        ("/filesx/a.css", "site", None, Some("max-age=60")),
        ("/files/a.css", "route", Some("1"), Some("max-age=3600")),
        ("/files/deep/b.css", "deep", Some("1"), Some("max-age=3600")),
        (
            "/media/a.css",
            "media",
            None,
            Some("max-age=7200, immutable"),
        ),
        ("/app/x", "member", None, None),
    ] {
        let response = get(&server, path);
        assert_eq!(response.status, 200, "{path}");
        assert_eq!(response.field("X-Of"), Some(of), "{path}");
        assert_eq!(response.field("X-Site"), Some("1"), "{path}");
        assert_eq!(response.field("X-Route"), route, "{path}");
        assert_eq!(response.field("Cache-Control"), cache, "{path}");
    }
}

#[test]
fn error_pages_of_a_route_stand_for_its_paths_and_for_its_member() {
    let member = Member::start(|request| ok(request.line()));
    let folder = Folder::new()
        .with("public/index.html", "front page")
        .with("public/404.html", "of the site")
        .with("public/shop/404.html", "of the shop")
        .with("public/app/502.html", "no application");
    let routes = format!(
        "[[site.route]]\npath = \"/shop/\"\nerrors = {{ 404 = \"shop/404.html\" }}\n\
         [[site.route]]\npath = \"/app/\"\nproxy = {{ url = \"{}\", silence_timeout = \"1s\" }}\nerrors = {{ 502 = \"app/502.html\", 503 = \"app/502.html\" }}\n\
         [[site.route]]\npath = \"/shop/closed/\"\nstatus = 404\n",
        member.url()
    );
    let server = start(folder, "errors = { 404 = \"404.html\" }\n", &routes);
    for (path, text) in [
        ("/x", "of the site"),
        ("/shopping/x", "of the site"),
        ("/shop/x", "of the shop"),
        ("/%73hop/x", "of the shop"),
        ("/shop/closed/x", "of the shop"),
    ] {
        assert_eq!(page(&server, path), (404, text.to_owned()), "{path}");
    }
    member.stop();
    let (status, text) = page(&server, "/app/x");
    assert!(status >= 502 && text == "no application", "{status} {text}");
}

#[test]
fn keys_without_effect_are_refused_with_a_remedy() {
    let cases = [
        (
            "proxy = \"http://127.0.0.1:9\"\nlisting = true",
            "`listing` has no effect in this route",
            "add try = [\"$path\", \"proxy\"]",
        ),
        (
            "proxy = \"http://127.0.0.1:9\"\ntry = [\"$path\", \"$path.html\"]",
            "`try` of a route with `proxy` must end with \"proxy\"",
            "write try = [\"$path\", \"proxy\"]",
        ),
        (
            "try = [\"$path\", \"proxy\"]",
            "`try` ends with \"proxy\", and the route has no `proxy`",
            "add proxy = \"http://127.0.0.1:3000\"",
        ),
        (
            "proxy = \"http://127.0.0.1:9\"\ntry = [\"proxy\", \"$path\"]",
            "\"proxy\" must be the last entry of `try`",
            "no later entry is reached",
        ),
        (
            "redirect = \"/b/\"\nindex = [\"a.html\"]",
            "`index` has no effect in this route",
            "write it in the route of the files",
        ),
        (
            "proxy = \"http://127.0.0.1:9\"\ncache = [{ files = \"*\", max_age = \"1h\" }]",
            "a list in `cache` is for files",
            "write cache = { seconds = 10 }",
        ),
        (
            "listing = true\n[[site.route]]\npath = \"/a\"\nlisting = false",
            "two routes set `listing` for `/a`",
            "remove one of the two",
        ),
    ];
    for (keys, what, help) in cases {
        let folder = Folder::new().with("public/index.html", "front page");
        folder.write(
            "anthill.toml",
            server_table("") + &site_table("") + "[[site.route]]\npath = \"/a/\"\n" + keys + "\n",
        );
        let path = folder.path("anthill.toml");
        let checked = anthill(&[std::ffi::OsStr::new("check"), path.as_os_str()]);
        assert_eq!(checked.code, Some(2), "{keys} {checked:?}");
        assert!(checked.stderr.contains(what), "{keys}\n{}", checked.stderr);
        assert!(checked.stderr.contains(help), "{keys}\n{}", checked.stderr);
    }
}
