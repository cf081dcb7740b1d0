//! Memory of the connections to members, in the ledger of the bodies under way: bytes in the kernel, and received
//! bytes that wait for the client.
//!
//! A member may fill the window of its connection at once, and the window of an established connection can't be
//! made smaller. A new connection therefore has a narrow window, which is no smaller than the first packets of a
//! member. The first long response widens the window, if the memory is granted.

use crate::base::body_memory::{BodyAccount, BodyPurpose, BodyReservation};
use crate::limits::{
    MEMBER_FAR_RESPONSE_BYTES, MEMBER_FAR_WINDOW_BYTES, MEMBER_RECEIVE_BYTES_MIN,
    MEMBER_TLS_RECEIVE_BYTES, MEMBER_UNSENT_BYTES, MEMBER_UNSENT_BYTES_MIN, MEMBER_WINDOW_BYTES,
    PIPE_BYTES_MIN, READ_BUFFER_BYTES,
};
use crate::upstream::{MemberConn, MemberWindow};

/// Returns the widest window of an idle connection that a call may take.
pub(super) fn widest_idle(memory: &BodyAccount) -> MemberWindow {
    match memory.is_scarce() {
        true => MemberWindow::Narrow,
        false => MemberWindow::Unbounded,
    }
}

/// Returns the number of bytes that are read at once before the response has begun. The bytes behind the head are
/// kept until the client takes them.
pub(super) fn head_bytes(memory: &BodyAccount) -> usize {
    match memory.is_pressed() {
        true => PIPE_BYTES_MIN,
        false => READ_BUFFER_BYTES,
    }
}

/// Reserves memory for the head and the gathered body of a request, `bytes` together, on their way to a member.
pub(super) fn reserve_out(memory: &BodyAccount, bytes: usize) -> BodyReservation {
    if bytes <= PIPE_BYTES_MIN {
        return BodyReservation::default();
    }
    let mut reservation = BodyReservation::new(memory);
    reservation.grow(bytes - PIPE_BYTES_MIN);
    reservation
}

/// Reserves memory for the kernel's bytes of a streamed request body on `conn`. Without the memory, the kernel gets
/// only a few bytes at once.
pub(super) fn reserve_upload(memory: &BodyAccount, conn: &mut MemberConn) {
    let is_granted = memory.try_reserve(MEMBER_UNSENT_BYTES as usize, BodyPurpose::ReadAhead);
    conn.bound_unsent(match is_granted {
        true => MEMBER_UNSENT_BYTES,
        false => MEMBER_UNSENT_BYTES_MIN,
    });
}

/// Reserves memory for the window of `conn`, on which a response of `length` bytes has begun, and for the `received`
/// bytes behind the head.
pub(super) fn reserve_stream(
    memory: &BodyAccount,
    conn: &mut MemberConn,
    length: Option<u64>,
    received: usize,
) {
    memory.reserve(received.saturating_sub(PIPE_BYTES_MIN));
    if conn.is_encrypted() {
        memory.reserve(MEMBER_TLS_RECEIVE_BYTES);
    }
    let bytes = length.map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    let near = bytes.unwrap_or(usize::MAX).min(MEMBER_WINDOW_BYTES);
    match conn.window() {
        MemberWindow::Narrow => {
            let is_long = near > MEMBER_RECEIVE_BYTES_MIN as usize;
            if is_long && memory.try_reserve(near, BodyPurpose::ReadAhead) {
                conn.widen(MemberWindow::Wide);
            }
        }
        MemberWindow::Wide | MemberWindow::Unbounded => {
            memory.reserve(near.saturating_sub(MEMBER_RECEIVE_BYTES_MIN as usize));
        }
    }
    if conn.window() == MemberWindow::Wide
        && bytes.is_some_and(|bytes| bytes >= MEMBER_FAR_RESPONSE_BYTES)
        && memory.try_reserve(MEMBER_FAR_WINDOW_BYTES, BodyPurpose::FarReadAhead)
    {
        conn.widen(MemberWindow::Unbounded);
    }
}
