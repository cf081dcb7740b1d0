//! The control plane: one thread that owns the sockets, the watches and the workers, and publishes
//! each new World to them.

use super::greeting;
use super::listeners::Listeners;
use super::socket;
use super::status;
use super::watch::{Changes, Place, Watch};
use crate::base::clock;
use crate::base::log::{Destination, ErrorLog, Sinks};
use crate::base::pool::Pool;
use crate::base::stats::Stats;
use crate::base::sys;
use crate::config::{self, Chosen, Config, OperatorError, Overrides};
use crate::limits;
use crate::serve::worker::{self, Command, Shared};
use crate::site::{Budget, Site};
use crate::tls::{SelfSigned, Tickets};
use crate::world::build::{self, Supplies};
use crate::world::users::Logins;
use crate::world::{Host, Hosts, Target, World};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

/// Where folders can't be watched, they are scanned this often.
pub const RESCAN: Duration = Duration::from_secs(10);
/// Changes are gathered this long before they are looked at: an upload touches many files at once.
const COALESCE: Duration = Duration::from_millis(100);
/// Files that a request found other than expected are looked at again this often.
const STALE: Duration = Duration::from_secs(2);
/// Ticket keys are looked at this often.
const TICKETS: Duration = Duration::from_secs(600);
/// Worker threads that read cold files.
const POOL_THREADS: usize = 4;
/// Reads that may wait for one of them.
const POOL_QUEUE: usize = 10_000;
/// A worker that ended all the same is started anew after this pause.
const RESTART: Duration = Duration::from_millis(200);

/// Everything that runs.
pub struct Plane {
    chosen: Chosen,
    overrides: Overrides,
    pub(super) config: Config,
    pub(super) listeners: Listeners,
    pub(super) supplies: Supplies,
    pub(super) world: Arc<World>,
    pub(super) stats: Arc<Stats>,
    pub(super) started: Instant,
    workers: Vec<Running>,
    pub(super) shared: Arc<Shared>,
    watch: Option<Watch>,
    error_log: ErrorLog,
    /// Who asked us to stop, and waits for it.
    stopping_for: Option<tokio::net::UnixStream>,
    /// Told by a worker's thread when it ends.
    ended: (UnboundedSender<usize>, UnboundedReceiver<usize>),
}

struct Running {
    commands: UnboundedSender<Command>,
    thread: Option<JoinHandle<()>>,
}

/// Why the loop woke up.
enum Event {
    Hangup,
    Reopen,
    Stop,
    Asked(tokio::net::UnixStream),
    Files,
    Settled,
    Rescan,
    Stale,
    Tickets,
    WorkerEnded(usize),
}

/// What a command over the socket asks for.
pub(super) enum Outcome {
    /// This text, for standard output.
    Text(String),
    /// Refused, with this text.
    Error(String),
    /// Stop, then close the connection.
    Stop,
}

impl Plane {
    /// Binds, drops privileges, reads everything and starts the workers.
    pub fn start(
        chosen: Chosen,
        mut overrides: Overrides,
        error_log: ErrorLog,
    ) -> Result<Plane, OperatorError> {
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
        prepare_state(&config)?;
        drop_privileges(&config)?;

        let sinks = Arc::new(Sinks::default());
        direct_errors(&config, &sinks, &error_log)?;
        let (tickets, self_signed) = tls_supplies(&config)?;
        let memory = config.server.memory_max.unwrap_or_else(memory_auto);
        let supplies = Supplies {
            budget: Arc::new(Budget::new(memory as usize)),
            sinks,
            logins: logins()?,
            tickets,
            self_signed,
            https_port: config.server.public_port.or_else(|| listeners.https_port()),
        };
        let world = Arc::new(build::build(
            &config,
            &supplies,
            None,
            clock::unix_seconds_now(),
        )?);
        let shared = Arc::new(Shared {
            open: AtomicUsize::new(0),
            addresses: Arc::default(),
            pool: Arc::new(Pool::new("anthill-read", POOL_THREADS, POOL_QUEUE)),
            origin: Instant::now(),
        });
        compress_in_background(supplies.budget.clone());
        let mut plane = Plane {
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
            watch: None,
            error_log,
            stopping_for: None,
            ended: mpsc::unbounded_channel(),
        };
        // All has been read and built; what runs from here on is little of the program.
        sys::forget_startup_code();
        for index in 0..count {
            let running = plane.start_worker(index)?;
            plane.workers.push(running);
        }
        Ok(plane)
    }

    /// Keeps the connection of who asked for the end.
    pub(super) fn stopping_for(&mut self, stream: tokio::net::UnixStream) {
        self.stopping_for = Some(stream);
    }

    /// Threads that serve.
    pub(super) fn workers_count(&self) -> usize {
        self.workers.len()
    }

    fn start_worker(&self, index: usize) -> Result<Running, OperatorError> {
        let failed = |error: io::Error| {
            OperatorError::failure(format!("can't start worker {index}: {error}"))
        };
        let (commands, receiver) = mpsc::unbounded_channel();
        for listening in self.listeners.for_worker(index, None).map_err(failed)? {
            let _ = commands.send(Command::Listen(listening));
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
        Ok(Running {
            commands,
            thread: Some(thread),
        })
    }

    /// Runs until told to stop; then drains.
    pub fn run(mut self) -> Result<(), OperatorError> {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build();
        let runtime =
            runtime.map_err(|error| OperatorError::failure(format!("can't start: {error}")))?;
        runtime.block_on(async {
            let control = socket::listen(&self.config)?;
            let mut signals = Signals::new()
                .map_err(|error| OperatorError::failure(format!("signals: {error}")))?;
            self.watch_anew();
            greeting::print(&self);
            let _ = sys::notify("READY=1");
            self.serve(&control, &mut signals).await;
            let _ = sys::notify("STOPPING=1");
            self.drain(&mut signals).await;
            socket::remove(&self.config);
            if let Some(mut stream) = self.stopping_for.take() {
                let _ = stream.write_all(b"ok\nstopped\n").await;
            }
            Ok(())
        })
    }

    async fn serve(&mut self, control: &UnixListener, signals: &mut Signals) {
        let mut changes = Changes::default();
        let mut settle: Option<tokio::time::Instant> = None;
        let mut tickets = tokio::time::interval(TICKETS);
        let mut rescan = tokio::time::interval(RESCAN);
        let mut stale = tokio::time::interval(STALE);
        loop {
            let event = self
                .next_event(
                    control,
                    signals,
                    settle,
                    &mut tickets,
                    &mut rescan,
                    &mut stale,
                )
                .await;
            match event {
                Event::Stop => return,
                Event::Hangup => {
                    if let Err(error) = self.reload().await {
                        refused(&error);
                    }
                }
                Event::Reopen => {
                    self.flush_logs().await;
                    self.supplies.sinks.reopen();
                }
                Event::Asked(stream) => {
                    if socket::answer(self, stream).await {
                        return;
                    }
                }
                Event::Files => {
                    if let Some(watch) = &mut self.watch
                        && let Err(error) = watch.read(&mut changes)
                    {
                        log::error!("watching files: {error}");
                    }
                    if settle.is_none() && !changes.is_empty() {
                        settle = Some(tokio::time::Instant::now() + COALESCE);
                    }
                }
                Event::Settled => {
                    settle = None;
                    self.apply(std::mem::take(&mut changes)).await;
                }
                Event::Rescan => {
                    changes.whole.extend(self.places().map(|(place, _)| place));
                    self.apply(std::mem::take(&mut changes)).await;
                }
                Event::Stale => {
                    for (place, site) in self.places() {
                        let stale = site.take_stale();
                        if !stale.is_empty() {
                            changes.sites.entry(place).or_default().extend(stale);
                        }
                    }
                    self.apply(std::mem::take(&mut changes)).await;
                }
                Event::Tickets => self.rotate_tickets(),
                Event::WorkerEnded(index) => {
                    log::error!("worker {index} ended; it is started anew");
                    tokio::time::sleep(RESTART).await;
                    match self.start_worker(index) {
                        Ok(running) => self.workers[index] = running,
                        Err(error) => log::error!("{}", error.in_one_line()),
                    }
                }
            }
        }
    }

    async fn next_event(
        &mut self,
        control: &UnixListener,
        signals: &mut Signals,
        settle: Option<tokio::time::Instant>,
        tickets: &mut tokio::time::Interval,
        rescan: &mut tokio::time::Interval,
        stale: &mut tokio::time::Interval,
    ) -> Event {
        let exhausted = self.watch.as_ref().is_none_or(|watch| watch.exhausted);
        let watch = &self.watch;
        let ended = &mut self.ended.1;
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
        let rescan = async {
            if exhausted {
                rescan.tick().await;
                rescan.reset();
            } else {
                std::future::pending().await
            }
        };
        let asked = async {
            loop {
                if let Ok((stream, _)) = control.accept().await {
                    return stream;
                }
                tokio::time::sleep(COALESCE).await;
            }
        };
        tokio::select! {
            _ = signals.interrupt.recv() => Event::Stop,
            _ = signals.terminate.recv() => Event::Stop,
            _ = signals.hangup.recv() => Event::Hangup,
            _ = signals.reopen.recv() => Event::Reopen,
            stream = asked => Event::Asked(stream),
            () = files => Event::Files,
            () = settled => Event::Settled,
            () = rescan => Event::Rescan,
            _ = tickets.tick() => Event::Tickets,
            _ = stale.tick() => Event::Stale,
            Some(index) = ended.recv() => Event::WorkerEnded(index),
        }
    }

    /// Reads the configuration again and serves it; returns when every worker does.
    pub(super) async fn reload(&mut self) -> Result<String, OperatorError> {
        let _ = sys::notify("RELOADING=1");
        let reloaded = self.try_reload().await;
        let _ = sys::notify("READY=1");
        reloaded
    }

    async fn try_reload(&mut self) -> Result<String, OperatorError> {
        let config = self.chosen.read(&self.overrides)?;
        let mut said: Vec<String> = config::check(&config)?;
        said.extend(needs_restart(&self.config, &config));
        let new = self.listeners.bind(&config, self.workers.len())?;
        // What is refused must leave nothing behind for the next World to find.
        let https_port = self.supplies.https_port;
        let built = self.world_of(&config).and_then(|world| {
            direct_errors(&config, &self.supplies.sinks, &self.error_log)?;
            Ok(world)
        });
        let world = match built {
            Ok(world) => world,
            Err(error) => {
                self.listeners.forget(&new);
                self.supplies.https_port = https_port;
                return Err(error);
            }
        };
        self.config = config;
        self.publish(world).await;
        for (index, running) in self.workers.iter().enumerate() {
            match self.listeners.for_worker(index, Some(&new)) {
                Ok(sockets) => {
                    for listening in sockets {
                        let _ = running.commands.send(Command::Listen(listening));
                    }
                }
                Err(error) => log::error!("worker {index}: {error}"),
            }
        }
        for (address, secure) in self.listeners.retire(&self.config) {
            for running in &self.workers {
                let _ = running.commands.send(Command::Unlisten(address, secure));
            }
        }
        self.watch_anew();
        said.insert(
            0,
            format!("configuration {} is served", self.world.generation),
        );
        log::info!("reloaded: {}", said.join("; "));
        Ok(said.join("\n") + "\n")
    }

    fn world_of(&mut self, config: &Config) -> Result<World, OperatorError> {
        if self.supplies.tickets.is_none() && !config.server.https.is_empty() {
            (self.supplies.tickets, self.supplies.self_signed) = tls_supplies(config)?;
        }
        self.supplies.https_port = config
            .server
            .public_port
            .or_else(|| self.listeners.https_port());
        build::build(
            config,
            &self.supplies,
            Some(&self.world),
            clock::unix_seconds_now(),
        )
    }

    /// Hands `world` to every worker and waits until all serve it.
    async fn publish(&mut self, world: World) {
        self.world = Arc::new(world);
        let mut waiting = Vec::new();
        for running in &self.workers {
            let (done, serves) = oneshot::channel();
            if running
                .commands
                .send(Command::World(self.world.clone(), done))
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
            if running.commands.send(Command::FlushLogs(done)).is_ok() {
                let _ = flushed.await;
            }
        }
    }

    /// Every site of the World and its place.
    fn places(&self) -> impl Iterator<Item = (Place, Arc<Site>)> + use<'_> {
        self.world.hosts.iter().enumerate().flat_map(|(host, its)| {
            let routes = its
                .routes
                .iter()
                .enumerate()
                .filter_map(move |(route, of)| match &of.target {
                    Some(Target::Site(site)) => Some((
                        Place {
                            host,
                            route: Some(route),
                        },
                        site.clone(),
                    )),
                    _ => None,
                });
            let own = its
                .site
                .iter()
                .map(move |site| (Place { host, route: None }, site.clone()));
            own.chain(routes)
        })
    }

    /// Watches the folders of this World, and nothing else.
    fn watch_anew(&mut self) {
        self.watch = match Watch::new() {
            Ok(mut watch) => {
                for (place, site) in self.places() {
                    watch.site(place, &site);
                }
                for file in self.files() {
                    watch.file(&file);
                }
                Some(watch)
            }
            Err(error) => {
                log::warn!(
                    "files can't be watched ({error}): changes are looked for every {} s",
                    RESCAN.as_secs()
                );
                None
            }
        };
    }

    /// Files that the configuration names and that are read when a World is built.
    fn files(&self) -> BTreeSet<PathBuf> {
        let mut files = self
            .world
            .tls
            .as_ref()
            .map(|tls| tls.files())
            .unwrap_or_default();
        let routes = self.config.sites.iter().flat_map(|site| &site.routes);
        files.extend(
            routes
                .filter_map(|route| route.users.as_ref())
                .map(|users| users.get_ref().clone()),
        );
        files.extend(
            self.config
                .tls
                .tickets
                .as_ref()
                .map(|tickets| tickets.get_ref().clone()),
        );
        files
    }

    /// Brings the World up to date with what changed on disk.
    async fn apply(&mut self, changes: Changes) {
        if changes.is_empty() {
            return;
        }
        let mut world = World::clone(&self.world);
        if changes.files {
            self.rotate_tickets();
            let built = build::build(
                &self.config,
                &self.supplies,
                Some(&self.world),
                clock::unix_seconds_now(),
            );
            match built {
                Ok(built) => world = built,
                Err(error) => {
                    log::error!("a changed file is not taken over: {}", error.in_one_line());
                }
            }
            // A link on the way to one of them may lead elsewhere now.
            let files = self.files();
            if let Some(watch) = &mut self.watch {
                files.iter().for_each(|file| watch.file(file));
            }
        }
        let mut hosts: Vec<Arc<Host>> = world.hosts.iter().cloned().collect();
        let mut grown = Vec::new();
        let mut changed = changes.files;
        for (place, site) in self.places() {
            let paths = changes.sites.get(&place);
            let whole = changes.whole.contains(&place);
            if paths.is_none() && !whole {
                continue;
            }
            let paths: Vec<_> = paths.into_iter().flatten().cloned().collect();
            let budget = self.supplies.budget.clone();
            let renew = move || renew(&site, whole, &paths, budget);
            let Ok(Some(renewed)) = self.shared.pool.run(renew).await else {
                continue;
            };
            let renewed = Arc::new(renewed);
            grown.push((place, renewed.clone()));
            changed = true;
            let mut host = Host::clone(&hosts[place.host]);
            match place.route {
                None => host.site = Some(renewed),
                Some(route) => host.routes[route].target = Some(Target::Site(renewed)),
            }
            hosts[place.host] = Arc::new(host);
        }
        if !changed {
            return;
        }
        world.hosts = Hosts::new(hosts);
        world.generation = self.world.generation + 1;
        self.publish(world).await;
        self.watch_grown(grown).await;
    }

    /// Watches folders that came with a change; what happened in them before the watch stood is
    /// looked for once more.
    async fn watch_grown(&mut self, grown: Vec<(Place, Arc<Site>)>) {
        let Some(watch) = &mut self.watch else { return };
        let mut again = Changes::default();
        for (place, site) in grown {
            for new in watch.grow(place, &site) {
                again.sites.entry(place).or_default().insert(new);
            }
        }
        if !again.is_empty() {
            Box::pin(self.apply(again)).await;
        }
    }

    fn rotate_tickets(&mut self) {
        if let Some(tickets) = &self.supplies.tickets
            && let Err(error) = tickets.rotate_if_due(clock::unix_seconds_now())
        {
            log::error!("ticket keys: {error}");
        }
    }

    /// Does what a line from the control socket asks for.
    pub(super) async fn command(&mut self, line: &str) -> Outcome {
        match line {
            "reload" => match self.reload().await {
                Ok(said) => Outcome::Text(said),
                Err(error) => {
                    refused(&error);
                    Outcome::Error(format!("{error}\n"))
                }
            },
            "status" => Outcome::Text(status::text(self)),
            "status json" => Outcome::Text(status::json(self)),
            "stop" => Outcome::Stop,
            _ => Outcome::Error(format!("unknown command `{line}`\n")),
        }
    }

    /// Lets requests under way finish; a second signal ends it at once.
    async fn drain(&mut self, signals: &mut Signals) {
        let seconds = self.config.server.limits.drain_seconds;
        let deadline = Duration::from_secs(seconds.into());
        log::info!("stopping: requests under way have {seconds} s to finish");
        for running in &self.workers {
            let _ = running.commands.send(Command::Drain(deadline));
        }
        let mut left = self.workers.len();
        while left > 0 {
            tokio::select! {
                Some(_) = self.ended.1.recv() => left -= 1,
                _ = signals.interrupt.recv() => break,
                _ = signals.terminate.recv() => break,
            }
        }
        if left == 0 {
            for running in &mut self.workers {
                if let Some(thread) = running.thread.take() {
                    let _ = thread.join();
                }
            }
        }
        self.supplies
            .sinks
            .flush(Instant::now() + Duration::from_secs(2));
    }
}

fn refused(error: &OperatorError) {
    log::error!(
        "reload refused, the old configuration goes on: {}",
        error.in_one_line()
    );
}

/// The site after a change; None when nothing that it serves is another than before.
fn renew(site: &Site, whole: bool, paths: &[PathBuf], budget: Arc<Budget>) -> Option<Site> {
    if whole && site.root_moved() {
        let opened = Site::open(site.rules().clone(), budget);
        return opened
            .inspect_err(|error| log::error!("a changed folder is not taken over: {error}"))
            .ok();
    }
    let renewed = match whole {
        true => site.with_changes(&[PathBuf::new()]),
        false => site.with_changes(paths),
    };
    (!renewed.same_tree(site)).then_some(renewed)
}

/// Deep enough for rustls and the deepest future, shallow enough to cost nothing.
const WORKER_STACK_BYTES: usize = 512 * 1024;

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

fn bind(config: &Config, workers: usize) -> Result<Listeners, OperatorError> {
    let mut listeners = Listeners::default();
    let passed = sys::systemd_listen_fds()
        .and_then(|passed| listeners.adopt(config, passed))
        .map_err(|error| {
            OperatorError::failure(format!("sockets passed in by the service manager: {error}"))
        });
    passed?;
    if listeners.is_empty() {
        listeners.bind(config, workers)?;
    }
    Ok(listeners)
}

/// The state folder is made while we may, and given to who will use it.
fn prepare_state(config: &Config) -> Result<(), OperatorError> {
    let state = &config.server.state;
    let failed = |error: io::Error| {
        let what = format!(
            "the state folder {} can't be used: {error}",
            state.get_ref().display()
        );
        config.point(state.span(), what, "a folder that the server may write to")
    };
    config::prepare_folder(state.get_ref()).map_err(failed)?;
    if let Some(ids) = user_ids(config)? {
        std::os::unix::fs::chown(state.get_ref(), Some(ids.uid), Some(ids.gid)).map_err(failed)?;
    }
    Ok(())
}

fn user_ids(config: &Config) -> Result<Option<sys::UserIds>, OperatorError> {
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
            format!("there is no user `{}`", user.get_ref()),
            "",
        )),
        Err(error) => Err(OperatorError::failure(format!(
            "looking up user `{}`: {error}",
            user.get_ref()
        ))),
    }
}

fn drop_privileges(config: &Config) -> Result<(), OperatorError> {
    if let (Some(ids), Some(user)) = (user_ids(config)?, &config.server.user) {
        sys::drop_privileges(&ids).map_err(|error| {
            config.point(
                user.span(),
                format!("can't become `{}`: {error}", user.get_ref()),
                "",
            )
        })?;
    }
    Ok(())
}

fn direct_errors(
    config: &Config,
    sinks: &Arc<Sinks>,
    error_log: &ErrorLog,
) -> Result<(), OperatorError> {
    let to = &config.log.errors;
    // Standard error is no exception: a pipe that nobody reads must not hold up who has an error.
    let sink = build::open(config, to, &build::destination(to.get_ref()), sinks)?;
    let fallback = sinks.open(&Destination::Stderr);
    let fallback =
        fallback.map_err(|error| OperatorError::failure(format!("standard error: {error}")))?;
    error_log.direct_to(sink, fallback);
    Ok(())
}

type TlsSupplies = (Option<Arc<Tickets>>, Option<Arc<SelfSigned>>);

fn tls_supplies(config: &Config) -> Result<TlsSupplies, OperatorError> {
    if config.server.https.is_empty() {
        return Ok((None, None));
    }
    let now = clock::unix_seconds_now();
    let state: &Path = config.server.state.get_ref();
    let (tickets, span) = match &config.tls.tickets {
        Some(file) => (Tickets::from_file(file.get_ref()), file.span()),
        None => (Tickets::from_state(state, now), config.server.state.span()),
    };
    let tickets =
        tickets.map_err(|error| config.point(span, error.to_string(), error.hint.clone()))?;
    let names = greeting::own_names(config);
    let self_signed = SelfSigned::load_or_make(state, &names, now).map_err(|error| {
        config.point(
            config.server.state.span(),
            error.to_string(),
            error.hint.clone(),
        )
    })?;
    Ok((Some(Arc::new(tickets)), Some(Arc::new(self_signed))))
}

/// The ledger of logins.
pub(super) fn logins() -> Result<Arc<Logins>, OperatorError> {
    Logins::new().map_err(|error| OperatorError::failure(format!("logins: {error}")))
}

/// An eighth of what this machine, or our cgroup, has; at most 256 MiB.
fn memory_auto() -> u64 {
    let all = sys::memory_limit_bytes().unwrap_or(512 << 20);
    (all / 8).min(limits::MEMORY_BYTES_MAX)
}

/// What a reload can't change.
fn needs_restart(old: &Config, new: &Config) -> Vec<String> {
    let mut keys = Vec::new();
    let (old, new) = (&old.server, &new.server);
    if old.workers.as_ref().map(|w| *w.get_ref()) != new.workers.as_ref().map(|w| *w.get_ref()) {
        keys.push("workers");
    }
    if old.state.get_ref() != new.state.get_ref() {
        keys.push("state");
    }
    if old.user.as_ref().map(|u| u.get_ref()) != new.user.as_ref().map(|u| u.get_ref()) {
        keys.push("user");
    }
    if old.control.get_ref() != new.control.get_ref() {
        keys.push("control");
    }
    if old.memory_max != new.memory_max {
        keys.push("memory_max");
    }
    keys.into_iter()
        .map(|key| format!("`{key}` changed: this takes effect after a restart"))
        .collect()
}

/// One thread at the lowest priority makes gzip of text as it is loaded.
fn compress_in_background(budget: Arc<Budget>) {
    let started = thread::Builder::new()
        .name("anthill-gzip".into())
        .spawn(move || {
            sys::lowest_priority_thread();
            while let Some(job) = budget.gzip().wait() {
                job.run();
            }
        });
    if let Err(error) = started {
        log::warn!("text is not compressed: {error}");
    }
}
