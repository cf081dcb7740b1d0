//! Hit counts, end to end: the requests that count as views, the output of the counts, and their
//! persistence.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::h2::H2;
use crate::support::wire::{Over, Wire};
use crate::support::{Folder, Server, server_table, site_table};

const PATIENCE: Duration = Duration::from_secs(20);
const BROWSER: &str = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Firefox/140.0\r\n";
const BOT: &str = "User-Agent: Mozilla/5.0 (compatible; Googlebot/2.1)\r\n";

fn folder() -> Folder {
    Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("public/a.html", "a")
        .with("public/style.css", "p {}")
        .with("public/large.html", "x".repeat(3_000_000))
}

fn config(site: &str) -> String {
    server_table("h2c = true")
        + "[log]\naccess = \"off\"\n"
        + &site_table(&format!("http = \"serve\"\n{site}"))
        + "[[site.route]]\npath = \"/live\"\ntest = \"page\"\n"
        + "[[site.route]]\npath = \"/kept\"\ntest = \"page\"\ncache = { seconds = 1000 }\n"
        + "[[site.route]]\npath = \"/views/\"\nhits = true\n"
}

/// Returns the output of `anthill hits --json` for all sites.
fn hits(server: &Server) -> String {
    let done = server.ask(&["hits", "--json", "*"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    done.stdout
}

/// Returns a page's `views/bots` from the output.
fn of_page(said: &str, path: &str) -> String {
    let begin = format!("{{\"path\":\"{path}\",\"views\":");
    let Some((_, rest)) = said.split_once(&begin) else {
        return "none".into();
    };
    let number = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit());
        text[..end.unwrap_or(text.len())].to_owned()
    };
    let bots = rest.split_once("\"bots\":").expect("bots").1;
    format!("{}/{}", number(rest), number(bots))
}

#[test]
fn views_are_counted_once_over_every_transport() {
    let server = Server::start_in(folder(), &config(""));
    for over in [Over::Plain, Over::Tls] {
        let mut wire = Wire::over(&server, over);
        for path in [
            "/",
            "/a.html",
            "/live",
            "/kept",
            "/kept?x=1",
            "/style.css",
            "/large.html",
        ] {
            assert_eq!(wire.get(path, BROWSER).status, 200, "{path}");
        }
        wire.get("/a.html", BOT);
        wire.get("/a.html", "");
        // None of the requests counts as a view.
        wire.ask("HEAD", "/a.html", BROWSER);
        wire.ask("POST", "/live", BROWSER);
        wire.get("/nowhere", BROWSER);
        wire.get("/a.html", &format!("{BROWSER}Range: bytes=0-0\r\n"));
        wire.get("/live?status=500", BROWSER);
        // A 304 counts as a view.
        let tag = wire.get("/", BROWSER);
        let tag = tag.field("etag").expect("a tag");
        let fields = format!("{BROWSER}If-None-Match: {tag}\r\n");
        assert_eq!(wire.get("/", &fields).status, 304);
        let mut h2 = H2::open(&server, over);
        let agent = [("user-agent", "Mozilla/5.0 Firefox/140.0")];
        for path in ["/", "/live", "/kept", "/large.html"] {
            let id = h2.ask("GET", path, &agent, true);
            assert_eq!(h2.response(id).status, 200);
        }
    }
    let said = hits(&server);
    for (path, expected) in [
        ("/", "8/0"),
        ("/a.html", "2/4"),
        ("/live", "4/0"),
        ("/kept", "6/0"),
        ("/large.html", "4/0"),
        ("/style.css", "none"),
        ("/nowhere", "none"),
    ] {
        assert_eq!(of_page(&said, path), expected, "{path}: {said}");
    }
    assert!(
        said.contains("\"views\":24,\"bots\":4,\"assets\":2}"),
        "{said}"
    );
    let shown = server.ask(&["hits", "*"]);
    assert!(
        shown
            .stdout
            .contains("         6         6         0  /kept\n"),
        "{}",
        shown.stdout
    );
    let unknown = server.ask(&["hits", "elsewhere"]);
    assert_eq!(unknown.code, Some(1));
    assert!(
        unknown.stderr.contains("no site `elsewhere`"),
        "{unknown:?}"
    );
}

#[cfg(feature = "http3")]
#[test]
fn views_over_http_3_are_counted() {
    let server = Server::start_in(folder(), &config(""));
    let questions = ["/", "/live", "/kept", "/kept", "/large.html"];
    let questions = questions.map(|path| format!("GET {path} user-agent:Firefox"));
    let mut scene = vec!["ask"];
    scene.extend(questions.iter().map(String::as_str));
    crate::h3::run_scenario(&server, &scene);
    let said = hits(&server);
    for (path, expected) in [
        ("/", "1/0"),
        ("/live", "1/0"),
        ("/kept", "2/0"),
        ("/large.html", "1/0"),
    ] {
        assert_eq!(of_page(&said, path), expected, "{path}: {said}");
    }
}

#[test]
fn counts_outlive_restarts() {
    let mut server = Server::start_in(folder(), &config(""));
    Wire::plain(&server).get("/a.html", BROWSER);
    assert_eq!(of_page(&hits(&server), "/a.html"), "1/0");
    // A reload keeps all counts.
    server.reload(&config(""));
    Wire::plain(&server).get("/a.html", BROWSER);
    for expected in ["3/0", "4/0"] {
        Wire::plain(&server).get("/a.html", BROWSER);
        assert_eq!(server.ask(&["stop"]).code, Some(0));
        assert_eq!(server.wait(PATIENCE), Some(0));
        server = Server::start_in(server.into_folder(), &config(""));
        assert_eq!(of_page(&hits(&server), "/a.html"), expected);
    }
    let file = server.folder.path("state/hits");
    let written = std::fs::read_to_string(file).expect("the file");
    assert!(written.contains("/a.html\n"), "{written}");
    assert!(!written.contains("127.0.0.1"), "{written}");
}

#[test]
fn a_range_of_days_has_its_own_sums() {
    let day = SystemTime::now().duration_since(UNIX_EPOCH).expect("now");
    let day = day.as_secs() / 86_400;
    // The days of a server process before: 40 days, of which a page keeps 31.
    let mut counts = String::from("anthill hits 1\nsite *\n");
    let mut kept = Vec::new();
    for past in (10..50).rev() {
        counts += &format!("day {} 2 1 5\n", day - past);
        kept.push(format!("{}:2", day - past));
    }
    counts += &format!("page 80 40 {} /a.html\n", kept[9..].join(","));
    let folder = folder().with("state/hits", &counts);
    let server = Server::start_in(folder, &config(""));
    Wire::plain(&server).get("/", BROWSER);
    let ask = |words: &[&str]| {
        let done = server.ask(&[&["hits"], words].concat());
        assert_eq!(done.code, Some(0), "{words:?}: {done:?}");
        done.stdout
    };
    let json = ask(&["--json", "--days", "12", "*"]);
    for part in [
        "\"views\":5,\"bots\":2,\"assets\":10,",
        "{\"path\":\"/a.html\",\"views\":4,\"complete\":true,",
        "{\"path\":\"/\",\"views\":1,\"complete\":true,",
    ] {
        assert!(json.contains(part), "no {part}: {json}");
    }
    let text = ask(&["--days", "60", "*"]);
    assert!(text.contains("  the counts begin on "), "{text}");
    assert!(
        text.contains("  all                 81        40       200\n"),
        "{text}"
    );
    assert!(text.contains("        >=62  /a.html\n"), "{text}");
    let text = ask(&["--to", "2020-01-01", "--from", "2020-01-01", "*"]);
    assert!(
        text.contains("  all                  0         0         0\n"),
        "{text}"
    );
    let wrong = server.ask(&["hits", "--from", "yesterday"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.stderr.contains("such as 2026-11-01"), "{wrong:?}");
}

#[test]
fn a_page_reads_its_own_counts() {
    let server = Server::start_in(folder(), &config(""));
    for _ in 0..3 {
        Wire::plain(&server).get("/a.html", BROWSER);
    }
    hits(&server);
    let mut wire = Wire::plain(&server);
    let told = wire.get("/views/a.html", BROWSER);
    assert_eq!(told.field("content-type"), Some("application/json"));
    assert!(
        told.text()
            .starts_with("{\"path\":\"/a.html\",\"views\":3,\"today\":3,"),
        "{told:?}"
    );
    let told = wire.get("/views/nowhere", BROWSER);
    assert!(
        told.text()
            .starts_with("{\"path\":\"/nowhere\",\"views\":0,"),
        "{told:?}"
    );
    assert!(
        wire.get("/views/", BROWSER)
            .text()
            .starts_with("{\"path\":\"/\",")
    );
    assert_eq!(
        Wire::plain(&server)
            .ask("DELETE", "/views/a.html", BROWSER)
            .status,
        405
    );
    let said = hits(&server);
    assert_eq!(of_page(&said, "/views/a.html"), "none", "{said}");
}

#[test]
fn counting_can_be_switched_off() {
    let server = Server::start_in(folder(), &config("hits = false"));
    Wire::plain(&server).get("/a.html", BROWSER);
    assert_eq!(of_page(&hits(&server), "/a.html"), "none");
    let told = Wire::plain(&server).get("/views/a.html", BROWSER);
    assert!(told.text().contains("\"views\":0"), "{told:?}");
}
