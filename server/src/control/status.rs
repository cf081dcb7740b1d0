//! Collects the status of the server.

use super::edits::Edits;
use super::rebuild::Rebuilder;
use crate::acme::AcmeReport;
use crate::admin::status::{CertificateStatus, ReleaseStatus, RenewalStatus, Status};
use crate::base::clock;
use crate::serve::worker::Audience;
use crate::tls::PairSummary;
use std::time::Instant;

/// Returns the status of the server. `refused_reload` is the reason why the last reload was refused, and `started` the
/// time of the server's start.
pub(super) fn status(
    rebuilder: &Rebuilder,
    report: &AcmeReport,
    edits: &Edits,
    refused_reload: Option<&str>,
    started: Instant,
) -> Status {
    let publisher = rebuilder.publisher();
    let now = clock::unix_seconds_now();
    let totals = publisher.stats().totals();
    let supplies = publisher.resources();
    let world = publisher.world();
    let pairs = world.tls.iter().flat_map(|tls| tls.summary());
    let shares = supplies.refusals.each();
    let releases = rebuilder.releases();
    Status {
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        now,
        up_seconds: started.elapsed().as_secs(),
        generation: world.generation,
        configuration: publisher.config().shown.clone(),
        workers: publisher.workers_count(),
        listening: publisher.listeners().bound(Audience::Public).collect(),
        manager: publisher.listeners().bound(Audience::Manager).collect(),
        connections: totals.connections(),
        counters: totals
            .each()
            .map(|(name, _, value)| (name, value))
            .collect(),
        content_bytes: supplies.budget.bytes_used(),
        content_bytes_max: supplies.budget.bytes_max(),
        body_bytes: supplies.body_memory.bytes(),
        body_bytes_max: supplies.body_memory.bytes_max(),
        pages: supplies.cache.summary(),
        log_lines_lost: supplies.sinks.lines_lost(),
        datagrams_lost: publisher.listeners().datagrams_lost(),
        shares: shares.map(|(share, count)| (share.name(), count)).collect(),
        certificates: pairs.map(|pair| certificate(pair, report, now)).collect(),
        renewed_elsewhere: report.elsewhere,
        deployments: rebuilder.deployments().status(),
        edits_in_force: edits.in_force(),
        edits_fault: edits.fault(),
        unreachable_backends: supplies.backends.unreachable(),
        refusals: refusals(&releases, refused_reload, rebuilder),
        releases,
        unmanaged_names: publisher.config().unmanaged_names(),
    }
}

/// Returns the refusals of releases and of new content of the operator's files, with the content in force.
fn refusals(
    releases: &[ReleaseStatus],
    refused_reload: Option<&str>,
    rebuilder: &Rebuilder,
) -> Vec<String> {
    let releases = releases.iter().filter_map(|it| it.refusal.clone());
    let reload = refused_reload.map(|error| {
        format!("the last reload is refused, so the former configuration stays in force: {error}")
    });
    let file = rebuilder.refused_file().map(|error| {
        format!(
            "a changed file is not taken over, so its former content (users, certificates, keys) stays valid: {error}"
        )
    });
    releases.chain(reload).chain(file).collect()
}

fn certificate(pair: PairSummary, report: &AcmeReport, now: u64) -> CertificateStatus {
    let file = pair.certificate.as_ref();
    let renewal = file.and_then(|file| report.sites.iter().find(|site| site.file == *file));
    CertificateStatus {
        days_left: pair.days_left(now),
        not_after: pair.not_after,
        is_self_signed: pair.certificate.is_none(),
        awaits_certificate: pair.awaits_certificate,
        renewal: renewal.map(|site| RenewalStatus {
            next: site.next,
            failure: site.failure.clone(),
        }),
        names: pair.names,
    }
}
