//! Output of siege: users with pauses between their requests, each user a thread.
//!
//! siege reports the mean, longest and shortest time in hundredths of a second, no percentiles, and no
//! reason for a failed transaction. Old versions print text, new versions print JSON, and both are parsed.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::reading::{self, Content, ReadError, Reading, number_after};
use crate::result::{Failures, Latency};

/// Text contained in every output in text form.
pub(crate) const MARK: &str = "Shortest transaction:";
/// Key contained in every output in JSON form.
pub(crate) const MARK_JSON: &str = "\"shortest_transaction\"";

#[derive(Deserialize)]
struct Figures {
    transactions: u64,
    availability: f64,
    elapsed_time: f64,
    /// Unit: MB.
    data_transferred: f64,
    response_time: f64,
    concurrency: f64,
    failed_transactions: u64,
    longest_transaction: f64,
    shortest_transaction: f64,
}

/// Parses the output of one run.
pub(crate) fn parse(text: &str) -> Result<Reading, ReadError> {
    let figures = match text.find('{') {
        Some(at) if text.contains(MARK_JSON) => json(&text[at..])?,
        _ if text.contains(MARK) => from_text(text)?,
        _ => return Err(ReadError::GaveUp(reading::last_words(text))),
    };
    // siege doesn't count header sections.
    let content = (figures.data_transferred * 1024.0 * 1024.0) as u64;
    let mut found = Reading {
        seconds: figures.elapsed_time,
        requests: figures.transactions,
        bytes: content,
        content: Content::Together(content),
        extra: BTreeMap::from([
            ("availability_percent".to_owned(), figures.availability),
            ("concurrency".to_owned(), figures.concurrency),
        ]),
        ..Reading::default()
    };
    found.fail(Failures::OTHER, figures.failed_transactions);
    if let Ok(users) = reading::count_after(text, "** Preparing ") {
        found.settings.insert("users".to_owned(), users);
    }
    if figures.transactions > 0 {
        found.latency = Some(Latency {
            mean_us: figures.response_time * 1e6,
            min_us: figures.shortest_transaction * 1e6,
            max_us: figures.longest_transaction * 1e6,
            ..Latency::default()
        });
    }
    Ok(found)
}

fn json(text: &str) -> Result<Figures, ReadError> {
    let end = text.find('}').ok_or(ReadError::Missing("}"))?;
    serde_json::from_str(&text[..=end]).map_err(|error| ReadError::Figure(error.to_string()))
}

fn from_text(text: &str) -> Result<Figures, ReadError> {
    // siege counts failed users in neither figure: only complete transactions count.
    Ok(Figures {
        transactions: reading::count_after(text, "Transactions:")?,
        availability: number_after(text, "Availability:")?,
        elapsed_time: number_after(text, "Elapsed time:")?,
        data_transferred: number_after(text, "Data transferred:")?,
        response_time: number_after(text, "Response time:")?,
        concurrency: number_after(text, "Concurrency:")?,
        failed_transactions: reading::count_after(text, "Failed transactions:")?,
        longest_transaction: number_after(text, "Longest transaction:")?,
        shortest_transaction: number_after(text, MARK)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_output_is_parsed() {
        for text in [
            include_str!("../../tests/drivers/siege.txt"),
            include_str!("../../tests/drivers/siege-json.txt"),
        ] {
            let found = parse(text).expect("an output");
            assert!(found.requests > 15_000);
            assert_eq!(found.wrong_length(5_100), None);
            assert!(found.wrong_length(6_000).is_some());
            assert_eq!(found.extra["availability_percent"], 100.0);
            assert!(found.failures.is_empty());
            assert_eq!(found.latency.expect("times").max_us, 10_000.0);
        }
    }

    #[test]
    fn text_output_is_parsed() {
        let text = include_str!("../../tests/drivers/siege-text-delay.txt");
        let found = parse(text).expect("an output");
        assert_eq!((found.requests, found.seconds), (264, 3.0));
        assert_eq!(found.settings["users"], 50);
        assert_eq!(found.extra["concurrency"], 1.0);
        let latency = found.latency.expect("times");
        assert_eq!((latency.mean_us, latency.max_us), (10_000.0, 110_000.0));
    }

    #[test]
    fn failures_are_counted() {
        let text = include_str!("../../tests/drivers/siege-status.txt");
        let found = parse(text).expect("an output");
        assert_eq!((found.requests, found.failures["other"]), (0, 1_028));
        assert_eq!(found.latency, None);
    }

    #[test]
    fn truncated_output_is_rejected() {
        let text = include_str!("../../tests/drivers/siege-text.txt");
        let cut = &text[..text.find("Response time").expect("a line")];
        assert!(matches!(parse(cut), Err(ReadError::GaveUp(_))));
        let text = include_str!("../../tests/drivers/siege.txt");
        assert!(parse(&text[..text.len() - 4]).is_err());
    }
}
