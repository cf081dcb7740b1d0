//! Listening sockets of a worker, and accepted connections before their first byte.

use crate::handler::Endpoints;
use crate::limits::MANAGER_CONNECTIONS_RESERVED;
use crate::serve::dispatch_context::Audience;
use base::client_network::ClientNetwork;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::cell::Cell;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A listening socket of a worker.
pub(super) struct AcceptLoop {
    pub(super) address: SocketAddr,
    pub(super) secure: bool,
    pub(super) audience: Audience,
    /// Value of which each open connection of the listener holds a copy.
    pub(super) places: Rc<()>,
    /// True if every new connection begins with a PROXY header. A reload may change the flag.
    pub(super) proxy_protocol: Arc<AtomicBool>,
    mode: Cell<AcceptMode>,
    /// Notified after a change of the mode.
    pub(super) changed: Notify,
    /// Time of the last log line about a missing or malformed PROXY header.
    pub(super) header_complaint: Cell<Option<Instant>>,
}

/// Treatment of the connections that the kernel holds for an accept loop.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum AcceptMode {
    Accepting,
    /// The connections stay in the kernel's queue, and the socket stays open.
    Paused,
    /// The socket is closed. The connections in the kernel's queue belong to another process with the same socket, and the
    /// loop ends once no accepted connection waits for a place.
    Left,
    /// The loop takes the connections in the kernel's queue, closes the socket and ends.
    Stopped,
}

impl AcceptLoop {
    /// Creates the state of a loop that accepts.
    pub(super) fn new(
        address: SocketAddr,
        secure: bool,
        audience: Audience,
        proxy_protocol: Arc<AtomicBool>,
    ) -> AcceptLoop {
        AcceptLoop {
            address,
            secure,
            audience,
            places: Rc::default(),
            proxy_protocol,
            mode: Cell::new(AcceptMode::Accepting),
            changed: Notify::new(),
            header_complaint: Cell::new(None),
        }
    }

    pub(super) fn mode(&self) -> AcceptMode {
        self.mode.get()
    }

    /// Changes the mode. The loop accepts nothing more at once where the new mode says so: the loop looks at the mode
    /// before each call of accept(2), on the same thread.
    pub(super) fn set_mode(&self, mode: AcceptMode) {
        self.mode.set(mode);
        self.changed.notify_one();
    }

    /// Returns true if another connection has a reserved place beyond the limit of connections. The manager has such
    /// places, so that a flood of requests to the sites does not keep the operator out.
    pub(super) fn has_reserved_place(&self) -> bool {
        let open = Rc::strong_count(&self.places) - 1;
        self.audience == Audience::Manager && open < MANAGER_CONNECTIONS_RESERVED
    }
}

/// Accepted connection.
pub(super) struct AcceptedConnection {
    pub(super) socket: OwnedFd,
    /// Address of the client.
    pub(super) peer: SocketAddr,
    /// Ends of the connection by its PROXY header; None for the ends known to the kernel.
    pub(super) ends: Option<Endpoints>,
    /// Time of the acceptance in milliseconds of the worker's clock.
    pub(super) accepted_ms: u64,
}

impl AcceptedConnection {
    /// Returns a connection without a PROXY header.
    pub(super) fn direct(socket: OwnedFd, peer: SocketAddr, now_ms: u64) -> AcceptedConnection {
        AcceptedConnection {
            socket,
            peer,
            ends: None,
            accepted_ms: now_ms,
        }
    }

    pub(super) fn client(&self) -> ClientNetwork {
        self.peer.ip().into()
    }

    /// Returns true if the client has closed the connection without a request.
    pub(super) fn is_left(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match recv(&self.socket, &mut [0; 1], flags) {
            Ok((received, _)) => received == 0,
            Err(error) => error != Errno::AGAIN && error != Errno::INTR,
        }
    }
}
