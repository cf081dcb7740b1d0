//! Monitoring by Prometheus: the metrics of the manager, and the alerts and the dashboard of the example.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::metrics::{balanced, check_metrics, config, parse, requests};
use crate::support::member::{Member, ok};
use crate::support::nginx::free_port;
use crate::support::wire::Wire;
use crate::support::{Folder, Server, eventually, run, spawn, tool};

fn example(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/monitoring");
    folder.join(name)
}

#[test]
fn the_example_is_valid() {
    for (kind, file) in [("rules", "alerts.yml"), ("config", "prometheus.yml")] {
        let path = example(file);
        let ran = run(
            "promtool",
            &["check", kind, path.to_str().expect("UTF-8")],
            b"",
        );
        assert!(ran.success, "{} {}", ran.text(), ran.errors());
    }
}

/// Returns a server with a manager, and the address of the manager.
fn managed(config: String) -> (Server, String) {
    let server = Server::start(&(config + "[manager]\nlisten = \"127.0.0.1:0\"\n"));
    let line = server
        .errors
        .wait_for("the manager", |line| line.starts_with("manager: "));
    let url = line.trim_start_matches("manager: http://");
    let address = url.trim_end_matches('/').to_owned();
    (server, address)
}

/// Requests the metrics of a manager with the fields of curl, and returns the head and the content.
fn fetch(address: &str, fields: &[&str]) -> (String, String) {
    let url = format!("http://{address}/metrics");
    let ran = run("curl", &[&["-si", url.as_str()], fields].concat(), b"");
    let text = ran.text();
    let (head, content) = text.split_once("\r\n\r\n").expect("a response");
    (head.to_ascii_lowercase(), content.to_owned())
}

#[test]
fn the_manager_serves_the_metrics_in_the_format_of_accept() {
    let (server, address) = managed(config(""));
    Wire::plain(&server).get("/", "");
    let (head, plain) = fetch(&address, &[]);
    assert!(
        head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"),
        "{head}"
    );
    assert!(head.contains("vary: accept"), "{head}");
    check_metrics(&plain);
    assert_eq!(
        requests(&parse(&plain), ["localhost", "/"], "1.1", "2xx"),
        1.0
    );
    let accept = [
        "-H",
        "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
    ];
    let (head, open) = fetch(&address, &accept);
    let media = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(head.contains(media), "{head}");
    assert!(open.ends_with("\n# EOF\n"), "{open}");
    let (head, _) = fetch(&address, &["-H", "Host: elsewhere.example"]);
    assert!(head.starts_with("http/1.1 421"), "{head}");
}

/// A running Prometheus.
struct Prometheus {
    child: Child,
    url: String,
    _folder: Folder,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    /// Starts Prometheus with the configuration and the alerts of the example, and another target.
    fn start(target: &str) -> Prometheus {
        let read = |name| fs::read_to_string(example(name)).expect("a file of the example");
        let config = read("prometheus.yml");
        let config = config
            .replace("15s", "1s")
            .replace("127.0.0.1:8800", target);
        let folder = Folder::new()
            .with("prometheus.yml", config)
            .with("alerts.yml", read("alerts.yml"));
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new(tool("prometheus"));
        command
            .arg(format!(
                "--config.file={}",
                folder.path("prometheus.yml").display()
            ))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.path("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Prometheus {
            child: spawn(&mut command).expect("prometheus"),
            url: format!("http://{address}"),
            _folder: folder,
        }
    }

    /// Evaluates an expression, and returns the result as text.
    fn query(&self, expression: &str) -> Result<String, String> {
        let ran = run(
            "promtool",
            &["query", "instant", &self.url, expression],
            b"",
        );
        if ran.success {
            Ok(ran.text())
        } else {
            Err(ran.errors())
        }
    }
}

/// Returns the expressions of the dashboard and of the alerts, with values for the dashboard's variables.
fn expressions() -> Vec<String> {
    let dashboard = fs::read_to_string(example("dashboard.json")).expect("a dashboard");
    let alerts = fs::read_to_string(example("alerts.yml")).expect("alerts");
    let panels = dashboard.lines().filter_map(|line| {
        let text = line
            .trim()
            .strip_prefix("\"expr\": \"")?
            .strip_suffix("\",")?;
        Some(
            text.replace("\\\"", "\"")
                .replace("$instance", ".*")
                .replace("$__rate_interval", "1m"),
        )
    });
    let rules = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: "));
    panels.chain(rules.map(str::to_owned)).collect()
}

#[test]
fn prometheus_reads_the_manager_and_evaluates_the_example() {
    let member = Member::start(|_| ok("hello"));
    let (server, address) = managed(balanced(&member, free_port()));
    let mut wire = Wire::plain(&server);
    for path in ["/", "/app/", "/app/", "/none", "/page/x"] {
        wire.get(path, "");
    }
    let prometheus = Prometheus::start(&address);
    eventually("two scrapes", || {
        let scrapes = prometheus.query("sum(up) == 1 and count_over_time(sum(up)[1m:1s]) > 2");
        let builds = prometheus.query("count_over_time(anthill_build_info[1m]) >= 2");
        let has_result = |result: Result<String, String>| result.is_ok_and(|it| it.contains("=>"));
        (has_result(scrapes) && has_result(builds)).then_some(())
    });
    let expressions = expressions();
    assert!(expressions.len() >= 25, "{expressions:?}");
    for expression in &expressions {
        let result = prometheus.query(expression);
        assert!(result.is_ok(), "{expression}: {result:?}");
    }
    for (start, part) in [
        ("sum by (status)", "status=\"2xx\""),
        (
            "sum by (balancer, member) (rate(anthill_member_requests",
            "balancer=\"app\"",
        ),
        (
            "sum by (protocol) (anthill_connections_by_protocol",
            "protocol=\"1.1\"",
        ),
        (
            "histogram_quantile(0.99, sum by (balancer",
            "balancer=\"app\"",
        ),
    ] {
        let mut found = expressions.iter().filter(|text| text.starts_with(start));
        let result = prometheus
            .query(found.next().expect("a panel"))
            .expect("a result");
        assert!(result.contains(part), "{start}: {result}");
    }
}
