//! The suites: each lays out what one source document measured, in data. How it is measured (who is
//! started, pinned, asked and looked at) is the same for all, in `stage.rs`.

mod agreement;
mod dynamic;
mod growth;
mod handshake;
mod hello;
mod journal;
mod matrix;
mod page;
mod protocols;

use std::collections::BTreeMap;

use crate::catalogue::{Ability, Entry};
use crate::driver::Driver;
use crate::load::{Length, Plan, Protocol, Tls};
use crate::result::{Parameter, Scenario};
use crate::rounds::Order;

/// A suite as it is listed.
pub struct Suite {
    /// What is typed.
    pub name: &'static str,
    /// What it is, in one line without a full stop.
    pub about: &'static str,
    /// Whether the settings of its document can be repeated.
    pub as_published: bool,
    /// Lays it out for what was asked.
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
    page::SUITE,
    agreement::SUITE,
];

/// What the user asked for, and what the machine gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Wishes {
    /// How many scenarios, rounds and seconds.
    pub extent: Extent,
    /// With the settings of the source document.
    pub as_published: bool,
    /// Rounds, if not the suite's own.
    pub rounds: Option<u32>,
    /// Seconds of a round, if not the suite's own.
    pub seconds: Option<f64>,
    /// Seconds of warm-up, if not the suite's own.
    pub warm_up_seconds: Option<f64>,
    /// Seconds until a response is given up, if not the usual.
    pub timeout_seconds: Option<f64>,
    /// Processors of the server.
    pub server_cpus: usize,
    /// Processors of the client.
    pub client_cpus: usize,
    /// What runs on the nodes of `growth`.
    pub node: String,
    /// A node's share of a processor.
    pub node_share: f64,
}

/// How much of a suite is measured, where the user gives no numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extent {
    /// A few scenarios and short rounds: to see that it works.
    Quick,
    /// What tells the contenders apart; all suites together take about an hour on two processors.
    #[default]
    Usual,
    /// Every scenario of the source document, and longer rounds: hours.
    Full,
}

/// A suite laid out.
#[derive(Debug, Clone, PartialEq)]
pub struct Programme {
    /// What it is, in one line.
    pub title: String,
    /// In the order in which they are measured.
    pub acts: Vec<Act>,
    /// Interleaved rounds.
    pub rounds: u32,
    /// Whether server and client are held to processors of their own.
    pub pinned: bool,
    /// What a reader of the figures should know.
    pub notes: Vec<String>,
}

/// Cases that are measured on one start of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Act {
    /// How it is started.
    pub setting: Setting,
    /// Who takes part.
    pub cast: Cast,
    /// What it is asked.
    pub cases: Vec<Case>,
    /// In which order.
    pub order: Order,
}

/// How a contender is started.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Setting {
    /// By itself, on all of the server's processors.
    Single {
        /// Whether it listens for TLS beside plain HTTP.
        tls: bool,
        /// Whether it leaves connections open.
        keep_alive: bool,
        /// As its source document ran it.
        published: bool,
        /// Whether it runs the site's scripts.
        cgi: bool,
    },
    /// By itself, held to a share of a processor.
    Node {
        /// Of one processor, 0 to 1.
        share: f64,
    },
    /// As a balancer before so many nodes, each held to a share.
    Cluster {
        /// How many.
        nodes: usize,
        /// Of one processor, 0 to 1.
        share: f64,
    },
    /// By itself, with TLS, for a browser.
    Browser,
}

/// Who takes part.
#[derive(Debug, Clone, PartialEq)]
pub struct Cast {
    /// What a contender must be able to do.
    pub needs: Vec<Ability>,
    /// The largest file that it must serve, bytes; 0 if none.
    pub file_bytes: u64,
    /// Only these, unless the user names others; all that are able if empty.
    pub usual: Vec<String>,
    /// Only these, whatever the user names.
    pub only: Option<Vec<String>>,
}

/// One row of the table, and what is asked for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// How it is called.
    pub scenario: Scenario,
    /// What is asked; whom, and what a right answer is, is known only when the server runs.
    pub plan: Plan,
    /// That a contender can't do it is no failure: it is tried.
    pub tried: bool,
    /// Who asks, whatever the user chose.
    pub driver: Option<Driver>,
}

impl Wishes {
    /// Whether only a few scenarios are asked for.
    pub fn quick(&self) -> bool {
        self.extent == Extent::Quick
    }

    /// Whether every scenario is asked for.
    pub fn full(&self) -> bool {
        self.extent == Extent::Full
    }

    /// Rounds: the user's, or the suite's usual ones.
    pub fn rounds(&self, usual: u32) -> u32 {
        self.rounds.unwrap_or(match self.extent {
            Extent::Quick => QUICK_ROUNDS,
            Extent::Usual => usual,
            Extent::Full => FULL_ROUNDS,
        })
    }

    /// Sets a plan's length and warm-up: the user's, or the suite's usual and full seconds.
    pub fn time(&self, plan: &mut Plan, usual_seconds: f64, full_seconds: f64) {
        let (seconds, warm_up) = match self.extent {
            Extent::Quick => (QUICK_SECONDS.min(usual_seconds), QUICK_WARM_UP_SECONDS),
            Extent::Usual => (usual_seconds, WARM_UP_SECONDS),
            Extent::Full => (full_seconds, FULL_WARM_UP_SECONDS),
        };
        plan.length = Length::Seconds(self.seconds.unwrap_or(seconds));
        plan.warm_up_seconds = self.warm_up_seconds.unwrap_or(warm_up);
    }

    /// With a warm-up that is long enough for all handshakes, if the user gave none.
    pub fn kept_alive_over_tls(&self, mut plan: Plan) -> Plan {
        plan.tls = Some(usual_tls());
        if self.warm_up_seconds.is_none() {
            plan.warm_up_seconds += plan.connections as f64 * HANDSHAKE_SECONDS;
        }
        plan
    }

    /// A plan of so many connections for a path, on all of the client's processors.
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
    /// A programme of the usual form.
    pub fn new(title: &str, wishes: &Wishes) -> Programme {
        Programme {
            title: title.to_owned(),
            acts: Vec::new(),
            rounds: wishes.rounds(ROUNDS),
            pinned: true,
            notes: Vec::new(),
        }
    }

    /// The sizes of the pages that are asked for, bytes.
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
    /// All that can do this.
    pub fn able(needs: &[Ability], file_bytes: u64) -> Cast {
        Cast {
            needs: needs.to_vec(),
            file_bytes,
            usual: Vec::new(),
            only: None,
        }
    }

    /// Of those, these unless the user names others.
    pub fn usually(mut self, names: &[&str]) -> Cast {
        self.usual = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// What an entry lacks to take part, if anything.
    pub fn lacking(&self, entry: &Entry) -> Option<String> {
        if self
            .only
            .as_ref()
            .is_some_and(|only| !only.contains(&entry.name))
        {
            return Some("it has no part in that".to_owned());
        }
        if let Some(ability) = self.needs.iter().find(|ability| !entry.can(**ability)) {
            return Some(format!("it can't do {ability}"));
        }
        (self.file_bytes > 0 && !entry.can_serve(self.file_bytes))
            .then(|| format!("it can't serve a file of {} bytes", self.file_bytes))
    }
}

impl Case {
    /// A case; parameters are added with [`Case::with`].
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
        }
    }

    /// With what else varies.
    pub fn with(mut self, name: &str, value: Parameter) -> Case {
        self.scenario.parameters.insert(name.to_owned(), value);
        self
    }

    /// With so many users, who are its connections.
    pub fn of_users(mut self, users: usize) -> Case {
        self.scenario.parameters.remove("connections");
        self.with("users", Parameter::Count(users as u64))
    }

    /// With a page of that size.
    pub fn of_size(self, bytes: u64) -> Case {
        self.with("size", Parameter::Count(bytes))
    }
}

/// TLS with full handshakes and the usual groups.
fn usual_tls() -> Tls {
    Tls {
        server_name: crate::probe::HOST.to_owned(),
        ..Tls::default()
    }
}

/// `1,500`, as titles write it.
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

/// Enough for an interval that is worth the name (94 %), and to be done before the machine changes.
const ROUNDS: u32 = 5;
const FULL_ROUNDS: u32 = 5;
/// Three: the fewest that have a middle. Suites with many scenarios do with them too.
const QUICK_ROUNDS: u32 = 3;
const FEW_ROUNDS: u32 = 3;
/// Control groups count CPU time in microseconds; where there are none, a tick of 10 ms is 0.5 % of
/// it.
const SECONDS: f64 = 2.0;
const FULL_SECONDS: f64 = 5.0;
const QUICK_SECONDS: f64 = 1.0;
/// Until connections stand, files are in memory and a just-in-time compiler has seen the hot code.
const WARM_UP_SECONDS: f64 = 0.5;
const FULL_WARM_UP_SECONDS: f64 = 1.0;
const QUICK_WARM_UP_SECONDS: f64 = 0.3;
/// What a full handshake takes on one slow processor of each side.
const HANDSHAKE_SECONDS: f64 = 0.002;

#[cfg(test)]
mod tests;
