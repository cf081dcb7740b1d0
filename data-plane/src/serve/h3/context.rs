//! State of HTTP/3 that connections share: on a worker, and on all workers of the process.

use base::fair_share::ClientHoldings;
use quinn::{Endpoint, Incoming};
use std::cell::{Cell, RefCell};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use wire::field_section::FieldSection;
use wire::h3::qpack::QpackScratch;

/// Workers that take new connections. The list changes only when a worker starts or ends.
#[derive(Default)]
pub struct QuicWorkers {
    workers: Mutex<Vec<QuicWorker>>,
    /// Handshakes under way with clients at addresses that are not validated and may be spoofed.
    pub(super) unproven: AtomicUsize,
    /// Open connections of all workers.
    pub(super) open: AtomicUsize,
    /// Connections assigned to a worker that has not counted them yet.
    pub(super) assigned: AtomicUsize,
}

struct QuicWorker {
    sender: UnboundedSender<Incoming>,
    /// Number of connections of the worker.
    taken: Arc<AtomicUsize>,
}

/// State shared by the HTTP/3 connections of a worker.
#[derive(Default)]
pub(crate) struct H3Context {
    requests: RefCell<Vec<FieldSection>>,
    pub(super) strings: RefCell<QpackScratch>,
    /// Endpoints with sockets that the worker reads for all workers.
    pub(super) hosted: RefCell<Vec<Endpoint>>,
    /// Sockets without an endpoint, because the World has no configuration for QUIC.
    pub(super) unused: RefCell<Vec<UdpSocket>>,
    /// Number of connections of the worker, shared with the worker's [`QuicWorker`].
    pub(super) taken: Arc<AtomicUsize>,
    /// Bytes above `H3_UNACKNOWLEDGED_BYTES_MIN` that the send windows of connections allow, by client.
    pub(super) windows: RefCell<ClientHoldings>,
    /// Number of new connections that wait while all connections are taken.
    pub(super) waiting: Cell<usize>,
    /// Notified when connections must check whether to go on: a drain has begun, or HTTP/3 was switched
    /// off.
    pub(super) told: Notify,
}

impl H3Context {
    /// Returns the number of connections of the worker.
    pub(in crate::serve) fn open(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Returns an empty request, with the buffers of an earlier request where possible.
    pub(super) fn request(&self) -> FieldSection {
        self.requests.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps the buffers of a request for a later request.
    pub(super) fn keep(&self, request: FieldSection) {
        let mut requests = self.requests.borrow_mut();
        if requests.len() < REQUESTS_KEPT_MAX {
            requests.push(request);
        }
    }

    /// Makes every connection check whether to go on.
    pub(in crate::serve) fn tell(&self) {
        self.told.notify_waiters();
    }
}

/// Most sets of request buffers that are kept. Few requests are decoded at the same time; a waiting request
/// keeps the buffers in use.
const REQUESTS_KEPT_MAX: usize = 16;

impl QuicWorkers {
    /// Adds a worker, which takes connections through `sender` and counts them in `taken`.
    pub(super) fn join(&self, sender: UnboundedSender<Incoming>, taken: Arc<AtomicUsize>) {
        self.workers().push(QuicWorker { sender, taken });
    }

    /// Removes the worker that counts its connections in `taken`.
    pub(super) fn leave(&self, taken: &Arc<AtomicUsize>) {
        self.workers()
            .retain(|worker| !Arc::ptr_eq(&worker.taken, taken));
    }

    fn workers(&self) -> std::sync::MutexGuard<'_, Vec<QuicWorker>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Assigns the connection to the worker with the fewest connections.
    pub(super) fn assign(&self, mut incoming: Incoming) {
        let mut workers = self.workers();
        self.assigned.fetch_add(1, Ordering::Relaxed);
        loop {
            let load = |worker: &&QuicWorker| worker.taken.load(Ordering::Relaxed);
            let Some(worker) = workers.iter().min_by_key(load) else {
                self.assigned.fetch_sub(1, Ordering::Relaxed);
                return incoming.refuse();
            };
            let taken = worker.taken.clone();
            match worker.sender.send(incoming) {
                Ok(()) => return,
                // The worker has ended.
                Err(back) => incoming = back.0,
            }
            workers.retain(|worker| !Arc::ptr_eq(&worker.taken, &taken));
        }
    }
}
