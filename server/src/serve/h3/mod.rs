//! HTTP/3: QUIC by quinn, below the protocol logic of `wire::h3`.
//!
//! One endpoint serves all workers. The worker that hosts an address reads the socket, and assigns each new
//! connection to the worker with the fewest connections. From then on the connection belongs to the
//! assigned worker, which decrypts, answers and writes to the socket. The hosting worker only passes
//! received datagrams on. A client may change address or port at will: a connection never moves to another
//! worker.

mod exchange;
mod call;
mod session;
mod socket;
mod pending_request;

use super::accept::Eviction;
use super::worker::Worker;
use crate::base::fair_share::{ClientHoldings, ClientNetwork};
use crate::base::task::spawn_local;
use crate::limits;
use crate::serve::connection_ledger::{ConnectionEntryGuard, ConnectionOwner, Shortage};
use crate::tls;
use crate::wire::field_section::FieldSection;
use crate::wire::h3::qpack::QpackScratch;
use aws_lc_rs::{hkdf, hmac};
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, EndpointConfig, IdleTimeout, Incoming, TokioRuntime, TransportConfig};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// Workers that take new connections. The list changes only when a worker starts or ends.
#[derive(Default)]
pub struct QuicWorkers {
    seats: Mutex<Vec<QuicWorker>>,
    /// Handshakes under way with clients at addresses that are not validated and may be spoofed.
    unproven: AtomicUsize,
    /// Open connections of all workers.
    open: AtomicUsize,
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
    strings: RefCell<QpackScratch>,
    /// Endpoints with sockets that the worker reads for all workers.
    hosted: RefCell<Vec<Endpoint>>,
    /// Sockets without an endpoint, because the World has no configuration for QUIC.
    unused: RefCell<Vec<UdpSocket>>,
    /// Number of connections of the worker, shared with the worker's [`QuicWorker`].
    taken: Arc<AtomicUsize>,
    /// Bytes above `H3_UNACKNOWLEDGED_BYTES_MIN` that the send windows of connections allow, by client.
    windows: RefCell<ClientHoldings>,
    /// Notified when connections must check whether to go on: a drain has begun, or HTTP/3 was switched
    /// off.
    told: Notify,
}

impl H3Context {
    /// Returns the number of connections of the worker.
    pub(super) fn open(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Returns an empty request, with the buffers of an earlier request where possible.
    fn request(&self) -> FieldSection {
        self.requests.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps the buffers of a request for a later request.
    fn keep(&self, request: FieldSection) {
        let mut requests = self.requests.borrow_mut();
        if requests.len() < REQUESTS_KEPT_MAX {
            requests.push(request);
        }
    }

    /// Makes every connection check whether to go on.
    pub(super) fn tell(&self) {
        self.told.notify_waiters();
    }
}

/// Registers the worker for new connections, and starts the task that admits them.
pub(super) fn begin(worker: &Rc<Worker>) {
    let (hand, mut incoming) = unbounded_channel();
    let taken = worker.h3.taken.clone();
    worker.shared.quic.seats().push(QuicWorker { hand, taken });
    let worker = worker.clone();
    spawn_local(async move {
        while let Some(incoming) = incoming.recv().await {
            worker.admit(incoming);
        }
    });
}

/// Reads the socket from now on, on behalf of all workers.
pub(super) fn host(worker: &Rc<Worker>, socket: UdpSocket) -> io::Result<()> {
    let world = worker.world();
    let Some(quic) = world.tls.as_ref().and_then(|tls| tls.quic()) else {
        // TLS 1.3 is off; a later World may enable TLS 1.3.
        worker.h3.unused.borrow_mut().push(socket);
        return Ok(());
    };
    let config = EndpointConfig::new(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &quic.secret)));
    let server = server_config(worker);
    let socket = socket::QuicSocket::new(socket)?;
    let runtime = Arc::new(TokioRuntime);
    let endpoint = Endpoint::new_with_abstract_socket(config, server, socket, runtime)?;
    worker.h3.hosted.borrow_mut().push(endpoint.clone());
    spawn_local(deal(worker.clone(), endpoint));
    Ok(())
}

/// Assigns new connections of an endpoint to workers.
async fn deal(worker: Rc<Worker>, endpoint: Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        if let Some(incoming) = worker.may_come(incoming) {
            worker.shared.quic.deal(incoming);
        }
    }
}

/// Applies a new World: the certificates and limits hold for connections that begin from now on.
pub(super) fn configure(worker: &Rc<Worker>) {
    for socket in worker.h3.unused.take() {
        if let Err(error) = host(worker, socket) {
            log::error!("can't speak HTTP/3: {error}");
        }
    }
    for endpoint in worker.h3.hosted.borrow().iter() {
        endpoint.set_server_config(server_config(worker));
    }
    if worker.world().h3_port.is_none() {
        worker.h3.tell();
    }
}

/// Stops accepting connections on the address.
pub(super) fn unlisten(worker: &Worker, address: SocketAddr) {
    let is_other = |its: io::Result<SocketAddr>| its.is_ok_and(|its| its != address);
    let mut unused = worker.h3.unused.borrow_mut();
    unused.retain(|socket| is_other(socket.local_addr()));
    worker.h3.hosted.borrow_mut().retain(|endpoint| {
        let stays = is_other(endpoint.local_addr());
        if !stays {
            endpoint.set_server_config(None);
        }
        stays
    });
}

/// Begins a drain: the worker takes no new connections, and hosted sockets accept none.
pub(super) fn leave(worker: &Worker) {
    let seats = &worker.shared.quic;
    let taken = &worker.h3.taken;
    seats
        .seats()
        .retain(|seat| !Arc::ptr_eq(&seat.taken, taken));
    for endpoint in worker.h3.hosted.borrow().iter() {
        endpoint.set_server_config(None);
    }
    worker.h3.tell();
}

/// Waits until the last packets of the worker's connections are sent. A worker that hosts a socket also
/// waits for the connections of other workers.
pub(super) async fn end(worker: &Worker) {
    let hosted = worker.h3.hosted.take();
    for endpoint in hosted {
        while worker.shared.quic.open.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(LOOK).await;
        }
        // A client that missed the close repeats packets for a while, and each packet is answered with
        // another close.
        let _ = timeout(LAST_WORDS, endpoint.wait_idle()).await;
    }
    // The last packets of a connection are sent when the connection's task is next polled.
    for _ in 0..LAST_TURNS {
        tokio::task::yield_now().await;
    }
}

/// Most sets of request buffers that are kept. Few requests are decoded at the same time; a waiting request
/// keeps the buffers in use.
const REQUESTS_KEPT_MAX: usize = 16;
/// Interval at which the host of a socket checks whether connections of other workers are still open.
const LOOK: Duration = Duration::from_millis(20);
/// Maximum time for which a closed connection answers packets with a repeated close.
const LAST_WORDS: Duration = Duration::from_millis(300);
/// Number of yields that suffices for the task of a closed connection to wake and to send the last packet.
const LAST_TURNS: usize = 4;

/// Returns the configuration of an endpoint; `None` while HTTP/3 is off.
fn server_config(worker: &Worker) -> Option<quinn::ServerConfig> {
    let world = worker.world();
    world.h3_port?;
    let tls::QuicTls { config, secret } = world.tls.as_ref()?.quic()?;
    // Initial packets are always protected with AES-128-GCM, independent of the negotiated cipher suite
    // (RFC 9001 §5.2).
    let initial = TLS13_AES_128_GCM_SHA256.tls13()?.quic_suite()?;
    let crypto = QuicServerConfig::with_initial(config.clone(), initial).ok()?;
    let tokens = hkdf::Salt::new(hkdf::HKDF_SHA256, b"tokens").extract(secret);
    let mut server = quinn::ServerConfig::new(Arc::new(crypto), Arc::new(tokens));
    server
        .transport_config(Arc::new(transport(world.limits.idle_seconds)))
        .max_incoming(limits::H3_INCOMING_MAX)
        .incoming_buffer_size(limits::H3_INCOMING_BYTES_MAX / limits::H3_INCOMING_MAX as u64)
        .incoming_buffer_size_total(limits::H3_INCOMING_BYTES_MAX);
    Some(server)
}

fn transport(idle_seconds: u32) -> TransportConfig {
    let mut transport = TransportConfig::default();
    // The idle timeout of QUIC ends connections of clients that have disappeared. A client that only sends
    // keep-alives is asked to leave by GOAWAY, hence 5 s more than the configured idle time.
    let silence = Duration::from_secs(u64::from(idle_seconds.max(1)) + 5);
    transport
        .max_concurrent_bidi_streams(limits::H3_STREAMS_MAX.into())
        .max_concurrent_uni_streams(limits::H3_ONE_WAY_STREAMS_MAX.into())
        .stream_receive_window(limits::H3_STREAM_WINDOW_BYTES.into())
        .receive_window(limits::H3_CONNECTION_WINDOW_BYTES.into())
        .send_window(limits::H3_UNACKNOWLEDGED_BYTES_MIN)
        .max_idle_timeout(IdleTimeout::try_from(silence).ok())
        .datagram_receive_buffer_size(None);
    transport
}

impl QuicWorkers {
    fn seats(&self) -> std::sync::MutexGuard<'_, Vec<QuicWorker>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Assigns the connection to the worker with the fewest connections.
    fn deal(&self, mut incoming: Incoming) {
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

/// Guard of a counted connection. Dropping the guard counts the connection as closed.
struct H3ConnectionGuard {
    worker: Rc<Worker>,
    /// Entry in the ledger of connections; `None` once removed.
    entered: Option<ConnectionEntryGuard>,
    /// True while the client's address is not validated and may be spoofed.
    is_unproven: bool,
}

impl H3ConnectionGuard {
    /// Records that the client's address is validated.
    fn prove(&mut self) {
        if std::mem::take(&mut self.is_unproven) {
            self.worker
                .shared
                .quic
                .unproven
                .fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for H3ConnectionGuard {
    fn drop(&mut self) {
        self.prove();
        self.entered = None;
        if std::thread::panicking() {
            self.worker.stats.panics.increment();
        }
        self.worker.h3.taken.fetch_sub(1, Ordering::Relaxed);
        self.worker.shared.quic.open.fetch_sub(1, Ordering::Relaxed);
        self.worker.count_closed();
    }
}

impl Worker {
    /// Decides on a new connection. A connection costs the server nothing before the decision. Returns
    /// `None` where the connection was refused, was sent a Retry packet, or waits for room.
    fn may_come(self: &Rc<Self>, incoming: Incoming) -> Option<Incoming> {
        let world = self.world();
        let is_full = self.is_full();
        let unproven = self.shared.quic.unproven.load(Ordering::Relaxed);
        // Where clients are counted, a client must not use up the share of another address by spoofing the
        // address. No connection is evicted for an address that may be spoofed.
        let asks_for_proof = is_full
            || unproven >= limits::H3_UNVALIDATED_HANDSHAKES_MAX
            || world.limits.connections_per_address > 0;
        if asks_for_proof && !incoming.remote_address_validated() {
            self.stats.h3_retries.increment();
            if let Err(error) = incoming.retry() {
                error.into_incoming().refuse();
            }
            return None;
        }
        let client = ClientNetwork::from(incoming.remote_address().ip());
        match is_full.then(|| self.make_room(Shortage::Connections(client))) {
            None | Some(Eviction::Now) => Some(incoming),
            Some(Eviction::Soon) => {
                spawn_local(self.clone().deal_later(incoming));
                None
            }
            Some(Eviction::None) => {
                incoming.refuse();
                None
            }
        }
    }

    /// Assigns the connection to a worker once a connection chosen for eviction has closed.
    async fn deal_later(self: Rc<Self>, incoming: Incoming) {
        let patience = Duration::from_millis(limits::H3_ADMISSION_WAIT_MILLISECONDS_MAX);
        let has_room = timeout(patience, async {
            loop {
                let room = self.shared.ledger.connection_closed();
                if !self.is_full() {
                    return;
                }
                room.await;
            }
        });
        match has_room.await {
            Ok(()) => self.shared.quic.deal(incoming),
            Err(_) => incoming.refuse(),
        }
    }

    /// Starts a connection assigned to the worker.
    fn admit(self: &Rc<Self>, incoming: Incoming) {
        let peer = incoming.remote_address().ip().to_canonical();
        self.clock.tick();
        let most = self.world().limits.connections_per_address;
        let owner = ConnectionOwner::Task(Box::default());
        let now_ms = self.clock.millis();
        let Some(entered) = self.shared.ledger.enter(peer.into(), most, owner, now_ms) else {
            self.stats.rejects.increment();
            return incoming.refuse();
        };
        let is_unproven = !incoming.remote_address_validated();
        if is_unproven {
            self.shared.quic.unproven.fetch_add(1, Ordering::Relaxed);
        }
        self.count_opened();
        self.h3.taken.fetch_add(1, Ordering::Relaxed);
        self.shared.quic.open.fetch_add(1, Ordering::Relaxed);
        let entry = entered.entry().clone();
        let place = H3ConnectionGuard {
            worker: self.clone(),
            entered: Some(entered),
            is_unproven,
        };
        if let Ok(connecting) = incoming.accept() {
            spawn_local(session::run(connecting, place, entry, peer));
        }
    }
}
