//! HTTP/1.1 (RFC 9112): request heads, message bodies, and response heads where the server is the client.

pub mod body_decoder;
pub mod request;
pub mod response;
