//! Format of a result: one JSON file with everything measured in a run, so that reports, comparisons and
//! the tracing of a figure to its raw rounds need no new measurement.
//!
//! A run is a table: one row per scenario, one column per contender, and rounds in each cell. Derived
//! values (medians, ratios) are not stored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of the format; a file with a higher version is rejected.
pub const FORMAT: u32 = 1;

/// A complete result file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`FORMAT`] of the program that wrote the file.
    pub format: u32,
    /// Name and version of the program that wrote the file: `anthill-bench 0.1.0`.
    pub tool: String,
    /// The suite's name: `journal`, `hello`, …, or `import`.
    pub suite: String,
    /// One-line description of the suite.
    pub title: String,
    /// Start of the run: RFC 3339, UTC.
    pub begun: String,
    /// End of the last round: RFC 3339, UTC.
    pub ended: String,
    /// False if the run was interrupted or a part failed: rounds are missing or unsound.
    pub complete: bool,
    /// Command line of the run.
    pub command: String,
    /// The machine of the run.
    pub machine: Machine,
    /// Contenders in the order of the tables, including contenders that could not take part.
    pub contenders: Vec<ContenderFacts>,
    /// Scenarios in the order of the tables.
    pub scenarios: Vec<Scenario>,
    /// One cell per scenario and contender tried.
    pub cells: Vec<Cell>,
    /// Remarks for readers of the figures, a sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Facts about the machine; unknown facts are left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Name for tables: from the machine profile, otherwise the host name.
    pub name: String,
    /// The processor's model name.
    pub cpu: String,
    /// Number of processors available to the kit's process.
    pub cpus: u32,
    /// Architecture: `x86_64`, `aarch64`, `armv6l`, …
    pub architecture: String,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Kernel release: `6.1.0-18-amd64`.
    pub kernel: String,
    /// Name of the operating system: `Debian GNU/Linux 12 (bookworm)`.
    pub system: String,
    /// CPU frequency governor, if the kernel reports one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// TCP congestion control algorithm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Price, if the machine profile names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// Resolution in which the kernel counts CPU time, in seconds.
    pub tick_seconds: f64,
}

/// Price of a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Amount.
    pub amount: f64,
    /// Currency code: `GBP`, `EUR`, …
    pub currency: String,
}

/// Facts about a contender: versions and configuration, or the reason for its absence.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ContenderFacts {
    /// Name in the catalogue: `nginx`.
    pub name: String,
    /// Name in tables: `nginx`, `stunnel + busybox httpd`.
    pub title: String,
    /// First line printed by the program's version flag.
    #[serde(default)]
    pub version: String,
    /// Path of the program.
    #[serde(default)]
    pub program: String,
    /// Size of the program's file in bytes.
    #[serde(default)]
    pub program_bytes: u64,
    /// Configuration files as used: name and text.
    #[serde(default)]
    pub configuration: BTreeMap<String, String>,
    /// Commands that started the contender.
    #[serde(default)]
    pub commands: Vec<String>,
    /// Reason why the contender took no part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// One measurement, repeated for every contender: a row of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// Identifier, unique in the run: `tls-1500`.
    pub id: String,
    /// Title for tables: `TLS, 1,500 connections`.
    pub title: String,
    /// Parameters that vary: `protocol`, `size`, `connections`, `threads`, `users`, `nodes`, `keep_alive`,
    /// …
    pub parameters: BTreeMap<String, Parameter>,
}

/// Value of a scenario's parameter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Parameter {
    /// A switch.
    Flag(bool),
    /// A count, or a size in bytes.
    Count(u64),
    /// A ratio, or a duration in seconds.
    Number(f64),
    /// A word.
    Word(String),
}

/// Rounds of one contender in one scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// [`Scenario::id`] of the scenario.
    pub scenario: String,
    /// [`ContenderFacts::name`] of the contender.
    pub contender: String,
    /// Rounds in the order of measurement.
    pub rounds: Vec<Round>,
    /// Reason why rounds are missing or unsound, with the last line of the server's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// One round: a client's requests for a number of seconds after a warm-up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Number among the run's interleaved rounds, from 0.
    pub number: u32,
    /// Client program: `embedded`, `wrk`, `ab`, `siege`, `h2load`, `chromium`.
    pub driver: String,
    /// The client's command, or a description of the embedded generator's workload.
    pub command: String,
    /// Measured time in seconds.
    pub seconds: f64,
    /// Number of correct responses.
    pub requests: u64,
    /// Bytes received, including headers if the driver counts headers.
    pub bytes: u64,
    /// Failures by kind ([`Failures`]); an absent kind is zero.
    #[serde(default)]
    pub failures: BTreeMap<String, u64>,
    /// Latency of correct responses. The embedded generator also includes requests that timed out, with at
    /// least the timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Resource usage of the server's whole process tree.
    pub server: Usage,
    /// Resource usage of the client.
    pub client: Usage,
    /// Further measurements of a suite: `temperature_celsius`, `dom_content_loaded_ms`, …
    #[serde(default)]
    pub extra: BTreeMap<String, f64>,
}

/// Kinds of failure: keys of [`Round::failures`].
pub struct Failures;

impl Failures {
    /// The connection or the handshake failed.
    pub const CONNECT: &'static str = "connect";
    /// The connection was closed before the header section of a response was complete.
    pub const CLOSED: &'static str = "closed";
    /// The received bytes are not valid HTTP.
    pub const PROTOCOL: &'static str = "protocol";
    /// The status differs from the expected status.
    pub const STATUS: &'static str = "status";
    /// The length or content differs from the expected response; includes truncated responses.
    pub const LENGTH: &'static str = "length";
    /// No response arrived before the timeout.
    pub const TIMEOUT: &'static str = "timeout";
    /// The driver does not report the kind.
    pub const OTHER: &'static str = "other";
}

/// Duration of requests in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Minimum.
    pub min_us: f64,
    /// Maximum.
    pub max_us: f64,
    /// Values by percentile: `"50"`, `"90"`, `"99"`, `"99.9"`.
    pub percentiles_us: BTreeMap<String, f64>,
    /// True if the duration counts from the time a request was due (open loop) rather than sent.
    pub from_due_time: bool,
    /// Complete histogram in base64 (HdrHistogram V2 without deflate), if the driver has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram: Option<String>,
}

/// Resource usage of processes during a round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time in user mode, in seconds.
    pub user_seconds: f64,
    /// CPU time in the kernel, in seconds.
    pub system_seconds: f64,
    /// Number of processors the processes were pinned to; 0 if unpinned.
    pub cpus: u32,
    /// Largest sum of PSS over the process tree, in bytes; 0 if not measured.
    #[serde(default)]
    pub peak_pss_bytes: u64,
}

impl Usage {
    /// Returns user and system time together, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        self.user_seconds + self.system_seconds
    }

    /// Returns the used share of the pinned processors' time, 0 to 1; `None` if the processes were
    /// unpinned.
    pub fn busy(&self, seconds: f64) -> Option<f64> {
        (self.cpus > 0 && seconds > 0.0)
            .then(|| self.cpu_seconds() / seconds / f64::from(self.cpus))
    }
}

impl Round {
    /// Returns requests per second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 {
            self.requests as f64 / self.seconds
        } else {
            0.0
        }
    }

    /// Returns the server's CPU time per request in microseconds; `None` without requests.
    pub fn server_us_per_request(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.server.cpu_seconds() * 1e6 / self.requests as f64)
    }

    /// Returns the number of failures of all kinds.
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }
}
