//! QUIC endpoints: sockets, configuration, and the assignment of new connections to workers.

use crate::limits;
use crate::serve::accept::ACCEPT_PAUSE;
use crate::serve::connection_entry::{Activity, ConnectionOwner, Newcomer, Shortage};
use crate::serve::context::WorkerContext;
use crate::serve::h3::connection;
use crate::serve::h3::connection_guard::H3ConnectionGuard;
use crate::serve::h3::connection_id::{GenerationIds, for_retry};
use crate::serve::h3::context::QuicWorkers;
use crate::serve::h3::session::varint;
use crate::serve::h3::socket::QuicSocket;
use crate::serve::sessions::{Eviction, Sessions};
use crate::tls;
use crate::world::World;
use aws_lc_rs::hkdf;
use base::client_history::ClientStanding;
use base::client_network::ClientNetwork;
use base::task::spawn_local;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, EndpointConfig, IdleTimeout, Incoming, TokioRuntime, TransportConfig};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;
use wire::h3::H3ErrorCode;

/// Registers the worker for new connections, and starts the task that admits them.
pub(in crate::serve) fn begin(sessions: &Rc<Sessions>) {
    let (sender, mut incoming) = unbounded_channel();
    let context = &sessions.context;
    context.shared.quic.join(sender, context.h3.taken.clone());
    let sessions = sessions.clone();
    spawn_local(async move {
        while let Some(incoming) = incoming.recv().await {
            sessions.admit(incoming);
        }
    });
}

/// Reads the socket from now on, on behalf of all workers. Waits until a process that read the socket before reads
/// no more.
pub(in crate::serve) async fn host(sessions: &Rc<Sessions>, socket: UdpSocket) -> io::Result<()> {
    let context = &sessions.context;
    let has_quic = |world: &World| world.tls.as_ref().is_some_and(|tls| tls.quic().is_some());
    if !has_quic(&context.world()) {
        // TLS 1.3 is off; a later World may enable TLS 1.3.
        context.h3.unused.borrow_mut().push(socket);
        return Ok(());
    }
    let config = endpoint_config(context.shared.quic.generation);
    let socket = open(&context.shared.quic, socket).await?;
    let server = server_config(context);
    let runtime = Arc::new(TokioRuntime);
    let endpoint = Endpoint::new_with_abstract_socket(config, server, socket.clone(), runtime)?;
    context.h3.hosted.borrow_mut().push(endpoint.clone());
    spawn_local(assign(sessions.clone(), endpoint, socket));
    Ok(())
}

/// Opens the socket for reading, once no predecessor reads the socket any more.
async fn open(quic: &QuicWorkers, socket: UdpSocket) -> io::Result<Arc<QuicSocket>> {
    let forwards = quic.forwards(socket.local_addr()?);
    forwards.begin().await;
    let socket = QuicSocket::new(socket, forwards)?;
    quic.host(&socket);
    Ok(socket)
}

/// Returns the configuration of an endpoint for a process of the generation, with a random key for stateless resets:
/// processes and nodes with a common key could be asked for the tokens of each other's connections, which end the
/// connections (RFC 9000 §21.11).
fn endpoint_config(generation: u8) -> EndpointConfig {
    let mut config = EndpointConfig::default();
    config.cid_generator(move || Box::new(GenerationIds::new(generation)));
    config
}

/// Assigns new connections of an endpoint to workers.
async fn assign(sessions: Rc<Sessions>, endpoint: Endpoint, socket: Arc<QuicSocket>) {
    loop {
        let incoming = tokio::select! {
            biased;
            incoming = endpoint.accept() => incoming,
            // The clients learn by a close that the server is gone, and not by silence.
            () = socket.abandoned() => {
                return endpoint.close(varint(H3ErrorCode::H3_NO_ERROR), b"");
            }
        };
        let Some(incoming) = incoming else { return };
        if let Some(incoming) = sessions.validate(incoming) {
            sessions.context.shared.quic.assign(incoming);
        }
    }
}

/// Applies a new World: the certificates and limits hold for connections that begin from now on.
pub(in crate::serve) async fn configure(sessions: &Rc<Sessions>) {
    let context = &sessions.context;
    for socket in context.h3.unused.take() {
        if let Err(error) = host(sessions, socket).await {
            log::error!("can't serve HTTP/3: {error}");
        }
    }
    for endpoint in context.h3.hosted.borrow().iter() {
        endpoint.set_server_config(server_config(context));
    }
    if context.world().h3_port.is_none() {
        context.h3.tell();
    }
}

/// Stops accepting connections on the address.
pub(in crate::serve) fn unlisten(context: &WorkerContext, address: SocketAddr) {
    let is_other = |its: io::Result<SocketAddr>| its.is_ok_and(|its| its != address);
    let mut unused = context.h3.unused.borrow_mut();
    unused.retain(|socket| is_other(socket.local_addr()));
    context.h3.hosted.borrow_mut().retain(|endpoint| {
        let stays = is_other(endpoint.local_addr());
        if !stays {
            endpoint.set_server_config(None);
        }
        stays
    });
}

/// Begins a drain: the worker takes no new connections, and hosted sockets accept none.
pub(in crate::serve) fn leave(context: &WorkerContext) {
    context.shared.quic.leave(&context.h3.taken);
    context.shared.quic.leave_sockets();
    for endpoint in context.h3.hosted.borrow().iter() {
        endpoint.set_server_config(None);
    }
    context.h3.tell();
}

/// Returns true if the worker reads a socket for connections of HTTP/3 of other workers.
pub(in crate::serve) fn serves_others(context: &WorkerContext) -> bool {
    let is_host = !context.h3.hosted.borrow().is_empty();
    is_host && context.shared.quic.open.load(Ordering::Relaxed) > context.h3.open()
}

/// Waits until the last packets of the worker's connections are sent. A worker that hosts a socket also
/// waits for the connections of other workers.
pub(in crate::serve) async fn end(context: &WorkerContext) {
    let hosted = context.h3.hosted.take();
    for endpoint in hosted {
        while context.shared.quic.open.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(LOOK).await;
        }
        // A client that missed the close repeats packets for a while, and each packet is answered with
        // another close.
        let _ = timeout(CLOSE_REPEAT_MAX, endpoint.wait_idle()).await;
    }
    // The last packets of a connection are sent when the connection's task is next polled.
    for _ in 0..LAST_TURNS {
        tokio::task::yield_now().await;
    }
}

/// Interval at which the host of a socket checks whether connections of other workers are still open.
const LOOK: Duration = Duration::from_millis(20);
/// Maximum time for which a closed connection answers packets with a repeated close.
const CLOSE_REPEAT_MAX: Duration = Duration::from_millis(300);
/// Number of yields that suffices for the task of a closed connection to wake and to send the last packet.
const LAST_TURNS: usize = 4;

/// Returns the configuration of an endpoint; `None` while HTTP/3 is off, and on a worker that takes no new connections.
fn server_config(context: &WorkerContext) -> Option<quinn::ServerConfig> {
    if context.is_draining() {
        return None;
    }
    let world = context.world();
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

impl Sessions {
    /// Decides on a new connection. A connection costs the server nothing before the decision. Returns
    /// `None` where the connection was refused, was sent a Retry packet, or waits for room.
    fn validate(self: &Rc<Self>, incoming: Incoming) -> Option<Incoming> {
        let world = self.context.world();
        let is_full = self.is_full();
        let unproven = self.context.shared.quic.unproven.load(Ordering::Relaxed);
        // Where clients are counted, a client must not use up the share of another address by spoofing the
        // address. No connection is evicted for an address that may be spoofed.
        let asks_for_proof = is_full
            || unproven >= limits::H3_UNVALIDATED_HANDSHAKES_MAX
            || world.limits.connections_per_address > 0;
        if asks_for_proof && !incoming.remote_address_validated() {
            self.context.stats.h3_retries.increment();
            if let Err(error) = for_retry(|| incoming.retry()) {
                error.into_incoming().refuse();
            }
            return None;
        }
        if !is_full {
            return Some(incoming);
        }
        let client = ClientNetwork::from(incoming.remote_address().ip());
        let now_ms = self.context.clock.millis();
        let ledger = &self.context.shared.ledger;
        match self.make_room_for(client, now_ms) {
            Eviction::Now => {
                ledger.record_grant(client, now_ms);
                return Some(incoming);
            }
            Eviction::Soon => spawn_local(self.clone().assign_later(incoming, client, None)),
            Eviction::None if self.may_wait(client, now_ms) => {
                spawn_local(self.clone().assign_later(incoming, client, Some(now_ms)));
            }
            Eviction::None => incoming.refuse(),
        }
        None
    }

    /// Gives up a connection of any worker for a client that has waited since `since_ms`.
    fn make_room_for(&self, client: ClientNetwork, since_ms: u64) -> Eviction {
        self.make_room(Shortage::Connections(Newcomer {
            client,
            since_ms,
            now_ms: self.context.clock.millis(),
            waiting: self.context.h3.waiting.get(),
            needs_descriptor: false,
        }))
    }

    /// Returns true if a connection may wait until another connection has moved for long enough.
    fn may_wait(&self, client: ClientNetwork, now_ms: u64) -> bool {
        let standing = self.context.shared.ledger.standing(client, now_ms);
        let waiting = self.context.h3.waiting.get();
        standing == ClientStanding::New && waiting < limits::H3_NEWCOMERS_WAITING_MAX
    }

    /// Assigns the connection to a worker once another connection has closed. A client that waits since `since_ms` tries
    /// again and again to make room; otherwise a connection was already chosen for eviction.
    async fn assign_later(
        self: Rc<Self>,
        incoming: Incoming,
        client: ClientNetwork,
        since_ms: Option<u64>,
    ) {
        let waiting = &self.context.h3.waiting;
        waiting.set(waiting.get() + 1);
        let patience = Duration::from_millis(match since_ms {
            Some(_) => limits::H3_NEWCOMER_WAIT_MILLISECONDS_MAX,
            None => limits::H3_ADMISSION_WAIT_MILLISECONDS_MAX,
        });
        let ledger = &self.context.shared.ledger;
        let has_room = timeout(patience, async {
            loop {
                let room = ledger.connection_closed();
                if !self.is_full() {
                    return;
                }
                if timeout(ACCEPT_PAUSE, room).await.is_err()
                    && let Some(since_ms) = since_ms
                {
                    self.context.clock.tick();
                    self.make_room_for(client, since_ms);
                }
            }
        });
        let has_room = has_room.await.is_ok();
        waiting.set(waiting.get() - 1);
        if has_room {
            ledger.record_grant(client, self.context.clock.millis());
            self.context.shared.quic.assign(incoming);
        } else {
            incoming.refuse();
        }
    }

    /// Returns true if no place is free for another connection of HTTP/3. Assigned connections count before their workers
    /// count them, so one free place admits one of many waiting connections.
    fn is_full(&self) -> bool {
        let assigned = self.context.shared.quic.assigned.load(Ordering::Relaxed);
        let open = self.context.shared.open.load(Ordering::Relaxed);
        self.context.is_full() || open + assigned >= self.context.world().limits.connections
    }

    /// Starts a connection assigned to the worker.
    fn admit(&self, incoming: Incoming) {
        let assigned = &self.context.shared.quic.assigned;
        assigned.fetch_sub(1, Ordering::Relaxed);
        let peer = incoming.remote_address().ip().to_canonical();
        self.context.clock.tick();
        let owner = ConnectionOwner::Task(Box::default());
        let Some(entered) = self.context.enter_connection(peer, owner) else {
            return incoming.refuse();
        };
        let entry = entered.entry().clone();
        entry.set_activity(Activity::Idle(
            self.context.clock.millis() + limits::HANDSHAKE_LEAD_MILLISECONDS,
        ));
        let is_unproven = !incoming.remote_address_validated();
        let place = H3ConnectionGuard::new(&self.context, entered, is_unproven);
        // The first datagram may have the whole ClientHello, with a name that no site has.
        match incoming.accept() {
            Ok(connecting) => spawn_local(connection::run(connecting, place, entry, peer)),
            Err(error) => connection::count_failed_handshake(&self.context, peer, &error),
        }
    }
}

#[cfg(test)]
mod tests;
