//! Bytes of a response that wait for the socket.

use crate::limits::{COPIED_CONTENT_BYTES_MAX, SENT_BYTES_KEPT_MAX};
use crate::serve::maybe_tls_stream::MaybeTlsStream;
use std::io::IoSlice;
use std::task::{Context, Poll, ready};

/// Bytes to send, and the part that the stream has taken.
#[derive(Default)]
pub(super) struct OutBuffer {
    /// Bytes to send. The first `at` bytes of these and of the tail are sent.
    pub(super) bytes: Vec<u8>,
    /// The rest of the response behind `bytes`, sent without a copy.
    tail: Vec<u8>,
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
        self.bytes.len() + self.tail.len() - self.at
    }

    /// Appends the last content of a response. Only short content is copied. Nothing may be appended later.
    pub(super) fn push_last(&mut self, content: Vec<u8>) {
        if content.len() <= COPIED_CONTENT_BYTES_MAX {
            self.bytes.extend_from_slice(&content);
        } else {
            self.tail = content;
        }
    }

    /// Sends the bytes. Ready with false if the peer has disconnected.
    pub(super) fn poll_send(
        &mut self,
        stream: &mut MaybeTlsStream,
        cx: &mut Context<'_>,
    ) -> Poll<bool> {
        let sent = self.poll_send_all(stream, cx);
        if sent.is_pending() && self.at >= SENT_BYTES_KEPT_MAX && self.tail.is_empty() {
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
            if self.unsent() == 0 {
                self.bytes.clear();
                self.tail = Vec::new();
                self.at = 0;
                return Poll::Ready(true);
            }
            let (bytes, tail) = match self.at.checked_sub(self.bytes.len()) {
                None => (&self.bytes[self.at..], &self.tail[..]),
                Some(tail_at) => (&self.tail[tail_at..], &[][..]),
            };
            let slices = [IoSlice::new(bytes), IoSlice::new(tail)];
            let slices = if tail.is_empty() {
                &slices[..1]
            } else {
                &slices
            };
            let Ok(taken) = ready!(stream.poll_write(cx, slices)) else {
                return Poll::Ready(false);
            };
            self.at += taken;
            self.taken += taken as u64;
        }
    }
}
