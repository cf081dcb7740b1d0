//! Requests of the manager to the control plane, and the state that the control plane collects for a snapshot. A
//! build without the manager has the types as well, so that the control plane has no part for each build.

use crate::admin::active_requests::ActiveRequestList;
use crate::admin::balancers::BalancerList;
use crate::admin::command::EditBatch;
use crate::admin::edit_ledger::EditState;
use crate::admin::metrics::MetricsFacts;
use crate::admin::metrics::history::Past;
use crate::admin::status::Status;
use data_plane::hits::SiteViews;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Request of the manager to the control plane. `S` is the type of a snapshot.
pub enum ControlRequest<S> {
    /// Makes a snapshot, unless a recent snapshot exists (`ManagerContext::recent_snapshot`).
    Snapshot(oneshot::Sender<Arc<S>>),
    /// Makes the edits of a user.
    Edit {
        /// The edits.
        batch: EditBatch,
        /// Name of the user.
        user: String,
        /// Sender of the answer.
        answer: oneshot::Sender<EditOutcome>,
    },
}

/// Answer to the edits of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditOutcome {
    /// The edits are made.
    Done,
    /// An edit is dangerous, and waits for the confirmation of the text by the user.
    Asks(String),
    /// The edits are refused for the reason.
    Refused(String),
}

/// State of the server at one moment.
pub struct SnapshotState {
    /// Changes of the members before the rest was collected (`ManagerContext::changes`).
    pub changes: u64,
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
    /// Page views of the sites that count views.
    pub hits: Vec<SiteViews>,
    /// Samples of the last minutes.
    pub history: Past,
}
