//! Output of wrk: a closed loop, with the connections distributed over threads.
//!
//! wrk reports no length of single responses, and sends no requests while a server stalls, so the
//! percentiles of its table leave stalls out. Timeouts are counted, but their times are not in the table.

use std::collections::BTreeMap;

use super::reading::{self, ReadError, Reading, after, count, microseconds};
use crate::result::{Failures, Latency};

/// Text contained in every output.
pub(crate) const MARK: &str = "Thread Stats ";

/// Parses the output of one run.
pub(crate) fn parse(text: &str) -> Result<Reading, ReadError> {
    if !text.contains(MARK) {
        return Err(ReadError::GaveUp(reading::last_words(text)));
    }
    let mut found = Reading {
        target: after(text, "test @ ").ok().map(str::to_owned),
        settings: settings(text),
        ..Reading::default()
    };
    let total = after_total(text)?;
    // Last line of the output. Without the line, the output was truncated.
    let last = after(text, "Transfer/sec:")?;
    if !last.ends_with('B') {
        return Err(ReadError::Missing("Transfer/sec:"));
    }
    let (requests, seconds, bytes) = total;
    found.seconds = seconds;
    found.bytes = bytes;
    let wrong = reading::count_after(text, "Non-2xx or 3xx responses:").unwrap_or(0);
    found.requests = requests.saturating_sub(wrong);
    found.fail(Failures::STATUS, wrong);
    if let Ok(errors) = after(text, "Socket errors:") {
        // Form of the line: `connect 0, read 33, write 186916, timeout 0`.
        for (label, kind) in [
            ("connect ", Failures::CONNECT),
            ("read ", Failures::CLOSED),
            ("write ", Failures::CLOSED),
            ("timeout ", Failures::TIMEOUT),
        ] {
            found.fail(kind, reading::count_after(errors, label)?);
        }
    }
    if requests > 0 {
        found.latency = Some(latency(text)?);
    }
    Ok(found)
}

/// Parses `154243 requests in 2.10s, 785.50MB read`.
fn after_total(text: &str) -> Result<(u64, f64, u64), ReadError> {
    const LABEL: &str = " requests in ";
    let line = text
        .lines()
        .find(|line| line.contains(LABEL) && line.ends_with(" read"));
    let (requests, rest) = line
        .and_then(|line| line.split_once(LABEL))
        .ok_or(ReadError::Missing("requests in"))?;
    let (seconds, bytes) = rest
        .split_once(", ")
        .ok_or(ReadError::Missing("requests in"))?;
    Ok((
        count(requests.trim())?,
        microseconds(seconds)? / 1e6,
        reading::bytes(bytes.trim_end_matches(" read"))?,
    ))
}

/// Parses `  2 threads and 20 connections`.
fn settings(text: &str) -> BTreeMap<String, u64> {
    let line = text.lines().find(|line| line.contains(" threads and "));
    let mut words = line.unwrap_or_default().split_whitespace();
    let mut settings = BTreeMap::new();
    for name in ["threads", "connections"] {
        let value = words.next().and_then(|word| word.parse().ok());
        settings.extend(value.map(|value| (name.to_owned(), value)));
        words.nth(1);
    }
    settings
}

fn latency(text: &str) -> Result<Latency, ReadError> {
    let mut columns = after(text, "    Latency  ")?.split_whitespace();
    let mut column = || microseconds(columns.next().unwrap_or_default());
    let (mean_us, _deviation, max_us) = (column()?, column()?, column()?);
    let mut percentiles_us = BTreeMap::new();
    let distribution = text
        .lines()
        .skip_while(|line| !line.contains("Latency Distribution"))
        .skip(1);
    for line in distribution {
        let Some((percent, value)) = line.trim().split_once("%  ") else {
            break;
        };
        percentiles_us.insert(percent.trim().to_owned(), microseconds(value.trim())?);
    }
    Ok(Latency {
        mean_us,
        max_us,
        percentiles_us,
        ..Latency::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_parsed() {
        let found = parse(include_str!("../../tests/drivers/wrk.txt")).expect("an output");
        assert_eq!(
            found.target.as_deref(),
            Some("http://127.0.0.1:28080/page.html")
        );
        assert_eq!(found.settings["threads"], 1);
        assert_eq!(found.settings["connections"], 10);
        assert_eq!(found.requests, 154_243);
        assert_eq!(found.seconds, 2.1);
        assert_eq!(found.bytes, 823_656_448);
        assert_eq!(found.wrong_length(5_100), None);
        assert!(found.wrong_length(228).is_some());
        assert!(found.failures.is_empty());
        let latency = found.latency.expect("a table");
        assert_eq!(latency.mean_us, 548.95);
        assert_eq!(latency.max_us, 40_750.0);
        assert_eq!(latency.percentiles_us["50"], 106.0);
        assert_eq!(latency.percentiles_us["99"], 17_480.0);
        assert_eq!(latency.percentiles_us.len(), 4);
    }

    #[test]
    fn output_without_the_latency_table_is_parsed() {
        let text = include_str!("../../tests/drivers/wrk-without-latency.txt");
        let found = parse(text).expect("an output");
        assert_eq!(found.settings["threads"], 2);
        assert_eq!(found.requests, 152_879);
        let latency = found.latency.expect("a mean");
        assert!(latency.percentiles_us.is_empty());
        assert_eq!(latency.mean_us, 470.08);
    }

    #[test]
    fn failures_are_classified() {
        let text = include_str!("../../tests/drivers/wrk-status.txt");
        let found = parse(text).expect("an output");
        assert_eq!((found.requests, found.failures["status"]), (0, 91_606));
        let text = include_str!("../../tests/drivers/wrk-died.txt");
        let found = parse(text).expect("an output");
        assert_eq!(found.failures["closed"], 33 + 186_916);
        let text = include_str!("../../tests/drivers/wrk-stalled.txt");
        let found = parse(text).expect("an output");
        assert_eq!(found.failures["timeout"], 20);
    }

    #[test]
    fn output_of_a_failed_or_truncated_run_is_rejected() {
        let refused = parse(include_str!("../../tests/drivers/wrk-refused.txt"));
        let words = "unable to connect to 127.0.0.1:28099 Connection refused";
        assert_eq!(refused, Err(ReadError::GaveUp(words.to_owned())));
        let whole = include_str!("../../tests/drivers/wrk.txt");
        let cut = &whole[..whole.find("requests in").expect("a total")];
        assert_eq!(parse(cut), Err(ReadError::Missing("requests in")));
    }
}
