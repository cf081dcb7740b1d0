//! Balancers under the load of several threads.

use super::fixture::{Fixture, Lease, QueueTicket, Waited, letter, member, settings};
use crate::NoMember;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

/// Wakes a parked thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a member, in vain for at most 60 s.
fn wait(ticket: QueueTicket) -> Waited {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut ticket = pin!(ticket);
    for _ in 0..600 {
        if let Poll::Ready(waited) = ticket.as_mut().poll(&mut cx) {
            return waited;
        }
        thread::park_timeout(Duration::from_millis(100));
    }
    panic!("the request was never woken");
}

fn lease(fixture: &Fixture) -> Lease {
    loop {
        match fixture.choose() {
            Ok(lease) => return lease,
            Err(NoMember::Busy { session_member }) => {
                let ticket = fixture.balancer.wait(&fixture.request(), session_member);
                match ticket.map(wait) {
                    Ok(Waited::Lease(lease)) => return lease,
                    Ok(Waited::ChooseAgain | Waited::Dropped) | Err(_) => {}
                }
            }
            Err(NoMember::NoneUsable | NoMember::SessionLost) => thread::yield_now(),
        }
    }
}

#[test]
fn bounds_hold_and_no_waiting_request_is_forgotten() {
    let bounds = [('a', 1), ('b', 2)];
    let members =
        bounds.map(|(name, max)| member(name, |member| member.connections_max = Some(max)));
    let mut settings = settings(members.into());
    settings.connection.queue = 100;
    let fixture = Fixture::new(settings);
    let running = [AtomicUsize::new(0), AtomicUsize::new(0)];
    thread::scope(|scope| {
        for number in 0..6 {
            let (fixture, running) = (&fixture, &running);
            scope.spawn(move || {
                for round in 0..1_000 {
                    let mut lease = lease(fixture);
                    let at = letter(&lease) as usize - 'a' as usize;
                    let busy = running[at].fetch_add(1, Ordering::SeqCst);
                    assert!(busy < bounds[at].1);
                    if round % 7 == number {
                        thread::yield_now();
                    }
                    lease.record_answer(200, 100, fixture.now_ms);
                    running[at].fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
        scope.spawn(|| {
            for round in 0..200 {
                fixture.edit('a', |member| member.weight = 100 + round % 2);
                thread::yield_now();
            }
        });
    });
    let report = fixture.report();
    let elected: u64 = report.members.iter().map(|member| member.elected).sum();
    assert_eq!((elected, report.waiting), (6_000, 0));
    assert!(report.members.iter().all(|member| member.busy == 0));
}
