//! What a run leaves behind: one JSON file with everything that was seen, so that a report can be
//! drawn, two runs compared and every figure traced to its raw rounds without measuring again.
//!
//! A run is a table: scenarios down, contenders across, and in each cell its rounds. Nothing that can
//! be derived (medians, ratios) is stored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version of this format; a file with a higher one is refused.
pub const FORMAT: u32 = 1;

/// A whole result file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`FORMAT`] of the program that wrote it.
    pub format: u32,
    /// Program and version that wrote it: `anthill-bench 0.1.0`.
    pub tool: String,
    /// The suite's name: `journal`, `hello`, …, or `import`.
    pub suite: String,
    /// What the suite is, in one line.
    pub title: String,
    /// RFC 3339, UTC.
    pub begun: String,
    /// RFC 3339, UTC; when the last round ended.
    pub ended: String,
    /// False if it was interrupted or a part failed: not all of it is here, or not all is sound.
    pub complete: bool,
    /// The command line that asked for it.
    pub command: String,
    /// The machine it ran on.
    pub machine: Machine,
    /// The contenders in the order of the tables, those that could not take part too.
    pub contenders: Vec<ContenderFacts>,
    /// The scenarios in the order of the tables.
    pub scenarios: Vec<Scenario>,
    /// One for each scenario and contender that was tried.
    pub cells: Vec<Cell>,
    /// What a reader of the figures should know, a sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The machine's facts; what can't be found out is left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// A name for tables: from the machine profile, else the host's name.
    pub name: String,
    /// The processor's model name.
    pub cpu: String,
    /// Processors this process may use.
    pub cpus: u32,
    /// `x86_64`, `aarch64`, `armv6l`, …
    pub architecture: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Kernel release: `6.1.0-18-amd64`.
    pub kernel: String,
    /// Name of the system: `Debian GNU/Linux 12 (bookworm)`.
    pub system: String,
    /// Frequency governor, where the kernel tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// TCP congestion control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Price, if the machine profile names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// Length of the tick in which the kernel counts CPU time, seconds.
    pub tick_seconds: f64,
}

/// What a machine cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// How much.
    pub amount: f64,
    /// Of what: `GBP`, `EUR`, …
    pub currency: String,
}

/// A contender as it took part, or why it did not.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ContenderFacts {
    /// Its name in the catalogue: `nginx`.
    pub name: String,
    /// Its name in tables: `nginx`, `stunnel + busybox httpd`.
    pub title: String,
    /// What its own version flag says, the first line.
    #[serde(default)]
    pub version: String,
    /// The program's path.
    #[serde(default)]
    pub program: String,
    /// Size of the program's file, bytes.
    #[serde(default)]
    pub program_bytes: u64,
    /// Its configuration files as they were used: name and text.
    #[serde(default)]
    pub configuration: BTreeMap<String, String>,
    /// The commands that started it.
    #[serde(default)]
    pub commands: Vec<String>,
    /// Why it took no part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// One thing that is asked of every contender: a row of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// Unique in the run: `tls-1500`.
    pub id: String,
    /// For tables: `TLS, 1,500 connections`.
    pub title: String,
    /// What varies: `protocol`, `size`, `connections`, `threads`, `users`, `nodes`, `keep_alive`, …
    pub parameters: BTreeMap<String, Parameter>,
}

/// The value of a scenario's parameter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Parameter {
    /// A switch.
    Flag(bool),
    /// A count, or bytes.
    Count(u64),
    /// A ratio, seconds.
    Number(f64),
    /// A word.
    Word(String),
}

/// What one contender did in one scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// [`Scenario::id`].
    pub scenario: String,
    /// [`ContenderFacts::name`].
    pub contender: String,
    /// In the order in which they were measured.
    pub rounds: Vec<Round>,
    /// Why there are no rounds, or fewer than asked for: with the last line of the server's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// One round: a client that asked for some seconds, after its warm-up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Its number among the run's interleaved rounds, from 0.
    pub number: u32,
    /// What asked: `embedded`, `wrk`, `ab`, `siege`, `h2load`, `chromium`.
    pub driver: String,
    /// The client's command, or a description of the embedded generator's plan.
    pub command: String,
    /// Seconds measured.
    pub seconds: f64,
    /// Responses that were right.
    pub requests: u64,
    /// Bytes received, heads too where the driver counts them.
    pub bytes: u64,
    /// Failures by kind ([`Failures`]); an absent kind is zero.
    #[serde(default)]
    pub failures: BTreeMap<String, u64>,
    /// How long requests took: the right ones, and those that timed out with their timeout at least, if
    /// our own generator asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// The server's whole process tree.
    pub server: Usage,
    /// The client.
    pub client: Usage,
    /// What else a suite measures: `temperature_celsius`, `dom_content_loaded_ms`, …
    #[serde(default)]
    pub extra: BTreeMap<String, f64>,
}

/// Kinds of failure, as keys of [`Round::failures`].
pub struct Failures;

impl Failures {
    /// No connection, or the handshake failed.
    pub const CONNECT: &'static str = "connect";
    /// The connection broke off before the head of a response was whole.
    pub const CLOSED: &'static str = "closed";
    /// What came is not HTTP.
    pub const PROTOCOL: &'static str = "protocol";
    /// Another status than expected.
    pub const STATUS: &'static str = "status";
    /// Another length or content than expected: cut off, too.
    pub const LENGTH: &'static str = "length";
    /// No response in time.
    pub const TIMEOUT: &'static str = "timeout";
    /// The driver doesn't tell which.
    pub const OTHER: &'static str = "other";
}

/// How long requests took, in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Shortest.
    pub min_us: f64,
    /// Longest.
    pub max_us: f64,
    /// By percentile as written: `"50"`, `"90"`, `"99"`, `"99.9"`.
    pub percentiles_us: BTreeMap<String, f64>,
    /// Whether it is counted from the time a request was due (open loop), not from when it was sent.
    pub from_due_time: bool,
    /// The whole histogram, HdrHistogram V2 deflate-less in base64, where the driver has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histogram: Option<String>,
}

/// What processes used during a round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time in user mode, seconds.
    pub user_seconds: f64,
    /// CPU time in the kernel, seconds.
    pub system_seconds: f64,
    /// Processors it was held to; 0 if to none.
    pub cpus: u32,
    /// Largest sum of PSS over the process tree, bytes; 0 if not taken.
    #[serde(default)]
    pub peak_pss_bytes: u64,
}

impl Usage {
    /// User and system time together, seconds.
    pub fn cpu_seconds(&self) -> f64 {
        self.user_seconds + self.system_seconds
    }

    /// Share of its processors that was used, 0 to 1; `None` if it was held to none.
    pub fn busy(&self, seconds: f64) -> Option<f64> {
        (self.cpus > 0 && seconds > 0.0)
            .then(|| self.cpu_seconds() / seconds / f64::from(self.cpus))
    }
}

impl Round {
    /// Requests a second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 {
            self.requests as f64 / self.seconds
        } else {
            0.0
        }
    }

    /// CPU time of the server for each request, microseconds; `None` without requests.
    pub fn server_us_per_request(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.server.cpu_seconds() * 1e6 / self.requests as f64)
    }

    /// Failures of all kinds.
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }
}
