//! Sections of the page that change by themselves.

use super::balancer::push_balancers;
use super::history::push_edits;
use super::problems::push_problems;
use super::requests::{push_requests_for_all, push_requests_for_login};
use super::server::{
    push_certificates, push_charts, push_counters, push_hits, push_refusals, push_server,
    push_sites,
};
use crate::manager::live_part::{LivePart, Sections};
use crate::manager::snapshot::Snapshot;
use std::sync::Arc;

/// Function that appends sections of the page.
type PushSections = fn(&mut Sections, &Snapshot);

/// Returns the sections in the order of the page, for clients with or without a login.
fn sections(has_login: bool) -> [PushSections; 11] {
    let push_requests = match has_login {
        true => push_requests_for_login,
        false => push_requests_for_all,
    };
    [
        |page, snapshot| page.section("problems", |html| push_problems(html, snapshot)),
        |page, snapshot| page.section("server", |html| push_server(html, snapshot)),
        |page, snapshot| page.section("charts", |html| push_charts(html, snapshot)),
        push_balancers,
        push_requests,
        |page, snapshot| page.section("sites", |html| push_sites(html, snapshot)),
        |page, snapshot| page.section("hits", |html| push_hits(html, snapshot)),
        |page, snapshot| page.section("refusals", |html| push_refusals(html, snapshot)),
        |page, snapshot| page.section("certificates", |html| push_certificates(html, snapshot)),
        |page, snapshot| page.section("counters", |html| push_counters(html, snapshot)),
        |page, snapshot| page.section("edits", |html| push_edits(html, snapshot)),
    ]
}

impl Snapshot {
    /// Returns the part of the page that changes by itself, rendered once for all clients with a login, and once for
    /// all clients without a login.
    pub(in crate::manager) fn live(&self, has_login: bool) -> &Arc<LivePart> {
        self.live[usize::from(has_login)].get_or_init(|| {
            let mut page = Sections::default();
            for push in sections(has_login) {
                push(&mut page, self);
            }
            Arc::new(page.into())
        })
    }
}
