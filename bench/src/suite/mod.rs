//! The suites: each describes the measurements of a source document as data. Starting, pinning, loading and
//! checking servers is common to all suites and is in `stage.rs`.

mod agreement;
mod dynamic;
mod growth;
mod handshake;
mod hello;
mod journal;
mod matrix;
mod page;
mod protocols;
mod proxy;

use std::collections::BTreeMap;

use crate::catalogue::{Ability, Entry};
use crate::driver::Driver;
use crate::load::{Length, Plan, Protocol, Tls};
use crate::result::{Parameter, Scenario};
use crate::rounds::Order;

/// Description of a suite.
pub struct Suite {
    /// Name on the command line.
    pub name: &'static str,
    /// One-line description without a full stop.
    pub about: &'static str,
    /// True if the settings of the source document can be repeated.
    pub as_published: bool,
    /// Lays out the suite for the user's wishes.
    pub lay_out: fn(&Wishes) -> Programme,
}

/// All suites, in the order of the source documents.
pub static SUITES: &[Suite] = &[
    journal::SUITE,
    hello::SUITE,
    matrix::SUITE,
    growth::SUITE,
    dynamic::SUITE,
    handshake::SUITE,
    protocols::SUITE,
    proxy::SUITE,
    page::SUITE,
    agreement::SUITE,
];

/// Settings from the command line, and the machine's processors.
#[derive(Debug, Clone, PartialEq)]
pub struct Wishes {
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
pub enum Extent {
    /// A few scenarios and short rounds, to see that everything works.
    Quick,
    /// Enough to distinguish the contenders; all suites together take about an hour on two processors.
    #[default]
    Usual,
    /// Every scenario of the source document, and longer rounds; takes hours.
    Full,
}

/// A suite laid out for a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Programme {
    /// One-line description.
    pub title: String,
    /// Acts in the order of measurement.
    pub acts: Vec<Act>,
    /// Number of interleaved rounds.
    pub rounds: u32,
    /// True if server and client are pinned to separate processors.
    pub pinned: bool,
    /// Remarks for readers of the figures.
    pub notes: Vec<String>,
}

/// Cases measured on the same start of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Act {
    /// Start settings of the contender.
    pub setting: Setting,
    /// Contenders that take part.
    pub cast: Cast,
    /// Cases to measure.
    pub cases: Vec<Case>,
    /// Order of the cases.
    pub order: Order,
}

/// Start settings of a contender.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Setting {
    /// A single server on all of the server's processors.
    Single {
        /// True if the server listens for TLS besides plain HTTP.
        tls: bool,
        /// True if the server keeps connections alive.
        keep_alive: bool,
        /// True to use the configuration of the contender's source document.
        published: bool,
        /// True if the server runs the site's CGI scripts.
        cgi: bool,
    },
    /// A single server, limited to a share of a processor.
    Node {
        /// Share of one processor, 0 to 1.
        share: f64,
    },
    /// A balancer in front of nodes, each limited to a share of a processor.
    Cluster {
        /// Number of nodes.
        nodes: usize,
        /// Share of one processor per node, 0 to 1.
        share: f64,
    },
    /// A balancer in front of members without a limit, on the client's processors.
    Proxy {
        /// Number of members.
        members: usize,
        /// True if the balancer listens for TLS besides plain HTTP.
        tls: bool,
    },
    /// A single server with TLS, loaded by a browser.
    Browser,
}

/// Selection of the contenders of an act.
#[derive(Debug, Clone, PartialEq)]
pub struct Cast {
    /// Abilities that a contender must have.
    pub needs: Vec<Ability>,
    /// Size in bytes of the largest file to serve; 0 if none.
    pub file_bytes: u64,
    /// Contenders that take part unless the user names contenders; empty for all able contenders.
    pub usual: Vec<String>,
    /// Contenders that take part regardless of the user's choice.
    pub only: Option<Vec<String>>,
}

/// One row of the table, and the plan of its load.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// Scenario of the row.
    pub scenario: Scenario,
    /// Plan of the load; the address and the expected response are filled in once the server runs.
    pub plan: Plan,
    /// True if a contender may lack the ability: one request checks for it first, and its lack is not a
    /// failure.
    pub tried: bool,
    /// Load generator of the case, regardless of the user's choice.
    pub driver: Option<Driver>,
    /// True if the members of the balancer are first loaded without the balancer, for the added latency.
    pub direct: bool,
}

impl Wishes {
    /// Returns true if only a few scenarios are wanted.
    pub fn quick(&self) -> bool {
        self.extent == Extent::Quick
    }

    /// Returns true if every scenario is wanted.
    pub fn full(&self) -> bool {
        self.extent == Extent::Full
    }

    /// Returns the number of rounds: the user's, or the default of the extent.
    pub fn rounds(&self, usual: u32) -> u32 {
        self.rounds.unwrap_or(match self.extent {
            Extent::Quick => QUICK_ROUNDS,
            Extent::Usual => usual,
            Extent::Full => FULL_ROUNDS,
        })
    }

    /// Sets a plan's length and warm-up: the user's seconds, or the suite's `usual_seconds` and
    /// `full_seconds` by extent.
    pub fn time(&self, plan: &mut Plan, usual_seconds: f64, full_seconds: f64) {
        let (seconds, warm_up) = match self.extent {
            Extent::Quick => (QUICK_SECONDS.min(usual_seconds), QUICK_WARM_UP_SECONDS),
            Extent::Usual => (usual_seconds, WARM_UP_SECONDS),
            Extent::Full => (full_seconds, FULL_WARM_UP_SECONDS),
        };
        plan.length = Length::Seconds(self.seconds.unwrap_or(seconds));
        plan.warm_up_seconds = self.warm_up_seconds.unwrap_or(warm_up);
    }

    /// Adds TLS to a plan, with a warm-up long enough for all handshakes unless the user gave one.
    pub fn kept_alive_over_tls(&self, mut plan: Plan) -> Plan {
        plan.tls = Some(usual_tls());
        if self.warm_up_seconds.is_none() {
            plan.warm_up_seconds += plan.connections as f64 * HANDSHAKE_SECONDS;
        }
        plan
    }

    /// Returns a plan for a path and a number of connections, on all of the client's processors.
    pub fn plan(&self, path: &str, connections: usize) -> Plan {
        let mut plan = Plan {
            host: crate::probe::HOST.to_owned(),
            paths: vec![path.to_owned()],
            connections,
            threads: self.client_cpus.max(1),
            ..Plan::default()
        };
        plan.timeout_seconds = self.timeout_seconds.unwrap_or(plan.timeout_seconds);
        self.time(&mut plan, SECONDS, FULL_SECONDS);
        plan
    }
}

impl Programme {
    /// Returns an empty programme with default rounds and pinned processors.
    pub fn new(title: &str, wishes: &Wishes) -> Programme {
        Programme {
            title: title.to_owned(),
            acts: Vec::new(),
            rounds: wishes.rounds(ROUNDS),
            pinned: true,
            notes: Vec::new(),
        }
    }

    /// Returns the sizes of the requested pages in bytes, sorted.
    pub fn sizes(&self) -> Vec<u64> {
        let cases = self.acts.iter().flat_map(|act| &act.cases);
        let mut sizes: Vec<u64> = cases
            .filter_map(|case| match case.scenario.parameters.get("size") {
                Some(Parameter::Count(size)) => Some(*size),
                _ => None,
            })
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

impl Cast {
    /// Returns a cast of all contenders with the given abilities.
    pub fn able(needs: &[Ability], file_bytes: u64) -> Cast {
        Cast {
            needs: needs.to_vec(),
            file_bytes,
            usual: Vec::new(),
            only: None,
        }
    }

    /// Restricts the cast to the named contenders unless the user names contenders.
    pub fn usually(mut self, names: &[&str]) -> Cast {
        self.usual = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// Returns the reason why a contender cannot take part, if any.
    pub fn lacking(&self, entry: &Entry) -> Option<String> {
        if self
            .only
            .as_ref()
            .is_some_and(|only| !only.contains(&entry.name))
        {
            return Some("the measurement is of other servers only".to_owned());
        }
        if let Some(ability) = self.needs.iter().find(|ability| !entry.can(**ability)) {
            return Some(format!("the contender lacks the ability {ability}"));
        }
        (self.file_bytes > 0 && !entry.can_serve(self.file_bytes)).then(|| {
            format!(
                "the contender cannot serve a file of {} bytes",
                self.file_bytes
            )
        })
    }
}

impl Case {
    /// Returns a case; parameters are added with [`Case::with`].
    pub fn new(id: impl Into<String>, title: impl Into<String>, plan: Plan) -> Case {
        let protocol = match plan.protocol {
            Protocol::Http1 if plan.tls.is_some() => "https",
            Protocol::Http1 => "http",
            Protocol::Http2 => "h2",
            Protocol::Http3 => "h3",
        };
        let mut parameters = BTreeMap::from([
            (
                "connections".to_owned(),
                Parameter::Count(plan.connections as u64),
            ),
            ("keep_alive".to_owned(), Parameter::Flag(plan.keep_alive)),
            ("tls".to_owned(), Parameter::Flag(plan.tls.is_some())),
            ("protocol".to_owned(), Parameter::Word(protocol.to_owned())),
        ]);
        if plan.streams > 1 {
            parameters.insert("streams".to_owned(), Parameter::Count(plan.streams as u64));
        }
        Case {
            scenario: Scenario {
                id: id.into(),
                title: title.into(),
                parameters,
            },
            plan,
            tried: false,
            driver: None,
            direct: false,
        }
    }

    /// Adds a parameter to the scenario.
    pub fn with(mut self, name: &str, value: Parameter) -> Case {
        self.scenario.parameters.insert(name.to_owned(), value);
        self
    }

    /// Replaces the parameter `connections` by a number of users, each with one connection.
    pub fn of_users(mut self, users: usize) -> Case {
        self.scenario.parameters.remove("connections");
        self.with("users", Parameter::Count(users as u64))
    }

    /// Adds the size of the page as a parameter.
    pub fn of_size(self, bytes: u64) -> Case {
        self.with("size", Parameter::Count(bytes))
    }
}

/// Returns TLS settings with full handshakes and the default groups.
fn usual_tls() -> Tls {
    Tls {
        server_name: crate::probe::HOST.to_owned(),
        ..Tls::default()
    }
}

/// Formats a number for titles: `1,500`.
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Default number of rounds: the interval reaches 94 % confidence, and the run ends before the machine
/// drifts far.
const ROUNDS: u32 = 5;
const FULL_ROUNDS: u32 = 5;
/// Fewest rounds with a middle value; also used by suites with many scenarios.
const QUICK_ROUNDS: u32 = 3;
const FEW_ROUNDS: u32 = 3;
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

#[cfg(test)]
mod tests;
