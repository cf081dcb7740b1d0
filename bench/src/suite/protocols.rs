//! Suite comparing HTTP/1.1, HTTP/2 and HTTP/3 for the same page.

use super::{Act, Case, Cast, Programme, Setting, Suite, Wishes, thousands};
use crate::catalogue::Ability;
use crate::load::{Plan, Protocol};
use crate::rounds::Order;
use crate::site::Site;

pub(super) const SUITE: Suite = Suite {
    name: "protocols",
    about: "HTTP/1.1, 2 and 3 over TLS: 100 connections, 10 streams on each",
    as_published: false,
    lay_out,
};

fn lay_out(wishes: &Wishes) -> Programme {
    let mut programme = Programme::new("HTTP/1.1, 2 and 3: 5,100 bytes over TLS", wishes);
    let protocols = [
        ("h1", Protocol::Http1, Ability::Https),
        ("h2", Protocol::Http2, Ability::Http2),
        ("h3", Protocol::Http3, Ability::Http3),
    ];
    programme.acts = protocols
        .into_iter()
        .map(|(id, protocol, ability)| act(wishes, id, protocol, ability))
        .collect();
    programme.notes.push(
        "All protocols have 100 connections. A connection of HTTP/1.1 has one request in flight, a \
         connection of HTTP/2 or 3 has ten: 1,000 concurrent requests instead of 100."
            .to_owned(),
    );
    programme.notes.push(
        "Over HTTP/3 each connection has a UDP socket of its own. Datagrams have the size of a usual \
         network (1,472 bytes), although loopback carries larger ones. QUIC also costs the client \
         much CPU time: where the client was the limit, compare the CPU time per request."
            .to_owned(),
    );
    programme
}

fn act(wishes: &Wishes, id: &str, protocol: Protocol, ability: Ability) -> Act {
    let streams = if protocol == Protocol::Http1 {
        1
    } else {
        STREAMS
    };
    let path = Site::path_of(Site::JOURNAL_BYTES);
    let plan = Plan {
        protocol,
        streams,
        ..wishes.kept_alive_over_tls(wishes.plan(&path, CONNECTIONS))
    };
    let connections = thousands(CONNECTIONS);
    let title = match streams {
        1 => format!("{protocol}, {connections} connections"),
        _ => format!("{protocol}, {connections} connections × {streams} streams"),
    };
    Act {
        setting: Setting::Single {
            tls: true,
            keep_alive: true,
            published: false,
            cgi: false,
        },
        cast: Cast::able(&[ability, Ability::KeepAlive], Site::JOURNAL_BYTES),
        cases: vec![Case::new(id, title, plan).of_size(Site::JOURNAL_BYTES)],
        order: Order::Listed,
    }
}

const CONNECTIONS: usize = 100;
const STREAMS: usize = 10;
