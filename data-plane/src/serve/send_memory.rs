//! Memory of a handler's response on its way to the client, in the ledger of the bodies under way: the bytes that
//! wait for the socket, and the bytes that wait in the kernel.

use crate::ledger::body_memory::{BodyAccount, BodyPurpose};
use crate::limits::{PIPE_BYTES_MIN, SOCKET_STREAM_BYTES, UNSENT_BYTES_MAX};
use crate::serve::socket::TcpSocket;

/// Reserves the memory of the socket for a streamed response of `length` bytes. Without the memory, the kernel
/// gets only a few bytes at once.
pub(super) fn reserve_socket(memory: &BodyAccount, socket: &TcpSocket, length: Option<u64>) {
    let most = SOCKET_STREAM_BYTES as u64;
    let bytes = length.unwrap_or(most).min(most) as usize;
    let is_granted = bytes <= PIPE_BYTES_MIN || memory.try_reserve(bytes, BodyPurpose::ReadAhead);
    socket.set_narrow(!is_granted);
}

/// Reserves the memory of the socket later, if the response began without, and memory has become free.
pub(super) fn reserve_socket_again(memory: &BodyAccount, socket: &TcpSocket) {
    if socket.is_narrow() && !memory.is_pressed() {
        reserve_socket(memory, socket, None);
    }
}

/// Reserves the memory of a whole response of `bytes` bytes, which waits for the client.
pub(super) fn reserve_whole(memory: &BodyAccount, bytes: usize) {
    memory.reserve(bytes.saturating_sub(PIPE_BYTES_MIN));
}

/// Returns the number of bytes that may wait for the socket before the handler's bytes stay in the pipe. While the
/// memory of the bodies under way is short, the handler's bytes stay in the pipe until the socket has taken all.
pub(super) fn unsent_bytes_max(memory: &BodyAccount) -> usize {
    if memory.is_pressed() {
        0
    } else {
        UNSENT_BYTES_MAX / 2
    }
}
