//! Replacement of the manager in a build without the feature `manager`: the configuration refuses a manager, so no
//! request comes.

use super::snapshot_parts::SnapshotParts;
use crate::admin::command::Command;
use crate::config::{Config, OperatorError};
use crate::handler::route_handler::RouteHandler;
use crate::world::users::Logins;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc::{self, Receiver};
use tokio::sync::oneshot;

/// Replacement of a request to the control plane, never sent.
pub enum ManagerRequest {
    /// Replacement of the request for a snapshot.
    Snapshot(oneshot::Sender<Arc<Snapshot>>),
    /// Replacement of the request for an edit.
    Command {
        /// The command.
        command: Command,
        /// Name of the user.
        user: String,
        /// Sender of the answer.
        answer: oneshot::Sender<CommandAnswer>,
    },
}

/// Replacement of the answer to a command.
pub enum CommandAnswer {
    /// The command is executed.
    Done,
    /// The command waits for a confirmation.
    Asks(String),
    /// The command is refused.
    Refused(String),
}

/// Empty replacement of a snapshot.
pub struct Snapshot;

/// Empty replacement of the state of the manager.
pub struct ManagerContext;

impl ManagerContext {
    /// Returns the context, and a closed channel.
    pub fn new(_origin: Instant) -> io::Result<(Arc<ManagerContext>, Receiver<ManagerRequest>)> {
        Ok((Arc::new(ManagerContext), mpsc::channel(1).1))
    }

    /// Returns no snapshot.
    pub fn recent_snapshot(&self) -> Option<Arc<Snapshot>> {
        None
    }

    /// Returns an empty snapshot.
    pub fn add_snapshot(&self, _parts: SnapshotParts) -> Arc<Snapshot> {
        Arc::new(Snapshot)
    }

    /// Does nothing.
    pub fn forget_snapshot(&self) {}

    /// Does nothing.
    pub fn forget_old_snapshot(&self) {}

    /// Returns no secret.
    pub fn new_secret(&self) -> Option<String> {
        None
    }
}

/// Returns no handler.
pub fn manager_handler(
    _config: &Config,
    _logins: &Arc<Logins>,
    _context: &Arc<ManagerContext>,
) -> Result<Option<RouteHandler>, OperatorError> {
    Ok(None)
}
