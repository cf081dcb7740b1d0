//! Suite of source document 004: users with pauses between requests, in rising numbers until failures
//! begin, first on one node alone, then on 1, 2, 4 and 8 nodes behind a balancer.
//!
//! Nodes are processes on loopback addresses of their own. Each node is limited to a small share of a
//! processor, so that the nodes are the limit and not the machine, as with the document's Raspberry Pis.

use super::options::{FEW_ROUNDS, Options};
use super::plan::{Case, Group, Plan, Selection, Setting, Suite, thousands};
use crate::catalogue::Ability;
use crate::load::{Pace, Pause, Workload};
use crate::result::Parameter;
use crate::rounds::Order;
use crate::site::Site;

pub(super) const SUITE: Suite = Suite {
    name: "growth",
    about: "Users with pauses, until failures begin: one node, then 1 to 8 behind a balancer",
    as_published: false,
    lay_out,
};

const NODES: [usize; 4] = [1, 2, 4, 8];
/// Numbers of users: 10, 200 and 800 are the document's.
const USERS: [usize; 7] = [10, 200, 800, 1_600, 3_200, 6_400, 12_800];

fn lay_out(options: &Options) -> Plan {
    let mut plan = Plan::new("Users with pauses, on 1 to 8 nodes", options);
    plan.rounds = options.rounds(FEW_ROUNDS);
    let nodes: &[usize] = if options.quick() { &[1, 2] } else { &NODES };
    let users: &[usize] = if options.quick() { &USERS[..3] } else { &USERS };
    let share = options.node_share;
    let alone = Selection {
        only: Some(vec![options.node.clone()]),
        ..Selection::able(&[Ability::Http], Site::JOURNAL_BYTES)
    };
    plan.groups
        .push(group(options, 0, users, Setting::Node { share }, alone));
    for &count in nodes {
        let setting = Setting::Cluster {
            nodes: count,
            share,
        };
        let balancers = Selection::able(&[Ability::Balancer], 0).usually(&["anthill", "haproxy"]);
        plan.groups
            .push(group(options, count, users, setting, balancers));
    }
    plan.notes = vec![
        format!(
            "Each node is {} on an address of its own, limited to {} % of one processor: the nodes and \
             not this machine are the limit.",
            options.node,
            share * 100.0
        ),
        "Users pause for 0 to 1 s before each request and open a connection per request, as siege \
         does with -d1. A user gives up after 5 s. The server's CPU time and memory are those of the \
         balancer; the nodes' use is listed separately."
            .to_owned(),
        "All numbers of users of a round are measured on one start, in rising order, up to the first \
         failures."
            .to_owned(),
    ];
    plan
}

fn group(
    options: &Options,
    nodes: usize,
    users: &[usize],
    setting: Setting,
    selection: Selection,
) -> Group {
    let cases = users
        .iter()
        .map(|&users| case(options, nodes, users))
        .collect();
    Group {
        setting,
        selection,
        cases,
        order: Order::Rising,
    }
}

fn case(options: &Options, nodes: usize, users: usize) -> Case {
    let mut workload = Workload {
        keep_alive: false,
        pace: Pace::Closed {
            pause: Some(Pause {
                shortest_seconds: 0.0,
                longest_seconds: PAUSE_SECONDS_MAX,
            }),
        },
        ..options.workload(&Site::path_of(Site::JOURNAL_BYTES), users)
    };
    options.time(&mut workload, SECONDS, SECONDS);
    // A user gives up after waiting for the length of a round; such timeouts mark the beginning of
    // failures.
    workload.timeout_seconds = options.timeout_seconds.unwrap_or(SECONDS);
    let (id, title) = match nodes {
        0 => ("alone".to_owned(), "one node, no balancer".to_owned()),
        1 => ("1-node".to_owned(), "1 node".to_owned()),
        _ => (format!("{nodes}-nodes"), format!("{nodes} nodes")),
    };
    Case::new(
        format!("{id}-{users}"),
        format!("{title}, {} users", thousands(users)),
        workload,
    )
    .of_size(Site::JOURNAL_BYTES)
    .of_users(users)
    .with("nodes", Parameter::Count(nodes.max(1) as u64))
    .with("balancer", Parameter::Flag(nodes > 0))
}

/// Long enough for about ten requests per user.
const SECONDS: f64 = 5.0;
const PAUSE_SECONDS_MAX: f64 = 1.0;
