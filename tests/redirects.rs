//! Redirects of a site: their order among files and routes, maps, and the configurations that are refused.

use crate::support::wire::Wire;
use crate::support::{Folder, Server, eventually, run, server_table, site_table};

fn site(more: &str) -> String {
    server_table("") + &site_table(&format!("http = \"serve\"\n{more}"))
}

/// Returns the status and the location for a target, or the status and the content.
fn ask(server: &Server, target: &str) -> String {
    let response = Wire::plain(server).get(target, "");
    match response.field("location") {
        Some(location) => format!("{} {location}", response.status),
        None if response.status == 200 => format!("200 {}", response.text()),
        None => response.status.to_string(),
    }
}

fn assert_answers(server: &Server, table: &[(&str, &str)]) {
    for (target, expected) in table {
        assert_eq!(ask(server, target), *expected, "{target}");
    }
}

#[test]
fn redirects_stand_behind_files_and_routes_unless_forced() {
    let folder = Folder::new()
        .with("public/index.html", "front")
        .with("public/page.html", "page")
        .with("public/forced.html", "never")
        .with("public/folder/index.html", "folder")
        .with("public/private/index.html", "never")
        .with("other/kept.html", "kept")
        .with("map", "/page.html /never\n/mapped /new?  302 # moved\n/lost 410\n/c/* /a/:splat 303\n/from-map! /x\n");
    let config = site(
        "try = [\"$path\", \"/index.html\"]\nredirect_map = \"map\"\n\
         redirects = [\n\
         { from = \"/old\", to = \"/new\", status = 301 },\n\
         { from = \"/old\", to = \"/never\" },\n\
         { from = \"/a%20b\", to = \"/a+b?x=1#top\" },\n\
         { from = \"/blog/*\", to = \"https://blog.example.org/:splat\", query = \"drop\" },\n\
         { from = \"/shop/*\", to = \"/s/\", status = 307 },\n\
         { from = \"/page.html\", to = \"/never\" },\n\
         { from = \"/folder\", to = \"/never\" },\n\
         { from = \"/forced.html\", to = \"/found\", force = true },\n\
         { from = \"/other/*\", to = \"/never\" },\n\
         { from = \"/other/taken\", to = \"/found\", force = true },\n\
         { from = \"/gone/*\", status = 410 },\n\
         { from = \"/private/*\", to = \"/found\", force = true },\n\
         { from = \"/rewritten\", to = \"/never\" },\n\
         ]\n\
         [[site.route]]\npath = \"/other/\"\nroot = \"other\"\n\
         [[site.route]]\npath = \"/private/\"\nallow = []\n\
         [[site.route]]\npath = \"/rewrite/\"\nrewrite = \"/rewritten\"\n\
         [[site.route]]\npath = \"/r301\"\nredirect = { to = \"/r/\", status = 301, query = \"drop\" }\n\
         [[site.route]]\npath = \"/r308/\"\nredirect = \"/r/?a=b\"\n\
         [[site.route]]\npath = \"/r410/\"\nredirect = { status = 410 }\n",
    );
    let server = Server::start_in(folder, &config);
    assert_answers(
        &server,
        &[
            ("/", "200 front"),
            ("/nothing", "200 front"),
            ("/old", "301 /new"),
            ("/old/", "301 /new"),
            ("/old?x=1", "301 /new?x=1"),
            ("/a%20b?y=2", "308 /a+b?x=1#top"),
            ("/blog/a%20b/c?x=1", "308 https://blog.example.org/a%20b/c"),
            ("/blog", "308 https://blog.example.org/"),
            ("/shop/1?x=1", "307 /s/?x=1"),
            ("/page.html", "200 page"),
            ("/folder", "301 /folder/"),
            ("/folder/", "200 folder"),
            ("/forced.html", "308 /found"),
            ("/other/kept.html", "200 kept"),
            ("/other/nothing", "404"),
            ("/other/taken", "308 /found"),
            ("/gone/x", "410"),
            // Guards come first, even before a forced redirect.
            ("/private/", "403"),
            // The target of a rewrite is not redirected.
            ("/rewrite/", "200 front"),
            ("/mapped?x=1", "302 /new"),
            ("/lost", "410"),
            ("/c/d?x=1", "303 /a/d?x=1"),
            ("/r301/a?x=1", "301 /r/a"),
            ("/r308/a?x=1", "308 /r/?a=b&x=1"),
            ("/r410/a", "410"),
        ],
    );
}

#[test]
fn a_redirect_precedes_the_script_for_missing_paths() {
    let folder = Folder::new().with("public/page.html", "page").with(
        "public/index.sh",
        "printf 'Content-Type: text/plain\\n\\nscript'\n",
    );
    let config = site(
        "try = [\"$path\", \"/index.sh\"]\nindex = [\"index.sh\"]\n\
         redirects = [{ from = \"/old\", to = \"/new\" }, { from = \"/page.html\", to = \"/never\" }]\n\
         [[site.route]]\npath = \"/\"\ninterpreter = { \".sh\" = \"/bin/sh\" }\n",
    );
    let server = Server::start_in(folder, &config);
    assert_answers(
        &server,
        &[
            ("/old", "308 /new"),
            ("/other", "200 script"),
            ("/", "200 script"),
            ("/page.html", "200 page"),
        ],
    );
}

#[test]
fn a_changed_map_is_taken_over_and_a_mistake_leaves_the_map() {
    let lines = |to: &str| {
        let lines = (0..10_000).map(|nth| format!("/old/{nth} /{to}/{nth}\n"));
        lines.collect::<String>()
    };
    let folder = Folder::new()
        .with("public/index.html", "front")
        .with("maps/a", lines("new"));
    let server = Server::start_in(folder, &site("redirect_map = \"maps/a\""));
    assert_answers(
        &server,
        &[
            ("/old/0", "301 /new/0"),
            ("/old/9999", "301 /new/9999"),
            ("/old/10000", "404"),
        ],
    );
    server.folder.write("maps/b", lines("newer"));
    std::fs::rename(server.folder.path("maps/b"), server.folder.path("maps/a")).expect("a rename");
    eventually("the new map", || {
        (ask(&server, "/old/9999") == "301 /newer/9999").then_some(())
    });
    server
        .folder
        .write("maps/b", lines("never") + "/a /b 404\n");
    std::fs::rename(server.folder.path("maps/b"), server.folder.path("maps/a")).expect("a rename");
    server.errors.wait_for("the line", |line| {
        line.contains("maps/a:10001:") && line.contains("a page for missing files")
    });
    assert_answers(&server, &[("/old/9999", "301 /newer/9999")]);
    // The map is no page, even if it lies among the pages.
    server.folder.write("public/map", "/x /y\n");
    server.reload(&site("redirect_map = \"public/map\""));
    assert_answers(&server, &[("/map", "404"), ("/x", "301 /y")]);
}

#[test]
fn check_refuses_loops_and_mistakes_at_their_places() {
    let redirects = |text: &str| format!("redirects = [{text}]");
    let route =
        |path: &str, to: &str| format!("[[site.route]]\npath = \"{path}\"\nredirect = \"{to}\"\n");
    let map = || "redirect_map = \"map\"".to_owned();
    let table = [
        (
            redirects("{ from = \"/a\", to = \"/a/\" }"),
            "",
            "the redirect leads to itself: /a, /a/",
            "from = \"/a\"",
        ),
        (
            redirects("{ from = \"/a\", to = \"https://www.example.org/a?b\" }"),
            "",
            "the redirect leads to itself",
            "from = \"/a\"",
        ),
        (
            redirects("{ from = \"/a\", to = \"http://WWW.Example.ORG:80/a\" }"),
            "",
            "the redirect leads to itself",
            "from = \"/a\"",
        ),
        (
            redirects(
                "{ from = \"/a\", to = \"/b\" }, { from = \"/b\", to = \"/a\", force = true }",
            ),
            "",
            "the redirects lead in a circle: /a, /b, /a",
            "from = \"/a\"",
        ),
        (
            redirects("{ from = \"/a/*\", to = \"/a/b/:splat\" }"),
            "",
            "the redirects do not end: /a/*, /a/b/*, /a/b/b/*",
            "from = \"/a/*\"",
        ),
        (
            redirects("{ from = \"/b\", to = \"/c\" }") + "\n" + &route("/c", "/b"),
            "",
            "the redirects lead in a circle: /b, /c, /b",
            "from = \"/b\"",
        ),
        (
            // The path of a file is the end of a row, and a missing file is not.
            redirects("{ from = \"/c/*\", to = \"/index.html\" }, { from = \"/*\", to = \"/b\" }"),
            "",
            "the redirects lead in a circle: /*, /b, /b",
            "from = \"/*\"",
        ),
        (
            route("/a", "/a/b"),
            "",
            "in a circle: /a/*, /a/b, /a/b",
            "redirect = \"/a/b\"",
        ),
        (
            route("/a", "/a/b/"),
            "",
            "do not end: /a/*, /a/b/*, /a/b/b/*",
            "redirect = \"/a/b/\"",
        ),
        (
            route("/a", "/b/") + &route("/b", "/a/"),
            "",
            "in a circle: /a/*, /b/*, /a/*",
            "redirect = \"/b/\"",
        ),
        (
            redirects("{ from = \"/a\", to = \"/b/:splat\" }"),
            "",
            "`:splat` has no `*`",
            "to = \"/b/:splat\"",
        ),
        (
            redirects("{ from = \"/a/*/b\", to = \"/b\" }"),
            "",
            "has a `*` before its end",
            "from = \"/a/*/b\"",
        ),
        (
            redirects("{ from = \"/a\", to = \"ftp://b\" }"),
            "",
            "neither a path nor a URL",
            "from = \"/a\"",
        ),
        (
            map(),
            "\n/a /b\n/b /a\n",
            "in a circle: /a, /b, /a",
            "map:2:1",
        ),
        (map(), "/a /a\n", "leads to itself", "map:1:1"),
        (
            map(),
            "# x\n\n /a /b Country=de",
            "the condition `Country=de`",
            "map:3:2",
        ),
        (map(), "/a /b/:splat", "`:splat` has no `*`", "map:1:1"),
        (map(), "/a https://:splat", "has no `*`", "map:1:1"),
        (
            map(),
            "/a/* https://:splat/x",
            "in place of a host",
            "map:1:1",
        ),
        (
            map(),
            "/* /lost.html 404",
            "no redirect",
            "errors = { 404 = \"/lost.html\" }",
        ),
        (
            map(),
            "/lost /lost.html 404",
            "a page for missing files is no redirect",
            "404.html",
        ),
        (map(), "/a \u{e9}", "no destination", "map:1:1"),
        (map(), "/a /b\nx /y\n/c /d;", "`x` is no path", "map:3:1"),
        (
            "redirect_map = \"maps\"".to_owned(),
            "",
            "does not exist",
            "did you mean",
        ),
        (
            "redirect_map = \"public\"".to_owned(),
            "",
            "is a folder",
            "redirect_map = \"public\"",
        ),
    ];
    for (keys, map, what, place) in table {
        let folder = Folder::new()
            .with("public/index.html", "front")
            .with("map", map)
            .with(
                "anthill.toml",
                format!("[[site]]\nnames = [\"www.example.org\", \"example.org\"]\n{keys}\n"),
            );
        let done =
            crate::support::anthill(&["check".as_ref(), folder.path("anthill.toml").as_os_str()]);
        assert_eq!(done.code, Some(2), "{keys} {map}: {done:?}");
        for part in [what, place, "help: "] {
            assert!(
                done.stderr.contains(part),
                "{keys} {map}: no {part} in {}",
                done.stderr
            );
        }
    }
}

#[test]
fn check_warns_of_a_redirect_below_a_route() {
    let folder = Folder::new().with("public/index.html", "front").with(
        "anthill.toml",
        "[[site]]\nnames = [\"a.test\"]\n\
         redirects = [{ from = \"/other\", to = \"http://a.test:9999/other\" }, { from = \"/app/old/*\", to = \"/new/:splat\" }, { from = \"/app\", to = \"/b\", \
         force = true }, { from = \"/*\", to = \"/index.html\" }]\n\
         [[site.route]]\npath = \"/app/\"\nproxy = \"http://127.0.0.1:1\"\n",
    );
    let config = folder.path("anthill.toml");
    let done = run(
        crate::support::program(),
        &["check".as_ref(), config.as_os_str()],
        b"",
    );
    assert!(done.success, "{}", done.errors());
    let warnings = done.errors() + &done.text();
    let about = "the redirect of /app/old/* never applies, because the route /app/ answers";
    assert!(warnings.contains(about), "{warnings}");
    assert_eq!(warnings.matches("never applies").count(), 1, "{warnings}");
}
