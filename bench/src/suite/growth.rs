//! Suite of source document 004: users with pauses between requests, in rising numbers until failures
//! begin, first on one node alone, then on 1, 2, 4 and 8 nodes behind a balancer.
//!
//! Nodes are processes on loopback addresses of their own. Each node is limited to a small share of a
//! processor, so that the nodes are the limit and not the machine, as with the document's Raspberry Pis.

use super::{Act, Case, Cast, FEW_ROUNDS, Programme, Setting, Suite, Wishes, thousands};
use crate::catalogue::Ability;
use crate::load::{Pace, Plan};
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

fn lay_out(wishes: &Wishes) -> Programme {
    let mut programme = Programme::new("Users with pauses, on 1 to 8 nodes", wishes);
    programme.rounds = wishes.rounds(FEW_ROUNDS);
    let nodes: &[usize] = if wishes.quick() { &[1, 2] } else { &NODES };
    let users: &[usize] = if wishes.quick() { &USERS[..3] } else { &USERS };
    let share = wishes.node_share;
    let alone = Cast {
        only: Some(vec![wishes.node.clone()]),
        ..Cast::able(&[Ability::Http], Site::JOURNAL_BYTES)
    };
    programme
        .acts
        .push(act(wishes, 0, users, Setting::Node { share }, alone));
    for &count in nodes {
        let setting = Setting::Cluster {
            nodes: count,
            share,
        };
        let balancers = Cast::able(&[Ability::Balancer], 0).usually(&["anthill", "haproxy"]);
        programme
            .acts
            .push(act(wishes, count, users, setting, balancers));
    }
    programme.notes = vec![
        format!(
            "Each node is {} on an address of its own, limited to {} % of one processor: the nodes and \
             not this machine are the limit.",
            wishes.node,
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
    programme
}

fn act(wishes: &Wishes, nodes: usize, users: &[usize], setting: Setting, cast: Cast) -> Act {
    let cases = users
        .iter()
        .map(|&users| case(wishes, nodes, users))
        .collect();
    Act {
        setting,
        cast,
        cases,
        order: Order::Rising,
    }
}

fn case(wishes: &Wishes, nodes: usize, users: usize) -> Case {
    let mut plan = Plan {
        keep_alive: false,
        pace: Pace::Closed {
            pause: Some((0.0, PAUSE_SECONDS_MAX)),
        },
        ..wishes.plan(&Site::path_of(Site::JOURNAL_BYTES), users)
    };
    wishes.time(&mut plan, SECONDS, SECONDS);
    // A user gives up after waiting for the length of a round; such timeouts mark the beginning of
    // failures.
    plan.timeout_seconds = wishes.timeout_seconds.unwrap_or(SECONDS);
    let (id, title) = match nodes {
        0 => ("alone".to_owned(), "one node, no balancer".to_owned()),
        1 => ("1-node".to_owned(), "1 node".to_owned()),
        _ => (format!("{nodes}-nodes"), format!("{nodes} nodes")),
    };
    Case::new(
        format!("{id}-{users}"),
        format!("{title}, {} users", thousands(users)),
        plan,
    )
    .of_size(Site::JOURNAL_BYTES)
    .of_users(users)
    .with("nodes", Parameter::Count(nodes.max(1) as u64))
    .with("balancer", Parameter::Flag(nodes > 0))
}

/// Long enough for about ten requests per user.
const SECONDS: f64 = 5.0;
const PAUSE_SECONDS_MAX: f64 = 1.0;
