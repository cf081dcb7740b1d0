//! Output of ab (ApacheBench): one thread, HTTP/1.0, and without `-k` a new connection for each request.
//!
//! The table of percentiles has a resolution of 1 ms. With `-e`, ab also writes percentiles with three
//! decimals to a file, and the kit uses the file.

use std::collections::BTreeMap;

use super::reading::{
    self, Content, ReadError, Reading, after, count_after, first_word, number_after,
};
use crate::result::{Failures, Latency};

/// Text contained in every output.
pub(crate) const MARK: &str = "Concurrency Level:";

/// Parses the output of one run.
pub(crate) fn parse(text: &str) -> Result<Reading, ReadError> {
    if !text.contains(MARK) {
        return Err(ReadError::GaveUp(reading::last_words(text)));
    }
    let mut found = Reading {
        target: target(text),
        seconds: number_after(text, "Time taken for tests:")?,
        bytes: count_after(text, "Total transferred:")?,
        ..Reading::default()
    };
    let settings = [("connections", MARK), ("body_bytes", "Document Length:")];
    for (name, label) in settings {
        found
            .settings
            .insert(name.to_owned(), count_after(text, label)?);
    }
    found.content = Content::Each(found.settings["body_bytes"]);
    let complete = count_after(text, "Complete requests:")?;
    let status = count_after(text, "Non-2xx responses:").unwrap_or(0);
    let broken = failures(text, &mut found)?;
    found.fail(Failures::STATUS, status);
    found.requests = complete.saturating_sub(broken + status);
    if complete > 0 {
        found.latency = Some(latency(text)?);
    }
    // Last line of an output of more than one request. Without the line, the output was truncated.
    if complete > 1 {
        after(text, " 100% ")?;
    }
    Ok(found)
}

/// Parses the file written with `-e`: lines `99,0.568` in milliseconds after a header line.
pub(crate) fn parse_percentiles(csv: &str) -> Result<BTreeMap<String, f64>, ReadError> {
    let mut percentiles_us = BTreeMap::new();
    for line in csv.lines().skip(1) {
        let (percent, value) = line
            .split_once(',')
            .ok_or_else(|| ReadError::Figure(line.to_owned()))?;
        if ["50", "75", "90", "95", "99"].contains(&percent) {
            percentiles_us.insert(percent.to_owned(), reading::number(value)? * 1e3);
        }
    }
    Ok(percentiles_us)
}

/// Parses `Failed requests: 9` and `   (Connect: 0, Receive: 4, Length: 4, Exceptions: 1)`. Returns the
/// number of failed responses that ab also counts as complete.
fn failures(text: &str, found: &mut Reading) -> Result<u64, ReadError> {
    if count_after(text, "Failed requests:")? == 0 {
        return Ok(0);
    }
    let kinds = after(text, "(Connect:").unwrap_or_default();
    let connect = reading::count(first_word(kinds)).unwrap_or(0);
    let received = count_after(kinds, "Receive:").unwrap_or(0);
    let length = count_after(kinds, "Length:").unwrap_or(0);
    found.fail(Failures::CONNECT, connect);
    found.fail(Failures::CLOSED, received);
    // A truncated response also has a wrong length, so ab counts the response twice.
    found.fail(Failures::LENGTH, length.saturating_sub(received));
    found.fail(
        Failures::OTHER,
        count_after(kinds, "Exceptions:").unwrap_or(0),
    );
    Ok(received.max(length))
}

fn target(text: &str) -> Option<String> {
    let tls = text.contains("SSL/TLS Protocol:");
    let field = |label| after(text, label).ok();
    Some(format!(
        "{}://{}:{}{}",
        if tls { "https" } else { "http" },
        field("Server Hostname:")?,
        field("Server Port:")?,
        field("Document Path:")?
    ))
}

fn latency(text: &str) -> Result<Latency, ReadError> {
    // Columns of `Total:          0    0   0.1      0       3`: min, mean, deviation, median, max.
    let mut columns = after(text, "Total:      ")?.split_whitespace();
    let mut column = || reading::number(columns.next().unwrap_or_default());
    let (min, mean, _deviation, median, max) =
        (column()?, column()?, column()?, column()?, column()?);
    let mut percentiles_us = BTreeMap::from([("50".to_owned(), median * 1e3)]);
    for (percent, label) in [("90", " 90% "), ("95", " 95% "), ("99", " 99% ")] {
        if let Ok(value) = number_after(text, label) {
            percentiles_us.insert(percent.to_owned(), value * 1e3);
        }
    }
    Ok(Latency {
        mean_us: mean * 1e3,
        min_us: min * 1e3,
        max_us: max * 1e3,
        percentiles_us,
        ..Latency::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_parsed() {
        let found = parse(include_str!("../../tests/drivers/ab.txt")).expect("an output");
        assert_eq!(
            found.target.as_deref(),
            Some("http://127.0.0.1:28080/hello.html")
        );
        assert_eq!(found.settings["connections"], 10);
        assert_eq!(found.settings["body_bytes"], 228);
        assert_eq!((found.requests, found.bytes), (1_000, 460_000));
        assert_eq!(found.wrong_length(228), None);
        assert!(found.wrong_length(229).is_some());
        assert_eq!(found.seconds, 0.041);
        assert!(found.failures.is_empty());
        let latency = found.latency.expect("a table");
        assert_eq!((latency.min_us, latency.max_us), (0.0, 3_000.0));
        assert_eq!(latency.percentiles_us["90"], 1_000.0);
    }

    #[test]
    fn a_keep_alive_run_over_tls_is_parsed() {
        let text = include_str!("../../tests/drivers/ab-tls-keep-alive.txt");
        let found = parse(text).expect("an output");
        let target = found.target.as_deref();
        assert_eq!(target, Some("https://127.0.0.1:28443/page.html"));
        assert_eq!((found.requests, found.seconds), (126_709, 2.0));
    }

    #[test]
    fn percentiles_are_parsed_with_decimals() {
        let csv = include_str!("../../tests/drivers/ab.csv");
        let found = parse_percentiles(csv).expect("percentiles");
        assert_eq!(found["99"], 568.0);
        assert_eq!(found.len(), 5);
    }

    #[test]
    fn failures_are_classified() {
        let text = include_str!("../../tests/drivers/ab-status.txt");
        let found = parse(text).expect("an output");
        assert_eq!((found.requests, found.failures["status"]), (0, 200));
        let text = include_str!("../../tests/drivers/ab-died.txt");
        let found = parse(text).expect("an output");
        assert_eq!(found.requests, 200_000 - 168_993);
        assert_eq!(found.failures["closed"], 168_993);
        assert_eq!(found.failures["other"], 90_252);
        assert_eq!(found.failures.get("length"), None);
    }

    #[test]
    fn output_of_a_failed_run_is_rejected() {
        let refused = parse(include_str!("../../tests/drivers/ab-refused.txt"));
        let Err(ReadError::GaveUp(words)) = refused else {
            panic!("{refused:?}");
        };
        assert!(words.ends_with("Connection refused (111)"), "{words}");
    }
}
