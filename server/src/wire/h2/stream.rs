//! One stream (RFC 9113 §5.1): what either side may still send on it.
//!
//! A stream is in the table while a response is owed. One that is idle or closed isn't there: what
//! is known of those, [`super::connection`] tells by their numbers.

use super::error::{H2ConnectionError, H2ErrorCode};
use super::settings::{WINDOW_BYTES, WINDOW_BYTES_MAX};
use crate::limits::{H2_NON_INCREMENTAL_BYTES_MAX, H2_SMALL_BODY_BYTES};
use crate::wire::priority::Priority;

/// What the peer may still send (RFC 9113 §5.1: open, or half-closed (remote)).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RemoteState {
    /// DATA or trailers, of which Content-Length promised so many bytes more, if it was there.
    Open {
        /// Bytes still to come.
        promised: Option<u64>,
    },
    /// Nothing but WINDOW_UPDATE, PRIORITY and RST_STREAM.
    Ended,
}

/// A stream that is owed a response.
pub struct H2Stream<T> {
    /// Its number.
    pub id: u32,
    /// What the peer may still send.
    pub remote: RemoteState,
    /// How much the response may still be; below 0 after the peer took it back.
    pub(super) send_window: i64,
    /// How much of the body the peer may still send.
    pub(super) receive_window: u32,
    /// Taken of the body, and not yet told to the peer.
    pub(super) taken: u32,
    /// What the peer wants first.
    pub priority: Priority,
    /// There is something to be sent on it, if its window allows.
    pub ready: bool,
    /// Bytes of the response that are left, where that is known.
    pub left: u64,
    /// Bytes of it that were sent.
    pub sent: u64,
    /// When it had its last turn.
    pub(super) turn: u64,
    /// Whatever the driver hangs on it.
    pub work: T,
}

impl<T> H2Stream<T> {
    pub(super) fn new(id: u32, remote: RemoteState, send_window: u32, work: T) -> H2Stream<T> {
        H2Stream {
            id,
            remote,
            send_window: i64::from(send_window),
            receive_window: WINDOW_BYTES,
            taken: 0,
            priority: Priority::default(),
            ready: false,
            left: u64::MAX,
            sent: 0,
            turn: 0,
            work,
        }
    }

    /// Its own window keeps it from sending.
    pub fn is_blocked(&self) -> bool {
        self.ready && self.send_window <= 0
    }

    /// How much of its body the peer may still send before it is granted more.
    pub fn receive_window(&self) -> u32 {
        self.receive_window
    }

    /// The peer allows `more` bytes, or takes some back (RFC 9113 §6.9).
    pub(super) fn widen(&mut self, more: i64) -> Result<(), H2ErrorCode> {
        self.send_window += more;
        if self.send_window > i64::from(WINDOW_BYTES_MAX) {
            return Err(H2ErrorCode::FLOW_CONTROL_ERROR);
        }
        Ok(())
    }

    /// A DATA frame comes: `payload` bytes of body in a frame of `length`.
    pub(super) fn receive(&mut self, payload: usize, length: usize) -> Result<(), H2ErrorCode> {
        let RemoteState::Open { promised } = &mut self.remote else {
            return Err(H2ErrorCode::STREAM_CLOSED);
        };
        self.receive_window = self
            .receive_window
            .checked_sub(length as u32)
            .ok_or(H2ErrorCode::FLOW_CONTROL_ERROR)?;
        if let Some(left) = promised {
            *left = left
                .checked_sub(payload as u64)
                .ok_or(H2ErrorCode::PROTOCOL_ERROR)?;
        }
        Ok(())
    }

    /// The peer has sent all. As long as was promised (RFC 9113 §8.1.1)?
    pub(super) fn end(&mut self) -> Result<(), H2ErrorCode> {
        match std::mem::replace(&mut self.remote, RemoteState::Ended) {
            RemoteState::Open {
                promised: None | Some(0),
            } => Ok(()),
            RemoteState::Open { .. } => Err(H2ErrorCode::PROTOCOL_ERROR),
            RemoteState::Ended => Err(H2ErrorCode::STREAM_CLOSED),
        }
    }

    /// Whose turn is it? The least of all (RFC 9218 §10): the most urgent; of those, what is nearly
    /// done; then who wants to go alone, in the order of asking; then by turns.
    pub(super) fn rank(&self) -> (u8, bool, u64) {
        let is_large = self.left > H2_SMALL_BODY_BYTES as u64;
        let goes_alone = !self.priority.incremental && self.sent < H2_NON_INCREMENTAL_BYTES_MAX;
        let turn = match goes_alone {
            true => u64::from(self.id),
            // Behind every number that a stream can have.
            false => self.turn + (1 << 32),
        };
        (self.priority.urgency, is_large, turn)
    }
}

/// What a code on one stream means for a stream that isn't there any more.
pub(super) fn closed(reason: &'static str) -> H2ConnectionError {
    H2ConnectionError::new(H2ErrorCode::STREAM_CLOSED, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(remote: RemoteState) -> H2Stream<()> {
        H2Stream::new(1, remote, 100, ())
    }

    #[test]
    fn a_body_is_as_long_as_was_promised() {
        for (promised, parts, expected) in [
            (None, &[3, 4][..], Ok(())),
            (Some(7), &[3, 4], Ok(())),
            (Some(7), &[3, 5], Err(H2ErrorCode::PROTOCOL_ERROR)),
            (Some(7), &[3], Err(H2ErrorCode::PROTOCOL_ERROR)),
            (Some(0), &[], Ok(())),
        ] {
            let mut stream = stream(RemoteState::Open { promised });
            let received = parts
                .iter()
                .try_for_each(|part| stream.receive(*part, part + 2));
            let ended = received.and_then(|()| stream.end());
            assert_eq!(ended, expected, "{promised:?} {parts:?}");
        }
        let mut ended = stream(RemoteState::Ended);
        assert_eq!(ended.receive(0, 0), Err(H2ErrorCode::STREAM_CLOSED));
        assert_eq!(ended.end(), Err(H2ErrorCode::STREAM_CLOSED));
    }

    #[test]
    fn windows_bound_both_ways() {
        let mut stream = stream(RemoteState::Open { promised: None });
        assert_eq!(stream.receive(65_535, 65_535), Ok(()));
        assert_eq!(stream.receive(0, 0), Ok(()));
        assert_eq!(stream.receive(1, 1), Err(H2ErrorCode::FLOW_CONTROL_ERROR));
        stream.ready = true;
        assert_eq!(stream.widen(-100), Ok(()));
        assert!(stream.is_blocked());
        assert_eq!(stream.widen(i64::from(WINDOW_BYTES_MAX)), Ok(()));
        assert_eq!(stream.widen(1), Err(H2ErrorCode::FLOW_CONTROL_ERROR));
    }

    #[test]
    fn who_goes_first() {
        let with = |id, urgency, incremental, left, turn| {
            let mut stream: H2Stream<()> = H2Stream::new(id, RemoteState::Ended, 0, ());
            stream.priority = Priority {
                urgency,
                incremental,
            };
            (stream.left, stream.turn) = (left, turn);
            stream.rank()
        };
        let order = [
            with(9, 0, true, 1 << 30, 7),
            with(11, 3, true, 100, 5),
            with(3, 3, false, 1 << 20, 9),
            with(5, 3, false, 1 << 19, 1),
            with(7, 3, true, 1 << 20, 2),
            with(1, 3, true, 1 << 20, 4),
            with(13, 7, false, 10, 0),
        ];
        assert!(order.is_sorted(), "{order:?}");
    }
}
