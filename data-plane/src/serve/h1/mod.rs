//! HTTP/1.1 on the data plane: the session of a connection, a handler call, a tunnel, and sending a
//! response.

mod call;
mod call_driver;
mod call_head;
mod chunk;
mod out_buffer;
mod response;
pub(super) mod send;
pub(super) mod session;
mod tunnel;
mod unsent_response;
mod upload;

#[cfg(test)]
mod tests;
