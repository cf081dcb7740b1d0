//! Logs that never make a request wait.
//!
//! A worker formats a [`AccessLogLine`] into a buffer of its own; a full buffer goes to a [`Sink`], whose
//! thread alone meets the disk or the pipe. What can't be written in time is dropped, counted, and
//! owned up to in the error log.

mod error_log;
mod access_log;
mod sink;

pub use crate::base::log::access_log::{AccessLogFormat, AccessLogLine};
pub use error_log::ErrorLog;
pub use sink::{LogBatch, LogDestination, ReportFn, Sink, Sinks};
