//! HTTP/3, the server's side (RFC 9114), without a connection of QUIC or a clock: bytes of streams in,
//! meaning and bytes out.
//!
//! [`message`] reads the stream of a request, [`control`] those that go one way. Field compression
//! ([`qpack`]) does without a dynamic table, so nothing ties the streams of a connection together,
//! and what is sent can be made once for everybody.

pub mod check;
pub mod control;
pub mod error;
pub mod frame;
pub mod message;
pub mod qpack;

#[cfg(test)]
mod tests;

pub use control::{Control, Inbound};
pub use error::{Code, Fatal};
pub use message::{Event, Receiver};
