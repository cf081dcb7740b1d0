//! Logs that never make a request wait.
//!
//! A worker formats a [`Line`] into a buffer of its own; a full buffer goes to a [`Sink`], whose
//! thread alone meets the disk or the pipe. What can't be written in time is dropped, counted, and
//! owned up to in the error log.

mod error_log;
mod line;
mod sink;

pub use error_log::ErrorLog;
pub use line::{Format, Line};
pub use sink::{Batch, Destination, Report, Sink, Sinks};
