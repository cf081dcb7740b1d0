//! (to be written)

pub mod allow;
pub mod users;
