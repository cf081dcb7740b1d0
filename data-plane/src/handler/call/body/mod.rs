//! Request bodies for scripts: the first part in memory, the spool on disk and the minimum
//! rates.

pub(crate) mod error;
pub(in crate::handler) mod rate;
pub mod request_body;
pub(crate) mod spool;
