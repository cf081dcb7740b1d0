//! The manager: a page about the whole server for the operator, on a listener of its own, with edits of the
//! members of balancers.
//!
//! The handler answers from a snapshot that the control plane makes at most once a second for all clients, and
//! not at all without clients. The edits of a form travel to the control plane together.

#[cfg(feature = "manager")]
mod access;
#[cfg(feature = "manager")]
mod channel;
mod control_request;
#[cfg(feature = "manager")]
mod events;
#[cfg(feature = "manager")]
mod form;
#[cfg(feature = "manager")]
mod form_edit;
#[cfg(feature = "manager")]
mod guard;
#[cfg(feature = "manager")]
mod gzip;
#[cfg(feature = "manager")]
mod handler;
#[cfg(feature = "manager")]
pub mod limits;
#[cfg(feature = "manager")]
mod live_part;
#[cfg(feature = "manager")]
mod page;
#[cfg(not(feature = "manager"))]
mod no_manager;
#[cfg(feature = "manager")]
mod places;
#[cfg(feature = "manager")]
mod selection;
#[cfg(feature = "manager")]
mod sessions;
#[cfg(feature = "manager")]
mod snapshot;
#[cfg(feature = "manager")]
mod xml;

#[cfg(feature = "manager")]
pub use channel::{ManagerContext, ManagerRequest};
pub use control_request::{EditOutcome, SnapshotState};
#[cfg(feature = "manager")]
pub use handler::manager_handler;
#[cfg(not(feature = "manager"))]
pub use no_manager::{ManagerContext, ManagerRequest, Snapshot, manager_handler};
#[cfg(feature = "manager")]
pub use snapshot::Snapshot;
