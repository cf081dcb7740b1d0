//! Suite of source document 000's second table: a page of the journal in a real browser, cold and cached.
//! The suite measures the waiting time of one visitor, which a load of 1,500 connections does not show.

use super::options::Options;
use super::plan::{Case, Group, Plan, Selection, Setting, Suite};
use crate::catalogue::Ability;
use crate::result::Parameter;
use crate::rounds::Order;

pub(super) const SUITE: Suite = Suite {
    name: "page",
    about: "A page with style, script and font in headless Chromium over TLS, cold and cached",
    as_published: false,
    lay_out,
};

fn lay_out(options: &Options) -> Plan {
    let mut plan = Plan::new("A page in a browser, cold and cached", options);
    let case = |cache: &str| {
        let workload = crate::load::Workload {
            tls: Some(super::options::usual_tls()),
            ..options.workload(crate::page_measurer::PATH, 1)
        };
        Case::new(cache, format!("A page in Chromium, {cache}"), workload)
            .with("cache", Parameter::Word(cache.to_owned()))
    };
    plan.groups = vec![Group {
        setting: Setting::Browser,
        selection: Selection::able(&[Ability::Https, Ability::Files], FONT_BYTES).usually(&[
            "anthill",
            "nginx",
            "apache",
            "lighttpd",
            "caddy",
            "stunnel-busybox",
        ]),
        cases: ["cold", "cached"].map(case).into(),
        order: Order::Chained,
    }];
    plan.notes.push(
        "The test authority is in Chromium's own trust store, since Chromium caches nothing after a \
         certificate error. Cold: a browser context without cache and connections, in a browser that \
         has loaded the page before in another context. Cached: the page loaded again in the same \
         context. The files are months old, so that a browser may cache them without an explicit \
         lifetime."
            .to_owned(),
    );
    plan
}

/// Size of the largest file of the page, rounded up; contenders must be able to serve the file.
const FONT_BYTES: u64 = 50_000;
