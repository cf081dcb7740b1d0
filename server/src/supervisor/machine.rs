//! Decisions of the supervisor: when to start the server, when to end it, and when to end itself. Pure: events with their
//! time go in, actions come out.
//!
//! Time in which the supervisor itself did not run does not count, since a suspended machine suspends the server as well.
//! The machine therefore counts its own time: between two events pass at most the planned wait and a margin.

use super::limits::{
    LASTING_SECONDS, LATE_MILLISECONDS_MAX, LOOKS_IN_SILENCE, PAUSE_SECONDS_MAX, PAUSE_SECONDS_MIN,
    START_SILENCES_MAX, SUCCESSOR_SECONDS_MAX, TRIAL_SECONDS,
};
use base::restarts::Restarts;
use base::sys::ProcessEnd;
use std::time::Duration;

/// Event that the machine decides about.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// The server is ready, at its start or after a reload.
    Ready,
    /// The server has used the processor since the last event of this kind.
    Working,
    /// All threads of the server have answered.
    Alive,
    /// The server ends by itself, because an operator asked it to.
    Stopping,
    /// The server has ended.
    Ended(ProcessEnd),
    /// The server could not be started.
    StartFailed,
    /// The server asks for a successor.
    RestartAsked,
    /// The successor is ready, and has taken over.
    SuccessorReady,
    /// The server has left everything to the successor, which is not ready yet.
    Succeeded,
    /// The successor has ended, and the server stays in use.
    SuccessorEnded(ProcessEnd),
    /// Somebody asked the supervisor for something.
    Signal(Request),
    /// Time has passed.
    Time,
}

/// Request to the supervisor by a signal.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Request {
    /// SIGTERM or SIGINT, by its number.
    Stop(i32),
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGUSR1: open the logs again.
    Reopen,
}

/// Action of the supervisor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Start the server.
    Start,
    /// Start the program that ran before the last restart.
    StartPrevious,
    /// Start a successor of the running server.
    StartSuccessor,
    /// End the successor at once.
    EndSuccessor,
    /// Tell the running server why no successor serves.
    Refuse(String),
    /// Write the state of the threads to the log, and end the server at once.
    EndSilent,
    /// Send the request to the server.
    Forward(Request),
    /// Write a line to the log.
    Say(String),
    /// End the supervisor with an exit status.
    Exit(u8),
}

/// State of the supervised server.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Phase {
    /// The server does not run, and starts at a time of the machine.
    Paused(Duration),
    /// The server reads its configuration and its files.
    Starting {
        /// Time of the start, or of the last work.
        worked: Duration,
    },
    /// The server serves.
    Serving {
        /// Time of the start of the service.
        since: Duration,
        /// Time of the last sign of life.
        heard: Duration,
    },
    /// The server was silent, and the kernel ends it for this reason.
    Ending(String),
    /// The server ends on request.
    Stopping,
}

/// The state machine.
#[derive(Debug)]
pub(super) struct Machine {
    silence_max: Duration,
    phase: Phase,
    /// Time of the machine.
    time: Duration,
    /// Time of the clock at the last event.
    clock: Duration,
    /// Time of the clock until which the machine planned to wait; None without a plan.
    planned: Option<Duration>,
    /// True once a server has been ready.
    has_served: bool,
    /// Pause before the next start.
    pause: Duration,
    restarts: Restarts,
    /// Requests that the server can't understand before it is ready.
    early: Vec<Request>,
    /// Time until which the successor must be ready; None without a successor.
    successor_until: Option<Duration>,
    /// Time until which an end of the server brings the previous program back.
    trial_until: Option<Duration>,
    /// True if the next start is that of the previous program.
    uses_previous: bool,
}

impl Machine {
    /// Creates the machine at the time `clock`, and returns the first actions. `silence_max` is the longest silence of a
    /// server that has been ready.
    pub(super) fn new(clock: Duration, silence_max: Duration) -> (Machine, Vec<Action>) {
        let mut machine = Machine {
            silence_max,
            phase: Phase::Starting {
                worked: Duration::ZERO,
            },
            time: Duration::ZERO,
            clock,
            planned: None,
            has_served: false,
            pause: Duration::ZERO,
            restarts: Restarts::default(),
            early: Vec::new(),
            successor_until: None,
            trial_until: None,
            uses_previous: false,
        };
        machine.planned = machine.wait().map(|wait| clock + wait);
        (machine, vec![Action::Start])
    }

    /// Returns the restarts for the next server.
    pub(super) fn restarts(&self) -> &Restarts {
        &self.restarts
    }

    /// Returns true while the server starts.
    pub(super) fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::Starting { .. })
    }

    /// Returns the longest time of a start without work.
    pub(super) fn start_silence_max(&self) -> Duration {
        self.silence_max * START_SILENCES_MAX
    }

    /// Returns the time until which the machine waits for an event; None for any time.
    pub(super) fn wait_until(&self) -> Option<Duration> {
        self.planned
    }

    /// Decides about an event at the time `clock`.
    pub(super) fn handle(&mut self, event: Event, clock: Duration) -> Vec<Action> {
        self.count_time(clock);
        let mut actions = Vec::new();
        match event {
            Event::Ready => self.ready(&mut actions),
            Event::Working => self.working(),
            Event::Alive => self.alive(),
            Event::Stopping => {
                self.end_successor(&mut actions);
                self.phase = Phase::Stopping;
            }
            Event::Ended(end) => self.ended(end, &mut actions),
            Event::StartFailed => self.start_again("no process".to_owned(), &mut actions),
            Event::RestartAsked => self.restart_asked(&mut actions),
            Event::SuccessorReady => self.successor_ready(&mut actions),
            Event::Succeeded => self.succeeded(),
            Event::SuccessorEnded(end) => self.successor_ended(end, &mut actions),
            Event::Signal(request) => self.requested(request, &mut actions),
            Event::Time => {}
        }
        self.pass_time(&mut actions);
        self.planned = self.wait().map(|wait| clock + wait);
        actions
    }

    /// Adds the time since the last event, without the time in which the supervisor did not run.
    fn count_time(&mut self, clock: Duration) {
        let late = Duration::from_millis(LATE_MILLISECONDS_MAX);
        let passed = clock.saturating_sub(self.clock);
        let most = self.planned.map(|planned| planned + late - self.clock);
        self.time += most.map_or(passed, |most| passed.min(most));
        self.clock = clock;
    }

    fn working(&mut self) {
        if let Phase::Starting { worked } = &mut self.phase {
            *worked = self.time;
        }
    }

    fn alive(&mut self) {
        if let Phase::Serving { heard, .. } = &mut self.phase {
            *heard = self.time;
        }
    }

    fn ready(&mut self, actions: &mut Vec<Action>) {
        if !self.is_starting() {
            return self.alive();
        }
        self.has_served = true;
        self.phase = Phase::Serving {
            since: self.time,
            heard: self.time,
        };
        actions.extend(self.early.drain(..).map(Action::Forward));
        if self.restarts.count > 0 {
            let text = format!("serving again, restart {}", self.restarts.count);
            actions.push(Action::Say(text));
        }
    }

    fn restart_asked(&mut self, actions: &mut Vec<Action>) {
        if matches!(self.phase, Phase::Serving { .. }) && self.successor_until.is_none() {
            self.successor_until = Some(self.time + Duration::from_secs(SUCCESSOR_SECONDS_MAX));
            actions.push(Action::StartSuccessor);
        } else {
            actions.push(Action::Refuse("another restart is under way".to_owned()));
        }
    }

    fn successor_ready(&mut self, actions: &mut Vec<Action>) {
        self.succeeded();
        self.ready(actions);
    }

    fn succeeded(&mut self) {
        self.successor_until = None;
        self.trial_until = Some(self.time + Duration::from_secs(TRIAL_SECONDS));
        self.phase = Phase::Starting { worked: self.time };
    }

    fn successor_ended(&mut self, end: ProcessEnd, actions: &mut Vec<Action>) {
        self.successor_until = None;
        let text = format!(
            "the successor ended ({}), and the server stays in use",
            in_words(end)
        );
        actions.push(Action::Say(text));
        if matches!(self.phase, Phase::Serving { .. }) {
            actions.extend(self.early.drain(..).map(Action::Forward));
        }
    }

    fn end_successor(&mut self, actions: &mut Vec<Action>) {
        if self.successor_until.take().is_some() {
            actions.push(Action::EndSuccessor);
        }
    }

    fn requested(&mut self, request: Request, actions: &mut Vec<Action>) {
        if matches!(request, Request::Stop(_)) {
            self.end_successor(actions);
        }
        match (request, &self.phase) {
            (Request::Stop(_), Phase::Paused(_)) => actions.push(Action::Exit(0)),
            (Request::Reload | Request::Reopen, Phase::Serving { .. })
                if self.early.contains(&request) => {}
            // The server that serves at the end of the restart gets the request.
            (Request::Reload | Request::Reopen, Phase::Serving { .. })
                if self.successor_until.is_some() =>
            {
                self.early.push(request);
            }
            (Request::Stop(_), _) => {
                self.phase = Phase::Stopping;
                actions.push(Action::Forward(request));
            }
            (_, Phase::Serving { .. }) => actions.push(Action::Forward(request)),
            // The server has no handler for the signal yet, and would end.
            (_, Phase::Starting { .. }) if !self.early.contains(&request) => {
                self.early.push(request)
            }
            _ => {}
        }
    }

    fn ended(&mut self, end: ProcessEnd, actions: &mut Vec<Action>) {
        let phase = std::mem::replace(&mut self.phase, Phase::Stopping);
        let reason = match &phase {
            Phase::Ending(reason) => reason.clone(),
            _ => in_words(end),
        };
        match (end, &phase) {
            (ProcessEnd::Status(status), Phase::Stopping) => {
                actions.push(Action::Exit(exit_code(status)))
            }
            // A server that is still starting ends by the signal itself.
            (ProcessEnd::Signal(signal), Phase::Stopping) if is_stop(signal) => {
                actions.push(Action::Exit(0))
            }
            (ProcessEnd::Signal(signal), Phase::Stopping) => {
                actions.push(Action::Say(format!(
                    "the server ended while stopping: {reason}"
                )));
                actions.push(Action::Exit(exit_code(SIGNAL_STATUS + signal)));
            }
            (ProcessEnd::Status(0), _) => actions.push(Action::Exit(0)),
            // The server has printed the reason: a mistake in the configuration, mostly.
            (ProcessEnd::Status(status), _) if !self.has_served => {
                actions.push(Action::Exit(exit_code(status)))
            }
            _ => {
                let lasting = Duration::from_secs(LASTING_SECONDS);
                if matches!(phase, Phase::Serving { since, .. } if self.time - since >= lasting) {
                    self.pause = Duration::ZERO;
                }
                if self
                    .trial_until
                    .take()
                    .is_some_and(|until| self.time < until)
                {
                    self.pause = Duration::ZERO;
                    self.uses_previous = true;
                }
                self.start_again(reason, actions);
            }
        }
    }

    /// Plans the next start after the pause, and doubles the pause.
    fn start_again(&mut self, reason: String, actions: &mut Vec<Action>) {
        let pause = self.pause;
        self.phase = Phase::Paused(self.time + pause);
        let least = Duration::from_secs(PAUSE_SECONDS_MIN);
        self.pause = (pause * 2).clamp(least, Duration::from_secs(PAUSE_SECONDS_MAX));
        self.restarts.reason = reason;
        self.early.clear();
        let when = match pause.as_secs() {
            0 => "at once".to_owned(),
            seconds => format!("in {seconds} s"),
        };
        let reason = &self.restarts.reason;
        let what = if self.uses_previous {
            "the previous program starts in its place"
        } else {
            "starts again"
        };
        actions.push(Action::Say(format!(
            "the server ended ({reason}), and {what} {when}"
        )));
    }

    /// Takes the decisions that are due by time alone.
    fn pass_time(&mut self, actions: &mut Vec<Action>) {
        if self.successor_until.is_some_and(|until| until <= self.time) {
            let reason = format!("the successor is not ready after {SUCCESSOR_SECONDS_MAX} s");
            actions.push(Action::Refuse(reason));
            self.end_successor(actions);
        }
        match self.phase {
            Phase::Paused(until) if until <= self.time && !ends(actions) => {
                self.restarts.count += 1;
                self.phase = Phase::Starting { worked: self.time };
                actions.push(match std::mem::take(&mut self.uses_previous) {
                    true => Action::StartPrevious,
                    false => Action::Start,
                });
            }
            Phase::Starting { worked } if self.time - worked >= self.start_silence_max() => {
                let seconds = self.start_silence_max().as_secs();
                self.end_silent(
                    format!("no work in its start for {seconds} s"),
                    format!("the server has done nothing for {seconds} s, and is not ready"),
                    actions,
                );
            }
            Phase::Serving { heard, .. } if self.time - heard >= self.silence_max => {
                let seconds = self.silence_max.as_secs();
                self.end_silent(
                    format!("silence for {seconds} s"),
                    format!("the server has not reported that its threads work for {seconds} s"),
                    actions,
                );
            }
            _ => {}
        }
    }

    /// Has the server ended, for a reason that the next status shows. `said` goes to the log.
    fn end_silent(&mut self, reason: String, said: String, actions: &mut Vec<Action>) {
        self.phase = Phase::Ending(reason);
        let text = format!("{said}; its state follows, and its end");
        actions.extend([Action::Say(text), Action::EndSilent]);
    }

    /// Returns the time until the next look; None if only an event changes the state.
    fn wait(&self) -> Option<Duration> {
        let look = self.silence_max / LOOKS_IN_SILENCE;
        match self.phase {
            Phase::Paused(until) => Some(until - self.time),
            Phase::Starting { worked } => {
                let silence = worked + self.start_silence_max() - self.time;
                Some(silence.min(look))
            }
            Phase::Serving { heard, .. } => {
                let silence = heard + self.silence_max - self.time;
                let successor = self.successor_until.map(|until| until - self.time);
                Some(silence.min(look).min(successor.unwrap_or(look)))
            }
            Phase::Ending(_) | Phase::Stopping => None,
        }
    }
}

fn ends(actions: &[Action]) -> bool {
    actions
        .iter()
        .any(|action| matches!(action, Action::Exit(_)))
}

/// Exit status of a shell for a program that a signal ended, without the number of the signal.
const SIGNAL_STATUS: i32 = 128;

fn exit_code(status: i32) -> u8 {
    u8::try_from(status).unwrap_or(1)
}

const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

fn is_stop(signal: i32) -> bool {
    signal == SIGINT || signal == SIGTERM
}

/// Returns an end of the server for the log and the status.
fn in_words(end: ProcessEnd) -> String {
    match end {
        ProcessEnd::Status(status) => format!("exit status {status}"),
        ProcessEnd::Signal(signal) => {
            let names = SIGNAL_NAMES.iter();
            let name = names.filter(|it| it.0 == signal).map(|it| it.1).next();
            name.map_or_else(
                || format!("signal {signal}"),
                |name| format!("signal {signal} ({name})"),
            )
        }
    }
}

/// Signals that end a server in practice.
const SIGNAL_NAMES: [(i32, &str); 9] = [
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (4, "SIGILL"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (9, "SIGKILL"),
    (11, "SIGSEGV"),
    (15, "SIGTERM"),
    (31, "SIGSYS"),
];

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_secs(30);
    const KILLED: Event = Event::Ended(ProcessEnd::Signal(9));
    const TERM: Event = Event::Signal(Request::Stop(SIGTERM));

    /// Machine with a virtual clock. The run wakes as the machine plans, and records each action with its second.
    struct Run {
        machine: Machine,
        clock: Duration,
        actions: Vec<(u64, Action)>,
    }

    impl Run {
        fn new() -> Run {
            let clock = Duration::from_secs(1_000);
            let (machine, actions) = Machine::new(clock, SILENCE);
            let mut run = Run {
                machine,
                clock,
                actions: Vec::new(),
            };
            run.record(actions);
            run
        }

        fn record(&mut self, actions: Vec<Action>) {
            let second = self.clock.as_secs() - 1_000;
            let kept = actions
                .into_iter()
                .filter(|it| !matches!(it, Action::Say(_)));
            self.actions.extend(kept.map(|action| (second, action)));
        }

        fn event(&mut self, event: Event) {
            let actions = self.machine.handle(event, self.clock);
            self.record(actions);
        }

        /// Lets time pass, with all planned wake-ups.
        fn pass(&mut self, seconds: u64) {
            let end = self.clock + Duration::from_secs(seconds);
            while let Some(next) = self.machine.wait_until().filter(|next| *next <= end) {
                self.clock = next;
                self.event(Event::Time);
            }
            self.clock = end;
        }

        /// Lets time pass in which neither the supervisor nor the server runs.
        fn suspend(&mut self, seconds: u64) {
            self.clock += Duration::from_secs(seconds);
            self.event(Event::Time);
        }

        fn take(&mut self) -> Vec<(u64, Action)> {
            std::mem::take(&mut self.actions)
        }

        /// Returns the seconds of the starts.
        fn starts(&mut self) -> Vec<u64> {
            let actions = self.take().into_iter();
            actions
                .filter(|it| it.1 == Action::Start)
                .map(|it| it.0)
                .collect()
        }
    }

    fn serving() -> Run {
        let mut run = Run::new();
        run.event(Event::Ready);
        assert_eq!(run.take(), [(0, Action::Start)]);
        run
    }

    #[test]
    fn a_server_that_ends_starts_again_at_once_and_then_with_growing_pauses() {
        let mut run = serving();
        for _ in 0..8 {
            run.event(KILLED);
            run.pass(30);
            run.event(Event::Ready);
        }
        assert_eq!(run.starts(), [0, 31, 62, 94, 128, 166, 210, 240]);
        assert_eq!(run.machine.restarts().count, 8);
        assert!(run.machine.restarts().reason.contains("SIGKILL"));
    }

    #[test]
    fn a_minute_of_service_ends_the_pauses() {
        let mut run = serving();
        for _ in 0..4 {
            run.event(KILLED);
            run.pass(10);
        }
        run.take();
        run.event(Event::Ready);
        for _ in 0..6 {
            run.pass(10);
            run.event(Event::Alive);
        }
        let second = run.clock.as_secs() - 1_000;
        run.event(KILLED);
        assert_eq!(run.take(), [(second, Action::Start)]);
    }

    #[test]
    fn a_crash_before_the_server_is_ready_is_no_service() {
        let mut run = serving();
        run.event(KILLED);
        run.take();
        // A start of two minutes with work is not interrupted, and resets no pause.
        for _ in 0..4 {
            run.pass(30);
            run.event(Event::Working);
        }
        run.event(KILLED);
        assert_eq!(run.take(), []);
        run.pass(1);
        assert_eq!(run.starts(), [121]);
    }

    #[test]
    fn the_first_start_decides_and_later_refusals_are_retried() {
        for status in [1, 2] {
            let mut run = Run::new();
            run.event(Event::Ended(ProcessEnd::Status(status)));
            let exit = Action::Exit(exit_code(status));
            assert_eq!(run.take(), [(0, Action::Start), (0, exit)]);
        }
        let mut run = serving();
        run.event(KILLED);
        for _ in 0..3 {
            run.event(Event::Ended(ProcessEnd::Status(2)));
            run.pass(10);
        }
        assert_eq!(run.starts(), [0, 1, 12, 24]);
        assert_eq!(run.machine.restarts().reason, "exit status 2");
    }

    #[test]
    fn a_silent_server_is_ended_and_started_again() {
        let mut run = serving();
        run.pass(10);
        run.event(Event::Alive);
        run.pass(29);
        assert_eq!(run.take(), []);
        run.pass(1);
        assert_eq!(run.take(), [(40, Action::EndSilent)]);
        // The kernel may need time, and the end is asked for once.
        run.pass(100);
        assert_eq!(run.take(), []);
        run.event(KILLED);
        assert_eq!(run.take(), [(140, Action::Start)]);
        assert_eq!(run.machine.restarts().reason, "silence for 30 s");
    }

    #[test]
    fn a_server_that_reports_stays() {
        let mut run = serving();
        for _ in 0..100 {
            run.pass(20);
            run.event(Event::Alive);
        }
        assert_eq!(run.take(), []);
    }

    #[test]
    fn time_in_which_the_supervisor_did_not_run_is_no_silence() {
        let mut run = serving();
        run.pass(10);
        run.suspend(3_600);
        assert_eq!(run.take(), [], "a suspended machine");
        // 10 s before, and at most 11 s of the suspension count.
        run.pass(8);
        assert_eq!(run.take(), []);
        run.pass(2);
        assert_eq!(run.take().len(), 1, "a silence in running time");
    }

    #[test]
    fn a_start_may_take_as_long_as_it_works() {
        let mut run = Run::new();
        for _ in 0..100 {
            run.pass(59);
            run.event(Event::Working);
        }
        assert_eq!(run.take(), [(0, Action::Start)]);
        run.suspend(3_600);
        assert_eq!(run.take(), [], "a suspended machine");
    }

    #[test]
    fn a_start_without_work_is_ended_and_repeated_with_growing_pauses() {
        let mut run = Run::new();
        let mut expected = vec![(0, Action::Start)];
        let mut second = 0;
        for pause in [0, 1, 2] {
            run.pass(60);
            second += 60;
            expected.push((second, Action::EndSilent));
            run.event(KILLED);
            run.pass(pause);
            second += pause;
            expected.push((second, Action::Start));
        }
        assert_eq!(run.take(), expected);
        assert_eq!(
            run.machine.restarts().reason,
            "no work in its start for 60 s"
        );
        // Work counts in a start alone.
        run.event(Event::Ready);
        run.pass(20);
        run.event(Event::Working);
        run.pass(10);
        assert_eq!(run.take(), [(second + 30, Action::EndSilent)]);
    }

    #[test]
    fn a_stop_is_passed_on_and_gives_the_exit_status_of_the_server() {
        let mut run = serving();
        run.event(TERM);
        run.pass(100);
        run.event(TERM);
        run.event(Event::Ended(ProcessEnd::Status(0)));
        let forward = Action::Forward(Request::Stop(SIGTERM));
        let expected = [(0, forward.clone()), (100, forward), (100, Action::Exit(0))];
        assert_eq!(run.take(), expected);

        let mut run = serving();
        run.event(Event::Stopping);
        run.pass(100);
        run.event(KILLED);
        assert_eq!(run.take(), [(100, Action::Exit(137))], "`anthill stop`");

        let mut run = Run::new();
        run.event(TERM);
        run.event(Event::Ended(ProcessEnd::Signal(SIGTERM)));
        assert_eq!(run.take().pop(), Some((0, Action::Exit(0))), "in a start");

        let mut run = serving();
        for _ in 0..3 {
            run.event(KILLED);
        }
        run.take();
        run.event(TERM);
        assert_eq!(run.take(), [(0, Action::Exit(0))], "in a pause");
    }

    #[test]
    fn a_server_that_ends_by_itself_with_success_ends_the_supervisor() {
        let mut run = serving();
        run.event(Event::Ended(ProcessEnd::Status(0)));
        assert_eq!(run.take(), [(0, Action::Exit(0))]);
    }

    #[test]
    fn a_reload_waits_for_a_server_that_starts() {
        let reload = Event::Signal(Request::Reload);
        let mut run = Run::new();
        run.event(reload);
        run.event(reload);
        run.event(Event::Signal(Request::Reopen));
        assert_eq!(run.take(), [(0, Action::Start)]);
        run.event(Event::Ready);
        let forwards = [Request::Reload, Request::Reopen].map(|it| (0, Action::Forward(it)));
        assert_eq!(run.take(), forwards);
        run.event(reload);
        assert_eq!(run.take(), forwards[..1]);
        // The next server reads the configuration anyway.
        for _ in 0..2 {
            run.event(KILLED);
        }
        run.take();
        run.event(reload);
        assert_eq!(run.take(), []);
    }

    #[test]
    fn a_successor_takes_the_place_of_the_server() {
        let mut run = serving();
        run.event(Event::RestartAsked);
        run.event(Event::RestartAsked);
        run.event(Event::Signal(Request::Reload));
        let refusal = Action::Refuse("another restart is under way".to_owned());
        assert_eq!(run.take(), [(0, Action::StartSuccessor), (0, refusal)]);
        run.event(Event::SuccessorReady);
        let forward = Action::Forward(Request::Reload);
        assert_eq!(run.take(), [(0, forward)], "the reload waited");
        // The end of the new program brings the previous one back, at once.
        run.pass(20);
        run.event(Event::Alive);
        run.event(KILLED);
        assert_eq!(run.take(), [(20, Action::StartPrevious)]);
        run.event(Event::Ready);
        run.event(KILLED);
        run.pass(1);
        assert_eq!(run.starts(), [21], "no third program");
    }

    #[test]
    fn after_a_minute_the_new_program_stays() {
        let mut run = serving();
        run.event(Event::RestartAsked);
        run.event(Event::Succeeded);
        run.event(Event::Ready);
        for _ in 0..6 {
            run.pass(10);
            run.event(Event::Alive);
        }
        run.take();
        run.event(KILLED);
        assert_eq!(run.take(), [(60, Action::Start)]);
    }

    #[test]
    fn a_successor_that_ends_or_hangs_leaves_the_server_in_use() {
        let mut run = serving();
        run.event(Event::RestartAsked);
        run.event(Event::SuccessorEnded(ProcessEnd::Status(2)));
        assert_eq!(run.take(), [(0, Action::StartSuccessor)]);
        run.event(Event::RestartAsked);
        for _ in 0..3 {
            run.pass(10);
            run.event(Event::Alive);
        }
        let refusal = Action::Refuse("the successor is not ready after 30 s".to_owned());
        let expected = [
            (0, Action::StartSuccessor),
            (30, refusal),
            (30, Action::EndSuccessor),
        ];
        assert_eq!(run.take(), expected);
        run.event(Event::SuccessorEnded(ProcessEnd::Signal(9)));
        run.event(KILLED);
        assert_eq!(run.take(), [(30, Action::Start)], "no previous program");
    }

    #[test]
    fn a_stop_ends_the_successor_too() {
        let forward = Action::Forward(Request::Stop(SIGTERM));
        let mut run = serving();
        run.event(Event::RestartAsked);
        run.event(TERM);
        let expected = [
            (0, Action::StartSuccessor),
            (0, Action::EndSuccessor),
            (0, forward),
        ];
        assert_eq!(run.take(), expected);
        run.event(Event::SuccessorEnded(ProcessEnd::Signal(9)));
        run.event(Event::Ended(ProcessEnd::Status(0)));
        assert_eq!(run.take(), [(0, Action::Exit(0))]);
    }

    #[test]
    fn a_failed_start_is_repeated_after_the_pause() {
        let mut run = serving();
        run.event(KILLED);
        run.event(Event::StartFailed);
        run.pass(5);
        assert_eq!(run.starts(), [0, 1]);
    }
}
