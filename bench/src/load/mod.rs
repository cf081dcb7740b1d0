//! The built-in load generator: sends requests to one server according to a [`Plan`], checks every
//! response, and reports the result in an [`Outcome`].
//!
//! Each thread has its own connections, buffers and histograms, and shares only the clock and the stop flag
//! with the other threads. The generator is written to use less CPU time than the server under test;
//! [`Outcome::client_bound`] is set where the generator was the limit.

mod alarm;
mod course;
mod cpu;
mod http1;
mod http2;
mod http3;
mod link;
mod meter;
mod outcome;
mod plan;
mod random;
mod response;
mod streams;
mod tally;
#[cfg(test)]
mod tests;
mod tls;

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub use outcome::Outcome;
pub use plan::{
    BadPlan, Expect, Groups, Length, Method, Pace, Plan, Protocol, Resumption, Tls, Trust,
};

use course::{Course, Nanos};
use cpu::Spent;
use http1::Http1;
use link::TlsStart;
use tally::Tally;

/// Reason why a plan could not be carried out. Failures of the server are counted in the [`Outcome`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan is invalid.
    #[error(transparent)]
    Plan(#[from] BadPlan),
    /// The certificate of the authority can't be read.
    #[error("cannot read the certificate of the authority: {0}")]
    Authority(String),
    /// The server name in the plan is neither a host name nor an address.
    #[error("{0:?} is neither a host name nor an IP address")]
    ServerName(String),
    /// The TLS configuration could not be built from the plan.
    #[error("TLS: {0}")]
    Tls(String),
    /// The system's limit of open files is too low for the number of connections.
    #[error(
        "{connections} connections need more than the {allowed} open files that the system allows (ulimit -n)"
    )]
    TooManyConnections {
        /// Number of connections in the plan.
        connections: usize,
        /// Hard limit of open files.
        allowed: u64,
    },
    /// A thread could not be pinned to a processor: the processor doesn't exist or is not available to the
    /// process.
    #[error("cannot pin a thread to processor {cpu}: {source}")]
    Pin {
        /// Number of the processor.
        cpu: usize,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The system refused a thread, a socket or another resource of the generator.
    #[error("system error in the load generator: {0}")]
    System(#[from] io::Error),
}

/// A boundary of the measured window, reported to the caller so that the caller can sample the server at
/// the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The warm-up is over and counting begins.
    Begin,
    /// Counting ends. Responses to requests already sent are still awaited.
    End,
}

/// Carries out `plan`. Setting `stop` ends the run within 200 ms, with the figures counted up to the moment
/// of the stop.
pub fn run(plan: &Plan, stop: &AtomicBool) -> Result<Outcome, Error> {
    run_watched(plan, stop, |_| {})
}

/// Carries out `plan` as [`run`] does, and calls `watch` at the beginning and the end of the measured window.
/// In a run with a fixed number of requests, the window ends with the last request. A stopped run may lack
/// either call.
pub fn run_watched(
    plan: &Plan,
    stop: &AtomicBool,
    watch: impl FnMut(Moment),
) -> Result<Outcome, Error> {
    plan.check()?;
    allow_connections(plan.connections)?;
    let shares = shares(plan)?;
    let plan = Arc::new(plan.clone());
    let course = Arc::new(Course::new(&plan));
    let reports = thread::scope(|scope| {
        let (done, finished) = mpsc::channel();
        for share in shares {
            let (plan, course, done) = (&plan, &course, done.clone());
            let name = format!("load-{}", share.thread);
            let thread = thread::Builder::new()
                .name(name)
                .spawn_scoped(scope, move || {
                    // Sending fails after the receiver was dropped because another thread failed.
                    let _ = done.send(serve(plan, course, share));
                });
            // The threads already started are stopped, since the scope waits for all of them.
            thread.inspect_err(|_| course.stop())?;
        }
        drop(done);
        collect(&course, &finished, stop, watch).inspect_err(|_| course.stop())
    })?;
    Ok(outcome(&plan, &course, reports))
}

/// The part of a plan that one thread carries out.
#[derive(Debug, Clone)]
struct Share {
    /// Number of the thread, from 0 to `threads` - 1.
    thread: usize,
    threads: usize,
    /// Numbers of the thread's connections.
    connections: Range<usize>,
    tls: Option<TlsStart>,
}

/// Result of one thread.
#[derive(Debug)]
struct Report {
    tally: Tally,
    spent: Spent,
    ended: Nanos,
}

fn shares(plan: &Plan) -> Result<Vec<Share>, Error> {
    let threads = plan.threads_used();
    (0..threads)
        .map(|thread| {
            let tls = match &plan.tls {
                None => None,
                Some(tls) => {
                    let config = Arc::new(tls::config(plan, tls)?);
                    Some(TlsStart {
                        config,
                        name: tls::server_name(tls)?,
                    })
                }
            };
            let first = |thread: usize| plan.connections * thread / threads;
            Ok(Share {
                thread,
                threads,
                connections: first(thread)..first(thread + 1),
                tls,
            })
        })
        .collect()
}

/// Runs the connections of one thread.
fn serve(plan: &Arc<Plan>, course: &Arc<Course>, share: Share) -> Result<Report, Error> {
    if !plan.cpus.is_empty() {
        let cpu = plan.cpus[share.thread % plan.cpus.len()];
        cpu::pin(cpu).map_err(|source| Error::Pin { cpu, source })?;
    }
    match plan.protocol {
        Protocol::Http1 => Ok(Http1::new(plan, course, share)?.run()?),
        Protocol::Http2 => Ok(http2::run(plan, course, share)?),
        Protocol::Http3 => Ok(http3::run(plan, course, share)?),
    }
}

/// Collects the reports of the threads, calls `watch` at both ends of the window, and passes the stop
/// request on to the threads.
fn collect(
    course: &Course,
    finished: &mpsc::Receiver<Result<Report, Error>>,
    stop: &AtomicBool,
    mut watch: impl FnMut(Moment),
) -> Result<Vec<Report>, Error> {
    let mut moments = vec![
        (Moment::Begin, Some(course.begin())),
        (Moment::End, course.end()),
    ]
    .into_iter()
    .peekable();
    let mut reports = Vec::new();
    loop {
        let next = moments
            .peek()
            .and_then(|(_, at)| *at)
            .map(|at| course.instant(at));
        let wait = next.map_or(LOOK, |at| {
            LOOK.min(at.saturating_duration_since(Instant::now()))
        });
        match finished.recv_timeout(wait) {
            Ok(report) => reports.push(report?),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if next.is_some_and(|at| at <= Instant::now()) {
            moments
                .next()
                .into_iter()
                .for_each(|(moment, _)| watch(moment));
        }
        if stop.load(Ordering::Relaxed) {
            course.stop();
        }
    }
    // The end of a run with a fixed number of requests is known only here. A short timed run may also be
    // over before the loop saw the end of its window.
    if !course.stopped() {
        moments.for_each(|(moment, _)| watch(moment));
    }
    Ok(reports)
}

fn outcome(plan: &Plan, course: &Course, reports: Vec<Report>) -> Outcome {
    let mut tally = Tally::new(plan);
    let (mut spent, mut ended) = (Spent::default(), 0);
    for report in reports {
        tally += report.tally;
        spent.user += report.spent.user;
        spent.system += report.spent.system;
        ended = ended.max(report.ended);
    }
    let end = match (course.stopped(), course.end()) {
        (true, end) => end.map_or(ended, |end| ended.min(end)),
        (false, Some(end)) if matches!(plan.pace, Pace::Open { .. }) => end.max(tally.last),
        (false, Some(end)) => end,
        (false, None) => tally.last,
    };
    let seconds = end.saturating_sub(course.begin()) as f64 / 1e9;
    // CPU time is measured up to the planned end.
    let window = course
        .end()
        .map_or(end, |planned| planned.min(end))
        .saturating_sub(course.begin()) as f64
        / 1e9;
    let cpus = cpus(plan);
    let busy = (spent.user + spent.system) / window / f64::from(cpus);
    let (failures, first_failures) = tally
        .failures
        .into_iter()
        .map(|(kind, failed)| {
            (
                (kind.to_owned(), failed.count),
                (kind.to_owned(), failed.first),
            )
        })
        .unzip();
    Outcome {
        seconds,
        requests: tally.requests,
        bytes: tally.bytes,
        failures,
        first_failures,
        latency: tally.latency,
        service: tally.service,
        connect: tally.connect,
        full_handshakes: tally.full_handshakes,
        resumed_handshakes: tally.resumed_handshakes,
        user_seconds: spent.user,
        system_seconds: spent.system,
        busy,
        cpus,
        client_bound: busy > CLIENT_BOUND,
    }
}

/// Returns the number of processors that the threads can use at the same time.
fn cpus(plan: &Plan) -> u32 {
    let threads = plan.threads_used();
    let available = thread::available_parallelism().map_or(threads, usize::from);
    let mut pinned = plan.cpus.clone();
    pinned.truncate(threads);
    pinned.sort_unstable();
    pinned.dedup();
    let cpus = if pinned.is_empty() {
        threads.min(available)
    } else {
        pinned.len()
    };
    u32::try_from(cpus).unwrap_or(u32::MAX)
}

/// Raises the limit of open files to the number that the connections need, up to the hard limit.
fn allow_connections(connections: usize) -> Result<(), Error> {
    // Serialized, because another run in the same process may raise the limit at the same time.
    static RAISING: Mutex<()> = Mutex::new(());
    let _raising = RAISING.lock();
    let limit = getrlimit(Resource::Nofile);
    let wanted = connections as u64 + OTHER_FILES;
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    if let Some(allowed) = limit.maximum.filter(|&maximum| maximum < wanted) {
        return Err(Error::TooManyConnections {
            connections,
            allowed,
        });
    }
    let raised = Rlimit {
        current: Some(wanted),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).map_err(io::Error::from)?;
    Ok(())
}

/// Interval at which the stop flag is checked.
const LOOK: Duration = Duration::from_millis(50);

/// Open files besides the connections: logs, pipes, timers.
const OTHER_FILES: u64 = 256;

/// Share of CPU time, 0 to 1, above which the generator counts as the limit of a run.
const CLIENT_BOUND: f64 = 0.95;
