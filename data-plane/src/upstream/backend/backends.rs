//! Backends with their connection pools.
//!
//! A backend such as php-fpm has a fixed number of processes, and each process serves one connection at a
//! time: an open connection occupies a process even without a request, and a connection without a process
//! waits in the backend's queue. With [`ReusePolicy::Handover`] an idle connection is therefore closed
//! within milliseconds unless a call takes the connection over.

#[cfg(test)]
mod tests;

use crate::ledger::admission::{AdmissionControl, AdmissionRefused, CallSlot, WorkStart};
use crate::ledger::backend_queue::SentRequest;
use crate::ledger::shared_limit::{RefusalCounters, SharedLimit};
use crate::limits::{
    BACKEND_CONNECT_SECONDS, BACKEND_CONNECT_TRIES, BACKEND_RETRY_MILLISECONDS, CALL_QUEUE_SECONDS,
    CALL_QUEUE_SECONDS_WITH_BODY,
};
use crate::upstream::address::BackendAddress;
use crate::upstream::backend::conn::{Conn, IdleConn};
use crate::upstream::backend::handover::{HandoverCheck, HandoverState, IDLE_MAX};
use crate::upstream::backend::report::{BackendCounters, BackendReport, BackendRoute};
use crate::upstream::backend::reuse_policy::ReusePolicy;
use balancer::LatencyBuckets;
use base::client_network::ClientNetwork;
use base::task::spawn_local;
use rustix::io::Errno;
use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// Registry of all backends in all Worlds, with one entry per address.
#[derive(Default)]
pub struct Backends {
    all: Mutex<Vec<(BackendAddress, Weak<Backend>)>>,
    refusals: Arc<RefusalCounters>,
}

impl Backends {
    /// Creates an empty registry. Requests refused because a client exceeds its share are counted in
    /// `refusals`.
    pub fn new(refusals: &Arc<RefusalCounters>) -> Backends {
        Backends {
            all: Mutex::default(),
            refusals: Arc::clone(refusals),
        }
    }

    /// Returns the registered backend at `address`, else a new backend with the policy `keep`. A registered
    /// backend keeps its policy until [`Backend::set_reuse_policy`] is called. The registry stays as it is:
    /// [`Backends::register`] adds a new backend.
    pub fn find_or_new(&self, address: &BackendAddress, keep: ReusePolicy) -> Arc<Backend> {
        let all = self.lock();
        let known = all
            .iter()
            .find(|(known_address, _)| known_address == address);
        if let Some(backend) = known.and_then(|(_, backend)| backend.upgrade()) {
            return backend;
        }
        let max = keep.connections_max();
        let slots = AdmissionControl::new(
            max,
            WorkStart::WithAnswer,
            SharedLimit::Calls,
            &self.refusals,
        );
        Arc::new(Backend {
            address: address.clone(),
            slots: Arc::new(slots),
            connect_errno: AtomicI32::new(0),
            counters: BackendCounters::default(),
            connections: Mutex::new(ConnPool {
                keep,
                idle: Vec::new(),
                handover: HandoverState::new(),
                is_swept: false,
            }),
        })
    }

    /// Adds a backend of [`Backends::find_or_new`] unless registered. The caller registers a backend before
    /// the next search for its address, so that the address never has two backends.
    pub(crate) fn register(&self, backend: &Arc<Backend>) {
        let mut all = self.lock();
        all.retain(|(_, known)| known.strong_count() > 0);
        let known = all
            .iter()
            .find(|(known_address, _)| *known_address == backend.address);
        match known {
            None => all.push((backend.address.clone(), Arc::downgrade(backend))),
            Some((_, known)) => debug_assert!(std::ptr::eq(known.as_ptr(), &raw const **backend)),
        }
    }

    /// Returns the backends that the last connection did not reach, each with the reason.
    pub fn unreachable(&self) -> Vec<String> {
        let all = self.lock();
        let backends = all.iter().filter_map(|(_, backend)| backend.upgrade());
        backends
            .filter_map(|backend| {
                let error = backend.fault()?;
                let address = &backend.address;
                Some(format!(
                    "the last connection to the backend {address} failed: {error}"
                ))
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(BackendAddress, Weak<Backend>)>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A backend with its connections.
pub struct Backend {
    /// The address of the backend.
    pub address: BackendAddress,
    /// Slots for connections; each open connection holds a slot.
    slots: Arc<AdmissionControl>,
    /// Error number of the last connection attempt; 0 after a success.
    connect_errno: AtomicI32,
    counters: BackendCounters,
    connections: Mutex<ConnPool>,
}

struct ConnPool {
    keep: ReusePolicy,
    /// Idle connections; the most recently used connection is the last element.
    idle: Vec<PooledConn>,
    handover: HandoverState,
    /// True while a [`HandoverSweeper`] watches the handed-over connections.
    is_swept: bool,
}

struct PooledConn {
    conn: IdleConn,
    since: Instant,
}

impl Backend {
    /// Changes the policy for connections. Calls in progress are not affected. Excess idle connections are
    /// closed.
    pub(crate) fn set_reuse_policy(&self, keep: ReusePolicy) {
        let mut pool = self.lock();
        if std::mem::replace(&mut pool.keep, keep) == keep {
            return;
        }
        self.slots.resize(keep.connections_max());
        let excess = match keep {
            ReusePolicy::UpTo(max) => pool.idle.len().saturating_sub(max),
            ReusePolicy::Never | ReusePolicy::Handover => pool.idle.len(),
        };
        let closed: Vec<PooledConn> = pool.idle.drain(..excess).collect();
        drop(pool);
        drop(closed);
    }

    /// Returns the state of the backend. `routes` are the routes with the backend.
    pub fn report(&self, routes: &[BackendRoute]) -> BackendReport {
        let pool = self.lock();
        let (keep, idle) = (pool.keep, pool.idle.len());
        drop(pool);
        let (busy, waiting) = self.slots.load();
        let mut report = BackendReport {
            address: self.address.to_string(),
            routes: routes.to_vec(),
            keep,
            places: keep.connections_max(),
            busy,
            waiting,
            idle,
            answers: [0; 5],
            failures: 0,
            refused: 0,
            latencies: LatencyBuckets::default(),
            fault: self.fault(),
        };
        self.counters.write(&mut report);
        report
    }

    /// Counts the head of an answer, a `latency` after the call got its place.
    pub(crate) fn record_answer(&self, status: u16, latency: Duration) {
        self.counters.record_answer(status, latency);
    }

    /// Counts a call without an answer.
    pub(crate) fn record_failure(&self) {
        self.counters.record_failure();
    }

    /// Counts a call that found no place.
    pub(crate) fn record_refused(&self) {
        self.counters.record_refused();
    }

    /// Returns the reason why the last connection failed; None after a success.
    fn fault(&self) -> Option<String> {
        let errno = self.connect_errno.load(Ordering::Relaxed);
        (errno != 0).then(|| io::Error::from_raw_os_error(errno).to_string())
    }

    /// Waits for a connection slot for a call of `client`, in a queue of at most `queue_max` calls. `is_streamed` means that
    /// the body of the call has not arrived yet. While the number of slots is temporarily reduced, the queue is longer by the
    /// number of missing slots.
    pub(crate) fn enter(
        &self,
        client: ClientNetwork,
        is_streamed: bool,
        queue_max: usize,
    ) -> impl Future<Output = Result<CallSlot, AdmissionRefused>> + use<> {
        let is_kept_here = is_streamed && self.slots.may_queue_in_backend();
        let timeout = Duration::from_secs(if is_kept_here {
            CALL_QUEUE_SECONDS_WITH_BODY
        } else {
            CALL_QUEUE_SECONDS
        });
        self.slots
            .enter_with_body(client, is_streamed, queue_max, timeout)
    }

    /// Returns the policy for the connection of a new request. `may_retry` means that the request may be
    /// sent twice.
    pub fn reuse_policy_for(&self, may_retry: bool) -> ReusePolicy {
        let pool = self.lock();
        // For TCP the kernel cannot report whether the peer has read the request.
        let can_hand_over = may_retry && matches!(self.address, BackendAddress::Unix(_));
        let is_reusable = match pool.keep {
            ReusePolicy::Never => false,
            ReusePolicy::Handover => can_hand_over && pool.handover.is_allowed(Instant::now()),
            ReusePolicy::UpTo(_) => !pool.handover.is_paused(Instant::now()),
        };
        if is_reusable {
            pool.keep
        } else {
            ReusePolicy::Never
        }
    }

    /// Takes an idle connection for a request with the policy `keep`, as returned by
    /// [`Backend::reuse_policy_for`]. A kept connection is first checked for being open. A closed
    /// handed-over connection shows only when the request is sent; the request may then be sent again.
    pub(crate) fn take_idle(&self, keep: ReusePolicy) -> Option<IdleConn> {
        let mut pool = self.lock();
        let mut last = pool.idle.pop()?;
        if !keep.is_compatible_with(pool.keep) {
            // The request cannot use the idle connection. The connection is closed, because the new
            // connection of the request may need the process that the idle connection occupies.
            drop(pool);
            drop(last);
            return None;
        }
        let mut closed = Vec::new();
        if keep != ReusePolicy::Handover && !last.conn.is_open() {
            // The backend restarted, or closes surplus connections. Further idle connections are then
            // closed as well, and are removed here so that no closed connection stays open on the server's
            // side.
            closed.push(last);
            let is_closed = |idle: &mut PooledConn| !idle.conn.is_open();
            closed.extend(pool.idle.extract_if(.., is_closed));
            last = pool.idle.pop()?;
        }
        drop(pool);
        Some(last.conn)
    }

    /// Opens a connection without waiting, if possible. Connecting to a Unix socket mostly succeeds at
    /// once.
    pub(crate) fn connect_now(&self) -> Option<IdleConn> {
        if !matches!(self.address, BackendAddress::Unix(_)) {
            return None;
        }
        let (socket, _) = self.address.begin_connecting().ok()?;
        self.record_connection(None);
        Some(IdleConn::new(socket, Instant::now()))
    }

    /// Records a request sent on a connection that may be handed over later. Returns the record for the slot of the call.
    pub(crate) fn record_sent(self: &Arc<Self>, conn: &Conn) -> Option<SentRequest> {
        let mut pool = self.lock();
        let is_reused = conn.has_answered();
        pool.handover
            .record_sent(conn.fd(), is_reused, Instant::now());
        let sent = pool.handover.sent_request(conn.fd());
        self.ensure_sweeper(pool, is_reused);
        sent
    }

    /// Returns true if the kernel counts the unread bytes of a connection to the backend.
    pub(crate) fn counts_unread_bytes(&self) -> bool {
        matches!(self.address, BackendAddress::Unix(_))
    }

    /// Returns the record of a request on a Unix socket that was sent with a separate empty record at its end.
    pub(crate) fn sent_whole(&self, conn: &Conn) -> Option<SentRequest> {
        self.lock().handover.sent_request(conn.fd())
    }

    /// Returns true if the backend may not have read the request on the ended connection.
    pub(crate) fn may_be_unread(&self, conn: &Conn) -> bool {
        self.lock().handover.may_be_unread(conn.fd())
    }

    /// Returns a connection without a call in progress to the pool, if the current policy and the policy
    /// `keep` at the arrival of the request allow reuse. After a change of policy, other calls may wait for
    /// the process that the connection occupies.
    pub(crate) fn put_idle(self: &Arc<Self>, conn: Conn, keep: ReusePolicy) {
        let conn = conn.into_idle();
        let now = Instant::now();
        let mut pool = self.lock();
        let is_reusable = match pool.keep {
            current if !keep.is_compatible_with(current) => false,
            ReusePolicy::Never => false,
            ReusePolicy::UpTo(max) => pool.idle.len() < max,
            ReusePolicy::Handover => pool.handover.record_answer(&conn, now, &self.slots),
        };
        let closed = if is_reusable {
            pool.idle.push(PooledConn { conn, since: now });
            None
        } else {
            Some(conn)
        };
        let is_needed = match pool.keep {
            ReusePolicy::Handover => is_reusable || self.slots.withheld() > 0,
            ReusePolicy::Never | ReusePolicy::UpTo(_) => false,
        };
        self.ensure_sweeper(pool, is_needed);
        drop(closed);
    }

    /// Starts a [`HandoverSweeper`] if `is_needed` is true and no sweeper runs.
    fn ensure_sweeper(self: &Arc<Self>, mut pool: MutexGuard<'_, ConnPool>, is_needed: bool) {
        let starts = is_needed && !std::mem::replace(&mut pool.is_swept, true);
        drop(pool);
        if starts {
            let sweeper = HandoverSweeper {
                backend: Arc::clone(self),
                is_done: false,
            };
            spawn_local(sweeper.sweep());
        }
    }

    /// Excludes the backend from reuse for a long pause, after the backend ended a response with the
    /// number of a request other than the last one on the connection. The backend may ignore request
    /// numbers, so the server cannot know the request of a response on a reused connection.
    pub(crate) fn mark_unfit_for_reuse(&self) {
        self.lock().handover.pause_for_long(Instant::now());
        self.slots.lift_limit();
    }

    /// Records that the backend closed a connection meant for reuse.
    pub(crate) fn record_lost(&self) {
        let mut pool = self.lock();
        let is_handover = pool.keep == ReusePolicy::Handover;
        if is_handover && pool.handover.record_lost(Instant::now()) {
            self.slots.lift_limit();
        }
    }

    fn lock(&self) -> MutexGuard<'_, ConnPool> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a connection. While the backend is restarting, the call waits briefly and tries again. Errors:
    /// `WouldBlock` means that the backend's queue is full.
    pub(crate) async fn connect(&self) -> io::Result<Conn> {
        let timeout = Duration::from_secs(BACKEND_CONNECT_SECONDS);
        let mut attempts = 0;
        loop {
            let connected = tokio::time::timeout(timeout, self.connect_once());
            let connected = connected
                .await
                .unwrap_or(Err(io::ErrorKind::TimedOut.into()));
            attempts += 1;
            match connected {
                Err(error) if attempts < BACKEND_CONNECT_TRIES && is_transient(&error) => {
                    tokio::time::sleep(Duration::from_millis(BACKEND_RETRY_MILLISECONDS)).await;
                }
                other => {
                    self.record_connection(other.as_ref().err());
                    return other;
                }
            }
        }
    }

    /// Records the result of a connection attempt for the status. A full queue shows that the backend runs.
    fn record_connection(&self, error: Option<&io::Error>) {
        let errno = match error {
            None => 0,
            Some(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Some(error) => error
                .raw_os_error()
                .unwrap_or(Errno::TIMEDOUT.raw_os_error()),
        };
        // A busy backend has its state in the caches of all workers.
        if self.connect_errno.load(Ordering::Relaxed) != errno {
            self.connect_errno.store(errno, Ordering::Relaxed);
        }
    }

    async fn connect_once(&self) -> io::Result<Conn> {
        let (socket, is_connected) = self.address.begin_connecting()?;
        let conn = IdleConn::new(socket, Instant::now()).register(false)?;
        if is_connected {
            Ok(conn)
        } else {
            conn.established().await
        }
    }
}

/// Task that watches the handed-over connections until no connection is left.
struct HandoverSweeper {
    backend: Arc<Backend>,
    /// True after the sweep has ended without connections left.
    is_done: bool,
}

impl HandoverSweeper {
    async fn sweep(mut self) {
        let backend = Arc::clone(&self.backend);
        let mut check = HandoverCheck::new(Instant::now());
        loop {
            tokio::time::sleep(IDLE_MAX).await;
            let now = Instant::now();
            let mut pool = backend.lock();
            let is_old = |idle: &mut PooledConn| now.duration_since(idle.since) >= IDLE_MAX;
            let closed: Vec<PooledConn> = match pool.keep {
                ReusePolicy::Handover => pool.idle.extract_if(.., is_old).collect(),
                ReusePolicy::Never | ReusePolicy::UpTo(_) => Vec::new(),
            };
            let has_unread = check.run(&mut pool.handover, now, &backend.slots);
            let is_empty = pool.idle.is_empty() && backend.slots.withheld() == 0;
            let is_finished = !has_unread && (is_empty || pool.keep != ReusePolicy::Handover);
            // Set under the lock: the next request starts a new sweeper.
            pool.is_swept = !is_finished;
            drop(pool);
            drop(closed);
            if is_finished {
                self.is_done = true;
                return;
            }
        }
    }
}

impl Drop for HandoverSweeper {
    /// Cleans up after a sweeper that ends early with its worker. Idle connections are closed and all slots
    /// are restored, so no call depends on a sweeper. The next request sent starts a new sweeper.
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let mut pool = self.backend.lock();
        pool.is_swept = false;
        let closed = match pool.keep {
            ReusePolicy::Handover => std::mem::take(&mut pool.idle),
            ReusePolicy::Never | ReusePolicy::UpTo(_) => Vec::new(),
        };
        self.backend.slots.lift_limit();
        drop(pool);
        drop(closed);
    }
}

/// Returns true for an error of a backend that may accept a connection shortly afterwards.
fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound, WouldBlock};
    matches!(error.kind(), ConnectionRefused | NotFound | WouldBlock)
}
