//! Listening sockets. The control plane owns all of them: the sockets are bound before privileges drop, are
//! handed to the workers, and outlive a worker that has to be restarted.

use crate::admin::status::StatusAddress;
use crate::config::{Config, ListenAddress, OperatorError, Spanned, speaks_tls};
use crate::control::heartbeats::HeartbeatListeners;
use crate::control::kept_sockets::{KeptSockets, socket_name};
use base::sys;
use data_plane::limits::SOCKET_UNSENT_BYTES;
use data_plane::serve::h3::QuicForward;
use data_plane::serve::worker::{Audience, WorkerListener};
use data_plane::world::own_listener::OwnListener;
use socket2::{SockRef, Type};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// All addresses the server listens on.
#[derive(Default)]
pub(crate) struct Listeners {
    addresses: Vec<BoundAddress>,
    /// Sockets for the heartbeats of members.
    pub(super) heartbeats: HeartbeatListeners,
    /// Sockets that the service manager keeps for the next start.
    kept: KeptSockets,
    /// Sockets for the packets of connections of earlier servers over HTTP/3.
    pub(super) forwards: Vec<QuicForward>,
}

struct BoundAddress {
    /// Address as configured, compared with the new configuration at a reload.
    asked: SocketAddr,
    bound: SocketAddr,
    secure: bool,
    audience: Audience,
    /// True for a socket bound by a service manager, which stays until the process exits.
    passed: bool,
    /// Kind and address as configured, the name of the sockets for the service manager.
    name: String,
    /// A socket for each worker, or a single socket for all workers if a service manager passed the socket
    /// in. An earlier server with another number of workers has left another number of sockets.
    sockets: Vec<TcpListener>,
    /// UDP socket for HTTP/3 on the same port number.
    quic: Option<UdpSocket>,
    /// True if every new connection begins with a PROXY header. Workers share the flag, so a reload changes the
    /// flag without a new socket.
    proxy_protocol: Arc<AtomicBool>,
}

/// Length of the accept queue; the kernel lowers the value to its own limit (net.core.somaxconn).
const BACKLOG: i32 = 4096;

impl Listeners {
    /// Binds the addresses of `config` that aren't bound yet, for `workers` threads, and returns the new
    /// addresses. Keeps none of the new sockets if a single bind fails. Where a service manager passed sockets
    /// in, binds the manager's addresses alone.
    pub(crate) fn bind(
        &mut self,
        config: &Config,
        workers: usize,
    ) -> Result<Vec<SocketAddr>, OperatorError> {
        let has_passed = self.addresses.iter().any(|address| address.passed);
        let mut new = Vec::new();
        for wanted in wanted(config) {
            let is_passed = has_passed && wanted.audience != Audience::Manager;
            if is_passed || self.addresses.iter().any(|address| address.is(&wanted)) {
                continue;
            }
            let listen = wanted.listen;
            let has_quic = wanted.may_have_quic() && wants_quic(config);
            let (bound, quic) = bind_one(&listen, workers, has_quic)
                .map_err(|error| self.explain(config, &wanted, &error))?;
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
                secure: wanted.secure,
                audience: wanted.audience,
                passed: false,
                name: wanted.name(),
                sockets: bound,
                quic,
                proxy_protocol: Arc::new(listen.proxy_protocol.into()),
            });
        }
        let names = new.iter().map(|address| address.bound).collect();
        self.addresses.append(&mut new);
        Ok(names)
    }

    /// Binds the missing UDP sockets for HTTP/3 on addresses already bound for HTTPS, and returns the
    /// addresses with a new socket.
    pub(crate) fn bind_quic(&mut self, config: &Config) -> Result<Vec<SocketAddr>, OperatorError> {
        let mut new = Vec::new();
        if !wants_quic(config) {
            return Ok(new);
        }
        for address in &mut self.addresses {
            let may_have_quic = address.secure
                && address.audience == Audience::Public
                && !address.has_proxy_protocol(config);
            if !may_have_quic || address.quic.is_some() || !address.is_wanted(config) {
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

    /// Binds the missing UDP sockets of addresses whose TCP sockets an earlier server has left, at the start.
    pub(crate) fn bind_kept_quic(&mut self, config: &Config) -> Result<(), OperatorError> {
        let has_passed = self.addresses.iter().any(|address| address.passed);
        if !has_passed {
            self.bind_quic(config)?;
        }
        Ok(())
    }

    /// Returns the sockets for HTTP/3 of all addresses, or of the addresses in `only`.
    pub(crate) fn quic(&self, only: Option<&[SocketAddr]>) -> io::Result<Vec<UdpSocket>> {
        self.addresses
            .iter()
            .filter(|address| only.is_none_or(|only| only.contains(&address.bound)))
            .filter_map(|address| address.quic.as_ref())
            .map(UdpSocket::try_clone)
            .collect()
    }

    /// Returns the number of datagrams that were lost on the sockets for HTTP/3.
    pub(crate) fn datagrams_lost(&self) -> u64 {
        let sockets = self.addresses.iter().filter_map(|it| it.quic.as_ref());
        let lost = sockets.map(|socket| sys::datagrams_lost(socket.as_fd()).unwrap_or(0));
        lost.map(u64::from).sum()
    }

    /// Returns the port of the first address with HTTP/3.
    pub(crate) fn quic_port(&self, config: &Config) -> Option<u16> {
        self.addresses
            .iter()
            .filter(|_| wants_quic(config))
            .filter(|address| !address.has_proxy_protocol(config))
            .find(|address| address.quic.is_some() && address.is_wanted(config))
            .map(|address| address.bound.port())
    }

    /// Takes over the sockets that a service manager passes in: those that an earlier server had the manager keep, and
    /// those that the manager has bound itself.
    pub(crate) fn adopt(
        &mut self,
        config: &Config,
        mut passed: Vec<(String, OwnedFd)>,
    ) -> io::Result<()> {
        self.kept = KeptSockets::of_environment();
        let own = self.kept.take(&mut passed);
        self.adopt_own(config, own)?;
        self.adopt_foreign(config, passed.into_iter().map(|it| it.1).collect())
    }

    /// Takes over sockets of an earlier server. The sockets of addresses that `config` does not name are closed.
    fn adopt_own(&mut self, config: &Config, mut own: Vec<(String, OwnedFd)>) -> io::Result<()> {
        // A former start has shut the socket down, and the manager has not heard of the end.
        let is_dead = |socket: &OwnedFd| {
            !is_datagram(socket) && !SockRef::from(socket).is_listener().unwrap_or(false)
        };
        let dead = own.extract_if(.., |it| is_dead(&it.1));
        let mut left: Vec<String> = dead.map(|it| it.0).collect();
        self.take_wanted(config, &mut own)?;
        for (name, socket) in own {
            // The shutdown ends the queue of the socket although the manager has a duplicate.
            let _ = sys::shutdown_read(socket.as_fd());
            left.push(name);
        }
        self.kept.close(&left);
        Ok(())
    }

    /// Takes over the sockets of a running server, which goes on listening until it leaves. The sockets of addresses that
    /// `config` does not name stay with the running server alone.
    pub(crate) fn inherit(
        &mut self,
        config: &Config,
        sockets: Vec<(String, OwnedFd)>,
    ) -> io::Result<()> {
        self.kept = KeptSockets::of_environment();
        let (bound, others): (Vec<_>, Vec<_>) =
            sockets.into_iter().partition(|it| it.0 == BOUND_BY_MANAGER);
        let (datagrams, mut own): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|it| it.0.starts_with(HEARTBEATS));
        self.kept.record(&own);
        self.heartbeats.inherit(config, datagrams);
        self.take_wanted(config, &mut own)?;
        self.adopt_foreign(config, bound.into_iter().map(|it| it.1).collect())
    }

    /// Returns the sockets for packets of connections of earlier servers over HTTP/3.
    pub(crate) fn take_forwards(&mut self) -> Vec<QuicForward> {
        std::mem::take(&mut self.forwards)
    }

    /// Returns duplicates of all sockets with their names, for a successor.
    pub(crate) fn passed_on(&self) -> io::Result<Vec<(String, Vec<OwnedFd>)>> {
        let mut all = Vec::new();
        for address in &self.addresses {
            let name = |protocol| match address.passed {
                true => BOUND_BY_MANAGER.to_owned(),
                false => socket_name(protocol, &address.name),
            };
            let copies = address.sockets.iter().map(|it| it.as_fd());
            let copies = copies.map(|it| it.try_clone_to_owned());
            all.push((name("tcp"), copies.collect::<io::Result<_>>()?));
            if let Some(quic) = &address.quic {
                all.push((name("udp"), vec![quic.as_fd().try_clone_to_owned()?]));
            }
        }
        for (address, socket) in self.heartbeats.passed_on()? {
            let name = format!("{HEARTBEATS}{address}").replace(':', "_");
            all.push((name, vec![socket]));
        }
        Ok(all)
    }

    /// Closes all sockets of a server that leaves: the successor and the service manager have the same sockets.
    pub(crate) fn leave(&mut self) {
        *self = Listeners::default();
    }

    /// Takes the sockets of the addresses of `config` out of `own`.
    fn take_wanted(&mut self, config: &Config, own: &mut Vec<(String, OwnedFd)>) -> io::Result<()> {
        for wanted in wanted(config) {
            let tcp = socket_name("tcp", &wanted.name());
            let is_port = |socket: &OwnedFd| is_port_of(socket, wanted.listen.address.port());
            let found = own.extract_if(.., |it| it.0 == tcp && is_port(&it.1));
            let sockets: Vec<TcpListener> = found.map(|it| it.1.into()).collect();
            let Some(first) = sockets.first() else {
                continue;
            };
            let bound = first.local_addr()?;
            for socket in &sockets {
                prepare(socket)?;
            }
            let quic = if wanted.may_have_quic() && wants_quic(config) {
                let udp = socket_name("udp", &wanted.name());
                own.iter().position(|it| it.0 == udp)
            } else {
                None
            };
            self.addresses.push(BoundAddress {
                asked: wanted.listen.address,
                bound,
                secure: wanted.secure,
                audience: wanted.audience,
                passed: false,
                name: wanted.name(),
                sockets,
                quic: quic.map(|at| own.swap_remove(at).1.into()),
                proxy_protocol: Arc::default(),
            });
        }
        Ok(())
    }

    /// Has the service manager keep the sockets of all addresses for the next start, and no others.
    pub(crate) fn keep(&mut self) {
        let mut wanted = Vec::new();
        for address in self.addresses.iter().filter(|address| !address.passed) {
            let sockets = address.sockets.iter().map(AsFd::as_fd).collect();
            wanted.push((socket_name("tcp", &address.name), sockets));
            let quic = address.quic.iter().map(AsFd::as_fd);
            wanted.extend(quic.map(|quic| (socket_name("udp", &address.name), vec![quic])));
        }
        self.kept.update(&wanted);
    }

    /// Closes all sockets, those in the store of the service manager too.
    pub(crate) fn close(&mut self) {
        self.kept.close_all();
        *self = Listeners::default();
    }

    /// Takes over sockets that a service manager has bound. A socket on a port of `https` speaks TLS. A
    /// socket on any other port doesn't, unless `https` has an address, the port isn't in `http`, and the
    /// manager passed no other TCP socket.
    fn adopt_foreign(&mut self, config: &Config, passed: Vec<OwnedFd>) -> io::Result<()> {
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
            let of_others = wanted(config).find(|it| {
                it.audience != Audience::Public && named(&it.listen) && !(https || http)
            });
            let (secure, audience) = match of_others {
                Some(other) => (other.secure, other.audience),
                None => {
                    let secure = https || (only && !http && !config.server.https.is_empty());
                    (secure, Audience::Public)
                }
            };
            let is_same = |socket: &UdpSocket| {
                secure
                    && socket
                        .local_addr()
                        .is_ok_and(|its| its.port() == bound.port())
            };
            let quic = datagrams.iter().position(is_same);
            let mut address = BoundAddress {
                asked: bound,
                bound,
                secure,
                audience,
                passed: true,
                name: String::new(),
                sockets: vec![socket],
                quic: quic.map(|at| datagrams.swap_remove(at)),
                proxy_protocol: Arc::default(),
            };
            if address.has_proxy_protocol(config) || audience != Audience::Public {
                address.quic = None;
            }
            self.addresses.push(address);
        }
        Ok(())
    }

    /// Applies the flag `proxy_protocol` of every address to new connections.
    pub(crate) fn apply_proxy_protocol(&self, config: &Config) {
        for address in &self.addresses {
            let is_on = address.has_proxy_protocol(config);
            address.proxy_protocol.store(is_on, Relaxed);
        }
    }

    /// Takes the addresses that `config` no longer names off the list, and returns the addresses.
    /// Connections without a first byte are accepted within [`RETIRE_DELAY`]; the sockets must stay open
    /// until the delay is over.
    pub(crate) fn retire(&mut self, config: &Config) -> Vec<(SocketAddr, bool)> {
        self.heartbeats.retire(config);
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

    /// Drops addresses bound just now, after a later step of the start or reload failed.
    pub(crate) fn forget(&mut self, new: &[SocketAddr]) {
        self.addresses
            .retain(|address| !new.contains(&address.bound));
    }

    /// Returns the sockets of worker `index` of `workers`, for all addresses or for the addresses in `only`.
    pub(crate) fn for_worker(
        &self,
        index: usize,
        workers: usize,
        only: Option<&[SocketAddr]>,
    ) -> io::Result<Vec<WorkerListener>> {
        let addresses = self.addresses.iter();
        let addresses =
            addresses.filter(|address| only.is_none_or(|only| only.contains(&address.bound)));
        let sockets = addresses.flat_map(|address| {
            let sockets = address.sockets_of(index, workers);
            sockets.map(move |socket| (address, socket))
        });
        let listener = |(address, socket): (&BoundAddress, &TcpListener)| {
            Ok(WorkerListener {
                socket: socket.try_clone()?,
                address: address.bound,
                secure: address.secure,
                audience: address.audience,
                proxy_protocol: address.proxy_protocol.clone(),
            })
        };
        sockets.map(listener).collect()
    }

    /// Returns the bound addresses of the sites, and those of the manager. Addresses with TLS come first.
    pub(crate) fn status(&self, config: &Config) -> (Vec<StatusAddress>, Vec<StatusAddress>) {
        let of = |audience| {
            let bound = self.bound(audience);
            bound.map(|(address, is_secure)| StatusAddress::new(address, is_secure))
        };
        let own = self.addresses.iter().filter_map(|address| {
            let Audience::Own(listener) = address.audience else {
                return None;
            };
            let sites = config.sites.iter();
            let sites = sites.filter(|site| {
                let mut addresses = site.listen.iter().map(|it| it.get_ref().address.address);
                addresses.any(|address| OwnListener::at(address) == listener)
            });
            Some(StatusAddress {
                sites: sites.map(|site| site.name.clone()).collect(),
                ..StatusAddress::new(address.bound, address.secure)
            })
        });
        let public = of(Audience::Public).chain(own).collect();
        (public, of(Audience::Manager).collect())
    }

    /// Returns the bound addresses of an audience, each with true for TLS; TLS addresses first.
    pub(crate) fn bound(&self, audience: Audience) -> impl Iterator<Item = (SocketAddr, bool)> {
        let all = move |secure| {
            let addresses = self.addresses.iter();
            addresses.filter(move |it| it.secure == secure && it.audience == audience)
        };
        all(true)
            .chain(all(false))
            .map(|address| (address.bound, address.secure))
    }

    /// Returns the port of the first public address with or without TLS: the port in redirects to https, unless
    /// the operator configures another port, and the port in URLs. An address that `config` gives up doesn't
    /// count, even while the address is still bound.
    pub(crate) fn public_port(&self, config: &Config, is_secure: bool) -> Option<u16> {
        self.addresses
            .iter()
            .filter(|address| address.audience == Audience::Public)
            .find(|address| address.secure == is_secure && address.is_wanted(config))
            .map(|address| address.bound.port())
    }

    fn explain(
        &self,
        config: &Config,
        wanted: &WantedListener,
        error: &io::Error,
    ) -> OperatorError {
        let span = wanted.span.clone();
        let port = wanted.listen.address.port();
        let mut all = self.addresses.iter();
        let ours = all.find(|address| address.bound.port() == port);
        let ours = ours.filter(|_| error.kind() == io::ErrorKind::AddrInUse);
        let Some(ours) = ours else {
            return explain(config, span, &wanted.listen, error);
        };
        let is_for_manager = |audience| audience == Audience::Manager;
        let is_of_one_kind = ours.secure == wanted.secure
            && is_for_manager(ours.audience) == is_for_manager(wanted.audience);
        if is_of_one_kind {
            let what = format!(
                "the running server has port {port} at {}, for other sites or at another address",
                ours.bound
            );
            let help = "stop the server and start it again: a reload opens and closes ports, and does not move them";
            return config.point(span, what, help);
        }
        let what = format!("the running server uses port {port} for another kind of connection");
        let help =
            "stop the server and start the server again: a reload can't change the kind of a port";
        config.point(span, what, help)
    }
}

impl BoundAddress {
    /// Returns the sockets of worker `index` of `workers`. Every socket has a worker, since the kernel hands connections to
    /// each of them: an earlier server may have left more sockets than there are workers now. Without a socket of its own, a
    /// worker shares the socket of another one.
    fn sockets_of(&self, index: usize, workers: usize) -> impl Iterator<Item = &TcpListener> {
        let first = index % self.sockets.len();
        self.sockets.iter().skip(first).step_by(workers.max(1))
    }

    /// Returns `v6_only` as configured. An address missing from the configuration, such as a socket passed
    /// in by a service manager, is taken for IPv6 only.
    fn v6_only(&self, config: &Config) -> bool {
        let mut listens = wanted(config);
        let asked = listens.find(|wanted| wanted.listen.address == self.asked);
        asked.is_none_or(|wanted| wanted.listen.v6_only)
    }

    /// Returns `proxy_protocol` as configured. A socket passed in by a service manager has the flag of the
    /// address with the same port.
    fn has_proxy_protocol(&self, config: &Config) -> bool {
        wanted(config).any(|wanted| wanted.listen.proxy_protocol && self.is(&wanted))
    }

    /// Returns true for the socket of a wanted listener. A socket passed in by a service manager is the socket of
    /// the listener with the same port.
    fn is(&self, wanted: &WantedListener) -> bool {
        let address = wanted.listen.address;
        if self.passed {
            address.port() == self.bound.port()
        } else {
            let kind = (self.secure, self.audience);
            address == self.asked && kind == (wanted.secure, wanted.audience)
        }
    }

    fn is_wanted(&self, config: &Config) -> bool {
        self.passed || wanted(config).any(|wanted| self.is(&wanted))
    }
}

/// Listener of a configuration.
struct WantedListener {
    listen: ListenAddress,
    span: Range<usize>,
    secure: bool,
    audience: Audience,
}

impl WantedListener {
    /// Returns the kind and the address as configured, which decide about the use of a socket.
    fn name(&self) -> String {
        let audience = match self.audience {
            Audience::Public => "",
            Audience::Manager => "manager-",
            Audience::Own(_) => "own-",
        };
        let scheme = if self.secure { "https" } else { "http" };
        let families = if self.listen.v6_only { "/v6only" } else { "" };
        format!("{audience}{scheme}/{}{families}", self.listen.address)
    }

    /// Returns true for an address that may speak HTTP/3 as well.
    fn may_have_quic(&self) -> bool {
        self.secure && self.audience == Audience::Public && !self.listen.proxy_protocol
    }
}

/// Returns the listeners of a configuration: HTTPS, plain HTTP, the manager, and those of single sites.
fn wanted(config: &Config) -> impl Iterator<Item = WantedListener> {
    let of = |listen: &Spanned<ListenAddress>, secure, audience| WantedListener {
        listen: *listen.get_ref(),
        span: listen.span(),
        secure,
        audience,
    };
    let server = &config.server;
    let https = server.https.iter();
    let https = https.map(move |listen| of(listen, true, Audience::Public));
    let http = server.http.iter();
    let http = http.map(move |listen| of(listen, false, Audience::Public));
    let manager = config.manager.iter().flat_map(|manager| &manager.listen);
    let manager =
        manager.map(move |listen| of(listen, speaks_tls(listen.get_ref()), Audience::Manager));
    let all_own = move || config.sites.iter().flat_map(|site| &site.listen);
    let own = all_own().enumerate().filter(move |(nth, listener)| {
        // Several sites may share an address.
        let address = listener.get_ref().address.address;
        let mut before = all_own().take(*nth);
        !before.any(|it| it.get_ref().address.address == address)
    });
    let own = own.map(|(_, listener)| WantedListener {
        listen: listener.get_ref().address,
        span: listener.span(),
        secure: listener.get_ref().secure,
        audience: Audience::Own(OwnListener::at(listener.get_ref().address.address)),
    });
    https.chain(http).chain(manager).chain(own)
}

/// Returns true if the configuration and the build let HTTPS addresses speak HTTP/3 as well.
fn wants_quic(config: &Config) -> bool {
    let said = config.server.http3.as_ref().map(|it| *it.get_ref());
    cfg!(feature = "http3") && said != Some(false)
}

/// Name of sockets that a service manager has bound, between two servers.
const BOUND_BY_MANAGER: &str = "bound";
/// Beginning of the names of sockets for heartbeats, between two servers.
const HEARTBEATS: &str = "heartbeats/";

/// Returns true for a socket with the port, or with any port if the kernel chooses.
fn is_port_of(socket: &OwnedFd, port: u16) -> bool {
    let address = SockRef::from(socket).local_addr().ok();
    let bound = address.and_then(|address| address.as_socket());
    bound.is_some_and(|bound| port == 0 || bound.port() == port)
}

fn is_datagram(socket: &OwnedFd) -> bool {
    SockRef::from(socket)
        .r#type()
        .is_ok_and(|kind| kind == Type::DGRAM)
}

/// Turns a failed bind of the UDP port into a warning, and the address goes on without HTTP/3. The failure
/// is an error if the operator set `http3 = true`.
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
            let help =
                "set `http3 = false`, or remove the key to serve without HTTP/3 where UDP fails";
            Err(config.point(wanted.span(), what, help))
        }
        None => {
            log::warn!("{what}; the address is served without HTTP/3");
            Ok(None)
        }
    }
}

type BoundSockets = (Vec<TcpListener>, Option<io::Result<UdpSocket>>);

/// Binds a TCP socket for each worker, and a UDP socket if `wants_quic`. A port chosen by the kernel (port
/// 0) must be free for TCP and UDP.
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

/// Ports to try until a port is free for both TCP and UDP.
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
        // Port 0 lets the kernel choose a port. All workers must bind the port of the first socket.
        address = socket.local_addr()?;
        sockets.push(socket);
    }
    Ok(sockets)
}

/// Approximate seconds until a connection without a first byte is accepted (TCP_DEFER_ACCEPT). The first
/// byte has the connection accepted at once.
const FIRST_BYTES_SECONDS: u32 = 1;
/// Time until the sockets of a retired address close. The kernel repeats the SYN-ACK after 1 s, and the
/// client's acknowledgement completes a connection that was still waiting for a first byte.
pub(crate) const RETIRE_DELAY: Duration = Duration::from_millis(1_300);

/// Sets options that accepted connections inherit, to save a system call for each connection.
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
            format!("`ss -ltnp 'sport = :{port}'` shows the program; stop the program, or choose another port"),
        ),
        io::ErrorKind::PermissionDenied => (
            format!("this user may not listen on port {port}"),
            "ports below 1024 need root (with `user` to drop to) or CAP_NET_BIND_SERVICE; or choose a port such as 8443"
                .to_owned(),
        ),
        io::ErrorKind::AddrNotAvailable => (
            format!("this machine has no address {}", address.ip()),
            "`ip addr` lists the addresses of the machine; [::] stands for all addresses".to_owned(),
        ),
        _ => (format!("can't listen on {address}: {error}"), String::new()),
    };
    config.point(span, what, help)
}
