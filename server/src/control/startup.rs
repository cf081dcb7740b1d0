//! Steps of the start, before the first connection is accepted: addresses, the state folder, privileges,
//! logs and the resources common to all Worlds.

use crate::build::{self, SharedResources};
use crate::config::{self, Config, OperatorError};
use crate::control::banner;
use crate::control::listeners::Listeners;
use crate::control::takeover::Inheritance;
use crate::git::browse::limiter::BrowseLimiter;
use crate::git::post_receive::PushNotifier;
use crate::manager::{ManagerContext, ManagerRequest};
use base::clock;
use base::folder_owner::FolderOwner;
use base::log::{LogDestination, Sink, Sinks};
use base::restarts::Restarts;
use base::sys;
use base::trusted_path::{LastLink, MissingFolder, TrustedPath};
use data_plane::cache::PageCache;
use data_plane::handler::call::process::ProcessRunner;
use data_plane::hits::Hits;
use data_plane::ledger::body_memory::BodyMemory;
use data_plane::ledger::descriptors::descriptors;
use data_plane::ledger::route_counters::RouteLedger;
use data_plane::ledger::shared_limit::RefusalCounters;
use data_plane::limits;
use data_plane::site::ContentBudget;
use data_plane::tls::{SelfSigned, TicketKeys};
use data_plane::upstream::Backends;
use data_plane::upstream::resolver::Resolver;
use data_plane::upstream::session_key_file;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Instant;
use tokio::sync::mpsc::Receiver;

/// Returns the sockets that the service manager passes in, with their names.
pub(super) fn passed_sockets() -> Result<Vec<(String, OwnedFd)>, OperatorError> {
    sys::systemd_listen_fds().map_err(|error| passed_error(&error))
}

fn passed_error(error: &io::Error) -> OperatorError {
    OperatorError::failure(format!("sockets passed in by the service manager: {error}"))
}

pub(super) fn bind(
    config: &Config,
    workers: usize,
    passed: Vec<(String, OwnedFd)>,
) -> Result<Listeners, OperatorError> {
    let mut listeners = Listeners::default();
    let adopted = listeners.adopt(config, passed);
    adopted.map_err(|error| passed_error(&error))?;
    listeners.bind_kept_quic(config)?;
    listeners.bind(config, workers)?;
    listeners.apply_proxy_protocol(config);
    listeners.heartbeats.bind(config)?;
    listeners.keep();
    Ok(listeners)
}

/// Takes over the sockets of a running server, and binds the other addresses of the configuration.
pub(super) fn bind_beside(
    config: &Config,
    workers: usize,
    inheritance: &mut Inheritance,
) -> Result<Listeners, OperatorError> {
    let mut listeners = Listeners::default();
    let inherited = inheritance.take_sockets();
    listeners.forwards = inheritance.take_forwards();
    let taken = listeners.inherit(config, inherited);
    taken.map_err(|error| {
        OperatorError::failure(format!("sockets of the running server: {error}"))
    })?;
    listeners.bind_kept_quic(config)?;
    listeners.bind(config, workers)?;
    listeners.apply_proxy_protocol(config);
    listeners.heartbeats.bind(config)?;
    Ok(listeners)
}

/// Sets up the process: limits, inherited descriptors, capabilities, signals and processor features.
pub(super) fn prepare_process() {
    descriptors().set_process_limit(sys::raise_nofile_limit());
    sys::set_cloexec_on_inherited();
    if let Err(error) = sys::keep_capabilities() {
        log::warn!("scripts may inherit capabilities: the capabilities can't be dropped: {error}");
    }
    sys::reset_signals();
    sys::detect_cpu_features();
}

/// Makes the state folder before privileges drop, and gives a new folder, or a folder of root with its files, to the
/// account the server drops to. Another folder keeps its owner, which was checked with the configuration.
pub(super) fn prepare_state(
    config: &Config,
    user: Option<&sys::UserIds>,
) -> Result<(), OperatorError> {
    let state = &config.server.state;
    let folder: &Path = state.get_ref();
    let failed = |error: io::Error| {
        let what = format!(
            "the state folder {} can't be used: {error}",
            folder.display()
        );
        config.point(state.span(), what, "a folder that the server may write to")
    };
    let owner = user.map(|user| FolderOwner {
        uid: user.uid,
        gid: user.gid,
    });
    config::prepare_state_folder(folder, owner).map_err(failed)?;
    // A unit without an account gives the folder for logs to root.
    if let Some(logs) = config.log.service_folder().filter(|_| owner.is_some()) {
        config::prepare_state_folder(&logs, owner).map_err(|error| {
            OperatorError::failure(format!(
                "the folder for logs {} can't be used: {error}",
                logs.display()
            ))
        })?;
    }
    let control = &config.server.control;
    // The account may have no right to make the folder of the control socket, for example below /run.
    if let Some(above) = control.get_ref().parent().filter(|_| user.is_some()) {
        config::prepare_folder(above, owner).map_err(|error| {
            let what = format!("the folder {} can't be used: {error}", above.display());
            config.point(
                control.span(),
                what,
                "a folder that the server may write to",
            )
        })?;
    }
    if user.is_none() {
        let inside = folder.join("git");
        let way =
            TrustedPath::resolve(&inside, LastLink::Keep, MissingFolder::Fail).map_err(failed)?;
        if let Err(error) = way.must_be_controlled_by(0) {
            log::warn!("the state folder: {error}; name an account to become with `user`");
        }
    }
    Ok(())
}

pub(super) fn user_ids(config: &Config) -> Result<Option<sys::UserIds>, OperatorError> {
    let Some(user) = &config.server.user else {
        return Ok(None);
    };
    if !sys::is_root() {
        return Ok(None);
    }
    match sys::lookup_user(user.get_ref()) {
        Ok(Some(ids)) => Ok(Some(ids)),
        Ok(None) => Err(config.point(
            user.span(),
            format!("the machine has no user `{}`", user.get_ref()),
            "",
        )),
        Err(error) => Err(OperatorError::failure(format!(
            "looking up user `{}`: {error}",
            user.get_ref()
        ))),
    }
}

pub(super) fn drop_privileges(
    config: &Config,
    user: Option<&sys::UserIds>,
) -> Result<(), OperatorError> {
    if let (Some(ids), Some(name)) = (user, &config.server.user) {
        sys::drop_privileges(ids).map_err(|error| {
            let what = format!("can't become `{}`: {error}", name.get_ref());
            config.point(name.span(), what, "")
        })?;
    }
    if Restarts::from_environment().is_some() {
        // A server without its supervisor would keep the next supervisor from serving.
        sys::end_with_parent().map_err(|error| {
            OperatorError::failure(format!("can't watch the supervisor: {error}"))
        })?;
    }
    Ok(())
}

/// Opens the destination of the error log, and standard error as the fallback.
pub(super) fn open_error_sinks(
    config: &Config,
    sinks: &Sinks,
) -> Result<(Sink, Sink), OperatorError> {
    let to = &config.log.errors;
    // Standard error goes through a sink as well: a pipe without a reader must not block a thread that logs
    // an error.
    let sink = sinks.open(&build::destination(to.get_ref()));
    let sink = sink.map_err(|error| build::cannot_open(config, to, &error))?;
    let fallback = sinks.open(&LogDestination::Stderr);
    let fallback = fallback.map_err(|error| {
        OperatorError::failure(format!(
            "standard error can't be opened for the log: {error}"
        ))
    })?;
    Ok((sink, fallback))
}

pub(super) type TlsResources = (Option<Arc<TicketKeys>>, Option<Arc<SelfSigned>>);

pub(super) fn tls_supplies(config: &Config) -> Result<TlsResources, OperatorError> {
    if !config.uses_tls() {
        return Ok((None, None));
    }
    let now = clock::unix_seconds_now();
    let state: &Path = config.server.state.get_ref();
    let (tickets, span) = match &config.tls.tickets {
        Some(file) => (TicketKeys::from_file(file.get_ref()), file.span()),
        None => (
            TicketKeys::from_state(state, now),
            config.server.state.span(),
        ),
    };
    let tickets =
        tickets.map_err(|error| config.point(span, error.to_string(), error.hint.clone()))?;
    let names = banner::self_signed_names(config);
    let self_signed = SelfSigned::load_or_make(state, &names, now).map_err(|error| {
        config.point(
            config.server.state.span(),
            error.to_string(),
            error.hint.clone(),
        )
    })?;
    Ok((Some(Arc::new(tickets)), Some(Arc::new(self_signed))))
}

/// Returns the number of workers: configured, or one for each processor.
pub(super) fn worker_count(config: &Config) -> usize {
    let workers = config.server.workers.as_ref();
    workers.map_or_else(sys::cpu_count, |workers| *workers.get_ref())
}

/// Returns the resources common to all Worlds. The ports in redirects and Alt-Svc are the ports of bound
/// addresses.
pub(super) fn shared_resources(
    config: &Config,
    listeners: &Listeners,
    sinks: Arc<Sinks>,
    (tickets, self_signed): TlsResources,
    cache: Arc<PageCache>,
    (budget, body_memory): (Arc<ContentBudget>, Arc<BodyMemory>),
    pushes: PushNotifier,
) -> Result<SharedResources, OperatorError> {
    let refusals = Arc::<RefusalCounters>::default();
    let scripts = config.server.limits.scripts;
    let state = config.server.state.get_ref();
    Ok(SharedResources {
        cache,
        hits: load_hits(config),
        budget,
        sinks,
        logins: build::new_logins(&refusals)?,
        tickets,
        self_signed,
        https_port: https_port(config, listeners),
        challenges: Arc::default(),
        h3_port: h3_port(config, listeners),
        programs: Arc::new(ProcessRunner::new(scripts, state, &refusals)),
        readers: Arc::new(BrowseLimiter::new(scripts, &refusals)),
        backends: Arc::new(Backends::new(&refusals)),
        pushes,
        change_tracker: Arc::default(),
        pseudonym: build::new_pseudonym(),
        balancers: Arc::new(build::new_balancers(session_key_file::load_or_make(state))?),
        body_memory,
        resolver: Arc::new(Resolver::system()),
        refusals,
        routes: Arc::new(RouteLedger::new(worker_count(config))),
    })
}

/// Returns the page cache, filled with the pages that the previous server kept in the state folder.
pub(super) fn load_pages(
    config: &Config,
    origin: Instant,
    budget: &Arc<ContentBudget>,
) -> Arc<PageCache> {
    let cache = PageCache::new(origin, budget.clone());
    match cache.load(config.server.state.get_ref()) {
        Ok(0) => {}
        Ok(count) => log::info!("{count} stored pages of the page cache were loaded"),
        Err(error) => log::warn!("the stored pages of the page cache can't be read: {error}"),
    }
    Arc::new(cache)
}

/// Returns the hit counts, as kept by the previous server in the state folder.
fn load_hits(config: &Config) -> Arc<Hits> {
    let hits = Hits::default();
    if let Err(error) = hits.load(config.server.state.get_ref()) {
        log::warn!("the hit counts can't be read: {error}");
    }
    Arc::new(hits)
}

/// Returns the default of `memory_max`: an eighth of the memory of the machine or of the cgroup, at most
/// 256 MiB.
pub(super) fn memory_auto() -> u64 {
    let all = sys::memory_limit_bytes().unwrap_or(512 << 20);
    (all / 8).min(limits::MEMORY_BYTES_MAX)
}

/// Returns the part of `memory_max` in bytes that header sections of waiting requests may take.
pub(super) fn pending_head_bytes(memory_max: u64) -> usize {
    let bytes = memory_max / limits::PENDING_HEAD_MEMORY_PARTS;
    bytes.min(limits::PENDING_HEAD_BYTES_MAX as u64) as usize
}

/// Returns the port in redirects to https: `public_port`, or the port of a bound address.
pub(super) fn https_port(config: &Config, listeners: &Listeners) -> Option<u16> {
    let public = config.server.public_port;
    public.or_else(|| listeners.public_port(config, true))
}

/// Returns the port announced for HTTP/3: `public_port`, or the port of a bound address.
pub(super) fn h3_port(config: &Config, listeners: &Listeners) -> Option<u16> {
    let bound = listeners.quic_port(config)?;
    Some(config.server.public_port.unwrap_or(bound))
}

/// Returns the part of `memory_max` in bytes that the bodies under way may take.
pub(super) fn body_memory_bytes(memory_max: u64) -> u64 {
    (memory_max / limits::BODY_MEMORY_PARTS).max(limits::BODY_MEMORY_BYTES_MIN)
}

/// Returns the context of the manager, and the receiver of the manager's requests.
pub(super) fn new_manager(
    origin: Instant,
) -> Result<(Arc<ManagerContext>, Receiver<ManagerRequest>), OperatorError> {
    let context = ManagerContext::new(origin);
    context.map_err(|error| OperatorError::failure(format!("the manager: {error}")))
}

/// Starts the thread that compresses loaded text with gzip, at the lowest priority.
pub(super) fn compress_in_background(budget: Arc<ContentBudget>) {
    let started = thread::Builder::new()
        .name("anthill-gzip".into())
        .spawn(move || {
            sys::lowest_priority_thread();
            while let Some(job) = budget.gzip().wait() {
                job.run();
            }
        });
    if let Err(error) = started {
        log::warn!("text is not compressed, the thread can't be started: {error}");
    }
}
