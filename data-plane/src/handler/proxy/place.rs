//! Resources of a call: the place at a member, with the pace of the client; the memory of the connection to the member; and
//! room for a new connection.
//!
//! Places of members have the shares of scripts. While a request of another client waits, a call ends if its client takes
//! the response or sends the request too slowly. Tunnels and event streams are silent by nature, so they end only where
//! their client has more than an equal part of the places, or after a long silence.
//!
//! The memory is counted in the ledger of the bodies under way: bytes in the kernel, and received bytes that wait for the
//! client. A member may fill the window of its connection at once, and the window of an established connection can't be
//! made smaller. A new connection therefore has a narrow window, which is no smaller than the first packets of a
//! member. The first long response widens the window, if the memory is granted. A later request reserves memory for
//! the wide window before the request is sent, or takes another connection.
//!
//! Room may be short in the queue of a member's Unix socket, and for local ports and descriptors. A shortage says nothing
//! about the members' health. The request tries each member once, pauses, and tries the members again.

use crate::handler::Request;
use crate::handler::call::body::rate::{DRIP_WINDOW, DripClock, TransferRate};
use crate::ledger::admission::ClientPace;
use crate::ledger::body_memory::{BodyAccount, BodyPurpose, BodyReservation};
use crate::ledger::descriptors::descriptors;
use crate::ledger::shared_limit::{RefusalCounters, SharedLimit};
use crate::limits::{
    MEMBER_FAR_RESPONSE_BYTES, MEMBER_FAR_WINDOW_BYTES, MEMBER_RECEIVE_BYTES_MIN,
    MEMBER_TLS_RECEIVE_BYTES, MEMBER_UNSENT_BYTES, MEMBER_UNSENT_BYTES_MIN, MEMBER_WINDOW_BYTES,
    PIPE_BYTES_MIN, PROXY_SHORTAGE_COMPLAINT_SECONDS, PROXY_SHORTAGE_PAUSE_MILLISECONDS,
    PROXY_SHORTAGE_WAIT_MILLISECONDS, READ_BUFFER_BYTES,
};
use crate::upstream::Lease;
use crate::upstream::{ConnectFault, MemberConn, MemberWindow};
use balancer::MemberId;
use base::clock::monotonic_ms;
use base::coarse_timer::CoarseTimer;
use base::limits::DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};
use wire::fields::Fields;
use wire::h1::response_head::ResponseHead;
use wire::reject::Reject;

/// Media type of an event stream (HTML, server-sent events).
const EVENT_STREAM: &[u8] = b"text/event-stream";

/// Rate at which a client takes a response, or sends a request, over a place of a member.
#[derive(Default)]
pub(super) struct PlacePace {
    /// The rate; None until the call waits for the client.
    rate: Option<Box<TransferRate>>,
    /// Bytes transferred so far.
    bytes: u64,
}

impl PlacePace {
    /// Records a wait for the client, after `bytes` transferred so far. Returns true if the place goes to a request of
    /// another client, and the call has to end. Wakes the task for the next check.
    pub(super) fn wait(
        &mut self,
        lease: Option<&mut Lease>,
        bytes: u64,
        refusals: &RefusalCounters,
        cx: &mut Context<'_>,
    ) -> bool {
        let Some(lease) = lease.filter(|lease| lease.has_place()) else {
            return false;
        };
        self.advance(bytes);
        let new = || Box::new(TransferRate::new());
        let pace = self.rate.get_or_insert_with(new).wait(cx);
        let gives_way = lease.gives_way(pace, monotonic_ms());
        if gives_way {
            refusals.increment(SharedLimit::MemberPlaces);
        }
        gives_way
    }

    /// Records that the call does not wait for the client, with a transfer of `bytes` so far. Nothing is measured before
    /// the first wait.
    pub(super) fn progress(&mut self, lease: Option<&mut Lease>, bytes: u64) {
        if self.rate.is_some()
            && self.advance(bytes)
            && let Some(lease) = lease
        {
            lease.end_wait();
        }
    }

    /// Counts the bytes since the last call. Returns true if the call has waited for the client until now.
    fn advance(&mut self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(std::mem::replace(&mut self.bytes, bytes));
        self.rate.as_mut().is_some_and(|rate| {
            let was_awaited = rate.is_awaited();
            rate.take(usize::try_from(more).unwrap_or(usize::MAX));
            was_awaited
        })
    }
}

/// Response that a member sends slowly for long, over a place of the member. Such a response takes one of the places of
/// tunnels. Where none is free, the call gives way as a slow download does.
#[derive(Default)]
pub(super) struct MemberDrip {
    /// The rate, and the timer of its checks; None until the call waits for the member.
    state: Option<Box<(DripClock, CoarseTimer)>>,
    /// Bytes of the member at the last check.
    bytes: u64,
    is_tunnel: bool,
}

impl MemberDrip {
    /// Returns true if the call has one of the places of tunnels.
    pub(super) fn is_tunnel(&self) -> bool {
        self.is_tunnel
    }

    /// Records a wait for the member, which has sent `bytes` so far. Returns true if the place goes to a request of another
    /// client, and the call has to end. Wakes the task for the next check.
    pub(super) fn gives_way(&mut self, lease: &mut Lease, bytes: u64, cx: &Context<'_>) -> bool {
        if !lease.has_place() {
            return false;
        }
        let Some(state) = &mut self.state else {
            let (now, mut clock) = (Instant::now(), DripClock::default());
            clock.begin(now);
            self.bytes = bytes;
            let timer = CoarseTimer::new(now + DRIP_WINDOW, cx.waker());
            self.state = Some(Box::new((clock, timer)));
            return false;
        };
        let (clock, timer) = &mut **state;
        if !timer.has_passed() {
            return false;
        }
        let now = Instant::now();
        let more = bytes.saturating_sub(std::mem::replace(&mut self.bytes, bytes));
        clock.take(usize::try_from(more).unwrap_or(usize::MAX));
        let rate = clock.check(now);
        timer.set(clock.next_check(now), cx.waker());
        let was_tunnel = self.is_tunnel;
        self.is_tunnel = rate.is_some() && lease.begin_tunnel();
        match rate {
            None if was_tunnel => lease.end_tunnel(),
            None => lease.end_wait(),
            Some(_) if self.is_tunnel => lease.end_wait(),
            Some(rate) => {
                let rate_max = DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE / 1024;
                let pace = ClientPace::SlowForMany(rate.min(rate_max - 1));
                return lease.gives_way(pace, monotonic_ms());
            }
        }
        false
    }
}

/// Returns true for a request for a tunnel or an event stream.
pub(super) fn wants_tunnel(request: &Request) -> bool {
    request.upgrade.is_some()
        || Fields(&request.fields)
            .all("accept")
            .any(|accept| accept.windows(EVENT_STREAM.len()).any(is_event_stream))
}

fn is_event_stream(text: &[u8]) -> bool {
    text.eq_ignore_ascii_case(EVENT_STREAM)
}

/// Adapts the place of a call to the head of a streamed response: an event stream takes one of the places of tunnels,
/// and another response none. Returns true for an event stream with a place.
///
/// # Errors
/// The member has no place for another tunnel.
pub(super) fn begin_stream(
    lease: Option<&mut Lease>,
    head: &ResponseHead<'_>,
) -> Result<bool, Reject> {
    let Some(lease) = lease.filter(|lease| lease.has_place()) else {
        return Ok(false);
    };
    let media_type = head.fields.first("content-type");
    let start = media_type.and_then(|it| it.get(..EVENT_STREAM.len()));
    if !start.is_some_and(is_event_stream) {
        lease.end_tunnel();
        return Ok(false);
    }
    if lease.begin_tunnel() {
        Ok(true)
    } else {
        Err(Reject::UPSTREAM_BUSY)
    }
}

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

/// Reserves memory for the head of a request, `bytes` long, on its way to a member.
///
/// # Errors
/// The ledger has no memory for a long head.
pub(super) fn reserve_out(memory: &BodyAccount, bytes: usize) -> Result<BodyReservation, Reject> {
    if bytes <= PIPE_BYTES_MIN {
        return Ok(BodyReservation::default());
    }
    let mut reservation = BodyReservation::new(memory);
    if reservation.try_grow(bytes - PIPE_BYTES_MIN, BodyPurpose::Call) {
        Ok(reservation)
    } else {
        Err(Reject::BODY_MEMORY_FULL)
    }
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

/// Wait of one request for room.
#[derive(Default)]
pub(super) struct ShortageWait {
    /// Members without room since the last pause.
    members: Vec<MemberId>,
    /// Last shortage, and the time of the first one.
    last: Option<(ConnectFault, Instant)>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl ShortageWait {
    /// Records a member to which no connection could be made.
    pub(super) fn add(&mut self, member: MemberId, fault: ConnectFault, now: Instant) {
        self.members.push(member);
        let since = self.last.map_or(now, |(_, since)| since);
        self.last = Some((fault, since));
    }

    /// Returns the number of members without room since the last pause.
    pub(super) fn members(&self) -> usize {
        self.members.len()
    }

    /// Returns the time since the first shortage.
    pub(super) fn waited(&self, now: Instant) -> Duration {
        self.last.map_or(Duration::ZERO, |(_, since)| {
            now.saturating_duration_since(since)
        })
    }

    /// Returns true if the request may pause and try the members again. A full queue of a member is waited for
    /// as long as for a busy member, `queue_timeout`.
    pub(super) fn may_go_on(&self, now: Instant, queue_timeout: Duration) -> bool {
        let Some((fault, since)) = self.last.filter(|_| !self.members.is_empty()) else {
            return false;
        };
        let longest = match fault {
            ConnectFault::Backlog => queue_timeout,
            ConnectFault::LocalPorts | ConnectFault::LocalDescriptors => {
                queue_timeout.min(Duration::from_millis(PROXY_SHORTAGE_WAIT_MILLISECONDS))
            }
            ConnectFault::Member
            | ConnectFault::LocalAddress
            | ConnectFault::LocalMemory
            | ConnectFault::LocalRule => Duration::ZERO,
        };
        now.saturating_duration_since(since) < longest
    }

    /// Ready after a pause. At the beginning of a pause for a descriptor, an idle client is asked to leave if that helps.
    pub(super) fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let fault = self.last.map(|(fault, _)| fault);
        let pause = self.pause.get_or_insert_with(|| {
            if fault == Some(ConnectFault::LocalDescriptors) {
                descriptors().want_idle_client();
            }
            let pause = Duration::from_millis(PROXY_SHORTAGE_PAUSE_MILLISECONDS);
            Box::pin(sleep(pause))
        });
        ready!(pause.as_mut().poll(cx));
        self.pause = None;
        Poll::Ready(())
    }

    /// Returns the members without room, which may be tried again.
    pub(super) fn take_members(&mut self) -> Vec<MemberId> {
        std::mem::take(&mut self.members)
    }
}

/// Logs a shortage of this machine with advice, at most once in 10 s.
pub(super) fn log_shortage(balancer: &str, fault: ConnectFault) {
    static LOGGED_MS: AtomicU64 = AtomicU64::new(0);
    let Some(advice) = fault.advice() else {
        return;
    };
    // The clock starts near 0, so the first line of the process is not suppressed.
    let now_ms = monotonic_ms().saturating_add(PROXY_SHORTAGE_COMPLAINT_SECONDS * 1_000);
    let is_due = |logged_ms: u64| {
        let next_ms = logged_ms.saturating_add(PROXY_SHORTAGE_COMPLAINT_SECONDS * 1_000);
        (now_ms >= next_ms).then_some(now_ms)
    };
    if LOGGED_MS.fetch_update(Relaxed, Relaxed, is_due).is_ok() {
        log::error!("balancer {balancer}: no connection to a member: {advice}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE_TIMEOUT: Duration = Duration::from_secs(10);

    #[test]
    fn a_request_waits_as_long_as_the_shortage_may_end() {
        let table = [
            (ConnectFault::Backlog, 9_999),
            (ConnectFault::LocalPorts, 999),
            (ConnectFault::LocalDescriptors, 999),
        ];
        let now = Instant::now();
        for (fault, last_ms) in table {
            let mut wait = ShortageWait::default();
            assert!(!wait.may_go_on(now, QUEUE_TIMEOUT));
            wait.add(MemberId(1), fault, now);
            let after = |ms| now + Duration::from_millis(ms);
            assert!(wait.may_go_on(after(last_ms), QUEUE_TIMEOUT));
            assert!(!wait.may_go_on(after(last_ms + 1), QUEUE_TIMEOUT));
            assert_eq!(wait.take_members(), [MemberId(1)]);
            assert!(!wait.may_go_on(now, QUEUE_TIMEOUT));
            // The wait goes on where it was.
            wait.add(MemberId(1), fault, after(last_ms));
            assert!(!wait.may_go_on(after(last_ms + 1), QUEUE_TIMEOUT));
        }
    }

    #[test]
    fn a_request_does_not_wait_for_a_firewall() {
        let now = Instant::now();
        let mut wait = ShortageWait::default();
        wait.add(MemberId(1), ConnectFault::LocalRule, now);
        assert!(!wait.may_go_on(now, QUEUE_TIMEOUT));
    }
}
