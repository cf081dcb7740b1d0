//! HTTP/3: QUIC by quinn, below the protocol logic of `wire::h3`.
//!
//! One endpoint serves all workers. The worker that hosts an address reads the socket, and assigns each new
//! connection to the worker with the fewest connections. From then on the connection belongs to the
//! assigned worker, which decrypts, answers and writes to the socket. The hosting worker only passes
//! received datagrams on. A client may change address or port at will: a connection never moves to another
//! worker.
//!
//! While a new program takes over, several processes have connections over one UDP socket. The newest reads
//! the socket, and forwards the packets for connections of older processes, known by the first byte of the connection
//! id, over a socket pair to each process (`connection_id`, `forwards`, `socket`).

mod call;
mod connection;
mod connection_guard;
mod connection_id;
pub(super) mod context;
pub(super) mod endpoint;
mod exchange;
mod forwarded;
mod forwards;
mod pending_request;
mod response;
mod session;
mod socket;

pub use crate::serve::quic_forward::QuicForward;
pub use context::QuicWorkers;
