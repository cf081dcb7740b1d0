//! Suite of new connections: a TLS handshake, one small request, close. Full handshakes show the cost of
//! first visitors, resumed handshakes the cost of returning visitors, each with and without the
//! post-quantum key exchange.

use super::options::{Options, usual_tls};
use super::plan::{Case, Group, Plan, Selection, Setting, Suite};
use crate::catalogue::Ability;
use crate::load::{Groups, Resumption, Tls, Workload};
use crate::result::Parameter;
use crate::rounds::Order;

pub(super) const SUITE: Suite = Suite {
    name: "handshake",
    about: "New TLS connections, full and resumed, X25519 and X25519MLKEM768",
    as_published: false,
    lay_out,
};

fn lay_out(options: &Options) -> Plan {
    let mut plan = Plan::new("New TLS connections: handshake, 228 bytes, end", options);
    let kinds = [
        (Resumption::Full, Groups::X25519),
        (Resumption::Resumed, Groups::X25519),
        (Resumption::Full, Groups::X25519MLKEM768),
        (Resumption::Resumed, Groups::X25519MLKEM768),
    ];
    let count = if options.quick() { 2 } else { kinds.len() };
    plan.groups = kinds[..count]
        .iter()
        .map(|&(resumption, groups)| group(options, resumption, groups))
        .collect();
    plan.notes.push(
        "The client does not verify certificates, which saves client CPU time only. Resumed \
         handshakes continue an earlier session."
            .to_owned(),
    );
    plan
}

fn group(options: &Options, resumption: Resumption, groups: Groups) -> Group {
    let mut needs = vec![Ability::Https, Ability::Hello];
    if groups == Groups::X25519 {
        needs.push(Ability::X25519);
    }
    if resumption == Resumption::Resumed {
        needs.push(Ability::Tickets);
    }
    Group {
        setting: Setting::Single {
            tls: true,
            keep_alive: false,
            published: false,
            cgi: false,
        },
        selection: Selection::able(&needs, 0),
        cases: vec![case(options, resumption, groups)],
        order: Order::Listed,
    }
}

fn case(options: &Options, resumption: Resumption, groups: Groups) -> Case {
    let workload = Workload {
        keep_alive: false,
        tls: Some(Tls {
            resumption,
            groups,
            ..usual_tls()
        }),
        ..options.workload("/hello.html", CLIENTS)
    };
    let handshake = match resumption {
        Resumption::Full => "full",
        Resumption::Resumed => "resumed",
    };
    let group = match groups {
        Groups::X25519MLKEM768 => "X25519MLKEM768",
        _ => "X25519",
    };
    let case = Case::new(
        format!("{handshake}-{}", group.to_lowercase()),
        format!("new TLS connection, {handshake}, {group}"),
        workload,
    )
    .of_size(HELLO_BYTES)
    .with(
        "resumed",
        Parameter::Flag(resumption == Resumption::Resumed),
    )
    .with("group", Parameter::Word(group.to_owned()));
    Case {
        tried: groups == Groups::X25519MLKEM768,
        ..case
    }
}

/// Concurrent clients: enough to keep one processor of the server busy.
const CLIENTS: usize = 16;
const HELLO_BYTES: u64 = 228;
