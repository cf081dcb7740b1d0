//! Bytes of a response that wait for the socket.

use crate::limits::SENT_BYTES_KEPT_MAX;
use crate::serve::maybe_tls_stream::MaybeTlsStream;
use std::io::IoSlice;
use std::task::{Context, Poll, ready};

/// Bytes to send, and the part that the stream has taken.
#[derive(Default)]
pub(super) struct OutBuffer {
    /// Bytes to send. The first `at` bytes are sent.
    pub(super) bytes: Vec<u8>,
    at: usize,
    /// Total of the bytes taken by the stream.
    pub(super) taken: u64,
}

impl OutBuffer {
    /// Returns true if no bytes wait.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Frees the memory of an empty buffer.
    pub(super) fn release(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }

    /// Returns the number of bytes that wait.
    pub(super) fn unsent(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Sends the bytes. Ready with false if the peer has disconnected.
    pub(super) fn poll_send(
        &mut self,
        stream: &mut MaybeTlsStream,
        cx: &mut Context<'_>,
    ) -> Poll<bool> {
        let sent = self.poll_send_all(stream, cx);
        if sent.is_pending() && self.at >= SENT_BYTES_KEPT_MAX {
            // A peer that is slower than the source never empties the buffer.
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        sent
    }

    fn poll_send_all(&mut self, stream: &mut MaybeTlsStream, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            // The TLS stream takes a limited amount before a flush.
            if ready!(stream.poll_flush(cx)).is_err() {
                return Poll::Ready(false);
            }
            if self.at == self.bytes.len() {
                self.bytes.clear();
                self.at = 0;
                return Poll::Ready(true);
            }
            let waiting = IoSlice::new(&self.bytes[self.at..]);
            let Ok(taken) = ready!(stream.poll_write(cx, &[waiting])) else {
                return Poll::Ready(false);
            };
            self.at += taken;
            self.taken += taken as u64;
        }
    }
}
