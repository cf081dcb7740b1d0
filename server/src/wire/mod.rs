//! Bytes to meaning and back: no socket, no clock, no async (`tests/layers.rs` holds that).
//!
//! Everything here can be fed at any split point, and is fuzzed without a port.

pub mod body;
pub mod cache_control;
pub mod calm;
pub mod cgi;
pub mod check;
pub mod coding;
pub mod date;
pub mod etag;
pub mod fcgi;
pub mod fields;
pub mod h1;
pub mod h2;
pub mod h3;
pub mod head;
pub mod json;
pub mod huffman;
mod literal;
mod noted;
pub mod pkt_line;
pub mod priority;
pub mod range;
pub mod reject;
pub mod response;
pub mod request;
mod scan;
pub mod status;
pub mod target;

pub use noted::host_said;
