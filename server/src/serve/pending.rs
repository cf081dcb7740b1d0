//! Requests under way on a worker: how many there are by HTTP/2 and 3, and how many bytes of request
//! heads are in memory until their requests are answered, by client.
//!
//! A page that is answered where its request was read never comes here. Everything that has to wait
//! (for the disk, a password, a handler, the peer's window) is counted from its beginning to its end,
//! so that neither a flood of requests nor the expansion of compressed fields (RFC 9113 §10.5.1) takes
//! memory without a bound. A client over its share is refused. When another client finds the bound
//! taken, the client that holds most loses the requests that have been stalled for longest.

use super::socket::Socket;
use crate::base::shares::{ClientNetwork, Holdings, Refusals, Share, may_take_more};
use crate::base::sys;
use crate::limits::UNFINISHED_HEAD_BYTES_FREE;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

/// The ledger of one worker.
pub(super) struct Pending {
    ledger: RefCell<Ledger>,
    refusals: Arc<Refusals>,
    /// Bytes of heads that may be in memory.
    head_bytes_max: usize,
}

#[derive(Default)]
struct Ledger {
    requests: Holdings,
    head_bytes: Holdings,
    /// Connections of each client that hold anything.
    holders: HashMap<ClientNetwork, Vec<Rc<Holder>>>,
}

/// A connection as the ledger knows it.
pub(super) struct Holder {
    pending: Rc<Pending>,
    client: ClientNetwork,
    requests: Cell<usize>,
    head_bytes: Cell<usize>,
    /// Where it stands among the connections of its client.
    index: Cell<usize>,
    /// The time at which the longest of its stalls began, milliseconds of the worker's clock; the
    /// largest number where nothing is stalled.
    stalled_ms: Cell<u64>,
    /// What the connection is to end for other clients.
    to_shed: Cell<Shed>,
    waker: RefCell<Option<Waker>>,
    /// The socket of a connection of HTTP/1.1: with its one request the connection ends.
    socket: Option<Rc<Socket>>,
}

/// What a connection is to end for other clients.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Shed {
    /// So many requests, those that have been stalled for longest.
    pub(super) requests: usize,
    /// Requests whose heads have so many bytes, the largest first.
    pub(super) head_bytes: usize,
}

/// What one request, or the unfinished head of one, holds in the ledger. Dropping it gives it back.
pub(super) struct Held {
    holder: Rc<Holder>,
    requests: usize,
    head_bytes: usize,
}

impl Pending {
    /// An empty ledger, for at most this many bytes of heads.
    pub(super) fn new(head_bytes_max: usize, refusals: Arc<Refusals>) -> Rc<Pending> {
        Rc::new(Pending {
            ledger: RefCell::default(),
            refusals,
            head_bytes_max,
        })
    }

    /// A new connection of this client, which holds nothing yet.
    pub(super) fn holder(self: &Rc<Self>, peer: IpAddr) -> Rc<Holder> {
        self.holder_on(peer, None)
    }

    /// The same for a connection of HTTP/1.1, which ends by its socket.
    pub(super) fn holder_on(
        self: &Rc<Self>,
        peer: IpAddr,
        socket: Option<Rc<Socket>>,
    ) -> Rc<Holder> {
        Rc::new(Holder {
            socket,
            pending: Rc::clone(self),
            client: peer.into(),
            requests: Cell::new(0),
            head_bytes: Cell::new(0),
            index: Cell::new(0),
            stalled_ms: Cell::new(u64::MAX),
            to_shed: Cell::default(),
            waker: RefCell::default(),
        })
    }

    /// Counts `n` requests that were lost because a share was taken.
    pub(super) fn refused(&self, share: Share, n: u64) {
        self.refusals.add(share, n);
    }
}

impl Holder {
    /// Takes in a request whose head has `head_bytes` in memory; `requests_max` may be under way on
    /// the worker. Errors: the share that has no room for it. The refusal is counted.
    pub(super) fn admit(
        self: &Rc<Self>,
        head_bytes: usize,
        requests_max: usize,
    ) -> Result<Held, Share> {
        self.make_room(1, head_bytes, requests_max)
            .inspect_err(|share| self.pending.refused(*share, 1))?;
        Ok(self.held(1, head_bytes))
    }

    /// Takes in a request that is answered, whose body may still come, if there is room for it.
    /// Without room nothing is lost: the client is told that the rest of the body isn't wanted.
    pub(super) fn admit_answered(self: &Rc<Self>, requests_max: usize) -> Option<Held> {
        self.make_room(1, 0, requests_max).ok()?;
        Some(self.held(1, 0))
    }

    /// The ledger's entry for what the connection has of a head that isn't whole.
    pub(super) fn unfinished(self: &Rc<Self>) -> Held {
        self.held(0, 0)
    }

    fn held(self: &Rc<Self>, requests: usize, head_bytes: usize) -> Held {
        self.add(requests, head_bytes);
        Held {
            holder: Rc::clone(self),
            requests,
            head_bytes,
        }
    }

    fn make_room(&self, requests: usize, bytes: usize, requests_max: usize) -> Result<(), Share> {
        let mut ledger = self.pending.ledger.borrow_mut();
        let bytes_max = self.pending.head_bytes_max;
        ledger.room_for_requests(self.client, requests, requests_max)?;
        ledger.room_for_bytes(self.client, bytes, bytes_max)
    }

    /// Notes when the longest stall of the connection began, milliseconds of the worker's clock; the
    /// largest number where nothing is stalled.
    pub(super) fn stalled_since(&self, at_ms: u64) {
        self.stalled_ms.set(at_ms);
    }

    /// Notes what to wake when the connection has to end requests for other clients.
    pub(super) fn wake_by(&self, waker: &Waker) {
        let mut known = self.waker.borrow_mut();
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    /// What the connection is to end for other clients, each told once.
    pub(super) fn take_shed(&self) -> Shed {
        self.to_shed.take()
    }

    /// Has the connection requests left that it wasn't told to end?
    fn has_requests(&self) -> bool {
        self.to_shed.get().requests < self.requests.get()
    }

    /// Has it bytes of heads, and wasn't told to end any of them?
    fn has_head_bytes(&self) -> bool {
        self.to_shed.get().head_bytes == 0 && self.head_bytes.get() > 0
    }

    /// Tells the connection to end more.
    fn tell(&self, shed: Shed) {
        let before = self.to_shed.get();
        self.to_shed.set(Shed {
            requests: before.requests + shed.requests,
            head_bytes: before.head_bytes + shed.head_bytes,
        });
        if let Some(socket) = &self.socket {
            // Where it has gone already, nothing is left to be done.
            let _ = sys::shutdown_both(socket.as_fd());
        }
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Requests of this connection that are under way.
    #[cfg(test)]
    fn requests(&self) -> usize {
        self.requests.get()
    }

    fn is_empty(&self) -> bool {
        self.requests.get() == 0 && self.head_bytes.get() == 0
    }

    fn add(self: &Rc<Self>, requests: usize, bytes: usize) {
        if requests == 0 && bytes == 0 {
            return;
        }
        let ledger = &mut *self.pending.ledger.borrow_mut();
        if self.is_empty() {
            let holders = ledger.holders.entry(self.client).or_default();
            self.index.set(holders.len());
            holders.push(Rc::clone(self));
        }
        ledger.requests.add(self.client, requests);
        ledger.head_bytes.add(self.client, bytes);
        self.requests.set(self.requests.get() + requests);
        self.head_bytes.set(self.head_bytes.get() + bytes);
    }

    fn remove(&self, requests: usize, bytes: usize) {
        if requests == 0 && bytes == 0 {
            return;
        }
        let ledger = &mut *self.pending.ledger.borrow_mut();
        ledger.requests.remove(self.client, requests);
        ledger.head_bytes.remove(self.client, bytes);
        self.requests.set(self.requests.get() - requests);
        self.head_bytes.set(self.head_bytes.get() - bytes);
        if self.is_empty() {
            self.to_shed.take();
            self.stalled_ms.set(u64::MAX);
            ledger.forget(self);
        }
    }
}

impl Held {
    /// Bytes of its head in memory.
    pub(super) fn head_bytes(&self) -> usize {
        self.head_bytes
    }

    /// From now on it has this many bytes in memory. Errors: there is no room for more of them, and it
    /// holds as many as before. The refusal is counted.
    pub(super) fn resize(&mut self, head_bytes: usize) -> Result<(), Share> {
        match head_bytes.checked_sub(self.head_bytes) {
            None | Some(0) => self.holder.remove(0, self.head_bytes - head_bytes),
            Some(more) => {
                let holder = &self.holder;
                holder
                    .make_room(0, more, usize::MAX)
                    .inspect_err(|share| holder.pending.refused(*share, 1))?;
                holder.add(0, more);
            }
        }
        self.head_bytes = head_bytes;
        Ok(())
    }
}

impl Held {
    /// The connection has `bytes` of a head that isn't whole; few of them don't count. False where
    /// there is no room for them.
    pub(super) fn keep(&mut self, bytes: usize) -> bool {
        let counted = match bytes > UNFINISHED_HEAD_BYTES_FREE {
            true => bytes,
            false => 0,
        };
        // Most often neither the bytes before nor those now are worth a look at the ledger.
        counted == self.head_bytes || self.resize(counted).is_ok()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.holder.remove(self.requests, self.head_bytes);
    }
}

impl Ledger {
    fn room_for_requests(
        &mut self,
        client: ClientNetwork,
        more: usize,
        bound: usize,
    ) -> Result<(), Share> {
        if more == 0 || may_take_more(self.requests.of(client), self.requests.all(), more, bound) {
            return Ok(());
        }
        let holders = largest_to_shed(&self.requests, client, more, bound)
            .and_then(|largest| self.holders.get(&largest));
        let left = holders.into_iter().flatten().filter(|it| it.has_requests());
        let worst = left.min_by_key(|it| it.stalled_ms.get());
        worst.ok_or(Share::Streams)?.tell(Shed {
            requests: more,
            head_bytes: 0,
        });
        Ok(())
    }

    fn room_for_bytes(
        &mut self,
        client: ClientNetwork,
        more: usize,
        bound: usize,
    ) -> Result<(), Share> {
        let (own, all) = (self.head_bytes.of(client), self.head_bytes.all());
        if more == 0 || may_take_more(own, all, more, bound) {
            return Ok(());
        }
        let holders = largest_to_shed(&self.head_bytes, client, more, bound)
            .and_then(|largest| self.holders.get(&largest));
        let left = holders
            .into_iter()
            .flatten()
            .filter(|it| it.has_head_bytes());
        let worst = left.max_by_key(|it| it.head_bytes.get());
        worst.ok_or(Share::HeadBytes)?.tell(Shed {
            requests: 0,
            head_bytes: more,
        });
        Ok(())
    }

    /// The connection holds nothing any more.
    fn forget(&mut self, holder: &Holder) {
        let Some(holders) = self.holders.get_mut(&holder.client) else {
            return;
        };
        holders.swap_remove(holder.index.get());
        match holders.get(holder.index.get()) {
            Some(moved) => moved.index.set(holder.index.get()),
            None if holders.is_empty() => drop(self.holders.remove(&holder.client)),
            None => {}
        }
    }
}

/// The bound is taken: the client that holds most, if it holds far more than this one wants to. One of
/// its requests is to end, and that of this client comes in meanwhile. The connection ends the request
/// in its own turn, so the bound is exceeded for that long, by a sixteenth at most.
fn largest_to_shed(
    held: &Holdings,
    client: ClientNetwork,
    more: usize,
    bound: usize,
) -> Option<ClientNetwork> {
    let (largest, most) = held.largest()?;
    let own = held.of(client) + more;
    let is_small = own <= (bound / 8).max(1) && own < most && largest != client;
    let fits = held.all() + more <= bound + (bound / 16).max(1);
    (is_small && fits).then_some(largest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    const REQUESTS: usize = 32;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn ledger() -> (Rc<Pending>, Arc<Refusals>) {
        let refusals = Arc::new(Refusals::default());
        (Pending::new(1_600, refusals.clone()), refusals)
    }

    fn counted(refusals: &Refusals, share: Share) -> u64 {
        let mut all = refusals.each();
        all.find(|(it, _)| *it == share)
            .map_or(0, |(_, count)| count)
    }

    fn fill(holder: &Rc<Holder>, head_bytes: usize) -> Vec<Held> {
        std::iter::from_fn(|| holder.admit(head_bytes, REQUESTS).ok()).collect()
    }

    #[test]
    fn one_client_takes_three_quarters_and_another_still_has_room() {
        let (pending, refusals) = ledger();
        let greedy = pending.holder([192, 0, 2, 1].into());
        let held = fill(&greedy, 0);
        assert_eq!(held.len(), 24);
        assert_eq!(counted(&refusals, Share::Streams), 1);
        let other = pending.holder([192, 0, 2, 2].into());
        assert_eq!(fill(&other, 0).len(), 4);
        drop(held);
        assert_eq!(fill(&other, 0).len(), 24);
        assert!(pending.ledger.borrow().holders.is_empty());
    }

    #[test]
    fn heads_are_bounded_by_their_bytes() {
        let (pending, refusals) = ledger();
        let greedy = pending.holder([192, 0, 2, 1].into());
        let mut held = fill(&greedy, 100);
        assert_eq!(held.len(), 12);
        assert_eq!(counted(&refusals, Share::HeadBytes), 1);
        // A head that is answered gives its bytes back while its response waits.
        assert!(held[0].resize(0).is_ok());
        assert!(held[1].resize(200).is_ok());
        assert!(held[1].resize(201).is_err());
        drop(held);
        let mut unfinished = greedy.unfinished();
        assert!(unfinished.resize(1_200).is_ok());
        assert_eq!(pending.ledger.borrow().head_bytes.all(), 1_200);
        drop(unfinished);
        assert!(pending.ledger.borrow().holders.is_empty());
    }

    #[test]
    fn where_heads_take_the_bound_the_connection_with_most_of_them_sheds() {
        let (pending, _) = ledger();
        let [small, large] = [1, 1].map(|last| pending.holder([192, 0, 2, last].into()));
        let mut all = fill(&small, 100);
        all.truncate(4);
        all.push(large.admit(700, REQUESTS).expect("room"));
        let second = pending.holder([192, 0, 2, 2].into());
        all.push(second.held(0, 500));
        let other = pending.holder([192, 0, 2, 3].into());
        assert!(other.admit(100, REQUESTS).is_ok());
        let bytes = |head_bytes| Shed {
            requests: 0,
            head_bytes,
        };
        assert_eq!(
            (large.take_shed(), small.take_shed()),
            (bytes(100), bytes(0))
        );
    }

    #[test]
    fn at_the_bound_the_longest_stalled_connection_of_the_largest_holder_sheds() {
        let (pending, refusals) = ledger();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut all = Vec::new();
        // Eight clients with four requests each take the whole bound; the first has one more.
        let holders: Vec<_> = (0..8)
            .map(|nth| pending.holder([192, 0, 2, nth].into()))
            .collect();
        let second = pending.holder([192, 0, 2, 0].into());
        for holder in &holders {
            all.extend((0..4).map_while(|_| holder.admit(0, REQUESTS).ok()));
        }
        all.push(second.held(1, 0));
        assert_eq!(pending.ledger.borrow().requests.all(), 33);
        holders[0].stalled_since(5_000);
        second.stalled_since(4_000);
        second.wake_by(&waker);
        let other = pending.holder([192, 0, 2, 9].into());
        let admitted = other.admit(0, REQUESTS);
        assert!(admitted.is_ok());
        let one = Shed {
            requests: 1,
            head_bytes: 0,
        };
        let told = (second.take_shed(), holders[0].take_shed());
        assert_eq!(told, (one, Shed::default()));
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        // Not more than a sixteenth over the bound.
        assert!(other.admit(0, REQUESTS).is_err());
        // A client that holds as much as the others is refused.
        assert!(holders[3].admit(0, REQUESTS).is_err());
        assert_eq!(counted(&refusals, Share::Streams), 2);
        assert_eq!((other.requests(), second.requests()), (1, 1));
    }
}
