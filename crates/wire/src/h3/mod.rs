//! Server side of HTTP/3 (RFC 9114), without a QUIC connection or a clock: bytes of streams in, events and
//! bytes out.
//!
//! [`request_stream`] reads request streams, [`unidirectional`] reads unidirectional streams. Field
//! compression ([`qpack`]) uses no dynamic table: streams do not depend on each other, and one encoded
//! field section can be sent to every client.

pub mod unidirectional;
pub mod error;
pub mod frame;
pub mod request_stream;
pub mod qpack;

#[cfg(test)]
mod tests;

pub use crate::h3::request_stream::{RequestStreamEvent, RequestStreamReceiver};
pub use crate::h3::unidirectional::{UnidirectionalState, UnidirectionalStream};
pub use error::{H3ConnectionError, H3ErrorCode};
