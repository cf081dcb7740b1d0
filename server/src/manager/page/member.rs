//! The selected balancer or member on the page: state, forms and changes of state.

use super::balancer::state;
use super::edit_form::EditForm;
use super::parts::push_hidden;
use super::time::push_list_time;
use crate::admin::balancers::BalancerList;
use crate::admin::text_table::duration;
use crate::git::browse::render::html::Html;
use crate::manager::selection::Selection;
use balancer::MemberReport;
use balancer::settings::AdminState;

/// Appends the selected balancer or member, with the forms for a client that may edit.
pub(super) fn push_selected(
    page: &mut Html,
    list: &BalancerList,
    selection: &Selection<'_>,
    form: Option<&EditForm<'_>>,
) {
    let member = selection.member_report();
    page.markup("<section class=member aria-labelledby=selected><h2 id=selected>");
    page.text(selection.url().unwrap_or(selection.name()));
    page.markup("</h2>");
    if let Some(member) = member {
        page.markup("<p>Member of <b>").text(selection.name());
        page.markup("</b>, state <b>").text(state(member));
        page.markup("</b> since ");
        push_list_time(page, list, member.state_since_ms);
        page.markup(", set by the operator: <b>");
        page.text(member.admin.name()).markup("</b></p>");
        if let Some((outcome, at_ms)) = member.last_check {
            page.markup("<p>Last check at ");
            push_list_time(page, list, at_ms);
            page.markup(": <b>").text(outcome.to_string());
            page.markup("</b></p>");
        }
    }
    if let Some(form) = form {
        if let Some(member) = member {
            push_states(page, form, member.admin);
        }
        form.push(page);
        if member.is_some() && !selection.configured.is_own {
            page.markup("<form method=post action=\"/\" class=bar>");
            form.push_selectors(page);
            push_hidden(page, "remove", "1");
            page.markup("<button class=danger>Remove the member</button></form>");
        }
    }
    if let Some(member) = member {
        push_changes(page, list, member);
    }
    page.markup("</section>\n");
}

/// Appends a form with a button for each state but the present state. The hidden fields clear all states, and the
/// field of the button comes last and sets a state.
fn push_states(page: &mut Html, form: &EditForm<'_>, present: AdminState) {
    page.markup("<form method=post action=\"/\" class=bar>");
    let states = ["w_status_N", "w_status_D", "w_status_S"];
    form.push_selectors(page);
    states
        .iter()
        .for_each(|state| push_hidden(page, state, "0"));
    for (state, field, label, effect) in [
        (AdminState::Enabled, "", "Enable", "gets requests"),
        (
            AdminState::Draining,
            states[0],
            "Drain",
            "gets only the requests of its sessions",
        ),
        (
            AdminState::Disabled,
            states[1],
            "Disable",
            "gets no requests",
        ),
        (
            AdminState::Stopped,
            states[2],
            "Stop",
            "gets neither requests nor checks",
        ),
    ] {
        if state == present {
            continue;
        }
        page.markup("<button");
        if !field.is_empty() {
            page.markup(" value=1 name=").markup(field);
        }
        page.markup(" title=\"The member ").markup(effect);
        page.markup("\">").markup(label).markup("</button>");
    }
    page.markup("</form>");
}

/// Appends the last changes of a member's state.
fn push_changes(page: &mut Html, list: &BalancerList, member: &MemberReport) {
    if member.changes.is_empty() {
        return;
    }
    page.markup("<ul class=rows>");
    for change in member.changes.iter().rev() {
        let seconds = list.now_ms.saturating_sub(change.at_ms) / 1_000;
        page.markup("<li><span class=main>")
            .text(change.to_string());
        page.markup("</span><span class=side>")
            .text(duration(seconds));
        page.markup(" ago</span></li>");
    }
    page.markup("</ul>");
}
