//! State of HTTP/3 that connections share: on a worker, and on all workers of the process.

use crate::base::fair_share::ClientHoldings;
use crate::wire::field_section::FieldSection;
use crate::wire::h3::qpack::QpackScratch;
use quinn::{Endpoint, Incoming};
use std::cell::RefCell;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

/// Workers that take new connections. The list changes only when a worker starts or ends.
#[derive(Default)]
pub struct QuicWorkers {
    seats: Mutex<Vec<QuicWorker>>,
    /// Handshakes under way with clients at addresses that are not validated and may be spoofed.
    pub(super) unproven: AtomicUsize,
    /// Open connections of all workers.
    pub(super) open: AtomicUsize,
}

struct QuicWorker {
    hand: UnboundedSender<Incoming>,
    /// Number of connections of the worker.
    taken: Arc<AtomicUsize>,
}

/// State shared by the HTTP/3 connections of a worker.
#[derive(Default)]
pub struct H3Context {
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
    /// Adds a worker, which takes connections through `hand` and counts them in `taken`.
    pub(super) fn join(&self, hand: UnboundedSender<Incoming>, taken: Arc<AtomicUsize>) {
        self.seats().push(QuicWorker { hand, taken });
    }

    /// Removes the worker that counts its connections in `taken`.
    pub(super) fn leave(&self, taken: &Arc<AtomicUsize>) {
        self.seats().retain(|seat| !Arc::ptr_eq(&seat.taken, taken));
    }

    fn seats(&self) -> std::sync::MutexGuard<'_, Vec<QuicWorker>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Assigns the connection to the worker with the fewest connections.
    pub(super) fn deal(&self, mut incoming: Incoming) {
        let mut seats = self.seats();
        loop {
            let load = |seat: &&QuicWorker| seat.taken.load(Ordering::Relaxed);
            let Some(seat) = seats.iter().min_by_key(load) else {
                return incoming.refuse();
            };
            let taken = seat.taken.clone();
            match seat.hand.send(incoming) {
                Ok(()) => return,
                // The worker has ended.
                Err(back) => incoming = back.0,
            }
            seats.retain(|seat| !Arc::ptr_eq(&seat.taken, &taken));
        }
    }
}
