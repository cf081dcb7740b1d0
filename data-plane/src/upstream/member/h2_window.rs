//! Window of a response over HTTP/2, with its memory in the ledger of the bodies under way.
//!
//! Each stream begins with a window of [`H2_MEMBER_STREAM_WINDOW_BYTES`], which each call has reserved. A member may
//! fill a granted window at once, and a granted window can't be taken back. The window is therefore widened only with
//! reserved memory: for a response that is known to be longer, after the first bytes of a response of unknown length,
//! and with the request if the last response of the connection was longer.

use crate::ledger::body_memory::{BodyAccount, BodyPurpose, BodyReservation};
use crate::limits::PIPE_BYTES;
use wire::limits::H2_MEMBER_STREAM_WINDOW_BYTES;

/// Window that the member of one response has been granted.
pub(super) struct H2ResponseWindow {
    /// Memory of the window beyond the first bytes.
    reservation: BodyReservation,
    /// Bytes of the content that the request has taken.
    taken: u64,
    /// Widest window that the content can use.
    bytes_max: usize,
}

/// Returns true if content of `bytes` bytes is longer than the window that each stream begins with.
pub(super) fn is_long(bytes: u64) -> bool {
    bytes > u64::from(H2_MEMBER_STREAM_WINDOW_BYTES)
}

impl H2ResponseWindow {
    /// Returns the window of a new stream, for a call with the account `memory`.
    pub(super) fn new(memory: &BodyAccount) -> H2ResponseWindow {
        H2ResponseWindow {
            reservation: BodyReservation::new(memory),
            taken: 0,
            bytes_max: PIPE_BYTES,
        }
    }

    /// Widens the window with the request, if much memory is free. A request may wait long for its response. Returns
    /// the new size in bytes.
    pub(super) fn begin_wide(&mut self) -> Option<u32> {
        self.widen(BodyPurpose::FarReadAhead)
    }

    /// Prepares the window for content of `length` bytes, and keeps no more memory than the content needs. Returns
    /// the new size in bytes.
    pub(super) fn expect(&mut self, length: u64) -> Option<u32> {
        self.bytes_max = length.min(PIPE_BYTES as u64) as usize;
        self.reservation.shrink_to(self.beyond_first());
        self.widen(BodyPurpose::ReadAhead)
    }

    /// Counts taken bytes of the content. Returns the new size of the window in bytes, if the content turns out to be
    /// long and memory is free.
    pub(super) fn take(&mut self, bytes: usize) -> Option<u32> {
        self.taken += bytes as u64;
        let has_more = self.taken >= u64::from(H2_MEMBER_STREAM_WINDOW_BYTES / 2);
        if has_more {
            self.widen(BodyPurpose::ReadAhead)
        } else {
            None
        }
    }

    /// Returns the number of taken bytes.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns the memory after the end of the content.
    pub(super) fn close(&mut self) {
        self.reservation.shrink_to(0);
    }

    /// Widens a window of the first size to the widest one, if `purpose` allows.
    fn widen(&mut self, purpose: BodyPurpose) -> Option<u32> {
        let more = self.beyond_first();
        let is_first = more > 0 && self.reservation.bytes() == 0;
        let is_granted = is_first && self.reservation.try_grow(more, purpose);
        is_granted.then_some(self.bytes_max as u32)
    }

    /// Returns the part of the widest window that is beyond the first size.
    fn beyond_first(&self) -> usize {
        let first = H2_MEMBER_STREAM_WINDOW_BYTES as usize;
        self.bytes_max.saturating_sub(first)
    }
}

#[cfg(test)]
mod tests;
