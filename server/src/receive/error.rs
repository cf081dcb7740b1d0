//! Reason why a receiver ends a session.

use release::store::StoreWriteError;
use std::{fmt, io};

/// Reason why a receiver ends a session.
#[derive(Debug)]
pub enum ReceiveError {
    /// The stream ended within a request, or failed.
    Stream(io::Error),
    /// The publisher sent what the protocol does not permit.
    Protocol(&'static str),
    /// The request is refused.
    Refused(String),
    /// The store refused a change.
    Store(StoreWriteError),
}

impl From<StoreWriteError> for ReceiveError {
    fn from(error: StoreWriteError) -> ReceiveError {
        match error {
            // The store is in order, and the publisher has to act.
            StoreWriteError::Quota { .. }
            | StoreWriteError::ForeignLabel { .. }
            | StoreWriteError::TooManyLabels(_) => ReceiveError::Refused(error.to_string()),
            error => ReceiveError::Store(error),
        }
    }
}

impl From<io::Error> for ReceiveError {
    fn from(error: io::Error) -> ReceiveError {
        match error.kind() {
            io::ErrorKind::InvalidData => ReceiveError::Protocol("this is no frame of a publisher"),
            _ => ReceiveError::Stream(error),
        }
    }
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReceiveError::Stream(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                f.write_str("the connection ended within a request")
            }
            ReceiveError::Stream(error) => write!(f, "the connection failed: {error}"),
            ReceiveError::Protocol(what) => f.write_str(what),
            ReceiveError::Refused(reason) => f.write_str(reason),
            ReceiveError::Store(error) => write!(f, "the store: {error}"),
        }
    }
}

impl std::error::Error for ReceiveError {}
