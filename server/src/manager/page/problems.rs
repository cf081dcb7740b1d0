//! Problems of the balancers, at the top of the page: members that requests need and that get none.

use super::balancer::{selection_url, state};
use crate::admin::balancers::BalancerList;
use crate::config::shown_url;
use crate::handler::git::browse::render::html::Html;
use crate::limits::MANAGER_PROBLEMS_MAX;
use crate::upstream::balancer::MemberState;

/// Appends the fault of the edits, and the members that the operator has not switched off and that get no requests.
pub(super) fn push_problems(page: &mut Html, list: &BalancerList, edits_fault: Option<&str>) {
    let balancers = list.balancers.iter();
    let members = balancers.flat_map(|balancer| {
        let members = balancer.members.iter();
        members.map(|member| (&*balancer.settings.name, member))
    });
    let is_down = |state| matches!(state, MemberState::Ejected | MemberState::CheckFailed);
    let down: Vec<_> = members.filter(|(_, it)| is_down(it.state)).collect();
    if down.is_empty() && edits_fault.is_none() {
        return;
    }
    page.markup(
        "<section class=problems aria-labelledby=problems><h2 id=problems>Problems</h2><ul>",
    );
    if let Some(fault) = edits_fault {
        page.markup("<li>").text(fault).markup("</li>");
    }
    for (balancer, member) in down.iter().take(MANAGER_PROBLEMS_MAX) {
        let url = shown_url(&member.url);
        page.markup("<li>").text(balancer).markup(": ");
        page.link(&selection_url(balancer, Some(&url)), &url);
        page.markup(": ").text(state(member));
        if let Some(change) = member.changes.last() {
            page.markup(" (").text(change.to_string()).markup(")");
        }
        page.markup("</li>");
    }
    if let Some(more @ 1..) = down.len().checked_sub(MANAGER_PROBLEMS_MAX) {
        page.markup("<li>").text(more.to_string());
        page.markup(" more members get no requests</li>");
    }
    page.markup("</ul></section>\n");
}
