//! Options of a suite from the command line, and the numbers that hold where the user gives none.

use crate::load::{Length, Tls, Workload};

/// Settings from the command line, and the machine's processors.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Options {
    /// Extent of the suite: number and length of scenarios and rounds.
    pub extent: Extent,
    /// True to use the settings of the source document.
    pub as_published: bool,
    /// Rounds, if different from the suite's default.
    pub rounds: Option<u32>,
    /// Seconds of a round, if different from the suite's default.
    pub seconds: Option<f64>,
    /// Seconds of warm-up, if different from the suite's default.
    pub warm_up_seconds: Option<f64>,
    /// Response timeout in seconds, if different from the default.
    pub timeout_seconds: Option<f64>,
    /// Number of processors for the server.
    pub server_cpus: usize,
    /// Number of processors for the client.
    pub client_cpus: usize,
    /// Catalogue name of the server on the nodes of `growth` and the members of `proxy`.
    pub node: String,
    /// CPU share of a node, as a fraction of one processor.
    pub node_share: f64,
}

/// Extent of a suite where the user gives no numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Extent {
    /// A few scenarios and short rounds, to see that everything works.
    Quick,
    /// Enough to distinguish the contenders; all suites together take about an hour on two processors.
    #[default]
    Usual,
    /// Every scenario of the source document, and longer rounds; takes hours.
    Full,
}

impl Options {
    /// Returns true if only a few scenarios are wanted.
    pub(crate) fn quick(&self) -> bool {
        self.extent == Extent::Quick
    }

    /// Returns true if every scenario is wanted.
    pub(crate) fn full(&self) -> bool {
        self.extent == Extent::Full
    }

    /// Returns the number of rounds: the user's, or the default of the extent.
    pub(crate) fn rounds(&self, usual: u32) -> u32 {
        self.rounds.unwrap_or(match self.extent {
            Extent::Quick => QUICK_ROUNDS,
            Extent::Usual => usual,
            Extent::Full => FULL_ROUNDS,
        })
    }

    /// Sets a workload's length and warm-up: the user's seconds, or the suite's `usual_seconds` and
    /// `full_seconds` by extent.
    pub(crate) fn time(&self, workload: &mut Workload, usual_seconds: f64, full_seconds: f64) {
        let (seconds, warm_up) = match self.extent {
            Extent::Quick => (QUICK_SECONDS.min(usual_seconds), QUICK_WARM_UP_SECONDS),
            Extent::Usual => (usual_seconds, WARM_UP_SECONDS),
            Extent::Full => (full_seconds, FULL_WARM_UP_SECONDS),
        };
        workload.length = Length::Seconds(self.seconds.unwrap_or(seconds));
        workload.warm_up_seconds = self.warm_up_seconds.unwrap_or(warm_up);
    }

    /// Adds TLS to a workload, with a warm-up long enough for all handshakes unless the user gave one.
    pub(crate) fn kept_alive_over_tls(&self, mut workload: Workload) -> Workload {
        workload.tls = Some(usual_tls());
        if self.warm_up_seconds.is_none() {
            workload.warm_up_seconds += workload.connections as f64 * HANDSHAKE_SECONDS;
        }
        workload
    }

    /// Returns a workload for a path and a number of connections, on all of the client's processors.
    pub(crate) fn workload(&self, path: &str, connections: usize) -> Workload {
        let mut workload = Workload {
            host: crate::probe::HOST.to_owned(),
            paths: vec![path.to_owned()],
            connections,
            threads: self.client_cpus.max(1),
            ..Workload::default()
        };
        workload.timeout_seconds = self.timeout_seconds.unwrap_or(workload.timeout_seconds);
        self.time(&mut workload, SECONDS, FULL_SECONDS);
        workload
    }
}

/// Returns TLS settings with full handshakes and the default groups.
pub(super) fn usual_tls() -> Tls {
    Tls {
        server_name: crate::probe::HOST.to_owned(),
        ..Tls::default()
    }
}

/// Default number of rounds: the interval reaches 94 % confidence, and the run ends before the machine
/// drifts far.
pub(super) const ROUNDS: u32 = 5;
const FULL_ROUNDS: u32 = 5;
/// Fewest rounds with a middle value; also used by suites with many scenarios.
const QUICK_ROUNDS: u32 = 3;
pub(super) const FEW_ROUNDS: u32 = 3;
/// Seconds of a round. Control groups count CPU time in microseconds; without control groups, a tick of 10
/// ms is 0.5 % of 2 s.
const SECONDS: f64 = 2.0;
const FULL_SECONDS: f64 = 5.0;
const QUICK_SECONDS: f64 = 1.0;
/// Seconds of warm-up: enough to open the connections, load the files into memory and compile the hot code
/// of a just-in-time compiler.
const WARM_UP_SECONDS: f64 = 0.5;
const FULL_WARM_UP_SECONDS: f64 = 1.0;
const QUICK_WARM_UP_SECONDS: f64 = 0.3;
/// Duration of a full handshake with one slow processor on each side.
const HANDSHAKE_SECONDS: f64 = 0.002;
