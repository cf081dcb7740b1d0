//! The server's half of the page: state, charts, sites, refusals, certificates and counters.

use super::chart::{Chart, ChartLines, minutes};
use super::parts::{LEFT, RIGHT, Table, close_table, push_number};
use super::time::push_time;
use crate::admin::metrics::history::Sample;
use crate::admin::status::{RenewalStatus, StatusAddress};
use crate::admin::text_table::{bytes, count, duration, micros, per_second, rate};
use crate::git::browse::render::html::Html;
use crate::manager::limits::MANAGER_BALANCER_CHARTS_MAX;
use crate::manager::snapshot::Snapshot;
use wire::reject::Reject;

/// Appends the present figures of the server.
pub(super) fn push_server(page: &mut Html, snapshot: &Snapshot) {
    let (status, facts) = (&snapshot.status, &snapshot.facts);
    let listening = addresses(&status.listening);
    let manager = addresses(&status.manager);
    page.markup("<h2>Server</h2>\n<p class=soft>Listens on ");
    page.text(listening).markup("; manager on ");
    page.text(manager).markup("</p>\n<dl class=tiles>");
    let last = snapshot.history.samples.last().copied();
    let last = last.unwrap_or_default();
    let versions = status.connections_by_version();
    let versions = versions.map(|number| number.to_string());
    let tiles = [
        ("Requests", rate(per_second(last.requests))),
        ("Errors (5xx)", rate(per_second(last.errors))),
        ("Latency, 99 %", micros(last.latency_micros[2].into())),
        ("Connections", status.connections.to_string()),
        ("HTTP/1.1, 2, 3", versions.join(", ")),
        ("Memory", bytes(facts.process.resident_bytes)),
        ("Up", duration(status.up_seconds)),
        ("Workers", status.workers.to_string()),
        ("Configuration", status.generation.to_string()),
        ("Process", status.pid.to_string()),
        (
            "Contents",
            part(status.content_bytes, status.content_bytes_max),
        ),
        ("Bodies", part(status.body_bytes, status.body_bytes_max)),
        (
            "Page cache",
            part(status.pages.bytes, status.pages.bytes_max),
        ),
    ];
    for (name, value) in tiles {
        push_tile(page, name, &value);
    }
    for (_, sensor, millidegrees) in &facts.machine.temperatures {
        let degrees = format!("{} \u{b0}C", millidegrees / 1_000);
        push_tile(page, &format!("Temperature, {sensor}"), &degrees);
    }
    if let Some(events) = facts.machine.throttle_events {
        push_tile(page, "Throttled by heat", &format!("{events} times"));
    }
    page.markup("</dl>\n");
}

fn push_tile(page: &mut Html, name: &str, value: &str) {
    page.markup("<div><dt>").text(name).markup("</dt><dd>");
    page.text(value).markup("</dd></div>\n");
}

fn addresses(list: &[StatusAddress]) -> String {
    let address = |listener: &StatusAddress| {
        let scheme = if listener.is_secure { "https" } else { "http" };
        let mut shown = format!("{scheme} {}", listener.address);
        if !listener.sites.is_empty() {
            shown += &format!(" (site {})", listener.sites.join(", "));
        }
        shown
    };
    list.iter().map(address).collect::<Vec<_>>().join(", ")
}

fn part(part: usize, whole: usize) -> String {
    format!("{} of {}", bytes(part as u64), bytes(whole as u64))
}

/// Appends the charts of the last minutes.
pub(super) fn push_charts(page: &mut Html, snapshot: &Snapshot) {
    let history = &snapshot.history;
    let values = |value: &dyn Fn(&Sample) -> u64| history.samples.iter().map(value).collect();
    let latency = |nth: usize| values(&|it| it.latency_micros[nth].into());
    page.markup("<h2>Last ");
    page.text(minutes(history.samples.len()).to_string());
    page.markup(" minutes</h2>\n<div class=charts>");
    let mut push = |title: &str, id: &str, format: fn(u64) -> String, lines: &ChartLines| {
        let chart = Chart {
            id,
            title,
            format,
            lines,
        };
        chart.push(page);
    };
    let requests = values(&|it| per_second(it.requests));
    let errors = values(&|it| per_second(it.errors));
    push(
        "Requests",
        "requests",
        rate,
        &[("all", requests), ("errors", errors)],
    );
    let latencies = [
        ("50 %", latency(0)),
        ("90 %", latency(1)),
        ("99 %", latency(2)),
    ];
    push("Latency", "latency", micros, &latencies);
    let connections = values(&|it| it.connections.into());
    push(
        "Connections",
        "connections",
        count,
        &[("open", connections)],
    );
    let memory = values(&|it| u64::from(it.resident_kib) * 1_024);
    push("Memory", "memory", bytes, &[("resident", memory)]);
    let balancers = history.balancers.iter().take(MANAGER_BALANCER_CHARTS_MAX);
    for (number, balancer) in balancers.enumerate() {
        let rates = |nth: fn(&(u32, u32)) -> u32| {
            let intervals = balancer.intervals.iter();
            intervals.map(|it| per_second(nth(it))).collect()
        };
        let lines = [("requests", rates(|it| it.0)), ("errors", rates(|it| it.1))];
        let title = format!("Balancer {}", balancer.name);
        push(&title, &format!("balancer-{number}"), rate, &lines);
    }
    page.markup("</div>\n");
}

/// Columns of the responses of the sites.
pub(super) const SITES: Table = Table {
    class: "sites",
    columns: &[
        ("Site", LEFT),
        ("HTTP/1.0", RIGHT),
        ("HTTP/1.1", RIGHT),
        ("HTTP/2", RIGHT),
        ("HTTP/3", RIGHT),
        ("2xx", RIGHT),
        ("3xx", RIGHT),
        ("4xx", RIGHT),
        ("5xx", RIGHT),
        ("Sent", RIGHT),
        ("From cache", RIGHT),
    ],
    has_titles: true,
};
/// Columns of the page views.
pub(super) const HITS: Table = Table {
    class: "hits",
    columns: &[
        ("Site", LEFT),
        ("Today", RIGHT),
        ("Bots today", RIGHT),
        ("Last 7 days", RIGHT),
    ],
    has_titles: true,
};
/// Columns of the refusals.
pub(super) const REFUSALS: Table = Table {
    class: "refusals",
    columns: &[("Rule", LEFT), ("Status", RIGHT), ("Requests", RIGHT)],
    has_titles: true,
};
/// Columns of the certificates.
pub(super) const CERTIFICATES: Table = Table {
    class: "certificates",
    columns: &[
        ("Names", LEFT),
        ("Days left", RIGHT),
        ("Kind", LEFT),
        ("Renewal", LEFT),
    ],
    has_titles: true,
};

/// Opens a part of the page that the reader may fold, with its heading. A script folds the parts on a narrow screen, where the
/// cards of all parts are several screens long.
fn open_fold(page: &mut Html, heading: &'static str) {
    page.markup("<details class=fold open><summary><h2>")
        .markup(heading)
        .markup("</h2></summary>\n");
}

/// Appends the responses of each site by class of the status and version of HTTP. Requests without a site come last.
pub(super) fn push_sites(page: &mut Html, snapshot: &Snapshot) {
    open_fold(page, "Sites");
    SITES.open(page, "Responses of the sites", usize::MAX);
    let mut sites = snapshot.facts.sites();
    sites.sort_by_key(|site| site.name.is_empty());
    for site in sites {
        page.markup("<tr><th scope=row>").text(site.name);
        if site.name.is_empty() {
            page.markup("without a site<small>manager, unknown hosts, malformed requests</small>");
        }
        page.markup("</th>");
        for number in site.versions.iter().chain(&site.classes[1..]) {
            push_number(page, &count(*number));
        }
        push_number(page, &bytes(site.sent_bytes));
        push_number(page, &count(site.from_cache));
        page.markup("</tr>\n");
    }
    close_table(page);
    page.markup("</details>\n");
}

/// Appends the page views of the sites that count views.
pub(super) fn push_hits(page: &mut Html, snapshot: &Snapshot) {
    if snapshot.hits.is_empty() {
        return;
    }
    open_fold(page, "Page views");
    HITS.open(page, "Page views of the sites", usize::MAX);
    for site in &snapshot.hits {
        page.markup("<tr><th scope=row>").text(&site.site);
        page.markup("</th>");
        for number in [site.today, site.bots_today, site.week] {
            push_number(page, &count(number));
        }
        page.markup("</tr>\n");
    }
    close_table(page);
    page.markup("</details>\n");
}

/// Appends the numbers of refused requests by rule, with the words of each rule.
pub(super) fn push_refusals(page: &mut Html, snapshot: &Snapshot) {
    let refusals = Reject::ALL.iter().zip(&snapshot.facts.refusals);
    let refusals: Vec<_> = refusals.filter(|(_, number)| **number > 0).collect();
    if refusals.is_empty() {
        return;
    }
    open_fold(page, "Refusals");
    REFUSALS.open(page, "Refused requests by rule", usize::MAX);
    for (rule, number) in refusals {
        page.markup("<tr><th scope=row>R")
            .text(rule.rule.to_string());
        page.markup(" <span class=soft>").text(rule.reason);
        page.markup("</span></th>");
        push_number(page, &rule.status.0.to_string());
        push_number(page, &count(*number));
        page.markup("</tr>\n");
    }
    close_table(page);
    page.markup("</details>\n");
}

/// Appends the counters of the workers, folded up.
pub(super) fn push_counters(page: &mut Html, snapshot: &Snapshot) {
    let status = &snapshot.status;
    page.markup("<details><summary>Counters</summary><dl class=counters>");
    let lost = [
        ("log_lines_lost", status.log_lines_lost),
        ("datagrams_lost", status.datagrams_lost),
    ];
    for (name, value) in status.counters.iter().chain(&status.shares).chain(&lost) {
        push_tile(page, &name.replace('_', " "), &value.to_string());
    }
    page.markup("</dl></details>\n");
}

/// Appends the certificates with the days left.
pub(super) fn push_certificates(page: &mut Html, snapshot: &Snapshot) {
    let certificates = &snapshot.status.certificates;
    if certificates.is_empty() {
        return;
    }
    open_fold(page, "Certificates");
    CERTIFICATES.open(page, "Certificates", usize::MAX);
    for certificate in certificates {
        let kind = match (certificate.awaits_certificate, certificate.is_self_signed) {
            (true, _) => "self-signed, until the first certificate is issued",
            (false, true) => "self-signed",
            (false, false) => "issued",
        };
        page.markup("<tr><th scope=row>")
            .text(certificate.names.join(", "));
        page.markup("</th>");
        push_number(page, &certificate.days_left.to_string());
        page.markup("<td>").markup(kind).markup("</td><td>");
        match &certificate.renewal {
            None => {}
            Some(RenewalStatus {
                failure: Some((at, why)),
                ..
            }) => {
                page.markup("failed at ");
                push_time(page, *at);
                page.markup(": ").text(why);
            }
            Some(renewal) => push_time(page, renewal.next),
        }
        page.markup("</td></tr>\n");
    }
    close_table(page);
    page.markup("</details>\n");
}
