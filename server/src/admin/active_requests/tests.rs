use super::*;
use data_plane::ledger::active_requests::{ActiveTarget, RequestPhase};
use data_plane::ledger::route_counters::RouteCounters;
use std::sync::Arc;

/// Returns a target with the host and the path.
fn target(host: &[u8], path: &[u8]) -> ActiveTarget {
    let mut target = ActiveTarget::default();
    target.set(host, path);
    target
}

/// Returns a list of two requests, one with hostile text.
fn list() -> ActiveRequestList {
    let route = Arc::new(RouteCounters::new("example.org", "/", 1));
    let hostile = "/\u{1b}[31m<b>\u{202e}\"\\".as_bytes();
    let requests = vec![
        ActiveRequest {
            started_us: 1_000_000,
            client: [192, 0, 2, 7].into(),
            version: "HTTP/2",
            method: "POST",
            phase: RequestPhase::Member,
            route: Some(route),
            member: Some("http://192.0.2.1:8081".into()),
            target: target(b"www.example.org", b"/form"),
        },
        ActiveRequest {
            started_us: 70_500_000,
            client: [0; 16].into(),
            version: "HTTP/1.0",
            method: "GET",
            phase: RequestPhase::Response,
            route: None,
            member: None,
            target: target(b"", hostile),
        },
    ];
    ActiveRequestList {
        now_us: 71_000_000,
        oldest: OldestRequests { count: 9, requests },
    }
}

#[test]
fn the_text_has_a_row_for_each_request() {
    let text = list().text();
    let expected = "9 requests are under way; the oldest 2:
  REQUEST AGE STATE VERSION CLIENT SITE MEMBER
  POST www.example.org/form 1 min 10 s member HTTP/2 192.0.2.7 example.org http://192.0.2.1:8081
  GET /\\u{1b}[31m<b>\\u{202e}\\\"\\\\
  500 ms response HTTP/1.0 :: - -
";
    let lines = |text: &str| -> Vec<String> {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        text.lines().map(words).collect()
    };
    assert_eq!(lines(&text), lines(expected), "{text}");
}

#[test]
fn json_without_clients_has_neither_addresses_nor_texts_of_clients() {
    let all = "{\"count\":9,\"requests\":[\
         {\"age_us\":70000000,\"state\":\"member\",\"version\":\"HTTP/2\",\"method\":\"POST\",\
         \"site\":\"example.org\",\"client\":\"192.0.2.7\",\"host\":\"www.example.org\",\
         \"path\":\"/form\",\"member\":\"http://192.0.2.1:8081\"},\
         {\"age_us\":500000,\"state\":\"response\",\"version\":\"HTTP/1.0\",\"method\":\"GET\",\
         \"site\":\"\",\"client\":\"::\",\"host\":\"\",\
         \"path\":\"/\\u001b[31m<b>\u{202e}\\\"\\\\\",\"member\":null}]}\n";
    assert_eq!(list().json(true), all);
    let without = "{\"count\":9,\"requests\":[\
         {\"age_us\":70000000,\"state\":\"member\",\"version\":\"HTTP/2\",\"method\":\"POST\",\
         \"site\":\"example.org\",\"member\":\"http://192.0.2.1:8081\"},\
         {\"age_us\":500000,\"state\":\"response\",\"version\":\"HTTP/1.0\",\"method\":\"GET\",\
         \"site\":\"\",\"member\":null}]}\n";
    assert_eq!(list().json(false), without);
}

#[test]
fn the_summary_names_the_number_of_all() {
    let summary = |count, listed| {
        let oldest = OldestRequests {
            count,
            requests: Vec::new(),
        };
        ActiveRequestList { now_us: 0, oldest }.summary(listed)
    };
    assert_eq!(summary(0, 0), "no request is under way");
    assert_eq!(summary(1, 1), "1 request is under way");
    assert_eq!(summary(2, 2), "2 requests are under way, the oldest first:");
    assert_eq!(
        summary(200, 50),
        "200 requests are under way; the oldest 50:"
    );
    assert_eq!(
        ActiveRequestList::default().text(),
        "no request is under way\n"
    );
}
