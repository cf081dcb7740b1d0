//! Suite comparing HTTP/1.1, HTTP/2 and HTTP/3 for the same page.

use super::options::Options;
use super::plan::{Case, Group, Plan, Selection, Setting, Suite, thousands};
use crate::catalogue::Ability;
use crate::load::{Protocol, Workload};
use crate::rounds::Order;
use crate::site::Site;

pub(super) const SUITE: Suite = Suite {
    name: "protocols",
    about: "HTTP/1.1, 2 and 3 over TLS: 100 connections, 10 streams on each",
    as_published: false,
    lay_out,
};

fn lay_out(options: &Options) -> Plan {
    let mut plan = Plan::new("HTTP/1.1, 2 and 3: 5,100 bytes over TLS", options);
    let protocols = [
        ("h1", Protocol::Http1, Ability::Https),
        ("h2", Protocol::Http2, Ability::Http2),
        ("h3", Protocol::Http3, Ability::Http3),
    ];
    plan.groups = protocols
        .into_iter()
        .map(|(id, protocol, ability)| group(options, id, protocol, ability))
        .collect();
    plan.notes.push(
        "All protocols have 100 connections. A connection of HTTP/1.1 has one request in flight, a \
         connection of HTTP/2 or 3 has ten: 1,000 concurrent requests instead of 100."
            .to_owned(),
    );
    plan.notes.push(
        "Over HTTP/3 each connection has a UDP socket of its own. Datagrams have the size of a usual \
         network (1,472 bytes), although loopback carries larger ones. QUIC also costs the client \
         much CPU time: where the client was the limit, compare the CPU time per request."
            .to_owned(),
    );
    plan
}

fn group(options: &Options, id: &str, protocol: Protocol, ability: Ability) -> Group {
    let streams = if protocol == Protocol::Http1 {
        1
    } else {
        STREAMS
    };
    let path = Site::path_of(Site::JOURNAL_BYTES);
    let workload = Workload {
        protocol,
        streams,
        ..options.kept_alive_over_tls(options.workload(&path, CONNECTIONS))
    };
    let connections = thousands(CONNECTIONS);
    let title = match streams {
        1 => format!("{protocol}, {connections} connections"),
        _ => format!("{protocol}, {connections} connections × {streams} streams"),
    };
    Group {
        setting: Setting::Single {
            tls: true,
            keep_alive: true,
            published: false,
            cgi: false,
        },
        selection: Selection::able(&[ability, Ability::KeepAlive], Site::JOURNAL_BYTES),
        cases: vec![Case::new(id, title, workload).of_size(Site::JOURNAL_BYTES)],
        order: Order::Listed,
    }
}

const CONNECTIONS: usize = 100;
const STREAMS: usize = 10;
