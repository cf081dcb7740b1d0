//! Parsers and encoders of the wire formats: pure functions and state machines without sockets, files, clock or async
//! code. The crate has no dependencies, and its clippy.toml refuses the rest.
//!
//! Every decoder accepts input split at any byte, and is fuzzed without a port.

#![forbid(unsafe_code)]

pub mod limits;
pub mod cache_control;
pub mod abuse_budget;
pub mod cgi;
#[cfg(any(test, feature = "fuzzing"))]
pub mod invariants;
pub mod content_coding;
pub mod cookie;
pub mod date;
pub mod etag;
pub mod fastcgi;
pub mod fields;
pub mod forwarded;
pub mod framing_fields;
pub mod h2;
pub mod h3;
pub mod heartbeat;
pub mod number_text;
pub mod ip_endpoint;
pub mod hop_by_hop;
pub mod request_head;
pub mod json;
pub mod huffman;
pub mod identity_fields;
mod hpack_primitives;
mod request_head_builder;
pub mod location;
pub mod origin_fields;
pub mod normal_path;
pub mod path_readings;
pub mod pkt_line;
pub mod smart_http;
pub mod priority;
pub mod proxy_protocol;
pub mod range;
pub mod reject;
pub mod response_fields;
pub mod scgi;
pub mod field_section;
mod byte_search;
pub mod status;
pub mod trailers;
mod upgrade;
pub mod request_target;
pub mod via;
pub mod webdav;
pub mod h1;

pub use crate::request_head_builder::effective_host;
