//! HTTP/2, the server's side (RFC 9113), without a socket or a clock: bytes in, events and bytes
//! out.
//!
//! [`connection`] is the whole of it; the others are its parts. Whoever drives it brings the time
//! and the bytes, and hangs what he likes on each stream.

pub mod connection;
pub mod error;
pub mod frame;
pub mod hpack;
pub mod settings;
pub mod stream;

pub use connection::{H2Connection, H2Event};
pub use error::{H2ConnectionError, H2ErrorCode};
