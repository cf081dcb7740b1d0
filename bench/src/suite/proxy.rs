//! Suite of balancers: four members behind each contender, with plain HTTP, TLS and HTTP/2 in front, small and
//! large pages, and the added latency at a rate below the limit of every contender.

use std::net::{IpAddr, Ipv4Addr};

use super::options::Options;
use super::plan::{Case, Group, Plan, Selection, Setting, Suite, thousands};
use crate::catalogue::Ability;
use crate::load::{Pace, Protocol, Workload};
use crate::result::Parameter;
use crate::rounds::Order;
use crate::site::Site;

pub(super) const SUITE: Suite = Suite {
    name: "proxy",
    about: "Balancers before four members: plain, TLS, HTTP/2, large pages, added latency",
    as_published: false,
    lay_out,
};

fn lay_out(options: &Options) -> Plan {
    let mut plan = Plan::new("Balancers before four members", options);
    plan.groups = cases(options).into_iter().map(group).collect();
    plan.notes = vec![
        format!(
            "Four members, each {} with one worker. The balancer keeps its connections to the members \
             alive. The balancer has the server's processors, the members share the client's processors.",
            options.node
        ),
        format!(
            "Clients come from {SOURCES} loopback addresses, and every response is compared with the page \
             byte by byte. Before each measurement the members must be asked in turn; afterwards no member \
             may have less than 66 % of the CPU time of the mean member."
        ),
        format!(
            "At {} requests/s, latency counts from the time when a request is due. The added latency is \
             the difference to the same load on the members without the balancer, measured directly \
             before.",
            thousands(RATE as usize)
        ),
        "Members run from a copy of their program: processes of one file share memory, which would \
         lower the memory of a balancer of the same program."
            .to_owned(),
    ];
    plan
}

/// Returns the cases; each has a start of its own, since memory is one of the figures.
fn cases(options: &Options) -> Vec<Case> {
    let page = Site::JOURNAL_BYTES;
    if options.quick() {
        return vec![
            plain(options, page, 32),
            http2(options, 4),
            steady(options, 32),
        ];
    }
    let mut cases: Vec<Case> = CONNECTIONS.map(|count| plain(options, page, count)).into();
    let (tls_connections, http2_connections): (&[usize], &[usize]) = if options.full() {
        (&CONNECTIONS, &[4, 20, 80])
    } else {
        (&[200], &[20])
    };
    cases.extend(tls_connections.iter().map(|&count| tls(options, count)));
    cases.extend(http2_connections.iter().map(|&count| http2(options, count)));
    cases.push(plain(options, LARGE_BYTES, 32));
    cases.push(steady(options, 200));
    cases
}

fn group(case: Case) -> Group {
    let front = match case.workload.protocol {
        Protocol::Http2 => Ability::Http2,
        _ if case.workload.tls.is_some() => Ability::Https,
        _ => Ability::Http,
    };
    Group {
        setting: Setting::Proxy {
            members: MEMBERS,
            tls: case.workload.tls.is_some(),
        },
        selection: Selection::able(&[Ability::Balancer, front, Ability::KeepAlive], 0)
            .usually(&["anthill", "nginx", "haproxy", "apache", "caddy"]),
        cases: vec![case],
        order: Order::Listed,
    }
}

/// Returns a workload for a page, from all clients' addresses.
fn workload(options: &Options, bytes: u64, connections: usize) -> Workload {
    Workload {
        sources: (1..=SOURCES).map(client_address).collect(),
        ..options.workload(&Site::path_of(bytes), connections)
    }
}

fn plain(options: &Options, bytes: u64, connections: usize) -> Case {
    let (id, size) = match bytes {
        LARGE_BYTES => ("large", "512 KB".to_owned()),
        _ => ("plain", "5,100 bytes".to_owned()),
    };
    let title = format!("plain, {size}, {} connections", thousands(connections));
    Case::new(
        format!("{id}-{connections}"),
        title,
        workload(options, bytes, connections),
    )
    .of_size(bytes)
}

fn tls(options: &Options, connections: usize) -> Case {
    let page = Site::JOURNAL_BYTES;
    let workload = options.kept_alive_over_tls(workload(options, page, connections));
    let title = format!("TLS, 5,100 bytes, {} connections", thousands(connections));
    Case::new(format!("tls-{connections}"), title, workload).of_size(page)
}

fn http2(options: &Options, connections: usize) -> Case {
    let page = Site::JOURNAL_BYTES;
    let workload = Workload {
        protocol: Protocol::Http2,
        streams: STREAMS,
        ..options.kept_alive_over_tls(workload(options, page, connections))
    };
    let title = format!("HTTP/2, 5,100 bytes, {connections} connections × {STREAMS} streams");
    Case::new(format!("h2-{connections}"), title, workload).of_size(page)
}

/// Returns the case of the added latency. At the limit of a server, latency is only the number of clients
/// divided by the rate, so the rate is fixed and equal for all contenders.
fn steady(options: &Options, connections: usize) -> Case {
    let page = Site::JOURNAL_BYTES;
    let workload = Workload {
        pace: Pace::Open { rate: RATE },
        ..workload(options, page, connections)
    };
    let rate = thousands(RATE as usize);
    let title = format!("plain, 5,100 bytes, {connections} connections, {rate} requests/s");
    let case = Case::new(format!("steady-{connections}"), title, workload)
        .of_size(page)
        .with("requests_per_second", Parameter::Count(RATE as u64));
    Case {
        direct: true,
        ..case
    }
}

/// Returns a client's loopback address: 127.0.2.1, 127.0.2.2, …
fn client_address(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 2, number))
}

const MEMBERS: usize = 4;
/// Connections of HTTP/1.1. Source document 004 had 200 and 800 users.
const CONNECTIONS: [usize; 3] = [32, 200, 800];
const STREAMS: usize = 10;
const LARGE_BYTES: u64 = 512 * 1024;
/// Local addresses of the clients: a server that limits or hashes clients by address sees several.
const SOURCES: u8 = 8;
/// Requests/s of the case of the added latency: below the limit of every contender on one processor.
const RATE: f64 = 1_000.0;
