//! Active checks of members, made once for all workers. The file has the export alone.

mod checker;
mod exchange;
mod h2_reader;
mod reader;

pub use crate::upstream::check::checker::Checker;
