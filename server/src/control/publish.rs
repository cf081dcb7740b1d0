//! The publisher: owns the listening sockets, the workers and the World that the workers serve.

use super::banner;
use super::heartbeats::HeartbeatLedgers;
use super::listeners::{Listeners, RETIRE_DELAY};
use super::liveness::{Liveness, SilentWorker};
use super::scans::{POOL_QUEUE, build_on_thread};
use super::startup::{h3_port, https_port, open_error_sinks, tls_supplies};
use crate::admin::active_requests::ActiveRequestList;
use crate::admin::limits::ACTIVE_REQUESTS_LISTED_MAX;
use crate::build::{self, SharedResources};
use crate::config::{BalancerConfig, Config, OperatorError};
use crate::manager::{ManagerContext, manager_handler};
use base::clock;
use base::log::{ErrorLog, FAILURE_LINES, RareLines};
use base::sys;
use base::task;
use base::thread_pool::ThreadPool;
use data_plane::hits::HandedHits;
use data_plane::ledger::active_requests::ActiveRequestLedger;
use data_plane::ledger::stats::Stats;
use data_plane::limits::{self};
use data_plane::serve::h3;
use data_plane::serve::worker::Departure;
use data_plane::serve::worker::{self, ProcessContext, WorkerCommand};
use data_plane::site::{ReleaseRules, ReleaseState};
use data_plane::tls::SelfSigned;
use data_plane::upstream::Checker;
use data_plane::world::World;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

/// The self-signed certificate is replaced when fewer seconds of validity are left.
const RENEW_SECONDS: u64 = 30 * 24 * 3600;
/// Number of pool threads that read cold files.
const POOL_THREADS: usize = 4;
/// Pause before the restart of an ended worker.
const RESTART: Duration = Duration::from_millis(200);
/// Index of the worker that reads the QUIC sockets for all workers.
const QUIC_HOST: usize = 0;

/// Stack of a worker. A request that scripts redirect within the server 8 times, each time through the
/// page cache, takes 140 KiB in a release build and more than 512 KiB in a debug build. Untouched pages
/// of the stack cost no memory.
const WORKER_STACK_BYTES: usize = 1024 * 1024;

/// The sockets, the workers, and the World that the workers serve.
pub(super) struct Publisher {
    config: Config,
    listeners: Listeners,
    resources: SharedResources,
    world: Arc<World>,
    stats: Arc<Stats>,
    workers: Vec<WorkerHandle>,
    process: Arc<ProcessContext>,
    checker: Arc<Checker>,
    manager: Arc<ManagerContext>,
    liveness: Arc<Liveness>,
    /// Channel with the indices of ended workers.
    ended: (UnboundedSender<usize>, UnboundedReceiver<usize>),
    /// True while the workers accept nothing.
    is_paused: bool,
}

struct WorkerHandle {
    commands: UnboundedSender<WorkerCommand>,
    /// `None` after the thread has ended.
    thread: Option<JoinHandle<()>>,
}

/// Addresses bound for a new configuration that is not served yet.
pub(super) struct NewAddresses {
    tcp: Vec<SocketAddr>,
    quic: Vec<SocketAddr>,
    heartbeats: Vec<SocketAddr>,
}

impl Publisher {
    /// Builds the first World for `count` workers, which [`Publisher::start_workers`] starts. The header sections of waiting requests may take
    /// `pending_head_bytes` in all workers together. `origin` is the zero of the workers' clocks.
    pub(super) fn build(
        config: Config,
        mut listeners: Listeners,
        resources: SharedResources,
        count: usize,
        pending_head_bytes: usize,
        origin: Instant,
        manager: Arc<ManagerContext>,
    ) -> Result<Publisher, OperatorError> {
        let world = build_and_open(&config, &resources, &manager, None)?;
        let process = Arc::new(ProcessContext {
            open: AtomicUsize::new(0),
            ledger: Arc::default(),
            pool: Arc::new(ThreadPool::new("anthill-read", POOL_THREADS, POOL_QUEUE)),
            quic: h3::QuicWorkers::succeeding(listeners.take_forwards()),
            change_tracker: resources.change_tracker.clone(),
            refusals: resources.refusals.clone(),
            body_memory: resources.body_memory.clone(),
            active_requests: ActiveRequestLedger::new(count),
            rare_lines: RareLines::default(),
            workers: count,
            pending_head_bytes_max: (pending_head_bytes / count)
                .max(limits::PENDING_HEAD_BYTES_MIN),
            origin,
        });
        let publisher = Publisher {
            config,
            listeners,
            resources,
            world: Arc::new(world),
            stats: Arc::new(Stats::new(count)),
            workers: Vec::new(),
            process,
            checker: Arc::default(),
            manager,
            liveness: Arc::new(Liveness::new(sys::watchdog_time())),
            ended: mpsc::unbounded_channel(),
            is_paused: false,
        };
        publisher.register_world();
        log_warnings(&publisher.world, None);
        Ok(publisher)
    }

    /// Starts the workers.
    pub(super) fn start_workers(&mut self) -> Result<(), OperatorError> {
        // The server has read and built everything, so little of the program's code is needed from here.
        sys::release_code_pages();
        for index in 0..self.process.workers {
            let running = self.start_worker(index)?;
            self.workers.push(running);
        }
        Ok(())
    }

    /// Returns the number of datagrams of HTTP/3 lost at the sockets, and on the way to predecessors of the process.
    pub(super) fn datagrams_lost(&self) -> u64 {
        self.listeners.datagrams_lost() + self.process.quic.datagrams_dropped()
    }

    /// Enters the ledgers' new entries of the World, and has the members of its balancers checked.
    fn register_world(&self) {
        let (world, ledgers) = (&self.world, &self.resources);
        world.register(
            &ledgers.backends,
            &ledgers.balancers,
            &ledgers.hits,
            &ledgers.routes,
        );
        let plans = world.balancers.iter();
        self.checker
            .follow(plans.map(|plan| Arc::clone(plan.balancer())).collect());
    }

    /// Starts the background tasks of balancers on the runtime of the calling thread: active checks,
    /// look-ups of names, and the readers of heartbeats.
    pub(super) fn start_balancing(&mut self) {
        task::spawn(Arc::clone(&self.checker).run());
        task::spawn(Arc::clone(&self.resources.resolver).keep_fresh());
        self.read_heartbeats();
    }

    /// Starts the questions to the workers on the runtime of the calling thread.
    pub(super) fn watch_workers(&self) {
        task::spawn(Arc::clone(&self.liveness).run());
    }

    fn read_heartbeats(&mut self) {
        self.listeners.heartbeats.read(&HeartbeatLedgers {
            balancers: Arc::clone(&self.resources.balancers),
            resolver: Arc::clone(&self.resources.resolver),
        });
    }

    /// Returns the configuration of the World.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Replaces the balancers of the configuration, for the next World. Returns the former balancers.
    pub(super) fn swap_balancers(&mut self, balancers: Vec<BalancerConfig>) -> Vec<BalancerConfig> {
        std::mem::replace(&mut self.config.balancers, balancers)
    }

    /// Returns the World that the workers serve.
    pub(super) fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Returns the state shared by all Worlds.
    pub(super) fn resources(&self) -> &SharedResources {
        &self.resources
    }

    /// Returns the scheduler of active checks.
    pub(super) fn checker(&self) -> &Checker {
        &self.checker
    }

    /// Returns the context of the manager.
    pub(super) fn manager(&self) -> &Arc<ManagerContext> {
        &self.manager
    }

    /// Returns the listening sockets.
    pub(super) fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// Returns the counters of the workers.
    pub(super) fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// Returns the oldest requests under way.
    pub(super) fn active_requests(&self) -> ActiveRequestList {
        ActiveRequestList {
            now_us: self.process.origin.elapsed().as_micros() as u64,
            oldest: self
                .process
                .active_requests
                .oldest(ACTIVE_REQUESTS_LISTED_MAX),
        }
    }

    /// Returns the present time in milliseconds of the workers' clocks.
    #[cfg(feature = "releases")]
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.process.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the workers that have been silent for too long.
    pub(super) fn silent_workers(&self) -> Vec<SilentWorker> {
        self.liveness.silent(Instant::now())
    }

    /// Returns the number of workers.
    pub(super) fn workers_count(&self) -> usize {
        self.workers.len()
    }

    fn start_worker(&self, index: usize) -> Result<WorkerHandle, OperatorError> {
        let failed = |error: io::Error| {
            OperatorError::failure(format!("can't start worker {index}: {error}"))
        };
        let (commands, receiver) = mpsc::unbounded_channel();
        let sockets = self.listeners.for_worker(index, self.process.workers, None);
        for listening in sockets.map_err(failed)? {
            let _ = commands.send(WorkerCommand::Listen(listening));
        }
        if index == QUIC_HOST {
            for socket in self.listeners.quic(None).map_err(failed)? {
                let _ = commands.send(WorkerCommand::Quic(socket));
            }
        }
        let world = self.world.clone();
        let process = self.process.clone();
        let stats = self.stats.worker(index);
        let ended = self.ended.0.clone();
        let thread = thread::Builder::new()
            .name(format!("anthill-{index}"))
            .stack_size(WORKER_STACK_BYTES)
            .spawn(move || {
                let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    worker::run(world, process, stats, receiver)
                }));
                match ran {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => log::error!("worker {index}: {error}"),
                    Err(_) => log::error!("worker {index} panicked"),
                }
                let _ = ended.send(index);
            })
            .map_err(failed)?;
        self.liveness.enter(index, commands.clone());
        Ok(WorkerHandle {
            commands,
            thread: Some(thread),
        })
    }

    /// Waits for the end of a worker's thread and returns the worker's index.
    pub(super) async fn worker_ended(&mut self) -> usize {
        match self.ended.1.recv().await {
            Some(index) => index,
            // The publisher itself holds a sender, so the channel never closes.
            None => std::future::pending().await,
        }
    }

    /// Restarts an ended worker on the same sockets.
    pub(super) async fn restart(&mut self, index: usize) {
        self.join(index);
        log::error!("worker {index} ended and is restarted");
        tokio::time::sleep(RESTART).await;
        match self.start_worker(index) {
            Ok(running) => {
                if self.is_paused {
                    let (done, _) = oneshot::channel();
                    let _ = running.commands.send(WorkerCommand::Pause(done));
                }
                self.workers[index] = running;
            }
            Err(error) => {
                log::error!("{}", error.in_one_line());
                // The sockets of the worker stay open. The control plane tries the restart again.
                let _ = self.ended.0.send(index);
            }
        }
    }

    /// Joins the thread of an ended worker.
    pub(super) fn join(&mut self, index: usize) {
        if let Some(thread) = self.workers[index].thread.take() {
            let _ = thread.join();
        }
    }

    /// Returns true if the thread of any worker is still running.
    pub(super) fn has_threads(&self) -> bool {
        self.workers.iter().any(|running| running.thread.is_some())
    }

    /// Sends a command to one worker.
    #[cfg(test)]
    pub(super) fn send(&self, index: usize, command: WorkerCommand) -> bool {
        self.workers[index].commands.send(command).is_ok()
    }

    /// Builds a World of the served configuration from the present files, and takes over sites of
    /// `previous`. The caller publishes the World.
    pub(super) async fn rebuild(&self, previous: Arc<World>) -> Result<World, OperatorError> {
        let (config, resources) = (self.config.clone(), self.resources.clone());
        let manager = Arc::clone(&self.manager);
        build_on_thread(move || build_and_open(&config, &resources, &manager, Some(&previous)))
            .await
    }

    /// Publishes a World to every worker and waits until all workers serve the World. The ledgers get the
    /// new entries of the World, and the error log gets the warnings about new certificates.
    pub(super) async fn publish(&mut self, world: World) {
        self.resources.programs.resize(world.limits.scripts);
        self.resources.readers.resize(world.limits.scripts);
        let before = std::mem::replace(&mut self.world, Arc::new(world));
        self.register_world();
        log_warnings(&self.world, Some(&before));
        let mut waiting = Vec::new();
        for running in &self.workers {
            let (done, serves) = oneshot::channel();
            let command = WorkerCommand::World(self.world.clone(), done);
            if running.commands.send(command).is_ok() {
                waiting.push(serves);
            }
        }
        for serves in waiting {
            // An ended worker is restarted with the new World.
            let _ = serves.await;
        }
    }

    /// Binds the addresses of a new configuration that are not bound yet.
    pub(super) fn bind(&mut self, config: &Config) -> Result<NewAddresses, OperatorError> {
        let tcp = self.listeners.bind(config, self.workers.len())?;
        let heartbeats = self.listeners.heartbeats.bind(config);
        let heartbeats = heartbeats.inspect_err(|_| self.listeners.forget(&tcp))?;
        let mut new = NewAddresses {
            tcp,
            quic: Vec::new(),
            heartbeats,
        };
        let quic = self.listeners.bind_quic(config);
        new.quic = quic.inspect_err(|_| self.unbind(&new))?;
        Ok(new)
    }

    /// Returns the URL of a host name, with https if the server has an address with TLS.
    pub(super) fn url(&self, name: &str) -> Option<String> {
        let (scheme, usual, port) = match self.resources.https_port {
            Some(port) if !self.config.server.https.is_empty() => ("https", 443, port),
            _ => ("http", 80, self.listeners.public_port(&self.config, false)?),
        };
        Some(if port == usual {
            format!("{scheme}://{name}/")
        } else {
            format!("{scheme}://{name}:{port}/")
        })
    }

    /// Closes the addresses bound for a configuration that was refused.
    pub(super) fn unbind(&mut self, new: &NewAddresses) {
        self.listeners.forget(&new.tcp);
        self.listeners.heartbeats.forget(&new.heartbeats);
    }

    /// Builds the World of a new configuration. The served World stays as it is.
    pub(super) async fn prepare(
        &self,
        config: Config,
        error_log: &ErrorLog,
    ) -> Result<(Config, (SharedResources, World)), OperatorError> {
        let mut resources = self.resources.clone();
        let tickets = |config: &Config| {
            let file = config.tls.tickets.as_ref();
            file.map(|file| file.get_ref().clone())
        };
        if config.uses_tls()
            && (resources.tickets.is_none() || tickets(&config) != tickets(&self.config))
        {
            (resources.tickets, resources.self_signed) = tls_supplies(&config)?;
        }
        resources.https_port = https_port(&config, &self.listeners);
        resources.h3_port = h3_port(&config, &self.listeners);
        let (manager, served) = (Arc::clone(&self.manager), Arc::clone(&self.world));
        let build = move || {
            let world = build_and_open(&config, &resources, &manager, Some(&served))?;
            must_stay_served(&served, &world)?;
            Ok((config, (resources, world)))
        };
        let (config, (resources, world)) = build_on_thread(build).await?;
        let (errors, fallback) = open_error_sinks(&config, &resources.sinks)?;
        error_log.direct_to(errors, fallback);
        Ok((config, (resources, world)))
    }

    /// Publishes the World of a new configuration, opens the new addresses and closes the addresses no
    /// longer configured.
    pub(super) async fn replace(
        &mut self,
        config: Config,
        (resources, world): (SharedResources, World),
        new: &NewAddresses,
    ) {
        self.resources = resources;
        self.resources.sinks.set_rotation(config.log.rotate);
        self.config = config;
        self.publish(world).await;
        self.listeners.apply_proxy_protocol(&self.config);
        self.read_heartbeats();
        for (index, running) in self.workers.iter().enumerate() {
            let count = self.workers.len();
            match self.listeners.for_worker(index, count, Some(&new.tcp)) {
                Ok(sockets) => {
                    for listening in sockets {
                        let _ = running.commands.send(WorkerCommand::Listen(listening));
                    }
                }
                Err(error) => log::error!("worker {index}: {error}"),
            }
        }
        match self.listeners.quic(Some(&new.quic)) {
            Ok(sockets) => {
                for socket in sockets {
                    let command = WorkerCommand::Quic(socket);
                    let _ = self.workers[QUIC_HOST].commands.send(command);
                }
            }
            Err(error) => log::error!("HTTP/3: {error}"),
        }
        let retired = self.listeners.retire(&self.config);
        self.listeners.keep();
        if !retired.is_empty() {
            tokio::time::sleep(RETIRE_DELAY).await;
        }
        for (address, secure) in retired {
            for running in &self.workers {
                let command = WorkerCommand::Unlisten(address, secure);
                let _ = running.commands.send(command);
            }
        }
    }

    /// Waits until every worker has handed over the views and log lines of the last seconds.
    pub(super) async fn flush_logs(&self) {
        for running in &self.workers {
            let (done, flushed) = oneshot::channel();
            let command = WorkerCommand::FlushLogs(done);
            if running.commands.send(command).is_ok() {
                let _ = flushed.await;
            }
        }
    }

    /// Has all workers accept nothing more, and waits until they do so. The kernel keeps the connections that arrive.
    pub(super) async fn pause(&mut self) {
        self.is_paused = true;
        self.command_all(WorkerCommand::Pause).await;
    }

    /// Has all workers accept connections again.
    pub(super) async fn resume(&mut self) {
        self.is_paused = false;
        self.command_all(WorkerCommand::Resume).await;
    }

    /// Sends a command to all workers, and waits for their answers.
    async fn command_all(&self, command: fn(oneshot::Sender<()>) -> WorkerCommand) {
        let mut waiting = Vec::new();
        for running in &self.workers {
            let (done, answered) = oneshot::channel();
            if running.commands.send(command(done)).is_ok() {
                waiting.push(answered);
            }
        }
        for answered in waiting {
            // An ended worker accepts nothing.
            let _ = answered.await;
        }
    }

    /// Leaves the listening sockets to a successor. Workers end with their last connection, at the latest at the deadline,
    /// and add the number of requests that are cut then to `cut`.
    pub(super) fn leave(&mut self, deadline: Duration, cut: &Arc<AtomicUsize>) {
        for running in &self.workers {
            let departure = Departure {
                deadline,
                cut: Arc::clone(cut),
            };
            let _ = running.commands.send(WorkerCommand::Leave(departure));
        }
        self.listeners.leave();
    }

    /// Writes the state for a successor: hit counts, and all pages of the page cache. Returns the handed counts; a failure is
    /// logged, and the successor starts without the part.
    pub(super) async fn hand_over_state(&self) -> Option<HandedHits> {
        let state = self.config.server.state.get_ref().clone();
        let (hits, cache) = (self.resources.hits.clone(), self.resources.cache.clone());
        let written = build_on_thread(move || {
            if let Err(error) = cache.hand_over(&state) {
                log::warn!("the successor gets no pages of the page cache: {error}");
            }
            let handed = hits.begin_hand_over(&state);
            Ok(handed.inspect_err(|error| log::error!("the hit counts can't be written: {error}")))
        });
        written.await.ok()?.ok()
    }

    /// Takes the state back that [`Publisher::hand_over_state`] has handed to a successor.
    pub(super) fn take_state_back(&self, handed: Option<HandedHits>) {
        if let Some(handed) = handed {
            self.resources.hits.take_back(handed);
        }
        let state = self.config.server.state.get_ref();
        if let Err(error) = self.resources.cache.forget_hand_over(state) {
            log::warn!("pages for a successor can't be removed: {error}");
        }
    }

    /// Takes the state that the running server has handed over. A part that can't be read is logged and begins empty.
    pub(super) fn take_handed_state(&self) {
        let state = self.config.server.state.get_ref();
        if let Err(error) = self.resources.hits.load(state) {
            log::warn!("the hit counts can't be read: {error}");
        }
        if let Err(error) = self.resources.cache.take_handed_over(state) {
            log::warn!("the handed-over pages can't be read: {error}");
        }
    }

    /// Gives up contents and pages, which the successor has as well.
    pub(super) fn give_up_contents(&self) {
        self.resources.cache.give_up();
        self.resources.budget.give_up();
    }

    /// Returns the numbers of open connections and of requests under way.
    pub(super) fn open_connections(&self) -> (u64, u64) {
        let requests = self.process.active_requests.under_way().requests;
        (self.stats.totals().connections(), requests as u64)
    }

    /// Writes the hit counts of a server that leaves, for its successor.
    pub(super) fn write_remaining_hits(&self) {
        let state = self.config.server.state.get_ref();
        if let Err(error) = self.resources.hits.write_rest(state) {
            log::error!("the remaining hit counts can't be written: {error}");
        }
    }

    /// Takes the hit counts of servers that leave.
    pub(super) fn take_remaining_hits(&self) {
        let state = self.config.server.state.get_ref();
        if let Err(error) = self.resources.hits.take_rests(state) {
            log::error!("the remaining hit counts can't be read: {error}");
        }
    }

    /// Returns the sockets over which a successor reaches the connections of HTTP/3.
    pub(super) fn quic_forwards(&self) -> io::Result<Vec<h3::QuicForward>> {
        self.process.quic.hand_over()
    }

    /// Ends the idle connections of a server that leaves.
    pub(super) fn end_idle(&self) {
        for running in &self.workers {
            let _ = running.commands.send(WorkerCommand::EndIdle);
        }
    }

    /// Has the service manager keep the listening sockets, after a takeover.
    pub(super) fn keep_sockets(&mut self) {
        self.listeners.keep();
    }

    /// Logs the numbers of events without a line of their own.
    pub(super) fn log_left_out(&self) {
        let now_ms = self.process.origin.elapsed().as_millis();
        self.process.rare_lines.log_left_out(now_ms as u64);
        FAILURE_LINES.log_left_out();
    }

    /// Replaces the newest ticket key if due.
    pub(super) fn rotate_tickets(&self) {
        if let Some(tickets) = &self.resources.tickets
            && let Err(error) = tickets.rotate_if_due(clock::unix_seconds_now())
        {
            log::error!("the ticket keys can't be replaced: {error}");
        }
    }

    /// Replaces the self-signed certificate if due. Returns true if the next World has a new certificate.
    pub(super) fn renew_self_signed(&mut self) -> bool {
        let now = clock::unix_seconds_now();
        let Some(self_signed) = &self.resources.self_signed else {
            return false;
        };
        if now + RENEW_SECONDS <= self_signed.not_after() {
            return false;
        }
        let state = self.config.server.state.get_ref();
        match SelfSigned::load_or_make(state, &banner::self_signed_names(&self.config), now) {
            Ok(made) => {
                self.resources.self_signed = Some(Arc::new(made));
                true
            }
            Err(error) => {
                log::error!("the self-signed certificate can't be replaced: {error}");
                false
            }
        }
    }

    /// Writes the hit counts to the state folder if the counts have changed.
    pub(super) fn save_hits(&self) {
        let state = self.config.server.state.get_ref();
        if let Err(error) = self.resources.hits.save(state) {
            log::error!("the hit counts can't be written: {error}");
        }
    }

    /// Writes the pages of the page cache that survive a restart.
    pub(super) fn save_pages(&self) {
        let state = self.config.server.state.get_ref();
        if let Err(error) = self.resources.cache.save(state) {
            log::error!("the pages of the page cache can't be written: {error}");
        }
    }

    /// Begins the drain: every worker accepts the waiting connections, closes its sockets, and ends after
    /// the requests under way, at the latest at the deadline. The publisher closes its own copies of the
    /// sockets: otherwise the ports would stay open, and a later client would wait without a response.
    pub(super) fn drain(&mut self, deadline: Duration) {
        self.listeners.close();
        for running in &self.workers {
            let _ = running.commands.send(WorkerCommand::Drain(deadline));
        }
    }
}

/// Builds a World and opens the access logs. The ledgers stay as they are until the World is published.
fn build_and_open(
    config: &Config,
    resources: &SharedResources,
    manager: &Arc<ManagerContext>,
    previous: Option<&World>,
) -> Result<World, OperatorError> {
    let mut world = build::build(config, resources, previous, clock::unix_seconds_now())?;
    world.manager = manager_handler(config, &resources.logins, manager)?;
    build::open_access_logs(&world, config, &resources.sinks)?;
    Ok(world)
}

/// Refuses a new configuration whose `publishers` would end the service of a release: a served site would answer 503.
fn must_stay_served(served: &World, new: &World) -> Result<(), OperatorError> {
    let is_served = |rules: &ReleaseRules| {
        let mut sites = served.hosts.iter().filter_map(|host| host.release_site());
        sites.any(|site| {
            let its = site.rules().release.as_ref();
            its.is_some_and(|its| its.pointer() == rules.pointer())
                && matches!(site.release_state(), Some(ReleaseState::Served(_)))
        })
    };
    let ends = new.hosts.iter().find_map(|host| {
        let site = host.release_site()?;
        let rules = site.rules().release.as_ref()?;
        let is_missing = matches!(site.release_state(), Some(ReleaseState::Missing));
        let ends = is_missing && !rules.publishers.is_empty() && is_served(rules);
        Some((&rules.site, site.reopened().refused.filter(|_| ends)?))
    });
    let Some((name, refused)) = ends else {
        return Ok(());
    };
    let what = format!("the site {name} would answer 503 with these `publishers`: {refused}");
    Err(OperatorError::failure(what).help(
        "publish once with --key before you add `publishers`; the publication is served without `publishers` too",
    ))
}

/// Logs the warnings about the certificates of a World, unless the World before had the same certificates.
fn log_warnings(world: &World, before: Option<&World>) {
    for tls in world.all_tls() {
        let mut before = before.into_iter().flat_map(World::all_tls);
        if !before.any(|before| Arc::ptr_eq(before, tls)) {
            for warning in tls.warnings() {
                log::warn!("{warning}");
            }
        }
    }
}
