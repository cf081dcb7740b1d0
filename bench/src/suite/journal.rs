//! Suite of source documents 000 and 001: a page of 5,100 bytes over TLS on persistent connections, from a
//! light load to a load beyond the expected limit of small machines.

use super::{Act, Case, Cast, Programme, Setting, Suite, Wishes, thousands};
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

fn lay_out(wishes: &Wishes) -> Programme {
    let mut programme = Programme::new("A page of 5,100 bytes over TLS, kept alive", wishes);
    let connections: &[usize] = if wishes.quick() {
        &[10, 500]
    } else {
        &CONNECTIONS
    };
    // Each number of connections has its own start, since memory is one of the figures.
    programme.acts = connections
        .iter()
        .map(|&count| act(wishes, count))
        .collect();
    if wishes.as_published {
        programme.pinned = false;
        programme.notes.push(
            "As published: 30 s, 8 client threads, no warm-up; server and client share the same \
             processors."
                .to_owned(),
        );
    }
    programme
}

fn act(wishes: &Wishes, connections: usize) -> Act {
    let path = Site::path_of(Site::JOURNAL_BYTES);
    let mut plan = wishes.kept_alive_over_tls(wishes.plan(&path, connections));
    if wishes.as_published {
        plan.threads = PUBLISHED_THREADS;
        plan.length = Length::Seconds(wishes.seconds.unwrap_or(PUBLISHED_SECONDS));
        plan.warm_up_seconds = wishes.warm_up_seconds.unwrap_or(0.0);
    }
    let title = format!("TLS, {} connections", thousands(connections));
    let case = Case::new(format!("tls-{connections}"), title, plan);
    Act {
        setting: Setting::Single {
            tls: true,
            keep_alive: true,
            published: false,
            cgi: false,
        },
        cast: Cast::able(&[Ability::Https], Site::JOURNAL_BYTES),
        cases: vec![case.of_size(Site::JOURNAL_BYTES)],
        order: Order::Listed,
    }
}

const PUBLISHED_THREADS: usize = 8;
const PUBLISHED_SECONDS: f64 = 30.0;
