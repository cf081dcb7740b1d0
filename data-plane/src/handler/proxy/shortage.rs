//! Wait of a request for room: in the queue of a member's Unix socket, or for a local port or a descriptor.
//!
//! A shortage says nothing about the members' health. The request tries each member once, pauses, and tries the
//! members again.

use crate::ledger::descriptors::descriptors;
use crate::limits::{
    PROXY_SHORTAGE_COMPLAINT_SECONDS, PROXY_SHORTAGE_PAUSE_MILLISECONDS,
    PROXY_SHORTAGE_WAIT_MILLISECONDS,
};
use crate::upstream::ConnectFault;
use crate::upstream::balancer::MemberId;
use base::clock::monotonic_ms;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::time::{Sleep, sleep};

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

    /// Ready after a pause. At the beginning of a pause for a descriptor, an idle client is asked to leave.
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
pub(super) fn log(balancer: &str, fault: ConnectFault) {
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
