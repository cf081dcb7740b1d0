//! HTTP/2: the protocol logic is in `wire::h2`; the socket, the World and the clock are handled here.

pub(super) mod buffers;
mod call;
mod exchange;
mod response;
pub(super) mod session;
mod timeouts;

#[cfg(test)]
mod tests;
