//! Edits of several members at once: a box for each member, and a bar with the edits of the ticked members.
//!
//! The boxes and the bar are in the part of the page that all clients with the right to edit share, and so have no token.
//! They belong, by the attribute `form`, to a form in the part of the client, which has the token.

use super::parts::push_hidden;
use crate::admin::balancers::BalancerList;
use crate::git::browse::render::html::Html;
use wire::request_target::encode_value;

/// Returns the id of the form for the ticked members of a balancer, without spaces.
pub(super) fn tick_form(balancer: &str) -> String {
    let mut id = b"ticked-".to_vec();
    encode_value(balancer.as_bytes(), &mut id);
    String::from_utf8_lossy(&id).into_owned()
}

/// Appends an invisible form for each balancer. The hidden fields clear all states, and the field of a button comes last
/// and sets a state. The enter key in a box presses the first button of the form, which does nothing: outside of a dialog,
/// the method `dialog` sends no request (WHATWG HTML §4.10.22.3). Browsers restore no ticks after a load, since the rows
/// may have other members by then.
pub(super) fn push_tick_forms(page: &mut Html, list: &BalancerList, token: &str) {
    for balancer in &list.balancers {
        let name = &balancer.settings.name;
        page.markup("<form method=post action=\"/\" autocomplete=off hidden id=\"");
        page.text(tick_form(name))
            .markup("\"><button formmethod=dialog></button>");
        push_hidden(page, "b", name);
        push_hidden(page, "ticked", "1");
        for state in ["w_status_N", "w_status_D", "w_status_S"] {
            push_hidden(page, state, "0");
        }
        push_hidden(page, "nonce", token);
        page.markup("</form>\n");
    }
}

/// Appends the box of a member.
pub(super) fn push_tick(page: &mut Html, form: &str, url: &str, label: &str) {
    page.markup("<input type=checkbox name=w value=\"")
        .text(url);
    page.markup("\" form=\"").text(form);
    page.markup("\" aria-label=\"Tick ")
        .text(label)
        .markup("\">");
}

/// Appends the bar with the edits of the ticked members of a balancer.
pub(super) fn push_tick_bar(page: &mut Html, form: &str, balancer: &str) {
    page.markup("<p class=\"bar ticked\" role=group aria-label=\"Ticked members of ");
    page.text(balancer)
        .markup("\"><span>Ticked members:</span>");
    for (field, label) in [
        ("w_status_N", "Drain"),
        ("w_status_D", "Disable"),
        ("", "Enable"),
    ] {
        page.markup("<button form=\"").text(form).markup("\"");
        if !field.is_empty() {
            page.markup(" value=1 name=").markup(field);
        }
        page.markup(">").markup(label).markup("</button>");
    }
    page.markup("</p>\n");
}
