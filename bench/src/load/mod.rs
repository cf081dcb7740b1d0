//! The built-in load generator: sends requests to one server according to a [`Workload`], checks every
//! response, and reports the result in an [`Outcome`].
//!
//! Each thread has its own connections, buffers and histograms, and shares only the clock and the stop flag
//! with the other threads. The generator is written to use less CPU time than the server under test;
//! [`Outcome::client_bound`] is set where the generator was the limit.

mod timer;
mod timeline;
mod cpu;
mod http1;
mod http2;
mod http3;
mod link;
mod share;
mod outcome;
mod workload;
mod random;
mod response;
mod streams;
mod tally;
#[cfg(test)]
mod tests;
mod tls;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub(crate) use outcome::Outcome;
pub(crate) use workload::{
    Error, Expect, Groups, Length, Pace, Pause, Protocol, Resumption, Tls, Workload,
};
#[cfg(test)]
pub(crate) use workload::{Method, Trust};

use cpu::Spent;
use http1::Http1;
use share::{Report, Share, shares};
use tally::Tally;
use timeline::Timeline;

/// A boundary of the measured window, reported to the caller so that the caller can sample the server at
/// the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The warm-up is over and counting begins.
    Begin,
    /// Counting ends. Responses to requests already sent are still awaited.
    End,
}

/// Carries out `workload`. Setting `stop` ends the run within 200 ms, with the figures counted up to the moment
/// of the stop.
pub(crate) fn run(workload: &Workload, stop: &AtomicBool) -> Result<Outcome, Error> {
    run_observed(workload, stop, |_| {})
}

/// Carries out `workload` as [`run`] does, and calls `observe` at the beginning and the end of the measured window.
/// In a run with a fixed number of requests, the window ends with the last request. A stopped run may lack
/// either call.
pub(crate) fn run_observed(
    workload: &Workload,
    stop: &AtomicBool,
    observe: impl FnMut(Moment),
) -> Result<Outcome, Error> {
    workload.check()?;
    allow_connections(workload.connections)?;
    let shares = shares(workload)?;
    let workload = Arc::new(workload.clone());
    let timeline = Arc::new(Timeline::new(&workload));
    let reports = thread::scope(|scope| {
        let (done, finished) = mpsc::channel();
        for share in shares {
            let (workload, timeline, done) = (&workload, &timeline, done.clone());
            let name = format!("load-{}", share.thread);
            let thread = thread::Builder::new()
                .name(name)
                .spawn_scoped(scope, move || {
                    // Sending fails after the receiver was dropped because another thread failed.
                    let _ = done.send(serve(workload, timeline, share));
                });
            // The threads already started are stopped, since the scope waits for all of them.
            thread.inspect_err(|_| timeline.stop())?;
        }
        drop(done);
        collect(&timeline, &finished, stop, observe).inspect_err(|_| timeline.stop())
    })?;
    Ok(outcome(&workload, &timeline, reports))
}

/// Runs the connections of one thread.
fn serve(
    workload: &Arc<Workload>,
    timeline: &Arc<Timeline>,
    share: Share,
) -> Result<Report, Error> {
    if !workload.cpus.is_empty() {
        let cpu = workload.cpus[share.thread % workload.cpus.len()];
        cpu::pin(cpu).map_err(|source| Error::Pin { cpu, source })?;
    }
    match workload.protocol {
        Protocol::Http1 => Ok(Http1::new(workload, timeline, share)?.run()?),
        Protocol::Http2 => Ok(http2::run(workload, timeline, share)?),
        Protocol::Http3 => Ok(http3::run(workload, timeline, share)?),
    }
}

/// Collects the reports of the threads, calls `observe` at both ends of the window, and passes the stop
/// request on to the threads.
fn collect(
    timeline: &Timeline,
    finished: &mpsc::Receiver<Result<Report, Error>>,
    stop: &AtomicBool,
    mut observe: impl FnMut(Moment),
) -> Result<Vec<Report>, Error> {
    let mut moments = vec![
        (Moment::Begin, Some(timeline.begin())),
        (Moment::End, timeline.end()),
    ]
    .into_iter()
    .peekable();
    let mut reports = Vec::new();
    loop {
        let next = moments
            .peek()
            .and_then(|(_, at)| *at)
            .map(|at| timeline.instant(at));
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
                .for_each(|(moment, _)| observe(moment));
        }
        if stop.load(Ordering::Relaxed) {
            timeline.stop();
        }
    }
    // The end of a run with a fixed number of requests is known only here. A short timed run may also be
    // over before the loop saw the end of its window.
    if !timeline.stopped() {
        moments.for_each(|(moment, _)| observe(moment));
    }
    Ok(reports)
}

fn outcome(workload: &Workload, timeline: &Timeline, reports: Vec<Report>) -> Outcome {
    let mut tally = Tally::new(workload);
    let (mut spent, mut ended) = (Spent::default(), 0);
    for report in reports {
        tally += report.tally;
        spent.user += report.spent.user;
        spent.system += report.spent.system;
        ended = ended.max(report.ended);
    }
    let end = match (timeline.stopped(), timeline.end()) {
        (true, end) => end.map_or(ended, |end| ended.min(end)),
        (false, Some(end)) if matches!(workload.pace, Pace::Open { .. }) => end.max(tally.last),
        (false, Some(end)) => end,
        (false, None) => tally.last,
    };
    let seconds = end.saturating_sub(timeline.begin()) as f64 / 1e9;
    // CPU time is measured up to the planned end.
    let window = timeline
        .end()
        .map_or(end, |planned| planned.min(end))
        .saturating_sub(timeline.begin()) as f64
        / 1e9;
    let cpus = cpus(workload);
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
fn cpus(workload: &Workload) -> u32 {
    let threads = workload.threads_used();
    let available = thread::available_parallelism().map_or(threads, usize::from);
    let mut pinned = workload.cpus.clone();
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
