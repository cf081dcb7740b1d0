use crate::admin::metrics::families::FAMILIES;
use crate::admin::metrics::{Metrics, MetricsFacts, MetricsFormat, RouteMetrics};
use crate::admin::status::Status;
use crate::admin::status::tests::example;
use crate::admin::status::{CertificateStatus, RenewalStatus};
use base::machine::{MachineFacts, ProcessFacts};
use data_plane::ledger::route_counters::{CacheOutcome, ResponseSeries, RouteCounters};
use data_plane::ledger::stats::Stats;
use std::fs;
use std::path::Path;
use wire::reject::Reject;

fn status() -> Status {
    Status {
        version: "1.2.3",
        now: 7_200,
        up_seconds: 200,
        predecessors: Vec::new(),
        restarts: None,
        connections: 9,
        counters: vec![
            ("handshakes_full", 6),
            ("h3_connections", 7),
            ("h3_connections_closed", 5),
        ],
        shares: vec![("calls_refused", 18)],
        certificates: vec![CertificateStatus {
            names: vec!["a.org".into(), "b.org".into()],
            days_left: 42,
            not_after: 4_000_000_000,
            is_self_signed: false,
            missing_names: Vec::new(),
            awaits_certificate: false,
            renewal: Some(RenewalStatus {
                next: 1,
                failure: Some((2, "no".into())),
            }),
        }],
        ..example()
    }
}

fn facts() -> MetricsFacts {
    let route = |site, route, has_cache| {
        let counters = RouteCounters::new(site, route, 1);
        for status in [200, 200, 404] {
            let series = ResponseSeries {
                version: 1,
                cache: CacheOutcome::Collapsed,
            };
            counters.count(0, series, status, 5);
        }
        RouteMetrics {
            totals: counters.totals(),
            has_cache,
        }
    };
    let stats = Stats::new(1);
    let index = Reject::index_of(Reject::HOST_UNKNOWN.rule).unwrap();
    stats.worker(0).refusals.increment(index);
    for micros in [90, 1_000_000, 60_000_000] {
        stats.worker(0).response(200, 0, micros);
    }
    let totals = stats.totals();
    MetricsFacts {
        routes: vec![
            route("", "", false),
            route("*", "/", false),
            route("a\"\\\n.org", "/caf\u{e9} \u{202e}/", true),
        ],
        latency: totals.latency,
        refusals: totals.refusals,
        process: ProcessFacts {
            cpu_centiseconds: 1_234,
            resident_bytes: 1 << 20,
            virtual_bytes: 2 << 20,
            descriptors: 20,
            descriptors_max: 1_024,
        },
        machine: MachineFacts {
            temperatures: vec![("thermal_zone0".into(), "cpu-thermal".into(), 48_312)],
            raspberry_flags: Some(0x5_0001),
            throttle_events: Some(2),
        },
    }
}

fn render(facts: &MetricsFacts, format: MetricsFormat) -> String {
    let metrics = Metrics {
        status: &status(),
        balancers: &[],
        facts,
    };
    metrics.render(format)
}

/// Returns the lines with samples of the family `name`.
fn samples<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let is_sample = |line: &&str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with([' ', '{']))
    };
    text.lines().filter(is_sample).collect()
}

#[test]
fn samples_in_the_format_of_prometheus() {
    let text = render(&facts(), MetricsFormat::Prometheus);
    for lines in [
        "# HELP anthill_build_info Version of the program.\n# TYPE anthill_build_info gauge\n\
         anthill_build_info{version=\"1.2.3\"} 1\n",
        "# TYPE anthill_http_requests_total counter\n\
         anthill_http_requests_total{site=\"\",route=\"\",protocol=\"1.0\",status=\"1xx\"} 0\n",
        "anthill_http_requests_total{site=\"*\",route=\"/\",protocol=\"1.1\",status=\"2xx\"} 2\n",
        "{site=\"a\\\"\\\\\\n.org\",route=\"/caf\u{e9} \\\\u202e/\",protocol=\"1.1\",status=\"4xx\"} 1\n",
        "anthill_http_response_bytes_total{site=\"*\",route=\"/\"} 15\n",
        "anthill_http_request_duration_seconds_bucket{le=\"0.0001\"} 1\n",
        "anthill_http_request_duration_seconds_bucket{le=\"1.0\"} 2\n",
        "anthill_http_request_duration_seconds_bucket{le=\"30.0\"} 2\n",
        "anthill_http_request_duration_seconds_bucket{le=\"+Inf\"} 3\n\
         anthill_http_request_duration_seconds_sum 61.00009\n\
         anthill_http_request_duration_seconds_count 3\n",
        "anthill_http_refusals_total{rule=\"401\",status=\"404\"} 1\n",
        "anthill_tls_handshakes_total{result=\"full\"} 6\n",
        "anthill_multiplexed_connections_total{protocol=\"3\"} 7\n",
        "anthill_connections_by_protocol{protocol=\"1.1\"} 7\n\
         anthill_connections_by_protocol{protocol=\"2\"} 0\n\
         anthill_connections_by_protocol{protocol=\"3\"} 2\n",
        "anthill_limit_refusals_total{limit=\"calls_refused\"} 18\n",
        "anthill_certificate_expiry_timestamp_seconds{name=\"a.org\",issuer=\"file\"} 4000000000\n",
        "anthill_certificate_renewal_failed{name=\"a.org\"} 1\n",
        "process_cpu_seconds_total 12.34\n",
        "process_start_time_seconds 7000\n",
        "{zone=\"thermal_zone0\",sensor=\"cpu-thermal\"} 48.312\n",
        "anthill_machine_throttled{condition=\"under_voltage\",since=\"now\"} 1\n",
        "anthill_machine_throttled{condition=\"throttled\",since=\"now\"} 0\n",
        "anthill_machine_throttled{condition=\"throttled\",since=\"boot\"} 1\n",
    ] {
        assert!(text.contains(lines), "{lines}\nis missing in\n{text}");
    }
    assert!(!text.contains("# UNIT") && !text.contains("# EOF"));
    let cached = samples(&text, "anthill_cache_requests_total");
    assert_eq!(cached.len(), CacheOutcome::COUNTED);
    assert!(cached[2].ends_with("result=\"collapsed\"} 3"), "{cached:?}");
}

#[test]
fn openmetrics_names_families_without_the_suffix() {
    let text = render(&facts(), MetricsFormat::OpenMetrics);
    for lines in [
        "# TYPE anthill_build info\nanthill_build_info{version=\"1.2.3\"} 1\n",
        "# TYPE anthill_http_response_bytes counter\n# UNIT anthill_http_response_bytes bytes\n\
         anthill_http_response_bytes_total{site=\"\",route=\"\"} 15\n",
        "# TYPE process_cpu_seconds counter\n# UNIT process_cpu_seconds seconds\n",
    ] {
        assert!(text.contains(lines), "{lines}\nis missing in\n{text}");
    }
    assert!(text.ends_with("\n# EOF\n"));
    assert_eq!(text.matches("# EOF").count(), 1);
}

#[test]
fn names_follow_the_conventions() {
    let mut names: Vec<&str> = FAMILIES.iter().map(|(family, _)| family.name).collect();
    for (family, _) in FAMILIES {
        let (name, unit) = (family.name, family.unit);
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        assert!(name.bytes().all(is_name), "{name}");
        assert!(
            name.starts_with("anthill_") || name.starts_with("process_"),
            "{name}"
        );
        // The unit is the end of the name in OpenMetrics.
        assert!(
            unit.is_empty() || name.ends_with(&format!("_{unit}")),
            "{name}"
        );
        assert!(
            !name.ends_with("_total") && !name.ends_with("_info"),
            "{name}"
        );
        assert!(
            family.help.ends_with('.') && !family.help.contains(['\n', '\\']),
            "{name}"
        );
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), FAMILIES.len());
}

#[test]
fn requests_make_no_new_samples() {
    let before = facts();
    let mut after = facts();
    for route in &mut after.routes {
        let sums = route.totals.statuses.iter_mut().flatten();
        sums.for_each(|sum| *sum += 1_000);
        route.totals.cache = [7; CacheOutcome::COUNTED];
    }
    after.refusals.iter_mut().for_each(|sum| *sum += 3);
    let lines = |facts: &MetricsFacts| render(facts, MetricsFormat::Prometheus).lines().count();
    assert_eq!(lines(&before), lines(&after));
}

/// Returns the table of all metrics for the guide.
fn table() -> String {
    let mut out = String::from("| metric | type | labels | |\n|---|---|---|---|\n");
    for (family, _) in FAMILIES {
        let labels = match family.labels {
            "" => String::new(),
            labels => format!("`{}`", labels.replace(", ", "`, `")),
        };
        let (name, kind, help) = (family.sample_name(), family.kind.name(), family.help);
        out.push_str(&format!("| `{name}` | {kind} | {labels} | {help} |\n"));
    }
    out
}

#[test]
fn the_guide_has_the_table_of_all_metrics() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/metrics.md");
    let guide = fs::read_to_string(&path).unwrap();
    let (before, rest) = guide.split_once("<!-- metrics: generated -->\n").unwrap();
    let (region, after) = rest.split_once("<!-- metrics: end -->").unwrap();
    if std::env::var_os("WRITE_REFERENCE").is_some() {
        let text = format!(
            "{before}<!-- metrics: generated -->\n{}<!-- metrics: end -->{after}",
            table()
        );
        fs::write(&path, text).unwrap();
    } else {
        assert_eq!(region, table(), "WRITE_REFERENCE=1 writes the table anew");
    }
}
