//! Sections of the page that change by themselves.

use super::balancer::push_balancers;
use super::problems::push_problems;
use super::server::{
    push_certificates, push_charts, push_counters, push_hits, push_refusals, push_server,
    push_sites,
};
use crate::manager::live_part::{LivePart, Sections};
use crate::manager::snapshot::Snapshot;
use std::sync::Arc;

/// Function that appends sections of the page.
type PushSections = fn(&mut Sections, &Snapshot);

/// Sections in the order of the page.
const SECTIONS: [PushSections; 9] = [
    |page, snapshot| page.section("problems", |html| push_problems(html, snapshot)),
    |page, snapshot| page.section("server", |html| push_server(html, snapshot)),
    |page, snapshot| page.section("charts", |html| push_charts(html, snapshot)),
    push_balancers,
    |page, snapshot| page.section("sites", |html| push_sites(html, snapshot)),
    |page, snapshot| page.section("hits", |html| push_hits(html, snapshot)),
    |page, snapshot| page.section("refusals", |html| push_refusals(html, snapshot)),
    |page, snapshot| page.section("certificates", |html| push_certificates(html, snapshot)),
    |page, snapshot| page.section("counters", |html| push_counters(html, snapshot)),
];

impl Snapshot {
    /// Returns the part of the page that changes by itself, rendered once for all clients.
    pub(in crate::manager) fn live(&self) -> &Arc<LivePart> {
        self.live.get_or_init(|| {
            let mut sections = Sections::default();
            for push in SECTIONS {
                push(&mut sections, self);
            }
            Arc::new(sections.into())
        })
    }
}
