//! State of the server at one moment, as collected by the control plane for a snapshot.

use crate::admin::active_requests::ActiveRequestList;
use crate::admin::balancers::BalancerList;
use crate::admin::edit_ledger::EditState;
use crate::admin::metrics::MetricsFacts;
use crate::admin::metrics::history::Past;
use crate::admin::status::Status;
use std::net::SocketAddr;

/// State of the server at one moment.
pub struct SnapshotParts {
    /// State of the server.
    pub status: Status,
    /// State of the balancers.
    pub balancers: BalancerList,
    /// Requests under way.
    pub requests: ActiveRequestList,
    /// Edits of the balancers.
    pub edits: EditState,
    /// Facts of the metrics beside the status and the balancers.
    pub facts: MetricsFacts,
    /// Samples of the last minutes.
    pub history: Past,
    /// Addresses of the manager, each with true for TLS.
    pub listening: Vec<(SocketAddr, bool)>,
}
