//! The control plane: one thread that owns the sockets, the watches and the workers, and publishes
//! each new World to them.

use super::check::checked;
use super::deployments::{DeploymentEvent, Deployments, FIRST_DEPLOY_WAIT_MAX, RootPlans};
use super::edits::{EditRefusal, Edits};
use super::front::{Front, Signals, Waited};
use super::limits;
use super::member_edit::EditAnswer;
use super::publish::Publisher;
use super::rebuild::{QUIET, Rebuilder, stamp_config_files};
use super::scans::build_on_thread;
use super::socket::{self, ControlRequest, ControlSocket};
use super::startup::{
    bind, bind_beside, body_memory_bytes, compress_in_background, drop_privileges, load_pages,
    memory_auto, new_manager, open_error_sinks, passed_sockets, pending_head_bytes,
    prepare_process, prepare_state, shared_resources, tls_supplies, user_ids, worker_count,
};
use super::status::{StatusFacts, StatusView};
use super::takeover::{
    Departing, DepartureEvent, Inheritance, Predecessors, Supervision, SupervisorEvent,
    SupervisorSockets, refuse,
};
use super::watch::RESCAN;
use super::{banner, deployment_events, manager_requests, member_edit, metrics};
use crate::acme::AcmeHandle;
use crate::admin::command::{Command, EditBatch, HitsFormat, StatusFormat, UnknownCommand};
use crate::admin::limits::HISTORY_INTERVAL_SECONDS;
use crate::admin::metrics::history::History;
use crate::config::{ConfigSource, OperatorError, Overrides, ServerConfig};
use crate::git::sandbox_repository;
use crate::manager::{EditOutcome, ManagerRequest};
use base::log::{ErrorLog, ReopenResults, Sinks};
use base::sys;
use base::task;
use data_plane::cache::PageCache;
use data_plane::hits::DayRange;
use data_plane::ledger::body_memory::BodyMemory;
use data_plane::site::ContentBudget;
use data_plane::world::Host;
use std::cell::RefCell;
use std::convert::Infallible;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Time after which a start is complete, including loading in the background if the site is small.
const START_COMPLETE_AFTER: Duration = Duration::from_secs(1);
/// Interval at which the control plane checks again a file that a request found changed and possibly half
/// written.
const STALE: Duration = Duration::from_secs(2);
/// Longest wait of `anthill reopen` for logs with a slow disk or an unread pipe.
const REOPEN_MAX: Duration = Duration::from_secs(30);
/// Interval at which changed hit counts are written.
const HITS: Duration = Duration::from_secs(300);
/// Interval at which ticket keys and the self-signed certificate are checked.
const KEYS: Duration = Duration::from_secs(600);
/// Extra time for the end of the workers after the deadline of a drain. A worker still running afterwards
/// is abandoned.
const DRAIN_MARGIN: Duration = Duration::from_secs(5);

/// The control plane: the parts of the server that are not workers.
pub(super) struct ControlPlane {
    chosen: ConfigSource,
    overrides: Overrides,
    /// Serves the World and keeps the World equal to the disk.
    pub(super) rebuilder: Rebuilder,
    /// Requests certificates from the certificate authority.
    acme: AcmeHandle,
    error_log: ErrorLog,
    /// Edits of balancers and members.
    edits: Edits,
    /// Reason why the last reload was refused.
    refused_reload: Option<String>,
    /// Requests of the manager; `None` after the channel was closed for the drain.
    manager: Option<Receiver<ManagerRequest>>,
    started: Instant,
    /// Past of the counters.
    history: Rc<RefCell<History>>,
    /// Bound socket of the commands, until the loop begins.
    pub(super) control: Option<ControlSocket>,
    /// Server to take over from, until the loop begins.
    inheritance: Option<Inheritance>,
    /// Successor of the server.
    departing: Option<Departing>,
    /// Earlier servers that still have connections.
    predecessors: Predecessors,
    /// Sockets of the supervisor, until the loop begins.
    supervisor_sockets: SupervisorSockets,
    /// Link to the supervisor.
    supervision: Option<Supervision>,
    /// Link over which the running server hears why this successor does not serve.
    teller: Option<OwnedFd>,
    /// True if a reload needs a restart.
    must_restart: bool,
    /// True if a successor may have taken the path of the control socket, and did not serve.
    must_bind_control: bool,
}

/// Sockets that a start takes over.
struct StartSockets {
    /// True if a running server is to be replaced.
    is_successor: bool,
    /// Link to the running server; None to ask at the control socket.
    link: Option<OwnedFd>,
    supervisor: SupervisorSockets,
}

/// Reason why the loop woke up.
enum ControlEvent {
    Hangup,
    Reopen,
    Stop,
    Asked(ControlRequest),
    Manager(ManagerRequest),
    /// The watch has reports of changes to read.
    WatchReadable,
    /// The pause after the last World is over, and reported changes wait for the next World.
    ChangesDue,
    /// Files that may be half written are due for another look, [`QUIET`] after the last look.
    HalfWrittenDue,
    Rescan,
    /// A failed deployment is due again.
    DeploymentRetryDue,
    /// A request found a path on disk that differs from the site, or the interval of such checks is over.
    StalePaths,
    Keys,
    Hits,
    /// The interval of a sample of the counters is over.
    Sample,
    WorkerEnded(usize),
    Deployments(DeploymentEvent),
    Departure(DepartureEvent),
    PredecessorEnded,
    Supervisor(SupervisorEvent),
}

impl ControlEvent {
    /// Returns true if the event never waits for a disk or for other threads.
    fn is_short(&self) -> bool {
        matches!(
            self,
            ControlEvent::Stop
                | ControlEvent::WatchReadable
                | ControlEvent::DeploymentRetryDue
                | ControlEvent::Sample
                | ControlEvent::Manager(ManagerRequest::Snapshot(_))
        )
    }
}

/// Returns true for a command to stop the server.
fn is_stop(request: &ControlRequest) -> bool {
    matches!(Command::parse(&request.line), Ok(Command::Stop))
}

impl ControlPlane {
    /// Binds the addresses, drops privileges, reads the configuration and all files, and starts the
    /// workers. A successor takes the addresses over from a running server, and starts the workers later.
    pub(crate) fn start(
        chosen: ConfigSource,
        overrides: Overrides,
        error_log: ErrorLog,
        is_successor: bool,
    ) -> Result<ControlPlane, OperatorError> {
        let mut supervisor = SupervisorSockets::default();
        if is_successor {
            // The running server has all other sockets.
            supervisor = SupervisorSockets::take(&mut passed_sockets()?);
        }
        let link = supervisor.take_successor_link();
        let teller = link.as_ref().and_then(|link| link.try_clone().ok());
        let mut sockets = StartSockets {
            is_successor,
            link,
            supervisor,
        };
        let started = ControlPlane::start_with(chosen, overrides, error_log, &mut sockets);
        let mut started = started.inspect_err(|error| {
            if let Some(teller) = &teller {
                refuse(teller, error);
            }
        })?;
        started.teller = teller;
        started.supervisor_sockets = sockets.supervisor;
        Ok(started)
    }

    fn start_with(
        chosen: ConfigSource,
        mut overrides: Overrides,
        error_log: ErrorLog,
        sockets: &mut StartSockets,
    ) -> Result<ControlPlane, OperatorError> {
        let is_successor = sockets.is_successor;
        let mut config = chosen.read(&overrides)?;
        overrides.settle(&config);
        for warning in checked(&config)? {
            log::warn!("{}", warning.in_one_line());
        }
        let count = worker_count(&config);
        let (listeners, inheritance) = if is_successor {
            let mut inheritance = match sockets.link.take() {
                Some(link) => Inheritance::over(link)?,
                None => Inheritance::request(&config)?,
            };
            (
                bind_beside(&config, count, &mut inheritance)?,
                Some(inheritance),
            )
        } else {
            socket::refuse_second(&config)?;
            let mut passed = passed_sockets()?;
            sockets.supervisor = SupervisorSockets::take(&mut passed);
            (bind(&config, count, passed)?, None)
        };
        prepare_process();
        let user = user_ids(&config)?;
        prepare_state(&config, user.as_ref())?;
        drop_privileges(&config, user.as_ref())?;
        sandbox_repository::remove_former(config.server.state.get_ref());
        let control = if is_successor {
            ControlSocket::without_file()
        } else {
            ControlSocket::bind(&config)?
        };

        let sinks = Arc::new(Sinks::default());
        if !is_successor {
            sinks.set_rotation(config.log.rotate);
        }
        let (errors, fallback) = open_error_sinks(&config, &sinks)?;
        error_log.direct_to(errors, fallback);
        let tls = tls_supplies(&config)?;
        let memory = config.server.memory_max.unwrap_or_else(memory_auto);
        RootPlans::of(&config)
            .deploy_missing(FIRST_DEPLOY_WAIT_MAX)
            .map_err(|failure| failure.in_config(&config))?;
        let (deployments, pushes) = Deployments::new();
        let origin = Instant::now();
        let pending_head_bytes = pending_head_bytes(memory);
        let body_bytes = body_memory_bytes(memory);
        let body_memory = BodyMemory::new(usize::try_from(body_bytes).unwrap_or(usize::MAX));
        let contents = memory.saturating_sub(pending_head_bytes as u64 + body_bytes);
        let budget = Arc::new(ContentBudget::new(contents));
        let cache = if is_successor {
            Arc::new(PageCache::new(origin, budget.clone()))
        } else {
            load_pages(&config, origin, &budget)
        };
        let memory = (budget, body_memory);
        let edits = Edits::load(&mut config);
        let resources = shared_resources(&config, &listeners, sinks, tls, cache, memory, pushes)?;
        edits.register(&resources.balancers);
        if !is_successor {
            resources.programs.spool().remove_leftovers();
        }
        let seen = stamp_config_files(&config);
        compress_in_background(resources.budget.clone());
        let acme = AcmeHandle::new(resources.challenges.clone());
        let (manager, manager_requests) = new_manager(origin)?;
        let mut publisher = Publisher::build(
            config,
            listeners,
            resources,
            count,
            pending_head_bytes,
            origin,
            manager,
        )?;
        if !is_successor {
            publisher.start_workers()?;
        }
        Ok(ControlPlane {
            chosen,
            overrides,
            rebuilder: Rebuilder::new(publisher, deployments, seen),
            acme,
            error_log,
            edits,
            refused_reload: None,
            manager: Some(manager_requests),
            started: Instant::now(),
            history: Rc::default(),
            control: Some(control),
            inheritance,
            departing: None,
            predecessors: Predecessors::default(),
            must_bind_control: false,
            must_restart: false,
            supervisor_sockets: SupervisorSockets::default(),
            supervision: None,
            teller: None,
        })
    }

    fn publisher(&self) -> &Publisher {
        &self.rebuilder.publisher
    }

    /// Runs until the server is stopped, then drains and ends the process.
    pub(crate) fn run(mut self) -> Result<Infallible, OperatorError> {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build();
        let runtime =
            runtime.map_err(|error| OperatorError::failure(format!("can't start: {error}")))?;
        let control = self.control.take().ok_or_else(|| {
            OperatorError::failure("can't start: the control socket is in use".to_owned())
        })?;
        let mut front = Front::new(control, self.rebuilder.scans.urgency());
        let stopped = runtime.block_on(async {
            let failed =
                |what: &str, error: io::Error| OperatorError::failure(format!("{what}: {error}"));
            let mut signals = Signals::new().map_err(|error| failed("signals", error))?;
            self.rebuilder.publisher.start_balancing();
            if let Some(inheritance) = self.inheritance.take() {
                let taken = self.take_over(inheritance, &mut front).await;
                let teller = self.teller.take();
                taken.inspect_err(|error| {
                    if let Some(teller) = &teller {
                        refuse(teller, error);
                    }
                })?;
            }
            self.supervision = self.supervisor_sockets.supervision();
            front
                .control
                .open()
                .map_err(|error| failed("the control socket", error))?;
            self.rebuilder.plan_deployments();
            self.rebuilder.rebuild_watches();
            // A publisher waits for an acknowledgment only if the folder of the acknowledgments is present.
            self.rebuilder.report_releases();
            let publisher = self.publisher();
            let self_signed = publisher.resources().self_signed.as_deref();
            banner::print(publisher.config(), publisher.listeners(), self_signed);
            let _ = sys::notify("READY=1");
            // The supervisor takes sockets of the server that it knows to serve.
            self.rebuilder.publisher.keep_sockets();
            self.publisher().watch_workers();
            self.acme.plan(self.rebuilder.publisher.config(), false);
            // The workers have started as well, so little of the program's code is needed from here.
            task::spawn(async {
                tokio::time::sleep(START_COMPLETE_AFTER).await;
                sys::release_code_pages();
            });
            self.serve(&mut front, &mut signals).await;
            if !self.is_leaving() {
                let _ = sys::notify("STOPPING=1");
            }
            self.drain(&mut front, &mut signals).await;
            for question in std::mem::take(&mut front.stopping_for) {
                question.write(Ok("stopped\n".into())).await;
            }
            Ok::<_, OperatorError>(())
        });
        stopped?;
        // The drop removes the file of the control socket. The system frees the remaining memory and
        // threads at the exit; an orderly release could wait for a busy thread.
        drop(front);
        log::logger().flush();
        let _ = io::stdout().flush();
        sys::exit_at_once(0)
    }

    /// Takes over from the running server.
    async fn take_over(
        &mut self,
        inheritance: Inheritance,
        front: &mut Front,
    ) -> Result<(), OperatorError> {
        let publisher = &mut self.rebuilder.publisher;
        let patience = Duration::from_secs(limits::FIRST_CHECKS_SECONDS_MAX);
        let _ = tokio::time::timeout(patience, publisher.checker().first_round()).await;
        let yielded = inheritance.ask_to_yield().await?;
        publisher.take_handed_state();
        publisher.start_workers()?;
        front.control.take_path(publisher.config())?;
        self.predecessors = yielded.serving().await?;
        let rotation = publisher.config().log.rotate;
        publisher.resources().sinks.set_rotation(rotation);
        Ok(())
    }

    /// Returns true once a successor serves.
    fn is_leaving(&self) -> bool {
        self.departing.as_ref().is_some_and(Departing::is_leaving)
    }

    /// Returns true while the state folder belongs to a successor.
    fn has_yielded(&self) -> bool {
        self.departing.as_ref().is_some_and(Departing::has_yielded)
    }

    /// Handles an event of a takeover. Returns true if the server is to stop.
    async fn handle_departure(&mut self, event: DepartureEvent) -> bool {
        let Some(departing) = &mut self.departing else {
            return false;
        };
        match event {
            DepartureEvent::Yield => {
                departing.wait(&mut self.rebuilder);
                self.pause_if_ready().await;
            }
            DepartureEvent::Serving(successor) => {
                if departing.has_yielded() && !departing.is_leaving() {
                    departing.leave(&successor, &mut self.rebuilder);
                    self.predecessors = Predecessors::default();
                    if let Some(mut supervision) = self.supervision.take() {
                        supervision.leave();
                        let sentence = Departing::sentence(&successor, &self.rebuilder.publisher);
                        supervision.answer(Ok(sentence)).await;
                    }
                }
            }
            DepartureEvent::EndIdle => self.publisher().end_idle(),
            DepartureEvent::Reopen => drop(self.reopen_logs().await),
            DepartureEvent::Stop => return self.is_leaving(),
            DepartureEvent::End => {
                if self.is_leaving() {
                    self.rebuilder.publisher.drain(Duration::ZERO);
                }
            }
            DepartureEvent::Vanished(_) if departing.is_leaving() => departing.forget_successor(),
            DepartureEvent::Vanished(reason) => self.go_on(&reason).await,
        }
        false
    }

    /// Pauses for the successor if it waits for that and no deployment is under way.
    async fn pause_if_ready(&mut self) {
        let is_idle = self.rebuilder.deployments.is_idle();
        let Some(departing) = &mut self.departing else {
            return;
        };
        if !departing.is_waiting() || !is_idle {
            return;
        }
        // From here, the successor may request certificates.
        self.acme = AcmeHandle::new(self.rebuilder.publisher.resources().challenges.clone());
        if !departing.pause(&mut self.rebuilder).await {
            self.go_on("it is not reached, or a worker does not answer")
                .await;
        }
    }

    /// Goes on without a successor.
    async fn go_on(&mut self, reason: &str) {
        let Some(departing) = self.departing.take() else {
            return;
        };
        self.must_bind_control = departing.has_yielded();
        departing.resume(reason, &mut self.rebuilder).await;
        self.answer_restarts(reason).await;
        self.acme.plan(self.rebuilder.publisher.config(), false);
    }

    /// Asks the supervisor for a restart. `request` is answered at the end.
    fn restart(&mut self, request: Option<ControlRequest>) {
        match (&mut self.supervision, request) {
            (Some(supervision), request) => supervision.restart(request),
            (None, Some(request)) => request.answer(Err(NO_SUPERVISOR.to_owned())),
            (None, None) => {}
        }
    }

    /// Tells the operators that wait for a restart why this server stays in use.
    async fn answer_restarts(&mut self, reason: &str) {
        let (version, process) = (env!("CARGO_PKG_VERSION"), std::process::id());
        if let Some(supervision) = &mut self.supervision {
            let text =
                format!("error: {reason}; anthill {version} (process {process}) stays in use\n");
            supervision.answer(Err(text)).await;
        }
    }

    /// Handles an event of the supervisor.
    async fn handle_supervisor(&mut self, event: SupervisorEvent) {
        match event {
            SupervisorEvent::Successor(link) if self.departing.is_none() => {
                let begun = Supervision::begin(link, &self.rebuilder.publisher, &self.predecessors);
                match begun {
                    Ok(departing) => self.departing = Some(departing),
                    Err(error) => self.answer_restarts(&error.to_string()).await,
                }
            }
            SupervisorEvent::Successor(_) => {}
            SupervisorEvent::Refused(reason) => self.answer_restarts(&reason).await,
            SupervisorEvent::Ended => self.supervision = None,
        }
    }

    async fn serve(&mut self, front: &mut Front, signals: &mut Signals) {
        let mut timers = Timers::new();
        loop {
            if self.is_leaving() {
                front.control.leave();
                if !self.publisher().has_threads() {
                    return;
                }
            }
            if std::mem::take(&mut self.must_bind_control) {
                let bound = front.control.take_path(self.publisher().config());
                let opened = bound
                    .map_err(|error| error.in_one_line())
                    .and_then(|()| front.control.open().map_err(|error| error.to_string()));
                if let Err(error) = opened {
                    log::error!("the control socket can't be made again: {error}");
                }
            }
            let event = match front.next_waited() {
                Some(Waited::Hangup) => ControlEvent::Hangup,
                Some(Waited::Asked(request)) => ControlEvent::Asked(request),
                None => self.next_event(front, signals, &mut timers).await,
            };
            let stops = match event {
                ControlEvent::Stop => true,
                ControlEvent::Asked(request) if is_stop(&request) => {
                    // The response is sent at the end of the drain.
                    front.stopping_for.push(request);
                    true
                }
                event if event.is_short() => self.handle(event, &mut timers).await,
                event => {
                    let view = self.view();
                    let work = self.handle(event, &mut timers);
                    front.attend(work, &view, signals).await
                }
            };
            if stops {
                front.refuse_waiting();
                return;
            }
        }
    }

    /// Returns the present state for the status.
    pub(super) fn view(&self) -> StatusView {
        let facts = StatusFacts {
            report: self.acme.report(),
            refused_reload: self.refused_reload.clone(),
            started: self.started,
            history: Rc::clone(&self.history),
            predecessors: self.predecessors.status(),
        };
        StatusView::new(&self.rebuilder, &self.edits, facts)
    }

    /// Handles an event. Returns true if the server is to stop.
    async fn handle(&mut self, event: ControlEvent, timers: &mut Timers) -> bool {
        match event {
            ControlEvent::Stop => return true,
            ControlEvent::Hangup => match &self.departing {
                Some(_) => log::warn!("not reloaded: a successor takes over"),
                None => {
                    let _ = self.reload().await;
                    if std::mem::take(&mut self.must_restart) {
                        self.restart(None);
                    }
                }
            },
            ControlEvent::Reopen => {
                // The error log reports a failure.
                drop(self.reopen_logs().await);
            }
            ControlEvent::Asked(question) => return self.answer(question).await,
            ControlEvent::Manager(request) => {
                self.answer_manager(request).await;
            }
            ControlEvent::WatchReadable => {
                self.rebuilder.read_watch_reports();
                if self.rebuilder.is_up_to_date() {
                    self.rebuilder.caught_up();
                } else if timers.apply_at.is_none() {
                    timers.apply_at = Some(timers.rested_at);
                }
            }
            ControlEvent::ChangesDue => {
                timers.apply_at = None;
                let begun = Instant::now();
                self.rebuilder.apply().await;
                timers.rested_at = Instant::now() + pause_after(begun.elapsed());
            }
            ControlEvent::HalfWrittenDue => {
                timers.half_written_at = None;
                self.rebuilder.take_quiet_files();
                self.rebuilder.apply().await;
            }
            ControlEvent::Rescan => self.rebuilder.rescan().await,
            ControlEvent::DeploymentRetryDue => self.rebuilder.deployments.start_due(),
            ControlEvent::StalePaths => {
                let begun = Instant::now();
                self.rebuilder.apply_stale_paths().await;
                // The kernel wakes no reader for reports that were read here, so their changes need the timer.
                if !self.rebuilder.is_up_to_date() {
                    timers.apply_at.get_or_insert(timers.rested_at);
                }
                self.publisher().manager().forget_old_snapshot();
                timers.recheck_at = Instant::now() + pause_after(begun.elapsed());
            }
            ControlEvent::Keys if self.has_yielded() => {}
            ControlEvent::Keys => self.renew_keys().await,
            ControlEvent::Hits => self.save_hits(),
            ControlEvent::Sample => {
                self.report_departure().await;
                metrics::sample(&mut self.history.borrow_mut(), &self.rebuilder.publisher);
                self.publisher().log_left_out();
            }
            ControlEvent::WorkerEnded(index) if self.is_leaving() => {
                self.rebuilder.publisher.join(index);
            }
            ControlEvent::WorkerEnded(index) => self.rebuilder.publisher.restart(index).await,
            ControlEvent::Deployments(event) => {
                deployment_events::handle(&mut self.rebuilder, event).await;
                self.pause_if_ready().await;
            }
            ControlEvent::Departure(event) => return self.handle_departure(event).await,
            ControlEvent::Supervisor(event) => self.handle_supervisor(event).await,
            ControlEvent::PredecessorEnded => self.publisher().take_remaining_hits(),
        }
        false
    }

    /// Writes changed hit counts: of a server that leaves into a file of its own.
    fn save_hits(&self) {
        match &self.departing {
            Some(departing) if departing.is_leaving() => self.publisher().write_remaining_hits(),
            Some(departing) if departing.has_yielded() => {}
            _ => {
                self.publisher().take_remaining_hits();
                self.publisher().save_hits();
            }
        }
    }

    /// Does what a server that leaves does at intervals.
    async fn report_departure(&mut self) {
        let Some(departing) = self.departing.as_mut().filter(|it| it.is_leaving()) else {
            return;
        };
        departing.report(&self.rebuilder.publisher);
        if departing.must_reopen_logs() {
            drop(self.reopen_logs().await);
        }
    }

    async fn next_event(
        &mut self,
        front: &mut Front,
        signals: &mut Signals,
        timers: &mut Timers,
    ) -> ControlEvent {
        let rescans = self.rebuilder.needs_rescans();
        // Other events must not delay the look.
        timers.half_written_at = if self.rebuilder.has_half_written_files() {
            timers.half_written_at.or(Some(Instant::now() + QUIET))
        } else {
            None
        };
        let departing = &self.departing;
        let departure = async {
            match departing {
                Some(departing) => departing.next().await,
                None => std::future::pending().await,
            }
        };
        let supervision = &self.supervision;
        let supervisor = async {
            match supervision {
                Some(supervision) => supervision.next().await,
                None => std::future::pending().await,
            }
        };
        let again = self.rebuilder.deployments.retries_at();
        let again = again.map(tokio::time::Instant::into_std);
        let change_tracker = self.publisher().resources().change_tracker.clone();
        let watch = &self.rebuilder.watch;
        let publisher = &mut self.rebuilder.publisher;
        let deployments = &mut self.rebuilder.deployments;
        let files = async {
            match watch {
                Some(watch) => watch.readable().await,
                None => std::future::pending().await,
            }
        };
        let found = async {
            sleep_until(Some(timers.recheck_at)).await;
            change_tracker.recheck_requested().await;
        };
        let rescan = async {
            if rescans {
                timers.rescan.tick().await;
                timers.rescan.reset();
            } else {
                std::future::pending().await
            }
        };
        tokio::select! {
            _ = signals.interrupt.recv() => ControlEvent::Stop,
            _ = signals.terminate.recv() => ControlEvent::Stop,
            _ = signals.hangup.recv() => ControlEvent::Hangup,
            _ = signals.reopen.recv() => ControlEvent::Reopen,
            question = front.control.next_request() => ControlEvent::Asked(question),
            request = manager_requests::next(&mut self.manager) => ControlEvent::Manager(request),
            () = files => ControlEvent::WatchReadable,
            () = sleep_until(timers.apply_at) => ControlEvent::ChangesDue,
            () = sleep_until(timers.half_written_at) => ControlEvent::HalfWrittenDue,
            () = rescan => ControlEvent::Rescan,
            () = sleep_until(again) => ControlEvent::DeploymentRetryDue,
            _ = timers.keys.tick() => ControlEvent::Keys,
            _ = timers.hits.tick() => ControlEvent::Hits,
            _ = timers.sample.tick() => ControlEvent::Sample,
            () = found => ControlEvent::StalePaths,
            _ = timers.stale.tick() => ControlEvent::StalePaths,
            index = publisher.worker_ended() => ControlEvent::WorkerEnded(index),
            news = deployments.news() => ControlEvent::Deployments(news),
            event = departure => ControlEvent::Departure(event),
            event = supervisor => ControlEvent::Supervisor(event),
            () = self.predecessors.ended() => ControlEvent::PredecessorEnded,
        }
    }

    /// Reads the configuration again and serves the new configuration. Returns when every worker serves the
    /// new World.
    async fn reload(&mut self) -> Result<String, OperatorError> {
        let _ = sys::notify("RELOADING=1");
        let reloaded = self.try_reload().await;
        let _ = sys::notify("READY=1");
        self.refused_reload = reloaded.as_ref().err().map(OperatorError::in_one_line);
        if let Some(error) = &self.refused_reload {
            log::error!("reload refused, the old configuration stays in use: {error}");
        }
        self.publisher().manager().forget_snapshot();
        reloaded
    }

    async fn try_reload(&mut self) -> Result<String, OperatorError> {
        // Known changes refer to sites of the present World, not of the next World.
        self.rebuilder.apply().await;
        let (chosen, overrides) = (self.chosen.clone(), self.overrides.clone());
        let read = move || {
            let config = chosen.read(&overrides)?;
            let warnings = checked(&config)?;
            Ok((config, warnings))
        };
        let (mut config, warnings) = build_on_thread(read).await?;
        let warnings = warnings.into_iter();
        let mut said: Vec<String> = warnings.map(|it| it.in_one_line()).collect();
        let served = &self.publisher().config().server;
        let kept = keep_until_restart(served, &mut config.server);
        if !kept.is_empty() && self.supervision.is_some() {
            log::info!("{}; the server restarts", kept.join("; "));
            self.must_restart = true;
            return Ok(String::new());
        }
        said.extend(kept);
        let edits = self.edits.followed_by(&mut config);
        let new = self.rebuilder.publisher.bind(&config)?;
        let seen = stamp_config_files(&config);
        let deployed = self.rebuilder.deploy_missing_roots(&config).await;
        let prepared = match deployed {
            Ok(()) => self.publisher().prepare(config, &self.error_log).await,
            Err(error) => Err(error),
        };
        let publisher = &mut self.rebuilder.publisher;
        let (config, prepared) = prepared.inspect_err(|_| publisher.unbind(&new))?;
        self.edits.replace(edits);
        self.edits.register(&publisher.resources().balancers);
        publisher.replace(config, prepared, &new).await;
        // The earlier servers still serve the earlier configuration, which may permit more.
        self.predecessors.end_idle();
        self.rebuilder.follow_reload(seen).await;
        self.acme.plan(self.rebuilder.publisher.config(), true);
        let generation = self.publisher().world().generation;
        said.insert(0, format!("configuration {generation} is served"));
        log::info!("reloaded: {}", said.join("; "));
        Ok(said.join("\n") + "\n")
    }

    /// Has the writers of the logs reopen the files, after the lines of all earlier responses.
    async fn reopen_logs(&self) -> ReopenResults {
        self.publisher().flush_logs().await;
        self.predecessors.reopen();
        self.publisher().resources().sinks.reopen()
    }

    /// Replaces ticket keys and the self-signed certificate if due.
    async fn renew_keys(&mut self) {
        self.publisher().rotate_tickets();
        if self.rebuilder.publisher.renew_self_signed() {
            self.rebuilder.mark_files_changed();
            self.rebuilder.apply().await;
        }
    }

    /// Runs a command of the control socket. Returns true if the server is to stop.
    async fn answer(&mut self, request: ControlRequest) -> bool {
        let answer = match Command::parse(&request.line) {
            Ok(Command::Replace(_)) => {
                self.begin_departure(request);
                return false;
            }
            Ok(Command::Reload | Command::Edit(_) | Command::Restart)
                if self.departing.is_some() =>
            {
                Err(SUCCESSOR_TAKES_OVER.to_owned())
            }
            Ok(Command::Restart) => {
                self.restart(Some(request));
                return false;
            }
            Ok(Command::Reload) => {
                let reloaded = self.reload().await;
                if std::mem::take(&mut self.must_restart) {
                    self.restart(Some(request));
                    return false;
                }
                reloaded.map_err(|error| format!("{error}\n"))
            }
            Ok(Command::Reopen) => {
                let results = self.reopen_logs().await;
                task::spawn(async move { request.write(reopened(results).await).await });
                return false;
            }
            Ok(Command::Edit(command)) => {
                match self.edit(&command.into(), &request.user()).await {
                    // The wait for requests must not delay the control plane.
                    Ok(answer) => task::spawn(async move {
                        let text = answer.text().await;
                        request.write(text).await;
                    }),
                    Err(EditRefusal::Asks(question)) => request.question(question),
                    Err(EditRefusal::Refused(refusal)) => request.answer(Err(refusal)),
                }
                return false;
            }
            command => {
                if let Ok(Command::Hits { .. }) = command {
                    // Workers hand over the views of the last seconds.
                    self.publisher().flush_logs().await;
                    if !self.has_yielded() {
                        self.publisher().take_remaining_hits();
                    }
                }
                self.query(command)
            }
        };
        request.answer(answer);
        false
    }

    /// Begins a takeover by another process, or refuses it.
    fn begin_departure(&mut self, request: ControlRequest) {
        if self.departing.is_some() {
            return request.answer(Err(SUCCESSOR_TAKES_OVER.to_owned()));
        }
        let publisher = &self.rebuilder.publisher;
        self.departing = Departing::begin(request, publisher, &self.predecessors);
    }

    /// Answers a request of the manager.
    async fn answer_manager(&mut self, request: ManagerRequest) {
        match request {
            ManagerRequest::Snapshot(answer) => {
                let state = || (self.view().status(), self.edits.state());
                let history = self.history.borrow();
                manager_requests::send_snapshot(self.publisher(), &history, &state, answer);
            }
            ManagerRequest::Edit {
                batch,
                user,
                answer,
            } => {
                let outcome = match self.edit(&batch, &format!("{user} (manager)")).await {
                    Ok(_) => EditOutcome::Done,
                    Err(EditRefusal::Asks(question)) => EditOutcome::Asks(question),
                    Err(EditRefusal::Refused(refusal)) => EditOutcome::Refused(refusal),
                };
                self.publisher().manager().forget_snapshot();
                // A client that has gone away needs no answer.
                let _ = answer.send(outcome);
            }
        }
    }

    /// Executes the edits of a user.
    async fn edit(&mut self, batch: &EditBatch, user: &str) -> Result<EditAnswer, EditRefusal> {
        if self.departing.is_some() {
            return Err(SUCCESSOR_TAKES_OVER.to_owned().into());
        }
        let publisher = &mut self.rebuilder.publisher;
        self.edits.execute(publisher, batch, user).await
    }

    /// Responds to a command that needs no change of the World.
    fn query(&self, command: Result<Command, UnknownCommand>) -> Result<String, String> {
        match command {
            Ok(command @ (Command::Status(_) | Command::Metrics(_) | Command::History)) => {
                Ok(self.view().answer(&command).unwrap_or_default())
            }
            Ok(Command::ManagerLogin) => manager_requests::login(self.publisher()),
            Ok(Command::Hits { format, site, days }) => self.hits(format, site.as_deref(), days),
            Ok(Command::Purge { site, path }) => self.purge(&site, &path),
            Ok(Command::Balancers { format, name }) => {
                let list = member_edit::list(self.publisher().world(), name.as_deref())?;
                Ok(match format {
                    StatusFormat::Text => list.text(),
                    StatusFormat::Json => list.json(),
                })
            }
            Ok(Command::Requests(format)) => {
                let list = self.publisher().active_requests();
                Ok(match format {
                    StatusFormat::Text => list.text(),
                    StatusFormat::Json => list.json(true),
                })
            }
            Ok(Command::EditHistory { format, name }) => {
                let (ledger, name) = (self.edits.ledger(), name.as_deref());
                Ok(match format {
                    StatusFormat::Text => ledger.history_text(name),
                    StatusFormat::Json => ledger.history_json(name),
                })
            }
            Ok(Command::EditDifferences(format)) => Ok(match format {
                StatusFormat::Text => self.edits.differences().text(),
                StatusFormat::Json => self.edits.differences().json(),
            }),
            Ok(
                Command::Reload
                | Command::Reopen
                | Command::Stop
                | Command::Restart
                | Command::Edit(_)
                | Command::Replace(_),
            ) => Err("error: the server is stopping\n".to_owned()),
            Err(unknown) => Err(format!("error: {unknown}\n")),
        }
    }

    /// Returns the hit counts of a site, or of all sites.
    fn hits(
        &self,
        format: HitsFormat,
        site: Option<&str>,
        days: Option<DayRange>,
    ) -> Result<String, String> {
        let names: Vec<&str> = match site {
            None => {
                let hosts = self.publisher().world().hosts.iter();
                hosts.map(|host| host.name.as_str()).collect()
            }
            Some(site) => {
                let hosts = self.hosts(site)?.into_iter();
                hosts.map(|host| host.name.as_str()).collect()
            }
        };
        let hits = &self.publisher().resources().hits;
        Ok(match format {
            HitsFormat::Json => hits.json(&names, days),
            HitsFormat::File => {
                let texts = names.iter().filter_map(|name| hits.written(name));
                texts
                    .map(|text| String::from_utf8_lossy(&text).into_owned())
                    .collect()
            }
            HitsFormat::Text => hits.shown(&names, days),
        })
    }

    /// Returns the sites with a name as the configuration spells the name. Sites at several addresses may share a name.
    fn hosts(&self, site: &str) -> Result<Vec<&Host>, String> {
        let all = || self.publisher().world().hosts.iter().map(Arc::as_ref);
        let named: Vec<&Host> = all().filter(|host| host.is_called(site)).collect();
        if !named.is_empty() {
            return Ok(named);
        }
        let mut names: Vec<&str> = Vec::new();
        for name in all().flat_map(Host::called) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let names = names.join(", ");
        Err(format!(
            "error: there is no site `{site}`\nhelp: the sites are {names}\n"
        ))
    }

    /// Removes pages of a site from the page cache.
    fn purge(&self, site: &str, path: &str) -> Result<String, String> {
        let hosts = self.hosts(site)?;
        if !path.starts_with('/') {
            return Err(format!(
                "error: `{path}` is not a path of a site\nhelp: a path begins with a slash: /news, or /news/* for all pages below /news\n"
            ));
        }
        let cache = &self.publisher().resources().cache;
        let gone: usize = hosts.iter().map(|host| cache.purge(&host.name, path)).sum();
        let pages = if gone == 1 { "page" } else { "pages" };
        Ok(format!("{gone} {pages} forgotten\n"))
    }

    /// Waits for the end of requests under way. A second signal ends the drain at once.
    async fn drain(&mut self, front: &mut Front, signals: &mut Signals) {
        if self.is_leaving() && !self.publisher().has_threads() {
            return self.finish().await;
        }
        if let Some(departing) = self.departing.take_if(|it| !it.is_leaving()) {
            departing.refuse("the server stops");
        }
        self.predecessors.stop();
        let seconds = self.publisher().config().server.limits.drain_seconds;
        let deadline = Duration::from_secs(seconds.into());
        log::info!("stopping: requests under way have {seconds} s to finish");
        self.rebuilder.stop();
        // A request of the manager that still comes is answered with 503.
        self.manager = None;
        // From here, the next server may request certificates.
        self.acme = AcmeHandle::new(self.publisher().resources().challenges.clone());
        self.rebuilder.publisher.drain(deadline);
        let patience = tokio::time::sleep(deadline + DRAIN_MARGIN);
        let mut patience = std::pin::pin!(patience);
        while self.publisher().has_threads() {
            tokio::select! {
                index = self.rebuilder.publisher.worker_ended() => {
                    self.rebuilder.publisher.join(index);
                }
                request = front.control.next_request() => match Command::parse(&request.line) {
                    Ok(Command::Stop) => front.stopping_for.push(request),
                    command => {
                        let answer = self.query(command);
                        request.answer(answer);
                    }
                },
                _ = signals.interrupt.recv() => break,
                _ = signals.terminate.recv() => break,
                () = &mut patience => {
                    log::error!("stopped although some workers have not ended in time");
                    break;
                }
            }
        }
        self.finish().await;
    }

    /// Writes the state after the end of all connections.
    async fn finish(&mut self) {
        // Ends the programs of requests that were cut off.
        self.publisher().resources().programs.finish();
        for plan in self.rebuilder.deployments.finish().await {
            self.rebuilder.forget_pages(&plan);
        }
        self.save_hits();
        match &self.departing {
            Some(departing) => departing.log_end(),
            None => self.publisher().save_pages(),
        }
        let sinks = &self.publisher().resources().sinks;
        sinks.flush(Instant::now() + Duration::from_secs(2));
    }
}

/// Refusal of a restart without a supervisor.
const NO_SUPERVISOR: &str = "error: the server has no supervisor\nhelp: `anthill serve --replace` starts another \
     server in its place without an outage; with `anthill serve --supervise`, the next restarts are one command\n";

/// Refusal of commands that change the state while a successor takes over.
const SUCCESSOR_TAKES_OVER: &str =
    "error: another process takes over just now\nhelp: try again in a moment\n";

/// Waits until `at`, or forever for `None`.
async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// Returns the period in which changes are gathered after a World, from the time spent on the World: a
/// script that writes many files, or a deployment, does not cause a World for every step.
fn pause_after(renewing: Duration) -> Duration {
    let least = Duration::from_millis(limits::WORLD_UPDATE_PAUSE_MILLISECONDS_MIN);
    let most = Duration::from_millis(limits::WORLD_UPDATE_PAUSE_MILLISECONDS_MAX);
    (renewing * (limits::WORLD_UPDATE_TIME_DIVISOR - 1)).clamp(least, most)
}

/// Timers of the control plane's loop.
struct Timers {
    /// Time at which known changes are applied; `None` if no change is known.
    apply_at: Option<Instant>,
    /// End of the pause after the last World. The first change after the pause is applied at once, an
    /// earlier change at the end of the pause.
    rested_at: Instant,
    /// Earliest time of the next check of paths that requests found changed.
    recheck_at: Instant,
    /// Time of the next look at files that may be half written; `None` without such files.
    half_written_at: Option<Instant>,
    keys: Interval,
    hits: Interval,
    sample: Interval,
    rescan: Interval,
    stale: Interval,
}

impl Timers {
    /// Returns timers that apply the changes since the start at once.
    fn new() -> Timers {
        let now = Instant::now();
        Timers {
            apply_at: Some(now),
            rested_at: now,
            recheck_at: now,
            half_written_at: None,
            keys: interval(KEYS),
            hits: interval(HITS),
            sample: sample_interval(),
            rescan: interval(RESCAN),
            stale: interval(STALE),
        }
    }
}

/// Returns the timer of the samples of the counters. A control plane that was busy for longer than an interval
/// takes one sample, and not a burst.
fn sample_interval() -> Interval {
    let mut every = interval(Duration::from_secs(HISTORY_INTERVAL_SECONDS));
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    every
}

/// Waits until the log files are open again, and returns the answer of `anthill reopen`.
async fn reopened(results: ReopenResults) -> Result<String, String> {
    match tokio::time::timeout(REOPEN_MAX, results.wait()).await {
        Ok(Ok(1)) => Ok("1 log file is open again\n".to_owned()),
        Ok(Ok(count)) => Ok(format!("{count} log files are open again\n")),
        Ok(Err(failures)) => Err(failures),
        Err(_) => {
            Err("a log is held up by its disk or pipe, and opens the file later\n".to_owned())
        }
    }
}

/// Keeps the old values of settings that a reload cannot change. Returns a message for each changed
/// setting.
fn keep_until_restart(old: &ServerConfig, new: &mut ServerConfig) -> Vec<String> {
    let mut said = Vec::new();
    let mut keep = |key: &str, same: bool| {
        if !same {
            said.push(format!(
                "`{key}` changed: this takes effect after a restart"
            ));
        }
    };
    let workers = |server: &ServerConfig| server.workers.as_ref().map(|its| *its.get_ref());
    let user = |server: &ServerConfig| server.user.as_ref().map(|its| its.get_ref().clone());
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
