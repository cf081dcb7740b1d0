//! Suite of a published chart: nine servers with a hello page, ten clients, a new connection for each request.

use super::options::Options;
use super::plan::{Case, Group, Plan, Selection, Setting, Suite};
use crate::catalogue::Ability;
use crate::load::{Length, Workload};
use crate::result::Parameter;
use crate::rounds::Order;

pub(super) const SUITE: Suite = Suite {
    name: "hello",
    about: "Nine servers of a published chart and further ones: a page of 228 bytes, 10 clients, no keep-alive",
    as_published: true,
    lay_out,
};

fn lay_out(options: &Options) -> Plan {
    let mut plan = Plan::new("Hello: 228 bytes, 10 clients, no keep-alive", options);
    let path = if options.as_published {
        "/"
    } else {
        "/hello.html"
    };
    let mut workload = Workload {
        keep_alive: false,
        ..options.workload(path, CLIENTS)
    };
    let mut needs = vec![Ability::Http, Ability::Hello];
    if options.as_published {
        needs = vec![Ability::Http, Ability::Published];
        if options.seconds.is_none() {
            workload.length = Length::Requests(PUBLISHED_REQUESTS);
        }
        workload.warm_up_seconds = options.warm_up_seconds.unwrap_or(0.0);
        plan.notes.push(
            "As published, with unequal settings: each server sends the body of its source document \
             (17 to 228 bytes). HTTP::Daemon has one client, every other server ten, with 1,000 \
             requests each and no warm-up. The fastest servers need 0.05 s for 1,000 requests, so \
             only large differences are significant."
                .to_owned(),
        );
    }
    let case = Case::new("hello", "Hello, 10 clients, no keep-alive", workload);
    let case = if options.as_published {
        case.with("as_published", Parameter::Flag(true))
    } else {
        case.of_size(HELLO_BYTES)
    };
    plan.groups = vec![Group {
        setting: Setting::Single {
            tls: false,
            keep_alive: false,
            published: options.as_published,
            cgi: false,
        },
        selection: Selection::able(&needs, 0),
        cases: vec![case],
        order: Order::Listed,
    }];
    plan
}

const CLIENTS: usize = 10;
const HELLO_BYTES: u64 = 228;
/// Requests of the document's command, `ab -c 10 -n 1000`.
const PUBLISHED_REQUESTS: u64 = 1_000;
