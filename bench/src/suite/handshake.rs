//! Suite of new connections: a TLS handshake, one small request, close. Full handshakes show the cost of
//! first visitors, resumed handshakes the cost of returning visitors, each with and without the
//! post-quantum key exchange.

use super::{Act, Case, Cast, Programme, Setting, Suite, Wishes, usual_tls};
use crate::catalogue::Ability;
use crate::load::{Groups, Plan, Resumption, Tls};
use crate::result::Parameter;
use crate::rounds::Order;

pub(super) const SUITE: Suite = Suite {
    name: "handshake",
    about: "New TLS connections, full and resumed, X25519 and X25519MLKEM768",
    as_published: false,
    lay_out,
};

fn lay_out(wishes: &Wishes) -> Programme {
    let mut programme = Programme::new("New TLS connections: handshake, 228 bytes, end", wishes);
    let kinds = [
        (Resumption::Full, Groups::X25519),
        (Resumption::Resumed, Groups::X25519),
        (Resumption::Full, Groups::X25519MLKEM768),
        (Resumption::Resumed, Groups::X25519MLKEM768),
    ];
    let count = if wishes.quick() { 2 } else { kinds.len() };
    programme.acts = kinds[..count]
        .iter()
        .map(|&(resumption, groups)| act(wishes, resumption, groups))
        .collect();
    programme.notes.push(
        "The client does not verify certificates, which saves client CPU time only. Resumed \
         handshakes continue an earlier session."
            .to_owned(),
    );
    programme
}

fn act(wishes: &Wishes, resumption: Resumption, groups: Groups) -> Act {
    let mut needs = vec![Ability::Https, Ability::Hello];
    if groups == Groups::X25519 {
        needs.push(Ability::X25519);
    }
    if resumption == Resumption::Resumed {
        needs.push(Ability::Tickets);
    }
    Act {
        setting: Setting::Single {
            tls: true,
            keep_alive: false,
            published: false,
            cgi: false,
        },
        cast: Cast::able(&needs, 0),
        cases: vec![case(wishes, resumption, groups)],
        order: Order::Listed,
    }
}

fn case(wishes: &Wishes, resumption: Resumption, groups: Groups) -> Case {
    let plan = Plan {
        keep_alive: false,
        tls: Some(Tls {
            resumption,
            groups,
            ..usual_tls()
        }),
        ..wishes.plan("/hello.html", CLIENTS)
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
        plan,
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
