//! Memory of the connections to members, in the ledger of the bodies under way: bytes in the kernel, and received
//! bytes that wait for the client.
//!
//! A member may fill the window of its connection at once, and the window of an established connection can't be
//! made smaller. A new connection therefore has a narrow window, which is no smaller than the first packets of a
//! member. The first long response widens the window, if the memory is granted. A later request reserves memory for
//! the wide window before the request is sent, or takes another connection.

use crate::ledger::body_memory::{BodyAccount, BodyPurpose, BodyReservation};
use crate::limits::{
    MEMBER_FAR_RESPONSE_BYTES, MEMBER_FAR_WINDOW_BYTES, MEMBER_RECEIVE_BYTES_MIN,
    MEMBER_TLS_RECEIVE_BYTES, MEMBER_UNSENT_BYTES, MEMBER_UNSENT_BYTES_MIN, MEMBER_WINDOW_BYTES,
    PIPE_BYTES_MIN, READ_BUFFER_BYTES,
};
use crate::upstream::{MemberConn, MemberWindow};
use wire::reject::Reject;

/// Reserves memory for the bytes that a member may send ahead on an idle connection with `window`. Returns false if the
/// call must take a connection with a narrower window.
pub(super) fn reserve_window(reservation: &mut BodyReservation, window: MemberWindow) -> bool {
    let purpose = match window {
        MemberWindow::Narrow | MemberWindow::Wide => BodyPurpose::ReadAhead,
        MemberWindow::Far | MemberWindow::Unbounded => BodyPurpose::FarReadAhead,
    };
    let bytes = ahead_bytes(window);
    bytes == 0 || reservation.try_grow(bytes, purpose)
}

/// Returns the number of bytes that a member may send ahead, beyond those of each call.
fn ahead_bytes(window: MemberWindow) -> usize {
    match window {
        MemberWindow::Narrow => 0,
        MemberWindow::Wide => MEMBER_WINDOW_BYTES,
        MemberWindow::Far | MemberWindow::Unbounded => MEMBER_FAR_WINDOW_BYTES,
    }
}

/// Returns the number of bytes that are read at once before the response has begun. The bytes behind the head are
/// kept until the client takes them.
pub(super) fn head_bytes(memory: &BodyAccount) -> usize {
    if memory.is_pressed() {
        PIPE_BYTES_MIN
    } else {
        READ_BUFFER_BYTES
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
    conn.bound_unsent(if is_granted {
        MEMBER_UNSENT_BYTES
    } else {
        MEMBER_UNSENT_BYTES_MIN
    });
}

/// Reserves memory for the content of `length` bytes on `conn`, of which `received` bytes have arrived behind the head:
/// the buffers of TLS, and a wider window if memory is free. `window` holds the memory for the present window.
///
/// # Errors
/// The ledger, or the client's share of it, has no memory for the buffers of TLS.
pub(super) fn reserve_stream(
    memory: &BodyAccount,
    conn: &mut MemberConn,
    length: Option<u64>,
    received: usize,
    window: &mut BodyReservation,
) -> Result<(), Reject> {
    if conn.is_encrypted() && !memory.try_extend(MEMBER_TLS_RECEIVE_BYTES) {
        return Err(Reject::BODY_MEMORY_FULL);
    }
    memory.reserve(received.saturating_sub(PIPE_BYTES_MIN));
    let length = length.map_or(usize::MAX, |length| length.try_into().unwrap_or(usize::MAX));
    window.shrink_to(length.min(ahead_bytes(conn.window())));
    if length > MEMBER_RECEIVE_BYTES_MIN as usize && conn.window() == MemberWindow::Narrow {
        let bytes = length.min(MEMBER_WINDOW_BYTES);
        widen(
            conn,
            window,
            MemberWindow::Wide,
            bytes,
            BodyPurpose::ReadAhead,
        );
    }
    let is_far = (MEMBER_FAR_RESPONSE_BYTES..usize::MAX).contains(&length);
    if is_far && conn.window() == MemberWindow::Wide {
        let bytes = length.min(MEMBER_FAR_WINDOW_BYTES);
        widen(
            conn,
            window,
            MemberWindow::Far,
            bytes,
            BodyPurpose::FarReadAhead,
        );
    }
    window.leave_to_call();
    Ok(())
}

/// Widens the window of a connection if `reservation` can grow to `bytes`.
fn widen(
    conn: &mut MemberConn,
    reservation: &mut BodyReservation,
    window: MemberWindow,
    bytes: usize,
    purpose: BodyPurpose,
) {
    let more = bytes.saturating_sub(reservation.bytes());
    if reservation.try_grow(more, purpose) {
        conn.widen(window);
    }
}
