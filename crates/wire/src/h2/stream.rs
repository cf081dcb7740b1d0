//! State of a single stream (RFC 9113 §5.1): the bytes that each side may still send.
//!
//! A stream is in the table of [`super::connection`] while a response is owed. The connection identifies
//! idle and closed streams by their identifiers alone.

use super::error::{H2ConnectionError, H2ErrorCode, H2ResetCause};
use super::settings::{WINDOW_BYTES, WINDOW_BYTES_MAX};
use crate::limits::{H2_NON_INCREMENTAL_BYTES_MAX, H2_SMALL_BODY_BYTES};
use crate::priority::Priority;
use crate::reject::Reject;

/// Remote side of a stream (RFC 9113 §5.1): open, or half-closed (remote).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RemoteState {
    /// The peer may send DATA or trailers.
    Open {
        /// Rest of the length announced by Content-Length, if present.
        announced: Option<u64>,
    },
    /// The peer may send only WINDOW_UPDATE, PRIORITY and RST_STREAM.
    Ended,
}

/// Stream that awaits a response.
pub struct H2Stream<T> {
    /// Stream identifier.
    pub id: u32,
    /// Remote side of the stream.
    pub remote: RemoteState,
    /// Flow-control window for sending; negative after the peer has reduced its initial window size.
    pub(super) send_window: i64,
    /// Flow-control window granted to the peer.
    pub(super) receive_window: u32,
    /// Largest size of the window granted to the peer.
    pub(super) granted: u32,
    /// Bytes of the body consumed since the last WINDOW_UPDATE.
    pub(super) taken: u32,
    /// Priority requested by the peer.
    pub priority: Priority,
    /// The driver has DATA to send, window permitting.
    pub ready: bool,
    /// The stream is an open tunnel (RFC 8441), or a request to a server. Short DATA frames are messages and no
    /// waste, and the messages take turns with other responses.
    pub carries_messages: bool,
    /// Rest of the response in bytes; `u64::MAX` if unknown.
    pub left: u64,
    /// Bytes of the response sent so far.
    pub sent: u64,
    /// Counter value of the last DATA frame, for round-robin order.
    pub(super) turn: u64,
    /// Driver's value for the stream.
    pub work: T,
}

impl<T> H2Stream<T> {
    pub(super) fn new(id: u32, remote: RemoteState, send_window: u32, work: T) -> H2Stream<T> {
        H2Stream {
            id,
            remote,
            send_window: i64::from(send_window),
            receive_window: WINDOW_BYTES,
            granted: WINDOW_BYTES,
            taken: 0,
            priority: Priority::default(),
            ready: false,
            carries_messages: false,
            left: u64::MAX,
            sent: 0,
            turn: 0,
            work,
        }
    }

    /// Returns true if DATA is ready and the stream's send window is closed.
    pub fn is_blocked(&self) -> bool {
        self.ready && self.send_window <= 0
    }

    /// Returns the flow-control window granted to the peer.
    pub fn receive_window(&self) -> u32 {
        self.receive_window
    }

    /// Returns true if the peer needs no WINDOW_UPDATE, because the rest of the announced length fits into the window.
    pub(super) fn fits_into_window(&self) -> bool {
        match self.remote {
            RemoteState::Open { announced } => {
                announced.is_some_and(|left| left <= u64::from(self.receive_window))
            }
            RemoteState::Ended => true,
        }
    }

    /// Changes the send window by `more` bytes, which may be negative (RFC 9113 §6.9).
    pub(super) fn widen(&mut self, more: i64) -> Result<(), H2ErrorCode> {
        self.send_window += more;
        if self.send_window > i64::from(WINDOW_BYTES_MAX) {
            return Err(H2ErrorCode::FLOW_CONTROL_ERROR);
        }
        Ok(())
    }

    /// Counts a DATA frame with `payload` bytes of body and `length` bytes in total.
    pub(super) fn receive(&mut self, payload: usize, length: usize) -> Result<(), H2ResetCause> {
        let RemoteState::Open { announced } = &mut self.remote else {
            return Err(H2ErrorCode::STREAM_CLOSED.into());
        };
        self.receive_window = self
            .receive_window
            .checked_sub(length as u32)
            .ok_or(H2ErrorCode::FLOW_CONTROL_ERROR)?;
        if let Some(left) = announced {
            *left = left
                .checked_sub(payload as u64)
                .ok_or(H2ResetCause::Malformed(Reject::BODY_LENGTH))?;
        }
        Ok(())
    }

    /// Ends the remote side. Fails if the body differs from its announced length (RFC 9113 §8.1.1).
    pub(super) fn end(&mut self) -> Result<(), H2ResetCause> {
        match std::mem::replace(&mut self.remote, RemoteState::Ended) {
            RemoteState::Open {
                announced: None | Some(0),
            } => Ok(()),
            RemoteState::Open { .. } => Err(H2ResetCause::Malformed(Reject::BODY_LENGTH)),
            RemoteState::Ended => Err(H2ErrorCode::STREAM_CLOSED.into()),
        }
    }

    /// Returns the sort key for sending: the stream with the smallest key sends next (RFC 9218 §10). The
    /// key orders streams by urgency; within an urgency, nearly complete responses come first, then
    /// non-incremental responses by stream identifier, then all other responses in round-robin order.
    pub(super) fn rank(&self) -> (u8, bool, u64) {
        let is_large = self.left > H2_SMALL_BODY_BYTES as u64;
        let is_incremental = self.priority.incremental || self.carries_messages;
        let goes_alone = !is_incremental && self.sent < H2_NON_INCREMENTAL_BYTES_MAX;
        let turn = if goes_alone {
            u64::from(self.id)
        } else {
            // Above every stream identifier.
            self.turn + (1 << 32)
        };
        (self.priority.urgency, is_large, turn)
    }
}

/// Returns the connection error STREAM_CLOSED, for a frame on a closed stream.
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
    fn a_body_must_have_its_announced_length() {
        let wrong_length = H2ResetCause::Malformed(Reject::BODY_LENGTH);
        for (announced, parts, expected) in [
            (None, &[3, 4][..], Ok(())),
            (Some(7), &[3, 4], Ok(())),
            (Some(7), &[3, 5], Err(wrong_length)),
            (Some(7), &[3], Err(wrong_length)),
            (Some(0), &[], Ok(())),
        ] {
            let mut stream = stream(RemoteState::Open { announced });
            let received = parts
                .iter()
                .try_for_each(|part| stream.receive(*part, part + 2));
            let ended = received.and_then(|()| stream.end());
            assert_eq!(ended, expected, "{announced:?} {parts:?}");
        }
        let mut ended = stream(RemoteState::Ended);
        assert_eq!(ended.receive(0, 0), Err(H2ErrorCode::STREAM_CLOSED.into()));
        assert_eq!(ended.end(), Err(H2ErrorCode::STREAM_CLOSED.into()));
    }

    #[test]
    fn windows_bound_both_directions() {
        let mut stream = stream(RemoteState::Open { announced: None });
        assert_eq!(stream.receive(65_535, 65_535), Ok(()));
        assert_eq!(stream.receive(0, 0), Ok(()));
        assert_eq!(
            stream.receive(1, 1),
            Err(H2ErrorCode::FLOW_CONTROL_ERROR.into())
        );
        stream.ready = true;
        assert_eq!(stream.widen(-100), Ok(()));
        assert!(stream.is_blocked());
        assert_eq!(stream.widen(i64::from(WINDOW_BYTES_MAX)), Ok(()));
        assert_eq!(stream.widen(1), Err(H2ErrorCode::FLOW_CONTROL_ERROR));
    }

    #[test]
    fn streams_are_ordered_by_priority() {
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
        // A tunnel takes turns with other responses.
        let mut tunnel = stream(RemoteState::Ended);
        tunnel.carries_messages = true;
        tunnel.turn = 3;
        assert!(with(3, 3, false, 1 << 20, 9) < tunnel.rank());
        assert!(with(7, 3, true, 1 << 20, 2) < tunnel.rank());
        assert!(tunnel.rank() < with(1, 3, true, 1 << 20, 4));
    }
}
