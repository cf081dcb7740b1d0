//! Memory of the connections to members, in the ledger of the bodies under way: bytes in the kernel, and received
//! bytes that wait for the client.
//!
//! A member may fill the window of its connection at once, and the window of an established connection can't be
//! made smaller. A call whose memory is not granted therefore gets a connection with a narrow window from the
//! beginning. A narrow connection with a long response is widened if the memory is granted by then.

use crate::base::body_memory::{BodyAccount, BodyPurpose, BodyReservation};
use crate::limits::{
    MEMBER_RECEIVE_BYTES, MEMBER_RECEIVE_BYTES_MIN, MEMBER_TLS_RECEIVE_BYTES, MEMBER_UNSENT_BYTES,
    MEMBER_UNSENT_BYTES_MIN, MEMBER_WAIT_BYTES, PIPE_BYTES_MIN, READ_BUFFER_BYTES,
};
use crate::upstream::MemberConn;

/// Reserves memory for the beginning of a response. Returns true if the connection may have a wide window.
pub(super) fn reserve_wait(memory: &BodyAccount) -> bool {
    memory.try_reserve(MEMBER_WAIT_BYTES, BodyPurpose::FirstBytes)
}

/// Returns the number of bytes that are read at once from a member whose response has not begun. The bytes behind
/// the head are kept until the client takes them.
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
    let window = u64::from(MEMBER_RECEIVE_BYTES);
    let bytes = length.unwrap_or(window).min(window) as usize;
    if !conn.is_narrow() {
        memory.reserve(bytes.saturating_sub(MEMBER_WAIT_BYTES));
    } else if bytes > MEMBER_RECEIVE_BYTES_MIN as usize
        && memory.try_reserve(bytes, BodyPurpose::ReadAhead)
    {
        conn.widen();
    }
}
