//! Table of the families of metrics: the names, the documentation and the samples. The guide's table of metrics
//! comes from the same declarations.

use crate::admin::metrics::exposition::{Decimal, Exposition, Label, MetricsFormat};
use crate::admin::metrics::facts::{Metrics, RouteMetrics};
use crate::admin::metrics::family::{Family, MetricKind};
use balancer::{LATENCY_BUCKET_MICROS, LatencyBuckets, MemberReport};
use base::machine::RASPBERRY_CONDITIONS;
use data_plane::ledger::route_counters::CacheOutcome;
use data_plane::upstream::BackendReport;
use wire::reject::Reject;

/// Function that adds the samples of a family.
type WriteSamples = fn(&Metrics<'_>, &mut Exposition);

impl Metrics<'_> {
    /// Renders the metrics.
    pub(crate) fn render(&self, format: MetricsFormat) -> String {
        let mut out = Exposition::new(format);
        for (family, write) in FAMILIES {
            out.begin(family);
            write(self, &mut out);
        }
        out.finish()
    }
}

macro_rules! families {
    ($( $kind:ident $name:literal $unit:literal [$labels:literal] $help:literal $write:expr; )*) => {
        /// All families in the order of the output.
        pub(super) static FAMILIES: &[(Family, WriteSamples)] = &[$( (
            Family {
                kind: MetricKind::$kind,
                name: $name,
                unit: $unit,
                #[cfg(test)]
                labels: $labels,
                help: $help,
            },
            $write,
        ), )*];
    };
}

families! {
    Info "anthill_build" "" ["version"] "Version of the program."
        |it, out| out.sample(&[("version", it.status.version)], 1_u64);
    Gauge "anthill_uptime_seconds" "seconds" [""] "Seconds since the start of the server."
        |it, out| out.sample(&[], it.status.up_seconds);
    Counter "anthill_restarts" "" [""] "Restarts of the server by its supervisor. Missing without a supervisor."
        |it, out| if let Some(restarts) = &it.status.restarts { out.sample(&[], restarts.count) };
    Gauge "anthill_configuration_generation" "" [""] "Number of the served configuration. Each reload and each change on disk adds 1."
        |it, out| out.sample(&[], it.status.generation);
    Gauge "anthill_workers" "" [""] "Worker threads."
        |it, out| out.sample(&[], it.status.workers);

    Counter "anthill_http_requests" "" ["site, route, protocol, status"] "Answered requests by site, route, version of HTTP and class of the status. Requests without a known site have empty labels."
        requests;
    Counter "anthill_http_response_bytes" "bytes" ["site, route"] "Bytes of responses."
        |it, out| each_route(it, &mut |labels, route| out.sample(labels, route.totals.bytes_sent));
    Histogram "anthill_http_request_duration_seconds" "seconds" [""] "Time from the last byte of a request to the response passed to the kernel."
        durations;
    Counter "anthill_http_refusals" "" ["rule, status"] "Refused requests by the number of the rule, as the access log prints the rule."
        refusals;
    Counter "anthill_cache_requests" "" ["site, route, result"] "Responses of routes with a page cache by the part of the cache."
        cache_requests;

    Gauge "anthill_connections" "" [""] "Open connections of clients."
        |it, out| out.sample(&[], it.status.connections);
    Gauge "anthill_connections_by_protocol" "" ["protocol"] "Open connections of clients by version of HTTP. A connection without a request yet counts as HTTP/1.1."
        |it, out| {
            for (protocol, open) in PROTOCOLS[1..].iter().zip(it.status.connections_by_version()) {
                out.sample(&[("protocol", protocol)], open);
            }
        };
    Counter "anthill_connections_opened" "" [""] "Accepted connections."
        |it, out| out.counter(it, "connections_opened");
    Counter "anthill_connections_timed_out" "" [""] "Connections and requests that ended because the client was too slow."
        |it, out| out.counter(it, "deadlines");
    Counter "anthill_multiplexed_connections" "" ["protocol"] "Connections of HTTP/2 and HTTP/3."
        |it, out| out.by_protocol(it, ["h2_connections", "h3_connections"]);
    Counter "anthill_stream_resets" "" ["protocol"] "Streams of HTTP/2 and HTTP/3 that ended without a whole response."
        |it, out| out.by_protocol(it, ["h2_resets", "h3_resets"]);
    Counter "anthill_protocol_errors" "" ["protocol"] "Connections of HTTP/2 and HTTP/3 that ended because the client broke a rule or flooded the server."
        |it, out| out.by_protocol(it, ["h2_errors", "h3_errors"]);
    Counter "anthill_quic_retries" "" [""] "Clients of HTTP/3 that had to validate their address before the handshake."
        |it, out| out.counter(it, "h3_retries");
    Counter "anthill_quic_datagrams_lost" "" [""] "Datagrams lost at the sockets of HTTP/3, and on the way to an earlier process of the server."
        |it, out| out.sample(&[], it.status.datagrams_lost);
    Counter "anthill_tls_handshakes" "" ["result"] "TLS handshakes: full, resumed or failed."
        |it, out| {
            for (result, name) in HANDSHAKES {
                out.sample(&[("result", result)], it.status.counter(name));
            }
        };
    Counter "anthill_received_bytes" "bytes" [""] "Bytes received from clients, after decryption."
        |it, out| out.counter(it, "bytes_received");
    Counter "anthill_limit_refusals" "" ["limit"] "Refusals because a client had used up its share of a limit, by the name in the status."
        |it, out| {
            for (name, count) in &it.status.shares {
                out.sample(&[("limit", name)], *count);
            }
        };
    Counter "anthill_panics" "" [""] "Caught panics. Each panic is a fault of the server and ends one connection."
        |it, out| out.counter(it, "panics");
    Counter "anthill_log_lines_lost" "" [""] "Log lines dropped because a destination was too slow."
        |it, out| out.sample(&[], it.status.log_lines_lost);

    Gauge "anthill_memory_bytes" "bytes" ["ledger"] "Memory in the ledgers: contents of files and pages, and bodies under way."
        |it, out| {
            out.sample(&[("ledger", "content")], it.status.content_bytes);
            out.sample(&[("ledger", "bodies")], it.status.body_bytes);
            out.sample(&[("ledger", "pages")], it.status.pages.bytes);
        };
    Gauge "anthill_memory_limit_bytes" "bytes" ["ledger"] "Limits of the ledgers. The page cache is a part of the contents."
        |it, out| {
            out.sample(&[("ledger", "content")], it.status.content_bytes_max);
            out.sample(&[("ledger", "bodies")], it.status.body_bytes_max);
            out.sample(&[("ledger", "pages")], it.status.pages.bytes_max);
        };
    Gauge "anthill_cache_pages" "" [""] "Pages in the page cache."
        |it, out| out.sample(&[], it.status.pages.pages);
    Counter "anthill_cache_calls" "" [""] "Calls of handlers for the page cache."
        |it, out| out.sample(&[], it.status.pages.calls);
    Counter "anthill_cache_waits" "" [""] "Requests that waited for the call of another request."
        |it, out| out.sample(&[], it.status.pages.collapsed);

    Gauge "anthill_certificate_expiry_timestamp_seconds" "seconds" ["name, issuer"] "Unix time of the end of each certificate, by the first name. The label issuer is self for a self-signed certificate, else file."
        |it, out| {
            for certificate in &it.status.certificates {
                let is_own = certificate.is_self_signed || certificate.awaits_certificate;
                let issuer = if is_own { "self" } else { "file" };
                let labels = [("name", first(&certificate.names)), ("issuer", issuer)];
                out.sample(&labels, certificate.not_after);
            }
        };
    Gauge "anthill_certificate_renewal_failed" "" ["name"] "1 after a failed renewal of an automatic certificate, until a renewal succeeds."
        |it, out| {
            for certificate in &it.status.certificates {
                if let Some(renewal) = &certificate.renewal {
                    let labels = [("name", first(&certificate.names))];
                    out.sample(&labels, renewal.failure.is_some());
                }
            }
        };
    Gauge "anthill_deployment_failed" "" ["site"] "1 after a failed deployment, until a deployment succeeds."
        |it, out| {
            for deployment in &it.status.deployments {
                out.sample(&[("site", &deployment.site)], deployment.failure.is_some());
            }
        };

    Gauge "anthill_balancer_waiting_requests" "" ["balancer"] "Requests that wait for a busy member."
        |it, out| {
            for balancer in it.balancers {
                out.sample(&[("balancer", &balancer.settings.name)], balancer.waiting);
            }
        };
    Gauge "anthill_balancer_checks_doubted" "" ["balancer"] "1 while members with failed checks get requests, because most members fail."
        |it, out| {
            for balancer in it.balancers {
                let labels = [("balancer", &*balancer.settings.name)];
                out.sample(&labels, balancer.are_checks_doubted);
            }
        };
    Gauge "anthill_member_up" "" ["balancer, member"] "1 for a member that gets requests, also while the member drains."
        |it, out| out.members(it, |member| member.state.is_usable().into());
    Info "anthill_member_state" "" ["balancer, member, state"] "State of a member: up, draining, ejected, check failed, disabled or stopped."
        |it, out| each_member(it, &mut |[balancer, member], report| {
            out.sample(&[balancer, member, ("state", report.state.name())], 1_u64);
        });
    Gauge "anthill_member_busy_requests" "" ["balancer, member"] "Requests under way at a member."
        |it, out| out.members(it, |member| member.busy.into());
    Counter "anthill_member_requests" "" ["balancer, member"] "Requests given to a member."
        |it, out| out.members(it, |member| member.elected.into());
    Counter "anthill_member_retries" "" ["balancer, member"] "Requests given to a member after another member failed."
        |it, out| out.members(it, |member| member.retries.into());
    Counter "anthill_member_errors" "" ["balancer, member"] "Failed requests of a member."
        |it, out| out.members(it, |member| member.errors.into());
    Counter "anthill_member_sent_bytes" "bytes" ["balancer, member"] "Bytes sent to a member."
        |it, out| out.members(it, |member| member.sent_bytes.into());
    Counter "anthill_member_received_bytes" "bytes" ["balancer, member"] "Bytes received from a member."
        |it, out| out.members(it, |member| member.received_bytes.into());
    Counter "anthill_member_checks" "" ["balancer, member, result"] "Active checks of a member: passed or failed."
        |it, out| each_member(it, &mut |[balancer, member], report| {
            out.sample(&[balancer, member, ("result", "passed")], report.checks_passed);
            out.sample(&[balancer, member, ("result", "failed")], report.checks_failed);
        });
    Histogram "anthill_member_latency_seconds" "seconds" ["balancer, member"] "Time from a request sent to a member to the head of the answer."
        |it, out| each_member(it, &mut |labels, report| out.latencies(&labels, &report.latencies));

    Gauge "anthill_backend_busy_calls" "" ["backend"] "Calls under way at a FastCGI or SCGI backend."
        |it, out| out.backends(it, |backend| backend.busy.into());
    Gauge "anthill_backend_waiting_calls" "" ["backend"] "Calls that wait for a place at a backend."
        |it, out| out.backends(it, |backend| backend.waiting.into());
    Gauge "anthill_backend_places" "" ["backend"] "Calls that a backend may have at the same time."
        |it, out| out.backends(it, |backend| backend.places.into());
    Counter "anthill_backend_answers" "" ["backend, status"] "Answers of a backend by class of the status."
        |it, out| {
            for backend in &it.status.backends {
                for (class, count) in CLASSES.iter().zip(backend.answers) {
                    out.sample(&[("backend", &backend.address), ("status", class)], count);
                }
            }
        };
    Counter "anthill_backend_failures" "" ["backend"] "Calls without an answer of the backend."
        |it, out| out.backends(it, |backend| backend.failures.into());
    Counter "anthill_backend_refused_calls" "" ["backend"] "Calls that got no place at the backend."
        |it, out| out.backends(it, |backend| backend.refused.into());
    Histogram "anthill_backend_latency_seconds" "seconds" ["backend"] "Time from a place at a backend to the head of the answer."
        |it, out| {
            for backend in &it.status.backends {
                out.latencies(&[("backend", &backend.address)], &backend.latencies);
            }
        };

    Counter "process_cpu_seconds" "seconds" [""] "Processor time of the server."
        |it, out| out.sample(&[], decimal(it.facts.process.cpu_centiseconds, 2));
    Gauge "process_resident_memory_bytes" "bytes" [""] "Resident memory of the server."
        |it, out| out.sample(&[], it.facts.process.resident_bytes);
    Gauge "process_virtual_memory_bytes" "bytes" [""] "Virtual memory of the server."
        |it, out| out.sample(&[], it.facts.process.virtual_bytes);
    Gauge "process_open_fds" "" [""] "Open descriptors."
        |it, out| out.sample(&[], it.facts.process.descriptors);
    Gauge "process_max_fds" "" [""] "Largest number of open descriptors."
        |it, out| out.sample(&[], it.facts.process.descriptors_max);
    Gauge "process_start_time_seconds" "seconds" [""] "Unix time of the start of the server."
        |it, out| out.sample(&[], it.status.now.saturating_sub(it.status.up_seconds));
    Gauge "anthill_machine_temperature_celsius" "celsius" ["zone, sensor"] "Temperature of the machine, on machines with a sensor."
        |it, out| {
            for (zone, sensor, millidegrees) in &it.facts.machine.temperatures {
                let value = Decimal { number: *millidegrees, digits: 3 };
                out.sample(&[("zone", zone), ("sensor", sensor)], value);
            }
        };
    Counter "anthill_machine_throttle_events" "" [""] "Times that a processor reached its limit of temperature, on machines that count the events."
        |it, out| {
            if let Some(events) = it.facts.machine.throttle_events {
                out.sample(&[], events);
            }
        };
    Gauge "anthill_machine_throttled" "" ["condition, since"] "Conditions of a Raspberry Pi's firmware: 1 for a condition now or since the start of the machine."
        |it, out| {
            let flags = it.facts.machine.raspberry_flags.into_iter();
            for (flags, (bit, condition)) in flags.flat_map(|flags| {
                RASPBERRY_CONDITIONS.iter().enumerate().map(move |of| (flags, of))
            }) {
                for (since, bit) in [("now", bit), ("boot", bit + 16)] {
                    let labels = [("condition", *condition), ("since", since)];
                    out.sample(&labels, flags >> bit & 1 == 1);
                }
            }
        };
}

/// Labels of the versions of HTTP in the order of the counters.
const PROTOCOLS: [&str; 4] = ["1.0", "1.1", "2", "3"];
/// Labels of the classes of the status in the order of the counters.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
/// Results of handshakes, each with the name of the counter.
const HANDSHAKES: [(&str, &str); 3] = [
    ("full", "handshakes_full"),
    ("resumed", "handshakes_resumed"),
    ("failed", "handshakes_failed"),
];
/// Upper ends of the buckets of the latencies of all responses in microseconds.
const DURATION_MICROS: [u64; 15] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 5_000_000, 30_000_000,
];

impl Exposition {
    /// Adds a counter of the workers.
    fn counter(&mut self, metrics: &Metrics<'_>, name: &str) {
        self.sample(&[], metrics.status.counter(name));
    }

    /// Adds the counters of HTTP/2 and HTTP/3.
    fn by_protocol(&mut self, metrics: &Metrics<'_>, names: [&str; 2]) {
        for (protocol, name) in PROTOCOLS[2..].iter().zip(names) {
            self.sample(&[("protocol", protocol)], metrics.status.counter(name));
        }
    }

    /// Adds a sample for each backend.
    fn backends(&mut self, metrics: &Metrics<'_>, value: fn(&BackendReport) -> Decimal) {
        for backend in &metrics.status.backends {
            self.sample(&[("backend", &backend.address)], value(backend));
        }
    }

    /// Adds the latencies of a member or of a backend.
    fn latencies(&mut self, labels: &[Label<'_>], latencies: &LatencyBuckets) {
        let counts = |index: usize| latencies.counts[..=index].iter().sum();
        let totals = (latencies.sum_micros, latencies.counts.iter().sum());
        self.histogram(labels, &LATENCY_BUCKET_MICROS, &counts, totals);
    }

    /// Adds a sample for each member.
    fn members(&mut self, metrics: &Metrics<'_>, value: fn(&MemberReport) -> Decimal) {
        each_member(metrics, &mut |labels, member| {
            self.sample(&labels, value(member));
        });
    }
}

fn decimal(number: u64, digits: u32) -> Decimal {
    Decimal {
        digits,
        ..Decimal::from(number)
    }
}

/// Returns the first name of a certificate.
fn first(names: &[String]) -> &str {
    names.first().map_or("*", String::as_str)
}

/// Calls `write` with the labels of each route.
fn each_route(metrics: &Metrics<'_>, write: &mut dyn FnMut(&[Label<'_>], &RouteMetrics)) {
    for route in &metrics.facts.routes {
        let totals = &route.totals;
        write(&[("site", &totals.site), ("route", &totals.route)], route);
    }
}

/// Calls `write` with the labels of each member.
fn each_member(metrics: &Metrics<'_>, write: &mut dyn FnMut([Label<'_>; 2], &MemberReport)) {
    for balancer in metrics.balancers {
        for member in &balancer.members {
            let url = member.url.to_string();
            let name = ("balancer", &*balancer.settings.name);
            write([name, ("member", &url)], member);
        }
    }
}

fn requests(metrics: &Metrics<'_>, out: &mut Exposition) {
    each_route(metrics, &mut |labels, route| {
        for (protocol, classes) in PROTOCOLS.iter().zip(&route.totals.statuses) {
            for (class, count) in CLASSES.iter().zip(classes) {
                let labels = [
                    labels[0],
                    labels[1],
                    ("protocol", protocol),
                    ("status", class),
                ];
                out.sample(&labels, *count);
            }
        }
    });
}

fn cache_requests(metrics: &Metrics<'_>, out: &mut Exposition) {
    each_route(metrics, &mut |labels, route| {
        if !route.has_cache {
            return;
        }
        for (result, count) in CacheOutcome::NAMES.iter().zip(route.totals.cache) {
            out.sample(&[labels[0], labels[1], ("result", result)], count);
        }
    });
}

fn refusals(metrics: &Metrics<'_>, out: &mut Exposition) {
    for (reject, count) in Reject::ALL.iter().zip(&metrics.facts.refusals) {
        let (rule, status) = (reject.rule.to_string(), reject.status.0.to_string());
        out.sample(&[("rule", &rule), ("status", &status)], *count);
    }
}

fn durations(metrics: &Metrics<'_>, out: &mut Exposition) {
    let latency = &metrics.facts.latency;
    let counts = |index| latency.at_most(DURATION_MICROS[index]);
    out.histogram(&[], &DURATION_MICROS, &counts, (latency.sum, latency.count));
}
