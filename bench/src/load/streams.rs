//! Users of one thread over a protocol with multiplexed connections.
//!
//! A [`Dial`] implements the protocol. The module holds the parts common to HTTP/2 and HTTP/3: the timing
//! of requests, the shared connections and the counting.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{Method as HttpMethod, Request, Version};
use tokio::io::unix::AsyncFd;
use tokio::runtime;
use tokio::sync::{Mutex, Notify};
use tokio::task::{JoinSet, LocalSet, spawn_local};
use tokio::time::{sleep_until, timeout};

use super::cpu::Meter;
use super::random::Random;
use super::share::{Report, Share};
use super::tally::{Failure, ResponseSummary, Tally};
use super::timeline::{DueTimes, Nanos, PendingRequest, Timeline, nanos};
use super::timer::Timer;
use super::workload::{Ends, Method, Pace, Protocol, Workload};
use crate::result::Failures;

/// A multiplexed protocol that can open connections.
pub(super) trait Dial: 'static {
    /// An established connection.
    type Sender: Ask;

    /// Opens a connection from the local address `source`, including all handshakes.
    fn dial(
        &self,
        address: SocketAddr,
        source: Option<IpAddr>,
    ) -> impl Future<Output = Result<Dialled<Self::Sender>, Failure>>;

    /// Finishes pending work after the end of all connections.
    fn leave(&self) -> impl Future<Output = ()> {
        std::future::ready(())
    }
}

/// A newly opened connection.
pub(super) struct Dialled<S> {
    pub sender: S,
    /// Whether TLS resumed an earlier session, or `None` without TLS.
    pub resumed: Option<bool>,
}

/// A connection that accepts requests. Clones share the connection, and dropping the last clone ends the
/// connection.
pub(super) trait Ask: Clone + 'static {
    /// Sends a request and reads the response to the end. Content is compared with `expected`, if given.
    fn ask(
        self,
        request: Request<()>,
        expected: Option<&[u8]>,
    ) -> impl Future<Output = Result<ResponseSummary, RequestError>>;
}

/// Reason for a missing response.
#[derive(Debug)]
pub(super) enum RequestError {
    /// The server has not processed the request, and expects a retry on another connection.
    Untouched,
    /// The request failed. The connection is still usable.
    Request(Failure),
    /// The connection is unusable.
    Connection(Failure),
}

impl RequestError {
    /// Converts a failure after the header section: content that breaks off counts as a wrong length.
    pub(super) fn in_content(self) -> RequestError {
        let cut_off = |mut failure: Failure| {
            if failure.kind == Failures::CLOSED {
                failure.kind = Failures::LENGTH;
            }
            failure
        };
        match self {
            RequestError::Untouched => RequestError::Untouched,
            RequestError::Request(failure) => RequestError::Request(cut_off(failure)),
            RequestError::Connection(failure) => RequestError::Connection(cut_off(failure)),
        }
    }
}

/// Bytes received on all connections of a thread.
pub(super) struct Received {
    timeline: Arc<Timeline>,
    bytes: Cell<u64>,
}

impl Received {
    pub(super) fn new(timeline: &Arc<Timeline>) -> Rc<Received> {
        Rc::new(Received {
            timeline: Arc::clone(timeline),
            bytes: Cell::new(0),
        })
    }

    /// Adds received bytes.
    pub(super) fn add(&self, bytes: usize) {
        if bytes > 0 && self.timeline.counts_bytes(self.timeline.now()) {
            self.bytes.set(self.bytes.get() + bytes as u64);
        }
    }
}

/// Runs the thread's share of the users. `dial` is called on the runtime.
pub(super) fn run<D: Dial>(
    workload: &Arc<Workload>,
    timeline: &Arc<Timeline>,
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
        let users = Rc::new(Users::new(workload, timeline, share, dial()?));
        let mut running = users.start(share)?;
        users.attend(&mut running, &mut meter).await;
        let (ended, spent) = (timeline.now(), meter.spent());
        running.shutdown().await;
        users.dial.leave().await;
        Ok(Report {
            tally: users.tally.replace(Tally::new(workload)),
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
    workload: Arc<Workload>,
    timeline: Arc<Timeline>,
    dial: D,
    requests: Vec<Request<()>>,
    due_times: RefCell<Option<DueTimes>>,
    /// Notified once for each request that falls due.
    due: Notify,
    random: RefCell<Random>,
    tally: RefCell<Tally>,
}

/// A connection shared by several users, reopened as often as necessary.
struct Line<S> {
    ends: Ends,
    current: RefCell<Current<S>>,
    /// Lock held by the user that opens the connection.
    dialling: Mutex<()>,
    /// Number of consecutive failed connections.
    failed_connections: Cell<u32>,
}

/// The connection of a line at present.
struct Current<S> {
    /// The open connection.
    sender: Option<S>,
    /// Number of connections opened so far.
    number: u64,
}

impl<S> Line<S> {
    /// Discards the connection with the given number.
    fn forget(&self, number: u64) {
        let mut current = self.current.borrow_mut();
        if current.number == number {
            current.sender = None;
        }
    }
}

/// Result of asking an open loop for the next request of an idle user.
enum Turn {
    Ask(PendingRequest),
    Wait,
    Over,
}

impl<D: Dial> Users<D> {
    fn new(workload: &Arc<Workload>, timeline: &Arc<Timeline>, share: &Share, dial: D) -> Users<D> {
        let due_times = match workload.pace {
            Pace::Open { rate } => Some(DueTimes::new(rate, share.thread, share.threads)),
            Pace::Closed { .. } => None,
        };
        Users {
            workload: Arc::clone(workload),
            timeline: Arc::clone(timeline),
            dial,
            requests: workload
                .paths
                .iter()
                .map(|path| request(workload, path))
                .collect(),
            due_times: RefCell::new(due_times),
            due: Notify::new(),
            random: RefCell::new(Random::new(share.thread)),
            tally: RefCell::new(Tally::new(workload)),
        }
    }

    /// Starts the tasks of all users, and the clock of an open loop.
    fn start(self: &Rc<Self>, share: &Share) -> io::Result<JoinSet<()>> {
        let mut running = JoinSet::new();
        let streams = if self.workload.keep_alive {
            self.workload.streams
        } else {
            1
        };
        for number in share.connections.clone() {
            let line = Rc::new(Line {
                ends: self.workload.ends(number),
                current: RefCell::new(Current {
                    sender: None,
                    number: 0,
                }),
                dialling: Mutex::new(()),
                failed_connections: Cell::new(0),
            });
            for stream in 0..streams {
                running.spawn_local(Rc::clone(self).user(Rc::clone(&line), number + stream));
            }
        }
        if let Some(due_times) = self.due_times.borrow().clone() {
            spawn_local(Rc::clone(self).announce_due_times(due_times, timer()?));
        }
        Ok(running)
    }

    /// Waits until all users have ended or the run is stopped.
    async fn attend(&self, running: &mut JoinSet<()>, meter: &mut Meter) {
        loop {
            let now = self.timeline.now();
            meter.at(now, &self.timeline);
            if self.timeline.stopped() {
                return;
            }
            let look = now + LOOK;
            let mark = meter
                .next_mark(&self.timeline)
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
        sleep_until(self.timeline.instant(at).into()).await;
    }

    /// Runs the task of one user.
    async fn user(self: Rc<Self>, line: Rc<Line<D::Sender>>, number: usize) {
        let mut request = number % self.requests.len();
        self.prepare(&line).await;
        while let Some(pending) = self.next().await {
            let fetched = self.fetch(&line, &self.requests[request]).await;
            request = (request + 1) % self.requests.len();
            let now = self.timeline.now();
            let unconnected = matches!(&fetched, Err(failure) if failure.kind == Failures::CONNECT);
            let verdict = fetched.and_then(|summary| summary.judge(&self.workload.expect));
            self.tally
                .borrow_mut()
                .response(&self.timeline, &pending, now, verdict);
            if unconnected {
                self.back_off(&line).await;
            } else {
                self.pause(0.0).await;
            }
        }
    }

    /// Prepares a user for the first request: opens the connection in advance if connections are kept. A
    /// user with pauses starts at a random time instead.
    async fn prepare(&self, line: &Line<D::Sender>) {
        if matches!(self.workload.pace, Pace::Closed { pause: Some(_) }) {
            return self.pause(1.0).await;
        }
        while self.workload.keep_alive && !self.timeline.over(self.timeline.now()) {
            match self.sender(line).await {
                Ok(_) => return,
                Err(failure) => {
                    let now = self.timeline.now();
                    self.tally
                        .borrow_mut()
                        .failure(&self.timeline, None, now, failure);
                    self.back_off(line).await;
                }
            }
        }
    }

    /// Waits for the pause between two requests, if any, at most until the end of the run. `earlier`
    /// shortens the lower bound of the pause: 1 for the first pause, 0 for all later pauses.
    async fn pause(&self, earlier: f64) {
        if let Pace::Closed { pause: Some(pause) } = self.workload.pace {
            let pause = self.random.borrow_mut().between(
                pause.shortest_seconds * (1.0 - earlier),
                pause.longest_seconds,
            );
            let until = self.timeline.now() + pause;
            self.sleep_until(self.timeline.end().map_or(until, |end| until.min(end)))
                .await;
        }
    }

    async fn back_off(&self, line: &Line<D::Sender>) {
        let failed_connections = line
            .failed_connections
            .replace(line.failed_connections.get() + 1);
        tokio::time::sleep(RECONNECT * 2u32.pow(failed_connections.min(RECONNECT_DOUBLINGS))).await;
    }

    /// Waits for the user's next request. Returns `None` when the run is over.
    async fn next(&self) -> Option<PendingRequest> {
        if !matches!(self.workload.pace, Pace::Open { .. }) {
            let now = self.timeline.now();
            return self.timeline.grant(now, now);
        }
        loop {
            let now = self.timeline.now();
            match self.turn(now) {
                Turn::Over => return None,
                Turn::Wait => self.due.notified().await,
                Turn::Ask(pending)
                    if pending
                        .due
                        .saturating_add(nanos(self.workload.timeout_seconds))
                        <= now =>
                {
                    let failure =
                        Failure::new(Failures::TIMEOUT, "no stream was free within the timeout");
                    self.tally
                        .borrow_mut()
                        .failure(&self.timeline, Some(&pending), now, failure);
                }
                Turn::Ask(pending) => return Some(pending),
            }
        }
    }

    fn turn(&self, now: Nanos) -> Turn {
        let mut due_times = self.due_times.borrow_mut();
        let Some(due_times) = due_times.as_mut() else {
            return Turn::Over;
        };
        let due = due_times.next();
        if self.timeline.over(due) {
            return Turn::Over;
        }
        if due > now {
            return Turn::Wait;
        }
        due_times.advance();
        self.timeline.grant(due, now).map_or(Turn::Over, Turn::Ask)
    }

    /// Runs the clock of an open loop: wakes a waiting user for each request that falls due.
    async fn announce_due_times(
        self: Rc<Self>,
        mut due_times: DueTimes,
        mut timer: AsyncFd<Timer>,
    ) {
        while !self.timeline.over(due_times.next()) {
            let now = self.timeline.now();
            if due_times.next() <= now {
                self.due.notify_one();
                due_times.advance();
                continue;
            }
            if timer.get_mut().set(due_times.next(), now).is_err() {
                break;
            }
            if let Ok(mut ready) = timer.readable().await {
                ready.clear_ready();
            }
            timer.get_mut().expired();
        }
        self.due.notify_waiters();
    }

    /// Returns the open connection and its number, opening a connection if necessary.
    async fn sender(&self, line: &Line<D::Sender>) -> Result<(D::Sender, u64), Failure> {
        let standing = || {
            let current = line.current.borrow();
            let sender = current.sender.clone();
            sender.map(|sender| (sender, current.number))
        };
        if let Some(standing) = standing() {
            return Ok(standing);
        }
        let _dialling = line.dialling.lock().await;
        // Another user may have opened the connection while the lock was awaited.
        if let Some(standing) = standing() {
            return Ok(standing);
        }
        let begun = self.timeline.now();
        let Ends { server, local } = line.ends;
        let dialled = timeout(self.timeout(), self.dial.dial(server, local))
            .await
            .unwrap_or_else(|_| Err(Failure::new(Failures::CONNECT, self.nothing_came())))?;
        line.failed_connections.set(0);
        self.tally.borrow_mut().connected(
            &self.timeline,
            begun,
            self.timeline.now(),
            dialled.resumed,
        );
        let mut current = line.current.borrow_mut();
        current.number += 1;
        current.sender = Some(dialled.sender.clone());
        Ok((dialled.sender, current.number))
    }

    /// Sends a request until a response arrives or the request fails for good.
    async fn fetch(
        &self,
        line: &Line<D::Sender>,
        request: &Request<()>,
    ) -> Result<ResponseSummary, Failure> {
        for _ in 0..TRIES {
            let (sender, number) = self.sender(line).await?;
            let expected = self.workload.expect.body.as_deref();
            let answer = timeout(self.timeout(), sender.ask(request.clone(), expected)).await;
            if !self.workload.keep_alive {
                line.forget(number);
            }
            match answer {
                Ok(Ok(summary)) => return Ok(summary),
                Ok(Err(RequestError::Request(failure))) => return Err(failure),
                Ok(Err(RequestError::Connection(failure))) => {
                    line.forget(number);
                    return Err(failure);
                }
                Ok(Err(RequestError::Untouched)) => line.forget(number),
                Err(_) => return Err(Failure::new(Failures::TIMEOUT, self.nothing_came())),
            }
        }
        Err(Failure::new(
            Failures::CLOSED,
            "the server rejected the request on every connection tried",
        ))
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs_f64(self.workload.timeout_seconds)
    }

    fn nothing_came(&self) -> String {
        format!("timed out after {} s", self.workload.timeout_seconds)
    }
}

/// Builds the request for `path`, sent unchanged every time.
fn request(workload: &Workload, path: &str) -> Request<()> {
    let scheme = if workload.tls.is_some() {
        "https"
    } else {
        "http"
    };
    let mut request = Request::new(());
    *request.method_mut() = match workload.method {
        Method::Get => HttpMethod::GET,
        Method::Head => HttpMethod::HEAD,
    };
    // `Workload::check` has rejected every path that is no valid URI.
    *request.uri_mut() = format!("{scheme}://{}{path}", workload.host)
        .parse()
        .unwrap_or_default();
    *request.version_mut() = match workload.protocol {
        Protocol::Http3 => Version::HTTP_3,
        Protocol::Http1 | Protocol::Http2 => Version::HTTP_2,
    };
    request
}

/// Creates a timer that a task can await.
#[allow(
    deprecated,
    reason = "a timer owns its descriptor, as the function that replaces this demands by `unsafe`"
)]
fn timer() -> io::Result<AsyncFd<Timer>> {
    AsyncFd::new(Timer::new()?)
}

/// Interval at which the stop flag is checked.
const LOOK: Nanos = 50_000_000;

/// Pause after a failed connection, doubled up to `RECONNECT_DOUBLINGS` times.
const RECONNECT: Duration = Duration::from_millis(10);
const RECONNECT_DOUBLINGS: u32 = 4;

/// Maximum number of connections tried for one request while servers leave the request unprocessed.
const TRIES: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_closed_within_the_content_is_a_wrong_length() {
        let kind = |request_error: RequestError| match request_error.in_content() {
            RequestError::Request(failure) | RequestError::Connection(failure) => failure.kind,
            RequestError::Untouched => "",
        };
        let failure = |kind| Failure::new(kind, "reset");
        let closed = RequestError::Connection(failure(Failures::CLOSED));
        assert_eq!(kind(closed), Failures::LENGTH);
        let reset = RequestError::Request(failure(Failures::CLOSED));
        assert_eq!(kind(reset), Failures::LENGTH);
        let strange = RequestError::Connection(failure(Failures::PROTOCOL));
        assert_eq!(kind(strange), Failures::PROTOCOL);
    }
}
