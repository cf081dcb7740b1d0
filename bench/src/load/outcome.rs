//! Result of a run of the load generator, summed over all threads.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2Serializer};

use super::workload::{Pace, Workload};
use crate::result::{Latency, Round, Usage};

/// Measurements within the window of a run.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// Length of the measured window in seconds. Runs with a fixed number of requests, and open loops, last
    /// until the last response.
    pub seconds: f64,
    /// Number of correct responses.
    pub requests: u64,
    /// Bytes of HTTP received, including header sections.
    pub bytes: u64,
    /// Failures by kind ([`crate::result::Failures`]). Kinds that didn't occur are absent.
    pub failures: BTreeMap<String, u64>,
    /// Description of the first failure of each kind: `connect`: `Connection refused (os error 111)`.
    pub first_failures: BTreeMap<String, String>,
    /// Latency of each correct response in microseconds, measured in a closed loop from the moment when the
    /// user wanted to send the request, in an open loop from the due time. The time of a connection opened
    /// for the request is included. An abandoned request counts with the time until it was abandoned, at
    /// least the timeout.
    pub latency: Histogram<u64>,
    /// Microseconds from the sending of each request to the response, in an open loop. A closed loop would
    /// report the same figure as the latency.
    pub service: Option<Histogram<u64>>,
    /// Microseconds until each connection was established, including the TLS handshake.
    pub connect: Histogram<u64>,
    /// Number of full TLS handshakes.
    pub full_handshakes: u64,
    /// Number of resumed TLS handshakes.
    pub resumed_handshakes: u64,
    /// CPU time of the generator's threads in user mode within the window, in seconds.
    pub user_seconds: f64,
    /// CPU time of the generator's threads in the kernel within the window, in seconds.
    pub system_seconds: f64,
    /// Share of the processors' time that the generator used, 0 to 1.
    pub busy: f64,
    /// Number of processors that the threads could use at the same time.
    pub cpus: u32,
    /// Whether the generator was probably the limit: the threads were busy almost all the time, and the
    /// figures describe the generator rather than the server.
    pub client_bound: bool,
}

impl Outcome {
    /// Returns the number of correct responses per second.
    pub(crate) fn rate(&self) -> f64 {
        if self.seconds > 0.0 {
            self.requests as f64 / self.seconds
        } else {
            0.0
        }
    }

    /// Returns the number of failures of all kinds.
    pub(crate) fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Converts the outcome to a round of a result. The server's usage is left empty.
    pub(crate) fn into_round(self, number: u32, workload: &Workload) -> Round {
        let open = matches!(workload.pace, Pace::Open { .. });
        let mut extra = BTreeMap::new();
        let mut note = |name: &str, value: f64| extra.insert(name.to_owned(), value);
        note("client_bound", f64::from(u8::from(self.client_bound)));
        note("client_busy", self.busy);
        if !self.connect.is_empty() {
            note("connections", self.connect.len() as f64);
            note(
                "connect_p50_us",
                self.connect.value_at_percentile(50.0) as f64,
            );
            note(
                "connect_p99_us",
                self.connect.value_at_percentile(99.0) as f64,
            );
        }
        if workload.tls.is_some() {
            note("full_handshakes", self.full_handshakes as f64);
            note("resumed_handshakes", self.resumed_handshakes as f64);
        }
        if let Some(service) = &self.service {
            note("service_p50_us", service.value_at_percentile(50.0) as f64);
            note("service_p99_us", service.value_at_percentile(99.0) as f64);
            note("service_max_us", service.max() as f64);
        }
        Round {
            number,
            driver: "embedded".to_owned(),
            command: workload.to_string(),
            seconds: self.seconds,
            requests: self.requests,
            bytes: self.bytes,
            latency: (!self.latency.is_empty()).then(|| summary(&self.latency, open)),
            failures: self.failures,
            server: Usage::default(),
            client: Usage {
                user_seconds: self.user_seconds,
                system_seconds: self.system_seconds,
                cpus: self.cpus,
                peak_pss_bytes: 0,
            },
            extra,
        }
    }
}

fn summary(histogram: &Histogram<u64>, from_due_time: bool) -> Latency {
    let percentiles_us = PERCENTILES
        .iter()
        .map(|name| {
            let percentile: f64 = name.parse().unwrap_or(100.0);
            (
                (*name).to_owned(),
                histogram.value_at_percentile(percentile) as f64,
            )
        })
        .collect();
    let mut bytes = Vec::new();
    let written = V2Serializer::new().serialize(histogram, &mut bytes).is_ok();
    Latency {
        mean_us: histogram.mean(),
        min_us: histogram.min() as f64,
        max_us: histogram.max() as f64,
        percentiles_us,
        from_due_time,
        histogram: written.then(|| STANDARD.encode(&bytes)),
    }
}

/// Percentiles under their names in a result.
const PERCENTILES: [&str; 9] = ["10", "25", "50", "75", "90", "95", "99", "99.9", "99.99"];
