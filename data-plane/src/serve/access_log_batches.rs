//! Access log lines of a worker, buffered until the next sweep.

use crate::ledger::access_log::AccessLogLine;
use crate::world::AccessLog;
use base::log::LogBatch;

/// Buffered log lines of a worker. A destination has a single buffer, so the lines of a worker stay in order, also
/// where sites with one file have different formats.
#[derive(Default)]
pub(crate) struct AccessLogBatches {
    batches: Vec<LogBatch>,
}

impl AccessLogBatches {
    /// Adds a line to the buffer of the log.
    pub(super) fn write(&mut self, access: &AccessLog, line: &AccessLogLine<'_>, time: &[u8]) {
        let known = self.batches.iter().position(|it| it.is_for(&access.sink));
        let index = known.unwrap_or_else(|| {
            self.batches.push(LogBatch::new(access.sink.clone()));
            self.batches.len() - 1
        });
        self.batches[index].push(|out| line.append(access.format, time, out));
    }

    /// Returns true if no line is buffered.
    pub(super) fn is_empty(&self) -> bool {
        self.batches.iter().all(LogBatch::is_empty)
    }

    /// Hands all buffered lines to the logs.
    pub(super) fn flush(&mut self) {
        self.batches.iter_mut().for_each(LogBatch::flush);
    }

    /// Drops every destination, so that a log file no longer named by any World is closed.
    pub(super) fn forget(&mut self) {
        self.batches.clear();
    }
}
