//! List of the balancers and their members: plain values, rendered as text and as JSON.

use crate::admin::json_text::{joined, or_null};
use crate::admin::text_table::{LINE_WIDTH, TextTable, bytes, count, duration, micros};
use crate::admin::value_text::weight_text;
use balancer::settings::{MemberHost, MemberRole, MemberUrl};
use balancer::{BalancerReport, CheckOutcome, LatencyBuckets, MemberReport, StateChange};
use base::clock::{format_utc, format_utc_time};
use std::fmt::Write;
use wire::json::quoted;

/// State of all balancers at one moment.
#[derive(Clone, Debug)]
pub struct BalancerList {
    /// Time of the list in milliseconds on the monotonic clock of the process.
    pub now_ms: u64,
    /// Unix time in milliseconds of the zero of the monotonic clock.
    pub origin_unix_ms: u64,
    /// Balancers in the order of the configuration.
    pub balancers: Vec<BalancerReport>,
}

/// Largest width of a route in the text. Longer routes are cut.
const ROUTE_WIDTH: usize = 12;
/// Columns of the text. All columns but the state and the route are numbers, at the right.
pub(crate) const COLUMNS: [&str; 12] = [
    "MEMBER", "STATE", "WEIGHT", "SET", "ROUTE", "BUSY", "ELECTED", "ERRORS", "RETRIES", "SENT",
    "RECEIVED", "MEDIAN",
];
/// Columns with text, at the left.
pub(crate) const LEFT_COLUMNS: [usize; 3] = [0, 1, 4];

impl BalancerList {
    /// Renders the list as lines of at most 100 columns for a terminal.
    pub(crate) fn text(&self) -> String {
        if self.balancers.is_empty() {
            return "the configuration has no balancer\n".to_owned();
        }
        let parts = self.balancers.iter().map(|it| self.balancer_text(it));
        parts.collect::<Vec<_>>().join("\n")
    }

    fn balancer_text(&self, balancer: &BalancerReport) -> String {
        let settings = &balancer.settings;
        let mut out = format!("{}: {}", settings.name, settings.method.name());
        match balancer.waiting {
            0 => {}
            1 => out.push_str(", 1 request waits"),
            waiting => {
                let _ = write!(out, ", {waiting} requests wait");
            }
        }
        out.push('\n');
        if balancer.are_checks_doubted {
            let _ = writeln!(out, "  checks doubted: {}", balancer.doubt_text());
        }
        let mut table = TextTable::new(&COLUMNS, &LEFT_COLUMNS, LINE_WIDTH);
        for member in &balancer.members {
            table.add(Self::cells(member), self.details(member));
        }
        out.push_str(&table.text());
        out
    }

    /// Returns the texts of [`COLUMNS`] for a member.
    pub(crate) fn cells(member: &MemberReport) -> Vec<String> {
        let route = if member.route.is_empty() {
            "-".to_owned()
        } else {
            member.route.chars().take(ROUTE_WIDTH).collect()
        };
        vec![
            short_url(&member.url),
            member.state.name().to_owned(),
            weight_text(member.weight),
            member.set.to_string(),
            route,
            count(member.busy as u64),
            count(member.elected),
            count(member.errors),
            count(member.retries),
            bytes(member.sent_bytes),
            bytes(member.received_bytes),
            latency_text(&member.latencies, 500),
        ]
    }

    /// Returns the lines below the row of a member on a terminal.
    fn details(&self, member: &MemberReport) -> Vec<String> {
        let change = member.changes.last().map(|change| {
            let seconds = self.seconds_since(change.at_ms);
            format!("{change}, {} ago", duration(seconds))
        });
        Self::details_with(member, change)
    }

    /// Returns the details of a member without its last change, for a page that is rendered again and again.
    pub(crate) fn lasting_details(&self, member: &MemberReport) -> Vec<String> {
        Self::details_with(member, None)
    }

    fn details_with(member: &MemberReport, change: Option<String>) -> Vec<String> {
        let role = match member.role {
            MemberRole::Regular => None,
            MemberRole::Spare => Some("spare: replaces an unusable member of its set"),
            MemberRole::Standby => Some("standby: serves if no other member of its set can"),
        };
        let heartbeat = member.heartbeat.map(|heartbeat| {
            let (ready, busy) = (heartbeat.ready, heartbeat.busy);
            format!("announces {ready} idle and {busy} busy workers")
        });
        let slow_start = member.slow_start_percent;
        let slow_start = slow_start.map(|percent| format!("slow start: {percent} % of its weight"));
        let role = role.map(str::to_owned);
        [role, change, slow_start, heartbeat]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Returns the seconds since a time on the monotonic clock.
    pub(crate) fn seconds_since(&self, at_ms: u64) -> u64 {
        self.now_ms.saturating_sub(at_ms) / 1_000
    }

    /// Returns a time on the monotonic clock as the time of the day, or as the date and the time if older than a day.
    pub(crate) fn time(&self, at_ms: u64) -> String {
        let unix_seconds = (self.origin_unix_ms + at_ms) / 1_000;
        match self.seconds_since(at_ms) {
            ..86_400 => format_utc_time(unix_seconds),
            _ => format_utc(unix_seconds),
        }
    }

    /// Renders the list as one JSON object and a line feed.
    pub(crate) fn json(&self) -> String {
        let balancers = self.balancers.iter().map(|it| self.balancer_json(it));
        format!("{{\"balancers\":[{}]}}\n", joined(balancers))
    }

    fn balancer_json(&self, balancer: &BalancerReport) -> String {
        let settings = &balancer.settings;
        format!(
            "{{\"name\":{},\"method\":{},\"waiting\":{},\"checks_doubted\":{},\"members\":[{}]}}",
            quoted(&settings.name),
            quoted(settings.method.name()),
            balancer.waiting,
            balancer.are_checks_doubted,
            joined(balancer.members.iter().map(|it| self.member_json(it)))
        )
    }

    fn member_json(&self, member: &MemberReport) -> String {
        let mut out = format!(
            "{{\"url\":{},\"state\":{},\"admin\":{},\"role\":{},\"weight\":{},\"set\":{},\
             \"route\":{},\"redirect\":{},\"ignores_errors\":{},",
            quoted(&member.url.to_string()),
            quoted(member.state.name()),
            quoted(member.admin.name()),
            quoted(member.role.name()),
            weight_text(member.weight),
            member.set,
            quoted(&member.route),
            quoted(&member.redirect),
            member.ignores_errors,
        );
        let heartbeat = member.heartbeat.map(|heartbeat| {
            let (ready, busy) = (heartbeat.ready, heartbeat.busy);
            format!("{{\"ready\":{ready},\"busy\":{busy}}}")
        });
        let median = member.latencies.percentile_bound(500);
        let _ = write!(
            out,
            "\"busy\":{},\"elected\":{},\"errors\":{},\"retries\":{},\"sent_bytes\":{},\
             \"received_bytes\":{},\"latency_us\":{},\"latency_p50_us\":{},\"heartbeat\":{},\"ejected_ms\":{},\
             \"slow_start_percent\":{},\"checks_passed\":{},\"checks_failed\":{},\"last_check\":{},\
             \"seconds_in_state\":{},\"changes\":[{}]}}",
            member.busy,
            member.elected,
            member.errors,
            member.retries,
            member.sent_bytes,
            member.received_bytes,
            or_null(member.latency_micros.map(|micros| micros.to_string())),
            or_null(median.map(|(micros, _)| micros.to_string())),
            or_null(heartbeat),
            or_null(member.ejected_ms.map(|millis| millis.to_string())),
            or_null(member.slow_start_percent.map(|percent| percent.to_string())),
            member.checks_passed,
            member.checks_failed,
            or_null(member.last_check.map(|check| self.check_json(check))),
            self.seconds_since(member.state_since_ms),
            joined(member.changes.iter().map(|change| self.change_json(change)))
        );
        out
    }

    fn check_json(&self, (outcome, at_ms): (CheckOutcome, u64)) -> String {
        let reason = match outcome {
            CheckOutcome::Passed => None,
            CheckOutcome::Failed(failure) => Some(quoted(&failure.to_string())),
        };
        format!(
            "{{\"passed\":{},\"reason\":{},\"seconds_ago\":{}}}",
            outcome == CheckOutcome::Passed,
            or_null(reason),
            self.seconds_since(at_ms)
        )
    }

    fn change_json(&self, change: &StateChange) -> String {
        format!(
            "{{\"from\":{},\"to\":{},\"reason\":{},\"seconds_ago\":{}}}",
            quoted(change.old.name()),
            quoted(change.new.name()),
            quoted(&change.reason.to_string()),
            self.seconds_since(change.at_ms)
        )
    }
}

/// Returns the host and port of a plain member, and the whole URL of another member.
pub(crate) fn short_url(url: &MemberUrl) -> String {
    match (&url.host, url.is_tls) {
        (MemberHost::Address(address), false) => address.to_string(),
        (MemberHost::Name(name, port), false) => format!("{name}:{port}"),
        _ => url.to_string(),
    }
}

/// Returns the latency that `thousandths` of all answers stay within (500 = median), by its bucket and with its unit;
/// a hyphen without answers.
pub(crate) fn latency_text(latencies: &LatencyBuckets, thousandths: u64) -> String {
    match latencies.percentile_bound(thousandths) {
        None => "-".to_owned(),
        Some((end, true)) => format!("> {}", micros(end)),
        Some((end, false)) => micros(end),
    }
}

#[cfg(test)]
mod tests;
