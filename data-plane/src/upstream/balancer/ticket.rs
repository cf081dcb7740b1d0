//! Place of a request in the queue for a busy member.

use crate::upstream::balancer::lease::{Lease, release_place};
use crate::upstream::balancer::member::{Member, PlaceHolder};
use crate::upstream::balancer::place_ledger::{HeldPlace, PlaceUse};
use crate::upstream::balancer::request::{NoMember, Requester, SessionUse};
use crate::upstream::balancer::slot_queue::{SlotQueue, WaitNumber, WaitOutcome, WaitingRequest};
use base::client_network::ClientNetwork;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Future of a member for a request in the queue. Dropping the ticket leaves the queue. The caller bounds
/// the wait by the `queue_timeout` of the balancer.
pub struct QueueTicket {
    queue: Arc<SlotQueue<Arc<Member>>>,
    client: ClientNetwork,
    is_tunnel: bool,
    place: Place,
    session: SessionUse,
    requester: Requester,
}

enum Place {
    /// The request got a member while it joined the queue.
    Served(Box<Lease>),
    Waiting(WaitNumber),
    Left,
}

/// Result of the wait for a member.
pub enum Waited {
    /// A member for the request.
    Lease(Lease),
    /// The members changed. The caller chooses again.
    ChooseAgain,
    /// The queue is full, and the request made room for a request of a client with fewer waiting requests.
    Dropped,
}

/// Reason for a request that may not wait.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum WaitRefused {
    /// The queue is full.
    QueueFull,
    /// No member will be usable after a wait.
    NoMember(NoMember),
}

impl QueueTicket {
    /// Creates the ticket of a request that waits.
    pub(super) fn waiting(
        queue: &Arc<SlotQueue<Arc<Member>>>,
        request: &WaitingRequest<'_>,
        number: WaitNumber,
        session: SessionUse,
        requester: Requester,
    ) -> QueueTicket {
        QueueTicket {
            queue: Arc::clone(queue),
            client: request.client,
            is_tunnel: request.is_tunnel,
            place: Place::Waiting(number),
            session,
            requester,
        }
    }

    /// Records that the request got a member in the meantime, and leaves the queue.
    pub(super) fn serve(&mut self, lease: Lease) {
        self.leave();
        self.place = Place::Served(Box::new(lease));
    }

    /// Returns true if the request waits for the place of a tunnel.
    pub(crate) fn is_tunnel(&self) -> bool {
        self.is_tunnel
    }

    /// Tells a silent tunnel to end in favour of the request.
    pub(super) fn claim_tunnel(&self, usable: &[PlaceUse], now_ms: u64) {
        if let Place::Waiting(number) = self.place {
            self.queue.claim_tunnel(number, usable, now_ms);
        }
    }

    fn lease(&self, member: Arc<Member>) -> Lease {
        let cookie = match self.session {
            SessionUse::Changed => member.read(|core| core.cookie.clone()),
            SessionUse::None | SessionUse::Kept => None,
        };
        let holder = self.holder();
        Lease::of_counted(member, holder, self.session, cookie, None, self.requester)
    }

    fn holder(&self) -> PlaceHolder {
        PlaceHolder::Client(HeldPlace::new(self.client, self.is_tunnel))
    }

    fn leave(&mut self) {
        let Place::Waiting(number) = std::mem::replace(&mut self.place, Place::Left) else {
            return;
        };
        match self.queue.leave(number) {
            Some(WaitOutcome::Slot(member)) => {
                release_place(&member, self.holder());
            }
            // The place that the request was told of is for the next request.
            Some(WaitOutcome::ChooseAgain) => self.queue.wake_all(),
            Some(WaitOutcome::Dropped) | None => {}
        }
    }
}

impl Future for QueueTicket {
    type Output = Waited;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Waited> {
        match std::mem::replace(&mut self.place, Place::Left) {
            Place::Served(lease) => Poll::Ready(Waited::Lease(*lease)),
            Place::Left => Poll::Ready(Waited::ChooseAgain),
            Place::Waiting(number) => match self.queue.poll(number, cx) {
                Poll::Ready(WaitOutcome::Slot(member)) => {
                    Poll::Ready(Waited::Lease(self.lease(member)))
                }
                Poll::Ready(WaitOutcome::ChooseAgain) => Poll::Ready(Waited::ChooseAgain),
                Poll::Ready(WaitOutcome::Dropped) => Poll::Ready(Waited::Dropped),
                Poll::Pending => {
                    self.place = Place::Waiting(number);
                    Poll::Pending
                }
            },
        }
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        self.leave();
    }
}
