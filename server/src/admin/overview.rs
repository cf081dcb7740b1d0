//! The text of `anthill status`: what is wrong first, then rates, sites, refusals, certificates and counters. Pure.

use crate::admin::backends;
use crate::admin::limits::{HISTORY_INTERVAL_SECONDS, MANAGER_PROBLEMS_MAX, STATUS_ROWS_MAX};
use crate::admin::metrics::Metrics;
use crate::admin::metrics::history::Sample;
use crate::admin::problems::{Problem, members_down, problems};
use crate::admin::text_table::{LINE_WIDTH, TextTable, bytes, count, micros, rate};
use std::fmt::Write;
use wire::reject::Reject;

/// State of a running server at a glance.
pub(crate) struct Overview<'a> {
    /// Status, balancers and counters.
    pub metrics: Metrics<'a>,
    /// Samples of the last minutes, the oldest first.
    pub samples: Vec<Sample>,
}

/// Minutes over which rates are shown.
const MINUTES: [u64; 3] = [1, 5, 20];

impl Overview<'_> {
    /// Returns the lines for a terminal.
    pub(crate) fn text(&self) -> String {
        let status = self.metrics.status;
        let mut out = status.heading();
        self.write_problems(&mut out);
        out.push('\n');
        status.write_parts(&mut out);
        self.write_rates(&mut out);
        self.write_sites(&mut out);
        let backends = backends::text(&status.backends);
        if !backends.is_empty() {
            let _ = write!(out, "\n{backends}");
        }
        self.write_refusals(&mut out);
        out.push_str("\nSince the start, without counters at 0:\n");
        out.push_str(&status.counter_lines());
        out
    }

    fn write_problems(&self, out: &mut String) {
        let problems = problems(&self.metrics);
        let down = members_down(self.metrics.balancers);
        if problems.is_empty() && down.is_empty() {
            return out.push_str("no problems found\n");
        }
        for problem in &problems {
            if let Problem::Error(text) = problem {
                let _ = writeln!(out, "error: {text}");
            }
        }
        for (balancer, member) in down.iter().take(MANAGER_PROBLEMS_MAX) {
            let state = member.state.name();
            let _ = write!(out, "error: {balancer}: {}: {state}", member.url);
            if let Some(change) = member.changes.last() {
                let _ = write!(out, " ({change})");
            }
            out.push('\n');
        }
        if let Some(more @ 1..) = down.len().checked_sub(MANAGER_PROBLEMS_MAX) {
            let _ = writeln!(out, "error: {more} more members get no requests");
        }
        for problem in &problems {
            if let Problem::Warning(text) = problem {
                let _ = writeln!(out, "warning: {text}");
            }
        }
    }

    fn write_rates(&self, out: &mut String) {
        let titles = ["LAST", "REQUESTS", "5XX", "SENT", "SLOWEST 1 %"];
        let mut table = TextTable::new(&titles, &[0], LINE_WIDTH);
        for minutes in MINUTES {
            let intervals = (minutes * 60 / HISTORY_INTERVAL_SECONDS) as usize;
            let from = self.samples.len().saturating_sub(intervals);
            let samples = &self.samples[from..];
            let seconds = samples.len() as u64 * HISTORY_INTERVAL_SECONDS;
            let sum = |value: &dyn Fn(&Sample) -> u64| samples.iter().map(value).sum::<u64>();
            let per_second = |number: u64| (number * 100).checked_div(seconds).unwrap_or(0);
            let slowest = samples.iter().map(|it| it.latency_micros[2]).max();
            let sent = per_second(sum(&|it| it.sent_bytes)) / 100;
            let cells = [
                format!("{minutes} min"),
                rate(per_second(sum(&|it| it.requests.into()))),
                rate(per_second(sum(&|it| it.errors.into()))),
                format!("{}/s", bytes(sent)),
                micros(slowest.unwrap_or(0).into()),
            ];
            table.add(cells.to_vec(), Vec::new());
            // A server that started a moment ago has equal rates over all periods.
            if from == 0 {
                break;
            }
        }
        let _ = write!(out, "\n{}", table.text());
    }

    fn write_sites(&self, out: &mut String) {
        let titles = [
            "SITE", "REQUESTS", "2XX", "3XX", "4XX", "5XX", "SENT", "CACHED",
        ];
        let mut table = TextTable::new(&titles, &[0], LINE_WIDTH);
        let mut sites = self.metrics.facts.sites();
        // The order of the configuration holds for sites with equally many requests.
        sites.sort_by_key(|site| std::cmp::Reverse(site.classes.iter().sum::<u64>()));
        let more = sites.len().saturating_sub(STATUS_ROWS_MAX);
        for site in sites.iter().take(STATUS_ROWS_MAX) {
            let requests: u64 = site.classes.iter().sum();
            let name = match site.name {
                "" if requests == 0 => continue,
                "" => "no site: unknown host, malformed request, manager",
                name => name,
            };
            let mut cells = vec![name.to_owned(), count(requests)];
            cells.extend(site.classes[1..].iter().map(|number| count(*number)));
            cells.extend([bytes(site.sent_bytes), count(site.from_cache)]);
            table.add(cells, Vec::new());
        }
        let _ = write!(out, "\n{}", table.text());
        if more > 0 {
            let _ = writeln!(
                out,
                "  and {more} more sites with fewer requests: `anthill metrics`"
            );
        }
    }

    fn write_refusals(&self, out: &mut String) {
        let titles = ["REFUSED", "RULE", "STATUS", "REASON"];
        let mut table = TextTable::new(&titles, &[1, 3], LINE_WIDTH);
        let refusals = Reject::ALL.iter().zip(&self.metrics.facts.refusals);
        let mut refusals: Vec<_> = refusals.filter(|(_, number)| **number > 0).collect();
        if refusals.is_empty() {
            return;
        }
        refusals.sort_by_key(|(_, number)| std::cmp::Reverse(**number));
        for (rule, number) in refusals {
            let cells = [
                count(*number),
                format!("R{}", rule.rule),
                rule.status.0.to_string(),
                rule.reason.to_owned(),
            ];
            table.add(cells.to_vec(), Vec::new());
        }
        let _ = write!(out, "\n{}", table.text());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::metrics::{MetricsFacts, RouteMetrics};
    use crate::admin::status::tests::example;
    use data_plane::ledger::route_counters::RouteTotals;

    #[test]
    fn problems_come_first_and_all_parts_follow() {
        let status = example();
        let mut refusals = vec![0; Reject::ALL.len()];
        refusals[Reject::index_of(501).expect("a rule")] = 12;
        refusals[Reject::index_of(405).expect("a rule")] = 40;
        let route = |site: &str, ok: u64, missing: u64| {
            let mut totals = RouteTotals {
                site: site.into(),
                ..RouteTotals::default()
            };
            totals.statuses[1][1] = ok;
            totals.statuses[2][3] = missing;
            totals.bytes_sent = 2_048;
            RouteMetrics {
                totals,
                has_cache: false,
            }
        };
        let facts = MetricsFacts {
            routes: vec![route("", 0, 0), route("a.org", 5, 2), route("a.org", 1, 0)],
            refusals,
            ..MetricsFacts::default()
        };
        let sample = Sample {
            requests: 10,
            errors: 1,
            sent_bytes: 5_120,
            latency_micros: [1, 2, 3_000],
            ..Sample::default()
        };
        let overview = Overview {
            metrics: Metrics {
                status: &status,
                balancers: &[],
                facts: &facts,
            },
            samples: vec![sample; 13],
        };
        let expected = "\
anthill 1.2.3, process 17, up 1 d 2 h, configuration 3 (anthill.toml)
error: the certificate of a.org, b.org could not be renewed, days left: 42: the \"order\" failed
error: the certificate of a.org, b.org has expired
error: the certificate of a.org, b.org does not name b.org, so browsers refuse the site there
error: worker 1 (thread anthill-1) has been silent for 25 s, so its connections wait: start the server again if the worker stays silent
error: the deployment of a.org failed: no \"tree\"
error: new has no release, so the site answers 503: publish one with `anthill publish`
warning: a.org, b.org has a self-signed certificate until one is issued
warning: the release of shop is withdrawn, so the site answers 503 until the next publication
warning: * gets no certificate: a certificate cannot name every host; browsers warn of its self-signed one, so write a public name in `names`, or set `certificate`
warning: a.org sends 2 files
warning: Memory for bodies: 95 % in use
warning: log lines lost since the start: 15
warning: datagrams of HTTP/3 lost since the start: 16

  https 127.0.0.1:443
  http  [::]:80
  https [::]:8001 (site :8001, a.test:8001)
  http  127.0.0.1:8800 (manager)
process 16 (1.2.2) leaves: 14 connections, 3 requests under way
certificate for a.org, b.org: -1 days left, self-signed
certificate for a.org, b.org: 42 days left, renewal at 1970-01-02 00:00 UTC
certificate for a.org, b.org: 42 days left, requested now
  failed at 1970-01-01 00:01 UTC: the \"order\" failed
certificate for a.org, b.org: none yet, a self-signed certificate is served, next request at 1970-01-02 00:00 UTC
certificate for a.org, b.org: 42 days left
certificates are renewed by another server on this state folder
a.org is main of site.git: 0123456 since 1970-01-01 01:00 UTC
a.org is main of site.git: nothing is deployed, the branch does not exist, deployment under way
  failed at 1970-01-01 00:02 UTC: no \"tree\"
release abababababab of www, sequence 42: served since 1970-01-01 01:00 UTC
release cdcdcdcdcdcd of shop, sequence 7: withdrawn since 1970-01-01 00:01 UTC
new has no release, and answers 503 since 1970-01-01 00:02 UTC

  LAST  REQUESTS    5XX   SENT SLOWEST 1 %
  1 min   2.00/s 0.20/s 1.0K/s      3.0 ms
  5 min   2.00/s 0.20/s 1.0K/s      3.0 ms

  SITE  REQUESTS 2XX 3XX 4XX 5XX SENT CACHED
  a.org        8   6   0   2   0 4.0K      0

  REFUSED RULE STATUS REASON
       40 R405    401 wrong user or password
       12 R501    404 no such resource

Since the start, without counters at 0:
  connections              5
  requests                 6
  bytes sent               7
  refused calls            18
  kept pages               10
  cache calls              13
  cache waits              14
  log lines lost           15
  datagrams lost           16
  content bytes            8 of 9
  body bytes               19 of 20
  kept page bytes          11 of 12
";
        assert_eq!(overview.text(), expected);
    }

    #[test]
    fn the_text_of_many_sites_is_bounded() {
        let mut status = example();
        let certificate = status.certificates[0].clone();
        status.certificates = vec![certificate; 1_000];
        let route = |nth: u64| {
            let mut totals = RouteTotals {
                site: format!("site-{nth}").into(),
                ..RouteTotals::default()
            };
            totals.statuses[1][1] = nth;
            RouteMetrics {
                totals,
                has_cache: false,
            }
        };
        let facts = MetricsFacts {
            routes: (0..1_000).map(route).collect(),
            ..MetricsFacts::default()
        };
        let metrics = Metrics {
            status: &status,
            balancers: &[],
            facts: &facts,
        };
        let samples = Vec::new();
        let text = Overview { metrics, samples }.text();
        assert!(text.lines().count() < 150, "{text}");
        assert!(text.contains("  site-999      999"), "{text}");
        assert!(
            text.contains("and 970 more sites with fewer requests"),
            "{text}"
        );
        assert!(
            text.contains("and 970 more certificates with at least 42 days left"),
            "{text}"
        );
    }
}
