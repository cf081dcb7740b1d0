//! Our load generator: asks one server for something again and again, as a [`Plan`] says, checks every
//! answer and tells in an [`Outcome`] how it went.
//!
//! Each thread has its own connections, buffers and histograms, and shares nothing with the others but
//! the clock. It is written to be leaner than what it measures, and says so where it isn't
//! ([`Outcome::client_bound`]).

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

/// Why a plan wasn't carried out; what the server did wrong is in the [`Outcome`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan makes no sense.
    #[error(transparent)]
    Plan(#[from] BadPlan),
    /// The authority's certificate can't be read.
    #[error("the authority cannot be read: {0}")]
    Authority(String),
    /// A name that is none.
    #[error("{0:?} is neither a host's name nor an address")]
    ServerName(String),
    /// TLS can't be had as the plan wants it.
    #[error("TLS: {0}")]
    Tls(String),
    /// The system doesn't allow as many connections.
    #[error(
        "{connections} connections need more than the {allowed} open files that the system allows (ulimit -n)"
    )]
    TooManyConnections {
        /// As planned.
        connections: usize,
        /// The hard limit.
        allowed: u64,
    },
    /// A processor that isn't there, or isn't ours to use.
    #[error("a thread cannot be held to processor {cpu}: {source}")]
    Pin {
        /// Its number.
        cpu: usize,
        /// What the kernel says.
        source: io::Error,
    },
    /// The system refused a thread, or what a thread needs.
    #[error("the load generator's own sockets or threads: {0}")]
    System(#[from] io::Error),
}

/// A moment of a run that its caller may want to know, to look at the server at just that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The warm-up is over and counting begins.
    Begin,
    /// Counting ends; what was asked is still waited for.
    End,
}

/// Carries out `plan` until it is done or `stop` is set, which ends it within a fifth of a second with
/// what was seen till then.
pub fn run(plan: &Plan, stop: &AtomicBool) -> Result<Outcome, Error> {
    run_watched(plan, stop, |_| {})
}

/// As [`run`], and calls `watch` when the window begins and ends. In a run by requests the end is that
/// of the last one. A run that is stopped may lack either.
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
                    // Nobody listens any more if another thread has failed.
                    let _ = done.send(serve(plan, course, share));
                });
            // The others, which run already, are not to be waited for till their end.
            thread.inspect_err(|_| course.stop())?;
        }
        drop(done);
        collect(&course, &finished, stop, watch).inspect_err(|_| course.stop())
    })?;
    Ok(outcome(&plan, &course, reports))
}

/// What falls to one thread.
#[derive(Debug, Clone)]
struct Share {
    /// Its number, of so many.
    thread: usize,
    threads: usize,
    /// The numbers of its connections.
    connections: Range<usize>,
    tls: Option<TlsStart>,
}

/// What one thread has to tell.
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

/// One thread.
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

/// Waits for the threads, tells the moments and hands on the wish to stop.
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
    // A run by requests knows its end only now, and a quick one may be over before it was looked at.
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
    // CPU time is taken up to the planned end.
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

/// Processors the threads can use at once.
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

/// Raises the limit of open files as far as the connections need it and the system lets us.
fn allow_connections(connections: usize) -> Result<(), Error> {
    // One at a time: another run in this process may be doing the same.
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

/// How often it is looked whether somebody wants it to stop.
const LOOK: Duration = Duration::from_millis(50);

/// Open files that are no connections of ours: logs, pipes, timers.
const OTHER_FILES: u64 = 256;

/// A generator that is busy for a larger share of the time is taken for the limit.
const CLIENT_BOUND: f64 = 0.95;
