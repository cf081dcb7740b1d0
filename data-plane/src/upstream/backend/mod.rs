//! Connections to FastCGI and SCGI backends. The file has the exports alone.
//!
//! An idle connection occupies a process of most backends, php-fpm among them. By default no connection
//! stays open for longer than a few milliseconds without a call. The operator may configure a number of
//! kept connections. The number then bounds the connections of all workers together: a further call waits
//! for a free connection and reuses the connection unchanged.
//!
//! Without a configured number, a connection to a Unix socket is handed over to a waiting call, or to a
//! call arriving within a few milliseconds, for at most 50 ms in all. The handover spares a busy backend
//! most of the connection setup, and no process of the backend stays reserved for the server.

mod backends;
mod conn;
mod handover;
mod report;
mod reuse_policy;

pub use crate::upstream::backend::backends::{Backend, Backends};
pub(crate) use crate::upstream::backend::conn::{Conn, IdleConn};
pub use crate::upstream::backend::report::{BackendReport, BackendRoute};
pub use crate::upstream::backend::reuse_policy::ReusePolicy;
