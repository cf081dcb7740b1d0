//! The selected member on the page: state, form and changes of state.

use super::parts::push_hidden;
use crate::admin::balancers::BalancerList;
use crate::admin::text_table::duration;
use crate::handler::git::browse::render::html::Html;
use crate::upstream::balancer::MemberReport;
use crate::upstream::settings::AdminState;
use crate::wire::request_target::encode_value;

/// Appends a member with its changes of state, and the form for a client with the token of a login.
pub(super) fn push_selected(
    page: &mut Html,
    list: &BalancerList,
    (balancer, member): (&str, &MemberReport),
    token: Option<&str>,
) {
    let url = member.url.to_string();
    page.markup("<section class=member><h2>").text(&url);
    page.markup("</h2><p>Member of <b>").text(balancer);
    page.markup("</b>, state <b>").text(member.state.name());
    page.markup("</b>, set by the operator: <b>");
    page.text(member.admin.name()).markup("</b></p>");
    if let Some(token) = token {
        push_form(page, token, balancer, &url, member.admin);
    }
    push_changes(page, list, member);
    page.markup("</section>\n");
}

/// Appends a form with a button for each state but the present state. The hidden fields clear all states, and the
/// field of the button comes last and sets a state.
fn push_form(page: &mut Html, token: &str, balancer: &str, member: &str, present: AdminState) {
    page.markup("<form method=post action=\"/\" class=bar>");
    let states = ["w_status_N", "w_status_D", "w_status_S"];
    let fields = [("b", balancer), ("w", member), ("nonce", token)];
    let cleared = states.iter().map(|state| (*state, "0"));
    for (name, value) in fields.into_iter().chain(cleared) {
        push_hidden(page, name, value);
    }
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

/// Returns the URL of the page with the form of a member.
pub(in crate::manager) fn selection(balancer: &str, member: &str) -> String {
    let mut url = b"/?b=".to_vec();
    encode_value(balancer.as_bytes(), &mut url);
    url.extend_from_slice(b"&w=");
    encode_value(member.as_bytes(), &mut url);
    String::from_utf8_lossy(&url).into_owned()
}
