//! Past of the counters: a ring of samples, one every few seconds, so that charts and the command `metrics` show
//! the last minutes. Pure: the caller passes the counters and the time.

use crate::admin::json_text::joined;
use crate::admin::limits::{HISTORY_INTERVAL_SECONDS, HISTORY_MEMBERS_MAX, HISTORY_SAMPLES_MAX};
use data_plane::ledger::stats::{LatencyTotals, Totals};
use std::collections::VecDeque;
use std::fmt::Write;
use wire::json::quoted;

/// Values of one interval, or of its end.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Unix time of the end of the interval, seconds.
    pub at: u64,
    /// Responses in the interval.
    pub requests: u32,
    /// Responses with a status 5xx in the interval.
    pub errors: u32,
    /// Bytes of responses in the interval.
    pub sent_bytes: u64,
    /// Bytes of requests in the interval.
    pub received_bytes: u64,
    /// Open connections at the end.
    pub connections: u32,
    /// Resident memory at the end in KiB.
    pub resident_kib: u32,
    /// Latencies that 50 %, 90 % and 99 % of the responses in the interval stay within, in microseconds. All are
    /// 0 without a response.
    pub latency_micros: [u32; 3],
}

/// Requests and errors of a member in the intervals.
#[derive(Debug)]
struct MemberHistory {
    balancer: Box<str>,
    member: Box<str>,
    /// Requests and errors of the member at the end of the last interval.
    last: (u64, u64),
    /// Requests and errors in each of the last intervals, the oldest first.
    intervals: VecDeque<(u32, u32)>,
    /// True if the member is in the configuration.
    is_present: bool,
}

/// Counters of a member at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemberCounts<'a> {
    /// Name of the balancer.
    pub balancer: &'a str,
    /// URL of the member.
    pub member: &'a str,
    /// Requests given to the member.
    pub requests: u64,
    /// Failed requests of the member.
    pub errors: u64,
}

/// Copy of the samples for charts, the oldest first.
#[derive(Debug, Default)]
pub struct Past {
    /// Samples of the server.
    pub samples: Vec<Sample>,
    /// Requests of the balancers.
    pub balancers: Vec<BalancerPast>,
}

/// Requests of a balancer in the intervals of the samples.
#[derive(Debug)]
pub struct BalancerPast {
    /// Name of the balancer.
    pub name: Box<str>,
    /// Requests and errors of all members in each interval.
    pub intervals: Vec<(u32, u32)>,
    /// URL of each member with its requests in the last interval.
    pub members: Vec<(Box<str>, u32)>,
}

/// Samples of the last minutes.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Counters at the end of the last interval; None before the first sample.
    last: Option<Totals>,
    samples: VecDeque<Sample>,
    members: Vec<MemberHistory>,
}

/// Thousandths of the responses for the latencies of a sample.
const LATENCY_THOUSANDTHS: [u64; 3] = [500, 900, 990];

impl History {
    /// Adds the sample of an interval that ends at the Unix time `at`, from the counters of the workers. The first
    /// call only begins an interval. The caller adds the members by [`History::record_member`] after the call.
    pub(crate) fn record(&mut self, at: u64, totals: Totals, resident_bytes: u64) {
        if let Some(last) = &self.last {
            let sample = sample(at, last, &totals, resident_bytes);
            push_bounded(&mut self.samples, sample);
        }
        self.last = Some(totals);
        self.members.retain(|member| member.is_present);
        for member in &mut self.members {
            member.is_present = false;
        }
    }

    /// Adds the counters of a member to the sample of the last [`History::record`]. Beyond the bound, further
    /// members have no history.
    pub(crate) fn record_member(&mut self, counts: &MemberCounts<'_>) {
        let is_same = |known: &&mut MemberHistory| {
            *known.member == *counts.member && *known.balancer == *counts.balancer
        };
        let now = (counts.requests, counts.errors);
        if let Some(known) = self.members.iter_mut().find(is_same) {
            let requests = difference(now.0, known.last.0);
            push_bounded(
                &mut known.intervals,
                (requests, difference(now.1, known.last.1)),
            );
            known.last = now;
            known.is_present = true;
        } else if self.members.len() < HISTORY_MEMBERS_MAX {
            self.members.push(MemberHistory {
                balancer: counts.balancer.into(),
                member: counts.member.into(),
                last: now,
                intervals: VecDeque::new(),
                is_present: true,
            });
        }
    }

    /// Returns the samples, the oldest first.
    pub(crate) fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter()
    }

    /// Returns the samples for charts, with the sums of the members of each balancer.
    pub(crate) fn past(&self) -> Past {
        let mut balancers: Vec<BalancerPast> = Vec::new();
        for member in &self.members {
            let is_same = |past: &BalancerPast| past.name == member.balancer;
            let at = balancers.iter().position(is_same);
            let at = at.unwrap_or_else(|| {
                balancers.push(BalancerPast {
                    name: member.balancer.clone(),
                    intervals: vec![(0, 0); self.samples.len()],
                    members: Vec::new(),
                });
                balancers.len() - 1
            });
            if let Some((requests, _)) = member.intervals.back() {
                let requests = (member.member.clone(), *requests);
                balancers[at].members.push(requests);
            }
            let sums = balancers[at].intervals.iter_mut().rev();
            for (sum, interval) in sums.zip(member.intervals.iter().rev()) {
                sum.0 = sum.0.saturating_add(interval.0);
                sum.1 = sum.1.saturating_add(interval.1);
            }
        }
        Past {
            samples: self.samples.iter().copied().collect(),
            balancers,
        }
    }

    /// Renders the samples as one JSON object and a line feed. Each list has an entry for each interval, the oldest
    /// first. The lists of a member end with the other lists, and are shorter for a new member.
    pub(crate) fn json(&self) -> String {
        let mut out = format!("{{\"interval_seconds\":{HISTORY_INTERVAL_SECONDS}");
        for (name, value) in COLUMNS {
            let values = self.samples.iter().map(|sample| value(sample).to_string());
            let _ = write!(out, ",\"{name}\":[{}]", joined(values));
        }
        let members = self.members.iter().map(|member| {
            let intervals = member.intervals.iter();
            format!(
                "{{\"balancer\":{},\"member\":{},\"requests\":[{}],\"errors\":[{}]}}",
                quoted(&member.balancer),
                quoted(&member.member),
                joined(intervals.clone().map(|(requests, _)| requests.to_string())),
                joined(intervals.map(|(_, errors)| errors.to_string())),
            )
        });
        let _ = writeln!(out, ",\"members\":[{}]}}", joined(members));
        out
    }
}

/// Function that returns a value of a sample.
type Column = fn(&Sample) -> u64;

/// Lists of the JSON object.
const COLUMNS: [(&str, Column); 10] = [
    ("at", |it| it.at),
    ("requests", |it| it.requests.into()),
    ("errors", |it| it.errors.into()),
    ("sent_bytes", |it| it.sent_bytes),
    ("received_bytes", |it| it.received_bytes),
    ("connections", |it| it.connections.into()),
    ("resident_kib", |it| it.resident_kib.into()),
    ("latency_p50_micros", |it| it.latency_micros[0].into()),
    ("latency_p90_micros", |it| it.latency_micros[1].into()),
    ("latency_p99_micros", |it| it.latency_micros[2].into()),
];

fn sample(at: u64, last: &Totals, now: &Totals, resident_bytes: u64) -> Sample {
    let latency: LatencyTotals = now.latency.since(&last.latency);
    Sample {
        at,
        requests: difference(now.requests, last.requests),
        errors: difference(now.statuses[5], last.statuses[5]),
        sent_bytes: now.bytes_sent.saturating_sub(last.bytes_sent),
        received_bytes: now.bytes_received.saturating_sub(last.bytes_received),
        connections: saturated(now.connections()),
        resident_kib: saturated(resident_bytes / 1_024),
        latency_micros: LATENCY_THOUSANDTHS.map(|part| saturated(latency.percentile(part))),
    }
}

fn difference(now: u64, last: u64) -> u32 {
    saturated(now.saturating_sub(last))
}

fn saturated(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Adds an interval, and removes the oldest interval of a full ring.
fn push_bounded<T>(ring: &mut VecDeque<T>, value: T) {
    if ring.len() >= HISTORY_SAMPLES_MAX {
        ring.pop_front();
    }
    ring.push_back(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use data_plane::ledger::stats::Stats;

    fn member(requests: u64, errors: u64) -> MemberCounts<'static> {
        MemberCounts {
            balancer: "app",
            member: "http://127.0.0.1:9001",
            requests,
            errors,
        }
    }

    #[test]
    fn a_sample_has_the_differences_of_an_interval() {
        let stats = Stats::new(1);
        let worker = stats.worker(0);
        let mut history = History::default();
        worker.response(200, 1_000, 5_000_000);
        history.record(100, stats.totals(), 0);
        history.record_member(&member(10, 1));
        assert_eq!(history.samples().count(), 0);
        worker.connections_opened.add(3);
        for micros in 1..=100 {
            worker.response(200, 10, micros);
        }
        worker.response(503, 0, 16);
        history.record(105, stats.totals(), 3 << 20);
        history.record_member(&member(17, 3));
        let samples: Vec<_> = history.samples().copied().collect();
        let [sample] = samples[..] else {
            panic!("{samples:?}");
        };
        assert_eq!((sample.at, sample.requests, sample.errors), (105, 101, 1));
        assert_eq!((sample.sent_bytes, sample.connections), (1_000, 3));
        assert_eq!(sample.resident_kib, 3_072);
        let [p50, p90, p99] = sample.latency_micros;
        assert!(
            (50..=53).contains(&p50) && (89..=95).contains(&p90),
            "{sample:?}"
        );
        assert!((98..=105).contains(&p99), "{sample:?}");
        assert_eq!(history.members[0].intervals, [(7, 2)]);
        history.record(110, stats.totals(), 0);
        let last = history.samples().last().unwrap();
        assert_eq!((last.requests, last.latency_micros), (0, [0; 3]));
    }

    #[test]
    fn the_ring_holds_the_last_minutes() {
        let mut history = History::default();
        for tick in 0..HISTORY_SAMPLES_MAX as u64 + 10 {
            let totals = Totals {
                requests: tick * tick,
                ..Totals::default()
            };
            history.record(tick * HISTORY_INTERVAL_SECONDS, totals, 0);
            history.record_member(&member(tick, 0));
        }
        assert_eq!(history.samples().count(), HISTORY_SAMPLES_MAX);
        assert_eq!(history.members[0].intervals.len(), HISTORY_SAMPLES_MAX);
        let first = history.samples().next().unwrap();
        assert_eq!(
            (first.at, first.requests),
            (10 * HISTORY_INTERVAL_SECONDS, 19)
        );
        // A ring of 15 to 30 minutes.
        let seconds = HISTORY_SAMPLES_MAX as u64 * HISTORY_INTERVAL_SECONDS;
        assert!((900..=1_800).contains(&seconds));
    }

    #[test]
    fn members_are_bounded_and_forgotten() {
        let mut history = History::default();
        let names: Vec<_> = (0..HISTORY_MEMBERS_MAX + 5)
            .map(|nth| format!("m{nth}"))
            .collect();
        for _ in 0..2 {
            history.record(1, Totals::default(), 0);
            for name in &names {
                history.record_member(&MemberCounts {
                    member: name,
                    ..member(1, 0)
                });
            }
        }
        assert_eq!(history.members.len(), HISTORY_MEMBERS_MAX);
        history.record(2, Totals::default(), 0);
        history.record_member(&member(1, 0));
        history.record(3, Totals::default(), 0);
        assert_eq!(history.members.len(), 0);
    }

    #[test]
    fn the_past_of_a_balancer_is_the_sum_of_its_members() {
        let mut history = History::default();
        let other = "http://127.0.0.1:9002";
        for tick in 0..4 {
            history.record(tick, Totals::default(), 0);
            history.record_member(&member(tick * 10, tick));
            if tick >= 2 {
                let counts = member(tick * 3, 0);
                history.record_member(&MemberCounts {
                    member: other,
                    ..counts
                });
            }
        }
        let past = history.past();
        assert_eq!((past.samples.len(), past.balancers.len()), (3, 1));
        assert_eq!(past.balancers[0].intervals, [(10, 1), (10, 1), (13, 1)]);
    }

    #[test]
    fn the_history_is_one_json_object() {
        let mut history = History::default();
        let totals = |requests| Totals {
            requests,
            ..Totals::default()
        };
        history.record(5, totals(1), 0);
        history.record_member(&member(0, 0));
        history.record(10, totals(4), 2_048);
        history.record_member(&member(2, 1));
        let expected = concat!(
            r#"{"interval_seconds":5,"at":[10],"requests":[3],"errors":[0],"sent_bytes":[0],"#,
            r#""received_bytes":[0],"connections":[0],"resident_kib":[2],"latency_p50_micros":[0],"#,
            r#""latency_p90_micros":[0],"latency_p99_micros":[0],"members":[{"balancer":"app","#,
            r#""member":"http://127.0.0.1:9001","requests":[2],"errors":[1]}]}"#,
            "\n"
        );
        assert_eq!(history.json(), expected);
    }
}
