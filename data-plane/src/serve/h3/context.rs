//! State of HTTP/3 that connections share: on a worker, and on all workers of the process.

use crate::serve::h3::connection_id::random_generation;
use crate::serve::h3::forwards::{Forwards, pair};
use crate::serve::h3::socket::QuicSocket;
use crate::serve::quic_forward::QuicForward;
use base::fair_share::ClientHoldings;
use quinn::{Endpoint, Incoming};
use std::cell::{Cell, RefCell};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use wire::field_section::FieldSection;
use wire::h3::qpack::QpackScratch;

/// State of HTTP/3 of the process: the workers that take new connections, the hosted sockets, and the processes
/// before this one that still have connections over the same sockets.
pub struct QuicWorkers {
    /// First byte of the process's connection ids. No other living process has the byte.
    pub(super) generation: u8,
    /// Predecessors for each address. The list outlives a worker that has to be restarted.
    forwards: Mutex<Vec<(SocketAddr, Arc<Forwards>)>>,
    /// Hosted sockets. An endpoint owns its socket.
    sockets: Mutex<Vec<Weak<QuicSocket>>>,
    /// Workers that take new connections. The list changes only when a worker starts or ends.
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

impl Default for QuicWorkers {
    fn default() -> QuicWorkers {
        QuicWorkers::succeeding(Vec::new())
    }
}

impl QuicWorkers {
    /// Creates the state of a process that takes over from the processes at the other ends of `forwards`, with a
    /// generation of its own.
    pub fn succeeding(forwards: Vec<QuicForward>) -> QuicWorkers {
        let mut generation = random_generation();
        // At most 3 predecessors run.
        while forwards.iter().any(|it| it.generation == generation) {
            generation = generation.wrapping_add(1);
        }
        let quic = QuicWorkers {
            generation,
            forwards: Mutex::default(),
            sockets: Mutex::default(),
            workers: Mutex::default(),
            unproven: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            assigned: AtomicUsize::new(0),
        };
        for forward in forwards {
            let forwards = quic.forwards(forward.address);
            forwards.add(forward.generation, forward.socket.into());
        }
        quic
    }

    /// Returns the predecessors with connections at the address.
    pub(super) fn forwards(&self, address: SocketAddr) -> Arc<Forwards> {
        let mut all = self.forwards.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, forwards)) = all.iter().find(|(of, _)| *of == address) {
            return forwards.clone();
        }
        let forwards = Arc::<Forwards>::default();
        all.push((address, forwards.clone()));
        forwards
    }

    /// Adds a hosted socket.
    pub(super) fn host(&self, socket: &Arc<QuicSocket>) {
        let mut sockets = self.sockets();
        sockets.retain(|socket| socket.strong_count() > 0);
        sockets.push(Arc::downgrade(socket));
    }

    /// Prepares for a successor: returns the ends of socket pairs over which a successor that reads the UDP
    /// sockets reaches this process and its predecessors. This process reads its sockets until the successor
    /// begins to read, and again if the successor ends before the process leaves.
    ///
    /// # Errors
    /// Fails if no descriptor is left.
    pub fn hand_over(&self) -> io::Result<Vec<QuicForward>> {
        let mut handed = Vec::new();
        for socket in self.sockets().iter().filter_map(Weak::upgrade) {
            let address = quinn::AsyncUdpSocket::local_addr(&*socket)?;
            handed.extend(socket.forwards().hand_over(address)?);
            let (reader, own) = pair()?;
            socket.offer(own);
            handed.push(QuicForward {
                address,
                generation: self.generation,
                socket: reader.into(),
            });
        }
        Ok(handed)
    }

    /// Returns the number of datagrams dropped because a predecessor was behind.
    pub fn datagrams_dropped(&self) -> u64 {
        let all = self.forwards.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(_, forwards)| forwards.dropped()).sum()
    }

    /// Records that the process accepts no new connections.
    pub(super) fn leave_sockets(&self) {
        for socket in self.sockets().iter().filter_map(Weak::upgrade) {
            socket.leave();
        }
    }

    fn sockets(&self) -> MutexGuard<'_, Vec<Weak<QuicSocket>>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

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
