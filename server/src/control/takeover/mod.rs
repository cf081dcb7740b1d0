//! Takeover: a running server hands its listening sockets over to another process, its successor, and leaves. No client
//! notices: connections wait in the kernel while the one pauses and the other begins.
//!
//! The successor reads and builds everything before the running server pauses, so a mistake costs nothing. The running server
//! goes on if the successor vanishes before it serves. A server that leaves is a predecessor: it serves its open connections
//! until they end, and reports their number. `message.rs` has the messages, `link.rs` the transport, `departure.rs` the side of
//! the running server, `inheritance.rs` the side of the successor, and `predecessors.rs` the record of servers that leave.

mod departure;
mod inheritance;
mod link;
mod message;
mod predecessors;
mod supervision;
mod support;

pub(super) use departure::{Departing, DepartureEvent};
pub(super) use inheritance::Inheritance;
pub(super) use predecessors::Predecessors;
pub(super) use supervision::{Supervision, SupervisorEvent, SupervisorSockets, refuse};
