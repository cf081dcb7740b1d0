//! Collection of the status of the server; `admin/status.rs` renders the status.

use super::edits::Edits;
use super::liveness::SilentWorker;
use super::metrics;
use super::publish::Publisher;
use super::rebuild::Rebuilder;
use crate::acme::AcmeReport;
use crate::admin::command::{Command, StatusFormat};
use crate::admin::metrics::history::History;
use crate::admin::status::{
    CertificateStatus, DeploymentStatus, DoubtfulFilesStatus, PredecessorStatus, ReleaseStatus,
    RenewalStatus, Status, StatusAddress,
};
use crate::build::SharedResources;
use base::clock;
use base::restarts::Restarts;
use data_plane::ledger::stats::Stats;
use data_plane::tls::PairSummary;
use data_plane::world::World;
use data_plane::world::doubtful_files::DoubtfulFiles;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// State of the server for its status, taken before a long work of the control plane. The counters and the certificates
/// are read when a client asks.
pub(super) struct StatusView {
    world: Arc<World>,
    stats: Arc<Stats>,
    resources: SharedResources,
    facts: StatusFacts,
    configuration: String,
    workers: usize,
    silent_workers: Vec<(usize, u64)>,
    listening: Vec<StatusAddress>,
    manager: Vec<StatusAddress>,
    datagrams_lost: u64,
    deployments: Vec<DeploymentStatus>,
    edits_in_force: usize,
    edits_fault: Option<String>,
    releases: Vec<ReleaseStatus>,
    refused_file: Option<String>,
    unmanaged_names: Vec<(String, &'static str)>,
}

/// Parts of the state that neither the served World nor the edits have.
pub(super) struct StatusFacts {
    pub(super) report: AcmeReport,
    /// Reason why the last reload was refused.
    pub(super) refused_reload: Option<String>,
    /// Time of the server's start.
    pub(super) started: Instant,
    pub(super) history: Rc<RefCell<History>>,
    /// Earlier servers that still have connections.
    pub(super) predecessors: Vec<PredecessorStatus>,
}

impl StatusView {
    /// Takes the state.
    pub(super) fn new(rebuilder: &Rebuilder, edits: &Edits, facts: StatusFacts) -> StatusView {
        let publisher = rebuilder.publisher();
        let (listening, manager) = publisher.listeners().status(publisher.config());
        StatusView {
            world: Arc::clone(publisher.world()),
            stats: Arc::clone(publisher.stats()),
            resources: publisher.resources().clone(),
            facts,
            configuration: publisher.config().shown.clone(),
            workers: publisher.workers_count(),
            silent_workers: silent_workers(publisher),
            listening,
            manager,
            datagrams_lost: publisher.datagrams_lost(),
            deployments: rebuilder.deployments().status(),
            edits_in_force: edits.in_force(),
            edits_fault: edits.fault(),
            releases: rebuilder.releases(),
            refused_file: rebuilder.refused_file().cloned(),
            unmanaged_names: publisher.config().unmanaged_names(),
        }
    }

    pub(super) fn status(&self) -> Status {
        let now = clock::unix_seconds_now();
        let totals = self.stats.totals();
        let resources = &self.resources;
        let pairs = self.world.all_tls().flat_map(|tls| tls.summary());
        let shares = resources.refusals.each();
        let backends = self.world.backends.iter();
        Status {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            now,
            up_seconds: self.facts.started.elapsed().as_secs(),
            restarts: Restarts::from_environment(),
            predecessors: self.facts.predecessors.clone(),
            generation: self.world.generation,
            configuration: self.configuration.clone(),
            workers: self.workers,
            silent_workers: self.silent_workers.clone(),
            listening: self.listening.clone(),
            manager: self.manager.clone(),
            connections: totals.connections(),
            counters: totals
                .each()
                .map(|(name, _, value)| (name, value))
                .collect(),
            content_bytes: resources.budget.bytes_used(),
            content_bytes_max: resources.budget.bytes_max(),
            body_bytes: resources.body_memory.bytes(),
            body_bytes_max: resources.body_memory.bytes_max(),
            pages: resources.cache.summary(),
            log_lines_lost: resources.sinks.lines_lost(),
            datagrams_lost: self.datagrams_lost,
            shares: shares.map(|(share, count)| (share.name(), count)).collect(),
            certificates: pairs
                .map(|pair| certificate(pair, &self.facts.report, now))
                .collect(),
            renewed_elsewhere: self.facts.report.elsewhere,
            deployments: self.deployments.clone(),
            edits_in_force: self.edits_in_force,
            edits_fault: self.edits_fault.clone(),
            backends: backends.map(|it| it.backend.report(&it.routes)).collect(),
            unreachable_backends: resources.backends.unreachable(),
            refusals: self.refusals(),
            releases: self.releases.clone(),
            unmanaged_names: self.unmanaged_names.clone(),
            doubtful_files: self.world.doubtful_files().iter().map(doubtful).collect(),
        }
    }

    /// Answers a command that reads the state alone; None for another command.
    pub(super) fn answer(&self, command: &Command) -> Option<String> {
        let (world, stats) = (&self.world, &self.stats);
        Some(match command {
            Command::Status(StatusFormat::Text) => {
                metrics::overview(&self.status(), world, stats, &self.facts.history.borrow())
            }
            Command::Status(StatusFormat::Json) => self.status().json(),
            Command::Metrics(format) => metrics::render(&self.status(), world, stats, *format),
            Command::History => self.facts.history.borrow().json(),
            _ => return None,
        })
    }

    /// Returns the refusals of releases and of new content of the operator's files, with the content in force.
    fn refusals(&self) -> Vec<String> {
        let releases = self.releases.iter().filter_map(|it| it.refusal.clone());
        let reload = self.facts.refused_reload.as_ref().map(|error| {
            format!(
                "the last reload is refused, so the former configuration stays in force: {error}"
            )
        });
        let file = self.refused_file.as_ref().map(|error| {
            format!("a changed file is not taken over, so its former content stays in use: {error}")
        });
        releases.chain(reload).chain(file).collect()
    }
}

/// Returns the silent workers, each with the seconds since its last answer was due.
fn silent_workers(publisher: &Publisher) -> Vec<(usize, u64)> {
    let silent = publisher.silent_workers();
    let each = |it: &SilentWorker| (it.index, it.silent.as_secs());
    silent.iter().map(each).collect()
}

fn doubtful(files: &DoubtfulFiles) -> DoubtfulFilesStatus {
    let (what, help) = files.text();
    DoubtfulFilesStatus {
        site: files.site.clone(),
        count: files.count,
        first: files.first.display().to_string(),
        text: format!("{what}: {help}"),
    }
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
        missing_names: pair.missing_names,
    }
}
