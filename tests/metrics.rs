//! Metrics of the running server: the counted responses, the samples and their names.

use std::collections::BTreeMap;

use crate::support::h2::H2;
use crate::support::member::{Member, ok};
use crate::support::nginx::free_port;
use crate::support::wire::{Over, Wire};
use crate::support::{Server, eventually, run, server_table};

/// Samples by name and labels.
pub type Samples = BTreeMap<String, f64>;

/// Reads the samples of an exposition.
pub fn parse(text: &str) -> Samples {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.map(|line| {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        (name.to_owned(), value.parse().expect("a number"))
    });
    samples.collect()
}

fn text(server: &Server, options: &[&str]) -> String {
    let done = server.ask(&[&["metrics"], options].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    done.stdout
}

fn samples(server: &Server) -> Samples {
    parse(&text(server, &[]))
}

/// Returns the number of responses of a route.
pub fn requests(samples: &Samples, route: [&str; 2], protocol: &str, status: &str) -> f64 {
    let [site, route] = route;
    let name = format!(
        "anthill_http_requests_total{{site=\"{site}\",route=\"{route}\",\
         protocol=\"{protocol}\",status=\"{status}\"}}"
    );
    *samples
        .get(&name)
        .unwrap_or_else(|| panic!("no {name} in {samples:#?}"))
}

const NO_SITE: [&str; 2] = ["", ""];

pub fn config(more: &str) -> String {
    server_table("h2c = true\n")
        + "[log]\naccess = \"off\"\n"
        + "[[site]]\nnames = [\"localhost\", \"127.0.0.1\"]\nroot = \"public\"\nhttp = \"serve\"\n"
        + "[[site.route]]\npath = \"/echo\"\ntest = \"echo\"\n"
        + "[[site.route]]\npath = \"/page/\"\ntest = \"page\"\ncache = { seconds = 1000 }\n"
        + more
}

#[test]
fn requests_count_by_route_protocol_and_status() {
    let server = Server::start(&config(""));
    let files = ["localhost", "/"];
    let mut plain = Wire::plain(&server);
    assert_eq!(plain.get("/", "").status, 200);
    assert_eq!(plain.get("/none", "").status, 404);
    assert_eq!(plain.get("/echo", "").status, 200);
    server.http_raw(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n");
    server.http_raw(b"GET / HTTP/1.1\r\nHost: elsewhere\r\nConnection: close\r\n\r\n");
    server.http_raw(b"malformed\r\n\r\n");
    let mut h2 = H2::open(&server, Over::Tls);
    assert_eq!(h2.get("/").status, 200);
    assert_eq!(h2.get("/echo/x").status, 200);
    assert_eq!(h2.get("/none").status, 404);
    let seen = samples(&server);
    for (route, protocol, status, count) in [
        (files, "1.1", "2xx", 1.0),
        (files, "1.1", "4xx", 1.0),
        (files, "1.0", "2xx", 1.0),
        (files, "2", "2xx", 1.0),
        (files, "2", "4xx", 1.0),
        (files, "3", "2xx", 0.0),
        (["localhost", "/echo/"], "1.1", "2xx", 1.0),
        (["localhost", "/echo/"], "2", "2xx", 1.0),
        (NO_SITE, "1.1", "4xx", 2.0),
        (NO_SITE, "2", "4xx", 0.0),
    ] {
        let found = requests(&seen, route, protocol, status);
        assert_eq!(found, count, "{route:?} {protocol} {status}");
    }
    for (sample, value) in [
        (
            "anthill_http_refusals_total{rule=\"401\",status=\"404\"}",
            1.0,
        ),
        (
            "anthill_http_refusals_total{rule=\"101\",status=\"400\"}",
            1.0,
        ),
        ("anthill_http_request_duration_seconds_count", 9.0),
        ("anthill_multiplexed_connections_total{protocol=\"2\"}", 1.0),
        ("anthill_workers", 1.0),
    ] {
        assert_eq!(seen[sample], value, "{sample}");
    }
    let bytes = seen["anthill_http_response_bytes_total{site=\"localhost\",route=\"/\"}"];
    assert!(bytes >= 3.0 * "<p>hello</p>\n".len() as f64, "{bytes}");
    assert!(seen["process_resident_memory_bytes"] > 100_000.0);
}

#[cfg(feature = "http3")]
#[test]
fn requests_over_http3_count_by_route() {
    let server = Server::start(&config(""));
    for path in ["/", "/echo", "/none"] {
        crate::h3::run_scenario(&server, &["fetch", path]);
    }
    let seen = samples(&server);
    let files = ["localhost", "/"];
    assert_eq!(requests(&seen, files, "3", "2xx"), 1.0);
    assert_eq!(requests(&seen, files, "3", "4xx"), 1.0);
    assert_eq!(requests(&seen, ["localhost", "/echo/"], "3", "2xx"), 1.0);
    assert_eq!(
        seen["anthill_multiplexed_connections_total{protocol=\"3\"}"],
        3.0
    );
}

#[test]
fn the_page_cache_counts_its_part_of_each_response() {
    let server = Server::start(&config(""));
    let count = |result: &str| {
        let name = format!(
            "anthill_cache_requests_total{{site=\"localhost\",route=\"/page/\",result=\"{result}\"}}"
        );
        samples(&server)[&name]
    };
    for (over, misses, hits) in [(Over::Plain, 1.0, 2.0), (Over::Tls, 2.0, 4.0)] {
        let path = format!("/page/{over:?}");
        let mut wire = Wire::over(&server, over);
        for _ in 0..3 {
            assert_eq!(wire.get(&path, "").status, 200);
        }
        assert_eq!((count("miss"), count("hit")), (misses, hits));
    }
    let mut h2 = H2::open(&server, Over::Tls);
    h2.get("/page/two");
    h2.get("/page/two");
    assert_eq!(
        (count("miss"), count("hit"), count("stale")),
        (3.0, 5.0, 0.0)
    );
    Wire::plain(&server).ask("POST", "/page/two", "Content-Length: 0\r\n");
    assert_eq!((count("bypass"), count("collapsed")), (1.0, 0.0));
}

#[test]
fn requests_add_no_samples() {
    let server = Server::start(&config(""));
    let before: Vec<String> = samples(&server).into_keys().collect();
    let mut wire = Wire::plain(&server);
    for number in 0..50 {
        wire.get(&format!("/random/{number}?{number}"), "");
        let request = format!(
            "GET /{number} HTTP/1.1\r\nHost: host{number}.example\r\nConnection: close\r\n\r\n"
        );
        server.http_raw(request.as_bytes());
        server.http_raw(format!("BAD{number} / HTTP/1.1\r\n\r\n").as_bytes());
    }
    let after = samples(&server);
    // 50 requests have an unknown host. 50 have no host, and a method without a registration, which is no error by itself.
    assert_eq!(requests(&after, NO_SITE, "1.1", "4xx"), 100.0);
    assert_eq!(after.into_keys().collect::<Vec<_>>(), before);
}

#[test]
fn counters_survive_a_reload() {
    let server = Server::start(&config(""));
    let mut wire = Wire::plain(&server);
    wire.get("/", "");
    wire.get("/echo", "");
    server.reload(&config(
        "[[site]]\nnames = [\"b.example\"]\nroot = \"public\"\nhttp = \"serve\"\n",
    ));
    // A connection from before the reload counts for the same routes.
    wire.get("/", "");
    wire.get("/echo", "");
    let seen = samples(&server);
    assert_eq!(requests(&seen, ["localhost", "/"], "1.1", "2xx"), 2.0);
    assert_eq!(requests(&seen, ["localhost", "/echo/"], "1.1", "2xx"), 2.0);
    assert_eq!(requests(&seen, ["b.example", "/"], "1.1", "2xx"), 0.0);
    assert_eq!(seen["anthill_configuration_generation"], 2.0);
    server.reload(&config("").replace("/echo", "/other"));
    let seen = samples(&server);
    assert!(
        !seen.keys().any(|name| name.contains("/echo/")),
        "{seen:#?}"
    );
    assert_eq!(requests(&seen, ["localhost", "/"], "1.1", "2xx"), 2.0);
}

#[test]
fn odd_paths_are_escaped() {
    let odd = "[[site.route]]\npath = '/a\"b{c},d=é'\ntest = \"echo\"\n";
    let server = Server::start(&config(odd));
    let path = "/a%22b%7Bc%7D,d=%C3%A9";
    assert_eq!(Wire::plain(&server).get(path, "").status, 200);
    let route = ["localhost", "/a\\\"b{c},d=é/"];
    assert_eq!(requests(&samples(&server), route, "1.1", "2xx"), 1.0);
    check_metrics(&text(&server, &[]));
}

/// Passes an exposition in the format of Prometheus to promtool, which checks the format and the names.
pub fn check_metrics(text: &str) {
    let ran = run("promtool", &["check", "metrics"], text.as_bytes());
    assert_eq!(
        (ran.success, ran.errors().as_str()),
        (true, ""),
        "{}",
        ran.text()
    );
}

pub fn balanced(member: &Member, dead: u16) -> String {
    config(&format!(
        "[[site.route]]\npath = \"/app/\"\nbalance = \"app\"\n\
         [[balancer]]\nname = \"app\"\nmembers = [\"{}\", \"http://127.0.0.1:{dead}\"]\n",
        member.url()
    ))
}

#[test]
fn members_have_counters_and_latencies() {
    let member = Member::start(|_| ok("hello"));
    let server = Server::start(&balanced(&member, free_port()));
    let mut wire = Wire::plain(&server);
    for _ in 0..4 {
        assert_eq!(wire.get("/app/", "").status, 200);
    }
    let text = text(&server, &[]);
    check_metrics(&text);
    let seen = parse(&text);
    let labels = format!("balancer=\"app\",member=\"{}\"", member.url());
    let value = |name: &str| seen[&format!("{name}{{{labels}}}")];
    assert_eq!(value("anthill_member_requests_total"), 4.0);
    assert_eq!(value("anthill_member_up"), 1.0);
    assert_eq!(value("anthill_member_errors_total"), 0.0);
    assert_eq!(value("anthill_member_latency_seconds_count"), 4.0);
    assert!(value("anthill_member_latency_seconds_sum") > 0.0);
    assert!(value("anthill_member_received_bytes_total") >= 20.0);
    let bucket = format!("anthill_member_latency_seconds_bucket{{{labels},le=\"+Inf\"}}");
    assert_eq!(seen[&bucket], 4.0);
    assert_eq!(requests(&seen, ["localhost", "/app/"], "1.1", "2xx"), 4.0);
    let errors = seen
        .iter()
        .filter(|(name, _)| name.starts_with("anthill_member_errors_total"));
    assert_eq!(errors.map(|(_, value)| value).sum::<f64>(), 1.0);
}

#[test]
fn the_history_has_rows_of_the_last_minutes() {
    let server = Server::start(&config(""));
    let mut wire = Wire::plain(&server);
    let history = eventually("a row with requests", || {
        wire.get("/", "");
        let text = text(&server, &["--history"]);
        let rows = text.split("\"requests\":[").nth(1)?.split(']').next()?;
        let has_requests = rows.split(',').any(|row| !matches!(row, "" | "0"));
        has_requests.then_some(text)
    });
    assert!(
        history.starts_with("{\"interval_seconds\":5,\"at\":["),
        "{history}"
    );
    let done = server.ask(&["metrics", "--history", "--openmetrics"]);
    assert_eq!(done.code, Some(2), "{done:?}");
}
