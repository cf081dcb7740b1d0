//! The side of the running server: hands over, pauses, and leaves, or goes on if the successor vanishes.

use super::link::{self, AsyncLink};
use super::message::{Message, OpenConnections, ServerName};
use super::predecessors::Predecessors;
use super::support::RestartSupport;
use crate::config::{Config, RouteConfig, ScriptsConfig, TargetConfig};
use crate::control::limits::{
    LEAVING_REOPEN_SECONDS, PAUSE_SECONDS_MAX, SUCCESSOR_BUILD_SECONDS_MAX,
    SUCCESSOR_START_SECONDS_MAX,
};
use crate::control::publish::Publisher;
use crate::control::rebuild::Rebuilder;
use crate::control::socket::ControlRequest;
use base::restarts::Restarts;
use base::sys;
use base::task;
use data_plane::hits::HandedHits;
use data_plane::serve::h3::QuicForward;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::time::{sleep_until, timeout};

/// Running server with a successor.
pub(in crate::control) struct Departing {
    link: Arc<AsyncLink>,
    stage: Stage,
    /// Time at which the successor counts as hanging; None without a limit.
    until: Option<Instant>,
    /// Number of requests that were cut at the deadline.
    cut: Arc<AtomicUsize>,
    /// False once the successor has ended.
    has_successor: bool,
    logs_opened: Instant,
    _support: RestartSupport,
}

/// Stage of a takeover.
enum Stage {
    /// The successor reads and builds.
    Building,
    /// The successor is ready, and a deployment has to end first.
    Waiting,
    /// The server accepts nothing, and its state is written.
    Paused(Option<HandedHits>),
    /// The successor serves.
    Leaving,
}

/// Event of a takeover for the control plane.
pub(in crate::control) enum DepartureEvent {
    /// The server is to pause.
    Yield,
    /// The server is to leave.
    Serving(ServerName),
    /// Idle connections are to end.
    EndIdle,
    /// The logs are to be opened again.
    Reopen,
    /// The server is to stop.
    Stop,
    /// All connections are to end at once.
    End,
    /// The successor has ended, or has taken too long, for the reason.
    Vanished(String),
}

impl Departing {
    /// Begins a takeover that a process asks for over the control socket. A refusal is sent to the process.
    pub(in crate::control) fn begin(
        request: ControlRequest,
        publisher: &Publisher,
        predecessors: &Predecessors,
    ) -> Option<Departing> {
        let begun = may_replace(&request, publisher.config()).and_then(|()| {
            let failed = |error: io::Error| format!("error: {error}\n");
            let (own, its) = sys::packet_pair().map_err(failed)?;
            let departing = Departing::over(own, publisher, predecessors);
            let departing = departing.map_err(failed)?;
            let passed = link::send_text(request.as_fd(), b"ok\n", &[its.as_fd()]);
            passed.map_err(failed)?;
            Ok(departing)
        });
        let peer = peer(&request);
        match begun {
            Ok(departing) => {
                log::info!("{peer} takes over");
                Some(departing)
            }
            Err(refusal) => {
                log::warn!(
                    "{peer} may not take over: {}",
                    refusal.trim().replace('\n', "; ")
                );
                request.answer(Err(refusal));
                None
            }
        }
    }

    /// Begins a takeover over a link to the successor.
    pub(in crate::control) fn over(
        link: OwnedFd,
        publisher: &Publisher,
        predecessors: &Predecessors,
    ) -> io::Result<Departing> {
        let support =
            RestartSupport::of_build().map_err(|error| io::Error::other(error.in_one_line()))?;
        let link = Arc::new(AsyncLink::new(link)?);
        let sockets = publisher.listeners().passed_on()?;
        let forwards = publisher.quic_forwards()?;
        let formers = predecessors.passed_on()?;
        let to = Arc::clone(&link);
        task::spawn(async move {
            // A successor that ends meanwhile is noticed by the next receive.
            let _ = hand_over(&to, &sockets, &forwards, &formers).await;
        });
        Ok(Departing {
            link,
            stage: Stage::Building,
            until: Some(Instant::now() + Duration::from_secs(SUCCESSOR_BUILD_SECONDS_MAX)),
            cut: Arc::default(),
            has_successor: true,
            logs_opened: Instant::now(),
            _support: support,
        })
    }

    /// Waits for the next event. Cancelling the wait loses nothing.
    pub(in crate::control) async fn next(&self) -> DepartureEvent {
        if !self.has_successor {
            return std::future::pending().await;
        }
        let late = async {
            match self.until {
                Some(until) => sleep_until(until.into()).await,
                None => std::future::pending().await,
            }
        };
        let mut late = std::pin::pin!(late);
        loop {
            tokio::select! {
                received = self.link.receive() => match received {
                    Ok((Message::Yield, _)) => return DepartureEvent::Yield,
                    Ok((Message::Serving(name), _)) => return DepartureEvent::Serving(name),
                    Ok((Message::Refused(reason), _)) => return DepartureEvent::Vanished(reason),
                    Ok((Message::EndIdle, _)) => return DepartureEvent::EndIdle,
                    Ok((Message::Reopen, _)) => return DepartureEvent::Reopen,
                    Ok((Message::Stop, _)) => return DepartureEvent::Stop,
                    Ok((Message::End, _)) => return DepartureEvent::End,
                    Ok(_) => {}
                    Err(error) => {
                        let ended = error.kind() == io::ErrorKind::UnexpectedEof;
                        let reason = if ended { "it ended".to_owned() } else { error.to_string() };
                        return DepartureEvent::Vanished(reason);
                    }
                },
                () = &mut late => return DepartureEvent::Vanished("it took too long".to_owned()),
            }
        }
    }

    /// Returns true once the successor serves.
    pub(in crate::control) fn is_leaving(&self) -> bool {
        matches!(self.stage, Stage::Leaving)
    }

    /// Returns true while the state of the server belongs to its successor.
    pub(in crate::control) fn has_yielded(&self) -> bool {
        matches!(self.stage, Stage::Paused(_) | Stage::Leaving)
    }

    /// Returns true if the server is to pause as soon as no deployment is under way.
    pub(in crate::control) fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting)
    }

    /// Begins no further deployment. [`Departing::pause`] follows once none is under way.
    pub(in crate::control) fn wait(&mut self, rebuilder: &mut Rebuilder) {
        if matches!(self.stage, Stage::Building) {
            rebuilder.deployments_mut().suspend();
            self.stage = Stage::Waiting;
        }
    }

    /// Pauses, writes the state and tells the successor. Returns false if the takeover has failed, and the server is to
    /// [resume](Departing::resume).
    pub(in crate::control) async fn pause(&mut self, rebuilder: &mut Rebuilder) -> bool {
        let publisher = &mut rebuilder.publisher;
        let patience = Duration::from_secs(PAUSE_SECONDS_MAX);
        let paused = timeout(patience, async {
            publisher.pause().await;
            publisher.flush_logs().await;
        });
        if paused.await.is_err() {
            self.refuse("a worker does not answer");
            return false;
        }
        publisher.resources().sinks.set_rotation(None);
        let handed = publisher.hand_over_state().await;
        self.stage = Stage::Paused(handed);
        self.until = Some(Instant::now() + Duration::from_secs(SUCCESSOR_START_SECONDS_MAX));
        self.link.send_now(&Message::Yielded).is_ok()
    }

    /// Serves again after a successor that did not.
    pub(in crate::control) async fn resume(mut self, reason: &str, rebuilder: &mut Rebuilder) {
        log::error!("the successor does not serve ({reason}), so this server stays in use");
        self.refuse(reason);
        let stage = std::mem::replace(&mut self.stage, Stage::Building);
        if matches!(stage, Stage::Building) {
            return;
        }
        let publisher = &mut rebuilder.publisher;
        publisher.resume().await;
        let rotation = publisher.config().log.rotate;
        publisher.resources().sinks.set_rotation(rotation);
        if let Stage::Paused(handed) = stage {
            publisher.take_state_back(handed);
        }
        rebuilder.deployments_mut().resume();
    }

    /// Returns the sentence about a restart for the operator.
    pub(in crate::control) fn sentence(successor: &ServerName, publisher: &Publisher) -> String {
        let ServerName { version, process } = successor;
        let own = ServerName::own();
        let connections = match publisher.open_connections().0 {
            1 => "1 connection".to_owned(),
            count => format!("{count} connections"),
        };
        format!(
            "anthill {version} serves (process {process}); process {} ({}) keeps {connections}\n",
            own.process, own.version
        )
    }

    /// Tells the successor, which does not serve yet, that the server goes on.
    pub(in crate::control) fn refuse(&self, reason: &str) {
        let _ = self.link.send_now(&Message::Refused(reason.to_owned()));
    }

    /// Leaves the addresses to the successor.
    pub(in crate::control) fn leave(&mut self, successor: &ServerName, rebuilder: &mut Rebuilder) {
        let ServerName { version, process } = successor;
        let publisher = &mut rebuilder.publisher;
        let seconds = publisher.config().server.limits.restart_seconds;
        log::info!(
            "anthill {version} serves (process {process}); this server keeps its connections for at most {seconds} s"
        );
        self.stage = Stage::Leaving;
        self.until = None;
        publisher.leave(Duration::from_secs(seconds.into()), &self.cut);
        publisher.give_up_contents();
        rebuilder.deployments_mut().stop();
        self.report(&rebuilder.publisher);
    }

    /// Reports the connections to the successor.
    pub(in crate::control) fn report(&self, publisher: &Publisher) {
        let (all, requests) = publisher.open_connections();
        let open = OpenConnections { all, requests };
        // Without a successor, nobody asks.
        let _ = self.link.send_now(&Message::Connections(open));
    }

    /// Returns true at intervals, since the successor renames the logs.
    pub(in crate::control) fn must_reopen_logs(&mut self) -> bool {
        let interval = Duration::from_secs(LEAVING_REOPEN_SECONDS);
        let is_due = self.logs_opened.elapsed() >= interval;
        if is_due {
            self.logs_opened = Instant::now();
        }
        is_due
    }

    /// Goes on leaving without a successor.
    pub(in crate::control) fn forget_successor(&mut self) {
        self.has_successor = false;
    }

    /// Logs the end of the last connection.
    pub(in crate::control) fn log_end(&self) {
        match self.cut.load(Relaxed) {
            0 => log::info!("the last connection has ended"),
            cut => log::warn!("the time of a server that leaves is over: {cut} requests were cut"),
        }
    }
}

/// Sends everything that a successor needs before it can build.
async fn hand_over(
    link: &AsyncLink,
    sockets: &[(String, Vec<OwnedFd>)],
    forwards: &[QuicForward],
    formers: &[(ServerName, OwnedFd)],
) -> io::Result<()> {
    link.send(&Message::Hello(ServerName::own()), &[]).await?;
    for (name, sockets) in sockets {
        for part in sockets.chunks(crate::control::limits::TAKEOVER_SOCKETS_A_MESSAGE_MAX) {
            let part: Vec<BorrowedFd<'_>> = part.iter().map(AsFd::as_fd).collect();
            link.send(&Message::Sockets(name.clone()), &part).await?;
        }
    }
    for forward in forwards {
        let message = Message::Forward {
            address: forward.address,
            generation: forward.generation,
        };
        link.send(&message, &[forward.socket.as_fd()]).await?;
    }
    for (name, former) in formers {
        let former = [former.as_fd()];
        link.send(&Message::Former(name.clone()), &former).await?;
    }
    link.send(&Message::Complete, &[]).await
}

/// Fails with the answer for a process that may not take over. Scripts run under the account of the server, and must not be
/// able to take its ports.
fn may_replace(request: &ControlRequest, config: &Config) -> Result<(), String> {
    if Restarts::from_environment().is_some() {
        return Err(
            "error: the server has a supervisor\nhelp: `anthill restart` starts another program in its place\n"
                .to_owned(),
        );
    }
    let own = rustix::process::geteuid().as_raw();
    let is_own = request.uid == Some(own) && !starts_programs(config);
    if request.uid == Some(0) || is_own {
        return Ok(());
    }
    Err(
        "error: this user may not replace the server\nhelp: run the command as root: the configuration starts programs under the account of the server\n"
            .to_owned(),
    )
}

/// Returns true if the server starts other programs under its account.
fn starts_programs(config: &Config) -> bool {
    let mut routes = config.sites.iter().flat_map(|site| &site.routes);
    let is_program = |route: &RouteConfig| {
        let has_scripts = matches!(route.scripts, Some(ScriptsConfig::Cgi { .. }));
        let target = &route.target;
        has_scripts || matches!(target, Some(TargetConfig::Cgi(_) | TargetConfig::Git(_)))
    };
    let has_hook = config
        .tls
        .acme
        .as_ref()
        .is_some_and(|acme| acme.hook.is_some());
    routes.any(is_program) || has_hook || !config.deployments().is_empty()
}

/// Returns the user, the number and the program of the process at the other end, for the log.
fn peer(request: &ControlRequest) -> String {
    let process = request.process.unwrap_or(0);
    let folder = PathBuf::from(format!("/proc/{process}"));
    let program = std::fs::read_link(folder.join("exe"));
    let program = program.map(|program| program.display().to_string());
    // The account of the server may have no right to see the program of root.
    let program = program.or_else(|_| std::fs::read_to_string(folder.join("comm")));
    let program = program.unwrap_or_else(|_| "an unknown program".to_owned());
    let uid = request
        .uid
        .map_or_else(|| "?".to_owned(), |uid| uid.to_string());
    format!("process {process} of user {uid} ({})", program.trim())
}
