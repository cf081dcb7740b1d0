//! A balancer on the page, with a table of its members.

use super::parts::{RIGHT, close_table, label_rules, open_scroll, push_column, push_number};
use super::ticks::{push_tick, push_tick_bar, tick_form};
use super::time::push_list_time;
use crate::admin::balancers::{BalancerList, short_url};
use crate::admin::edit_value::{EDITABLE_VALUES, EditScope};
use crate::admin::edited_balancer::{CheckParts, CheckWord, EditedBalancer};
use crate::admin::metrics::history::BalancerPast;
use crate::admin::text_table::{bytes, count, per_second, rate};
use crate::admin::value_text::{duration_text, weight_text};
use crate::config::limits::CONFIG_MEMBERS_MAX;
use crate::config::shown_url;
use crate::git::browse::render::html::Html;
use crate::manager::access::Rights;
use crate::manager::live_part::Sections;
use crate::manager::snapshot::Snapshot;
use balancer::{BalancerReport, LatencyBuckets, MemberReport, MemberState};
use wire::request_target::encode_value;

/// Groups of columns of the table of members: the name of the group, and the columns. A group without columns is one
/// column with text. All columns of Apache's balancer-manager are there.
const GROUPS: [(&str, &[&str]); 8] = [
    ("Member", &[]),
    ("State", &[]),
    (
        "Requests",
        &["Rate", "Busy", "Elected", "Errors", "Retries"],
    ),
    (
        LATENCY,
        &["Median \u{2264}", "90 % \u{2264}", "99 % \u{2264}"],
    ),
    ("Bytes", &["Sent", "Received"]),
    ("Share", &["Weight", "Set", "Load"]),
    ("Route", &[]),
    ("Checks", &[]),
];

/// Group of the latencies.
const LATENCY: &str = "Latency in ms";
/// Thousandths of the latencies in the table.
const LATENCY_THOUSANDTHS: [u64; 3] = [500, 900, 990];

/// Appends a section for each balancer. Clients that may edit get a box for each member.
pub(super) fn push_balancers(page: &mut Sections, snapshot: &Snapshot, rights: Rights) {
    let list = &snapshot.balancers;
    for (number, report) in list.balancers.iter().enumerate() {
        let mut configured = snapshot.edits.configured.iter();
        let name = &report.settings.name;
        if let Some(configured) = configured.find(|it| it.settings.name == *name) {
            let edited = snapshot.edited(configured, report);
            let paths = &configured.paths;
            let mut past = snapshot.history.balancers.iter();
            let past = past.find(|it| it.name == *name);
            let form = (rights == Rights::Edit).then(|| tick_form(name));
            page.section(&section_id(number), |html| {
                push_balancer(html, report, &edited, paths);
                let table = MemberTable {
                    list,
                    balancer: report,
                    edited: &edited,
                    past,
                    form: form.as_deref(),
                };
                table.push(html);
            });
        }
    }
}

/// Returns the id of the section of a balancer.
fn section_id(number: usize) -> String {
    format!("balancer-{number}")
}

/// Returns the URL of the table of a balancer's members.
pub(in crate::manager) fn table_url(list: &BalancerList, balancer: &str) -> String {
    let mut names = list.balancers.iter().map(|it| &*it.settings.name);
    let number = names.position(|name| name == balancer);
    number.map_or_else(|| "/".to_owned(), |it| format!("/#live-{}", section_id(it)))
}

/// Appends the name and the values of a balancer.
fn push_balancer(
    page: &mut Html,
    balancer: &BalancerReport,
    edited: &EditedBalancer,
    paths: &[String],
) {
    let name = &balancer.settings.name;
    page.markup("<h2>")
        .link(&selection_url(name, None), &**name);
    page.markup("</h2>\n<dl class=\"facts inline\">");
    push_facts(page, balancer, edited, paths);
    page.markup("</dl>\n");
    if balancer.are_checks_doubted {
        page.markup("<p class=note>Checks doubted: ");
        page.markup(balancer.doubt_text()).markup("</p>\n");
    }
}

/// Table of the members of a balancer.
struct MemberTable<'t> {
    list: &'t BalancerList,
    balancer: &'t BalancerReport,
    edited: &'t EditedBalancer,
    past: Option<&'t BalancerPast>,
    /// Id of the form of the ticked members; None for clients that may not edit.
    form: Option<&'t str>,
}

impl MemberTable<'_> {
    /// Appends the table.
    fn push(&self, page: &mut Html) {
        let name = &self.balancer.settings.name;
        open_scroll(page, &format!("Table of the members of {name}"));
        page.markup("<table class=\"cards members\" aria-label=\"Members of ");
        page.text(&**name).markup("\"><thead>");
        push_columns(page);
        page.markup("</thead><tbody>\n");
        for (nth, member) in self.balancer.members.iter().enumerate() {
            let rate = requests_per_second(self.past, nth, member);
            self.push_member(page, member, &rate);
        }
        close_table(page);
        if let Some(form) = self.form {
            push_tick_bar(page, form, name);
        }
    }

    fn push_member(&self, page: &mut Html, member: &MemberReport, rate: &str) {
        let (balancer, edited) = (&self.balancer.settings.name, self.edited);
        let url = shown_url(&member.url);
        let short = short_url(&member.url);
        page.markup("<tr><th scope=row>");
        if let Some(form) = self.form {
            push_tick(page, form, &url, &short);
        }
        page.link(&selection_url(balancer, Some(&url)), &short);
        let class = state_class(member.state);
        page.markup("</th><td class=").markup(class).markup(">");
        page.text(state(member)).markup("<small>since ");
        push_list_time(page, self.list, member.state_since_ms);
        if let Some(change) = member.changes.last() {
            page.markup(", ").text(change.to_string());
        }
        page.markup("</small>");
        push_cell(page, "", "", &self.list.lasting_details(member));
        page.markup("</td>");
        let [p50, p90, p99] =
            LATENCY_THOUSANDTHS.map(|part| latency_bound(&member.latencies, part));
        for number in [
            rate,
            &count(member.busy as u64),
            &count(member.elected),
            &count(member.errors),
            &count(member.retries),
            &p50,
            &p90,
            &p99,
            &bytes(member.sent_bytes),
            &bytes(member.received_bytes),
            &weight_text(member.weight),
            &member.set.to_string(),
            &member.load_status.to_string(),
        ] {
            push_number(page, number);
        }
        let redirect = Some(&*member.redirect).filter(|it| !it.is_empty());
        let redirect = redirect.map(|redirect| format!("replaced by {redirect}"));
        let redirect: Vec<String> = redirect.into_iter().collect();
        push_cell(page, "<td>", &member.route, &redirect);
        let check = edited.member_at(&url).map(|at| &edited.checks[at]);
        let (check, details) = check.map_or_else(Default::default, |it| check_texts(member, it));
        push_cell(page, "</td><td>", &check, &details);
        page.markup("</td></tr>\n");
    }
}

/// Appends the values of a balancer.
fn push_facts(
    page: &mut Html,
    balancer: &BalancerReport,
    edited: &EditedBalancer,
    paths: &[String],
) {
    let fact = |page: &mut Html, name: &str, text: &str| {
        let (open, text) = match text {
            "" => ("<div class=none><dt>", "-"),
            text => ("<div><dt>", text),
        };
        page.markup(open).text(name).markup("</dt><dd>");
        page.text(text).markup("</dd></div>\n");
    };
    let members = format!("{} of at most {CONFIG_MEMBERS_MAX}", balancer.members.len());
    fact(page, "Members", &members);
    for value in &EDITABLE_VALUES {
        if value.scope() == EditScope::Balancer {
            fact(page, &value.label(), &value.get(edited, 0));
        }
    }
    fact(page, "Path", &paths.join(", "));
    let is_active = if paths.is_empty() { "no" } else { "yes" };
    fact(page, "Active", is_active);
    if balancer.waiting > 0 {
        fact(page, "Waiting requests", &balancer.waiting.to_string());
    }
}

/// Appends the two rows with the names of the columns.
fn push_columns(page: &mut Html) {
    page.markup("<tr>");
    for (name, columns) in GROUPS {
        match columns.len() {
            0 => push_column(page, name, "th scope=col rowspan=2"),
            count => {
                let open = format!("th scope=colgroup class=g colspan={count}");
                push_column(page, name, &open);
            }
        }
    }
    page.markup("</tr><tr>");
    for name in GROUPS.iter().flat_map(|(_, columns)| *columns) {
        push_column(page, name, RIGHT);
    }
    page.markup("</tr>");
}

/// Returns the rules of the style sheet with the labels of the cards of members.
pub(super) fn member_label_rules() -> String {
    // The first group is the title of a card.
    let labels = GROUPS[1..].iter().flat_map(|(group, columns)| {
        let is_latency = *group == LATENCY;
        let one = columns.is_empty().then(|| (*group).to_owned());
        let more = columns.iter().map(move |column| match is_latency {
            true => format!("{column} ms"),
            false => (*column).to_owned(),
        });
        one.into_iter().chain(more)
    });
    let labels: Vec<String> = labels.collect();
    label_rules("members", labels.iter().map(String::as_str))
}

/// Returns the class of a state, for its colour.
fn state_class(state: MemberState) -> &'static str {
    match state {
        MemberState::Up => "up",
        MemberState::Ejected | MemberState::CheckFailed => "down",
        MemberState::Draining | MemberState::Disabled | MemberState::Stopped => "off",
    }
}

/// Opens a cell with a text and lines in small type.
fn push_cell(page: &mut Html, open: &str, text: &str, details: &[String]) {
    page.markup(open).text(text);
    for detail in details {
        page.markup("<small>").text(detail).markup("</small>");
    }
}

/// Returns the requests per second of a member in the last sample. Only the first members of the server have samples.
fn requests_per_second(past: Option<&BalancerPast>, nth: usize, member: &MemberReport) -> String {
    let members = past.map_or(&[][..], |past| &past.members);
    let url = member.url.to_string();
    // Mostly, the samples have the order of the members.
    let mut likely = members.iter().skip(nth).take(1).chain(members);
    let requests = likely.find(|(known, _)| **known == *url);
    requests.map_or_else(|| "-".to_owned(), |it| rate(per_second(it.1)))
}

/// Returns the end of the bucket with a percentile of the latencies, in milliseconds.
pub(super) fn latency_bound(latencies: &LatencyBuckets, thousandths: u64) -> String {
    match latencies.percentile_bound(thousandths) {
        None => "-".to_owned(),
        Some((end, false)) => milliseconds(end),
        Some((end, true)) => format!("> {}", milliseconds(end)),
    }
}

/// Returns a duration in milliseconds, with a decimal below 10 ms.
fn milliseconds(micros: u64) -> String {
    match micros {
        ..10_000 => format!("{}.{}", micros / 1_000, micros / 100 % 10),
        _ => count(micros / 1_000),
    }
}

/// Returns the state of a member, with the requests that a draining member still holds.
pub(super) fn state(member: &MemberReport) -> String {
    let name = member.state.name();
    let ignores = if member.ignores_errors {
        ", ignores errors"
    } else {
        ""
    };
    match (member.state, member.busy) {
        (MemberState::Up, _) | (_, 0) => format!("{name}{ignores}"),
        (_, busy) => format!(
            "{name}{ignores}, requests under way: {}",
            count(busy as u64)
        ),
    }
}

/// Returns the kind of the checks, and their values. The numbers of passed and failed checks follow the bounds in
/// parentheses, as on Apache's page.
fn check_texts(member: &MemberReport, check: &CheckParts) -> (String, Vec<String>) {
    let name = check.method.name();
    if check.method == CheckWord::Off {
        return (name.to_owned(), Vec::new());
    }
    let path = if check.method == CheckWord::Tcp {
        ""
    } else {
        &*check.path
    };
    let (passed, failed) = (count(member.checks_passed), count(member.checks_failed));
    let mut details = vec![
        format!("every {}", duration_text(check.every)),
        format!(
            "passes {} ({passed}), fails {} ({failed})",
            check.rise, check.fall
        ),
    ];
    if let Some((outcome, _)) = member.last_check {
        details.push(format!("last: {outcome}"));
    }
    if check.method != CheckWord::Tcp && !check.expression.is_empty() {
        details.push(format!("expression {}", check.expression));
    }
    (format!("{name} {path}"), details)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_end_of_a_bucket() {
        let mut latencies = LatencyBuckets::default();
        assert_eq!(latency_bound(&latencies, 500), "-");
        let ends = [
            "0.5", "1.0", "2.5", "1000", "2500", "5000", "10000", "> 10000",
        ];
        let buckets = [0, 1, 2, 10, 11, 12, 13, 14];
        for (bucket, expected) in buckets.into_iter().zip(ends) {
            latencies.counts = Default::default();
            latencies.counts[bucket] = 1;
            assert_eq!(latency_bound(&latencies, 990), expected, "{bucket}");
        }
    }
}
