//! Common form of the outputs of all load generators, and parsers for their figures: `1.21ms`, `540.00KB`,
//! `313532`.

use std::collections::BTreeMap;

use crate::result::{Latency, Round};

/// One run of a load generator, parsed from the output.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Reading {
    /// Requested URL, if the output contains the URL.
    pub target: Option<String>,
    /// Settings of the run found in the output: `connections`, `threads`, `users`.
    pub settings: BTreeMap<String, u64>,
    /// Measured seconds.
    pub seconds: f64,
    /// Number of correct responses.
    pub requests: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Known length of the responses' content.
    pub content: Content,
    /// Failures by kind ([`crate::result::Failures`]).
    pub failures: BTreeMap<String, u64>,
    /// Latency of the requests.
    pub latency: Option<Latency>,
    /// Additional figures of the output.
    pub extra: BTreeMap<String, f64>,
}

/// Information about the length of the responses' content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Content {
    /// Only the bytes of all responses are known, including header sections and frames.
    #[default]
    AmongAll,
    /// Total content bytes of all responses.
    Together(u64),
    /// Content bytes of each response. Responses of a different length count as failures.
    Each(u64),
}

/// Error of an unreadable output.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReadError {
    /// The program gave up before measuring. Holds its last output line.
    #[error("the load generator failed: {0}")]
    GaveUp(String),
    /// A line present in every complete output is missing.
    #[error("no `{0}` in the output: the output is truncated or of another program")]
    Missing(&'static str),
    /// A figure can't be parsed.
    #[error("`{0}` is not a number")]
    Figure(String),
}

impl Reading {
    /// Adds failures of a kind. A count of 0 leaves no entry.
    pub(crate) fn fail(&mut self, kind: &str, count: u64) {
        if count > 0 {
            *self.failures.entry(kind.to_owned()).or_default() += count;
        }
    }

    /// Returns a description of the error if the total length of the responses contradicts `expected` bytes
    /// per response. Requests in flight at the end of the run, and failed responses, blur the total, so a
    /// few wrong responses among many stay undetected.
    pub(crate) fn wrong_length(&self, expected: u64) -> Option<String> {
        if let Content::Each(length) = self.content {
            let wrong = self.requests > 0 && length != expected;
            return wrong.then(|| format!("{length} bytes instead of {expected}"));
        }
        let failed: u64 = self.failures.values().sum();
        if self.requests < REQUESTS_MIN || failed as f64 > self.requests as f64 * BLUR {
            return None;
        }
        let (bytes, head_max) = match self.content {
            Content::Together(bytes) => (bytes, 0),
            _ => (self.bytes, HEAD_BYTES_MAX),
        };
        let mean = bytes as f64 / self.requests as f64;
        let (least, most) = (expected as f64, (expected + head_max) as f64);
        let right = mean >= least * (1.0 - BLUR) && mean <= most * (1.0 + BLUR);
        let heads = if head_max > 0 {
            ", heads included,"
        } else {
            ""
        };
        (!right).then(|| format!("{mean:.0} bytes{heads} in the mean instead of {expected}"))
    }

    /// Converts to a round. The caller adds the number, the command and the CPU times.
    pub(crate) fn into_round(self, driver: &str) -> Round {
        Round {
            driver: driver.to_owned(),
            seconds: self.seconds,
            requests: self.requests,
            bytes: self.bytes,
            failures: self.failures,
            latency: self.latency,
            extra: self.extra,
            ..Round::default()
        }
    }
}

/// Returns the trimmed text after a label, from the first line with the label.
pub(crate) fn after<'t>(text: &'t str, label: &'static str) -> Result<&'t str, ReadError> {
    text.lines()
        .find_map(|line| Some(line.split_once(label)?.1.trim()))
        .ok_or(ReadError::Missing(label))
}

/// Parses the first word after a label as a number.
pub(crate) fn number_after(text: &str, label: &'static str) -> Result<f64, ReadError> {
    let word = first_word(after(text, label)?);
    number(word)
}

/// Parses the first word after a label as a count.
pub(crate) fn count_after(text: &str, label: &'static str) -> Result<u64, ReadError> {
    let word = first_word(after(text, label)?);
    count(word)
}

/// Parses `1,234.5` or `45%`.
pub(crate) fn number(word: &str) -> Result<f64, ReadError> {
    let plain = word.trim_end_matches(['%', ',', ';']).replace(',', "");
    plain
        .parse::<f64>()
        .ok()
        .filter(|value| value.is_finite())
        .ok_or_else(|| ReadError::Figure(word.to_owned()))
}

/// Parses `313532`, with an optional comma at the end.
pub(crate) fn count(word: &str) -> Result<u64, ReadError> {
    let plain = word.trim_end_matches([',', ')', ';']);
    plain
        .parse()
        .map_err(|_| ReadError::Figure(word.to_owned()))
}

/// Parses `548.95us`, `1.05s` or `2m` to microseconds.
pub(crate) fn microseconds(word: &str) -> Result<f64, ReadError> {
    let (value, unit) = split_unit(word);
    let factor = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 60e6,
        "h" => 3600e6,
        _ => return Err(ReadError::Figure(word.to_owned())),
    };
    Ok(number(value)? * factor)
}

/// Parses `1.60GB`, `84.69KB` or `120B` to bytes. Units are powers of 1,024, as in wrk and h2load.
pub(crate) fn bytes(word: &str) -> Result<u64, ReadError> {
    let (value, unit) = split_unit(word);
    let power = match unit {
        "B" | "" => 0,
        "KB" | "K" => 1,
        "MB" | "M" => 2,
        "GB" | "G" => 3,
        "TB" | "T" => 4,
        _ => return Err(ReadError::Figure(word.to_owned())),
    };
    // The printed figure is rounded, so the conversion loses nothing.
    Ok((number(value)? * 1024f64.powi(power)) as u64)
}

/// Returns the first word of a text, empty if the text has no word.
pub(crate) fn first_word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

/// Returns the last line with text, usually the reason why a program gave up.
pub(crate) fn last_words(text: &str) -> String {
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    last.unwrap_or("no output").to_owned()
}

/// Minimum number of requests for a check of the total length. With fewer requests, the requests in flight
/// at the end of the run weigh too much.
const REQUESTS_MIN: u64 = 100;
/// Tolerated share of requests in flight, failures and rounding.
const BLUR: f64 = 0.05;
/// Longest header section that a measured server sends.
const HEAD_BYTES_MAX: u64 = 1_024;

fn split_unit(word: &str) -> (&str, &str) {
    let at = word.find(|c: char| c.is_ascii_alphabetic());
    word.split_at(at.unwrap_or(word.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_length_shows_in_the_total() {
        let with = |bytes, content| Reading {
            requests: 1_000,
            bytes,
            content,
            ..Reading::default()
        };
        let among_all = |bytes| with(bytes, Content::AmongAll).wrong_length(5_100);
        assert_eq!(among_all(5_400_000), None);
        let words = among_all(300_000).expect("an error page");
        assert_eq!(
            words,
            "300 bytes, heads included, in the mean instead of 5100"
        );
        assert!(among_all(9_000_000).is_some());
        let together = |bytes| with(0, Content::Together(bytes)).wrong_length(5_100);
        assert_eq!(together(5_090_000), None);
        assert!(together(5_500_000).is_some());
        let each = with(0, Content::Each(5_099)).wrong_length(5_100);
        assert_eq!(each.as_deref(), Some("5099 bytes instead of 5100"));
        let overloaded = Reading {
            failures: BTreeMap::from([("timeout".to_owned(), 100)]),
            ..with(300_000, Content::AmongAll)
        };
        assert_eq!(overloaded.wrong_length(5_100), None);
    }

    #[test]
    fn figures_are_parsed_with_their_units() {
        assert_eq!(microseconds("548.95us"), Ok(548.95));
        assert_eq!(microseconds("1.05s"), Ok(1_050_000.0));
        assert_eq!(microseconds("0.00"), Err(ReadError::Figure("0.00".into())));
        assert_eq!(bytes("1.60GB"), Ok(1_717_986_918));
        assert_eq!(bytes("120B"), Ok(120));
        assert_eq!(number("10,429.40"), Ok(10_429.40));
        assert_eq!(number("-nan%"), Err(ReadError::Figure("-nan%".into())));
        assert_eq!(count("33,"), Ok(33));
    }
}
