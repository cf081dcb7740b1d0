//! FastCGI and SCGI backends of the status: as a table for a terminal, and as JSON.

use crate::admin::balancers::latency_text;
use crate::admin::json_text::{joined, or_null};
use crate::admin::text_table::{LINE_WIDTH, TextTable, count};
use data_plane::upstream::{BackendReport, BackendRoute, ReusePolicy};
use wire::json::quoted;

/// Columns of the table on a terminal. All but the first are numbers.
const COLUMNS: [&str; 10] = [
    "BACKEND", "BUSY", "WAITING", "PLACES", "2XX", "3XX", "4XX", "5XX", "FAILED", "MEDIAN",
];
/// Names of the classes of the status.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Returns the table for a terminal; an empty text without a backend.
pub(crate) fn text(backends: &[BackendReport]) -> String {
    if backends.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new(&COLUMNS, &[0], LINE_WIDTH);
    for backend in backends {
        let numbers = [backend.busy, backend.waiting, backend.places];
        let numbers = numbers.map(|number| number as u64).into_iter();
        let answers = backend.answers[1..].iter().copied();
        let failed = backend.failures + backend.refused;
        let numbers = numbers.chain(answers).chain([failed]).map(count);
        let mut cells = vec![backend.address.clone()];
        cells.extend(numbers);
        cells.push(latency_text(&backend.latencies, 500));
        let fault = backend.fault.iter();
        let fault = fault.map(|fault| format!("the last connection failed: {fault}"));
        table.add(cells, [routes(backend)].into_iter().chain(fault).collect());
    }
    table.text()
}

/// Returns the backends as JSON objects, divided by commas.
pub(crate) fn json(backends: &[BackendReport]) -> String {
    joined(backends.iter().map(backend_json))
}

fn backend_json(backend: &BackendReport) -> String {
    let route = |route: &BackendRoute| {
        format!(
            "{{\"site\":{},\"path\":{},\"files\":[{}],\"protocol\":{}}}",
            quoted(&route.site),
            quoted(&route.path),
            joined(route.files.iter().map(|ending| quoted(ending))),
            quoted(protocol(route))
        )
    };
    let keep = match backend.keep {
        ReusePolicy::Handover => None,
        ReusePolicy::Never => Some("0".to_owned()),
        ReusePolicy::UpTo(max) => Some(max.to_string()),
    };
    let answers = CLASSES.iter().zip(backend.answers);
    let latency = |thousandths| {
        let bound = backend.latencies.percentile_bound(thousandths);
        or_null(bound.map(|(micros, _)| micros.to_string()))
    };
    format!(
        "{{\"address\":{},\"routes\":[{}],\"keep\":{},\"places\":{},\"busy\":{},\"waiting\":{},\"idle\":{},\
         \"answers\":{{{}}},\"failures\":{},\"refused\":{},\"latency_p50_us\":{},\"latency_p99_us\":{},\"fault\":{}}}",
        quoted(&backend.address),
        joined(backend.routes.iter().map(route)),
        or_null(keep),
        backend.places,
        backend.busy,
        backend.waiting,
        backend.idle,
        joined(answers.map(|(class, number)| format!("\"{class}\":{number}"))),
        backend.failures,
        backend.refused,
        latency(500),
        latency(990),
        or_null(backend.fault.as_deref().map(quoted))
    )
}

/// Returns the name of the protocol of a route.
fn protocol(route: &BackendRoute) -> &'static str {
    match route.is_scgi {
        true => "SCGI",
        false => "FastCGI",
    }
}

/// Returns the protocol and the routes of a backend, such as `FastCGI for a.org/*.php`.
pub(crate) fn routes(backend: &BackendReport) -> String {
    let routes = backend.routes.iter().map(|route| {
        let place = format!("{}{}", route.site, route.path);
        match route.files.is_empty() {
            true => place,
            false => {
                let files = route.files.iter();
                let files: Vec<String> = files.map(|ending| format!("{place}*{ending}")).collect();
                files.join(", ")
            }
        }
    });
    let routes: Vec<String> = routes.collect();
    let protocols = backend.routes.iter().map(protocol);
    let mut protocols: Vec<&str> = protocols.collect();
    protocols.dedup();
    format!("{} for {}", protocols.join(", "), routes.join(", "))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use balancer::LatencyBuckets;

    /// Returns a busy backend of two routes.
    pub(crate) fn example() -> BackendReport {
        let route = |site: &str, path: &str, files: &[&str]| BackendRoute {
            site: site.into(),
            path: path.into(),
            files: files.iter().map(|ending| (*ending).to_owned()).collect(),
            is_scgi: false,
        };
        let mut latencies = LatencyBuckets::default();
        latencies.counts[3] = 7;
        BackendReport {
            address: "unix:/run/php.sock".into(),
            routes: vec![route("a.org", "/", &[".php"]), route("b.org", "/app/", &[])],
            keep: ReusePolicy::UpTo(5),
            places: 5,
            busy: 5,
            waiting: 2,
            idle: 0,
            answers: [0, 4, 1, 0, 2],
            failures: 3,
            refused: 1,
            latencies,
            fault: Some("Connection refused".into()),
        }
    }

    #[test]
    fn the_table_has_the_routes_and_the_fault() {
        assert_eq!(text(&[]), "");
        let expected = "  BACKEND            BUSY WAITING PLACES 2XX 3XX 4XX 5XX FAILED MEDIAN
  unix:/run/php.sock    5       2      5   4   1   0   2      4 5.0 ms
    FastCGI for a.org/*.php, b.org/app/
    the last connection failed: Connection refused
";
        assert_eq!(text(&[example()]), expected);
    }

    #[test]
    fn json_has_all_values() {
        let expected = r#"{"address":"unix:/run/php.sock","routes":[{"site":"a.org","path":"/","files":[".php"],"protocol":"FastCGI"},{"site":"b.org","path":"/app/","files":[],"protocol":"FastCGI"}],"keep":5,"places":5,"busy":5,"waiting":2,"idle":0,"answers":{"1xx":0,"2xx":4,"3xx":1,"4xx":0,"5xx":2},"failures":3,"refused":1,"latency_p50_us":5000,"latency_p99_us":5000,"fault":"Connection refused"}"#;
        assert_eq!(json(&[example()]), expected);
        let idle = BackendReport {
            keep: ReusePolicy::Handover,
            latencies: LatencyBuckets::default(),
            fault: None,
            ..example()
        };
        assert!(json(&[idle]).contains(r#""keep":null"#));
    }
}
