//! The page of the manager: the server, its certificates, the balancers with their members, and the form of the
//! selected member. The page works without script.

use super::access::Visitor;
use super::channel::Snapshot;
use crate::admin::balancers::{BalancerList, COLUMNS, LEFT_COLUMNS};
use crate::admin::text_table::{bytes, count, duration};
use crate::base::clock::format_utc;
use crate::handler::git::browse::render::html::{self, Html};
use crate::upstream::balancer::{BalancerReport, MemberReport};
use crate::upstream::settings::AdminState;
use crate::wire::request_target::encode_value;

/// The page for one client.
pub(super) struct Page<'p> {
    /// State of the server.
    pub(super) snapshot: &'p Snapshot,
    /// Login of the client.
    pub(super) visitor: &'p Visitor,
    /// Token of the login; None for a client that may not edit.
    pub(super) token: Option<&'p str>,
    /// True if a user may log in by password.
    pub(super) has_users: bool,
    /// Balancer and member with a form.
    pub(super) selected: Option<(&'p str, &'p str)>,
    /// Reason why an edit was refused.
    pub(super) error: Option<&'p str>,
}

impl Snapshot {
    /// Returns the member with the URL `member`.
    pub(super) fn member(&self, balancer: &str, member: &str) -> Option<&MemberReport> {
        let mut balancers = self.balancers.balancers.iter();
        let balancer = balancers.find(|it| *it.settings.name == *balancer)?;
        let mut members = balancer.members.iter();
        members.find(|it| it.url.to_string() == member)
    }
}

impl Page<'_> {
    /// Renders the page.
    pub(super) fn html(&self) -> String {
        let status = &self.snapshot.status;
        let tables = self.snapshot.tables.get_or_init(|| tables(self.snapshot));
        let mut page = Html::with_capacity(tables.len() + 4_096);
        page.markup("<!doctype html>\n<html lang=en><meta charset=utf-8>")
            .markup("<meta name=viewport content=\"width=device-width,initial-scale=1\">")
            .markup("<title>Manager</title><link rel=stylesheet href=\"/style.css\">\n")
            .markup("<header><h1 class=path>Manager</h1><p class=about>anthill ")
            .text(status.version)
            .markup(", configuration ")
            .text(&status.configuration)
            .markup("</p>");
        self.push_login(&mut page);
        page.markup("</header>\n<main>\n");
        if let Some(error) = self.error {
            page.markup("<p class=error role=alert>").text(error);
            page.markup("</p>\n");
        }
        self.push_selected(&mut page);
        page.markup(tables)
            .markup("</main>\n<footer>anthill</footer>\n</html>\n");
        page.into_string()
    }

    /// Appends the name of the login with a button to log out, or the ways to log in.
    fn push_login(&self, page: &mut Html) {
        page.markup("<div class=login>");
        match self.visitor.name() {
            Some(name) => page
                .markup("<span>Logged in: <b>")
                .text(name)
                .markup("</b></span>"),
            None => page.markup("<span>Read only</span>"),
        };
        match (self.visitor, self.token) {
            (Visitor::Session(_), Some(token)) => {
                page.markup("<form method=post action=\"/logout\">");
                push_hidden(page, "nonce", token);
                page.markup("<button>Log out</button></form>");
            }
            (Visitor::Anonymous, _) if self.has_users => {
                page.markup("<a href=\"/login\">Log in</a>");
            }
            (Visitor::Anonymous, _) => {
                page.markup("<span>To edit: <code>anthill manager login</code></span>");
            }
            _ => {}
        }
        page.markup("</div>");
    }

    /// Appends the selected member with its changes of state, and the form for a client that may edit.
    fn push_selected(&self, page: &mut Html) {
        let Some((balancer, url)) = self.selected else {
            return;
        };
        let Some(member) = self.snapshot.member(balancer, url) else {
            return;
        };
        page.markup("<section class=member><h2>").text(url);
        page.markup("</h2><p>Member of <b>").text(balancer);
        page.markup("</b>, state <b>").text(member.state.name());
        page.markup("</b>, set by the operator: <b>");
        page.text(member.admin.name()).markup("</b></p>");
        if let Some(token) = self.token {
            push_form(page, token, balancer, url, member.admin);
        }
        push_changes(page, &self.snapshot.balancers, member);
        page.markup("</section>\n");
    }
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

fn push_hidden(page: &mut Html, name: &str, value: &str) {
    page.markup("<input type=hidden name=").markup(name);
    page.markup(" value=\"").text(value).markup("\">");
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

/// Renders the parts of the page that are equal for all clients.
fn tables(snapshot: &Snapshot) -> String {
    let mut page = Html::default();
    push_server(&mut page, snapshot);
    push_certificates(&mut page, snapshot);
    for balancer in &snapshot.balancers.balancers {
        push_balancer(&mut page, balancer);
    }
    page.into_string()
}

fn push_server(page: &mut Html, snapshot: &Snapshot) {
    let status = &snapshot.status;
    let part =
        |part: usize, whole: usize| format!("{} of {}", bytes(part as u64), bytes(whole as u64));
    let address = |(address, is_tls): &(std::net::SocketAddr, bool)| match is_tls {
        true => format!("https {address}"),
        false => format!("http {address}"),
    };
    let listening: Vec<String> = status.listening.iter().map(address).collect();
    let manager: Vec<String> = snapshot.listening.iter().map(address).collect();
    page.markup("<h2>Server</h2>\n<dl class=facts>");
    let facts = [
        ("Up", duration(status.up_seconds)),
        ("Process", status.pid.to_string()),
        ("Configuration", status.generation.to_string()),
        ("Workers", status.workers.to_string()),
        ("Listens on", listening.join(", ")),
        ("Manager on", manager.join(", ")),
        ("Connections", status.connections.to_string()),
        (
            "Content",
            part(status.content_bytes, status.content_bytes_max),
        ),
        ("Bodies", part(status.body_bytes, status.body_bytes_max)),
        (
            "Page cache",
            part(status.pages.bytes, status.pages.bytes_max),
        ),
        ("Log lines lost", count(status.log_lines_lost)),
    ];
    for (name, value) in facts {
        page.markup("<dt>").markup(name).markup("</dt><dd>");
        page.text(value).markup("</dd>");
    }
    page.markup("</dl>\n<details><summary>Counters</summary><dl class=facts>");
    for (name, value) in status.counters.iter().chain(&status.shares) {
        page.markup("<dt>").text(name.replace('_', " "));
        page.markup("</dt><dd>")
            .text(value.to_string())
            .markup("</dd>");
    }
    page.markup("</dl></details>\n");
}

fn push_certificates(page: &mut Html, snapshot: &Snapshot) {
    let certificates = &snapshot.status.certificates;
    if certificates.is_empty() {
        return;
    }
    page.markup("<h2 id=certificates>Certificates</h2>\n<div class=scroll>")
        .markup("<table aria-labelledby=certificates><thead><tr>");
    let columns = [
        ("Names", LEFT),
        ("Days left", RIGHT),
        ("Kind", LEFT),
        ("Renewal", LEFT),
    ];
    columns
        .iter()
        .for_each(|(name, open)| push_column(page, name, open));
    page.markup("</tr></thead><tbody>\n");
    for certificate in certificates {
        let kind = match (certificate.awaits_certificate, certificate.is_self_signed) {
            (true, _) => "self-signed, until the first certificate is issued",
            (false, true) => "self-signed",
            (false, false) => "issued",
        };
        let renewal = certificate
            .renewal
            .as_ref()
            .map(|renewal| match &renewal.failure {
                Some((at, why)) => format!("failed at {}: {why}", format_utc(*at)),
                None => format_utc(renewal.next),
            });
        page.markup("<tr><th scope=row>")
            .text(certificate.names.join(", "));
        page.markup("</th><td class=n>")
            .text(certificate.days_left.to_string());
        page.markup("</td><td>").markup(kind).markup("</td><td>");
        page.text(renewal.unwrap_or_default())
            .markup("</td></tr>\n");
    }
    page.markup("</tbody></table></div>\n");
}

/// Opening tags of the heads of columns: text at the left, numbers at the right.
const LEFT: &str = "th scope=col";
const RIGHT: &str = "th scope=col class=n";

fn push_column(page: &mut Html, name: &str, open: &str) {
    page.markup("<").markup(open).markup(">").text(name);
    page.markup("</th>");
}

fn push_balancer(page: &mut Html, balancer: &BalancerReport) {
    let settings = &balancer.settings;
    page.markup("<h2>").text(&*settings.name);
    page.markup("</h2>\n<p class=soft>Method ")
        .text(settings.method.name());
    if balancer.waiting > 0 {
        page.markup("; waiting requests: ")
            .text(balancer.waiting.to_string());
    }
    if balancer.are_checks_doubted {
        page.markup("; checks doubted: most members fail, so members with failed checks are tried");
    }
    page.markup("</p>\n<div class=scroll><table aria-label=\"Members of ");
    page.text(&*settings.name).markup("\"><thead><tr>");
    for (at, column) in COLUMNS.iter().enumerate() {
        let open = match LEFT_COLUMNS.contains(&at) {
            true => LEFT,
            false => RIGHT,
        };
        let (first, rest) = column.split_at(1);
        push_column(page, &(first.to_owned() + &rest.to_lowercase()), open);
    }
    page.markup("</tr></thead><tbody>\n");
    for member in &balancer.members {
        push_member(page, &settings.name, member);
    }
    page.markup("</tbody></table></div>\n");
}

fn push_member(page: &mut Html, balancer: &str, member: &MemberReport) {
    page.markup("<tr>");
    for (at, cell) in BalancerList::cells(member).iter().enumerate() {
        match at {
            0 => {
                page.markup("<th scope=row>");
                page.link(&selection(balancer, &member.url.to_string()), cell);
                page.markup("</th>");
            }
            _ if LEFT_COLUMNS.contains(&at) => {
                page.markup("<td>").text(cell).markup("</td>");
            }
            _ => {
                page.markup("<td class=n>").text(cell).markup("</td>");
            }
        }
    }
    page.markup("</tr>\n");
}

/// Returns the URL of the page with the form of a member.
pub(super) fn selection(balancer: &str, member: &str) -> String {
    let mut url = b"/?b=".to_vec();
    encode_value(balancer.as_bytes(), &mut url);
    url.extend_from_slice(b"&w=");
    encode_value(member.as_bytes(), &mut url);
    String::from_utf8_lossy(&url).into_owned()
}

/// Style sheet in two parts: the common style of generated pages, and the tables of the manager.
pub(super) const STYLE: [&str; 2] = [
    html::STYLE,
    "header,main,footer{max-width:84rem}\
     .login{display:flex;flex-wrap:wrap;gap:.3rem .8rem;align-items:baseline;margin-top:.4rem;color:var(--soft)}\
     .error{white-space:pre-wrap;background:var(--minus);color:var(--minus-text);border-radius:8px;padding:.5rem .8rem}\
     .path{margin:0}.member h2{margin:.4rem 0}\
     .member{border:1px solid var(--line);border-radius:8px;padding:.2rem 1rem .8rem}\
     .scroll table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\
     .scroll th,.scroll td{padding:.3rem .7rem;text-align:left;white-space:nowrap;border-bottom:1px solid var(--line)}\
     .scroll .n{text-align:right}\
     thead th,dt{font-weight:400;color:var(--soft)}\
     button{font:inherit;color:var(--link);background:var(--shade);border:1px solid var(--line);border-radius:6px;padding:.2rem .8rem;cursor:pointer}\
     summary{cursor:pointer;color:var(--soft)}",
];
