//! Settings of a member and of what follows from its answers: checks and ejection.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

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
    /// Active checks.
    pub check: MemberCheck,
}

/// Active checks of one member.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum MemberCheck {
    /// The checks of the balancer.
    #[default]
    Balancer,
    /// No checks.
    Off,
    /// Checks of the member's own.
    Own(Arc<CheckSettings>),
}

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
