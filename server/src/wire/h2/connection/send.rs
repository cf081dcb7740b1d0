//! What we send: heads, bodies as far as the windows allow and in the order that the peer wants,
//! and the end.

use super::super::frame::{self, HEADER_BYTES};
use super::super::hpack;

use super::*;

/// The payload of the PING that goes with the first of two GOAWAYs.
pub(super) const LAST_PING: [u8; 8] = *b"anthill!";

impl<T> H2Connection<T> {
    /// How urgent a request's response is: by PRIORITY_UPDATE if it came, else by its own field.
    pub fn priority_of(&mut self, id: u32, field: Option<Priority>) -> Priority {
        let ahead = self.ahead.iter().position(|(known, _)| *known == id);
        let ahead = ahead.map(|at| self.ahead.swap_remove(at).1);
        ahead.or(field).unwrap_or_default()
    }

    /// Takes up a request that can't be answered at once.
    pub fn accept(&mut self, id: u32, remote: RemoteState, priority: Priority, work: T) {
        let mut stream = H2Stream::new(id, remote, self.peer.window_bytes, work);
        stream.priority = priority;
        self.turns += 1;
        stream.turn = self.turns;
        self.streams.push(stream);
    }

    /// Begins the head of a response, whose field block is then appended to `out`; where it begins.
    pub fn begin_head(&mut self, id: u32) -> usize {
        let at = self.out.len();
        frame::header(&mut self.out, 0, frame::HEADERS, 0, id);
        if std::mem::take(&mut self.says_no_table) {
            hpack::push_no_table(&mut self.out);
        }
        at
    }

    /// Ends the head that begins at `at`; it ends the stream where there is no body. A stream that
    /// is in the table is then to be finished.
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

    /// Both at once, for a field block that is there.
    pub fn head(&mut self, id: u32, block: &[u8], is_last: bool) {
        let at = self.begin_head(id);
        self.out.extend_from_slice(block);
        self.end_head(id, at, is_last);
    }

    /// May a body of so many bytes leave at once, in one frame, on a stream that has just begun?
    pub fn fits_at_once(&self, bytes: usize) -> bool {
        let window = self.send_window.min(i64::from(self.peer.window_bytes));
        bytes as i64 <= window.min(i64::from(self.peer.frame_bytes))
    }

    /// Writes the header of the one DATA frame that is a whole body, of a stream that isn't in the
    /// table: the driver puts the body behind it. See [`H2Connection::fits_at_once`].
    pub fn body_follows(&mut self, id: u32, bytes: usize) {
        frame::header(&mut self.out, bytes, frame::DATA, frame::END_STREAM, id);
        self.send_window -= bytes as i64;
    }

    /// A stream that never was in the table is done with; resets it if the peer isn't.
    pub fn finish_unaccepted(&mut self, id: u32, ended: bool) {
        self.calm.refund(limits::RESPONSE_POINTS);
        if !ended {
            frame::reset(&mut self.out, id, H2ErrorCode::NO_ERROR);
            self.remember_reset(id);
        }
    }

    /// Refuses a request that has not been accepted.
    pub fn refuse(
        &mut self,
        id: u32,
        code: H2ErrorCode,
        now_ms: u64,
    ) -> Result<(), H2ConnectionError> {
        self.stream_error(id, code, now_ms).map(drop)
    }

    /// Refuses a request that has not been accepted, for lack of room: the client may send it again
    /// (RFC 9113 §8.7). Its points stay, since the refusal is the server's doing.
    pub fn refuse_for_load(&mut self, id: u32, ended: bool) {
        frame::reset(&mut self.out, id, H2ErrorCode::REFUSED_STREAM);
        if !ended {
            self.remember_reset(id);
        }
    }

    /// Forgets a stream whose response was whole before the request was, now that the request is.
    pub fn drained(&mut self, id: u32) -> Option<T> {
        let place = self.place(id)?;
        Some(self.streams.remove(place).work)
    }

    /// The response is whole and the rest of the request is still to be read: what the response has
    /// given back for being whole.
    pub fn answered_early(&mut self) {
        self.calm.refund(limits::RESPONSE_POINTS);
    }

    /// The response is whole: forgets the stream. The rest of the request, if there is more, isn't
    /// wanted (RFC 9113 §8.1).
    pub fn finish(&mut self, id: u32) -> Option<T> {
        let stream = self.streams.remove(self.place(id)?);
        self.finish_unaccepted(id, stream.remote == RemoteState::Ended);
        Some(stream.work)
    }

    /// Ends a stream that can't be brought to its end.
    pub fn reset(&mut self, id: u32, code: H2ErrorCode) -> Option<T> {
        let stream = self.streams.remove(self.place(id)?);
        frame::reset(&mut self.out, id, code);
        if stream.remote != RemoteState::Ended {
            self.remember_reset(id);
        }
        Some(stream.work)
    }

    /// Of the streams that are ready, the one whose turn it is, with the bytes that its next DATA
    /// frame may have; None while the windows allow nothing.
    pub fn next_to_send(&self) -> Option<(u32, usize)> {
        let may_send = |stream: &&H2Stream<T>| stream.ready && stream.send_window > 0;
        if self.send_window <= 0 {
            return None;
        }
        let stream = self
            .streams
            .iter()
            .filter(may_send)
            .min_by_key(|it| it.rank())?;
        let window = self.send_window.min(stream.send_window);
        let bytes = window.min(i64::from(self.peer.frame_bytes));
        Some((stream.id, bytes as usize))
    }

    /// Begins a DATA frame, whose payload is then appended to `out`; where it begins.
    pub fn begin_data(&mut self, id: u32) -> usize {
        let at = self.out.len();
        frame::header(&mut self.out, 0, frame::DATA, 0, id);
        at
    }

    /// Ends the DATA frame that begins at `at`; one that is empty and not the last is taken back.
    pub fn end_data(&mut self, id: u32, at: usize, is_last: bool) {
        let bytes = self.out.len() - at - HEADER_BYTES;
        if bytes == 0 && !is_last {
            return self.out.truncate(at);
        }
        let flags = if is_last { frame::END_STREAM } else { 0 };
        frame::finish(&mut self.out, at, flags);
        self.send_window -= bytes as i64;
        self.calm.refund_sent_bytes(bytes);
        self.turns += 1;
        let turn = self.turns;
        if let Some(stream) = self.stream(id) {
            stream.send_window -= bytes as i64;
            stream.sent += bytes as u64;
            stream.left = stream.left.saturating_sub(bytes as u64);
            stream.turn = turn;
        }
    }

    /// Nothing more may be sent on any stream until the peer widens the connection's window.
    pub fn is_blocked(&self) -> bool {
        self.send_window <= 0
    }

    /// So many bytes of a stream's body were taken: the peer may send as many more. It is told when
    /// it is worth a frame.
    pub fn release_capacity(&mut self, id: u32, bytes: usize) {
        self.release_connection_capacity(bytes as u32);
        self.release_stream_capacity(id, bytes as u32);
    }

    /// The same for this stream alone: for all together it was said before.
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

    /// The same for what belongs to no stream any more.
    pub fn release_connection_capacity(&mut self, bytes: u32) {
        self.taken += bytes;
        if self.taken >= limits::H2_CONNECTION_WINDOW_BYTES / 2 {
            self.receive_window += self.taken;
            frame::window_update(&mut self.out, 0, self.taken);
            self.taken = 0;
        }
    }

    /// The first of two GOAWAYs: the peer is to begin nothing more, but what it has begun by then
    /// is still answered (RFC 9113 §6.8). Its PING comes back when it knows.
    pub fn goaway_graceful(&mut self) {
        frame::goaway(&mut self.out, WINDOW_BYTES_MAX, H2ErrorCode::NO_ERROR, "");
        frame::ping(&mut self.out, 0, &LAST_PING);
    }

    /// The last GOAWAY: nothing is taken that begins after this.
    pub fn goaway(&mut self, code: H2ErrorCode, reason: &str) {
        self.accepts_to = self.last;
        frame::goaway(&mut self.out, self.last, code, reason);
    }
}
