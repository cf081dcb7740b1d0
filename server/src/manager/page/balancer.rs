//! A balancer on the page, with a table of its members.

use super::parts::{LEFT, RIGHT, open_scroll, push_column};
use crate::admin::balancers::{BalancerList, latency, short_url};
use crate::admin::edit_value::{EDITABLE_VALUES, EditScope};
use crate::admin::edited_balancer::{CheckParts, CheckWord, EditedBalancer};
use crate::admin::text_table::{bytes, count};
use crate::admin::value_text::{duration_text, weight_text};
use crate::config::shown_url;
use crate::handler::git::browse::render::html::Html;
use crate::manager::live_part::Sections;
use crate::manager::snapshot::Snapshot;
use crate::upstream::balancer::{BalancerReport, MemberReport, MemberState};
use crate::wire::request_target::encode_value;

/// Columns of the table of members, each with true for text at the left. The columns of Apache's balancer-manager
/// come first, then errors, retries and latency, then the checks.
const COLUMNS: [(&str, bool); 20] = [
    ("Member", true),
    ("State", true),
    ("Weight", false),
    ("Set", false),
    ("Route", true),
    ("Redirect", true),
    ("Elected", false),
    ("Busy", false),
    ("Load", false),
    ("Sent", false),
    ("Received", false),
    ("Errors", false),
    ("Retries", false),
    ("Latency", false),
    ("Check", true),
    ("Interval", false),
    ("Passes", false),
    ("Fails", false),
    ("Path", true),
    ("Expression", true),
];

/// Appends a section for each balancer.
pub(super) fn push_balancers(page: &mut Sections, snapshot: &Snapshot) {
    let list = &snapshot.balancers;
    for (number, report) in list.balancers.iter().enumerate() {
        let mut configured = snapshot.edits.configured.iter();
        let name = &report.settings.name;
        if let Some(configured) = configured.find(|it| it.settings.name == *name) {
            let edited = snapshot.edited(configured, report);
            let push = |html: &mut Html| push_balancer(html, list, report, &edited);
            page.section(&format!("balancer-{number}"), push);
        }
    }
}

/// Appends a balancer with a table of its members.
fn push_balancer(
    page: &mut Html,
    list: &BalancerList,
    balancer: &BalancerReport,
    edited: &EditedBalancer,
) {
    let name = &balancer.settings.name;
    page.markup("<h2>")
        .link(&selection_url(name, None), &**name);
    page.markup("</h2>\n<dl class=\"facts inline\">");
    let fact = |page: &mut Html, name: &str, text: &str| {
        page.markup("<dt>").text(name).markup("</dt><dd>");
        page.text(if text.is_empty() { "-" } else { text })
            .markup("</dd>");
    };
    fact(page, "Members", &balancer.members.len().to_string());
    for value in &EDITABLE_VALUES {
        if value.scope == EditScope::Balancer {
            fact(page, &value.label(), &value.get(edited, 0));
        }
    }
    if balancer.waiting > 0 {
        fact(page, "Waiting requests", &balancer.waiting.to_string());
    }
    page.markup("</dl>\n");
    if balancer.are_checks_doubted {
        page.markup(
            "<p class=note>Checks doubted: most members fail, so members with failed checks are tried</p>\n",
        );
    }
    open_scroll(page, &format!("Table of the members of {name}"));
    page.markup("<table aria-label=\"Members of ");
    page.text(&**name).markup("\"><thead><tr>");
    for (column, is_text) in COLUMNS {
        push_column(page, column, if is_text { LEFT } else { RIGHT });
    }
    page.markup("</tr></thead><tbody>\n");
    for member in &balancer.members {
        push_member(page, list, name, member, edited);
    }
    page.markup("</tbody></table></div>\n");
}

fn push_member(
    page: &mut Html,
    list: &BalancerList,
    balancer: &str,
    member: &MemberReport,
    edited: &EditedBalancer,
) {
    let url = shown_url(&member.url);
    page.markup("<tr><th scope=row>");
    page.link(&selection_url(balancer, Some(&url)), short_url(&member.url));
    page.markup("</th><td>").text(state(member));
    for detail in list.details(member) {
        page.markup("<small>").text(detail).markup("</small>");
    }
    page.markup("</td>");
    let texts = [
        weight_text(member.weight),
        member.set.to_string(),
        member.route.to_string(),
        member.redirect.to_string(),
        count(member.elected),
        count(member.busy as u64),
        member.load_status.to_string(),
        bytes(member.sent_bytes),
        bytes(member.received_bytes),
        count(member.errors),
        count(member.retries),
        latency(member.latency_micros),
    ];
    let check = edited.member_at(&url).map(|at| &edited.checks[at]);
    let checks = check.map(|check| check_texts(member, check));
    let texts = texts.iter().chain(checks.iter().flatten());
    for ((_, is_text), text) in COLUMNS[2..].iter().zip(texts) {
        page.markup(if *is_text { "<td>" } else { "<td class=n>" });
        page.text(text).markup("</td>");
    }
    page.markup("</tr>\n");
}

/// Returns the state of a member, with the requests that a draining member still holds.
pub(super) fn state(member: &MemberReport) -> String {
    let name = member.state.name();
    let ignores = match member.ignores_errors {
        true => ", ignores errors",
        false => "",
    };
    match (member.state, member.busy) {
        (MemberState::Up, _) | (_, 0) => format!("{name}{ignores}"),
        (_, busy) => format!(
            "{name}{ignores}, requests under way: {}",
            count(busy as u64)
        ),
    }
}

/// Returns the texts of the columns about checks. The numbers of passed and failed checks follow the bounds in
/// parentheses, as on Apache's page.
fn check_texts(member: &MemberReport, check: &CheckParts) -> [String; 6] {
    let mut texts: [String; 6] = Default::default();
    texts[0] = check.method.name().to_owned();
    if check.method == CheckWord::Off {
        return texts;
    }
    texts[1] = duration_text(check.every);
    texts[2] = format!("{} ({})", check.rise, count(member.checks_passed));
    texts[3] = format!("{} ({})", check.fall, count(member.checks_failed));
    if check.method != CheckWord::Tcp {
        texts[4] = check.path.to_string();
        texts[5] = check.expression.to_string();
    }
    texts
}

/// Returns the URL of the page with the form of a balancer or of a member.
pub(in crate::manager) fn selection_url(balancer: &str, member: Option<&str>) -> String {
    let mut url = b"/?b=".to_vec();
    encode_value(balancer.as_bytes(), &mut url);
    if let Some(member) = member {
        url.extend_from_slice(b"&w=");
        encode_value(member.as_bytes(), &mut url);
    }
    String::from_utf8_lossy(&url).into_owned()
}
