//! Replacement of the manager in a build without the feature `manager`: the configuration refuses a manager, so no
//! request comes.

use super::control_request::{ControlRequest, SnapshotState};
use crate::config::{Config, OperatorError};
use data_plane::handler::route_handler::RouteHandler;
use data_plane::world::users::Logins;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc::{self, Receiver};

/// Request to the control plane, never sent.
pub type ManagerRequest = ControlRequest<Snapshot>;

/// Empty replacement of a snapshot.
pub struct Snapshot;

/// Empty replacement of the state of the manager.
pub struct ManagerContext;

impl ManagerContext {
    /// Returns the context, and a closed channel.
    pub(crate) fn new(
        _origin: Instant,
    ) -> io::Result<(Arc<ManagerContext>, Receiver<ManagerRequest>)> {
        Ok((Arc::new(ManagerContext), mpsc::channel(1).1))
    }

    /// Returns no snapshot.
    pub(crate) fn recent_snapshot(&self) -> Option<Arc<Snapshot>> {
        None
    }

    /// Returns an empty snapshot.
    pub(crate) fn add_snapshot(&self, _state: SnapshotState) -> Arc<Snapshot> {
        Arc::new(Snapshot)
    }

    /// Returns 0.
    pub(crate) fn changes(&self) -> u64 {
        0
    }

    /// Does nothing.
    pub(crate) fn forget_snapshot(&self) {}

    /// Does nothing.
    pub(crate) fn forget_old_snapshot(&self) {}

    /// Returns no secret.
    pub(crate) fn new_secret(&self) -> Option<String> {
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
