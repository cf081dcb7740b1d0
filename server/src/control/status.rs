//! `anthill status`: what the running server is doing, for people and as JSON.

use super::plane::Plane;
use crate::base::clock;
use std::fmt::Write;

/// For people.
pub(super) fn text(plane: &Plane) -> String {
    let facts = Facts::of(plane);
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
    let _ = writeln!(out, "  {:<24} {}", "log lines lost", facts.lines_lost);
    for certificate in plane.world.tls.iter().flat_map(|tls| tls.summary()) {
        let days = certificate.days_left(facts.now);
        let kind = if certificate.certificate.is_some() {
            ""
        } else {
            ", self-signed"
        };
        let _ = writeln!(
            out,
            "certificate for {}: {days} days left{kind}",
            certificate.names.join(", ")
        );
    }
    out
}

/// For programs.
pub(super) fn json(plane: &Plane) -> String {
    let facts = Facts::of(plane);
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
        "\"content_bytes\":{},\"content_bytes_max\":{},\"log_lines_lost\":{},",
        facts.content_bytes, facts.content_bytes_max, facts.lines_lost
    );
    let certificates: Vec<String> = plane
        .world
        .tls
        .iter()
        .flat_map(|tls| tls.summary())
        .map(|certificate| {
            let names: Vec<String> = certificate.names.iter().map(|name| quoted(name)).collect();
            format!(
                "{{\"names\":[{}],\"days_left\":{},\"self_signed\":{}}}",
                names.join(","),
                certificate.days_left(facts.now),
                certificate.certificate.is_none()
            )
        })
        .collect();
    let _ = writeln!(out, "\"certificates\":[{}]}}", certificates.join(","));
    out
}

struct Facts {
    now: u64,
    up_seconds: u64,
    content_bytes: usize,
    content_bytes_max: usize,
    lines_lost: u64,
}

impl Facts {
    fn of(plane: &Plane) -> Facts {
        Facts {
            now: clock::unix_seconds_now(),
            up_seconds: plane.started.elapsed().as_secs(),
            content_bytes: plane.supplies.budget.bytes_used(),
            content_bytes_max: plane.supplies.budget.bytes_max(),
            lines_lost: plane.supplies.sinks.lines_lost(),
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

/// A JSON string (RFC 8259 §7).
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
