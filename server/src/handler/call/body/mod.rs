//! Request bodies for scripts: the memory budget, the spool on disk and the minimum rates.

pub mod budget;
pub(in crate::handler) mod rate;
pub mod spool;
