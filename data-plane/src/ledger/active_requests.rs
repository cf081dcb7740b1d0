//! Requests under way, for the operator: [`ActiveRequests`] is the table of one worker, and [`ActiveRequestLedger`]
//! has the tables of all workers.
//!
//! A worker enters a request without an immediate response, and so a stored page costs nothing. Each table has
//! a lock of its own. Only the control plane takes the lock of another thread's table, and holds the lock for a bounded
//! number of entries: the entries are linked in the order of their start.

use crate::ledger::route_counters::RouteCounters;
use crate::limits::{ACTIVE_REQUEST_HOST_BYTES_MAX, ACTIVE_REQUEST_PATH_BYTES_MAX};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Progress of a request under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestPhase {
    /// The handler works on the response.
    Handler,
    /// The request waits until a member of the balancer is free.
    Queue,
    /// A member has the request.
    Member,
    /// The response is being sent.
    Response,
    /// The request has opened a tunnel.
    Tunnel,
}

impl RequestPhase {
    pub fn name(self) -> &'static str {
        match self {
            RequestPhase::Handler => "handler",
            RequestPhase::Queue => "queue",
            RequestPhase::Member => "member",
            RequestPhase::Response => "response",
            RequestPhase::Tunnel => "tunnel",
        }
    }
}

/// Request under way. The query is never kept.
#[derive(Clone, Debug)]
pub struct ActiveRequest {
    /// Start in microseconds on the clock of the workers.
    pub started_us: u64,
    /// Address of the client, which is not the peer of the connection behind a trusted proxy.
    pub client: IpAddr,
    /// Version of HTTP, such as `HTTP/1.1`.
    pub version: &'static str,
    /// Method of the request; `other` for a method without a registration.
    pub method: &'static str,
    /// Progress of the request.
    pub phase: RequestPhase,
    /// Counters of the route, which name the site; None without a site.
    pub route: Option<Arc<RouteCounters>>,
    /// Name of the member with the request.
    pub member: Option<Arc<str>>,
    /// Host and path.
    pub target: ActiveTarget,
}

impl Default for ActiveRequest {
    fn default() -> ActiveRequest {
        ActiveRequest {
            started_us: 0,
            client: Ipv4Addr::UNSPECIFIED.into(),
            version: "",
            method: "",
            phase: RequestPhase::Handler,
            route: None,
            member: None,
            target: ActiveTarget::default(),
        }
    }
}

/// Host and path of a request under way, in one allocation. Long texts are cut.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ActiveTarget {
    text: Vec<u8>,
    host_bytes: u8,
    is_path_cut: bool,
}

impl ActiveTarget {
    /// Returns the number of bytes that [`ActiveTarget::set`] copies.
    pub(crate) fn bytes(host: &[u8], path: &[u8]) -> usize {
        host.len().min(ACTIVE_REQUEST_HOST_BYTES_MAX)
            + path.len().min(ACTIVE_REQUEST_PATH_BYTES_MAX)
    }

    /// Copies at most [`ACTIVE_REQUEST_HOST_BYTES_MAX`] bytes of the host, and at most
    /// [`ACTIVE_REQUEST_PATH_BYTES_MAX`] bytes of the path, into the memory of the last target.
    pub fn set(&mut self, host: &[u8], path: &[u8]) {
        let host = &host[..host.len().min(ACTIVE_REQUEST_HOST_BYTES_MAX)];
        let kept = &path[..path.len().min(ACTIVE_REQUEST_PATH_BYTES_MAX)];
        self.text.clear();
        self.text.extend_from_slice(host);
        self.text.extend_from_slice(kept);
        self.host_bytes = host.len() as u8;
        self.is_path_cut = kept.len() < path.len();
    }

    /// Returns the host, or the beginning of a long host.
    pub fn host(&self) -> &[u8] {
        &self.text[..usize::from(self.host_bytes)]
    }

    /// Returns the path, or the beginning of a long path and an ellipsis.
    pub fn path(&self) -> String {
        let path = &self.text[usize::from(self.host_bytes)..];
        let mut path = String::from_utf8_lossy(path).into_owned();
        if self.is_path_cut {
            path.push('…');
        }
        path
    }
}

/// Table of the requests under way of one worker.
#[derive(Default, Debug)]
pub(crate) struct ActiveRequests(Mutex<Table>);

/// Entry of a request in a table. Dropping the guard removes the entry.
#[derive(Debug)]
pub(crate) struct ActiveRequestGuard(EntryKey);

/// Handle of the entry of a request, for the parts of the server that work on the request. The handle has no effect
/// after the removal of the entry.
#[derive(Clone, Default, Debug)]
pub(crate) struct ActiveRequestHandle(Option<EntryKey>);

/// Table of an entry, with the slot, and the generation of the slot.
#[derive(Clone, Debug)]
struct EntryKey {
    table: Arc<ActiveRequests>,
    slot: u32,
    generation: u32,
}

/// Slots of a table. The taken slots are a list from the oldest entry to the newest, and the free slots are a stack.
#[derive(Debug)]
struct Table {
    slots: Vec<Slot>,
    oldest: u32,
    newest: u32,
    free: u32,
    count: usize,
    /// Generation of the first entry of a new slot. The number grows when slots are freed, so that no old handle fits.
    first_generation: u32,
}

/// Slot of a table.
#[derive(Debug)]
struct Slot {
    /// Number of entries that have left the slot, with overflow.
    generation: u32,
    older: u32,
    /// Slot of the next newer entry; the next free slot for a free slot.
    newer: u32,
    /// Request of the entry. The next request in the slot reuses the memory of the target.
    request: ActiveRequest,
}

/// End of a list of slots.
const NONE: u32 = u32::MAX;
/// Slots that an empty table keeps for the next requests, 20 KB. The memory of more slots is freed.
const EMPTY_SLOTS_MAX: usize = 64;

impl Default for Table {
    fn default() -> Table {
        Table {
            slots: Vec::new(),
            oldest: NONE,
            newest: NONE,
            free: NONE,
            count: 0,
            first_generation: 0,
        }
    }
}

impl ActiveRequests {
    /// Enters a request as the newest. `fill` sets all values of the request but the member, which is None.
    pub(crate) fn enter(
        self: &Arc<Self>,
        fill: impl FnOnce(&mut ActiveRequest),
    ) -> ActiveRequestGuard {
        let mut table = self.table();
        let slot = table.push();
        let generation = match table.slots.get_mut(slot as usize) {
            Some(slot) => {
                fill(&mut slot.request);
                slot.generation
            }
            None => 0,
        };
        drop(table);
        ActiveRequestGuard(EntryKey {
            table: Arc::clone(self),
            slot,
            generation,
        })
    }

    /// Returns the number of requests in the table.
    pub(crate) fn count(&self) -> usize {
        self.table().count
    }

    /// Adds the requests in the table.
    fn add_to(&self, sum: &mut RequestsUnderWay) {
        let table = self.table();
        sum.requests += table.count;
        let mut at = table.oldest;
        while let Some(slot) = table.slots.get(at as usize) {
            sum.tunnels += usize::from(slot.request.phase == RequestPhase::Tunnel);
            at = slot.newer;
        }
    }

    /// Appends copies of the oldest requests, at most `max`. Returns the number of requests in the table.
    fn copy_oldest(&self, max: usize, into: &mut Vec<ActiveRequest>) -> usize {
        let table = self.table();
        let mut at = table.oldest;
        for _ in 0..max {
            let Some(slot) = table.slots.get(at as usize) else {
                break;
            };
            into.push(slot.request.clone());
            at = slot.newer;
        }
        table.count
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Poisoning is ignored: no code that could panic half-way runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ActiveRequestGuard {
    /// Returns a handle of the entry.
    pub(crate) fn handle(&self) -> ActiveRequestHandle {
        ActiveRequestHandle(Some(self.0.clone()))
    }

    /// Sets the progress of the request.
    pub(crate) fn set_phase(&self, phase: RequestPhase) {
        self.0.change(|request| request.phase = phase);
    }
}

impl Drop for ActiveRequestGuard {
    fn drop(&mut self) {
        self.0.table.table().remove(self.0.slot);
    }
}

impl ActiveRequestHandle {
    /// Records the wait for a member of the balancer.
    pub(crate) fn wait_for_member(&self) {
        if let Some(key) = &self.0 {
            key.change(|request| {
                request.phase = RequestPhase::Queue;
                request.member = None;
            });
        }
    }

    /// Records the member with the request.
    pub(crate) fn set_member(&self, name: &Arc<str>) {
        let Some(key) = &self.0 else { return };
        let name = Arc::clone(name);
        key.change(|request| {
            request.phase = RequestPhase::Member;
            request.member = Some(name);
        });
    }
}

impl EntryKey {
    /// Changes the request, unless the entry is gone.
    fn change(&self, change: impl FnOnce(&mut ActiveRequest)) {
        let mut table = self.table.table();
        let slot = table.slots.get_mut(self.slot as usize);
        if let Some(slot) = slot.filter(|slot| slot.generation == self.generation) {
            change(&mut slot.request);
        }
    }
}

impl Table {
    /// Takes a slot for a new entry, the newest. Returns the slot.
    fn push(&mut self) -> u32 {
        let (older, newer) = (self.newest, NONE);
        let at = match self.slots.get_mut(self.free as usize) {
            Some(slot) => {
                let at = std::mem::replace(&mut self.free, slot.newer);
                (slot.older, slot.newer) = (older, newer);
                at
            }
            None => {
                self.slots.push(Slot {
                    generation: self.first_generation,
                    older,
                    newer,
                    request: ActiveRequest::default(),
                });
                self.slots.len() as u32 - 1
            }
        };
        match self.slots.get_mut(self.newest as usize) {
            Some(newest) => newest.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
        self.count += 1;
        at
    }

    /// Removes the entry in a slot. A long table frees the memory of the target, so that a burst leaves little memory
    /// taken.
    fn remove(&mut self, at: u32) {
        let is_long = self.slots.len() > EMPTY_SLOTS_MAX;
        let Some(slot) = self.slots.get_mut(at as usize) else {
            return;
        };
        slot.generation = slot.generation.wrapping_add(1);
        slot.request.route = None;
        slot.request.member = None;
        if is_long {
            slot.request.target = ActiveTarget::default();
        }
        let (older, newer) = (slot.older, slot.newer);
        slot.newer = std::mem::replace(&mut self.free, at);
        match self.slots.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
        match self.slots.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        self.count -= 1;
        if self.count == 0 && is_long {
            let generations = self.slots.iter().map(|slot| slot.generation);
            self.first_generation = generations.max().unwrap_or_default();
            self.slots = Vec::new();
            self.free = NONE;
        }
    }
}

/// Tables of the requests under way of all workers.
#[derive(Debug)]
pub struct ActiveRequestLedger(Box<[Arc<ActiveRequests>]>);

/// Number of requests under way of all workers, which an end of the process would cut.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct RequestsUnderWay {
    /// Number of all requests.
    pub requests: usize,
    /// Number of requests that have opened a tunnel.
    pub tunnels: usize,
}

/// Oldest requests under way of all workers.
#[derive(Clone, Default, Debug)]
pub struct OldestRequests {
    /// Number of all requests under way.
    pub count: usize,
    /// Requests under way, the oldest first.
    pub requests: Vec<ActiveRequest>,
}

impl ActiveRequestLedger {
    /// Returns the number of requests under way. Walks over all requests, under the lock of their table.
    pub fn under_way(&self) -> RequestsUnderWay {
        let mut sum = RequestsUnderWay::default();
        self.0.iter().for_each(|table| table.add_to(&mut sum));
        sum
    }

    /// Returns empty tables for `workers` threads.
    pub fn new(workers: usize) -> ActiveRequestLedger {
        ActiveRequestLedger((0..workers).map(|_| Arc::default()).collect())
    }

    /// Returns the table of a worker. A number past the last worker gets a table that is never read.
    pub(crate) fn worker(&self, worker: usize) -> Arc<ActiveRequests> {
        self.0.get(worker).cloned().unwrap_or_default()
    }

    /// Returns the oldest requests of all workers, at most `max`.
    pub fn oldest(&self, max: usize) -> OldestRequests {
        let mut oldest = OldestRequests::default();
        for table in &self.0 {
            oldest.count += table.copy_oldest(max, &mut oldest.requests);
        }
        (oldest.requests).sort_by_key(|request| request.started_us);
        oldest.requests.truncate(max);
        oldest
    }
}

#[cfg(test)]
mod tests;
