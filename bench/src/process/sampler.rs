//! Measurement of a process tree: CPU time between two points, and the peak of memory in between.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{CpuTime, Tree};
use crate::result::Usage;

/// A running measurement of a tree.
#[derive(Debug)]
pub(crate) struct Measuring {
    tree: Tree,
    cpus: usize,
    before: CpuTime,
    /// Dropped to stop the sampling thread.
    running: Option<Sender<()>>,
    sampler: Option<JoinHandle<u64>>,
}

impl Measuring {
    /// Starts to measure CPU time and the peak of PSS. A thread on the caller's processors samples the PSS every
    /// `interval`. `cpus` is the number of processors of the tree.
    pub(crate) fn begin(tree: &Tree, interval: Duration, cpus: usize) -> Measuring {
        let (running, ended) = channel::<()>();
        let sampled = tree.clone();
        let sampler = std::thread::spawn(move || {
            let mut peak = sampled.pss();
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                peak = peak.max(sampled.pss());
            }
            peak
        });
        let before = tree.cpu();
        Measuring {
            tree: tree.clone(),
            cpus,
            before,
            running: Some(running),
            sampler: Some(sampler),
        }
    }

    /// Ends the measurement and returns the usage since its start. CPU time is read first, so the call
    /// belongs directly after the measured window. Memory is sampled a last time.
    pub(crate) fn finish(mut self) -> Usage {
        let used = self.tree.cpu() - self.before;
        let last = self.tree.pss();
        drop(self.running.take());
        let peak = self
            .sampler
            .take()
            .and_then(|sampler| sampler.join().ok())
            .unwrap_or(0);
        Usage {
            user_seconds: used.user_seconds,
            system_seconds: used.system_seconds,
            cpus: self.cpus.try_into().unwrap_or(u32::MAX),
            peak_pss_bytes: peak.max(last),
        }
    }
}
