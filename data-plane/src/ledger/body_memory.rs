//! Memory ledger of the bodies under way: bytes of requests and responses in pipes, in buffers and in the
//! kernel, for all calls of handlers together.
//!
//! An accepted call always completes, because the minimum for its bodies is reserved from the beginning. Only the
//! read-ahead depends on the level of the ledger. A worker reserves bytes in batches, so most calls change no
//! memory shared by workers.
//!
//! A client has a share of the whole bound, and one of the part for read-ahead: a silent event stream would otherwise hold
//! its read-ahead for hours, and 140 streams of one client would leave none for the bodies of all other clients.

use crate::limits::{
    BODY_BATCH_BYTES_MAX, BODY_BATCH_DIVISOR, BODY_RESERVE_DIVISOR, BODY_SHARE_BUCKETS,
    CALL_RESERVED_BYTES,
};
use base::client_history::{ClientHistory, ClientStanding};
use base::client_network::ClientNetwork;
use base::hash::FastBuildHasher;
use base::network_table::WideNetwork;
use base::sys::Heap;
use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Ledger of all workers.
pub struct BodyMemory {
    bytes: AtomicUsize,
    bytes_max: usize,
    /// Clients for which requests ended, and clients of the ended requests. Used only while the memory is short.
    history: Mutex<ClientHistory>,
    /// Requests that other workers are to end for newcomers.
    wanted: AtomicUsize,
}

/// Purpose of a reservation that may be refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum BodyPurpose {
    /// Bytes for a fast transfer over a long distance: a quarter of the bound.
    FarReadAhead,
    /// Bytes that only make a transfer faster: half of the bound.
    ReadAhead,
    /// A short request body that is received whole before the handler begins: three quarters of the bound.
    Gathering,
    /// A further call, or bytes that an accepted call needs: the bound without the reserve for newcomers, a sixteenth.
    Call,
    /// A call for which a request of another client ends, by the standing of its client. A newcomer may take the whole bound,
    /// and any other client half of the reserve: what ends for a newcomer is not taken by clients that come back.
    InPlace(ClientStanding),
}

impl BodyMemory {
    /// Makes an empty ledger for `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Arc<BodyMemory> {
        Arc::new(BodyMemory {
            bytes: AtomicUsize::new(0),
            bytes_max,
            history: Mutex::default(),
            wanted: AtomicUsize::new(0),
        })
    }

    /// Returns the number of reserved bytes, including unused parts of the workers' batches.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the bound in bytes.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Returns the bytes up to which a client beyond its share reads ahead: the last quarter of the part for `purpose` is
    /// left to other clients.
    fn shared_bound(&self, purpose: BodyPurpose) -> usize {
        let bound = self.bound(purpose);
        bound - bound / 4
    }

    /// Returns the part of the bound in bytes that reservations for `purpose` may fill.
    fn bound(&self, purpose: BodyPurpose) -> usize {
        match purpose {
            BodyPurpose::FarReadAhead => self.bytes_max / 4,
            BodyPurpose::ReadAhead => self.bytes_max / 2,
            BodyPurpose::Gathering => self.bytes_max - self.bytes_max / 4,
            BodyPurpose::Call => self.bytes_max - self.reserve_bytes(),
            BodyPurpose::InPlace(ClientStanding::New) => self.bytes_max,
            BodyPurpose::InPlace(_) => self.bytes_max - self.reserve_bytes() / 2,
        }
    }

    /// Returns the bytes of the bound that are for newcomers: a sixteenth, in pairs of calls.
    fn reserve_bytes(&self) -> usize {
        let pair = 2 * CALL_RESERVED_BYTES;
        self.bytes_max / BODY_RESERVE_DIVISOR / pair * pair
    }

    /// Returns true if so much is reserved that requests may soon end for other clients.
    pub(crate) fn is_short(&self) -> bool {
        self.bytes() > self.short_bytes()
    }

    /// Returns seven eighths of the bound.
    fn short_bytes(&self) -> usize {
        self.bytes_max - self.bytes_max / 8
    }

    /// Returns true if `bytes` more bytes may be reserved in place of calls that are about to end, for a client of this
    /// standing.
    pub(crate) fn has_reserve(&self, bytes: usize, standing: ClientStanding) -> bool {
        self.bytes() + bytes <= self.bound(BodyPurpose::InPlace(standing))
    }

    /// Returns the history of the clients at `now_ms`, in milliseconds of the workers' clocks.
    pub(crate) fn history(&self, now_ms: u64) -> MutexGuard<'_, ClientHistory> {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.advance(now_ms);
        history
    }

    /// Wants a request of another worker to end for a newcomer.
    pub(crate) fn want_of_others(&self) {
        let most = self.reserve_bytes() / CALL_RESERVED_BYTES;
        let more = |wanted| (wanted < most).then_some(wanted + 1);
        let (set, read) = (Ordering::Relaxed, Ordering::Relaxed);
        // With as many requests to end as the reserve holds, no further newcomer was admitted.
        let _ = self.wanted.fetch_update(set, read, more);
    }

    /// Takes over the requests that are to end for newcomers of other workers. Returns their number.
    pub(crate) fn take_wanted(&self) -> usize {
        if self.wanted.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.wanted.swap(0, Ordering::Relaxed)
    }

    /// Reserves `bytes` if at most `bound` bytes are reserved afterwards.
    fn take(&self, bytes: usize, bound: usize) -> bool {
        let more = |all: usize| Some(all + bytes).filter(|all| *all <= bound);
        let (set, read) = (Ordering::Relaxed, Ordering::Relaxed);
        self.bytes.fetch_update(set, read, more).is_ok()
    }

    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn remove(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Part of the ledger used by one worker.
pub(crate) struct WorkerBodyMemory {
    all: Arc<BodyMemory>,
    /// Bytes reserved in the ledger that no body uses.
    spare: Cell<usize>,
    /// Bytes of one reservation in the ledger.
    batch: usize,
    /// Bytes of clients on the worker. Clients with keys in one bucket count as one client. The counts matter only
    /// in the last quarter of the bound, and in the last quarter of each part for read-ahead.
    clients: Box<[Cell<usize>]>,
    /// Bytes of one client on the worker in the last quarter of the bound.
    client_bytes_max: usize,
    /// Bytes beyond which the worker keeps no batch, so that the last of the bound is not lost in batches.
    short_bytes: usize,
    /// Calls under way.
    calls: Cell<usize>,
    hasher: FastBuildHasher,
}

impl WorkerBodyMemory {
    /// Makes the part of one of `workers` workers.
    pub(crate) fn new(all: &Arc<BodyMemory>, workers: usize) -> Rc<WorkerBodyMemory> {
        let batch = all.bytes_max / BODY_BATCH_DIVISOR / workers.max(1);
        Rc::new(WorkerBodyMemory {
            all: Arc::clone(all),
            spare: Cell::new(0),
            batch: batch.min(BODY_BATCH_BYTES_MAX),
            clients: vec![Cell::new(0); BODY_SHARE_BUCKETS].into(),
            client_bytes_max: all.bytes_max / 8 / workers.max(1),
            short_bytes: all.short_bytes(),
            calls: Cell::new(0),
            hasher: FastBuildHasher::default(),
        })
    }

    /// Admits a call of `client`. Returns None if the bound is reserved, or if the last quarter is left and the
    /// client has its share.
    pub(crate) fn admit(self: &Rc<Self>, client: IpAddr) -> Option<BodyAccount> {
        let buckets = self.buckets(client.into());
        let own = self.most_of(&buckets) + CALL_RESERVED_BYTES;
        let bound = self.all.bound(self.purpose_of_call(own));
        if !self.try_reserve(CALL_RESERVED_BYTES, bound) {
            return None;
        }
        Some(self.begin_call(buckets))
    }

    /// Admits a call of `client` in place of another call that is about to end. Returns None if the part of the bound for
    /// clients of this standing is reserved.
    pub(crate) fn admit_in_place(
        self: &Rc<Self>,
        client: IpAddr,
        standing: ClientStanding,
    ) -> Option<BodyAccount> {
        let bound = self.all.bound(BodyPurpose::InPlace(standing));
        let is_reserved = self.try_reserve(CALL_RESERVED_BYTES, bound);
        is_reserved.then(|| self.begin_call(self.buckets(client.into())))
    }

    fn begin_call(self: &Rc<Self>, buckets: ClientBuckets) -> BodyAccount {
        self.count(&buckets, CALL_RESERVED_BYTES, usize::wrapping_add);
        self.calls.set(self.calls.get() + 1);
        Heap::enlarge_thread_cache(self.calls.get());
        BodyAccount(Some(Rc::new(CallBytes {
            worker: Rc::clone(self),
            buckets,
            bytes: Cell::new(CALL_RESERVED_BYTES),
        })))
    }

    /// Returns true if `client`, for which [`WorkerBodyMemory::admit`] has refused a call, is within its share with the call.
    pub(crate) fn is_within_share(&self, client: IpAddr) -> bool {
        let own = self.most_of(&self.buckets(client.into())) + CALL_RESERVED_BYTES;
        self.purpose_of_call(own) == BodyPurpose::Call
    }

    /// Returns the buckets of a client, and of the wide IPv6 networks of the client.
    fn buckets(&self, client: ClientNetwork) -> ClientBuckets {
        let bucket = |key: u64| (key % self.clients.len() as u64) as u16;
        let mut buckets = ClientBuckets {
            list: [bucket(self.hasher.of(&client.octets())); 3],
            count: 1,
        };
        for network in WideNetwork::of(client) {
            buckets.list[buckets.count] = bucket(self.hasher.of(&network.octets()));
            buckets.count += 1;
        }
        buckets
    }

    /// Returns the bytes of the client or of the wide network with the most bytes.
    fn most_of(&self, buckets: &ClientBuckets) -> usize {
        let bytes = buckets.each().map(|bucket| self.clients[bucket].get());
        bytes.max().unwrap_or(0)
    }

    fn count(&self, buckets: &ClientBuckets, bytes: usize, change: fn(usize, usize) -> usize) {
        for bucket in buckets.each() {
            let held = &self.clients[bucket];
            held.set(change(held.get(), bytes));
        }
    }

    /// Returns the purpose of a reservation after which a client has `own` bytes. Beyond the client's share, the last
    /// quarter of the bound is left to other clients.
    fn purpose_of_call(&self, own: usize) -> BodyPurpose {
        if own <= self.client_bytes_max.max(CALL_RESERVED_BYTES) {
            BodyPurpose::Call
        } else {
            BodyPurpose::Gathering
        }
    }

    /// Returns true if a client with `own` bytes has more than its share of the read-ahead: an eighth of the half.
    fn is_beyond_share(&self, own: usize) -> bool {
        own > self.client_bytes_max / 2
    }

    /// Returns the bytes that all clients together may have after a reservation for `purpose`. The client has `own` bytes
    /// then.
    fn bound(&self, purpose: BodyPurpose, own: usize) -> usize {
        match purpose {
            BodyPurpose::FarReadAhead | BodyPurpose::ReadAhead if self.is_beyond_share(own) => {
                self.all.shared_bound(purpose)
            }
            _ => self.all.bound(purpose),
        }
    }

    /// Reserves bytes in the worker's batch or in the ledger, if at most `bound` bytes are reserved afterwards.
    fn try_reserve(&self, bytes: usize, bound: usize) -> bool {
        let spare = self.spare.get();
        if spare >= bytes && self.all.bytes() <= bound {
            self.spare.set(spare - bytes);
            return true;
        }
        if self
            .all
            .take(bytes + self.batch, bound.min(self.short_bytes))
        {
            self.spare.set(spare + self.batch);
            return true;
        }
        self.return_spare();
        self.all.take(bytes, bound)
    }

    /// Reserves bytes beyond the bound if need be.
    fn reserve(&self, bytes: usize) {
        let spare = self.spare.get();
        if spare >= bytes {
            self.spare.set(spare - bytes)
        } else {
            self.all.add(bytes)
        }
    }

    fn release(&self, bytes: usize) {
        let spare = self.spare.get() + bytes;
        self.spare.set(spare);
        if spare > 2 * self.batch {
            self.spare.set(self.batch);
            self.all.remove(spare - self.batch);
        }
        if self.all.bytes() > self.short_bytes {
            self.return_spare();
        }
    }

    fn return_spare(&self) {
        self.all.remove(self.spare.take());
    }
}

impl Drop for WorkerBodyMemory {
    fn drop(&mut self) {
        self.return_spare();
    }
}

/// Bytes of one call in the ledger, shared by the pipes and buffers of the call. The default is a call that the
/// ledger does not count, for example an internal request.
#[derive(Clone, Default)]
pub struct BodyAccount(Option<Rc<CallBytes>>);

/// Positions of a client's bytes among the buckets of a worker: one for IPv4, and three for IPv6.
struct ClientBuckets {
    list: [u16; 3],
    count: usize,
}

impl ClientBuckets {
    fn each(&self) -> impl Iterator<Item = usize> {
        let list = self.list.iter().take(self.count);
        list.map(|bucket| usize::from(*bucket))
    }
}

struct CallBytes {
    worker: Rc<WorkerBodyMemory>,
    buckets: ClientBuckets,
    bytes: Cell<usize>,
}

impl Drop for CallBytes {
    fn drop(&mut self) {
        let bytes = self.bytes.get();
        self.count(bytes, usize::wrapping_sub);
        self.worker.release(bytes);
        self.worker.calls.set(self.worker.calls.get() - 1);
    }
}

impl CallBytes {
    fn count(&self, bytes: usize, change: fn(usize, usize) -> usize) {
        self.bytes.set(change(self.bytes.get(), bytes));
        self.worker.count(&self.buckets, bytes, change);
    }
}

impl BodyAccount {
    /// Returns true if bodies should be read ahead no further than necessary: half of the bound is reserved, or three
    /// eighths and the client has more than its share.
    pub(crate) fn is_pressed(&self) -> bool {
        let Some(call) = &self.0 else {
            return false;
        };
        let (worker, bytes) = (&call.worker, call.worker.all.bytes());
        bytes >= worker.all.shared_bound(BodyPurpose::ReadAhead)
            && (bytes >= worker.all.bound(BodyPurpose::ReadAhead)
                || worker.is_beyond_share(worker.most_of(&call.buckets)))
    }

    /// Returns true if the ledger counts the bytes of the call.
    pub(crate) fn is_counted(&self) -> bool {
        self.0.is_some()
    }

    /// Reserves `bytes`, as far as `purpose` allows. An uncounted call may have all bytes.
    #[must_use]
    pub(crate) fn try_reserve(&self, bytes: usize, purpose: BodyPurpose) -> bool {
        let Some(call) = &self.0 else {
            return true;
        };
        let own = call.worker.most_of(&call.buckets).saturating_add(bytes);
        let is_reserved = call
            .worker
            .try_reserve(bytes, call.worker.bound(purpose, own));
        if is_reserved {
            call.count(bytes, usize::wrapping_add);
        }
        is_reserved
    }

    /// Reserves `bytes` that the call turned out to need, under the conditions of a further call
    /// ([`WorkerBodyMemory::admit`]).
    #[must_use]
    pub(crate) fn try_extend(&self, bytes: usize) -> bool {
        let purpose = self.0.as_ref().map(|call| {
            let own = call.worker.most_of(&call.buckets) + bytes;
            call.worker.purpose_of_call(own)
        });
        self.try_reserve(bytes, purpose.unwrap_or(BodyPurpose::Call))
    }

    /// Reserves `bytes` that the call needs to complete, beyond the bound if need be.
    pub(crate) fn reserve(&self, bytes: usize) {
        if let Some(call) = &self.0 {
            call.worker.reserve(bytes);
            call.count(bytes, usize::wrapping_add);
        }
    }

    /// Returns reserved bytes to the ledger.
    pub(crate) fn release(&self, bytes: usize) {
        if let Some(call) = &self.0 {
            call.count(bytes, usize::wrapping_sub);
            call.worker.release(bytes);
        }
    }
}

/// Bytes reserved for one part of a call. Dropping the reservation returns the bytes.
#[derive(Default)]
pub struct BodyReservation {
    account: BodyAccount,
    bytes: usize,
}

impl BodyReservation {
    /// Makes an empty reservation.
    pub(crate) fn new(account: &BodyAccount) -> BodyReservation {
        BodyReservation {
            account: account.clone(),
            bytes: 0,
        }
    }

    /// Returns the account of the call.
    pub(crate) fn account(&self) -> &BodyAccount {
        &self.account
    }

    /// Returns the number of reserved bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reserves `bytes` more bytes, as far as `purpose` allows.
    #[must_use]
    pub(crate) fn try_grow(&mut self, bytes: usize, purpose: BodyPurpose) -> bool {
        let is_reserved = self.account.try_reserve(bytes, purpose);
        if is_reserved {
            self.bytes += bytes;
        }
        is_reserved
    }

    /// Reserves `bytes` more bytes that the call needs to complete.
    pub(crate) fn grow(&mut self, bytes: usize) {
        self.account.reserve(bytes);
        self.bytes += bytes;
    }

    /// Takes over the bytes of `other`, a reservation of the same call.
    pub(crate) fn merge(&mut self, mut other: BodyReservation) {
        let bytes = self.bytes + std::mem::take(&mut other.bytes);
        self.account = other.account.clone();
        self.bytes = bytes;
    }

    /// Leaves the bytes to the call, which returns them at its end.
    pub(crate) fn leave_to_call(&mut self) {
        self.bytes = 0;
    }

    /// Returns all but `bytes` bytes to the ledger.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.bytes -= surplus;
        self.account.release(surplus);
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests;
