//! Suite of source documents 000 and 001: a page of 5,100 bytes over TLS on persistent connections, from a
//! light load to a load beyond the expected limit of small machines.

use super::options::Options;
use super::plan::{Case, Group, Plan, Selection, Setting, Suite, thousands};
use crate::catalogue::Ability;
use crate::load::Length;
use crate::rounds::Order;
use crate::site::Site;

pub(super) const SUITE: Suite = Suite {
    name: "journal",
    about: "A journal's page over TLS: 10, 500 and 1,500 connections kept alive",
    as_published: true,
    lay_out,
};

const CONNECTIONS: [usize; 3] = [10, 500, 1_500];

fn lay_out(options: &Options) -> Plan {
    let mut plan = Plan::new("A page of 5,100 bytes over TLS, kept alive", options);
    let connections: &[usize] = if options.quick() {
        &[10, 500]
    } else {
        &CONNECTIONS
    };
    // Each number of connections has its own start, since memory is one of the figures.
    plan.groups = connections
        .iter()
        .map(|&count| group(options, count))
        .collect();
    if options.as_published {
        plan.pinned = false;
        plan.notes.push(
            "As published: 30 s, 8 client threads, no warm-up; server and client share the same \
             processors."
                .to_owned(),
        );
    }
    plan
}

fn group(options: &Options, connections: usize) -> Group {
    let path = Site::path_of(Site::JOURNAL_BYTES);
    let mut workload = options.kept_alive_over_tls(options.workload(&path, connections));
    if options.as_published {
        workload.threads = PUBLISHED_THREADS;
        workload.length = Length::Seconds(options.seconds.unwrap_or(PUBLISHED_SECONDS));
        workload.warm_up_seconds = options.warm_up_seconds.unwrap_or(0.0);
    }
    let title = format!("TLS, {} connections", thousands(connections));
    let case = Case::new(format!("tls-{connections}"), title, workload);
    Group {
        setting: Setting::Single {
            tls: true,
            keep_alive: true,
            published: false,
            cgi: false,
        },
        selection: Selection::able(&[Ability::Https], Site::JOURNAL_BYTES),
        cases: vec![case.of_size(Site::JOURNAL_BYTES)],
        order: Order::Listed,
    }
}

const PUBLISHED_THREADS: usize = 8;
const PUBLISHED_SECONDS: f64 = 30.0;
