//! Settings of balancers, of members and of the connections to members, in the units of the core.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Location of an HTTP server behind this server: the part of a URL before the path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberUrl {
    /// True for `https`.
    pub is_tls: bool,
    /// Address of the server.
    pub host: MemberHost,
}

/// Address of a member, as configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MemberHost {
    /// IP address and port.
    Address(SocketAddr),
    /// Host name in lower case, to be resolved, and port.
    Name(Box<str>, u16),
    /// Unix socket with its path in the file system.
    Unix(PathBuf),
}

impl MemberUrl {
    /// Returns the host and the port as in a Host field, without the default port of the scheme.
    pub fn authority(&self) -> String {
        let usual = if self.is_tls { 443 } else { 80 };
        match &self.host {
            MemberHost::Unix(_) => "localhost".to_owned(),
            MemberHost::Address(address) if address.port() != usual => address.to_string(),
            MemberHost::Address(SocketAddr::V6(address)) => format!("[{}]", address.ip()),
            MemberHost::Address(address) => address.ip().to_string(),
            MemberHost::Name(name, port) if *port != usual => format!("{name}:{port}"),
            MemberHost::Name(name, _) => name.to_string(),
        }
    }
}

impl fmt::Display for MemberUrl {
    /// Writes the URL, for a Unix socket as `unix:PATH`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        match &self.host {
            MemberHost::Address(address) => write!(f, "{scheme}://{address}"),
            MemberHost::Name(name, port) => write!(f, "{scheme}://{name}:{port}"),
            MemberHost::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

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

/// Rule for the choice of a member.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum BalancingMethod {
    /// Shares requests by weight (Apache's lbmethod byrequests).
    #[default]
    ByRequests,
    /// Shares bytes by weight (Apache's lbmethod bytraffic).
    ByTraffic,
    /// Chooses the member with the fewest requests under way (Apache's lbmethod bybusyness).
    ByBusyness,
    /// Chooses by the load that members announce in datagrams (Apache's lbmethod heartbeat).
    Heartbeat,
    /// Chooses by a hash of the client's address.
    IpHash,
    /// Chooses by a hash of the client's address in a Maglev table: the loss of a member moves few clients
    /// of other members.
    Maglev,
    /// Chooses the better of two random members, by latency and requests under way.
    P2c,
}

impl BalancingMethod {
    /// Returns the name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            BalancingMethod::ByRequests => "byrequests",
            BalancingMethod::ByTraffic => "bytraffic",
            BalancingMethod::ByBusyness => "bybusyness",
            BalancingMethod::Heartbeat => "heartbeat",
            BalancingMethod::IpHash => "ip-hash",
            BalancingMethod::Maglev => "maglev",
            BalancingMethod::P2c => "p2c",
        }
    }
}

/// Settings of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberSettings {
    /// Location of the member.
    pub url: MemberUrl,
    /// Share of the load in hundredths, 100 to 10,000 (Apache's loadfactor 1 to 100).
    pub weight: u32,
    /// Set of the member, 0 to 99. A set with a usable member precedes all higher sets.
    pub set: u8,
    /// Role of the member in its set.
    pub role: MemberRole,
    /// Route of the member in sticky sessions; the empty text for no route.
    pub route: Box<str>,
    /// Route of the member that replaces the member while the member is unusable; the empty text for none.
    pub redirect: Box<str>,
    /// Administrative state at the start.
    pub admin: AdminState,
    /// Errors of the member do not count (Apache's `+I`).
    pub ignores_errors: bool,
    /// Largest number of simultaneous requests; None for no bound.
    pub connections_max: Option<usize>,
}

impl BalancerSettings {
    /// Returns true if a member has a bound of simultaneous requests.
    pub fn is_bounded(&self) -> bool {
        self.members
            .iter()
            .any(|member| member.connections_max.is_some())
    }
}

/// Role of a member.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum MemberRole {
    /// The member gets requests.
    #[default]
    Regular,
    /// Hot spare: replaces an unusable regular member of the same set (Apache's `+R`).
    Spare,
    /// Hot standby: gets requests if no regular member and no spare of the same set is usable (Apache's
    /// `+H`).
    Standby,
}

impl MemberRole {
    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            MemberRole::Regular => "regular",
            MemberRole::Spare => "spare",
            MemberRole::Standby => "standby",
        }
    }
}

/// Administrative state of a member.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum AdminState {
    /// The member gets requests.
    #[default]
    Enabled,
    /// The member gets only requests of sticky sessions (Apache's `+N`).
    Draining,
    /// The member gets no requests (Apache's `+D`).
    Disabled,
    /// The member gets no requests and no checks (Apache's `+S`).
    Stopped,
}

impl AdminState {
    /// Returns the name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            AdminState::Enabled => "enabled",
            AdminState::Draining => "draining",
            AdminState::Disabled => "disabled",
            AdminState::Stopped => "stopped",
        }
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

/// Active checks of the members of a balancer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckSettings {
    /// Kind of the check.
    pub kind: CheckKind,
    /// Time from the start of a check to the start of the next check.
    pub every: Duration,
    /// Longest duration of a check.
    pub timeout: Duration,
    /// Successful checks in a row that make a member usable.
    pub rise: u32,
    /// Failed checks in a row that make a member unusable.
    pub fall: u32,
}

/// Kind of an active check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CheckKind {
    /// The member accepts a connection.
    Tcp,
    /// The member answers a request.
    Http {
        /// True for HEAD, false for GET.
        is_head: bool,
        /// Path with its query.
        path: Box<str>,
        /// Host field; None for the member's host.
        host: Option<Box<str>>,
        /// Smallest and largest status of a successful check.
        status: (u16, u16),
        /// Text in the first 64 KiB of the content of a successful check.
        text: Option<Box<str>>,
    },
}

/// Passive ejection: a member with failed requests gets no requests for a while.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EjectionSettings {
    /// Failed requests in a row that eject a member. A failed connection ejects a member at once.
    pub failures: u32,
    /// First pause; doubled by each ejection in a row.
    pub pause: Duration,
    /// Longest pause.
    pub pause_max: Duration,
    /// Statuses of responses that count as failures, such as 503 (Apache's `failonstatus`).
    pub statuses: Vec<u16>,
}

/// Retries of a request at further members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetrySettings {
    /// Largest number of further members for one request.
    pub attempts_max: u8,
    /// Retries per hundred requests of the last seconds; connections that fail do not count.
    pub budget_percent: u8,
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

impl Default for EjectionSettings {
    fn default() -> EjectionSettings {
        EjectionSettings {
            failures: 3,
            pause: Duration::from_secs(1),
            pause_max: Duration::from_secs(60),
            statuses: Vec::new(),
        }
    }
}

impl Default for RetrySettings {
    fn default() -> RetrySettings {
        RetrySettings {
            attempts_max: 3,
            budget_percent: 20,
        }
    }
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
