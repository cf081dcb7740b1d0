//! HTTP/2 (RFC 9113) in the roles of a server and of a client, without a socket or a clock: bytes in, events and
//! bytes out.
//!
//! [`connection`] combines the other modules. The driver supplies the bytes and the time, and attaches a
//! value to each stream.

pub mod connection;
pub mod error;
pub mod frame;
pub mod hpack;
pub mod role;
pub mod settings;
pub mod stream;
pub mod upload_length;

pub use connection::client::{H2ClientConnection, H2ClientEvent, H2StreamFailure};
pub use connection::{H2Connection, H2Event};
pub use error::{H2ConnectionError, H2ErrorCode, H2ResetCause};
pub use upload_length::UploadLength;
