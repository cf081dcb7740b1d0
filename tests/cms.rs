//! The example site with pages made by a program, with its own configuration on other ports.

use std::fs;
use std::path::{Path, PathBuf};

use crate::journal::files;
use crate::support::wire::{Response, Wire};
use crate::support::{Folder, Server, anthill, eventually, run, tool};

const BROWSER: &str = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Firefox/140.0\r\n";

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/cms")
}

/// Returns a copy of the example's files.
fn folder() -> Folder {
    tool("python3");
    let folder = Folder::new();
    let site = example().join("site");
    for file in files(&site) {
        let name = file.strip_prefix(&site).expect("a file of the site");
        let name = format!("site/{}", name.display());
        folder.write(&name, fs::read(&file).expect("a file"));
    }
    folder
}

/// Returns the example's configuration on ports chosen by the system, with pages cached for `seconds`.
fn config(seconds: &str) -> String {
    let text = fs::read_to_string(example().join("anthill.toml")).expect("the configuration");
    let mut said = text.clone();
    for (from, to) in [
        ("\"[::]:8443\"", "\"127.0.0.1:0\""),
        ("\"[::]:8080\"", "\"127.0.0.1:0\""),
        ("seconds = 10,", &format!("seconds = {seconds},")),
        (
            "\n[[site]]",
            "\nworkers = 1\ncontrol = \"anthill.sock\"\n\n[[site]]",
        ),
    ] {
        assert!(said.contains(from), "{from} in {text}");
        said = said.replacen(from, to, 1);
    }
    said
}

fn server() -> Server {
    Server::start_in(folder(), &config("1000"))
}

fn get(server: &Server, path: &str) -> Response {
    Wire::plain(server).get(path, BROWSER)
}

fn cache_status(response: &Response) -> &str {
    response.field("cache-status").unwrap_or("nothing")
}

/// Returns the paths of all articles, from their metadata.
fn articles() -> Vec<String> {
    let folder = example().join("site/content/articles");
    let all = files(&folder).into_iter();
    let all = all.filter(|file| file.extension().is_some_and(|ending| ending == "xml"));
    let path = |file: PathBuf| {
        let text = fs::read_to_string(&file).expect("metadata");
        let category = text.split_once("<category>").expect("a category").1;
        let category = category.split_once('<').expect("its end").0;
        let name = file.file_stem().expect("a name").to_string_lossy();
        format!("/{category}/{name}")
    };
    all.map(path).collect()
}

#[test]
fn the_example_is_a_valid_configuration() {
    let done = anthill(&["check".as_ref(), example().join("anthill.toml").as_os_str()]);
    assert_eq!(done.code, Some(0), "{done:?}");
}

#[test]
fn every_page_exists_and_every_link_resolves() {
    let server = server();
    let mut todo = vec!["/".to_owned()];
    let mut seen: Vec<String> = Vec::new();
    let mut wire = Wire::plain(&server);
    while let Some(path) = todo.pop() {
        let page = wire.get(&path, BROWSER);
        assert_eq!(page.status, 200, "{path}: {page:?}");
        let text = page.text();
        seen.push(path);
        for mark in [" href=\"/", " src=\"/"] {
            for rest in text.split(mark).skip(1) {
                let link = format!("/{}", rest.split('"').next().unwrap_or_default());
                if !seen.contains(&link) && !todo.contains(&link) {
                    todo.push(link);
                }
            }
        }
    }
    assert_eq!(articles().len(), 10);
    for path in articles() {
        assert!(
            seen.contains(&path),
            "{path} is linked from nowhere: {seen:?}"
        );
    }
}

#[test]
fn a_page_has_one_address() {
    let server = server();
    for (path, to) in [
        ("/species", "/species/"),
        ("/life/winter/", "/life/winter"),
        ("/species/winter", "/life/winter"),
    ] {
        let moved = get(&server, path);
        assert_eq!((moved.status, moved.field("location")), (308, Some(to)));
    }
}

#[test]
fn the_feed_is_well_formed_and_whole() {
    let server = server();
    let feed = get(&server, "/feed.atom");
    assert_eq!(
        feed.field("content-type"),
        Some("application/atom+xml; charset=utf-8")
    );
    let look = "import sys; from xml.etree import ElementTree as E\n\
        a = '{http://www.w3.org/2005/Atom}'\n\
        print(len(E.fromstring(sys.stdin.buffer.read()).findall(a + 'entry')))";
    let ran = run("python3", &["-c", look], &feed.body);
    assert_eq!(ran.text().trim(), "10", "{}", ran.errors());
}

#[test]
fn pages_are_cached_and_the_search_is_not() {
    let server = server();
    for path in ["/", "/life/", "/life/winter", "/feed.atom", "/nowhere"] {
        let first = get(&server, path);
        assert_eq!(
            cache_status(&first),
            "anthill; fwd=uri-miss; stored",
            "{path}"
        );
        // The call of the first request may still be running.
        let second = eventually("a page from the cache", || {
            let page = get(&server, path);
            cache_status(&page)
                .starts_with("anthill; hit; ttl=")
                .then_some(page)
        });
        assert_eq!(first.body, second.body);
    }
    for _ in 0..2 {
        let search = get(&server, "/search?q=APHIDS");
        assert!(
            cache_status(&search).starts_with("anthill; fwd="),
            "{search:?}"
        );
        assert!(!cache_status(&search).contains("stored"), "{search:?}");
        assert_eq!(search.field("cache-control"), Some("no-store"));
        assert!(search.text().contains("3 articles."), "{search:?}");
        assert!(search.text().contains("<mark>aphids</mark>"), "{search:?}");
    }
    let nothing = get(&server, "/search?q=elephants");
    assert!(nothing.text().contains("Nothing was found."), "{nothing:?}");
}

#[test]
fn views_of_cached_pages_are_counted() {
    let server = server();
    for _ in 0..5 {
        assert_eq!(get(&server, "/life/winter").status, 200);
    }
    // The command `hits` makes the workers report their counts.
    server.ask(&["hits", "*"]);
    let views = get(&server, "/views/life/winter").text();
    assert!(
        views.starts_with("{\"path\":\"/life/winter\",\"views\":5,"),
        "{views}"
    );
    let page = get(&server, "/life/winter").text();
    assert!(page.contains("<span id=\"views\"></span>"), "{page}");
    assert!(page.contains("/static/views.js"), "{page}");
}

#[test]
fn sources_of_pages_are_not_served() {
    let server = server();
    for path in [
        "/content/site.xml",
        "/content",
        "/content/articles/winter.html",
        "/templates/page.html",
        "/page.py",
        "/page.py/",
        "/page.py/life/winter",
        "/life/winter.html",
        "/life/..%5c..%5csite.xml",
        "/articles/winter",
        "/life/%00",
        "/static/",
        "/nowhere",
    ] {
        let page = get(&server, path);
        assert!([400, 404].contains(&page.status), "{path}: {page:?}");
        let text = page.text();
        assert!(!text.contains("<site>") && !text.contains("{{"), "{text}");
        assert!(!text.contains("import os"), "{path}: {text}");
    }
    let page = get(&server, "/nowhere").text();
    assert!(page.contains("<h1>Nothing here</h1>"), "{page}");
    let posted = Wire::plain(&server).ask("POST", "/life/winter", BROWSER);
    assert_eq!(
        (posted.status, posted.field("allow")),
        (405, Some("GET, HEAD"))
    );
}

#[test]
fn untrusted_text_is_escaped() {
    let folder = folder();
    folder.write(
        "site/content/articles/hostile.xml",
        "<article><title>&lt;script&gt;alert('t')&lt;/script&gt; \"{{{body}}}</title>\
         <category>life</category><date>2026-09-01</date>\
         <summary>&lt;img src=x onerror=alert(1)&gt; &amp;amp;</summary>\
         <image>../../../etc/passwd</image></article>",
    );
    folder.write(
        "site/content/articles/hostile.html",
        "<p>&lt;b&gt;bold</p>\n",
    );
    let server = Server::start_in(folder, &config("1000"));
    for path in [
        "/",
        "/life/",
        "/life/hostile",
        "/search?q=script",
        "/feed.atom",
    ] {
        let page = get(&server, path);
        assert_eq!(page.status, 200, "{path}: {page:?}");
        let text = page.text();
        for bad in ["<script>alert", "<img src=x", "passwd", "onerror=alert(1)>"] {
            assert!(!text.contains(bad), "{path} has {bad}: {text}");
        }
        assert!(
            text.contains("&lt;") && text.contains("{{{body}}}"),
            "{text}"
        );
    }
    // Entities in an article are text, and stay escaped in an excerpt.
    let page = get(&server, "/search?q=bold").text();
    assert!(page.contains("&lt;b&gt;<mark>bold</mark>"), "{page}");
    for query in [
        "%22%3E%3Cscript%3Ealert(1)%3C/script%3E",
        "%ff%fe%00%0d%0aX:%20y",
        "%26lt%3Bb%26gt%3B",
        "(((*%5B",
        &"a".repeat(3000),
    ] {
        let page = get(&server, &format!("/search?q={query}"));
        assert_eq!(page.status, 200, "{query}: {page:?}");
        assert!(!page.text().contains("<script>alert"), "{page:?}");
        assert_eq!(page.field("x"), None, "{page:?}");
    }
}

#[test]
fn a_stale_page_is_served_instead_of_a_failure() {
    let server = Server::start_in(folder(), &config("1"));
    let first = get(&server, "/life/winter");
    assert_eq!(first.status, 200);
    let program = server.folder.path("site/page.py");
    // The program fails before its first output.
    fs::write(&program, "raise SystemExit('out of ants')\n").expect("a program");
    eventually("the failure in the error log", || {
        let again = get(&server, "/life/winter");
        assert_eq!((again.status, &again.body), (200, &first.body), "{again:?}");
        let lines = server.errors.all();
        lines
            .iter()
            .any(|line| line.contains("out of ants"))
            .then_some(())
    });
    assert_eq!(get(&server, "/life/the-flight").status, 502);
}
