//! The manager's responses: compression, tokens of the forms, and the events that update the page.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::fastcgi::{Backend as Php, php_folder};
use crate::manager::{LOCAL, Manager, config, state};
use crate::support::member::{Answer, Member, ok};
use crate::support::wire::Wire;
use crate::support::{Server, eventually};

/// Returns a server with a balancer of one member, and the member.
fn server() -> (Server, Member) {
    let member = Member::start(|_| ok("a"));
    let server = Server::start(&config(LOCAL, &[&member.url()]));
    (server, member)
}

#[test]
fn large_texts_are_compressed_for_clients_that_accept_gzip() {
    let (server, _member) = server();
    let manager = Manager::of(&server);
    for (path, part) in [
        ("/", "</html>"),
        ("/history", "</html>"),
        ("/status.json", "\"version\":"),
        ("/requests.json", "\"count\":"),
        ("/style.css", ".tiles"),
        ("/live.js", "EventSource"),
        ("/?xml=1", "</httpd:manager>"),
        ("/metrics", "anthill_"),
    ] {
        let plain = manager.get(path);
        assert_eq!(plain.field("content-encoding"), None, "{path}");
        let coded = manager.curl(path, &["--compressed"]);
        for answer in [&plain, &coded] {
            assert_eq!(answer.status, 200, "{path}");
            assert_eq!(answer.field("vary"), Some("Accept-Encoding"), "{path}");
            assert!(answer.body.contains(part), "{path} {answer:?}");
        }
        let is_large = plain.body.len() >= anthill::manager::limits::MANAGER_GZIP_BYTES_MIN;
        let expected = is_large.then_some("gzip");
        assert_eq!(coded.field("content-encoding"), expected, "{path}");
        let refused = manager.curl(path, &["-H", "Accept-Encoding: br, gzip;q=0"]);
        assert_eq!(refused.field("content-encoding"), None, "{path}");
    }
    let [plain, coded] = [&[][..], &["--compressed"]].map(|it| manager.curl("/live.js", it).body);
    assert_eq!(plain, coded);
    let head = manager.curl("/", &["--head", "--compressed"]);
    assert_eq!(head.field("content-encoding"), Some("gzip"));
}

/// Returns the token in a page or in XML.
fn token_in<'b>(body: &'b str, before: &str, after: char) -> &'b str {
    let rest = body.split(before).nth(1).expect("a token");
    rest.split(after).next().expect("an end")
}

#[test]
fn each_response_has_tokens_of_its_own() {
    let (server, member) = server();
    let manager = Manager::of(&server);
    let cookie = manager.session(&server);
    let login = ["-b", cookie.as_str(), "--compressed"];
    let pages = [(); 2].map(|()| manager.curl("/", &login).body);
    let mut tokens: Vec<&str> = pages
        .iter()
        .map(|page| token_in(page, "name=nonce value=\"", '"'))
        .collect();
    let xml = manager.curl("/?xml=1", &login).body;
    tokens.push(token_in(&xml, "<httpd:nonce>", '<'));
    let plain = manager.token(&login[..2]);
    for (nth, token) in tokens.iter().enumerate() {
        assert!(!tokens[..nth].contains(token), "{tokens:?}");
        assert!(!token.contains(&plain), "{token}");
    }
    tokens.push(&plain);
    for (nth, token) in tokens.iter().enumerate() {
        let is_off = (nth + 1) % 2;
        let url = member.url().replace(':', "%3A").replace('/', "%2F");
        let form = format!("b=app&w={url}&w_status_D={is_off}&confirmed=1&nonce={token}");
        let done = manager.curl("/", &["-b", &cookie, "-d", &form]);
        assert_eq!(done.status, 303, "{done:?}");
        let expected = ["enabled", "disabled"][is_off];
        assert_eq!(state(&server), expected);
    }
}

#[test]
fn the_xml_has_the_token_of_a_login_at_each_balancer() {
    let member = Member::start(|_| ok("a"));
    let more = "[[balancer]]\nname = \"other\"\nmembers = [\"http://127.0.0.1:1\"]\n";
    let text = config(LOCAL, &[&member.url()]);
    let server = Server::start(&text.replacen("[[balancer]]", &format!("{more}[[balancer]]"), 1));
    let manager = Manager::of(&server);
    let cookie = manager.session(&server);
    let public = manager.get("/?xml=1").body;
    assert!(!public.contains("nonce"), "{public}");
    for options in [
        &["-b", cookie.as_str()][..],
        &["-b", &cookie, "--compressed"],
    ] {
        let mut body = manager.curl("/?xml=1", options).body;
        let token = token_in(&body, "<httpd:nonce>", '<').to_owned();
        let element = format!("      <httpd:nonce>{token}</httpd:nonce>\n");
        assert_eq!(body.matches(&element).count(), 2, "{body}");
        body = body.replace(&element, "");
        let elements = |body: &str| body.matches("<httpd:").count();
        assert_eq!(elements(&body), elements(&public), "{body}");
        assert!(body.ends_with("</httpd:manager>\n"), "{body}");
    }
    let head = manager.curl("/?xml=1", &["--head"]);
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert!(head.field("content-length").is_some(), "{head:?}");
}

/// Client of the events.
pub struct Viewer {
    client: Child,
    lines: BufReader<ChildStdout>,
}

impl Viewer {
    /// Starts a client with options of curl.
    pub fn start(manager: &Manager, options: &[&str]) -> Viewer {
        let mut command = Command::new("curl");
        command.args(["-sN", "--max-time", "60"]).args(options);
        command.arg(format!("{}/events", manager.url));
        command.stdout(Stdio::piped());
        let mut client = crate::support::spawn(&mut command).expect("curl");
        let lines = BufReader::new(client.stdout.take().expect("a pipe"));
        Viewer { client, lines }
    }

    /// Returns the lines of the next event.
    pub fn event(&mut self) -> Vec<String> {
        let mut event = Vec::new();
        loop {
            let mut line = String::new();
            self.lines.read_line(&mut line).expect("a line");
            assert!(!line.is_empty(), "the stream ended: {event:?}");
            match line.strip_prefix("data: ") {
                Some(line) => event.push(line.trim_end_matches('\n').to_owned()),
                None => return event,
            }
        }
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        // The client has perhaps ended.
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

#[test]
fn the_first_event_is_whole_and_the_next_events_have_the_changes() {
    let (server, member) = server();
    let manager = Manager::of(&server);
    for options in [&[][..], &["--compressed"], &["--http2-prior-knowledge"]] {
        let mut viewer = Viewer::start(&manager, options);
        let first = viewer.event();
        let whole = ["<section id=live-problems>", "<section id=live-balancer-0>"];
        for section in whole {
            assert!(first.iter().any(|line| line == section), "{first:?}");
        }
        let bytes: usize = first.iter().map(String::len).sum();
        let server_line = |line: &String| line.starts_with("live-server ");
        let mut next = viewer.event();
        while !next.iter().any(server_line) {
            next = viewer.event();
        }
        let changed: usize = next.iter().map(String::len).sum();
        assert!(changed < bytes / 2, "{next:?}");
        assert!(!next.iter().any(|line| line == whole[1]), "{next:?}");
    }
    // A row of the table of members is a line.
    let mut viewer = Viewer::start(&manager, &["--compressed"]);
    viewer.event();
    let cookie = manager.session(&server);
    let token = manager.token(&["-b", &cookie]);
    let url = member.url().replace(':', "%3A").replace('/', "%2F");
    let form = format!("b=app&w={url}&w_lf=7&nonce={token}");
    let done = manager.curl("/", &["-b", &cookie, "-d", &form]);
    assert_eq!(done.status, 303, "{done:?}");
    loop {
        let event = viewer.event();
        let mut rows = event
            .iter()
            .filter_map(|it| it.strip_prefix("live-balancer-0 "));
        if rows.any(|row| row.contains("<tr>") && row.contains(">7<")) {
            break;
        }
    }
}

#[test]
fn the_table_of_members_has_rates_percentiles_and_routes() {
    let (server, _member) = server();
    let manager = Manager::of(&server);
    assert_eq!(server.body("/app/"), b"a");
    let page = manager.get("/").body;
    for part in [
        "<dt>Members</dt><dd>1 of at most 1000</dd>",
        "<dt>Path</dt><dd>*/app/</dd>",
        "<dt>Active</dt><dd>yes</dd>",
        ">Median \u{2264}</th>",
        ">99 % \u{2264}</th>",
        "<dt>HTTP/1.1, 2, 3</dt>",
        "aria-label=\"Page views of the sites\"",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    let row = page.split("<th scope=row>").nth(1).expect("a row");
    let row = row.split("</tr>").next().expect("the end of a row");
    // After the rate: busy, elected, errors, retries, and the latencies.
    let cells: Vec<&str> = row.split("<td class=n>").skip(1).collect();
    assert_eq!(cells.len(), 13, "{row}");
    assert!(cells[2].starts_with("1</td>"), "{row}");
    for latency in &cells[5..8] {
        let text = latency.split("</td>").next().expect("a cell");
        let number = text.trim_start_matches("> ").parse::<f64>();
        assert!(number.is_ok_and(|it| it > 0.0), "{text}");
    }
}

#[test]
fn open_connections_are_counted_by_version() {
    let (server, _member) = server();
    let manager = Manager::of(&server);
    let open = |options: &[&str]| {
        let page = manager.curl("/", options).body;
        let tile = page.split("<dt>HTTP/1.1, 2, 3</dt><dd>").nth(1);
        let tile = tile.and_then(|rest| rest.split('<').next());
        tile.expect("a tile").to_owned()
    };
    // The tile counts the connection of the reader itself, unless the snapshot is older.
    crate::support::eventually("a connection of HTTP/2", || {
        (open(&["--http2-prior-knowledge"]) == "0, 1, 0").then_some(())
    });
    crate::support::eventually("a connection of HTTP/1.1", || {
        (open(&[]) == "1, 0, 0").then_some(())
    });
}

#[test]
fn a_page_of_many_members_shows_states_and_numbers() {
    let member = Member::start(|_| ok("a"));
    let port = member.url().rsplit(':').next().expect("a port").to_owned();
    // All addresses of 127.0.0.0/8 lead to the host, but the member listens at 127.0.0.1 alone.
    let mut urls = vec![member.url()];
    let addresses = (1..=3).flat_map(|third| (1..250).map(move |last| (third, last)));
    urls.extend(addresses.map(|(third, last)| format!("http://127.0.{third}.{last}:{port}")));
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let server = Server::start(&config(LOCAL, &urls));
    let manager = Manager::of(&server);
    let size = manager.get("/").body.len();
    assert!(
        size > anthill::manager::limits::MANAGER_LARGE_PAGE_BYTES,
        "{size}"
    );
    let mut viewer = Viewer::start(&manager, &["--compressed"]);
    viewer.event();
    let mut row_with = |url: &str, text: &str| {
        let address = url.trim_start_matches("http://");
        loop {
            let event = viewer.event();
            let mut rows = event
                .iter()
                .filter(|line| line.starts_with("live-balancer-0 "));
            if rows.any(|row| row.contains(address) && row.contains(text)) {
                return;
            }
        }
    };
    let disabled = urls[7];
    let done = server.ask(&["balancer", "disable", "app", disabled]);
    assert_eq!(done.code, Some(0), "{done:?}");
    row_with(disabled, "disabled");
    assert_eq!(server.body("/app/"), b"a");
    row_with(urls[0], "<td class=n>1</td>");
}

#[test]
fn the_page_and_json_have_the_last_check_and_the_time_in_the_state() {
    let member = Member::start(|request| {
        if request.line().contains("/health") {
            Answer::Keep(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".to_vec())
        } else {
            ok("a")
        }
    });
    let text = config(LOCAL, &[&member.url()]).replace(
        "name = \"app\"\n",
        "name = \"app\"\nhealth = { path = \"/health\", every = \"10s\", timeout = \"10s\", fall = 1 }\n",
    );
    // The first check is at the start. With a shorter timeout, a busy machine has another result.
    let server = Server::start(&text);
    let manager = Manager::of(&server);
    let failed = crate::support::eventually("a failed check", || {
        let page = manager.get("/").body;
        let is_failed = page.contains("class=down>check failed");
        (is_failed && page.contains("<small>last: status 500</small>")).then_some(page)
    });
    let state = failed
        .split("class=down>check failed")
        .nth(1)
        .expect("a state");
    let since = state
        .strip_prefix("<small>since <time datetime=")
        .expect(state);
    let (moment, since) = since.split_once('>').expect(state);
    let (time, change) = since.split_once(" UTC</time>, ").expect(state);
    assert!(moment.ends_with(&format!("T{time}Z\"")), "{state}");
    let change = change.split_once('<').map(|it| it.0);
    assert_eq!(
        change,
        Some("changed from up to check failed: status 500"),
        "{state}"
    );
    let parts = time.split(':').map(|part| part.parse::<u8>().ok());
    assert!(
        parts.clone().count() == 3 && parts.into_iter().all(|it| it.is_some()),
        "{time}"
    );
    for part in [
        "<small>last: status 500</small>",
        "Checks doubted: the only member fails, and is tried in spite of its failed checks",
        "balancer app: the only member fails, and is tried in spite of its failed checks",
    ] {
        assert!(failed.contains(part), "no {part}: {failed}");
    }
    // The text stays the same while the state lasts.
    let later = manager.get(&format!("/?b=app&w={}", member.url())).body;
    let element = format!("since <time datetime={moment}>{time} UTC</time>, ");
    for before in ["<small>", "</b> "] {
        assert!(later.contains(&format!("{before}{element}")), "{later}");
    }
    assert!(later.contains(": <b>status 500</b></p>"), "{later}");
    let json = server.ask(&["balancer", "--json"]).stdout;
    for part in [
        "\"last_check\":{\"passed\":false,\"reason\":\"status 500\",\"seconds_ago\":",
        "\"seconds_in_state\":",
    ] {
        assert!(json.contains(part), "no {part}: {json}");
    }
}

#[test]
fn backends_of_scripts_are_shown_with_their_answers() {
    let folder = php_folder();
    let _php = Php::php(&folder, 2);
    let route = "[[site.route]]\npath = \"/\"\nfastcgi = \"unix:fpm.sock\"\nfiles = \".php\"\nkeep = 2\n\
                 [[site.route]]\npath = \"/gone/\"\nscgi = \"unix:nowhere.sock\"\n";
    let server = Server::start_in(folder, &(config(LOCAL, &[]) + route));
    let manager = Manager::of(&server);
    assert_eq!(server.body("/pid.php").len().min(1), 1);
    let mut wire = Wire::plain(&server);
    for (path, status) in [("/fails.php", 500), ("/status.php", 418), ("/gone/", 502)] {
        assert_eq!(wire.get(path, "").status, status, "{path}");
    }
    let page = eventually("the calls on the page", || {
        let page = manager.get("/").body;
        let row = page.split("aria-label=\"Backends of scripts\"").nth(1)?;
        let row = row.split("</table>").next()?.to_owned();
        // Under way, waiting, places, kept open, and the answers.
        let is_counted = "<td class=n>0</td><td class=n>0</td><td class=n>2</td><td class=n>1</td>\
                          <td class=n>1</td><td class=n>0</td><td class=n>1</td><td class=n>1</td>\
                          <td class=n>0</td><td class=n>0</td>";
        row.contains(is_counted).then_some(row)
    });
    for part in [
        "fpm.sock<small>FastCGI for */*.php</small></th>",
        "nowhere.sock<small>SCGI for */gone/</small><small class=down>the last connection failed: No such file",
    ] {
        assert!(page.contains(part), "no {part}: {page}");
    }
    let text = server.ask(&["status"]).stdout;
    assert!(text.contains("\n  BACKEND "), "{text}");
    assert!(text.contains("    FastCGI for */*.php\n"), "{text}");
    let json = server.ask(&["status", "--json"]).stdout;
    assert!(
        json.contains("\"keep\":2,\"places\":2,\"busy\":0,\"waiting\":0,\"idle\":1,\"answers\":{\"1xx\":0,\"2xx\":1,\"3xx\":0,\"4xx\":1,\"5xx\":1}"),
        "{json}"
    );
    let metrics = server.ask(&["metrics"]).stdout;
    let failures = metrics
        .lines()
        .filter(|line| line.starts_with("anthill_backend_failures_total"));
    assert!(
        failures
            .clone()
            .any(|line| line.contains("nowhere.sock") && line.ends_with(" 1")),
        "{metrics}"
    );
    assert_eq!(failures.count(), 2);
}
