//! Memory of the kernel for bytes received from members, in the ledger of the bodies under way.
//!
//! A member may fill the window of its connection at once, and the window of an established connection can't be
//! made smaller. A call whose memory is not granted therefore gets a connection with a narrow window from the
//! beginning. A narrow connection with a long response is widened if the memory is granted by then.

use crate::base::body_memory::{BodyAccount, BodyPurpose};
use crate::limits::{MEMBER_RECEIVE_BYTES, MEMBER_RECEIVE_BYTES_MIN, MEMBER_WAIT_BYTES};
use crate::upstream::MemberConn;

/// Reserves memory for the beginning of a response. Returns true if the connection may have a wide window.
pub(super) fn reserve_wait(memory: &BodyAccount) -> bool {
    memory.try_reserve(MEMBER_WAIT_BYTES, BodyPurpose::FirstBytes)
}

/// Reserves memory for the window of `conn`, on which a response of `length` bytes has begun.
pub(super) fn reserve_stream(memory: &BodyAccount, conn: &mut MemberConn, length: Option<u64>) {
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
