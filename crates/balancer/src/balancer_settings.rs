//! Settings of a balancer, and of the connections that its user makes to the members, in the units of the core.

use crate::member_settings::{CheckSettings, EjectionSettings, MemberSettings};
use crate::method::BalancingMethod;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of a balancer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BalancerSettings {
    /// Name in anthill.toml. A route with `proxy` has a balancer of its own, with the URL as its name.
    pub name: Box<str>,
    /// Rule for the choice of a member.
    pub method: BalancingMethod,
    /// Members in the order of the file; at least one.
    pub members: Vec<MemberSettings>,
    /// Binding of a client to a member.
    pub sticky: Option<StickySettings>,
    /// Active checks of the members; None for no checks.
    pub check: Option<CheckSettings>,
    /// Passive ejection of failing members.
    pub ejection: EjectionSettings,
    /// Retries at further members.
    pub retry: RetrySettings,
    /// Time over which the weight of a recovered member rises from a tenth to the whole; zero for no slow
    /// start.
    pub slow_start: Duration,
    /// Connections to the members.
    pub connection: ConnectionSettings,
}

impl BalancerSettings {
    /// Returns true if a member has a bound of simultaneous requests.
    pub fn is_bounded(&self) -> bool {
        self.members
            .iter()
            .any(|member| member.connections_max.is_some())
    }
}

/// Binding of a client to a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StickySettings {
    /// Name of the cookie.
    pub cookie: Box<str>,
    /// Name of the path parameter with the route, such as `jsessionid`; None for the cookie alone.
    pub path_parameter: Option<Box<str>>,
    /// True if the balancer sets the cookie itself, signed. False if the members set the cookie, with the
    /// route after the first dot of the value, as for Apache.
    pub is_signed: bool,
    /// True if the requests of a session never go to another member (Apache's `nofailover`).
    pub is_strict: bool,
}

/// Retries of a request at further members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetrySettings {
    /// Largest number of further members for one request.
    pub attempts_max: u8,
    /// Retries per hundred requests of the last seconds; connections that fail do not count.
    pub budget_percent: u8,
}

impl Default for RetrySettings {
    fn default() -> RetrySettings {
        RetrySettings {
            attempts_max: 3,
            budget_percent: 20,
        }
    }
}

/// Connections to a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionSettings {
    /// Longest time to establish a connection, with TLS.
    pub connect_timeout: Duration,
    /// Longest time from the end of the request to the first byte of the response.
    pub first_byte_timeout: Duration,
    /// Longest time without a byte within a response.
    pub silence_timeout: Duration,
    /// Largest number of idle connections to one member.
    pub idle_max: usize,
    /// Longest time that a connection stays idle.
    pub idle_timeout: Duration,
    /// Requests that wait for a member with `connections_max` requests under way.
    pub queue: usize,
    /// Longest wait in the queue.
    pub queue_timeout: Duration,
    /// Largest number of tunnels and event streams at a member with `connections_max`; None for half of
    /// `connections_max`.
    pub tunnels: Option<usize>,
    /// TLS for `https` members.
    pub tls: MemberTlsSettings,
    /// Local address of the connections.
    pub from: Option<IpAddr>,
    /// PROXY protocol header sent at the start of each connection, which then serves one client.
    pub send_proxy_header: Option<ProxyHeaderVersion>,
    /// True for HTTP/2 to the members.
    pub is_http2: bool,
}

/// TLS of connections to members.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemberTlsSettings {
    /// File with the trusted certificate authorities; None for the authorities of the system.
    pub authorities: Option<PathBuf>,
    /// Name in the certificate; None for the member's host.
    pub server_name: Option<Box<str>>,
    /// File with the client certificate chain, and file with its key.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
}

/// Version of the PROXY protocol.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ProxyHeaderVersion {
    /// The line of text.
    V1,
    /// The binary header.
    V2,
}

impl Default for ConnectionSettings {
    fn default() -> ConnectionSettings {
        ConnectionSettings {
            connect_timeout: Duration::from_secs(5),
            first_byte_timeout: Duration::from_secs(60),
            silence_timeout: Duration::from_secs(60),
            idle_max: 256,
            idle_timeout: Duration::from_secs(60),
            queue: 256,
            queue_timeout: Duration::from_secs(10),
            tunnels: None,
            tls: MemberTlsSettings::default(),
            from: None,
            send_proxy_header: None,
            is_http2: false,
        }
    }
}
