//! The listening sockets. Control owns them all: they are bound before privileges drop, handed to
//! the workers, and outlive a worker that has to be started anew.

use crate::base::sys;
use crate::config::{Config, ListenAddress, OperatorError};
use crate::limits::SOCKET_UNSENT_BYTES;
use crate::serve::worker::WorkerListener;
use socket2::{SockRef, Type};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// All addresses that are listened on.
#[derive(Default)]
pub struct Listeners {
    addresses: Vec<BoundAddress>,
}

struct BoundAddress {
    /// As configured, for telling at a reload whether it is still wanted.
    asked: SocketAddr,
    bound: SocketAddr,
    secure: bool,
    /// A service manager bound it: it stays for as long as we run.
    passed: bool,
    /// One for each worker, or one for all of them where it was passed in.
    sockets: Vec<TcpListener>,
    /// For HTTP/3, at the same number.
    quic: Option<UdpSocket>,
}

/// The kernel cuts it down to its own bound (net.core.somaxconn).
const BACKLOG: i32 = 4096;

impl Listeners {
    /// Binds what `config` names and isn't bound yet, for `workers` threads; returns which are new.
    /// Nothing is kept if one of them fails. Where a service manager passed sockets in, those are all.
    pub fn bind(
        &mut self,
        config: &Config,
        workers: usize,
    ) -> Result<Vec<SocketAddr>, OperatorError> {
        if self.addresses.iter().any(|address| address.passed) {
            return Ok(Vec::new());
        }
        let mut new = Vec::new();
        for (listen, span, secure) in wanted(config) {
            if self.find(listen.address, secure).is_some() {
                continue;
            }
            let wants_quic = secure && wants_quic(config);
            let (bound, quic) = bind_one(&listen, workers, wants_quic)
                .map_err(|error| self.explain(config, span, &listen, &error))?;
            let address = bound
                .first()
                .and_then(|socket| socket.local_addr().ok())
                .unwrap_or(listen.address);
            let quic = match quic {
                Some(quic) => or_without(config, address, quic)?,
                None => None,
            };
            new.push(BoundAddress {
                asked: listen.address,
                bound: address,
                secure,
                passed: false,
                sockets: bound,
                quic,
            });
        }
        let names = new.iter().map(|address| address.bound).collect();
        self.addresses.append(&mut new);
        Ok(names)
    }

    /// Binds what is missing for HTTP/3 on addresses that are bound for HTTPS already; returns which.
    pub fn bind_quic(&mut self, config: &Config) -> Result<Vec<SocketAddr>, OperatorError> {
        let mut new = Vec::new();
        if !wants_quic(config) {
            return Ok(new);
        }
        for address in &mut self.addresses {
            if !address.secure || address.quic.is_some() || !address.is_wanted(config) {
                continue;
            }
            let v6_only = address.v6_only(config);
            let quic = sys::udp(address.bound, v6_only).map(UdpSocket::from);
            address.quic = or_without(config, address.bound, quic)?;
            if address.quic.is_some() {
                new.push(address.bound);
            }
        }
        Ok(new)
    }

    /// The sockets for HTTP/3; of all addresses, or of those in `only`.
    pub fn quic(&self, only: Option<&[SocketAddr]>) -> io::Result<Vec<UdpSocket>> {
        self.addresses
            .iter()
            .filter(|address| only.is_none_or(|only| only.contains(&address.bound)))
            .filter_map(|address| address.quic.as_ref())
            .map(UdpSocket::try_clone)
            .collect()
    }

    /// Returns the number of datagrams that were lost on the sockets for HTTP/3.
    pub fn datagrams_lost(&self) -> u64 {
        let sockets = self.addresses.iter().filter_map(|it| it.quic.as_ref());
        let lost = sockets.map(|socket| sys::datagrams_lost(socket.as_fd()).unwrap_or(0));
        lost.map(u64::from).sum()
    }

    /// The port of the first address where HTTP/3 is spoken.
    pub fn quic_port(&self, config: &Config) -> Option<u16> {
        self.addresses
            .iter()
            .filter(|_| wants_quic(config))
            .find(|address| address.quic.is_some() && address.is_wanted(config))
            .map(|address| address.bound.port())
    }

    /// Takes sockets that a service manager has bound for us. One that is on a port of `https`
    /// speaks TLS, any other doesn't, unless it is the only one.
    pub fn adopt(&mut self, config: &Config, passed: Vec<OwnedFd>) -> io::Result<()> {
        let (datagrams, passed): (Vec<_>, Vec<_>) = passed.into_iter().partition(is_datagram);
        let mut datagrams: Vec<_> = datagrams.into_iter().map(UdpSocket::from).collect();
        let only = passed.len() == 1;
        for socket in passed {
            let socket = TcpListener::from(socket);
            socket.set_nonblocking(true)?;
            prepare(&socket)?;
            let bound = socket.local_addr()?;
            let named = |listen: &ListenAddress| listen.address.port() == bound.port();
            let https = config
                .server
                .https
                .iter()
                .any(|listen| named(listen.get_ref()));
            let http = config
                .server
                .http
                .iter()
                .any(|listen| named(listen.get_ref()));
            let secure = https || (only && !http && !config.server.https.is_empty());
            let is_same = |socket: &UdpSocket| {
                secure
                    && socket
                        .local_addr()
                        .is_ok_and(|its| its.port() == bound.port())
            };
            let quic = datagrams.iter().position(is_same);
            self.addresses.push(BoundAddress {
                asked: bound,
                bound,
                secure,
                passed: true,
                sockets: vec![socket],
                quic: quic.map(|at| datagrams.swap_remove(at)),
            });
        }
        Ok(())
    }

    /// Addresses that `config` no longer names, taken off the list. Whoever has connected to one and
    /// not yet said anything is let in within [`RETIRE_DELAY`]; only then stop listening.
    pub fn retire(&mut self, config: &Config) -> Vec<(SocketAddr, bool)> {
        let mut gone = Vec::new();
        self.addresses.retain(|address| {
            let stays = address.is_wanted(config);
            if !stays {
                for socket in &address.sockets {
                    let _ = sys::defer_accept(socket.as_fd(), 0);
                }
                gone.push((address.bound, address.secure));
            }
            stays
        });
        gone
    }

    /// Lets go of addresses that were bound just now, after something else failed.
    pub fn forget(&mut self, new: &[SocketAddr]) {
        self.addresses
            .retain(|address| !new.contains(&address.bound));
    }

    /// The sockets of worker `index`; of all addresses, or of those in `only`.
    pub fn for_worker(
        &self,
        index: usize,
        only: Option<&[SocketAddr]>,
    ) -> io::Result<Vec<WorkerListener>> {
        self.addresses
            .iter()
            .filter(|address| only.is_none_or(|only| only.contains(&address.bound)))
            .map(|address| {
                let socket = address.sockets[index % address.sockets.len()].try_clone()?;
                Ok(WorkerListener {
                    socket,
                    address: address.bound,
                    secure: address.secure,
                })
            })
            .collect()
    }

    /// Bound addresses, those that speak TLS first.
    pub fn bound(&self) -> impl Iterator<Item = (SocketAddr, bool)> {
        let all = |secure| {
            self.addresses
                .iter()
                .filter(move |address| address.secure == secure)
        };
        all(true)
            .chain(all(false))
            .map(|address| (address.bound, address.secure))
    }

    /// The port that redirects to https name if the operator names none. An address that `config`
    /// gives up doesn't count, even while it is still bound.
    pub fn https_port(&self, config: &Config) -> Option<u16> {
        self.addresses
            .iter()
            .find(|address| address.secure && address.is_wanted(config))
            .map(|address| address.bound.port())
    }

    fn find(&self, asked: SocketAddr, secure: bool) -> Option<&BoundAddress> {
        self.addresses
            .iter()
            .find(|address| address.asked == asked && address.secure == secure)
    }

    fn explain(
        &self,
        config: &Config,
        span: Range<usize>,
        listen: &ListenAddress,
        error: &io::Error,
    ) -> OperatorError {
        let port = listen.address.port();
        let ours = |address: &BoundAddress| address.bound.port() == port;
        if error.kind() == io::ErrorKind::AddrInUse && self.addresses.iter().any(ours) {
            let what = format!("port {port} is in use by this very server, in another way");
            let help = "stop it and start it again: one port can't change its kind in a reload";
            return config.point(span, what, help);
        }
        explain(config, span, listen, error)
    }
}

impl BoundAddress {
    /// As configured; an address that was passed in tells by itself.
    fn v6_only(&self, config: &Config) -> bool {
        let mut listens = wanted(config);
        let asked = listens.find(|(listen, ..)| listen.address == self.asked);
        asked.is_none_or(|(listen, ..)| listen.v6_only)
    }

    fn is_wanted(&self, config: &Config) -> bool {
        self.passed
            || wanted(config)
                .any(|(listen, _, secure)| listen.address == self.asked && secure == self.secure)
    }
}

fn wanted(config: &Config) -> impl Iterator<Item = (ListenAddress, Range<usize>, bool)> {
    let https = config
        .server
        .https
        .iter()
        .map(|listen| (*listen.get_ref(), listen.span(), true));
    let http = config
        .server
        .http
        .iter()
        .map(|listen| (*listen.get_ref(), listen.span(), false));
    https.chain(http)
}

/// Whether HTTP/3 is to be spoken where HTTPS is.
fn wants_quic(config: &Config) -> bool {
    let said = config.server.http3.as_ref().map(|it| *it.get_ref());
    cfg!(feature = "http3") && said != Some(false)
}

fn is_datagram(socket: &OwnedFd) -> bool {
    SockRef::from(socket)
        .r#type()
        .is_ok_and(|kind| kind == Type::DGRAM)
}

/// Without its UDP port an address is served all the same, unless the operator said that he wants it.
fn or_without(
    config: &Config,
    address: SocketAddr,
    bound: io::Result<UdpSocket>,
) -> Result<Option<UdpSocket>, OperatorError> {
    let error = match bound {
        Ok(socket) => return Ok(Some(socket)),
        Err(error) => error,
    };
    let what = format!("can't listen on {address} by UDP, which HTTP/3 needs: {error}");
    match &config.server.http3 {
        Some(wanted) => {
            let help = "`http3 = false` does without, and so does leaving it out";
            Err(config.point(wanted.span(), what, help))
        }
        None => {
            log::warn!("{what}; going on without HTTP/3 there");
            Ok(None)
        }
    }
}

type BoundSockets = (Vec<TcpListener>, Option<io::Result<UdpSocket>>);

/// Binds for every worker, and by UDP if that is wanted. Where the system chooses the port, it must
/// be free for both.
fn bind_one(listen: &ListenAddress, workers: usize, wants_quic: bool) -> io::Result<BoundSockets> {
    let mut tries = PORT_TRIES;
    loop {
        let sockets = bind_tcp(listen, workers)?;
        if !wants_quic {
            return Ok((sockets, None));
        }
        let address = sockets[0].local_addr()?;
        let quic = sys::udp(address, listen.v6_only).map(UdpSocket::from);
        let is_taken = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
        tries -= 1;
        if tries > 0 && listen.address.port() == 0 && quic.as_ref().is_err_and(is_taken) {
            continue;
        }
        return Ok((sockets, Some(quic)));
    }
}

/// So many ports are tried for being free by TCP and UDP.
const PORT_TRIES: usize = 32;

fn bind_tcp(listen: &ListenAddress, workers: usize) -> io::Result<Vec<TcpListener>> {
    let mut address = match listen.without_ipv6() {
        Some(v4) if !sys::has_ipv6() => v4,
        _ => listen.address,
    };
    sys::is_free(address, listen.v6_only)?;
    let mut sockets = Vec::with_capacity(workers);
    for _ in 0..workers.max(1) {
        let socket = TcpListener::from(sys::listen(address, true, BACKLOG, listen.v6_only)?);
        prepare(&socket)?;
        // Port 0 is any free port, but the same for every worker.
        address = socket.local_addr()?;
        sockets.push(socket);
    }
    Ok(sockets)
}

/// A connection is accepted when its first bytes are there, or after about so long without any.
const FIRST_BYTES_SECONDS: u32 = 1;
/// The kernel repeats its SYN-ACK after a second, and lets in who answers that.
pub const RETIRE_DELAY: Duration = Duration::from_millis(1_300);

/// Options that accepted connections inherit, so that none of them costs a call of its own.
fn prepare(socket: &TcpListener) -> io::Result<()> {
    sys::defer_accept(socket.as_fd(), FIRST_BYTES_SECONDS)?;
    sys::bound_unsent(socket.as_fd(), SOCKET_UNSENT_BYTES)?;
    SockRef::from(socket).set_tcp_nodelay(true)
}

fn explain(
    config: &Config,
    span: Range<usize>,
    listen: &ListenAddress,
    error: &io::Error,
) -> OperatorError {
    let address = listen.address;
    let port = address.port();
    let (what, help) = match error.kind() {
        io::ErrorKind::AddrInUse => (
            format!("{address} is in use by another program"),
            format!("`ss -ltnp 'sport = :{port}'` shows which; stop it, or choose another port"),
        ),
        io::ErrorKind::PermissionDenied => (
            format!("this user may not listen on port {port}"),
            "ports below 1024 need root (with `user` to drop to) or CAP_NET_BIND_SERVICE; or choose a port such as 8443"
                .to_owned(),
        ),
        io::ErrorKind::AddrNotAvailable => (
            format!("this machine has no address {}", address.ip()),
            "`ip addr` lists those that it has; [::] stands for all of them".to_owned(),
        ),
        _ => (format!("can't listen on {address}: {error}"), String::new()),
    };
    config.point(span, what, help)
}
