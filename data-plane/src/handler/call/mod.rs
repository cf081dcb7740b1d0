//! A call of a script or of git: the request, the transport (a process or a backend connection), standard
//! error, and termination.

pub mod request;
pub mod script_call;
pub mod body;
pub mod process;
pub(crate) mod reaper;
pub(in crate::handler) mod stderr;
