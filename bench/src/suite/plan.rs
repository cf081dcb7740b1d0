//! Plan of a suite: groups of cases with the contenders that take part, as data.

use std::collections::BTreeMap;

use super::options::{Options, ROUNDS};
use crate::catalogue::{Ability, Entry};
use crate::driver::Driver;
use crate::load::{Protocol, Workload};
use crate::result::{Parameter, Scenario};
use crate::rounds::Order;

/// Description of a suite.
pub(crate) struct Suite {
    /// Name on the command line.
    pub name: &'static str,
    /// One-line description without a full stop.
    pub about: &'static str,
    /// True if the settings of the source document can be repeated.
    pub as_published: bool,
    /// Lays out the suite for the user's options.
    pub lay_out: fn(&Options) -> Plan,
}

/// A suite laid out for a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// One-line description.
    pub title: String,
    /// Groups in the order of measurement.
    pub groups: Vec<Group>,
    /// Number of interleaved rounds.
    pub rounds: u32,
    /// True if server and client are pinned to separate processors.
    pub pinned: bool,
    /// Remarks for readers of the figures.
    pub notes: Vec<String>,
}

/// Cases measured on the same start of a server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    /// Start settings of the contender.
    pub setting: Setting,
    /// Contenders that take part.
    pub selection: Selection,
    /// Cases to measure.
    pub cases: Vec<Case>,
    /// Order of the cases.
    pub order: Order,
}

/// Start settings of a contender.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Setting {
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

/// Selection of the contenders of a group.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Selection {
    /// Abilities that a contender must have.
    pub needs: Vec<Ability>,
    /// Size in bytes of the largest file to serve; 0 if none.
    pub file_bytes: u64,
    /// Contenders that take part unless the user names contenders; empty for all able contenders.
    pub usual: Vec<String>,
    /// Contenders that take part regardless of the user's choice.
    pub only: Option<Vec<String>>,
}

/// One row of the table, and its workload.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Case {
    /// Scenario of the row.
    pub scenario: Scenario,
    /// Workload; the address and the expected response are filled in once the server runs.
    pub workload: Workload,
    /// True if a contender may lack the ability: one request checks for it first, and its lack is not a
    /// failure.
    pub tried: bool,
    /// Load generator of the case, regardless of the user's choice.
    pub driver: Option<Driver>,
    /// True if the members of the balancer are first loaded without the balancer, for the added latency.
    pub direct: bool,
}

impl Plan {
    /// Returns an empty plan with default rounds and pinned processors.
    pub(crate) fn new(title: &str, options: &Options) -> Plan {
        Plan {
            title: title.to_owned(),
            groups: Vec::new(),
            rounds: options.rounds(ROUNDS),
            pinned: true,
            notes: Vec::new(),
        }
    }

    /// Returns the sizes of the requested pages in bytes, sorted.
    pub(crate) fn sizes(&self) -> Vec<u64> {
        let cases = self.groups.iter().flat_map(|group| &group.cases);
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

impl Selection {
    /// Returns a selection of all contenders with the given abilities.
    pub(crate) fn able(needs: &[Ability], file_bytes: u64) -> Selection {
        Selection {
            needs: needs.to_vec(),
            file_bytes,
            usual: Vec::new(),
            only: None,
        }
    }

    /// Restricts the selection to the named contenders unless the user names contenders.
    pub(crate) fn usually(mut self, names: &[&str]) -> Selection {
        self.usual = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// Returns the reason why a contender cannot take part, if any.
    pub(crate) fn lacking(&self, entry: &Entry) -> Option<String> {
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
    pub(crate) fn new(id: impl Into<String>, title: impl Into<String>, workload: Workload) -> Case {
        let protocol = match workload.protocol {
            Protocol::Http1 if workload.tls.is_some() => "https",
            Protocol::Http1 => "http",
            Protocol::Http2 => "h2",
            Protocol::Http3 => "h3",
        };
        let mut parameters = BTreeMap::from([
            (
                "connections".to_owned(),
                Parameter::Count(workload.connections as u64),
            ),
            (
                "keep_alive".to_owned(),
                Parameter::Flag(workload.keep_alive),
            ),
            ("tls".to_owned(), Parameter::Flag(workload.tls.is_some())),
            ("protocol".to_owned(), Parameter::Word(protocol.to_owned())),
        ]);
        if workload.streams > 1 {
            parameters.insert(
                "streams".to_owned(),
                Parameter::Count(workload.streams as u64),
            );
        }
        Case {
            scenario: Scenario {
                id: id.into(),
                title: title.into(),
                parameters,
            },
            workload,
            tried: false,
            driver: None,
            direct: false,
        }
    }

    /// Adds a parameter to the scenario.
    pub(crate) fn with(mut self, name: &str, value: Parameter) -> Case {
        self.scenario.parameters.insert(name.to_owned(), value);
        self
    }

    /// Replaces the parameter `connections` by a number of users, each with one connection.
    pub(crate) fn of_users(mut self, users: usize) -> Case {
        self.scenario.parameters.remove("connections");
        self.with("users", Parameter::Count(users as u64))
    }

    /// Adds the size of the page as a parameter.
    pub(crate) fn of_size(self, bytes: u64) -> Case {
        self.with("size", Parameter::Count(bytes))
    }
}

/// Formats a number for titles: `1,500`.
pub(super) fn thousands(number: usize) -> String {
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
