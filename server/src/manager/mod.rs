//! The manager: a page about the whole server for the operator, on a listener of its own, with edits of the
//! members of balancers.
//!
//! The handler answers from a snapshot that the control plane makes at most once a second for all clients, and
//! not at all without clients. Edits travel to the control plane as commands of the control socket.

mod access;
mod channel;
mod form;
mod guard;
mod handler;
mod page;
mod sessions;

pub use channel::{ManagerContext, ManagerRequest, Snapshot};
pub use handler::manager_handler;
