//! Sections of the page that change by themselves.

use super::backends::push_backends;
use super::balancer::push_balancers;
use super::history::push_edits;
use super::problems::push_problems;
use super::requests::push_requests;
use super::server::{
    push_certificates, push_charts, push_counters, push_hits, push_refusals, push_server,
    push_sites,
};
use crate::manager::access::Rights;
use crate::manager::live_part::{LivePart, Sections};
use crate::manager::snapshot::Snapshot;
use std::sync::Arc;

/// Function that appends sections of the page for the clients with the same rights.
type PushSections = fn(&mut Sections, &Snapshot, Rights);

/// Sections in the order of the page.
const SECTIONS: [PushSections; 12] = [
    |page, snapshot, _| page.section("problems", |html| push_problems(html, snapshot)),
    |page, snapshot, _| page.section("server", |html| push_server(html, snapshot)),
    |page, snapshot, _| page.section("charts", |html| push_charts(html, snapshot)),
    push_balancers,
    |page, snapshot, _| page.section("backends", |html| push_backends(html, snapshot)),
    |page, snapshot, rights| page.section("requests", |html| push_requests(html, snapshot, rights)),
    |page, snapshot, _| page.section("sites", |html| push_sites(html, snapshot)),
    |page, snapshot, _| page.section("hits", |html| push_hits(html, snapshot)),
    |page, snapshot, _| page.section("refusals", |html| push_refusals(html, snapshot)),
    |page, snapshot, _| page.section("certificates", |html| push_certificates(html, snapshot)),
    |page, snapshot, _| page.section("counters", |html| push_counters(html, snapshot)),
    |page, snapshot, _| page.section("edits", |html| push_edits(html, snapshot)),
];

impl Snapshot {
    /// Returns the part of the page that changes by itself, rendered once for all clients with the same rights. The part
    /// has no token: the boxes of members belong to forms in the part of each client.
    pub(in crate::manager) fn live(&self, rights: Rights) -> &Arc<LivePart> {
        self.live[rights as usize].get_or_init(|| {
            let mut page = Sections::default();
            for push in SECTIONS {
                push(&mut page, self, rights);
            }
            Arc::new(page.into())
        })
    }
}
