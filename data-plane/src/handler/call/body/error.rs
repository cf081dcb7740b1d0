//! Reasons for a failure to buffer or spool a request body.

use crate::handler::HandlerError;
use wire::reject::Reject;

/// Reason for a failure to buffer or spool a request's body.
#[derive(PartialEq, Eq, Debug)]
pub enum BodyError {
    /// The body ended early.
    Broken,
    /// The client sends almost nothing while other bodies need the space.
    TooSlow,
    /// The memory for bodies under way is full, and the length of the body is unknown.
    MemoryFull,
    /// The spool on the disk is full.
    SpoolFull,
    /// The disk is full or has failed. The text is for the log.
    DiskFailed(String),
    /// No file descriptor is available. The text is for the log.
    NoDescriptor(String),
}

impl BodyError {
    /// Returns the error response for the client.
    pub fn reject(&self) -> Reject {
        match self {
            BodyError::Broken | BodyError::TooSlow => Reject::BODY_SLOW,
            BodyError::MemoryFull => Reject::BODY_MEMORY_FULL,
            BodyError::SpoolFull | BodyError::NoDescriptor(_) => Reject::BODIES_FULL,
            BodyError::DiskFailed(_) => Reject::BODY_NOT_KEPT,
        }
    }

    /// Converts the error to a handler's error for the request with the request line `line`.
    pub(crate) fn fault(self, line: &str) -> HandlerError {
        let reject = self.reject();
        match self {
            BodyError::DiskFailed(why) | BodyError::NoDescriptor(why) => {
                HandlerError::because("script", reject, format!("{line}: {why}"))
            }
            _ => HandlerError::new("script", reject),
        }
    }
}
