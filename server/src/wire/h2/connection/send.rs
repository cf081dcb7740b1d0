//! Sending half of an HTTP/2 connection: response heads, bodies within the flow-control windows and in the
//! order of priority, and the end of streams.

use super::super::frame::{self, HEADER_BYTES};
use super::super::hpack;

use super::*;

/// Payload of the PING behind the first of two GOAWAYs.
pub(super) const LAST_PING: [u8; 8] = *b"anthill!";

impl<T> H2Connection<T> {
    /// Returns the priority of a response: from an early PRIORITY_UPDATE, else from the request's Priority
    /// field.
    pub fn priority_of(&mut self, id: u32, field: Option<Priority>) -> Priority {
        let ahead = self.ahead.iter().position(|(known, _)| *known == id);
        let ahead = ahead.map(|at| self.ahead.swap_remove(at).1);
        ahead.or(field).unwrap_or_default()
    }

    /// Adds a stream with a request that cannot be answered at once.
    pub fn accept(&mut self, id: u32, remote: RemoteState, priority: Priority, work: T) {
        let mut stream = H2Stream::new(id, remote, self.peer.window_bytes, work);
        stream.priority = priority;
        self.turns += 1;
        stream.turn = self.turns;
        self.streams.push(stream);
    }

    /// Begins HEADERS of a response and returns the position of the frame. The caller appends the field
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

    /// Returns true if a body of `bytes` bytes fits into a single frame and both windows, on a stream that
    /// has just begun.
    pub fn fits_at_once(&self, bytes: usize) -> bool {
        let window = self.send_window.min(i64::from(self.peer.window_bytes));
        bytes as i64 <= window.min(i64::from(self.peer.frame_bytes))
    }

    /// Appends the header of a DATA frame with the whole body, on a stream outside of the table. The driver
    /// sends the body behind the header. See [`H2Connection::fits_at_once`].
    pub fn body_follows(&mut self, id: u32, bytes: usize) {
        frame::header(&mut self.out, bytes, frame::DATA, frame::END_STREAM, id);
        self.send_window -= bytes as i64;
    }

    /// Ends a stream that was never in the table, and resets the stream if the peer has not ended it.
    pub fn finish_unaccepted(&mut self, id: u32, ended: bool) {
        self.abuse_budget.refund(limits::RESPONSE_POINTS);
        if !ended {
            frame::reset(&mut self.out, id, H2ErrorCode::NO_ERROR);
            self.remember_reset(id);
        }
    }

    /// Refuses a request that was not accepted.
    pub fn refuse(
        &mut self,
        id: u32,
        code: H2ErrorCode,
        now_ms: u64,
    ) -> Result<(), H2ConnectionError> {
        self.stream_error(id, code, now_ms).map(drop)
    }

    /// Refuses a request that was not accepted for lack of capacity; the client may retry (RFC 9113 §8.7).
    /// The refusal refunds no points and costs none, since the server caused the refusal.
    pub fn refuse_for_load(&mut self, id: u32, ended: bool) {
        frame::reset(&mut self.out, id, H2ErrorCode::REFUSED_STREAM);
        if !ended {
            self.remember_reset(id);
        }
    }

    /// Removes a stream with an early response, after the rest of the request has been read.
    pub fn drained(&mut self, id: u32) -> Option<T> {
        let place = self.place(id)?;
        Some(self.streams.remove(place).work)
    }

    /// Refunds the points for a response completed before its request.
    pub fn answered_early(&mut self) {
        self.abuse_budget.refund(limits::RESPONSE_POINTS);
    }

    /// Removes a stream after a complete response. An incomplete request is reset, since its rest is not
    /// needed (RFC 9113 §8.1).
    pub fn finish(&mut self, id: u32) -> Option<T> {
        let stream = self.streams.remove(self.place(id)?);
        self.finish_unaccepted(id, stream.remote == RemoteState::Ended);
        Some(stream.work)
    }

    /// Resets a stream if its response cannot be completed.
    pub fn reset(&mut self, id: u32, code: H2ErrorCode) -> Option<T> {
        let stream = self.streams.remove(self.place(id)?);
        frame::reset(&mut self.out, id, code);
        if stream.remote != RemoteState::Ended {
            self.remember_reset(id);
        }
        Some(stream.work)
    }

    /// Returns the ready stream that is next by priority, and the largest payload of its next DATA frame;
    /// `None` while a window is closed.
    pub fn next_to_send(&self) -> Option<(u32, usize)> {
        let may_send = |stream: &&H2Stream<T>| stream.ready && stream.send_window > 0;
        if self.send_window <= 0 {
            return None;
        }
        let stream = self
            .streams
            .iter()
            .filter(may_send)
            .min_by_key(|stream| stream.rank())?;
        let window = self.send_window.min(stream.send_window);
        let bytes = window.min(i64::from(self.peer.frame_bytes));
        Some((stream.id, bytes as usize))
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

    /// Returns true if the connection's send window is closed, and no stream may send DATA before a
    /// WINDOW_UPDATE.
    pub fn is_blocked(&self) -> bool {
        self.send_window <= 0
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
        if more >= WINDOW_BYTES / 2 && stream.remote != RemoteState::Ended {
            stream.taken = 0;
            stream.receive_window += more;
            frame::window_update(&mut self.out, id, more);
        }
    }

    /// Returns consumed bytes to the connection's window alone, for bytes without a stream.
    pub fn release_connection_capacity(&mut self, bytes: u32) {
        self.taken += bytes;
        if self.taken >= limits::H2_CONNECTION_WINDOW_BYTES / 2 {
            self.receive_window += self.taken;
            frame::window_update(&mut self.out, 0, self.taken);
            self.taken = 0;
        }
    }

    /// Sends the first of two GOAWAYs: the peer must start no new stream, but streams in flight are still
    /// answered (RFC 9113 §6.8). The acknowledgement of the PING behind the GOAWAY shows that the peer has
    /// read both.
    pub fn goaway_graceful(&mut self) {
        frame::goaway(&mut self.out, STREAM_ID_MAX, H2ErrorCode::NO_ERROR, "");
        frame::ping(&mut self.out, 0, &LAST_PING);
    }

    /// Sends the final GOAWAY: streams that begin later are ignored.
    pub fn goaway(&mut self, code: H2ErrorCode, reason: &str) {
        self.accepts_to = self.last;
        frame::goaway(&mut self.out, self.last, code, reason);
    }
}
