//! HTTP/1.1 (RFC 9112): heads of requests and of responses, and message bodies.

pub mod body_decoder;
mod field_line;
pub mod request;
pub mod response_head;
