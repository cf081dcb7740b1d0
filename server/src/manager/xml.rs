//! The balancers as XML, with the elements of Apache's balancer-manager (`?xml=1`), for programs that read the
//! XML of Apache.

use super::gzip::SharedText;
use crate::admin::balancers::BalancerList;
use crate::config::shown_url;
use crate::git::browse::render::html::Html;
use balancer::settings::{AdminState, MemberHost, MemberRole};
use balancer::{BalancerReport, MemberReport, MemberState};
use std::mem::take;

/// Renders the balancers once for all clients. For clients that may edit, each place of the token divides the text; the
/// token of a client stands between each two pieces.
pub(super) fn xml(list: &BalancerList, has_token: bool) -> Vec<SharedText> {
    let mut pieces = Vec::new();
    let mut out = Html::default();
    out.markup("<?xml version='1.0' encoding='UTF-8' ?>\n")
        .markup("<httpd:manager xmlns:httpd='http://httpd.apache.org'>\n  <httpd:balancers>\n");
    for balancer in &list.balancers {
        out.markup("    <httpd:balancer>\n");
        let name = format!("balancer://{}", balancer.settings.name);
        push(&mut out, "      ", "name", &name);
        if has_token {
            out.markup("      <httpd:nonce>");
            pieces.push(take(&mut out).into_string().into());
            out.markup("</httpd:nonce>\n");
        }
        push_balancer(&mut out, balancer);
    }
    out.markup("  </httpd:balancers>\n</httpd:manager>\n");
    pieces.push(out.into_string().into());
    pieces
}

/// Appends an element with a text.
fn push(out: &mut Html, indent: &str, name: &str, text: &str) {
    out.markup(indent).markup("<httpd:").markup(name);
    out.markup(">").text(text).markup("</httpd:");
    out.markup(name).markup(">\n");
}

fn on_off(is_on: bool) -> String {
    if is_on { "On" } else { "Off" }.to_owned()
}

/// Appends the elements of a balancer after the name and the token.
fn push_balancer(out: &mut Html, balancer: &BalancerReport) {
    let settings = &balancer.settings;
    let indent = "      ";
    if let Some(sticky) = &settings.sticky {
        push(out, indent, "stickysession", &sticky.cookie);
        push(out, indent, "nofailover", &on_off(sticky.is_strict));
    }
    let timeout = settings.connection.queue_timeout.as_secs();
    push(out, indent, "timeout", &timeout.to_string());
    let attempts = settings.retry.attempts_max.to_string();
    push(out, indent, "maxattempts", &attempts);
    push(out, indent, "lbmethod", settings.method.name());
    if settings.sticky.is_some() {
        push(out, indent, "scolonpathdelim", "Off");
    }
    out.markup("      <httpd:workers>\n");
    for member in &balancer.members {
        push_worker(out, balancer, member);
    }
    out.markup("      </httpd:workers>\n    </httpd:balancer>\n");
}

fn push_worker(out: &mut Html, balancer: &BalancerReport, member: &MemberReport) {
    let connection = &balancer.settings.connection;
    let scheme = if member.url.is_tls { "https" } else { "http" };
    let (host, port) = match &member.url.host {
        MemberHost::Address(address) => (address.ip().to_string(), address.port()),
        MemberHost::Name(name, port) => (name.to_string(), *port),
        MemberHost::Unix(path) => (path.display().to_string(), 0),
    };
    let factor = format!("{}.{:02}", member.weight / 100, member.weight % 100);
    let connections = connection.idle_max.to_string();
    out.markup("        <httpd:worker>\n");
    for (name, text) in [
        ("name", shown_url(&member.url)),
        ("scheme", scheme.to_owned()),
        ("hostname", host),
        ("loadfactor", factor.clone()),
        ("port", port.to_string()),
        ("min", "0".to_owned()),
        ("smax", connections.clone()),
        ("max", connections),
        ("ttl", connection.idle_timeout.as_secs().to_string()),
        ("status", status(member)),
        ("retries", member.retries.to_string()),
        ("lbstatus", member.load_status.to_string()),
        ("loadfactor", factor),
        ("transferred", member.sent_bytes.to_string()),
        ("read", member.received_bytes.to_string()),
        ("elected", member.elected.to_string()),
        ("route", member.route.to_string()),
        ("redirect", member.redirect.to_string()),
        ("busy", member.busy.to_string()),
        ("lbset", member.set.to_string()),
    ] {
        push(out, "          ", name, &text);
    }
    out.markup("        </httpd:worker>\n");
}

/// Returns the state in Apache's words, each with a space at the end.
fn status(member: &MemberReport) -> String {
    let mut out = "Init ".to_owned();
    for (is_set, word) in [
        (member.ignores_errors, "Ign "),
        (member.admin == AdminState::Draining, "Drn "),
        (member.admin == AdminState::Disabled, "Dis "),
        (member.admin == AdminState::Stopped, "Stop "),
        (member.state == MemberState::Ejected, "Err "),
        (member.role == MemberRole::Standby, "Stby "),
        (member.is_check_failed, "HcFl "),
        (member.role == MemberRole::Spare, "Spar "),
        (member.state.is_usable(), "Ok "),
    ] {
        if is_set {
            out.push_str(word);
        }
    }
    out
}
