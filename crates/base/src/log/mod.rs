//! Logs that never block the writer of a line.
//!
//! A worker formats its lines into a [`LogBatch`]. A full batch goes to a [`Sink`], and only the sink's thread writes to
//! the disk or pipe. Lines that can't be written in time are dropped and counted, and the error log reports the loss.

mod error_log;
mod escape;
mod failure_lines;
mod rare_lines;
mod rotation;
mod sink;

pub use error_log::ErrorLog;
pub use escape::{hex_digit, push_hex_escape, push_message, push_spans};
pub use failure_lines::{FAILURE_LINES, FailureLines};
pub use rare_lines::{RareEvent, RareLines};
pub use rotation::Rotation;
pub use sink::{LogBatch, LogDestination, ReopenResults, ReportFn, Sink, Sinks};
