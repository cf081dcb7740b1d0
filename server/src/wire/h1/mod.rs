//! HTTP/1.1 (RFC 9112): request heads, message bodies, and response heads for the server's own requests.

pub mod body_decoder;
pub mod request;
pub mod response;
