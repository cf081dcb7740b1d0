//! HTTP/3: QUIC by quinn, and above it what `wire::h3` decides.
//!
//! One endpoint for all workers: the worker that hosts an address reads its socket, and deals each
//! new connection to the worker that has the fewest. From then on the connection is that worker's
//! alone: it decrypts, answers and writes to the socket itself, and only what comes for it passes by
//! the host. So a client may change its address or port at will, and nothing has to be found anew.

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

/// Where new connections can be dealt to: a ledger, written when a worker begins or ends.
#[derive(Default)]
pub struct QuicWorkers {
    seats: Mutex<Vec<QuicWorker>>,
    /// Handshakes under way with clients whose address may be somebody else's.
    unproven: AtomicUsize,
    /// Connections of all workers.
    open: AtomicUsize,
}

struct QuicWorker {
    hand: UnboundedSender<Incoming>,
    /// Connections there.
    taken: Arc<AtomicUsize>,
}

/// What a worker's connections of HTTP/3 share.
#[derive(Default)]
pub struct H3Context {
    requests: RefCell<Vec<FieldSection>>,
    strings: RefCell<QpackScratch>,
    /// Sockets that this worker reads for all.
    hosted: RefCell<Vec<Endpoint>>,
    /// Sockets that wait until QUIC can be spoken on them.
    unused: RefCell<Vec<UdpSocket>>,
    /// Connections here; in its seat too.
    taken: Arc<AtomicUsize>,
    /// Bytes above `H3_UNACKNOWLEDGED_BYTES_MIN` that the send windows of connections allow, by client.
    windows: RefCell<ClientHoldings>,
    /// Connections are to look around: a drain has begun, or HTTP/3 was switched off.
    told: Notify,
}

impl H3Context {
    /// Connections of this worker.
    pub(super) fn open(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// A request to be filled, with the buffers of an earlier one.
    fn request(&self) -> FieldSection {
        self.requests.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps it for the next.
    fn keep(&self, request: FieldSection) {
        let mut requests = self.requests.borrow_mut();
        if requests.len() < REQUESTS_KEPT_MAX {
            requests.push(request);
        }
    }

    /// Makes every connection look whether it may go on.
    pub(super) fn tell(&self) {
        self.told.notify_waiters();
    }
}

/// Takes a seat for this worker.
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

/// Reads this socket from now on, for all workers.
pub(super) fn host(worker: &Rc<Worker>, socket: UdpSocket) -> io::Result<()> {
    let world = worker.world();
    let Some(quic) = world.tls.as_ref().and_then(|tls| tls.quic()) else {
        // TLS 1.3 is off; another World may bring it.
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

/// Deals the connections that come.
async fn deal(worker: Rc<Worker>, endpoint: Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        if let Some(incoming) = worker.may_come(incoming) {
            worker.shared.quic.deal(incoming);
        }
    }
}

/// A new World: its certificates and bounds hold for connections that begin from now on.
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

/// Nobody may begin on this address any more.
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

/// A drain begins: nothing new, here or on a socket that is read here.
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

/// The last words of this worker's connections are sent, and where it reads a socket for others,
/// theirs too.
pub(super) async fn end(worker: &Worker) {
    let hosted = worker.h3.hosted.take();
    for endpoint in hosted {
        while worker.shared.quic.open.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(LOOK).await;
        }
        // Who didn't hear the end asks again for a while.
        let _ = timeout(LAST_WORDS, endpoint.wait_idle()).await;
    }
    // What a connection has to say is sent when its own task is next polled.
    for _ in 0..LAST_TURNS {
        tokio::task::yield_now().await;
    }
}

/// Requests that are put together at the same time, mostly: who waits holds his own.
const REQUESTS_KEPT_MAX: usize = 16;
/// How often the host of a socket looks whether all workers are done with it.
const LOOK: Duration = Duration::from_millis(20);
/// How long a closed connection is there at most to say again that it is.
const LAST_WORDS: Duration = Duration::from_millis(300);
/// Enough for a connection's task to be woken by its end, and to send it.
const LAST_TURNS: usize = 4;

/// None where HTTP/3 isn't spoken now.
fn server_config(worker: &Worker) -> Option<quinn::ServerConfig> {
    let world = worker.world();
    world.h3_port?;
    let tls::QuicTls { config, secret } = world.tls.as_ref()?.quic()?;
    // The first packets are always protected so, whatever is agreed on then (RFC 9001 §5.2).
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
    // Who says nothing at all is gone; who only says that he is there is told to go by us, and needs
    // a while for that.
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

    /// To the worker that has the fewest.
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
                // That worker has ended.
                Err(back) => incoming = back.0,
            }
            seats.retain(|seat| !Arc::ptr_eq(&seat.taken, &taken));
        }
    }
}

/// A connection that is counted.
struct H3ConnectionGuard {
    worker: Rc<Worker>,
    /// Its entry in the ledger of connections; None once it has left.
    entered: Option<ConnectionEntryGuard>,
    /// It may be that nobody is at its address.
    is_unproven: bool,
}

impl H3ConnectionGuard {
    /// Somebody answers there.
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
    /// Is a client to be dealt with at all? It costs us nothing until then.
    fn may_come(self: &Rc<Self>, incoming: Incoming) -> Option<Incoming> {
        let world = self.world();
        let is_full = self.is_full();
        let unproven = self.shared.quic.unproven.load(Ordering::Relaxed);
        // Where clients are counted, a client must not use up the share of another address; and no
        // connection is given up for an address that may be invented.
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

    /// Deals a connection once another one, which was told to end, has been closed.
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

    /// Begins a connection.
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
