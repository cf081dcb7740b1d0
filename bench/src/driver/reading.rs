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
    /// How much of that were the responses' contents.
    pub content: Content,
    /// By the kinds of [`crate::result::Failures`].
    pub failures: BTreeMap<String, u64>,
    /// How long requests took.
    pub latency: Option<Latency>,
    /// What else it tells.
    pub extra: BTreeMap<String, f64>,
}

/// What an output tells of the length of the responses' contents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Content {
    /// Only the bytes of all responses are known, heads and frames included.
    #[default]
    AmongAll,
    /// So many bytes, of all responses together.
    Together(u64),
    /// So many bytes each; those that differ are among the failures.
    Each(u64),
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

    /// What is wrong with the responses' length if each should have had `expected` bytes, as far as
    /// their sum tells. What was under way when the run ended, and failed responses, blur it: a few
    /// wrong ones among many are not found.
    pub fn wrong_length(&self, expected: u64) -> Option<String> {
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

/// Of fewer, those that were under way at the end weigh too much.
const REQUESTS_MIN: u64 = 100;
/// What they, and rounded figures, may amount to.
const BLUR: f64 = 0.05;
/// No server here sends larger heads.
const HEAD_BYTES_MAX: u64 = 1_024;

fn split_unit(word: &str) -> (&str, &str) {
    let at = word.find(|c: char| c.is_ascii_alphabetic());
    word.split_at(at.unwrap_or(word.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_length_shows_in_the_sum() {
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
