//! A UDP proxy on loopback with packet loss, duplication and reordering. The sequence of losses follows
//! from a seed.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A proxy in front of a server. Drop ends the proxy's threads.
pub struct LossyPath {
    port: u16,
    shared: Arc<Shared>,
}

/// Counts of forwarded, lost, repeated and overtaken datagrams, both directions together.
#[derive(Default)]
pub struct Counts {
    pub forwarded: AtomicU64,
    pub lost: AtomicU64,
    pub repeated: AtomicU64,
    pub reordered: AtomicU64,
}

struct Shared {
    random: Mutex<u64>,
    counts: Counts,
    is_over: AtomicBool,
}

/// One direction between a client and the server.
struct Direction {
    socket: UdpSocket,
    to: SocketAddr,
    /// A datagram held back until a later datagram has been forwarded.
    late: Option<Vec<u8>>,
    shared: Arc<Shared>,
}

/// Percentage of lost datagrams.
const LOST: u64 = 10;
/// Percentage of datagrams forwarded twice.
const REPEATED: u64 = 3;
/// Percentage of datagrams overtaken by a later datagram.
const REORDERED: u64 = 15;
/// Longest time for which a datagram is held back for reordering.
const LATE: Duration = Duration::from_millis(5);

impl LossyPath {
    /// Starts a proxy in front of the server's port.
    pub fn begin(server_port: u16, seed: u64) -> LossyPath {
        let front = bind();
        let port = front.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            random: Mutex::new(seed),
            counts: Counts::default(),
            is_over: AtomicBool::new(false),
        });
        let server = (Ipv4Addr::LOCALHOST, server_port).into();
        let path = LossyPath {
            port,
            shared: Arc::clone(&shared),
        };
        thread::spawn(move || from_clients(&front, server, &shared));
        path
    }

    /// Returns the proxy's port, for clients.
    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn counts(&self) -> &Counts {
        &self.shared.counts
    }
}

impl Drop for LossyPath {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }
}

fn bind() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    socket.set_read_timeout(Some(LATE)).expect("a timeout");
    socket
}

/// Forwards datagrams from all clients to the server, each client's from a port of its own.
fn from_clients(front: &UdpSocket, server: SocketAddr, shared: &Arc<Shared>) {
    let mut clients: HashMap<SocketAddr, Direction> = HashMap::new();
    let mut buffer = [0; 65_536];
    while !shared.is_over.load(Ordering::Relaxed) {
        let Some((length, client)) = received(front.recv_from(&mut buffer)) else {
            clients.values_mut().for_each(Direction::send_late);
            continue;
        };
        let direction = clients.entry(client).or_insert_with(|| {
            let back = bind();
            let reader = back.try_clone().expect("a socket");
            let socket = front.try_clone().expect("a socket");
            let to_client = Direction::new(socket, client, shared);
            thread::spawn(move || from_server(&reader, to_client));
            Direction::new(back, server, shared)
        });
        direction.forward(&buffer[..length]);
    }
}

/// Forwards datagrams from the server to one client.
fn from_server(back: &UdpSocket, mut to_client: Direction) {
    let mut buffer = [0; 65_536];
    while !to_client.shared.is_over.load(Ordering::Relaxed) {
        match received(back.recv_from(&mut buffer)) {
            Some((length, _)) => to_client.forward(&buffer[..length]),
            None => to_client.send_late(),
        }
    }
}

/// Returns one datagram, or None at the read timeout. A closed port of the peer is reported as an error of
/// the next call and counts as a loss.
fn received(result: io::Result<(usize, SocketAddr)>) -> Option<(usize, SocketAddr)> {
    result.ok()
}

impl Direction {
    fn new(socket: UdpSocket, to: SocketAddr, shared: &Arc<Shared>) -> Direction {
        Direction {
            socket,
            to,
            late: None,
            shared: Arc::clone(shared),
        }
    }

    fn forward(&mut self, datagram: &[u8]) {
        let counts = &self.shared.counts;
        let fate = self.shared.percent();
        if fate < LOST {
            counts.lost.fetch_add(1, Ordering::Relaxed);
        } else if fate < LOST + REORDERED && self.late.is_none() {
            counts.reordered.fetch_add(1, Ordering::Relaxed);
            self.late = Some(datagram.to_vec());
            return;
        } else {
            self.send(datagram);
            if fate >= 100 - REPEATED {
                counts.repeated.fetch_add(1, Ordering::Relaxed);
                self.send(datagram);
            }
        }
        self.send_late();
    }

    fn send_late(&mut self) {
        if let Some(datagram) = self.late.take() {
            self.send(&datagram);
        }
    }

    fn send(&self, datagram: &[u8]) {
        self.shared.counts.forwarded.fetch_add(1, Ordering::Relaxed);
        let _ = self.socket.send_to(datagram, self.to);
    }
}

impl Shared {
    /// Returns the next pseudo-random number, below 100 (xorshift64, G. Marsaglia 2003).
    fn percent(&self) -> u64 {
        let mut state = self.random.lock().expect("no panic");
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 32) % 100
    }
}
