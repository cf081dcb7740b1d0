//! Buffer of a worker for bytes received from members.

use crate::limits::READ_BUFFER_BYTES;
use std::cell::RefCell;

thread_local! {
    /// Buffer for bytes received from members, shared by all connections of a worker.
    static RECEIVED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `read` with the worker's buffer for received bytes.
pub(crate) fn with_receive_buffer<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    RECEIVED.with_borrow_mut(|buffer| {
        if buffer.is_empty() {
            buffer.resize(READ_BUFFER_BYTES, 0);
        }
        read(buffer)
    })
}
