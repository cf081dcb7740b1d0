//! One thread of HTTP/1.1 users: an event loop over non-blocking sockets with reused buffers, so lean
//! that the server is the limit and not we.
//!
//! Sockets are watched edge-triggered and for good: in the common case a request costs one write, one
//! read and a part of an epoll_wait.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt;

use super::alarm::{Alarm, timespec};
use super::course::{Asked, Course, Dues, Nanos, nanos};
use super::link::{End, Link, TlsStart};
use super::meter::Meter;
use super::plan::{Method, Pace, Plan};
use super::random::Random;
use super::response::Response;
use super::tally::{Failure, Seen, Tally};
use super::{Report, Share};
use crate::result::Failures;

/// The users of one thread.
pub(super) struct Http1<'a> {
    plan: &'a Plan,
    course: &'a Course,
    tls: Option<TlsStart>,
    epoll: OwnedFd,
    alarm: Alarm,
    requests: Vec<Vec<u8>>,
    users: Vec<User>,
    /// In an open loop, users without a request, the longest idle first.
    idle: VecDeque<usize>,
    /// Users that do something at a time: end a pause, or try to connect again.
    resting: BinaryHeap<Reverse<(Nanos, usize)>>,
    dues: Option<Dues>,
    /// In a closed loop without pauses, users whose response came among the events at hand: all are
    /// read before the next requests are sent.
    turn: Vec<usize>,
    /// Users with a request.
    busy: usize,
    buffer: Vec<u8>,
    random: Random,
    tally: Tally,
    meter: Meter,
}

/// One connection and who uses it.
struct User {
    address: SocketAddr,
    phase: Phase,
    link: Option<Link>,
    asked: Option<Asked>,
    /// The request it sends next, or is sending.
    request: usize,
    /// Bytes of it that were sent.
    sent: usize,
    response: Response,
    connect_begun: Nanos,
    /// When it gives up what it waits for.
    deadline: Nanos,
    resting: bool,
    /// Connections that failed in a row.
    strikes: u32,
}

/// What a user's connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// There is none.
    Vacant,
    /// TCP's handshake.
    Connecting,
    /// TLS's handshake.
    Handshaking,
    /// It stands and nothing was asked.
    Ready,
    /// Something was asked.
    Waiting,
    /// The response came and the server is to close.
    Closing,
}

impl<'a> Http1<'a> {
    /// The share of the plan's users that falls to a thread.
    pub(super) fn new(plan: &'a Plan, course: &'a Course, share: Share) -> io::Result<Http1<'a>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let alarm = Alarm::new()?;
        epoll::add(
            &epoll,
            &alarm,
            EventData::new_u64(ALARM),
            EventFlags::IN | EventFlags::ET,
        )?;
        let user = |number: usize| User {
            address: plan.addresses[number % plan.addresses.len()],
            phase: Phase::Vacant,
            link: None,
            asked: None,
            request: number % plan.paths.len(),
            sent: 0,
            response: Response::new(plan.method),
            connect_begun: 0,
            deadline: Nanos::MAX,
            resting: false,
            strikes: 0,
        };
        let dues = match plan.pace {
            Pace::Open { rate } => Some(Dues::new(rate, share.thread, share.threads)),
            Pace::Closed { .. } => None,
        };
        Ok(Http1 {
            plan,
            course,
            tls: share.tls,
            epoll,
            alarm,
            requests: plan.paths.iter().map(|path| request(plan, path)).collect(),
            users: share.connections.map(user).collect(),
            idle: VecDeque::new(),
            resting: BinaryHeap::new(),
            dues,
            turn: Vec::new(),
            busy: 0,
            buffer: vec![0; READ_BYTES],
            random: Random::new(share.thread),
            tally: Tally::new(plan),
            meter: Meter::default(),
        })
    }

    /// Runs the course.
    pub(super) fn run(mut self) -> io::Result<Report> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        let mut sweep_at = 0;
        self.begin();
        loop {
            let now = self.course.now();
            self.meter.at(now, self.course);
            self.wake(now);
            self.send_due(now);
            if now >= sweep_at {
                self.give_up_late(now);
                sweep_at = now + SWEEP;
            }
            if self.course.stopped() || self.is_over(now) {
                break;
            }
            self.wait(&mut events)?;
            for event in &events {
                let Event { flags, data, .. } = *event;
                match data.u64() {
                    ALARM => self.alarm.rang(),
                    user => self.event(user as usize, flags),
                }
            }
            self.take_turns();
        }
        Ok(Report {
            tally: self.tally,
            spent: self.meter.spent(),
            ended: self.course.now(),
        })
    }

    /// What users do first: with kept connections, connect.
    fn begin(&mut self) {
        let now = self.course.now();
        for user in 0..self.users.len() {
            match self.plan.pace {
                // They don't all come at the same moment.
                Pace::Closed {
                    pause: Some((_, longest)),
                } => {
                    let pause = self.random.between((0.0, longest));
                    self.rest(user, now + pause);
                }
                _ if self.plan.keep_alive => self.connect(user, now),
                _ => self.act(user, now),
            }
        }
    }

    fn is_over(&self, now: Nanos) -> bool {
        let nothing_due = self
            .dues
            .as_ref()
            .is_none_or(|dues| self.course.over(dues.next()));
        self.busy == 0 && self.turn.is_empty() && nothing_due && self.course.over(now)
    }

    /// Waits for something to happen, asleep.
    ///
    /// Over loopback the server pays for waking us, and for reaching into the cache of a processor that
    /// sleeps. We sleep three to four times as often as wrk, which takes longer for each response and so
    /// finds the next one there; lighttpd feels it most, by 2 to 7 % over plain HTTP. Staying awake is no
    /// remedy: looking for the next response for 6 µs brought lighttpd nearer to what wrk sees over plain
    /// HTTP, and 4 % farther over TLS and Apache 7 % beyond it; 10 µs made Apache, which keeps a
    /// connection at hand whose next request comes at once, a quarter faster (50 connections).
    fn wait(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        events.clear();
        let now = self.course.now();
        let wake = self.next_wake();
        if wake <= now || !self.turn.is_empty() {
            return self.poll(events, 0);
        }
        if wake < now + SWEEP {
            self.alarm.set(wake, now)?;
        }
        self.poll(events, SWEEP)
    }

    /// When there is something to do even if nothing comes.
    fn next_wake(&self) -> Nanos {
        let mark = self.meter.next_mark(self.course);
        let rested = self.resting.peek().map(|Reverse((at, _))| *at);
        let due = self
            .dues
            .as_ref()
            .filter(|_| !self.idle.is_empty())
            .map(Dues::next);
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

    /// Ends the pauses that are over.
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

    /// In an open loop, sends what is due as far as there are free users.
    fn send_due(&mut self, now: Nanos) {
        while let Some(dues) = &mut self.dues {
            let due = dues.next();
            let late = due.saturating_add(nanos(self.plan.timeout_seconds)) <= now;
            if due > now || (self.idle.is_empty() && !late) {
                break;
            }
            dues.advance();
            let Some(asked) = self.course.ask(due, now) else {
                self.dues = None;
                break;
            };
            match self.idle.pop_front() {
                Some(user) => self.start(user, asked, now),
                None => {
                    let failure = Failure::new(Failures::TIMEOUT, "no connection was free in time");
                    self.tally.failure(self.course, Some(&asked), now, failure);
                }
            }
        }
    }

    /// Gives up what has taken too long.
    fn give_up_late(&mut self, now: Nanos) {
        for user in 0..self.users.len() {
            if self.users[user].deadline > now {
                continue;
            }
            let what = format!("nothing for {} s", self.plan.timeout_seconds);
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
        let now = self.course.now();
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

    /// Lets a user do what it does next: in a closed loop ask, in an open one wait to be sent.
    fn act(&mut self, user: usize, now: Nanos) {
        if self.dues.is_some() {
            self.idle.push_back(user);
        } else if !matches!(self.plan.pace, Pace::Open { .. })
            && let Some(asked) = self.course.ask(now, now)
        {
            self.start(user, asked, now);
        }
    }

    /// The user has had its response, or failed: it asks again, after a pause if there is one.
    fn act_again(&mut self, user: usize, now: Nanos) {
        match self.plan.pace {
            Pace::Closed { pause: Some(pause) } => {
                let pause = self.random.between(pause);
                self.rest(user, now + pause);
            }
            Pace::Closed { pause: None } => self.turn.push(user),
            Pace::Open { .. } => self.act(user, now),
        }
    }

    /// Lets the users ask whose responses came.
    fn take_turns(&mut self) {
        if self.turn.is_empty() {
            return;
        }
        let now = self.course.now();
        let mut turn = std::mem::take(&mut self.turn);
        for user in turn.drain(..) {
            self.act(user, now);
        }
        // Who failed at once has its turn again.
        turn.append(&mut self.turn);
        self.turn = turn;
    }

    fn rest(&mut self, user: usize, until: Nanos) {
        self.users[user].resting = true;
        self.resting.push(Reverse((until, user)));
    }

    fn start(&mut self, user: usize, asked: Asked, now: Nanos) {
        self.users[user].asked = Some(asked);
        self.busy += 1;
        if self.users[user].phase == Phase::Ready {
            self.send(user, now);
        } else {
            self.connect(user, now);
        }
    }

    fn connect(&mut self, user: usize, now: Nanos) {
        let connecting =
            Link::connect(self.users[user].address, self.tls.as_ref()).and_then(|link| {
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
                user.deadline = now + nanos(self.plan.timeout_seconds);
            }
            Err(error) => self.fail(user, Failure::new(Failures::CONNECT, error), now),
        }
    }

    /// TCP's handshake is done.
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

    /// All handshakes are done.
    fn connected(&mut self, user: usize, now: Nanos) {
        let state = &mut self.users[user];
        let resumed = state.link.as_ref().and_then(Link::resumed);
        self.tally
            .connected(self.course, state.connect_begun, now, resumed);
        state.phase = Phase::Ready;
        state.deadline = Nanos::MAX;
        state.strikes = 0;
        if state.asked.is_some() {
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
        state.deadline = now + nanos(self.plan.timeout_seconds);
        self.push(user, now);
    }

    /// Sends what is to be sent.
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

    /// Reads what there is. `ended`: the server has closed, so that there is an end to be read.
    fn pull(&mut self, user: usize, ended: bool, now: Nanos) {
        loop {
            let state = &mut self.users[user];
            let Some(link) = &mut state.link else { return };
            let expected = self.plan.expect.body.as_deref();
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
            self.tally.received(self.course, now, bytes);
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

    /// The response is whole.
    fn finish(&mut self, user: usize, excess: bool, ended: bool, now: Nanos) {
        let state = &mut self.users[user];
        let Some(asked) = state.asked.take() else {
            return;
        };
        self.busy -= 1;
        state.deadline = Nanos::MAX;
        state.request = (state.request + 1) % self.requests.len();
        let response = &state.response;
        let seen = Seen {
            status: response.status,
            length: response.length,
            differs: response.differs,
        };
        let verdict = match excess {
            true => Err(Failure::new(Failures::PROTOCOL, MORE_THAN_ASKED)),
            false => seen.judge(&self.plan.expect),
        };
        self.tally.response(self.course, &asked, now, verdict);
        if excess || ended {
            self.disconnect(user);
            self.act_again(user, now);
        } else if self.plan.keep_alive && state.response.keep_alive {
            state.phase = Phase::Ready;
            self.act_again(user, now);
        } else {
            // The server closes, and so gets the TIME-WAIT: else we would soon be out of ports.
            state.phase = Phase::Closing;
            state.deadline = now + CLOSE.min(nanos(self.plan.timeout_seconds));
            if let Pace::Closed { pause: Some(_) } = self.plan.pace {
                self.act_again(user, now);
            }
        }
    }

    /// Something came that nobody asked for.
    fn unasked(&mut self, user: usize, now: Nanos) {
        match self.users[user].phase {
            // The response before was counted as right, so this is one more.
            Phase::Ready | Phase::Closing => {
                let failure = Failure::new(Failures::PROTOCOL, MORE_THAN_ASKED);
                self.tally.failure(self.course, None, now, failure);
                self.closed(user, now);
            }
            _ => {}
        }
    }

    /// The server closed.
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
                    (
                        Failures::LENGTH,
                        "the server closed in the midst of the content",
                    )
                } else if state.response.has_begun() {
                    (
                        Failures::CLOSED,
                        "the server closed in the midst of a response",
                    )
                } else {
                    (Failures::CLOSED, "the server closed without a response")
                };
                self.fail(user, Failure::new(kind, what), now);
            }
            Phase::Vacant | Phase::Ready | Phase::Closing => self.closed(user, now),
        }
    }

    /// The connection broke.
    fn broken(&mut self, user: usize, error: &io::Error, now: Nanos) {
        let kind = match self.users[user].phase {
            Phase::Connecting | Phase::Handshaking => Failures::CONNECT,
            // What TLS refuses carries no number of the system's.
            Phase::Waiting if error.raw_os_error().is_none() => Failures::PROTOCOL,
            Phase::Waiting if self.users[user].response.has_head() => Failures::LENGTH,
            Phase::Waiting => Failures::CLOSED,
            Phase::Vacant | Phase::Ready | Phase::Closing => return self.closed(user, now),
        };
        self.fail(user, Failure::new(kind, error), now);
    }

    /// A connection without a request has ended.
    fn closed(&mut self, user: usize, now: Nanos) {
        let was = self.users[user].phase;
        self.disconnect(user);
        // Who was ready is among the idle, or rests.
        if was == Phase::Closing && !self.users[user].resting {
            self.act_again(user, now);
        }
    }

    /// The user's request, or its connection in advance, came to nothing.
    fn fail(&mut self, user: usize, failure: Failure, now: Nanos) {
        let state = &mut self.users[user];
        let asked = state.asked.take();
        self.busy -= usize::from(asked.is_some());
        let unconnected = failure.kind == Failures::CONNECT;
        self.tally
            .failure(self.course, asked.as_ref(), now, failure);
        self.disconnect(user);
        if unconnected {
            let state = &mut self.users[user];
            let pause = RECONNECT << state.strikes.min(RECONNECT_DOUBLINGS);
            state.strikes += 1;
            self.rest(user, now + pause);
        } else {
            self.act_again(user, now);
        }
    }

    fn disconnect(&mut self, user: usize) {
        let user = &mut self.users[user];
        user.link = None;
        user.phase = Phase::Vacant;
        user.deadline = Nanos::MAX;
    }
}

/// The request for `path` as it is sent every time. What wrk doesn't send isn't sent either: one more
/// field (`Accept-Encoding: identity`) cost lighttpd 1 to 2 % of its requests a second.
fn request(plan: &Plan, path: &str) -> Vec<u8> {
    let method = match plan.method {
        Method::Get => "GET",
        Method::Head => "HEAD",
    };
    let close = if plan.keep_alive {
        ""
    } else {
        "Connection: close\r\n"
    };
    let host = &plan.host;
    format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{close}\r\n").into_bytes()
}

/// The alarm among the events, whose other numbers are users.
const ALARM: u64 = u64::MAX;

/// Events taken at once.
const EVENTS: usize = 512;

/// Bytes read at once: four TLS records, and within the processor's second cache.
const READ_BYTES: usize = 64 * 1024;

/// How often it is looked for what has taken too long.
const SWEEP: Nanos = 100_000_000;

/// How long a server that is to close may take before we do.
const CLOSE: Nanos = 1_000_000_000;

/// Pause after a connection that failed, doubled as often as said below.
const RECONNECT: Nanos = 10_000_000;
const RECONNECT_DOUBLINGS: u32 = 4;

pub(super) const MORE_THAN_ASKED: &str = "more came than the response to what was asked";
