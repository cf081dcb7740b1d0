//! Sending half of an HTTP/2 connection: heads, bodies within the flow-control windows, and the end of streams.

use super::super::frame::{self, HEADER_BYTES};
use super::super::hpack;

use super::*;

impl<T, R: H2Role> H2Connection<T, R> {
    /// Begins HEADERS and returns the position of the frame. The caller appends the field
    /// block to `out`.
    pub fn begin_head(&mut self, id: u32) -> usize {
        let at = self.out.len();
        frame::header(&mut self.out, 0, frame::HEADERS, 0, id);
        if std::mem::take(&mut self.must_signal_empty_table) {
            hpack::push_no_table(&mut self.out);
        }
        at
    }

    /// Ends the HEADERS at position `at`, and with `is_last` the stream. The caller must then finish a
    /// stream that is in the table.
    pub fn end_head(&mut self, id: u32, at: usize, is_last: bool) {
        let end_stream = if is_last { frame::END_STREAM } else { 0 };
        let frame_bytes = self.peer.frame_bytes as usize;
        if self.out.len() - at - HEADER_BYTES <= frame_bytes {
            let flags = end_stream | frame::END_HEADERS;
            return frame::finish(&mut self.out[at..], 0, flags);
        }
        let whole = self.out.split_off(at + HEADER_BYTES);
        self.out.truncate(at);
        let count = whole.len().div_ceil(frame_bytes);
        for (nth, part) in whole.chunks(frame_bytes).enumerate() {
            let (kind, mut flags) = match nth {
                0 => (frame::HEADERS, end_stream),
                _ => (frame::CONTINUATION, 0),
            };
            if nth + 1 == count {
                flags |= frame::END_HEADERS;
            }
            frame::header(&mut self.out, part.len(), kind, flags, id);
            self.out.extend_from_slice(part);
        }
    }

    /// Appends HEADERS with an existing field block.
    pub fn head(&mut self, id: u32, block: &[u8], is_last: bool) {
        let at = self.begin_head(id);
        self.out.extend_from_slice(block);
        self.end_head(id, at, is_last);
    }

    /// Resets a stream that cannot be completed.
    pub fn reset(&mut self, id: u32, code: H2ErrorCode) -> Option<T> {
        let stream = self.streams.remove(self.place(id)?);
        frame::reset(&mut self.out, id, code);
        if stream.remote != RemoteState::Ended {
            self.remember_reset(id);
        }
        Some(stream.work)
    }

    /// Begins a DATA frame and returns the position of the frame. The caller appends the payload to `out`.
    pub fn begin_data(&mut self, id: u32) -> usize {
        let at = self.out.len();
        frame::header(&mut self.out, 0, frame::DATA, 0, id);
        at
    }

    /// Ends the DATA frame at position `at`. An empty frame that does not end the stream is removed.
    pub fn end_data(&mut self, id: u32, at: usize, is_last: bool) {
        let bytes = self.out.len() - at - HEADER_BYTES;
        if bytes == 0 && !is_last {
            return self.out.truncate(at);
        }
        let flags = if is_last { frame::END_STREAM } else { 0 };
        frame::finish(&mut self.out, at, flags);
        self.send_window -= bytes as i64;
        self.abuse_budget.refund_sent_bytes(bytes);
        self.turns += 1;
        let turn = self.turns;
        if let Some(stream) = self.stream(id) {
            stream.send_window -= bytes as i64;
            stream.sent += bytes as u64;
            stream.left = stream.left.saturating_sub(bytes as u64);
            stream.turn = turn;
        }
    }

    /// Returns `bytes` consumed bytes of a stream's body to both windows of the peer. WINDOW_UPDATE is sent
    /// once the amount is worth a frame.
    pub fn release_capacity(&mut self, id: u32, bytes: usize) {
        self.release_connection_capacity(bytes as u32);
        self.release_stream_capacity(id, bytes as u32);
    }

    /// Returns consumed bytes to the window of a single stream, if the connection's window was updated
    /// before.
    pub fn release_stream_capacity(&mut self, id: u32, bytes: u32) {
        let Some(stream) = self.place(id).map(|at| &mut self.streams[at]) else {
            return;
        };
        stream.taken += bytes;
        let more = stream.taken;
        if more >= stream.granted / 2 && !stream.fits_into_window() {
            stream.taken = 0;
            stream.receive_window += more;
            frame::window_update(&mut self.out, id, more);
        }
    }

    /// Sends WINDOW_UPDATE for all consumed bytes of a stream, also for few. The window of the stream is kept so small that
    /// the peer would wait for more.
    pub fn flush_stream_capacity(&mut self, id: u32) {
        let Some(stream) = self.place(id).map(|at| &mut self.streams[at]) else {
            return;
        };
        let more = std::mem::take(&mut stream.taken);
        if more > 0 && !stream.fits_into_window() {
            stream.receive_window += more;
            frame::window_update(&mut self.out, id, more);
        }
    }

    /// Returns consumed bytes to the connection's window alone, for bytes without a stream.
    pub fn release_connection_capacity(&mut self, bytes: u32) {
        let granted = bytes.min(self.ahead);
        self.ahead -= granted;
        self.taken += bytes - granted;
        if self.taken >= limits::H2_CONNECTION_WINDOW_BYTES / 2 {
            self.receive_window += self.taken;
            frame::window_update(&mut self.out, 0, self.taken);
            self.taken = 0;
        }
    }
}
