//! What everything stands on and nothing in it is about the web.

pub mod clock;
pub mod digest;
pub mod hash;
pub mod lag;
pub mod log;
pub mod pool;
pub mod shares;
pub mod sort;
pub mod stats;
pub mod sys;
pub mod task;
pub mod text;
pub mod trusted_path;
pub mod whole;
