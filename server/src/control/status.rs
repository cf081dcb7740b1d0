//! `anthill status`: what the running server is doing, for people and as JSON.

use super::plane::ControlPlane;
use crate::acme::{AcmeReport, CertificateReport, format_utc};
use crate::base::clock;
use crate::tls::PairSummary;
use crate::wire::json::quoted;
use std::fmt::Write;

/// For people.
pub(super) fn text(plane: &ControlPlane) -> String {
    let facts = ServerStatus::of(plane);
    let mut out = String::new();
    let _ = writeln!(
        out,
        "anthill {}, process {}, up {}, configuration {} ({})",
        env!("CARGO_PKG_VERSION"),
        std::process::id(),
        duration(facts.up_seconds),
        plane.world.generation,
        plane.config.shown
    );
    for (address, secure) in plane.listeners.bound() {
        let _ = writeln!(
            out,
            "  {} {address}",
            if secure { "https" } else { "http " }
        );
    }
    let totals = plane.stats.totals();
    let _ = writeln!(out, "  {:<24} {}", "connections", totals.connections());
    for (name, _, value) in totals.each() {
        let _ = writeln!(out, "  {:<24} {value}", name.replace('_', " "));
    }
    let _ = writeln!(
        out,
        "  {:<24} {} of {}",
        "content bytes", facts.content_bytes, facts.content_bytes_max
    );
    let pages = plane.supplies.cache.summary();
    let _ = writeln!(out, "  {:<24} {}", "kept pages", pages.pages);
    let _ = writeln!(
        out,
        "  {:<24} {} of {}",
        "kept page bytes", pages.bytes, pages.bytes_max
    );
    let _ = writeln!(out, "  {:<24} {}", "cache calls", pages.calls);
    let _ = writeln!(out, "  {:<24} {}", "cache waits", pages.collapsed);
    let _ = writeln!(out, "  {:<24} {}", "log lines lost", facts.lines_lost);
    let _ = writeln!(out, "  {:<24} {}", "datagrams lost", facts.datagrams_lost);
    for (share, count) in plane.supplies.refusals.each() {
        let name = share.name().replace('_', " ");
        let _ = writeln!(out, "  {name:<24} {count}");
    }
    let report = plane.acme.report();
    for certificate in plane.world.tls.iter().flat_map(|tls| tls.summary()) {
        write_certificate(&mut out, &certificate, &report, facts.now);
    }
    if report.elsewhere {
        out.push_str("certificates are renewed by another server on this state folder\n");
    }
    out.push_str(&plane.deployments.text());
    for (name, why) in plane.config.unmanaged_names() {
        let _ = writeln!(out, "no certificate is asked for `{name}`: {why}");
    }
    out
}

/// For programs.
pub(super) fn json(plane: &ControlPlane) -> String {
    let facts = ServerStatus::of(plane);
    let mut out = format!(
        "{{\"version\":{},\"pid\":{},\"up_seconds\":{},\"generation\":{},\"configuration\":{},\"workers\":{},",
        quoted(env!("CARGO_PKG_VERSION")),
        std::process::id(),
        facts.up_seconds,
        plane.world.generation,
        quoted(&plane.config.shown),
        plane.workers_count(),
    );
    let addresses: Vec<String> = plane
        .listeners
        .bound()
        .map(|(address, secure)| {
            format!(
                "{{\"address\":{},\"tls\":{secure}}}",
                quoted(&address.to_string())
            )
        })
        .collect();
    let totals = plane.stats.totals();
    let _ = write!(
        out,
        "\"listening\":[{}],\"connections\":{},\"counters\":{{",
        addresses.join(","),
        totals.connections()
    );
    let counters: Vec<String> = totals
        .each()
        .map(|(name, _, value)| format!("{}:{value}", quoted(name)))
        .collect();
    let _ = write!(out, "{}}},", counters.join(","));
    let _ = write!(
        out,
        "\"content_bytes\":{},\"content_bytes_max\":{},\"log_lines_lost\":{},\"datagrams_lost\":{},",
        facts.content_bytes, facts.content_bytes_max, facts.lines_lost, facts.datagrams_lost
    );
    let pages = plane.supplies.cache.summary();
    let _ = write!(
        out,
        "\"kept_pages\":{},\"kept_page_bytes\":{},\"kept_page_bytes_max\":{},\"cache_calls\":{},\"cache_waits\":{},",
        pages.pages, pages.bytes, pages.bytes_max, pages.calls, pages.collapsed
    );
    let shares: Vec<String> = plane
        .supplies
        .refusals
        .each()
        .map(|(share, count)| format!("{}:{count}", quoted(share.name())))
        .collect();
    let _ = write!(out, "\"shares\":{{{}}},", shares.join(","));
    let report = plane.acme.report();
    let certificates: Vec<String> = plane
        .world
        .tls
        .iter()
        .flat_map(|tls| tls.summary())
        .map(|certificate| certificate_json(&certificate, &report, facts.now))
        .collect();
    let _ = writeln!(
        out,
        "\"certificates\":[{}],\"deployments\":{}}}",
        certificates.join(","),
        plane.deployments.json()
    );
    out
}

/// What the robot knows of this certificate.
fn of_robot<'r>(
    certificate: &PairSummary,
    report: &'r AcmeReport,
) -> Option<&'r CertificateReport> {
    let file = certificate.certificate.as_ref()?;
    report.sites.iter().find(|site| site.file == *file)
}

fn write_certificate(out: &mut String, certificate: &PairSummary, report: &AcmeReport, now: u64) {
    let names = certificate.names.join(", ");
    let days = certificate.days_left(now);
    let robot = of_robot(certificate, report);
    if certificate.stands_in {
        let _ = write!(
            out,
            "certificate for {names}: none yet, a self-signed one stands in"
        );
    } else {
        let _ = write!(out, "certificate for {names}: {days} days left");
    }
    let Some(site) = robot else {
        let is_self_signed = certificate.certificate.is_none();
        out.push_str(if is_self_signed {
            ", self-signed\n"
        } else {
            "\n"
        });
        return;
    };
    let verb = match (site.next <= now, certificate.stands_in) {
        (true, _) => "now being asked for".to_owned(),
        (false, true) => format!("asked for at {}", format_utc(site.next)),
        (false, false) => format!("renewed at {}", format_utc(site.next)),
    };
    let _ = writeln!(out, ", {verb}");
    if let Some((at, failure)) = &site.failure {
        let _ = writeln!(out, "  failed at {}: {failure}", format_utc(*at));
    }
}

fn certificate_json(certificate: &PairSummary, report: &AcmeReport, now: u64) -> String {
    let names: Vec<String> = certificate.names.iter().map(|name| quoted(name)).collect();
    let mut out = format!(
        "{{\"names\":[{}],\"days_left\":{},\"self_signed\":{}",
        names.join(","),
        certificate.days_left(now),
        certificate.certificate.is_none() || certificate.stands_in
    );
    if let Some(site) = of_robot(certificate, report) {
        let (at, failure) = match &site.failure {
            Some((at, failure)) => (at.to_string(), quoted(failure)),
            None => ("null".to_owned(), "null".to_owned()),
        };
        let _ = write!(
            out,
            ",\"acme\":{{\"next\":{},\"failed_at\":{at},\"failure\":{failure}}}",
            site.next
        );
    }
    out.push('}');
    out
}

struct ServerStatus {
    now: u64,
    up_seconds: u64,
    content_bytes: usize,
    content_bytes_max: usize,
    lines_lost: u64,
    datagrams_lost: u64,
}

impl ServerStatus {
    fn of(plane: &ControlPlane) -> ServerStatus {
        ServerStatus {
            now: clock::unix_seconds_now(),
            up_seconds: plane.started.elapsed().as_secs(),
            content_bytes: plane.supplies.budget.bytes_used(),
            content_bytes_max: plane.supplies.budget.bytes_max(),
            lines_lost: plane.supplies.sinks.lines_lost(),
            datagrams_lost: plane.listeners.datagrams_lost(),
        }
    }
}

fn duration(seconds: u64) -> String {
    match (
        seconds / 86_400,
        seconds / 3_600 % 24,
        seconds / 60 % 60,
        seconds % 60,
    ) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, _, _) => format!("{days} d {hours} h"),
    }
}
