//! Metrics of a round, with units and direction. All tables, charts and comparisons take their values from
//! here, so they agree.

use crate::extrapolate;
use crate::report::number;
use crate::result::{Cell, Round};
use crate::statistics::{self, Interval, Numbered};

/// A figure derived from a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Metric {
    /// Requests per second.
    Rate,
    /// Extrapolated requests per second, as if the server also had the client's CPU time
    /// ([`extrapolate::rate`]).
    Extrapolated,
    /// Bytes per second.
    Throughput,
    /// Requests for each second of CPU time that the server used.
    PerCpuSecond,
    /// CPU time of the server per request, µs.
    CpuPerRequest,
    /// CPU use of the server in percent; 100 is one processor.
    CpuShare,
    /// Largest PSS of the server's process tree, bytes.
    Memory,
    /// Mean latency, µs.
    Mean,
    /// Latency at a percentile as written in the result (`"99.9"`), µs.
    Percentile(&'static str),
    /// Smallest latency, µs.
    Shortest,
    /// Largest latency, µs.
    Longest,
    /// Number of failed requests.
    Failed,
    /// Share of successful requests, percent.
    Availability,
    /// Requests per day at the measured rate.
    PerDay,
    /// A value of [`Round::extra`].
    Extra(&'static str),
}

/// Direction of improvement of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    /// Larger values are better.
    More,
    /// Smaller values are better.
    Less,
}

/// Estimate of a metric from the rounds of a cell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Estimate {
    /// Median of the values.
    pub median: f64,
    /// Confidence interval of the median; `None` for a single round.
    pub interval: Option<Interval>,
    /// Values with the numbers of their rounds.
    pub values: Vec<Numbered>,
}

impl Metric {
    /// Returns the title for tables.
    pub(crate) fn title(self) -> String {
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

    /// Returns the direction of improvement; `None` for neutral metrics.
    pub(crate) fn better(self) -> Option<Better> {
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

    /// Returns the value of a round, if measured.
    pub(crate) fn of(self, round: &Round) -> Option<f64> {
        let latency = round.latency.as_ref();
        let asked = round.requests + round.failed();
        match self {
            Metric::Rate => positive(round.rate()),
            Metric::Extrapolated => extrapolate::rate(round.rate(), &round.server, &round.client),
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

    /// Returns the estimate of a cell; `None` without any value.
    pub(crate) fn estimate(self, cell: &Cell) -> Option<Estimate> {
        Estimate::of(
            cell.rounds
                .iter()
                .filter_map(|round| Some((round.number, self.of(round)?)))
                .collect(),
        )
    }

    /// Formats a value with its unit.
    pub(crate) fn format(self, value: f64) -> String {
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

    /// Returns the key of the metric in `published/*.toml`.
    pub(crate) fn key(self) -> String {
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
    /// Returns the estimate of some values; `None` without values.
    pub(crate) fn of(values: Vec<Numbered>) -> Option<Estimate> {
        let alone: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
        Some(Estimate {
            median: statistics::median(&alone)?,
            interval: statistics::interval(&alone),
            values,
        })
    }

    /// Returns the values without round numbers.
    pub(crate) fn alone(&self) -> Vec<f64> {
        self.values.iter().map(|(_, value)| *value).collect()
    }

    /// Returns the ends of the interval, or twice the median without an interval.
    pub(crate) fn ends(&self) -> (f64, f64) {
        self.interval
            .map_or((self.median, self.median), |interval| {
                (interval.low, interval.high)
            })
    }
}

/// Formats an extra value with its name: `availability 99.5 %`.
pub(crate) fn extra(key: &str, value: f64) -> String {
    format!("{} {}", extra_title(key), extra_format(key, value))
}

/// Formats an extra value by the unit at the end of its key.
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
        "added_p50_us" => return "added median latency".into(),
        "added_p99_us" => return "added 99 % latency".into(),
        "direct_p99_us" => return "99 % latency of a member".into(),
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
    fn metrics_are_calculated_from_a_round() {
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
        assert_eq!(Metric::Memory.of(&round()), None, "no memory was measured");
        assert_eq!(Metric::Percentile("99").of(&round()), None);
    }

    #[test]
    fn an_empty_round_has_no_values() {
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
