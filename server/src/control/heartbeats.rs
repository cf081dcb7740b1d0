//! UDP sockets that receive the heartbeats of members, for the balancing method `heartbeat`.
//!
//! The sockets are bound before privileges drop, like all listening sockets, and are read by the control
//! plane. Any machine can send datagrams, so only heartbeats from addresses of members count.

use crate::config::{Config, ListenAddress, OperatorError};
use crate::control::limits::HEARTBEAT_PAUSE_MILLISECONDS;
use base::clock::monotonic_ms;
use base::sys;
use base::task;
use data_plane::limits::HEARTBEAT_BYTES_MAX;
use data_plane::upstream::Balancers;
use data_plane::upstream::resolver::Resolver;
use socket2::SockRef;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use wire::heartbeat::Heartbeat;

/// All addresses that receive heartbeats.
#[derive(Default)]
pub(super) struct HeartbeatListeners {
    bound: Vec<HeartbeatListener>,
}

struct HeartbeatListener {
    /// Address as configured, compared with the new configuration at a reload.
    asked: SocketAddr,
    state: ListenerState,
}

enum ListenerState {
    Bound(UdpSocket),
    /// A task reads the socket. Dropping the sender ends the task.
    Read {
        _end: oneshot::Sender<()>,
        /// The socket, for a successor of the server.
        socket: UdpSocket,
    },
}

/// Ledgers that take the heartbeats.
#[derive(Clone)]
pub(super) struct HeartbeatLedgers {
    pub(super) balancers: Arc<Balancers>,
    pub(super) resolver: Arc<Resolver>,
}

impl HeartbeatListeners {
    /// Binds the addresses of `config` that aren't bound yet, and returns the new addresses. Keeps none of the
    /// new sockets if a single bind fails.
    pub(super) fn bind(&mut self, config: &Config) -> Result<Vec<SocketAddr>, OperatorError> {
        let mut new: Vec<HeartbeatListener> = Vec::new();
        for (listen, span) in wanted(config) {
            let mut known = self.bound.iter().chain(&new);
            if known.any(|known| known.asked == listen.address) {
                continue;
            }
            let socket = bind(&listen).map_err(|error| explain(config, span, &listen, &error))?;
            new.push(HeartbeatListener {
                asked: listen.address,
                state: ListenerState::Bound(socket),
            });
        }
        let names = new.iter().map(|listener| listener.asked).collect();
        self.bound.append(&mut new);
        Ok(names)
    }

    /// Takes over sockets of a running server for the addresses of `config`. The names of the sockets end with the address as
    /// configured there.
    pub(super) fn inherit(&mut self, config: &Config, mut sockets: Vec<(String, OwnedFd)>) {
        for (listen, _) in wanted(config) {
            let name = listen.address.to_string().replace(':', "_");
            let mut places = sockets.iter();
            if let Some(at) = places.position(|it| it.0.rsplit('/').next() == Some(&*name)) {
                self.bound.push(HeartbeatListener {
                    asked: listen.address,
                    state: ListenerState::Bound(sockets.swap_remove(at).1.into()),
                });
            }
        }
    }

    /// Returns duplicates of all sockets with their addresses as configured.
    pub(super) fn passed_on(&self) -> io::Result<Vec<(SocketAddr, OwnedFd)>> {
        let copies = self.bound.iter().map(|listener| {
            let (ListenerState::Bound(socket) | ListenerState::Read { socket, .. }) =
                &listener.state;
            Ok((listener.asked, socket.as_fd().try_clone_to_owned()?))
        });
        copies.collect()
    }

    /// Closes addresses bound just now, after a later step of a reload failed.
    pub(super) fn forget(&mut self, new: &[SocketAddr]) {
        self.bound.retain(|listener| !new.contains(&listener.asked));
    }

    /// Closes the addresses that `config` no longer names.
    pub(super) fn retire(&mut self, config: &Config) {
        self.bound.retain(|listener| {
            let mut wanted = wanted(config);
            wanted.any(|(listen, _)| listen.address == listener.asked)
        });
    }

    /// Starts to read all sockets that aren't read yet, on the runtime of the calling thread.
    pub(super) fn read(&mut self, ledgers: &HeartbeatLedgers) {
        for listener in &mut self.bound {
            let ListenerState::Bound(socket) = &listener.state else {
                continue;
            };
            match start_reader(socket, ledgers) {
                Ok(state) => listener.state = state,
                Err(error) => log::error!("heartbeats at {}: {error}", listener.asked),
            }
        }
    }
}

/// Starts the task that reads a socket.
fn start_reader(socket: &UdpSocket, ledgers: &HeartbeatLedgers) -> io::Result<ListenerState> {
    let kept = socket.try_clone()?;
    let socket = socket.try_clone()?;
    let address = socket.local_addr()?;
    let socket = tokio::net::UdpSocket::from_std(socket)?;
    let (end, ended) = oneshot::channel();
    let ledgers = ledgers.clone();
    log::info!("heartbeats of members are received at {address}");
    task::spawn(async move {
        tokio::select! {
            _ = ended => {}
            () = receive(&socket, &ledgers) => {}
        }
    });
    Ok(ListenerState::Read {
        _end: end,
        socket: kept,
    })
}

/// Takes the heartbeats of a socket. The future never ends.
async fn receive(socket: &tokio::net::UdpSocket, ledgers: &HeartbeatLedgers) {
    // A longer datagram is cut and can't be parsed.
    let mut datagram = [0; HEARTBEAT_BYTES_MAX];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut datagram).await else {
            tokio::time::sleep(Duration::from_millis(HEARTBEAT_PAUSE_MILLISECONDS)).await;
            continue;
        };
        if let Some(heartbeat) = Heartbeat::parse(&datagram[..length]) {
            let resolves = |name: &str, address| ledgers.resolver.resolves_to(name, address);
            let (balancers, now_ms) = (&ledgers.balancers, monotonic_ms());
            balancers.record_heartbeat(from.ip(), heartbeat, now_ms, resolves);
        }
    }
}

/// Returns the configured addresses, each with its position in the configuration.
fn wanted(config: &Config) -> impl Iterator<Item = (ListenAddress, Range<usize>)> {
    let heartbeats = config.balancers.iter();
    let heartbeats = heartbeats.filter_map(|balancer| balancer.heartbeat.as_ref());
    heartbeats.map(|listen| (*listen.get_ref(), listen.span()))
}

/// Binds an address. A socket of a multicast address joins the group, as in Apache's mod_heartmonitor.
fn bind(listen: &ListenAddress) -> io::Result<UdpSocket> {
    let address = match listen.without_ipv6() {
        Some(v4) if !sys::has_ipv6() => v4,
        _ => listen.address,
    };
    let socket = UdpSocket::from(sys::udp(address, listen.v6_only)?);
    let reference = SockRef::from(&socket);
    match address.ip() {
        IpAddr::V4(group) if group.is_multicast() => {
            reference.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED)?;
        }
        IpAddr::V6(group) if group.is_multicast() => reference.join_multicast_v6(&group, 0)?,
        _ => {}
    }
    Ok(socket)
}

fn explain(
    config: &Config,
    span: Range<usize>,
    listen: &ListenAddress,
    error: &io::Error,
) -> OperatorError {
    let (address, port) = (listen.address, listen.address.port());
    let (what, help) = match error.kind() {
        io::ErrorKind::AddrInUse => (
            format!("UDP port {port} is in use by another program"),
            format!(
                "`ss -lunp 'sport = :{port}'` shows the program; stop the program, or choose another port"
            ),
        ),
        io::ErrorKind::AddrNotAvailable => (
            format!("this machine has no address {}", address.ip()),
            "`ip addr` lists the addresses of the machine; 0.0.0.0 stands for all addresses"
                .to_owned(),
        ),
        _ => (
            format!("can't receive datagrams at {address}: {error}"),
            String::new(),
        ),
    };
    config.point(span, what, help)
}
