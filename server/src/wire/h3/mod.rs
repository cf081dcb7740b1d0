//! HTTP/3, the server's side (RFC 9114), without a connection of QUIC or a clock: bytes of streams in,
//! meaning and bytes out.
//!
//! [`message`] reads the stream of a request, [`control`] those that go one way. Field compression
//! ([`qpack`]) does without a dynamic table, so nothing ties the streams of a connection together,
//! and what is sent can be made once for everybody.

pub mod unidirectional;
pub mod error;
pub mod frame;
pub mod request_stream;
pub mod qpack;

#[cfg(test)]
mod tests;

pub use crate::wire::h3::request_stream::{RequestStreamEvent, RequestStreamReceiver};
pub use crate::wire::h3::unidirectional::{UnidirectionalState, UnidirectionalStream};
pub use error::{H3ConnectionError, H3ErrorCode};
