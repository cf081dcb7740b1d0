//! What the output of a load generator says, whichever wrote it; and how its figures are written:
//! `1.21ms`, `540.00KB`, `313532`.

use std::collections::BTreeMap;

use crate::result::{Latency, Round};

/// One run of a load generator, read from what it printed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// What was asked for, if the output names it.
    pub target: Option<String>,
    /// Name, value: `connections`, `threads`, `users`; what the output tells of the settings.
    pub settings: BTreeMap<String, u64>,
    /// Seconds measured.
    pub seconds: f64,
    /// Responses that were right.
    pub requests: u64,
    /// Bytes received.
    pub bytes: u64,
    /// By the kinds of [`crate::result::Failures`].
    pub failures: BTreeMap<String, u64>,
    /// How long requests took.
    pub latency: Option<Latency>,
    /// What else it tells.
    pub extra: BTreeMap<String, f64>,
}

/// Why an output can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The generator gave up before it measured; its own words.
    #[error("it gave up: {0}")]
    GaveUp(String),
    /// A line that every whole output has isn't there.
    #[error("its output has no `{0}`: it is cut off, or not of this program")]
    Missing(&'static str),
    /// A figure that isn't one.
    #[error("`{0}` is no figure")]
    Figure(String),
}

impl Reading {
    /// Counts failures of a kind; none leave no trace.
    pub fn fail(&mut self, kind: &str, count: u64) {
        if count > 0 {
            *self.failures.entry(kind.to_owned()).or_default() += count;
        }
    }

    /// As a round, without what only the one who ran it knows: number, command and CPU times.
    pub fn into_round(self, driver: &str) -> Round {
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

/// The text after a label, trimmed, in the first line that has the label.
pub fn after<'t>(text: &'t str, label: &'static str) -> Result<&'t str, ReadError> {
    text.lines()
        .find_map(|line| Some(line.split_once(label)?.1.trim()))
        .ok_or(ReadError::Missing(label))
}

/// The first word after a label as a number.
pub fn number_after(text: &str, label: &'static str) -> Result<f64, ReadError> {
    let word = first_word(after(text, label)?);
    number(word)
}

/// The first word after a label as a count.
pub fn count_after(text: &str, label: &'static str) -> Result<u64, ReadError> {
    let word = first_word(after(text, label)?);
    count(word)
}

/// `1,234.5` or `45%`.
pub fn number(word: &str) -> Result<f64, ReadError> {
    let plain = word.trim_end_matches(['%', ',', ';']).replace(',', "");
    plain
        .parse::<f64>()
        .ok()
        .filter(|value| value.is_finite())
        .ok_or_else(|| ReadError::Figure(word.to_owned()))
}

/// `313532`, also with a comma behind it.
pub fn count(word: &str) -> Result<u64, ReadError> {
    let plain = word.trim_end_matches([',', ')', ';']);
    plain
        .parse()
        .map_err(|_| ReadError::Figure(word.to_owned()))
}

/// `548.95us`, `1.05s`, `2m`: microseconds.
pub fn microseconds(word: &str) -> Result<f64, ReadError> {
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

/// `1.60GB`, `84.69KB`, `120B`: bytes; the units are powers of 1,024, as wrk and h2load mean them.
pub fn bytes(word: &str) -> Result<u64, ReadError> {
    let (value, unit) = split_unit(word);
    let power = match unit {
        "B" | "" => 0,
        "KB" | "K" => 1,
        "MB" | "M" => 2,
        "GB" | "G" => 3,
        "TB" | "T" => 4,
        _ => return Err(ReadError::Figure(word.to_owned())),
    };
    // Rounded as it was printed: nothing is lost by a conversion.
    Ok((number(value)? * 1024f64.powi(power)) as u64)
}

/// The first word of some text; empty if there is none.
pub fn first_word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

/// The last line that says something, for the reason why a program gave up.
pub fn last_words(text: &str) -> String {
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    last.unwrap_or("without a word").to_owned()
}

fn split_unit(word: &str) -> (&str, &str) {
    let at = word.find(|c: char| c.is_ascii_alphabetic());
    word.split_at(at.unwrap_or(word.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_units() {
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
