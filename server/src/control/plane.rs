//! The control plane: one thread that owns the sockets, the watches and the workers, and publishes
//! each new World to them.

use super::deployments::{
    DeploymentEvent, Deployments, FIRST_DEPLOY_WAIT_MAX, deploy_missing_roots,
};
use super::listeners::{Listeners, RETIRE_DELAY};
use super::socket::{self, ControlRequest, ControlSocket};
use super::status;
use super::watch::{Changes, SiteId, Watch};
use crate::acme::AcmeHandle;
use crate::admin::command::{Command, HitsFormat, StatusFormat, UnknownCommand};
use crate::base::clock;
use crate::base::fair_share::RefusalCounters;
use crate::base::log::{ErrorLog, Sinks};
use crate::base::stats::Stats;
use crate::base::sys;
use crate::base::task;
use crate::base::thread_pool::ThreadPool;
use crate::config::{self, Config, ConfigSource, OperatorError, Overrides};
use crate::control::banner;
use crate::control::rebuild::{FileStamp, QUIET, stamp_config_files};
use crate::control::startup::{
    bind, compress_in_background, direct_errors, drop_privileges, h3_port, https_port, load_hits,
    load_pages, logins, memory_auto, pending_head_bytes, prepare_state, tls_supplies, user_ids,
};
use crate::handler::call::process::ProcessRunner;
use crate::handler::git::browse::limiter::BrowseLimiter;
use crate::handler::git::sandbox_repository;
use crate::limits;
use crate::serve::h3;
use crate::serve::worker::{self, ProcessContext, WorkerCommand};
use crate::site::ContentBudget;
use crate::tls::SelfSigned;
use crate::upstream::Backends;
use crate::world::build::{self, SharedResources};
use crate::world::{Host, World};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

/// By then a start is over, loading in the background included if the site is small.
const SETTLED: Duration = Duration::from_secs(1);
/// Where folders can't be watched, they are scanned this often.
pub const RESCAN: Duration = Duration::from_secs(10);
/// The interval at which the control plane looks again at a file that a request found changed and
/// possibly half written.
const STALE: Duration = Duration::from_secs(2);
/// Hit counts are written this often, if they changed.
const HITS: Duration = Duration::from_secs(300);
/// Ticket keys and the self-signed certificate are looked at this often.
const KEYS: Duration = Duration::from_secs(600);
/// The self-signed certificate is made anew when less is left of it.
const RENEW_SECONDS: u64 = 30 * 24 * 3600;
/// Worker threads that read cold files.
const POOL_THREADS: usize = 4;
/// Reads that may wait for one of them.
const POOL_QUEUE: usize = 10_000;
/// A worker that ended all the same is started anew after this pause.
const RESTART: Duration = Duration::from_millis(200);
/// Workers end by themselves at the deadline of a drain; one that doesn't is left behind.
const DRAIN_MARGIN: Duration = Duration::from_secs(5);

/// The worker that reads the sockets of QUIC, for all.
const QUIC_HOST: usize = 0;

/// Everything that runs.
pub struct ControlPlane {
    chosen: ConfigSource,
    overrides: Overrides,
    pub(super) config: Config,
    pub(super) listeners: Listeners,
    pub(super) supplies: SharedResources,
    pub(super) world: Arc<World>,
    pub(super) stats: Arc<Stats>,
    pub(super) started: Instant,
    pub(super) workers: Vec<WorkerHandle>,
    pub(super) shared: Arc<ProcessContext>,
    /// Folders are scanned here, apart from the reads that requests wait for.
    pub(super) scans: ThreadPool,
    pub(super) watch: Option<Watch>,
    /// What is known to have changed and isn't looked at yet.
    pub(super) changes: Changes,
    /// Files that may be half written; true where something was told of them, after which nothing more
    /// may come.
    pub(super) unsettled: BTreeMap<(SiteId, PathBuf), bool>,
    /// Sites that couldn't be read: it is tried again.
    pub(super) missed: BTreeSet<SiteId>,
    /// Files of the configuration as they were read, for where they can't be watched.
    pub(super) file_stamps: Vec<(PathBuf, Option<FileStamp>)>,
    /// Has certificates issued.
    pub(super) acme: AcmeHandle,
    /// Branches that become folders of sites.
    pub(super) deployments: Deployments,
    error_log: ErrorLog,
    control: ControlSocket,
    /// Who asked us to stop, and waits for it.
    stopping_for: Vec<ControlRequest>,
    /// Told by a worker's thread when it ends.
    pub(super) ended: (UnboundedSender<usize>, UnboundedReceiver<usize>),
}

pub(super) struct WorkerHandle {
    pub(super) commands: UnboundedSender<WorkerCommand>,
    /// None once it has ended.
    thread: Option<JoinHandle<()>>,
}

/// Why the loop woke up.
enum ControlEvent {
    Hangup,
    Reopen,
    Stop,
    Asked(ControlRequest),
    Files,
    Settled,
    Quiet,
    Rescan,
    LookAgain,
    /// A request found a path on disk that differs from the site.
    Found,
    Keys,
    Hits,
    WorkerEnded(usize),
    Deployments(DeploymentEvent),
}

impl ControlPlane {
    /// Binds, drops privileges, reads everything and starts the workers.
    pub fn start(
        chosen: ConfigSource,
        mut overrides: Overrides,
        error_log: ErrorLog,
    ) -> Result<ControlPlane, OperatorError> {
        let config = chosen.read(&overrides)?;
        overrides.settle(&config);
        for warning in config::check(&config)? {
            log::warn!("{warning}");
        }
        socket::refuse_second(&config)?;
        let count = config
            .server
            .workers
            .as_ref()
            .map_or_else(sys::cpu_count, |workers| *workers.get_ref());
        let listeners = bind(&config, count)?;
        sys::raise_nofile_limit();
        sys::set_cloexec_on_inherited();
        if let Err(error) = sys::keep_capabilities() {
            log::warn!("scripts may inherit capabilities, which can't be kept from them: {error}");
        }
        sys::reset_signals();
        sys::detect_cpu_features();
        let user = user_ids(&config)?;
        prepare_state(&config, user.as_ref())?;
        drop_privileges(&config, user.as_ref())?;
        sandbox_repository::remove_former(config.server.state.get_ref());
        let control = ControlSocket::bind(&config)?;

        let sinks = Arc::new(Sinks::default());
        direct_errors(&config, &sinks, &error_log)?;
        let (tickets, self_signed) = tls_supplies(&config)?;
        let memory = config.server.memory_max.unwrap_or_else(memory_auto);
        deploy_missing_roots(&config, FIRST_DEPLOY_WAIT_MAX)?;
        let (deployments, pushes) = Deployments::new();
        let origin = Instant::now();
        let pending_head_bytes = pending_head_bytes(memory);
        let budget = Arc::new(ContentBudget::new(memory - pending_head_bytes as u64));
        let refusals = Arc::<RefusalCounters>::default();
        let supplies = SharedResources {
            cache: load_pages(&config, origin, &budget),
            hits: load_hits(&config),
            budget,
            sinks,
            logins: logins(&refusals)?,
            tickets,
            self_signed,
            https_port: https_port(&config, &listeners),
            challenges: Arc::default(),
            h3_port: h3_port(&config, &listeners),
            programs: Arc::new(ProcessRunner::new(
                config.server.limits.scripts,
                config.server.state.get_ref(),
                &refusals,
            )),
            readers: Arc::new(BrowseLimiter::new(config.server.limits.scripts, &refusals)),
            backends: Arc::new(Backends::new(&refusals)),
            pushes,
            lag: Arc::default(),
            refusals,
        };
        supplies.programs.spools().remove_leftovers();
        let seen = stamp_config_files(&config);
        let world = Arc::new(build::build(
            &config,
            &supplies,
            None,
            clock::unix_seconds_now(),
        )?);
        let shared = Arc::new(ProcessContext {
            open: AtomicUsize::new(0),
            ledger: Arc::default(),
            pool: Arc::new(ThreadPool::new("anthill-read", POOL_THREADS, POOL_QUEUE)),
            quic: h3::QuicWorkers::default(),
            change_tracker: supplies.lag.clone(),
            refusals: supplies.refusals.clone(),
            pending_head_bytes_max: (pending_head_bytes / count)
                .max(limits::PENDING_HEAD_BYTES_MIN),
            origin,
        });
        compress_in_background(supplies.budget.clone());
        let acme = AcmeHandle::new(supplies.challenges.clone());
        let mut plane = ControlPlane {
            chosen,
            overrides,
            config,
            listeners,
            supplies,
            world,
            stats: Arc::new(Stats::new(count)),
            started: Instant::now(),
            workers: Vec::new(),
            shared,
            scans: ThreadPool::new("anthill-scan", 1, POOL_QUEUE),
            watch: None,
            changes: Changes::default(),
            unsettled: BTreeMap::new(),
            missed: BTreeSet::new(),
            file_stamps: seen,
            acme,
            deployments,
            error_log,
            control,
            stopping_for: Vec::new(),
            ended: mpsc::unbounded_channel(),
        };
        // All has been read and built; what runs from here on is little of the program.
        sys::release_code_pages();
        for index in 0..count {
            let running = plane.start_worker(index)?;
            plane.workers.push(running);
        }
        Ok(plane)
    }

    /// Threads that serve.
    pub(super) fn workers_count(&self) -> usize {
        self.workers.len()
    }

    fn start_worker(&self, index: usize) -> Result<WorkerHandle, OperatorError> {
        let failed = |error: io::Error| {
            OperatorError::failure(format!("can't start worker {index}: {error}"))
        };
        let (commands, receiver) = mpsc::unbounded_channel();
        for listening in self.listeners.for_worker(index, None).map_err(failed)? {
            let _ = commands.send(WorkerCommand::Listen(listening));
        }
        if index == QUIC_HOST {
            for socket in self.listeners.quic(None).map_err(failed)? {
                let _ = commands.send(WorkerCommand::Quic(socket));
            }
        }
        let world = self.world.clone();
        let shared = self.shared.clone();
        let stats = self.stats.worker(index);
        let ended = self.ended.0.clone();
        let thread = thread::Builder::new()
            .name(format!("anthill-{index}"))
            .stack_size(WORKER_STACK_BYTES)
            .spawn(move || {
                let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    worker::run(world, shared, stats, receiver)
                }));
                match ran {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => log::error!("worker {index}: {error}"),
                    Err(_) => log::error!("worker {index} panicked"),
                }
                let _ = ended.send(index);
            })
            .map_err(failed)?;
        Ok(WorkerHandle {
            commands,
            thread: Some(thread),
        })
    }

    /// Runs until told to stop; then drains, and ends the process.
    pub fn run(mut self) -> Result<Infallible, OperatorError> {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build();
        let runtime =
            runtime.map_err(|error| OperatorError::failure(format!("can't start: {error}")))?;
        let stopped = runtime.block_on(async {
            let failed =
                |what: &str, error: io::Error| OperatorError::failure(format!("{what}: {error}"));
            let mut signals = Signals::new().map_err(|error| failed("signals", error))?;
            self.control
                .open()
                .map_err(|error| failed("the control socket", error))?;
            self.deployments
                .plan(&self.config, self.supplies.https_port);
            self.rebuild_watches();
            banner::print(&self);
            let _ = sys::notify("READY=1");
            self.acme.plan(&self.config, false);
            // The workers have found their feet too: again, little of the program is needed from here.
            task::spawn(async {
                tokio::time::sleep(SETTLED).await;
                sys::release_code_pages();
            });
            self.serve(&mut signals).await;
            let _ = sys::notify("STOPPING=1");
            self.drain(&mut signals).await;
            for question in std::mem::take(&mut self.stopping_for) {
                question.write(Ok("stopped\n".into())).await;
            }
            Ok(())
        });
        stopped?;
        // Its file goes. All else is memory and threads, which the system takes back by itself; to give
        // it back one by one could wait for a thread that is in the midst of something.
        drop(self.control);
        log::logger().flush();
        let _ = io::stdout().flush();
        sys::exit_at_once(0)
    }

    async fn serve(&mut self, signals: &mut Signals) {
        let mut settle = Some(tokio::time::Instant::now());
        // The first change after a quiet time is looked at when it is told, others after a pause.
        let mut rested = tokio::time::Instant::now();
        let mut found = rested;
        let mut keys = tokio::time::interval(KEYS);
        let mut hits = tokio::time::interval(HITS);
        let mut rescan = tokio::time::interval(RESCAN);
        let mut stale = tokio::time::interval(STALE);
        loop {
            let next = self.next_event(signals, settle, &mut keys, &mut rescan, &mut stale, found);
            let event = tokio::select! {
                event = next => event,
                _ = hits.tick() => ControlEvent::Hits,
            };
            match event {
                ControlEvent::Stop => return,
                ControlEvent::Hangup => {
                    let _ = self.reload().await;
                }
                ControlEvent::Reopen => {
                    self.flush_logs().await;
                    self.supplies.sinks.reopen();
                }
                ControlEvent::Asked(question) => {
                    if self.answer(question).await {
                        return;
                    }
                }
                ControlEvent::Files => {
                    self.hear_of_files();
                    if self.changes.is_empty() {
                        self.caught_up();
                    } else if settle.is_none() {
                        settle = Some(rested);
                    }
                }
                ControlEvent::Settled => {
                    settle = None;
                    let begun = tokio::time::Instant::now();
                    self.apply().await;
                    rested = tokio::time::Instant::now() + pause_after(begun.elapsed());
                }
                ControlEvent::Quiet => {
                    self.find_settled();
                    self.apply().await;
                }
                ControlEvent::Rescan => {
                    self.changes.rescan.extend(self.missed.iter().copied());
                    if !self.is_watching() {
                        self.changes.rescan.extend(self.all_places());
                        self.changes.files |= self.file_stamps != stamp_config_files(&self.config);
                        self.deployments.look_at_idle();
                    }
                    self.apply().await;
                }
                ControlEvent::LookAgain => self.deployments.look_again(),
                ControlEvent::Found => {
                    let begun = tokio::time::Instant::now();
                    self.apply_stale_paths().await;
                    found = tokio::time::Instant::now() + pause_after(begun.elapsed());
                }
                ControlEvent::Keys => self.renew_keys().await,
                ControlEvent::Hits => self.save_hits(),
                ControlEvent::WorkerEnded(index) => self.restart(index).await,
                ControlEvent::Deployments(news) => self.handle_deployment_event(news).await,
            }
        }
    }

    async fn next_event(
        &mut self,
        signals: &mut Signals,
        settle: Option<tokio::time::Instant>,
        keys: &mut tokio::time::Interval,
        rescan: &mut tokio::time::Interval,
        stale: &mut tokio::time::Interval,
        found: tokio::time::Instant,
    ) -> ControlEvent {
        let rescans = !self.is_watching() || !self.missed.is_empty();
        let again = self.deployments.looks_again_at();
        let watch = &self.watch;
        let lag = &self.supplies.lag;
        let ended = &mut self.ended.1;
        let deployments = &mut self.deployments;
        let files = async {
            match watch {
                Some(watch) => watch.readable().await,
                None => std::future::pending().await,
            }
        };
        let settled = async {
            match settle {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let found = async {
            tokio::time::sleep_until(found).await;
            lag.recheck_requested().await;
        };
        let unsettled = !self.unsettled.is_empty();
        let quiet = async {
            match unsettled {
                true => tokio::time::sleep(QUIET).await,
                false => std::future::pending().await,
            }
        };
        let rescan = async {
            if rescans {
                rescan.tick().await;
                rescan.reset();
            } else {
                std::future::pending().await
            }
        };
        let again = async {
            match again {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = signals.interrupt.recv() => ControlEvent::Stop,
            _ = signals.terminate.recv() => ControlEvent::Stop,
            _ = signals.hangup.recv() => ControlEvent::Hangup,
            _ = signals.reopen.recv() => ControlEvent::Reopen,
            question = self.control.next_request() => ControlEvent::Asked(question),
            () = files => ControlEvent::Files,
            () = settled => ControlEvent::Settled,
            () = quiet => ControlEvent::Quiet,
            () = rescan => ControlEvent::Rescan,
            () = again => ControlEvent::LookAgain,
            _ = keys.tick() => ControlEvent::Keys,
            () = found => ControlEvent::Found,
            _ = stale.tick() => ControlEvent::Found,
            Some(index) = ended.recv() => ControlEvent::WorkerEnded(index),
            news = deployments.news() => ControlEvent::Deployments(news),
        }
    }

    /// Starts a worker anew, on the sockets that it had.
    pub(super) async fn restart(&mut self, index: usize) {
        if let Some(thread) = self.workers[index].thread.take() {
            let _ = thread.join();
        }
        log::error!("worker {index} ended; it is started anew");
        tokio::time::sleep(RESTART).await;
        match self.start_worker(index) {
            Ok(running) => self.workers[index] = running,
            Err(error) => {
                log::error!("{}", error.in_one_line());
                // Its sockets wait for it: try again.
                let _ = self.ended.0.send(index);
            }
        }
    }

    /// Reads the configuration again and serves it; returns when every worker does.
    async fn reload(&mut self) -> Result<String, OperatorError> {
        let _ = sys::notify("RELOADING=1");
        let reloaded = self.try_reload().await;
        let _ = sys::notify("READY=1");
        if let Err(error) = &reloaded {
            log::error!(
                "reload refused, the old configuration goes on: {}",
                error.in_one_line()
            );
        }
        reloaded
    }

    async fn try_reload(&mut self) -> Result<String, OperatorError> {
        // What was told belongs to the places of this World, not to those of the next.
        self.apply().await;
        let mut config = self.chosen.read(&self.overrides)?;
        let mut said: Vec<String> = config::check(&config)?;
        said.extend(keep_until_restart(&self.config.server, &mut config.server));
        let new = self.listeners.bind(&config, self.workers.len())?;
        let new_quic = self.listeners.bind_quic(&config)?;
        let seen = stamp_config_files(&config);
        self.deploy_missing_roots(&config).await.inspect_err(|_| {
            self.listeners.forget(&new);
        })?;
        let (supplies, world) = self.prepare(&config).inspect_err(|_| {
            self.listeners.forget(&new);
        })?;
        self.supplies = supplies;
        self.config = config;
        self.file_stamps = seen;
        self.publish(world).await;
        for (index, running) in self.workers.iter().enumerate() {
            match self.listeners.for_worker(index, Some(&new)) {
                Ok(sockets) => {
                    for listening in sockets {
                        let _ = running.commands.send(WorkerCommand::Listen(listening));
                    }
                }
                Err(error) => log::error!("worker {index}: {error}"),
            }
        }
        match self.listeners.quic(Some(&new_quic)) {
            Ok(sockets) => {
                for socket in sockets {
                    let _ = self.workers[QUIC_HOST]
                        .commands
                        .send(WorkerCommand::Quic(socket));
                }
            }
            Err(error) => log::error!("HTTP/3: {error}"),
        }
        let retired = self.listeners.retire(&self.config);
        if !retired.is_empty() {
            tokio::time::sleep(RETIRE_DELAY).await;
        }
        for (address, secure) in retired {
            for running in &self.workers {
                let _ = running
                    .commands
                    .send(WorkerCommand::Unlisten(address, secure));
            }
        }
        self.missed.clear();
        self.unsettled.clear();
        self.deployments
            .plan(&self.config, self.supplies.https_port);
        self.rebuild_watches();
        self.apply().await;
        self.acme.plan(&self.config, true);
        said.insert(
            0,
            format!("configuration {} is served", self.world.generation),
        );
        log::info!("reloaded: {}", said.join("; "));
        Ok(said.join("\n") + "\n")
    }

    /// All that a new configuration needs, without touching what serves now.
    fn prepare(&self, config: &Config) -> Result<(SharedResources, World), OperatorError> {
        let mut supplies = self.supplies.clone();
        let tickets = |config: &Config| {
            let file = config.tls.tickets.as_ref();
            file.map(|file| file.get_ref().clone())
        };
        let serves_tls = !config.server.https.is_empty();
        if serves_tls && (supplies.tickets.is_none() || tickets(config) != tickets(&self.config)) {
            (supplies.tickets, supplies.self_signed) = tls_supplies(config)?;
        }
        supplies.https_port = https_port(config, &self.listeners);
        supplies.h3_port = h3_port(config, &self.listeners);
        let now = clock::unix_seconds_now();
        let world = build::build(config, &supplies, Some(&self.world), now)?;
        direct_errors(config, &supplies.sinks, &self.error_log)?;
        Ok((supplies, world))
    }

    /// Hands `world` to every worker and waits until all serve it.
    pub(super) async fn publish(&mut self, world: World) {
        self.supplies.programs.resize(world.limits.scripts);
        world.settle();
        self.supplies.readers.resize(world.limits.scripts);
        self.world = Arc::new(world);
        let mut waiting = Vec::new();
        for running in &self.workers {
            let (done, serves) = oneshot::channel();
            if running
                .commands
                .send(WorkerCommand::World(self.world.clone(), done))
                .is_ok()
            {
                waiting.push(serves);
            }
        }
        for serves in waiting {
            // A worker that has ended is started with the new World anyway.
            let _ = serves.await;
        }
    }

    async fn flush_logs(&self) {
        for running in &self.workers {
            let (done, flushed) = oneshot::channel();
            if running
                .commands
                .send(WorkerCommand::FlushLogs(done))
                .is_ok()
            {
                let _ = flushed.await;
            }
        }
    }

    pub(super) fn rotate_tickets(&mut self) {
        if let Some(tickets) = &self.supplies.tickets
            && let Err(error) = tickets.rotate_if_due(clock::unix_seconds_now())
        {
            log::error!("ticket keys: {error}");
        }
    }

    /// Keeps ticket keys and the self-signed certificate young.
    async fn renew_keys(&mut self) {
        self.rotate_tickets();
        let now = clock::unix_seconds_now();
        let Some(self_signed) = &self.supplies.self_signed else {
            return;
        };
        if now + RENEW_SECONDS <= self_signed.not_after() {
            return;
        }
        let state = self.config.server.state.get_ref();
        match SelfSigned::load_or_make(state, &banner::self_signed_names(&self.config), now) {
            Ok(made) => {
                self.supplies.self_signed = Some(Arc::new(made));
                self.changes.files = true;
                self.apply().await;
            }
            Err(error) => log::error!("the self-signed certificate: {error}"),
        }
    }

    /// Runs a command of the control socket. Returns true if the server is to stop.
    async fn answer(&mut self, request: ControlRequest) -> bool {
        let answer = match Command::parse(&request.line) {
            Ok(Command::Reload) => self.reload().await.map_err(|error| format!("{error}\n")),
            Ok(Command::Stop) => {
                // The response is sent at the end of the drain.
                self.stopping_for.push(request);
                return true;
            }
            command => {
                if let Ok(Command::Hits { .. }) = command {
                    // Workers hand over the views of the last seconds.
                    self.flush_logs().await;
                }
                self.query(command)
            }
        };
        request.answer(answer);
        false
    }

    /// Responds to a command that needs no change of the World.
    fn query(&self, command: Result<Command, UnknownCommand>) -> Result<String, String> {
        match command {
            Ok(Command::Status(StatusFormat::Text)) => Ok(status::status(self).text()),
            Ok(Command::Status(StatusFormat::Json)) => Ok(status::status(self).json()),
            Ok(Command::Hits { format, site }) => self.hits(format, site.as_deref()),
            Ok(Command::Purge { site, path }) => self.purge(&site, &path),
            Ok(Command::Reload | Command::Stop) => {
                Err("error: the server is stopping\n".to_owned())
            }
            Err(unknown) => Err(format!("error: {unknown}\n")),
        }
    }

    /// Returns the hit counts of a site, or of all sites.
    fn hits(&self, format: HitsFormat, site: Option<&str>) -> Result<String, String> {
        let names: Vec<&str> = match site {
            None => {
                let hosts = self.world.hosts.iter();
                hosts.map(|host| host.names[0].as_str()).collect()
            }
            Some(site) => vec![&self.host(site)?.names[0]],
        };
        let hits = &self.supplies.hits;
        Ok(match format {
            HitsFormat::Json => hits.json(&names),
            HitsFormat::File => {
                let texts = names.iter().filter_map(|name| hits.written(name));
                texts
                    .map(|text| String::from_utf8_lossy(&text).into_owned())
                    .collect()
            }
            HitsFormat::Text => hits.shown(&names),
        })
    }

    fn save_hits(&self) {
        if let Err(error) = self.supplies.hits.save(self.config.server.state.get_ref()) {
            log::error!("the hit counts can't be written: {error}");
        }
    }

    /// The site with this name, as the configuration has it.
    fn host(&self, site: &str) -> Result<&Arc<Host>, String> {
        let is_named = |host: &&Arc<Host>| host.names.iter().any(|name| name == site);
        self.world.hosts.iter().find(is_named).ok_or_else(|| {
            let names = self.world.hosts.iter().flat_map(|host| &host.names);
            let names: Vec<&str> = names.map(String::as_str).collect();
            let names = names.join(", ");
            format!("error: there is no site `{site}`\nhelp: {names}\n")
        })
    }

    /// Removes pages of a site from the page cache.
    fn purge(&self, site: &str, path: &str) -> Result<String, String> {
        let host = self.host(site)?;
        if !path.starts_with('/') {
            return Err(format!(
                "error: `{path}` is no path of a site\nhelp: it begins with a slash: /news, or /news/* for all below it\n"
            ));
        }
        let gone = self.supplies.cache.purge(&host.names[0], path);
        let pages = if gone == 1 { "page" } else { "pages" };
        Ok(format!("{gone} {pages} forgotten\n"))
    }

    /// Lets requests under way finish; a second signal ends it at once.
    async fn drain(&mut self, signals: &mut Signals) {
        let seconds = self.config.server.limits.drain_seconds;
        let deadline = Duration::from_secs(seconds.into());
        log::info!("stopping: requests under way have {seconds} s to finish");
        // From here on nobody brings in what the disk tells, and nobody is to wait for it.
        self.supplies.lag.set_inotify(None);
        self.supplies.lag.begin_recheck();
        self.caught_up();
        self.deployments.stop();
        // Whoever takes our place may have certificates issued from now on.
        self.acme = AcmeHandle::new(self.supplies.challenges.clone());
        // The workers accept what waits and close; our own copies would keep the ports open, and
        // whoever comes now would wait for nobody.
        self.listeners = Listeners::default();
        for running in &self.workers {
            let _ = running.commands.send(WorkerCommand::Drain(deadline));
        }
        let patience = tokio::time::sleep(deadline + DRAIN_MARGIN);
        let mut patience = std::pin::pin!(patience);
        while self.workers.iter().any(|running| running.thread.is_some()) {
            tokio::select! {
                Some(index) = self.ended.1.recv() => {
                    if let Some(thread) = self.workers[index].thread.take() {
                        let _ = thread.join();
                    }
                }
                request = self.control.next_request() => match Command::parse(&request.line) {
                    Ok(Command::Stop) => self.stopping_for.push(request),
                    command => {
                        let answer = self.query(command);
                        request.answer(answer);
                    }
                },
                _ = signals.interrupt.recv() => break,
                _ = signals.terminate.recv() => break,
                () = &mut patience => {
                    log::error!("stopped with workers that don't end");
                    break;
                }
            }
        }
        // What ran for requests that were cut off is not left behind.
        self.supplies.programs.finish();
        for plan in self.deployments.finish().await {
            self.forget_pages(&plan);
        }
        self.save_hits();
        let state = self.config.server.state.get_ref();
        if let Err(error) = self.supplies.cache.save(state) {
            log::error!("the pages that were to be kept can't be written: {error}");
        }
        self.supplies
            .sinks
            .flush(Instant::now() + Duration::from_secs(2));
    }
}

/// How long changes are gathered after a World that took so long to make: a script that writes many
/// files, or a deployment, is not followed step by step.
fn pause_after(renewing: Duration) -> Duration {
    let least = Duration::from_millis(limits::WORLD_UPDATE_PAUSE_MILLISECONDS_MIN);
    let most = Duration::from_millis(limits::WORLD_UPDATE_PAUSE_MILLISECONDS_MAX);
    (renewing * (limits::WORLD_UPDATE_TIME_DIVISOR - 1)).clamp(least, most)
}

/// Stack of a worker. A request that scripts send on within the server 8 times, each time through the page
/// cache, takes 140 KiB in a release build and more than 512 KiB in a debug build. What isn't touched costs
/// no memory.
const WORKER_STACK_BYTES: usize = 1024 * 1024;

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    reopen: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            reopen: signal(SignalKind::user_defined1())?,
        })
    }
}

/// What a reload can't change stays as it is; says so where something else is configured now.
fn keep_until_restart(old: &config::ServerConfig, new: &mut config::ServerConfig) -> Vec<String> {
    let mut said = Vec::new();
    let mut keep = |key: &str, same: bool| {
        if !same {
            said.push(format!(
                "`{key}` changed: this takes effect after a restart"
            ));
        }
    };
    let workers = |server: &config::ServerConfig| server.workers.as_ref().map(|its| *its.get_ref());
    let user =
        |server: &config::ServerConfig| server.user.as_ref().map(|its| its.get_ref().clone());
    keep("workers", workers(old) == workers(new));
    keep("state", old.state.get_ref() == new.state.get_ref());
    keep("user", user(old) == user(new));
    keep("control", old.control.get_ref() == new.control.get_ref());
    keep("memory_max", old.memory_max == new.memory_max);
    new.workers.clone_from(&old.workers);
    new.state.clone_from(&old.state);
    new.user.clone_from(&old.user);
    new.control.clone_from(&old.control);
    new.memory_max = old.memory_max;
    said
}
