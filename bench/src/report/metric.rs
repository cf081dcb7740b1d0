//! What is read off a round, with its unit and which way is better: the one place that knows, so that
//! every table, chart and comparison says the same of the same rounds.

use crate::report::number;
use crate::result::{Cell, Round};
use crate::statistics::{self, Interval, Numbered};

/// A figure that a round gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// Requests a second.
    Rate,
    /// What the server would answer if it had the client's CPU time too (COMPAT.md K4).
    Extrapolated,
    /// Bytes a second.
    Throughput,
    /// Requests for each second of the server's CPU time.
    PerCpuSecond,
    /// CPU time of the server for each request, µs.
    CpuPerRequest,
    /// Processors that the server kept busy, percent; 100 is one processor.
    CpuShare,
    /// Largest PSS of the server's process tree, bytes.
    Memory,
    /// Mean latency, µs.
    Mean,
    /// Latency at a percentile as written in the result (`"99.9"`), µs.
    Percentile(&'static str),
    /// Shortest request, µs.
    Shortest,
    /// Longest request, µs.
    Longest,
    /// Requests that failed.
    Failed,
    /// Share of the requests that did not fail, percent.
    Availability,
    /// Requests in a day at this rate.
    PerDay,
    /// One of [`Round::extra`].
    Extra(&'static str),
}

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// More is.
    More,
    /// Less is.
    Less,
}

/// What the rounds of a cell say about a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// Their median.
    pub median: f64,
    /// Where the true median lies; `None` of one round.
    pub interval: Option<Interval>,
    /// The values with the numbers of their rounds.
    pub values: Vec<Numbered>,
}

impl Metric {
    /// What a table calls it.
    pub fn title(self) -> String {
        match self {
            Metric::Rate => "requests/s".into(),
            Metric::Extrapolated => "requests/s, extrapolated".into(),
            Metric::Throughput => "transfer/s".into(),
            Metric::PerCpuSecond => "requests per CPU second".into(),
            Metric::CpuPerRequest => "CPU per request".into(),
            Metric::CpuShare => "CPU".into(),
            Metric::Memory => "memory".into(),
            Metric::Mean => "mean latency".into(),
            Metric::Percentile("50") => "median latency".into(),
            Metric::Percentile(percentile) => format!("{percentile} % latency"),
            Metric::Shortest => "shortest".into(),
            Metric::Longest => "longest".into(),
            Metric::Failed => "failed".into(),
            Metric::Availability => "availability".into(),
            Metric::PerDay => "requests/day".into(),
            Metric::Extra(key) => extra_title(key),
        }
    }

    /// Which way is better; `None` of what is neither good nor bad by itself.
    pub fn better(self) -> Option<Better> {
        match self {
            Metric::Rate | Metric::Extrapolated | Metric::Throughput | Metric::PerCpuSecond => {
                Some(Better::More)
            }
            Metric::Availability | Metric::PerDay => Some(Better::More),
            Metric::CpuShare => None,
            Metric::Extra(key) => extra_better(key),
            _ => Some(Better::Less),
        }
    }

    /// The value of one round.
    pub fn of(self, round: &Round) -> Option<f64> {
        let latency = round.latency.as_ref();
        let asked = round.requests + round.failed();
        match self {
            Metric::Rate => positive(round.rate()),
            Metric::Extrapolated => {
                let server = positive(round.server.cpu_seconds())?;
                Some(round.rate() / server * (server + round.client.cpu_seconds()))
            }
            Metric::Throughput => positive(round.bytes as f64 / round.seconds),
            Metric::PerCpuSecond => {
                Some(round.requests as f64 / positive(round.server.cpu_seconds())?)
            }
            Metric::CpuPerRequest => round.server_us_per_request().and_then(positive),
            Metric::CpuShare => positive(round.server.cpu_seconds() / round.seconds * 100.0),
            Metric::Memory => positive(round.server.peak_pss_bytes as f64),
            Metric::Mean => latency.map(|latency| latency.mean_us),
            Metric::Percentile(percentile) => latency?.percentiles_us.get(percentile).copied(),
            Metric::Shortest => latency.map(|latency| latency.min_us),
            Metric::Longest => latency.map(|latency| latency.max_us),
            Metric::Failed => Some(round.failed() as f64),
            Metric::Availability => {
                (asked > 0).then(|| round.requests as f64 / asked as f64 * 100.0)
            }
            Metric::PerDay => positive(round.rate() * SECONDS_IN_A_DAY),
            Metric::Extra(key) => round.extra.get(key).copied(),
        }
    }

    /// What the rounds of a cell say; `None` if none of them has it.
    pub fn estimate(self, cell: &Cell) -> Option<Estimate> {
        Estimate::of(
            cell.rounds
                .iter()
                .filter_map(|round| Some((round.number, self.of(round)?)))
                .collect(),
        )
    }

    /// A value with its unit.
    pub fn format(self, value: f64) -> String {
        match self {
            Metric::Rate | Metric::Extrapolated | Metric::PerCpuSecond => number::plain(value),
            Metric::Throughput => format!("{}/s", number::bytes(value)),
            Metric::CpuShare => format!("{} %", number::whole(value)),
            Metric::Memory => number::bytes(value),
            Metric::Failed | Metric::PerDay => number::whole(value),
            Metric::Availability => format!("{value:.2} %"),
            Metric::Extra(key) => extra_format(key, value),
            _ => number::time(value),
        }
    }

    /// The key under which `published/*.toml` has it.
    pub fn key(self) -> String {
        match self {
            Metric::Rate => "requests_per_second".into(),
            Metric::Extrapolated => "requests_per_second_extrapolated".into(),
            Metric::Throughput => "bytes_per_second".into(),
            Metric::PerCpuSecond => "requests_per_cpu_second".into(),
            Metric::CpuPerRequest => "cpu_us_per_request".into(),
            Metric::CpuShare => "cpu_percent".into(),
            Metric::Memory => "memory_bytes".into(),
            Metric::Mean => "mean_us".into(),
            Metric::Percentile(percentile) => format!("p{percentile}_us"),
            Metric::Shortest => "shortest_us".into(),
            Metric::Longest => "longest_us".into(),
            Metric::Failed => "failed".into(),
            Metric::Availability => "availability_percent".into(),
            Metric::PerDay => "requests_per_day".into(),
            Metric::Extra(key) => key.into(),
        }
    }
}

impl Estimate {
    /// Of the values of some rounds.
    pub fn of(values: Vec<Numbered>) -> Option<Estimate> {
        let alone: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
        Some(Estimate {
            median: statistics::median(&alone)?,
            interval: statistics::interval(&alone),
            values,
        })
    }

    /// The values without the numbers of their rounds.
    pub fn alone(&self) -> Vec<f64> {
        self.values.iter().map(|(_, value)| *value).collect()
    }

    /// The ends of the interval; the median itself if there is none.
    pub fn ends(&self) -> (f64, f64) {
        self.interval
            .map_or((self.median, self.median), |interval| {
                (interval.low, interval.high)
            })
    }
}

/// An extra figure in words: `availability 99.5 %`.
pub fn extra(key: &str, value: f64) -> String {
    format!("{} {}", extra_title(key), extra_format(key, value))
}

/// Extra figures say their unit at the end of their name.
fn extra_format(key: &str, value: f64) -> String {
    match unit(key) {
        Some("ms") => number::time(value * 1e3),
        Some("us") => number::time(value),
        Some("seconds") => number::time(value * 1e6),
        Some("bytes") => number::bytes(value),
        Some("celsius") => format!("{} °C", number::whole(value)),
        Some("percent") => format!("{} %", number::plain(value)),
        _ if value.fract() == 0.0 => number::whole(value),
        _ => number::plain(value),
    }
}

fn extra_title(key: &str) -> String {
    match key {
        "dom_content_loaded_ms" => return "DOMContentLoaded".into(),
        "temperature_celsius" => return "core temperature".into(),
        "resource_bytes" => return "resources".into(),
        "balancer_cpu_percent" => return "CPU of the balancer".into(),
        "nodes_cpu_seconds" => return "CPU of the nodes".into(),
        _ => {}
    }
    let without_unit = unit(key)
        .and_then(|unit| key.strip_suffix(unit))
        .unwrap_or(key);
    without_unit.trim_end_matches('_').replace('_', " ")
}

fn extra_better(key: &str) -> Option<Better> {
    matches!(
        unit(key),
        Some("ms" | "us" | "seconds" | "bytes" | "celsius")
    )
    .then_some(Better::Less)
}

fn unit(key: &str) -> Option<&str> {
    let last = key.rsplit('_').next()?;
    matches!(
        last,
        "ms" | "us" | "seconds" | "bytes" | "celsius" | "percent"
    )
    .then_some(last)
}

fn positive(value: f64) -> Option<f64> {
    (value.is_finite() && value > 0.0).then_some(value)
}

const SECONDS_IN_A_DAY: f64 = 86_400.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Failures, Usage};

    fn round() -> Round {
        Round {
            seconds: 30.0,
            requests: 30_000,
            bytes: 150_000_000,
            server: Usage {
                user_seconds: 10.0,
                system_seconds: 5.0,
                ..Usage::default()
            },
            client: Usage {
                user_seconds: 15.0,
                ..Usage::default()
            },
            failures: [(Failures::TIMEOUT.to_owned(), 30)].into(),
            extra: [("dom_content_loaded_ms".to_owned(), 68.0)].into(),
            ..Round::default()
        }
    }

    #[test]
    fn a_round_is_read() {
        let of = |metric: Metric| metric.format(metric.of(&round()).unwrap());
        assert_eq!(of(Metric::Rate), "1,000");
        assert_eq!(of(Metric::Extrapolated), "2,000");
        assert_eq!(of(Metric::Throughput), "5.00 MB/s");
        assert_eq!(of(Metric::PerCpuSecond), "2,000");
        assert_eq!(of(Metric::CpuPerRequest), "500 µs");
        assert_eq!(of(Metric::CpuShare), "50 %");
        assert_eq!(of(Metric::Availability), "99.90 %");
        assert_eq!(of(Metric::PerDay), "86,400,000");
        assert_eq!(of(Metric::Extra("dom_content_loaded_ms")), "68.0 ms");
        assert_eq!(Metric::Memory.of(&round()), None, "it was not taken");
        assert_eq!(Metric::Percentile("99").of(&round()), None);
    }

    #[test]
    fn a_round_without_anything_gives_nothing() {
        let empty = Round::default();
        for metric in [
            Metric::Rate,
            Metric::Extrapolated,
            Metric::Throughput,
            Metric::CpuShare,
        ] {
            assert_eq!(metric.of(&empty), None);
        }
    }

    #[test]
    fn extra_figures_are_named_by_their_key() {
        assert_eq!(
            Metric::Extra("dom_content_loaded_ms").title(),
            "DOMContentLoaded"
        );
        assert_eq!(
            Metric::Extra("balancer_memory_bytes").title(),
            "balancer memory"
        );
        assert_eq!(Metric::Extra("temperature_celsius").format(60.2), "60 °C");
    }
}
