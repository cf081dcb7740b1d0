//! The supervisor, `anthill serve --supervise`: a small process that starts the server, keeps its listening sockets, and
//! starts the server again when the server has ended or hangs.
//!
//! The supervisor speaks the other side of the protocol of systemd (sd_notify(3), sd_listen_fds(3)), so the server has one
//! protocol for health and sockets. The process has one thread and opens no file of the configuration: whatever makes the
//! server end must not reach the supervisor. `machine.rs` decides, and this file carries the decisions out.

mod limits;
mod machine;
mod socket_store;
mod start_work;
mod successor;
mod thread_report;

use base::log::ErrorLog;
use base::restarts::{
    RESTART_REFUSED, RESTART_REQUEST, SERVER_LEAVES, SUCCESSOR_SOCKET, SUCCESSOR_STARTS,
    SUPERVISOR_SOCKET,
};
use base::sys::{
    self, Notification, NotificationSocket, ProcessEnd, SignalQueue, SupervisedProgram,
};
use limits::{
    LOOKS_IN_SILENCE, MESSAGES_A_ROUND_MAX, OOM_SCORE_ADDITION, SILENCE_SECONDS_MAX, SOCKETS_MAX,
};
use log::LevelFilter;
use machine::{Action, Event, Machine, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use socket_store::SocketStore;
use start_work::StartWork;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use successor::{Process, Programs, ServerLink};

const SIGHUP: i32 = Signal::HUP.as_raw();
const SIGINT: i32 = Signal::INT.as_raw();
const SIGKILL: i32 = Signal::KILL.as_raw();
const SIGUSR1: i32 = Signal::USR1.as_raw();
const SIGTERM: i32 = Signal::TERM.as_raw();
const SIGCHLD: i32 = Signal::CHILD.as_raw();

/// Statements of the server that go on to the service manager of the supervisor.
const PASSED_ON: [&str; 5] = [
    "READY=",
    "RELOADING=",
    "MONOTONIC_USEC=",
    "STOPPING=",
    "STATUS=",
];

/// Supervisor with its server.
struct Supervisor {
    program: PathBuf,
    arguments: Vec<OsString>,
    machine: Machine,
    store: SocketStore,
    messages: NotificationSocket,
    signals: SignalQueue,
    silence_max: Duration,
    /// The server; None while no server runs.
    server: Option<Process>,
    /// Process that is to take over from the server.
    successor: Option<Process>,
    programs: Programs,
    /// Work of the server's start.
    work: StartWork,
    /// Time after which the service manager of the supervisor ends the supervisor for silence.
    outer_watchdog: Option<Duration>,
    /// True if the service manager of the supervisor keeps sockets as well.
    is_kept: bool,
}

/// Runs the program with the arguments until an operator stops it, and returns the exit status. Must be called while the
/// process has one thread.
///
/// # Errors
/// A lack of resources before the first start.
pub(crate) fn supervise(program: PathBuf, arguments: Vec<OsString>) -> io::Result<u8> {
    ErrorLog::install(LevelFilter::Info).map_err(io::Error::other)?;
    sys::reset_signals();
    let given = sys::systemd_listen_fds()?;
    sys::set_cloexec_on_inherited();
    let silence_max = silence_max();
    let (machine, actions) = Machine::new(clock(), silence_max);
    let mut supervisor = Supervisor {
        programs: Programs::new(&program),
        program,
        arguments,
        machine,
        store: SocketStore::new(given),
        messages: NotificationSocket::bind()?,
        signals: SignalQueue::new(&[SIGHUP, SIGINT, SIGUSR1, SIGTERM, SIGCHLD])?,
        silence_max,
        server: None,
        successor: None,
        work: StartWork::new(clock()),
        outer_watchdog: sys::watchdog_time(),
        is_kept: sys::descriptor_store_room() > 0,
    };
    supervisor.run(actions)
}

/// Returns the longest silence of the server. The tests wait for a shorter silence.
fn silence_max() -> Duration {
    let seconds = std::env::var("ANTHILL_SILENCE_SECONDS").ok();
    let seconds = seconds.and_then(|seconds| seconds.parse().ok());
    let seconds = seconds.filter(|seconds| (1..=SILENCE_SECONDS_MAX).contains(seconds));
    Duration::from_secs(seconds.unwrap_or(SILENCE_SECONDS_MAX))
}

fn clock() -> Duration {
    Duration::from_nanos(sys::monotonic_nanos())
}

impl Supervisor {
    fn run(&mut self, mut actions: Vec<Action>) -> io::Result<u8> {
        loop {
            for action in std::mem::take(&mut actions) {
                match action {
                    Action::Exit(status) => return Ok(status),
                    action => actions.extend(self.act(action)),
                }
            }
            if !actions.is_empty() {
                continue;
            }
            self.wait()?;
            for event in self.events()? {
                actions.extend(self.machine.handle(event, clock()));
            }
            if self.outer_watchdog.is_some() {
                let _ = sys::notify("WATCHDOG=1");
            }
        }
    }

    /// Waits for a message, for a signal or for the time that the machine has planned.
    fn wait(&self) -> io::Result<()> {
        let planned = self.machine.wait_until();
        let planned = planned.map(|until| until.saturating_sub(clock()));
        let outer = self.outer_watchdog.map(|time| time / 2);
        let wait = planned.into_iter().chain(outer).min();
        let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
        let mut sources = vec![
            PollFd::new(&self.messages, PollFlags::IN),
            PollFd::new(&self.signals, PollFlags::IN),
        ];
        let link = self.server.as_ref().and_then(|server| server.link.source());
        sources.extend(link.map(|link| PollFd::from_borrowed_fd(link, PollFlags::IN)));
        match poll(&mut sources, wait.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns what has happened. The messages of a server come before its end.
    fn events(&mut self) -> io::Result<Vec<Event>> {
        let mut events = Vec::new();
        for _ in 0..MESSAGES_A_ROUND_MAX {
            let Some(message) = self.messages.receive()? else {
                break;
            };
            // Any process may send to the socket.
            if is(self.server.as_ref(), message.sender) {
                self.take(message, &mut events);
            } else if is(self.successor.as_ref(), message.sender)
                && message.text.lines().any(|line| line == "READY=1")
            {
                self.promote();
                events.push(Event::SuccessorReady);
            }
        }
        self.hear_server(&mut events);
        while let Some(signal) = self.signals.next() {
            match signal {
                SIGHUP => events.push(Event::Signal(Request::Reload)),
                SIGUSR1 => events.push(Event::Signal(Request::Reopen)),
                SIGINT | SIGTERM => events.push(Event::Signal(Request::Stop(signal))),
                _ => {}
            }
        }
        while let Some((pid, end)) = sys::next_ended_child() {
            // As process 1, the supervisor is the parent of all orphans, and waits for them.
            // A server that leaves ends later.
            if is(self.successor.as_ref(), pid) {
                self.successor = None;
                events.push(Event::SuccessorEnded(end));
            } else if is(self.server.as_ref(), pid) {
                self.server = None;
                if self.promote() {
                    events.push(Event::Succeeded);
                } else {
                    events.push(Event::Ended(end));
                }
            }
        }
        events.extend(self.work_of_start());
        events.push(Event::Time);
        Ok(events)
    }

    /// Makes the successor the server. Returns false without a successor.
    fn promote(&mut self) -> bool {
        match self.successor.take_if(|successor| !successor.is_ending) {
            Some(successor) => {
                self.programs.succeed(&self.program);
                self.server = Some(successor);
                true
            }
            None => false,
        }
    }

    /// Takes the messages of the server over its link.
    fn hear_server(&mut self, events: &mut Vec<Event>) {
        for _ in 0..MESSAGES_A_ROUND_MAX {
            let Some(server) = &mut self.server else {
                return;
            };
            match server.link.next().as_deref() {
                Some(RESTART_REQUEST) => events.push(Event::RestartAsked),
                Some(SERVER_LEAVES) if self.promote() => events.push(Event::Succeeded),
                Some(SERVER_LEAVES) => {
                    // The successor has ended meanwhile.
                    self.server = None;
                    events.push(Event::Ended(ProcessEnd::Signal(SIGKILL)));
                }
                Some(_) => {}
                None => return,
            }
        }
    }

    /// Returns the event of a start that goes on. The service manager of the supervisor gets to know that the start may take
    /// longer than usual.
    fn work_of_start(&mut self) -> Option<Event> {
        let server = self.server.as_ref();
        let server = server.filter(|_| self.machine.is_starting())?;
        let interval = self.silence_max / LOOKS_IN_SILENCE;
        if !self.work.is_due(clock(), interval) || !self.work.has_gone_on(server.pid) {
            return None;
        }
        let longer = 2 * self.machine.start_silence_max();
        let _ = sys::notify(&format!("EXTEND_TIMEOUT_USEC={}", longer.as_micros()));
        Some(Event::Working)
    }

    /// Takes the statements of a message of the server.
    fn take(&mut self, message: Notification, events: &mut Vec<Event>) {
        let lines = || message.text.lines();
        let has = |line| lines().any(|it| it == line);
        for (line, event) in [
            ("READY=1", Event::Ready),
            ("WATCHDOG=1", Event::Alive),
            ("STOPPING=1", Event::Stopping),
        ] {
            events.extend(has(line).then_some(event));
        }
        let name = lines().find_map(|line| line.strip_prefix("FDNAME="));
        let name = name.unwrap_or("stored");
        let (keeps, closes) = (has("FDSTORE=1"), has("FDSTOREREMOVE=1"));
        // The server waits at a barrier until all duplicates of its former sockets are closed.
        if self.is_kept && (keeps || closes || has("BARRIER=1")) {
            let passed: Vec<BorrowedFd<'_>> = message.passed.iter().map(AsFd::as_fd).collect();
            let _ = sys::notify_with(&message.text, &passed);
        }
        let mut passed_on = String::new();
        for line in lines().filter(|it| PASSED_ON.iter().any(|start| it.starts_with(start))) {
            passed_on += line;
            passed_on.push('\n');
        }
        if closes {
            self.store.close(name);
        } else if keeps && !self.store.keep(name, message.passed) {
            say(&format!(
                "a socket of the server is not kept: the supervisor keeps {SOCKETS_MAX} sockets, and a restart refuses connections for a moment"
            ));
        }
        if !passed_on.is_empty() {
            let _ = sys::notify(passed_on.trim_end());
        }
    }

    /// Carries out an action, and returns the actions that follow.
    fn act(&mut self, action: Action) -> Vec<Action> {
        match action {
            Action::StartPrevious => {
                self.programs.use_previous();
                return self.act(Action::Start);
            }
            Action::StartSuccessor => {
                if let Err(error) = self.start_successor() {
                    let reason = format!("the successor can't be started: {error}");
                    self.refuse(&reason);
                    return self
                        .machine
                        .handle(Event::SuccessorEnded(ProcessEnd::Status(1)), clock());
                }
            }
            Action::EndSuccessor => {
                if let Some(successor) = &mut self.successor {
                    successor.is_ending = true;
                    let _ = sys::send_signal(successor.pid, SIGKILL);
                }
            }
            Action::Refuse(reason) => self.refuse(&reason),
            Action::Start => {
                if let Err(error) = self.start() {
                    say(&format!("the server can't be started: {error}"));
                    return self.machine.handle(Event::StartFailed, clock());
                }
            }
            Action::EndSilent => {
                if let Some(server) = &self.server {
                    for line in thread_report::thread_lines(server.pid) {
                        say(&line);
                    }
                    let _ = sys::send_signal(server.pid, SIGKILL);
                }
            }
            Action::Forward(request) => {
                let signal = match request {
                    Request::Stop(signal) => signal,
                    Request::Reload => SIGHUP,
                    Request::Reopen => SIGUSR1,
                };
                if let Some(server) = &self.server {
                    let _ = sys::send_signal(server.pid, signal);
                }
            }
            Action::Say(text) => {
                say(&text);
                let _ = sys::notify(&format!("STATUS={text}"));
            }
            Action::Exit(_) => {}
        }
        Vec::new()
    }

    fn start(&mut self) -> io::Result<()> {
        let (link, its) = ServerLink::pair()?;
        let mut sockets = self.store.each();
        sockets.push((SUPERVISOR_SOCKET, its.as_fd()));
        let file = self.programs.file();
        let pid = self.start_program(&file, &self.arguments, &sockets)?;
        self.server = Some(Process::new(pid, link));
        self.work = StartWork::new(clock());
        Ok(())
    }

    /// Starts a process that takes over from the server, over a link between the two.
    fn start_successor(&mut self) -> io::Result<()> {
        if self.successor.is_some() {
            return Err(io::Error::other("another successor is ending"));
        }
        let server = self.server.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let (own, its) = sys::packet_pair()?;
        let (link, supervisor) = ServerLink::pair()?;
        let mut arguments = self.arguments.clone();
        let place = arguments.iter().position(|it| it == "serve");
        arguments.insert(place.map_or(0, |at| at + 1), "--replace".into());
        let sockets = [
            (SUPERVISOR_SOCKET, supervisor.as_fd()),
            (SUCCESSOR_SOCKET, its.as_fd()),
        ];
        server.link.pass(SUCCESSOR_STARTS, &own)?;
        self.programs.open_new(&self.program)?;
        let pid = self.start_program(&self.program, &arguments, &sockets)?;
        self.successor = Some(Process::new(pid, link));
        Ok(())
    }

    /// Tells the server why no successor serves.
    fn refuse(&self, reason: &str) {
        if let Some(server) = &self.server {
            server.link.say(&format!("{RESTART_REFUSED} {reason}"));
        }
    }

    fn start_program(
        &self,
        file: &Path,
        arguments: &[OsString],
        sockets: &[(&str, BorrowedFd<'_>)],
    ) -> io::Result<u32> {
        let [count, reason] = self.machine.restarts().variables();
        let variables = [
            ("NOTIFY_SOCKET", self.messages.name()),
            ("WATCHDOG_USEC", self.silence_max.as_micros().to_string()),
            ("FDSTORE", SOCKETS_MAX.to_string()),
            count,
            reason,
        ];
        let program = SupervisedProgram {
            file,
            name: &self.program,
            arguments,
            variables: &variables,
            sockets,
            oom_score_addition: OOM_SCORE_ADDITION,
        };
        program.start()
    }
}

/// Returns true for the process with the number.
fn is(process: Option<&Process>, pid: u32) -> bool {
    process.is_some_and(|process| process.pid == pid)
}

/// Writes a line to standard error, unless nobody takes the lines: a full pipe must not stop the supervisor.
fn say(text: &str) {
    let errors = io::stderr();
    let mut sink = [PollFd::new(&errors, PollFlags::OUT)];
    if poll(&mut sink, Some(&Timespec::default())) == Ok(1) {
        log::warn!("supervisor: {text}");
    }
}
