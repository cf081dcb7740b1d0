//! Request bodies on their way to a script: the memory budget, the spool on disk and the minimum rates.

pub mod budget;
pub(in crate::handler) mod rate;
pub mod spool;
