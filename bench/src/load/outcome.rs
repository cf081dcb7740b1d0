//! What a run of the load generator saw, all threads together.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2Serializer};

use super::plan::{Pace, Plan};
use crate::result::{Latency, Round, Usage};

/// What a run saw within its window.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Seconds measured. A run by requests, and an open loop, last until the last response.
    pub seconds: f64,
    /// Responses that were right.
    pub requests: u64,
    /// Bytes of HTTP received, heads too.
    pub bytes: u64,
    /// Failures by kind ([`crate::result::Failures`]); kinds that didn't occur are absent.
    pub failures: BTreeMap<String, u64>,
    /// What the first failure of each kind was: `connect`: `Connection refused (os error 111)`.
    pub first_failures: BTreeMap<String, String>,
    /// Microseconds of each right response: in a closed loop from when its user wanted it, in an open
    /// loop from when it was due. A connection that had to be made for it is part of it. One that was
    /// given up counts with the time until then, the timeout at least.
    pub latency: Histogram<u64>,
    /// In an open loop, microseconds from when each request was sent: what a closed loop shows.
    pub service: Option<Histogram<u64>>,
    /// Microseconds until each connection stood, TLS handshake included.
    pub connect: Histogram<u64>,
    /// TLS handshakes that were full.
    pub full_handshakes: u64,
    /// TLS handshakes that took up an earlier session.
    pub resumed_handshakes: u64,
    /// CPU time in user mode of the generator's threads within the window, seconds.
    pub user_seconds: f64,
    /// CPU time in the kernel of the generator's threads within the window, seconds.
    pub system_seconds: f64,
    /// Share of the processors' time, 0 to 1, that the generator needed.
    pub busy: f64,
    /// Processors the threads could use at once.
    pub cpus: u32,
    /// Whether the generator was the limit, for all we can see: its threads had hardly a moment's
    /// rest, so that the figures tell more of it than of the server.
    pub client_bound: bool,
}

impl Outcome {
    /// Right responses a second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 {
            self.requests as f64 / self.seconds
        } else {
            0.0
        }
    }

    /// Failures of all kinds.
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// The round of a result, without what only the server's side can tell.
    pub fn into_round(self, number: u32, plan: &Plan) -> Round {
        let open = matches!(plan.pace, Pace::Open { .. });
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
        if plan.tls.is_some() {
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
            command: plan.to_string(),
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

/// As a result names them.
const PERCENTILES: [&str; 9] = ["10", "25", "50", "75", "90", "95", "99", "99.9", "99.99"];
