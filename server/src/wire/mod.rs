//! Bytes to meaning and back: no socket, no clock, no async (`tests/layers.rs` holds that).
//!
//! Everything here can be fed at any split point, and is fuzzed without a port.

pub mod body;
pub mod check;
pub mod coding;
pub mod date;
pub mod etag;
pub mod fields;
pub mod h1;
pub mod h2;
pub mod head;
pub mod json;
mod noted;
pub mod range;
pub mod reject;
pub mod response;
mod scan;
pub mod status;
pub mod target;
