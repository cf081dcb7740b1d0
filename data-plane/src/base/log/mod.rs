//! Access log and error log that never block a request.
//!
//! A worker formats an [`AccessLogLine`] into its own buffer. A full buffer goes to a [`Sink`], and only
//! the sink's thread writes to the disk or pipe. Lines that can't be written in time are dropped and
//! counted, and the error log reports the loss.

mod error_log;
mod access_log;
mod rare_lines;
mod rotation;
mod sink;

pub use crate::base::log::access_log::{AccessLogFormat, AccessLogLine, MemberCall};
pub use error_log::ErrorLog;
pub use rare_lines::{RareEvent, RareLines};
pub use rotation::Rotation;
pub use sink::{LogBatch, LogDestination, ReopenResults, ReportFn, Sink, Sinks};
