//! One thread of users over a protocol whose connections carry many requests at once.
//!
//! The protocol itself is a [`Dial`]; here is what HTTP/2 and HTTP/3 have in common: who asks when, over
//! which connection, and what is counted.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{Method as HttpMethod, Request, Version};
use tokio::io::unix::AsyncFd;
use tokio::runtime;
use tokio::sync::{Mutex, Notify};
use tokio::task::{JoinSet, LocalSet, spawn_local};
use tokio::time::{sleep_until, timeout};

use super::alarm::Alarm;
use super::course::{Asked, Course, Dues, Nanos, nanos};
use super::meter::Meter;
use super::plan::{Method, Pace, Plan, Protocol};
use super::random::Random;
use super::tally::{Failure, Seen, Tally};
use super::{Report, Share};
use crate::result::Failures;

/// A protocol that connections can be made with.
pub(super) trait Dial: 'static {
    /// A connection that stands.
    type Sender: Ask;

    /// Makes a connection, with all handshakes.
    fn dial(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = Result<Dialled<Self::Sender>, Failure>>;

    /// Does what is left to do when the connections are over.
    fn leave(&self) -> impl Future<Output = ()> {
        std::future::ready(())
    }
}

/// A connection that was made.
pub(super) struct Dialled<S> {
    pub sender: S,
    /// Whether TLS took up an earlier session; `None` without TLS.
    pub resumed: Option<bool>,
}

/// A connection that can be asked. Its clones are the same connection, which ends with the last.
pub(super) trait Ask: Clone + 'static {
    /// Asks, and reads the response to its end. Content is compared with `expected`, if that is given.
    fn ask(
        self,
        request: Request<()>,
        expected: Option<&[u8]>,
    ) -> impl Future<Output = Result<Seen, Trouble>>;
}

/// Why there is no response.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The server hasn't begun with the request and wants another connection for it.
    Untouched,
    /// This request failed; the connection still stands.
    Request(Failure),
    /// The connection is of no more use.
    Connection(Failure),
}

impl Trouble {
    /// The same after the head has come: what breaks off then was cut off.
    pub(super) fn in_content(self) -> Trouble {
        let cut_off = |mut failure: Failure| {
            if failure.kind == Failures::CLOSED {
                failure.kind = Failures::LENGTH;
            }
            failure
        };
        match self {
            Trouble::Untouched => Trouble::Untouched,
            Trouble::Request(failure) => Trouble::Request(cut_off(failure)),
            Trouble::Connection(failure) => Trouble::Connection(cut_off(failure)),
        }
    }
}

/// Bytes that come on all connections of a thread.
pub(super) struct Received {
    course: Arc<Course>,
    bytes: Cell<u64>,
}

impl Received {
    pub(super) fn new(course: &Arc<Course>) -> Rc<Received> {
        Rc::new(Received {
            course: Arc::clone(course),
            bytes: Cell::new(0),
        })
    }

    /// So many more.
    pub(super) fn add(&self, bytes: usize) {
        if bytes > 0 && self.course.counts_bytes(self.course.now()) {
            self.bytes.set(self.bytes.get() + bytes as u64);
        }
    }
}

/// Runs the course for a thread's share of the users. `dial` is made on the runtime.
pub(super) fn run<D: Dial>(
    plan: &Arc<Plan>,
    course: &Arc<Course>,
    share: &Share,
    received: &Rc<Received>,
    dial: impl FnOnce() -> io::Result<D>,
) -> io::Result<Report> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = LocalSet::new();
    let done = local.block_on(&runtime, async {
        let mut meter = Meter::default();
        let users = Rc::new(Users::new(plan, course, share, dial()?));
        let mut running = users.start(share)?;
        users.attend(&mut running, &mut meter).await;
        let (ended, spent) = (course.now(), meter.spent());
        running.shutdown().await;
        users.dial.leave().await;
        Ok(Report {
            tally: users.tally.replace(Tally::new(plan)),
            spent,
            ended,
        })
    });
    done.map(|mut report: Report| {
        report.tally.bytes += received.bytes.get();
        report
    })
}

/// The users of one thread.
struct Users<D: Dial> {
    plan: Arc<Plan>,
    course: Arc<Course>,
    dial: D,
    requests: Vec<Request<()>>,
    dues: RefCell<Option<Dues>>,
    /// Told for each request that falls due.
    due: Notify,
    random: RefCell<Random>,
    tally: RefCell<Tally>,
}

/// A connection, as often as it has to be made, and the users who share it.
struct Line<S> {
    address: SocketAddr,
    /// The connection, and how many were made.
    sender: RefCell<(Option<S>, u64)>,
    /// Held by who makes the connection.
    dialling: Mutex<()>,
    /// Connections that failed in a row.
    strikes: Cell<u32>,
}

impl<S> Line<S> {
    /// The connection of this number is of no more use.
    fn forget(&self, number: u64) {
        let mut sender = self.sender.borrow_mut();
        if sender.1 == number {
            sender.0 = None;
        }
    }
}

/// What an open loop has for a user without a request.
enum Turn {
    Ask(Asked),
    Wait,
    Over,
}

impl<D: Dial> Users<D> {
    fn new(plan: &Arc<Plan>, course: &Arc<Course>, share: &Share, dial: D) -> Users<D> {
        let dues = match plan.pace {
            Pace::Open { rate } => Some(Dues::new(rate, share.thread, share.threads)),
            Pace::Closed { .. } => None,
        };
        Users {
            plan: Arc::clone(plan),
            course: Arc::clone(course),
            dial,
            requests: plan.paths.iter().map(|path| request(plan, path)).collect(),
            dues: RefCell::new(dues),
            due: Notify::new(),
            random: RefCell::new(Random::new(share.thread)),
            tally: RefCell::new(Tally::new(plan)),
        }
    }

    /// Sets all users to work, and the clock of an open loop.
    fn start(self: &Rc<Self>, share: &Share) -> io::Result<JoinSet<()>> {
        let mut running = JoinSet::new();
        let streams = if self.plan.keep_alive {
            self.plan.streams
        } else {
            1
        };
        for number in share.connections.clone() {
            let line = Rc::new(Line {
                address: self.plan.addresses[number % self.plan.addresses.len()],
                sender: RefCell::new((None, 0)),
                dialling: Mutex::new(()),
                strikes: Cell::new(0),
            });
            for stream in 0..streams {
                running.spawn_local(Rc::clone(self).user(Rc::clone(&line), number + stream));
            }
        }
        if let Some(dues) = self.dues.borrow().clone() {
            spawn_local(Rc::clone(self).tell_dues(dues, alarm()?));
        }
        Ok(running)
    }

    /// Waits until all users are done, or shall be.
    async fn attend(&self, running: &mut JoinSet<()>, meter: &mut Meter) {
        loop {
            let now = self.course.now();
            meter.at(now, &self.course);
            if self.course.stopped() {
                return;
            }
            let look = now + LOOK;
            let mark = meter
                .next_mark(&self.course)
                .map_or(look, |mark| mark.min(look));
            tokio::select! {
                user = running.join_next() => match user {
                    None => return,
                    Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    Some(_) => {}
                },
                () = self.sleep_until(mark) => {}
            }
        }
    }

    async fn sleep_until(&self, at: Nanos) {
        sleep_until(self.course.instant(at).into()).await;
    }

    /// What one user does.
    async fn user(self: Rc<Self>, line: Rc<Line<D::Sender>>, number: usize) {
        let mut request = number % self.requests.len();
        self.prepare(&line).await;
        while let Some(asked) = self.next().await {
            let fetched = self.fetch(&line, &self.requests[request]).await;
            request = (request + 1) % self.requests.len();
            let now = self.course.now();
            let unconnected = matches!(&fetched, Err(failure) if failure.kind == Failures::CONNECT);
            let verdict = fetched.and_then(|seen| seen.judge(&self.plan.expect));
            self.tally
                .borrow_mut()
                .response(&self.course, &asked, now, verdict);
            if unconnected {
                self.back_off(&line).await;
            } else {
                self.pause(0.0).await;
            }
        }
    }

    /// Before the first request: kept connections are made in advance, and users with pauses don't come
    /// all at the same moment.
    async fn prepare(&self, line: &Line<D::Sender>) {
        if matches!(self.plan.pace, Pace::Closed { pause: Some(_) }) {
            return self.pause(1.0).await;
        }
        while self.plan.keep_alive && !self.course.over(self.course.now()) {
            match self.sender(line).await {
                Ok(_) => return,
                Err(failure) => {
                    let now = self.course.now();
                    self.tally
                        .borrow_mut()
                        .failure(&self.course, None, now, failure);
                    self.back_off(line).await;
                }
            }
        }
    }

    /// The pause between two requests, if there is one, but not beyond the end. The first is `earlier`
    /// (of 1) than the others.
    async fn pause(&self, earlier: f64) {
        if let Pace::Closed {
            pause: Some((from, to)),
        } = self.plan.pace
        {
            let pause = self
                .random
                .borrow_mut()
                .between((from * (1.0 - earlier), to));
            let until = self.course.now() + pause;
            self.sleep_until(self.course.end().map_or(until, |end| until.min(end)))
                .await;
        }
    }

    async fn back_off(&self, line: &Line<D::Sender>) {
        let strikes = line.strikes.replace(line.strikes.get() + 1);
        tokio::time::sleep(RECONNECT * 2u32.pow(strikes.min(RECONNECT_DOUBLINGS))).await;
    }

    /// The user's next request; `None` when the run is over.
    async fn next(&self) -> Option<Asked> {
        if !matches!(self.plan.pace, Pace::Open { .. }) {
            let now = self.course.now();
            return self.course.ask(now, now);
        }
        loop {
            let now = self.course.now();
            match self.turn(now) {
                Turn::Over => return None,
                Turn::Wait => self.due.notified().await,
                Turn::Ask(asked)
                    if asked.due.saturating_add(nanos(self.plan.timeout_seconds)) <= now =>
                {
                    let failure = Failure::new(Failures::TIMEOUT, "no stream was free in time");
                    self.tally
                        .borrow_mut()
                        .failure(&self.course, Some(&asked), now, failure);
                }
                Turn::Ask(asked) => return Some(asked),
            }
        }
    }

    fn turn(&self, now: Nanos) -> Turn {
        let mut dues = self.dues.borrow_mut();
        let Some(dues) = dues.as_mut() else {
            return Turn::Over;
        };
        let due = dues.next();
        if self.course.over(due) {
            return Turn::Over;
        }
        if due > now {
            return Turn::Wait;
        }
        dues.advance();
        self.course.ask(due, now).map_or(Turn::Over, Turn::Ask)
    }

    /// The clock of an open loop: wakes a waiting user for each request that falls due.
    async fn tell_dues(self: Rc<Self>, mut dues: Dues, mut alarm: AsyncFd<Alarm>) {
        while !self.course.over(dues.next()) {
            let now = self.course.now();
            if dues.next() <= now {
                self.due.notify_one();
                dues.advance();
                continue;
            }
            if alarm.get_mut().set(dues.next(), now).is_err() {
                break;
            }
            if let Ok(mut ready) = alarm.readable().await {
                ready.clear_ready();
            }
            alarm.get_mut().rang();
        }
        self.due.notify_waiters();
    }

    /// The connection, which is made if there is none.
    async fn sender(&self, line: &Line<D::Sender>) -> Result<(D::Sender, u64), Failure> {
        let standing = || {
            let sender = line.sender.borrow();
            sender.0.clone().map(|standing| (standing, sender.1))
        };
        if let Some(standing) = standing() {
            return Ok(standing);
        }
        let _dialling = line.dialling.lock().await;
        // Somebody else may have made it meanwhile.
        if let Some(standing) = standing() {
            return Ok(standing);
        }
        let begun = self.course.now();
        let dialled = timeout(self.timeout(), self.dial.dial(line.address))
            .await
            .unwrap_or_else(|_| Err(Failure::new(Failures::CONNECT, self.nothing_came())))?;
        line.strikes.set(0);
        self.tally
            .borrow_mut()
            .connected(&self.course, begun, self.course.now(), dialled.resumed);
        let mut sender = line.sender.borrow_mut();
        sender.1 += 1;
        sender.0 = Some(dialled.sender.clone());
        Ok((dialled.sender, sender.1))
    }

    /// Asks until there is a response or a reason why not.
    async fn fetch(&self, line: &Line<D::Sender>, request: &Request<()>) -> Result<Seen, Failure> {
        for _ in 0..TRIES {
            let (sender, number) = self.sender(line).await?;
            let expected = self.plan.expect.body.as_deref();
            let answer = timeout(self.timeout(), sender.ask(request.clone(), expected)).await;
            if !self.plan.keep_alive {
                line.forget(number);
            }
            match answer {
                Ok(Ok(seen)) => return Ok(seen),
                Ok(Err(Trouble::Request(failure))) => return Err(failure),
                Ok(Err(Trouble::Connection(failure))) => {
                    line.forget(number);
                    return Err(failure);
                }
                Ok(Err(Trouble::Untouched)) => line.forget(number),
                Err(_) => return Err(Failure::new(Failures::TIMEOUT, self.nothing_came())),
            }
        }
        Err(Failure::new(
            Failures::CLOSED,
            "the server refuses request after request",
        ))
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs_f64(self.plan.timeout_seconds)
    }

    fn nothing_came(&self) -> String {
        format!("nothing for {} s", self.plan.timeout_seconds)
    }
}

/// The request for `path` as it is sent every time.
fn request(plan: &Plan, path: &str) -> Request<()> {
    let scheme = if plan.tls.is_some() { "https" } else { "http" };
    let mut request = Request::new(());
    *request.method_mut() = match plan.method {
        Method::Get => HttpMethod::GET,
        Method::Head => HttpMethod::HEAD,
    };
    // What isn't a URI was refused with the plan.
    *request.uri_mut() = format!("{scheme}://{}{path}", plan.host)
        .parse()
        .unwrap_or_default();
    *request.version_mut() = match plan.protocol {
        Protocol::Http3 => Version::HTTP_3,
        Protocol::Http1 | Protocol::Http2 => Version::HTTP_2,
    };
    request
}

/// An alarm that a task can wait for.
#[allow(
    deprecated,
    reason = "an alarm owns its descriptor, as the function that replaces this demands by `unsafe`"
)]
fn alarm() -> io::Result<AsyncFd<Alarm>> {
    AsyncFd::new(Alarm::new()?)
}

/// How often it is looked whether the run was stopped.
const LOOK: Nanos = 50_000_000;

/// Pause after a connection that failed, doubled as often as said below.
const RECONNECT: Duration = Duration::from_millis(10);
const RECONNECT_DOUBLINGS: u32 = 4;

/// Connections on which a request may be sent in turn when servers leave it untouched.
const TRIES: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_breaks_off_in_the_content_is_too_short() {
        let kind = |trouble: Trouble| match trouble.in_content() {
            Trouble::Request(failure) | Trouble::Connection(failure) => failure.kind,
            Trouble::Untouched => "",
        };
        let failure = |kind| Failure::new(kind, "reset");
        let closed = Trouble::Connection(failure(Failures::CLOSED));
        assert_eq!(kind(closed), Failures::LENGTH);
        let reset = Trouble::Request(failure(Failures::CLOSED));
        assert_eq!(kind(reset), Failures::LENGTH);
        let strange = Trouble::Connection(failure(Failures::PROTOCOL));
        assert_eq!(kind(strange), Failures::PROTOCOL);
    }
}
