//! Output of h2load: HTTP/1.1, HTTP/2 and, depending on the build, HTTP/3, with several streams per
//! connection.
//!
//! The output has no percentiles. h2load writes the time of every request to a log, and the percentiles are
//! computed from the log. `finished in` includes the warm-up, so the duration is derived from the reported
//! rate.

use std::collections::BTreeMap;

use super::reading::{self, ReadError, Reading, after, microseconds};
use crate::result::{Failures, Latency};

/// Text contained in every output.
pub(crate) const MARK: &str = "time for request:";

/// Parses the output of one run.
pub(crate) fn parse(text: &str) -> Result<Reading, ReadError> {
    if !text.contains("finished in ") {
        return Err(ReadError::GaveUp(reading::last_words(text)));
    }
    let mut found = Reading::default();
    let requests = after(text, "requests: ")?;
    let of = |label: &'static str| count_before(requests, label);
    let (done, right) = (of(" done")?, of(" succeeded")?);
    let (failed, broken, late) = (of(" failed")?, of(" errored")?, of(" timeout")?);
    let finished = after(text, "finished in ")?;
    let (whole, rate) = finished
        .split_once(", ")
        .ok_or(ReadError::Missing("req/s"))?;
    let rate = reading::number(reading::first_word(rate))?;
    found.seconds = if rate > 0.0 {
        done as f64 / rate
    } else {
        microseconds(whole)? / 1e6
    };
    found.requests = right;
    found.bytes = bytes(after(text, "traffic: ")?)?;
    found.fail(Failures::TIMEOUT, late);
    // Requests that broke off are a part of the failed requests. The other failed requests had a status
    // other than 2xx and 3xx.
    let connected = reading::count_after(requests, "done, ").is_ok() && done > 0;
    let kind = if connected {
        Failures::CLOSED
    } else {
        Failures::CONNECT
    };
    found.fail(kind, broken.saturating_sub(late));
    found.fail(Failures::STATUS, failed.saturating_sub(broken));
    if let Ok(connections) = count_before(after(text, "spawning thread #0: ")?, " total client") {
        found.settings.insert("connections".to_owned(), connections);
    }
    if done > 0 {
        found.latency = Some(latency(after(text, MARK)?)?);
        // Last line of the output. Without the line, the output was truncated.
        after(text, "req/s    ")?;
    }
    Ok(found)
}

/// Parses the file written with `--log-file`, lines of `start TAB status TAB microseconds`. Returns the
/// times of all correct responses.
pub(crate) fn parse_log(log: &str) -> Result<Vec<u64>, ReadError> {
    let mut times = Vec::new();
    for line in log.lines() {
        let mut columns = line.split('\t').skip(1);
        let mut column = || columns.next().unwrap_or_default();
        let (status, time) = (column(), column());
        if matches!(reading::count(status)?, 200..=399) {
            times.push(reading::count(time)?);
        }
    }
    Ok(times)
}

/// Returns the number before a label, as in `… 2000 done, 1990 succeeded …`.
fn count_before(text: &str, label: &'static str) -> Result<u64, ReadError> {
    let (before, _) = text.split_once(label).ok_or(ReadError::Missing(label))?;
    reading::count(before.split_whitespace().last().unwrap_or_default())
}

/// Parses `867.99MB (910151375) total, …`.
fn bytes(traffic: &str) -> Result<u64, ReadError> {
    let (_, exact) = traffic
        .split_once('(')
        .ok_or(ReadError::Missing("traffic: "))?;
    reading::count(reading::first_word(exact))
}

/// Parses `65us       451us       120us        41us    89.25%`: min, max, mean, deviation.
fn latency(columns: &str) -> Result<Latency, ReadError> {
    let mut columns = columns.split_whitespace().map(microseconds);
    let mut column = || columns.next().unwrap_or(Err(ReadError::Missing(MARK)));
    Ok(Latency {
        min_us: column()?,
        max_us: column()?,
        mean_us: column()?,
        percentiles_us: BTreeMap::new(),
        ..Latency::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timed_run_excludes_the_warm_up() {
        let found = parse(include_str!("../../tests/drivers/h2load.txt")).expect("an output");
        assert_eq!(found.requests, 174_125);
        assert_eq!(found.seconds, 2.0);
        assert_eq!(found.bytes, 910_151_375);
        assert_eq!(found.wrong_length(5_100), None);
        assert!(found.wrong_length(16_384).is_some());
        assert_eq!(found.settings["connections"], 10);
        let latency = found.latency.expect("times");
        assert_eq!((latency.min_us, latency.max_us), (26.0, 9_490.0));
        assert_eq!(latency.mean_us, 1_110.0);
    }

    #[test]
    fn a_run_with_a_number_of_requests_is_parsed() {
        let found = parse(include_str!("../../tests/drivers/h2load-h1.txt")).expect("an output");
        assert_eq!(found.requests, 2_000);
        assert!((found.seconds - 0.024_88).abs() < 0.000_01);
    }

    #[test]
    fn failures_are_classified() {
        let text = include_str!("../../tests/drivers/h2load-status.txt");
        let found = parse(text).expect("an output");
        assert_eq!((found.requests, found.failures["status"]), (0, 2_000));
        let text = include_str!("../../tests/drivers/h2load-refused.txt");
        let found = parse(text).expect("an output");
        assert_eq!((found.requests, found.failures["connect"]), (0, 200));
        assert_eq!(found.failures.get("status"), None);
    }

    #[test]
    fn the_log_has_the_time_of_every_request() {
        let log = include_str!("../../tests/drivers/h2load.log");
        let times = parse_log(log).expect("times");
        assert_eq!((times.len(), times[0]), (200, 1_371));
        assert!(parse_log("half a li").is_err());
    }
}
