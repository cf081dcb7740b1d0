//! HTTP/1.1 users of one thread: an event loop over non-blocking sockets with reused buffers, written to
//! cost less than the server under test.
//!
//! Sockets are registered once, edge-triggered. In the common case a request costs one write, one read and
//! a share of an epoll_wait.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt;

use super::cpu::Meter;
use super::link::{End, Link, TlsStart};
use super::random::Random;
use super::response::Response;
use super::share::{Report, Share};
use super::tally::{Failure, ResponseSummary, Tally};
use super::timeline::{DueTimes, Nanos, PendingRequest, Timeline, nanos};
use super::timer::{Timer, timespec};
use super::workload::{Ends, Method, Pace, Workload};
use crate::result::Failures;

/// The users of one thread.
pub(super) struct Http1<'a> {
    workload: &'a Workload,
    timeline: &'a Timeline,
    tls: Option<TlsStart>,
    epoll: OwnedFd,
    timer: Timer,
    requests: Vec<Vec<u8>>,
    users: Vec<User>,
    /// Users without a request in an open loop, the longest idle first.
    idle: VecDeque<usize>,
    /// Users with a scheduled wake-up: the end of a pause, or the next connection attempt.
    resting: BinaryHeap<Reverse<(Nanos, usize)>>,
    due_times: Option<DueTimes>,
    /// Users that send their next request after the current batch of events, in a closed loop without
    /// pauses. All responses of a batch are read before the next requests are sent.
    turn: Vec<usize>,
    /// Number of users with an unanswered request.
    busy: usize,
    buffer: Vec<u8>,
    random: Random,
    tally: Tally,
    meter: Meter,
}

/// One user and the user's connection.
struct User {
    ends: Ends,
    phase: Phase,
    link: Option<Link>,
    pending: Option<PendingRequest>,
    /// Index of the request that the user sends next or is sending.
    request: usize,
    /// Bytes of the current request already sent.
    sent: usize,
    response: Response,
    connect_begun: Nanos,
    /// Time when the user gives up waiting.
    deadline: Nanos,
    resting: bool,
    /// Number of consecutive failed connections.
    failed_connections: u32,
}

/// State of a user's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No connection.
    Vacant,
    /// TCP handshake in progress.
    Connecting,
    /// TLS handshake in progress.
    Handshaking,
    /// Connected, without a request.
    Ready,
    /// Request sent or being sent, response incomplete.
    Waiting,
    /// Response complete, waiting for the server to close.
    Closing,
}

impl<'a> Http1<'a> {
    /// Creates the users of the workload that `share` assigns to the thread.
    pub(super) fn new(
        workload: &'a Workload,
        timeline: &'a Timeline,
        share: Share,
    ) -> io::Result<Http1<'a>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = Timer::new()?;
        epoll::add(
            &epoll,
            &timer,
            EventData::new_u64(TIMER),
            EventFlags::IN | EventFlags::ET,
        )?;
        let user = |number: usize| User {
            ends: workload.ends(number),
            phase: Phase::Vacant,
            link: None,
            pending: None,
            request: number % workload.paths.len(),
            sent: 0,
            response: Response::new(workload.method),
            connect_begun: 0,
            deadline: Nanos::MAX,
            resting: false,
            failed_connections: 0,
        };
        let due_times = match workload.pace {
            Pace::Open { rate } => Some(DueTimes::new(rate, share.thread, share.threads)),
            Pace::Closed { .. } => None,
        };
        Ok(Http1 {
            workload,
            timeline,
            tls: share.tls,
            epoll,
            timer,
            requests: workload
                .paths
                .iter()
                .map(|path| request(workload, path))
                .collect(),
            users: share.connections.map(user).collect(),
            idle: VecDeque::new(),
            resting: BinaryHeap::new(),
            due_times,
            turn: Vec::new(),
            busy: 0,
            buffer: vec![0; READ_BYTES],
            random: Random::new(share.thread),
            tally: Tally::new(workload),
            meter: Meter::default(),
        })
    }

    /// Runs the event loop until the run is over.
    pub(super) fn run(mut self) -> io::Result<Report> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        let mut sweep_at = 0;
        self.begin();
        loop {
            let now = self.timeline.now();
            self.meter.at(now, self.timeline);
            self.wake(now);
            self.send_due(now);
            if now >= sweep_at {
                self.give_up_late(now);
                sweep_at = now + SWEEP;
            }
            if self.timeline.stopped() || self.is_over(now) {
                break;
            }
            self.wait(&mut events)?;
            for event in &events {
                let Event { flags, data, .. } = *event;
                match data.u64() {
                    TIMER => self.timer.expired(),
                    user => self.event(user as usize, flags),
                }
            }
            self.take_turns();
        }
        Ok(Report {
            tally: self.tally,
            spent: self.meter.spent(),
            ended: self.timeline.now(),
        })
    }

    /// Starts all users: opens the connections if connections are kept, otherwise sends the first requests.
    fn begin(&mut self) {
        let now = self.timeline.now();
        for user in 0..self.users.len() {
            match self.workload.pace {
                // Users with pauses start at random times rather than all at once.
                Pace::Closed { pause: Some(pause) } => {
                    let pause = self.random.between(0.0, pause.longest_seconds);
                    self.rest(user, now + pause);
                }
                _ if self.workload.keep_alive => self.connect(user, now),
                _ => self.act(user, now),
            }
        }
    }

    fn is_over(&self, now: Nanos) -> bool {
        let nothing_due = self
            .due_times
            .as_ref()
            .is_none_or(|due_times| self.timeline.over(due_times.next()));
        self.busy == 0 && self.turn.is_empty() && nothing_due && self.timeline.over(now)
    }

    /// Waits for events, asleep in epoll.
    ///
    /// Over loopback the server pays for waking the generator, and for cache misses on the generator's
    /// sleeping processor. The generator sleeps three to four times as often as wrk, because wrk takes
    /// longer for each response and therefore finds the next response already waiting. lighttpd feels the
    /// effect most, by 2 to 7 % over plain HTTP. Polling instead of sleeping is no remedy. Polling for 6 µs
    /// moved lighttpd closer to its result under wrk over plain HTTP, but 4 % further away over TLS, and
    /// moved Apache 7 % past its result. Polling for 10 µs made Apache a quarter faster with 50
    /// connections, because Apache holds a connection ready for a request that follows at once.
    fn wait(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        events.clear();
        let now = self.timeline.now();
        let wake = self.next_wake();
        if wake <= now || !self.turn.is_empty() {
            return self.poll(events, 0);
        }
        if wake < now + SWEEP {
            self.timer.set(wake, now)?;
        }
        self.poll(events, SWEEP)
    }

    /// Returns the time of the next work that does not depend on an event.
    fn next_wake(&self) -> Nanos {
        let mark = self.meter.next_mark(self.timeline);
        let rested = self.resting.peek().map(|Reverse((at, _))| *at);
        let due = self
            .due_times
            .as_ref()
            .filter(|_| !self.idle.is_empty())
            .map(DueTimes::next);
        mark.into_iter()
            .chain(rested)
            .chain(due)
            .min()
            .unwrap_or(Nanos::MAX)
    }

    fn poll(&self, events: &mut Vec<Event>, timeout: Nanos) -> io::Result<()> {
        match epoll::wait(
            &self.epoll,
            spare_capacity(events),
            Some(&timespec(timeout)),
        ) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Wakes the users with an expired pause.
    fn wake(&mut self, now: Nanos) {
        while let Some(Reverse((at, user))) = self.resting.peek().copied() {
            if at > now {
                break;
            }
            self.resting.pop();
            self.users[user].resting = false;
            if self.users[user].phase == Phase::Closing {
                self.disconnect(user);
            }
            self.act(user, now);
        }
    }

    /// Sends the requests of an open loop that are due, as far as users are idle.
    fn send_due(&mut self, now: Nanos) {
        while let Some(due_times) = &mut self.due_times {
            let due = due_times.next();
            let late = due.saturating_add(nanos(self.workload.timeout_seconds)) <= now;
            if due > now || (self.idle.is_empty() && !late) {
                break;
            }
            due_times.advance();
            let Some(pending) = self.timeline.grant(due, now) else {
                self.due_times = None;
                break;
            };
            match self.idle.pop_front() {
                Some(user) => self.start(user, pending, now),
                None => {
                    let failure = Failure::new(
                        Failures::TIMEOUT,
                        "no connection was free within the timeout",
                    );
                    self.tally
                        .failure(self.timeline, Some(&pending), now, failure);
                }
            }
        }
    }

    /// Fails the users with an expired deadline.
    fn give_up_late(&mut self, now: Nanos) {
        for user in 0..self.users.len() {
            if self.users[user].deadline > now {
                continue;
            }
            let what = format!("timed out after {} s", self.workload.timeout_seconds);
            match self.users[user].phase {
                Phase::Vacant | Phase::Ready => self.users[user].deadline = Nanos::MAX,
                Phase::Connecting | Phase::Handshaking => {
                    self.fail(user, Failure::new(Failures::CONNECT, what), now)
                }
                Phase::Waiting => self.fail(user, Failure::new(Failures::TIMEOUT, what), now),
                Phase::Closing => self.closed(user, now),
            }
        }
    }

    fn event(&mut self, user: usize, flags: EventFlags) {
        let now = self.timeline.now();
        let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        if self.users[user].phase == Phase::Connecting {
            if broken && let Some(error) = self.socket_error(user) {
                return self.fail(user, Failure::new(Failures::CONNECT, error), now);
            }
            self.reached(user, now);
        } else if flags.contains(EventFlags::OUT) {
            self.push(user, now);
        }
        let ended = broken || flags.contains(EventFlags::RDHUP);
        if ended || flags.contains(EventFlags::IN) {
            self.pull(user, ended, now);
        }
    }

    fn socket_error(&self, user: usize) -> Option<io::Error> {
        let error = sockopt::socket_error(self.users[user].link.as_ref()?);
        error.ok()?.err().map(io::Error::from)
    }

    /// Lets a user continue: in a closed loop the user sends a request, in an open loop the user becomes
    /// idle.
    fn act(&mut self, user: usize, now: Nanos) {
        if self.due_times.is_some() {
            self.idle.push_back(user);
        } else if !matches!(self.workload.pace, Pace::Open { .. })
            && let Some(pending) = self.timeline.grant(now, now)
        {
            self.start(user, pending, now);
        }
    }

    /// Schedules the user's next request after a response or a failure, after the pause of the workload if any.
    fn schedule_next(&mut self, user: usize, now: Nanos) {
        match self.workload.pace {
            Pace::Closed { pause: Some(pause) } => {
                let (from, to) = (pause.shortest_seconds, pause.longest_seconds);
                let pause = self.random.between(from, to);
                self.rest(user, now + pause);
            }
            Pace::Closed { pause: None } => self.turn.push(user),
            Pace::Open { .. } => self.act(user, now),
        }
    }

    /// Sends the next requests of the users in the current batch.
    fn take_turns(&mut self) {
        if self.turn.is_empty() {
            return;
        }
        let now = self.timeline.now();
        let mut turn = std::mem::take(&mut self.turn);
        for user in turn.drain(..) {
            self.act(user, now);
        }
        // A user with an immediate failure is in the next batch.
        turn.append(&mut self.turn);
        self.turn = turn;
    }

    fn rest(&mut self, user: usize, until: Nanos) {
        self.users[user].resting = true;
        self.resting.push(Reverse((until, user)));
    }

    fn start(&mut self, user: usize, pending: PendingRequest, now: Nanos) {
        self.users[user].pending = Some(pending);
        self.busy += 1;
        if self.users[user].phase == Phase::Ready {
            self.send(user, now);
        } else {
            self.connect(user, now);
        }
    }

    fn connect(&mut self, user: usize, now: Nanos) {
        let Ends { server, local } = self.users[user].ends;
        let connecting = Link::connect(server, local, self.tls.as_ref()).and_then(|link| {
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            epoll::add(
                &self.epoll,
                link.as_fd(),
                EventData::new_u64(user as u64),
                flags,
            )?;
            Ok(link)
        });
        match connecting {
            Ok(link) => {
                let user = &mut self.users[user];
                user.link = Some(link);
                user.phase = Phase::Connecting;
                user.connect_begun = now;
                user.deadline = now + nanos(self.workload.timeout_seconds);
            }
            Err(error) => self.fail(user, Failure::new(Failures::CONNECT, error), now),
        }
    }

    /// Handles the end of the TCP handshake.
    fn reached(&mut self, user: usize, now: Nanos) {
        let Some(link) = &mut self.users[user].link else {
            return;
        };
        if link.is_handshaking() {
            self.users[user].phase = Phase::Handshaking;
            self.push(user, now);
        } else {
            self.connected(user, now);
        }
    }

    /// Handles the end of all handshakes.
    fn connected(&mut self, user: usize, now: Nanos) {
        let state = &mut self.users[user];
        let resumed = state.link.as_ref().and_then(Link::resumed);
        self.tally
            .connected(self.timeline, state.connect_begun, now, resumed);
        state.phase = Phase::Ready;
        state.deadline = Nanos::MAX;
        state.failed_connections = 0;
        if state.pending.is_some() {
            self.send(user, now);
        } else {
            self.act(user, now);
        }
    }

    fn send(&mut self, user: usize, now: Nanos) {
        let state = &mut self.users[user];
        state.response.reset();
        state.phase = Phase::Waiting;
        state.sent = 0;
        state.deadline = now + nanos(self.workload.timeout_seconds);
        self.push(user, now);
    }

    /// Sends the unsent rest of the request, or pending TLS records.
    fn push(&mut self, user: usize, now: Nanos) {
        let state = &mut self.users[user];
        let Some(link) = &mut state.link else { return };
        let request = &self.requests[state.request];
        let rest = if state.phase == Phase::Waiting {
            &request[state.sent..]
        } else {
            &[]
        };
        let pushed = if rest.is_empty() {
            link.flush().map(|()| 0)
        } else {
            link.send(rest)
        };
        match pushed {
            Ok(sent) => state.sent += sent,
            Err(error) => self.broken(user, &error, now),
        }
    }

    /// Reads all available bytes. `ended` is true if the server has closed the connection, in which case
    /// reading continues to the end of the stream.
    fn pull(&mut self, user: usize, ended: bool, now: Nanos) {
        loop {
            let state = &mut self.users[user];
            let Some(link) = &mut state.link else { return };
            let expected = self.workload.expect.body.as_deref();
            let waiting = state.phase == Phase::Waiting;
            let (mut bytes, mut excess, mut fault) = (0, false, None);
            let received = link.receive(&mut self.buffer, |piece| {
                bytes += piece.len();
                if !waiting || fault.is_some() {
                    excess = true;
                    return;
                }
                match state.response.feed(piece, expected) {
                    Ok(used) => excess |= used < piece.len(),
                    Err(malformed) => fault = Some(malformed),
                }
            });
            self.tally.received(self.timeline, now, bytes);
            let received = match received {
                Ok(received) => received,
                Err(error) => return self.broken(user, &error, now),
            };
            let ended = ended || received.end.is_some();
            if state.phase == Phase::Handshaking && !link.is_handshaking() {
                self.connected(user, now);
            } else if let Some(malformed) = fault {
                return self.fail(user, Failure::new(Failures::PROTOCOL, malformed), now);
            } else if waiting && state.response.is_complete() {
                return self.finish(user, excess, ended, now);
            } else if excess {
                return self.unasked(user, now);
            }
            if let Some(end) = received.end {
                return self.ended(user, end, now);
            }
            if !received.more && !ended {
                return;
            }
        }
    }

    /// Handles a complete response.
    fn finish(&mut self, user: usize, excess: bool, ended: bool, now: Nanos) {
        let state = &mut self.users[user];
        let Some(pending) = state.pending.take() else {
            return;
        };
        self.busy -= 1;
        state.deadline = Nanos::MAX;
        state.request = (state.request + 1) % self.requests.len();
        let response = &state.response;
        let summary = ResponseSummary {
            status: response.status,
            length: response.length,
            differs: response.differs,
        };
        let verdict = if excess {
            Err(Failure::new(Failures::PROTOCOL, EXCESS_BYTES))
        } else {
            summary.judge(&self.workload.expect)
        };
        self.tally.response(self.timeline, &pending, now, verdict);
        if excess || ended {
            self.disconnect(user);
            self.schedule_next(user, now);
        } else if self.workload.keep_alive && state.response.keep_alive {
            state.phase = Phase::Ready;
            self.schedule_next(user, now);
        } else {
            // The client waits for the server to close first, so that the TIME-WAIT state is on the
            // server's side. Otherwise the client would soon run out of ports.
            state.phase = Phase::Closing;
            state.deadline = now + CLOSE.min(nanos(self.workload.timeout_seconds));
            if let Pace::Closed { pause: Some(_) } = self.workload.pace {
                self.schedule_next(user, now);
            }
        }
    }

    /// Handles bytes received without a request.
    fn unasked(&mut self, user: usize, now: Nanos) {
        match self.users[user].phase {
            // The preceding response is already counted as correct. The excess counts as an additional
            // failure.
            Phase::Ready | Phase::Closing => {
                let failure = Failure::new(Failures::PROTOCOL, EXCESS_BYTES);
                self.tally.failure(self.timeline, None, now, failure);
                self.closed(user, now);
            }
            _ => {}
        }
    }

    /// Handles the end of the stream.
    fn ended(&mut self, user: usize, end: End, now: Nanos) {
        let state = &mut self.users[user];
        match state.phase {
            Phase::Connecting | Phase::Handshaking => {
                let what = "the server closed during the handshake";
                self.fail(user, Failure::new(Failures::CONNECT, what), now);
            }
            Phase::Waiting if state.response.end(end == End::Clean) => {
                self.finish(user, false, true, now)
            }
            Phase::Waiting => {
                let (kind, what) = if state.response.has_head() {
                    (Failures::LENGTH, "the server closed within the content")
                } else if state.response.has_begun() {
                    (
                        Failures::CLOSED,
                        "the server closed within the header section",
                    )
                } else {
                    (Failures::CLOSED, "the server closed without a response")
                };
                self.fail(user, Failure::new(kind, what), now);
            }
            Phase::Vacant | Phase::Ready | Phase::Closing => self.closed(user, now),
        }
    }

    /// Handles an I/O error or TLS error of the connection.
    fn broken(&mut self, user: usize, error: &io::Error, now: Nanos) {
        let kind = match self.users[user].phase {
            Phase::Connecting | Phase::Handshaking => Failures::CONNECT,
            // An error of TLS has no OS error number.
            Phase::Waiting if error.raw_os_error().is_none() => Failures::PROTOCOL,
            Phase::Waiting if self.users[user].response.has_head() => Failures::LENGTH,
            Phase::Waiting => Failures::CLOSED,
            Phase::Vacant | Phase::Ready | Phase::Closing => return self.closed(user, now),
        };
        self.fail(user, Failure::new(kind, error), now);
    }

    /// Handles the end of a connection without a request.
    fn closed(&mut self, user: usize, now: Nanos) {
        let was = self.users[user].phase;
        self.disconnect(user);
        // A user in phase `Ready` is idle or resting, and continues from there.
        if was == Phase::Closing && !self.users[user].resting {
            self.schedule_next(user, now);
        }
    }

    /// Records the failure of the user's request, or of a connection opened in advance.
    fn fail(&mut self, user: usize, failure: Failure, now: Nanos) {
        let state = &mut self.users[user];
        let pending = state.pending.take();
        self.busy -= usize::from(pending.is_some());
        let unconnected = failure.kind == Failures::CONNECT;
        self.tally
            .failure(self.timeline, pending.as_ref(), now, failure);
        self.disconnect(user);
        if unconnected {
            let state = &mut self.users[user];
            let pause = RECONNECT << state.failed_connections.min(RECONNECT_DOUBLINGS);
            state.failed_connections += 1;
            self.rest(user, now + pause);
        } else {
            self.schedule_next(user, now);
        }
    }

    fn disconnect(&mut self, user: usize) {
        let user = &mut self.users[user];
        user.link = None;
        user.phase = Phase::Vacant;
        user.deadline = Nanos::MAX;
    }
}

/// Formats the request for `path`, sent unchanged every time. Fields that wrk doesn't send are left out:
/// one additional field (`Accept-Encoding: identity`) cost lighttpd 1 to 2 % of its requests per second.
fn request(workload: &Workload, path: &str) -> Vec<u8> {
    let method = match workload.method {
        Method::Get => "GET",
        Method::Head => "HEAD",
    };
    let close = if workload.keep_alive {
        ""
    } else {
        "Connection: close\r\n"
    };
    let host = &workload.host;
    format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{close}\r\n").into_bytes()
}

/// Number of the timer among the epoll events. All other numbers are users.
const TIMER: u64 = u64::MAX;

/// Maximum number of events taken by one epoll_wait.
const EVENTS: usize = 512;

/// Bytes per read: four TLS records, and within the processor's L2 cache.
const READ_BYTES: usize = 64 * 1024;

/// Interval at which deadlines are checked.
const SWEEP: Nanos = 100_000_000;

/// Time that a server has to close the connection before the client closes.
const CLOSE: Nanos = 1_000_000_000;

/// Pause after a failed connection, doubled up to `RECONNECT_DOUBLINGS` times.
const RECONNECT: Nanos = 10_000_000;
const RECONNECT_DOUBLINGS: u32 = 4;

pub(super) const EXCESS_BYTES: &str = "the server sent bytes after the end of the response";
