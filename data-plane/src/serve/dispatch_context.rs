//! Facts about a request beside the request's header section.

use crate::handler::Endpoints;
use crate::tls::ConnectionIdentity;
use crate::world::own_listener::OwnListener;
use std::net::IpAddr;

/// Content that a listener serves.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Audience {
    /// The sites without `listen`.
    Public,
    /// The sites that name the listener in `listen`.
    Own(OwnListener),
    /// The manager, and nothing else.
    Manager,
}

impl Audience {
    /// Returns the listener of sites with `listen`.
    #[inline]
    pub(crate) fn own_listener(self) -> Option<OwnListener> {
        match self {
            Audience::Own(listener) => Some(listener),
            Audience::Public | Audience::Manager => None,
        }
    }
}

/// Fields of every response of the manager, which keep the content from pages of other sites and from caches. With the
/// policy `no-referrer`, browsers would send the forms of the page with `Origin: null` (Fetch §3.2).
pub const MANAGER_FIELDS: [(&str, &str); 6] = [
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
];

/// State of a request towards the request rates of its paths. A request counts once in each rate, however often it is
/// dispatched.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum RateCheck {
    /// Number of rates that have counted the request. Every dispatch meets the rates in the same order.
    Counted(usize),
    /// The request is refused.
    Refused {
        /// Time until the next request may pass, in milliseconds.
        wait_ms: u64,
    },
}

impl RateCheck {
    /// State of a request that does not count.
    pub(crate) const EXEMPT: RateCheck = RateCheck::Counted(usize::MAX);
}

impl Default for RateCheck {
    fn default() -> RateCheck {
        RateCheck::Counted(0)
    }
}

/// Facts about a request beside its header section: the connection, the time, and pending changes on disk.
#[derive(Copy, Clone, Debug)]
pub(crate) struct DispatchContext {
    /// Audience of the listener.
    pub audience: Audience,
    /// Identity of the certificate that the TLS handshake used; None without TLS.
    pub identity: Option<ConnectionIdentity>,
    /// Address of the client. A v4-mapped IPv6 address is given as IPv4.
    pub peer: IpAddr,
    /// True if the client uses TLS: on the connection, or by the statement of a trusted proxy in front.
    pub secure: bool,
    /// Trusted proxy that forwarded the request; None for a request sent by the client itself.
    pub forwarded_by: Option<IpAddr>,
    /// Source of the addresses of both ends of the connection.
    pub endpoints: EndpointLookup,
    /// Time of the worker's clock in milliseconds. All workers count from a common origin.
    pub now_ms: u64,
    /// True if the request may wait for changes on disk: the request was received completely and has not
    /// waited yet. A request with content never waits, because the content may be lost by the end of the
    /// wait.
    pub may_wait: bool,
    /// State towards the request rates.
    pub rate: RateCheck,
    /// True if the worker's poller has reported changes on disk that the control plane has not read.
    pub has_disk_changes: bool,
    /// True for a subrequest of a request whose password stays with this server, as in
    /// [`Request::hides_login`](crate::handler::Request::hides_login).
    pub hides_login: bool,
}

/// Source of a connection's addresses. Stored pages need no addresses, and a query costs system calls.
#[derive(Copy, Clone, Debug)]
pub(crate) enum EndpointLookup {
    /// Row of the connection in the worker's table. The kernel is asked for the addresses of the row's
    /// socket.
    Row(usize),
    /// Addresses that are known already.
    Known(Endpoints),
}
