//! Access log lines of a worker, buffered until the next sweep.

use crate::base::log::{AccessLogLine, LogBatch};
use crate::world::AccessLog;

/// Buffered log lines of a worker, by destination.
#[derive(Default)]
pub struct AccessLogBatches {
    batches: Vec<(AccessLog, LogBatch)>,
}

impl AccessLogBatches {
    /// Adds a line to the buffer of the log.
    pub(super) fn write(&mut self, access: &AccessLog, line: &AccessLogLine<'_>, time: &[u8]) {
        let known = self
            .batches
            .iter()
            .position(|(known, _)| known.is_same(access));
        let index = known.unwrap_or_else(|| {
            let batch = LogBatch::new(access.sink.clone(), access.format);
            self.batches.push((access.clone(), batch));
            self.batches.len() - 1
        });
        self.batches[index].1.push(line, time);
    }

    /// Returns true if no line is buffered.
    pub fn is_empty(&self) -> bool {
        self.batches.iter().all(|(_, batch)| batch.is_empty())
    }

    /// Hands all buffered lines to the logs.
    pub fn flush(&mut self) {
        for (_, batch) in &mut self.batches {
            batch.flush();
        }
    }

    /// Drops every destination, so that a log file no longer named by any World is closed.
    pub fn forget(&mut self) {
        self.batches.clear();
    }
}
