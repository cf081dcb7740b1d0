//! HTTP/1.1 on the data plane: the session of a connection, a handler call, and sending a response.

pub mod session;
pub mod call;
pub mod send;
