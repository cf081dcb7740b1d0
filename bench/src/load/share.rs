//! Shares of a workload, one for each thread, and the reports that the threads return. Both stand below the protocols,
//! each of which takes a share and returns a report.

use std::ops::Range;
use std::sync::Arc;

use super::cpu::Spent;
use super::link::TlsStart;
use super::tally::Tally;
use super::timeline::Nanos;
use super::tls;
use super::workload::{Error, Workload};

/// The part of a workload that one thread carries out.
#[derive(Debug, Clone)]
pub(super) struct Share {
    /// Number of the thread, from 0 to `threads` - 1.
    pub thread: usize,
    pub threads: usize,
    /// Numbers of the thread's connections.
    pub connections: Range<usize>,
    pub tls: Option<TlsStart>,
}

/// Result of one thread.
#[derive(Debug)]
pub(super) struct Report {
    pub tally: Tally,
    pub spent: Spent,
    pub ended: Nanos,
}

/// Divides the connections of a workload among its threads.
pub(super) fn shares(workload: &Workload) -> Result<Vec<Share>, Error> {
    let threads = workload.threads_used();
    (0..threads)
        .map(|thread| {
            let tls = match &workload.tls {
                None => None,
                Some(tls) => {
                    let config = Arc::new(tls::config(workload, tls)?);
                    Some(TlsStart {
                        config,
                        name: tls::server_name(tls)?,
                    })
                }
            };
            let first = |thread: usize| workload.connections * thread / threads;
            Ok(Share {
                thread,
                threads,
                connections: first(thread)..first(thread + 1),
                tls,
            })
        })
        .collect()
}
