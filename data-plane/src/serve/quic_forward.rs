//! Passage of a process's end of a socket pair to the process that takes over.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// Socket over which the reader of a UDP socket forwards the packets of another process.
#[derive(Debug)]
pub struct QuicForward {
    /// Address of the UDP socket.
    pub address: SocketAddr,
    /// Generation of the process at the other end of the pair: the first byte of its connection ids.
    pub generation: u8,
    /// End of the pair for the process that reads the UDP socket.
    pub socket: OwnedFd,
}
