//! Description of one measurement. A [`Workload`] is plain data, can be validated without a server, and prints
//! as one line for the result file.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// One measurement: the server, the requests, their rate and the duration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Workload {
    /// Addresses of the server. Connections use several addresses in rotation.
    pub addresses: Vec<SocketAddr>,
    /// Local addresses of the connections, used in rotation. Empty for an address chosen by the system.
    pub sources: Vec<IpAddr>,
    /// Value of the `Host` field (`:authority` in HTTP/2 and HTTP/3).
    pub host: String,
    /// Request paths. Each connection cycles through all paths, and starts at a different path.
    pub paths: Vec<String>,
    /// Request method.
    pub method: Method,
    /// HTTP version. A server that answers with another version fails.
    pub protocol: Protocol,
    /// TLS settings, or `None` for plain HTTP. HTTP/3 requires TLS.
    pub tls: Option<Tls>,
    /// Number of connections (users). A user has one request at a time in HTTP/1.1, and [`Workload::streams`]
    /// requests in HTTP/2 and HTTP/3.
    pub connections: usize,
    /// Concurrent requests on each connection of HTTP/2 and HTTP/3. Ignored in HTTP/1.1.
    pub streams: usize,
    /// Number of threads that share the connections, at most one thread per connection.
    pub threads: usize,
    /// Whether connections are reused. If false, each request opens a connection, sends `Connection: close`
    /// and waits for the server to close, as ab does without `-k`.
    pub keep_alive: bool,
    /// Timing of requests.
    pub pace: Pace,
    /// Length of the measurement.
    pub length: Length,
    /// Seconds of warm-up under the same load, not counted.
    pub warm_up_seconds: f64,
    /// Properties of a correct response.
    pub expect: Expect,
    /// Seconds until a connection attempt or a request is abandoned.
    pub timeout_seconds: f64,
    /// Processors to which the threads are pinned in rotation. Empty for no pinning.
    pub cpus: Vec<usize>,
}

/// Method of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Method {
    /// GET: the response has content.
    #[default]
    Get,
    /// HEAD: the response has no content, regardless of its fields.
    Head,
}

/// HTTP version of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Protocol {
    /// HTTP/1.1 over TCP.
    #[default]
    Http1,
    /// HTTP/2 over TCP. Without TLS, with prior knowledge.
    Http2,
    /// HTTP/3 over QUIC.
    Http3,
}

/// TLS settings of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tls {
    /// Trusted certificates.
    pub trust: Trust,
    /// Session resumption.
    pub resumption: Resumption,
    /// Offered key exchange groups.
    pub groups: Groups,
    /// Server name for SNI and, with [`Trust::Authority`], for the verification of the certificate.
    pub server_name: String,
}

/// Trusted certificates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Trust {
    /// Accepts any certificate, without verifying its signature. Skipping the verification saves the client
    /// a third of its work in a handshake and makes no difference to the server.
    #[default]
    Any,
    /// Accepts certificates signed by the given authority (PEM) for the requested name.
    #[cfg_attr(
        not(test),
        expect(
            dead_code,
            reason = "tests of contenders check certificates over HTTP/3, with no other client"
        )
    )]
    Authority(String),
}

/// Session resumption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Resumption {
    /// Every handshake is a full handshake.
    #[default]
    Full,
    /// Every handshake resumes a session if a ticket or session is available. A ticket is used once.
    Resumed,
}

/// Offered key exchange groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Groups {
    /// Only X25519.
    X25519,
    /// Only the hybrid X25519MLKEM768.
    X25519MLKEM768,
    /// The default of rustls: X25519MLKEM768 first, then X25519 and the NIST curves.
    #[default]
    Default,
}

/// Timing of requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pace {
    /// Closed loop: a user sends the next request after the response. The server sets the pace, and a
    /// stalled server receives no requests.
    Closed {
        /// Pause before each request, as the `--delay` of siege. `None` for no pause.
        pause: Option<Pause>,
    },
    /// Open loop: requests fall due at a fixed rate, independent of the responses. A request without a free
    /// connection waits, and its latency counts from the due time.
    Open {
        /// Requests per second over all connections.
        rate: f64,
    },
}

/// Bounds of a random pause.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pause {
    pub shortest_seconds: f64,
    pub longest_seconds: f64,
}

/// Addresses of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ends {
    /// Address of the server.
    pub server: SocketAddr,
    /// Local address if not chosen by the system.
    pub local: Option<IpAddr>,
}

/// Length of the measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Length {
    /// Seconds, not counting the warm-up.
    Seconds(f64),
    /// Number of requests, correct or failed, not counting the warm-up.
    Requests(u64),
}

/// Properties of a correct response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expect {
    /// Expected status.
    pub status: u16,
    /// Expected length of the content in bytes as transferred, or `None` for any length.
    pub length: Option<u64>,
    /// Expected content, compared byte by byte, or `None` for any content.
    pub body: Option<Arc<[u8]>>,
}

impl Default for Expect {
    fn default() -> Expect {
        Expect {
            status: 200,
            length: None,
            body: None,
        }
    }
}

impl Default for Tls {
    fn default() -> Tls {
        Tls {
            trust: Trust::default(),
            resumption: Resumption::default(),
            groups: Groups::default(),
            server_name: "localhost".to_owned(),
        }
    }
}

impl Default for Workload {
    fn default() -> Workload {
        Workload {
            addresses: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 80))],
            sources: Vec::new(),
            host: "localhost".to_owned(),
            paths: vec!["/".to_owned()],
            method: Method::Get,
            protocol: Protocol::Http1,
            tls: None,
            connections: 1,
            streams: 1,
            threads: 1,
            keep_alive: true,
            pace: Pace::Closed { pause: None },
            length: Length::Seconds(1.0),
            warm_up_seconds: 0.0,
            expect: Expect::default(),
            timeout_seconds: 10.0,
            cpus: Vec::new(),
        }
    }
}

/// Reason why a workload could not be carried out. Failures of the server are counted in the [`Outcome`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The workload is invalid.
    #[error(transparent)]
    Workload(#[from] BadWorkload),
    /// The certificate of the authority can't be read.
    #[error("cannot read the certificate of the authority: {0}")]
    Authority(String),
    /// The server name in the workload is neither a host name nor an address.
    #[error("{0:?} is neither a host name nor an IP address")]
    ServerName(String),
    /// The TLS configuration could not be built from the workload.
    #[error("TLS: {0}")]
    Tls(String),
    /// The system's limit of open files is too low for the number of connections.
    #[error(
        "{connections} connections need more than the {allowed} open files that the system allows (ulimit -n)"
    )]
    TooManyConnections {
        /// Number of connections in the workload.
        connections: usize,
        /// Hard limit of open files.
        allowed: u64,
    },
    /// A thread could not be pinned to a processor: the processor doesn't exist or is not available to the
    /// process.
    #[error("cannot pin a thread to processor {cpu}: {source}")]
    Pin {
        /// Number of the processor.
        cpu: usize,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The system refused a thread, a socket or another resource of the generator.
    #[error("system error in the load generator: {0}")]
    System(#[from] io::Error),
}

/// Error of an invalid workload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadWorkload {
    /// The workload has no address.
    #[error("the plan names no address")]
    NoAddress,
    /// A local address and an address of the server are of different families.
    #[error("{from} can't connect to {to}: one is IPv4, the other IPv6")]
    MixedFamilies {
        /// Local address.
        from: IpAddr,
        /// Address of the server.
        to: SocketAddr,
    },
    /// The workload has no path.
    #[error("the plan names no path")]
    NoPath,
    /// A path or host contains characters that are not allowed in a request.
    #[error("{0:?} is not a valid request URL")]
    BadText(String),
    /// A number is out of range.
    #[error("{0} must be greater than zero and finite")]
    BadNumber(&'static str),
    /// The longest pause is shorter than the shortest.
    #[error(
        "a pause of {0} to {1} s is invalid: the bounds must be finite, not negative and in ascending order"
    )]
    BadPause(String, String),
    /// The workload wants HTTP/3 without TLS.
    #[error("HTTP/3 requires TLS")]
    PlainHttp3,
}

impl Workload {
    /// Creates a workload with defaults: one connection that sends `GET /` to `address` for 1 s.
    #[cfg(test)]
    pub(crate) fn new(address: SocketAddr) -> Workload {
        Workload {
            addresses: vec![address],
            host: address.to_string(),
            ..Workload::default()
        }
    }

    /// Validates the workload.
    pub(crate) fn check(&self) -> Result<(), BadWorkload> {
        if self.addresses.is_empty() {
            return Err(BadWorkload::NoAddress);
        }
        self.check_families()?;
        if self.paths.is_empty() {
            return Err(BadWorkload::NoPath);
        }
        for path in &self.paths {
            let whole = format!("http://{}{path}", self.host);
            let sound = whole.bytes().all(|byte| byte.is_ascii_graphic())
                && whole.parse::<http::Uri>().is_ok();
            if !sound || !path.starts_with('/') {
                return Err(BadWorkload::BadText(whole));
            }
        }
        if self.protocol == Protocol::Http3 && self.tls.is_none() {
            return Err(BadWorkload::PlainHttp3);
        }
        self.check_numbers()
    }

    fn check_families(&self) -> Result<(), BadWorkload> {
        for &from in &self.sources {
            let mut addresses = self.addresses.iter();
            if let Some(&to) = addresses.find(|to| to.is_ipv4() != from.is_ipv4()) {
                return Err(BadWorkload::MixedFamilies { from, to });
            }
        }
        Ok(())
    }

    fn check_numbers(&self) -> Result<(), BadWorkload> {
        let positive = |name, value: f64| {
            if value.is_finite() && value > 0.0 {
                Ok(())
            } else {
                Err(BadWorkload::BadNumber(name))
            }
        };
        positive("the number of connections", self.connections as f64)?;
        positive("the number of streams", self.streams as f64)?;
        positive("the number of threads", self.threads as f64)?;
        positive("the timeout", self.timeout_seconds)?;
        positive("the warm-up", self.warm_up_seconds + f64::MIN_POSITIVE)?;
        match self.length {
            Length::Seconds(seconds) => positive("the length", seconds)?,
            Length::Requests(requests) => positive("the number of requests", requests as f64)?,
        }
        match self.pace {
            Pace::Open { rate } => positive("the rate", rate),
            Pace::Closed { pause: Some(pause) } => pause.check(),
            Pace::Closed { pause: None } => Ok(()),
        }
    }

    /// Returns the addresses of a connection.
    pub(super) fn ends(&self, connection: usize) -> Ends {
        let source = connection.checked_rem(self.sources.len());
        Ends {
            server: self.addresses[connection % self.addresses.len()],
            local: source.map(|nth| self.sources[nth]),
        }
    }

    /// Returns the number of threads with at least one connection.
    pub(crate) fn threads_used(&self) -> usize {
        self.threads.min(self.connections)
    }
}

impl Pause {
    fn check(self) -> Result<(), BadWorkload> {
        let (shortest, longest) = (self.shortest_seconds, self.longest_seconds);
        if shortest >= 0.0 && longest >= shortest && longest.is_finite() {
            Ok(())
        } else {
            Err(BadWorkload::BadPause(
                shortest.to_string(),
                longest.to_string(),
            ))
        }
    }
}

impl fmt::Display for Workload {
    /// Formats the workload as one line with every effective setting.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.length {
            Length::Seconds(seconds) => write!(out, "{seconds} s")?,
            Length::Requests(requests) => write!(out, "{requests} requests")?,
        }
        write!(out, " of {}", self.protocol)?;
        if let Some(tls) = &self.tls {
            write!(
                out,
                " over TLS ({:?} handshakes, groups {:?})",
                tls.resumption, tls.groups
            )?;
        }
        let method = if self.method == Method::Head {
            "HEAD "
        } else {
            ""
        };
        let addresses: Vec<_> = self.addresses.iter().map(ToString::to_string).collect();
        write!(
            out,
            " to {}, {method}{}",
            addresses.join(" "),
            self.paths.join(" ")
        )?;
        write!(out, ", {} connections", self.connections)?;
        if !self.sources.is_empty() {
            write!(out, " from {} addresses", self.sources.len())?;
        }
        if self.protocol != Protocol::Http1 {
            write!(out, " of {} streams", self.streams)?;
        }
        write!(out, ", {} threads", self.threads_used())?;
        if !self.keep_alive {
            out.write_str(", each request on its own connection")?;
        }
        match self.pace {
            Pace::Open { rate } => write!(out, ", open loop at {rate} requests/s")?,
            Pace::Closed { pause: Some(pause) } => write!(
                out,
                ", closed loop with pauses of {} to {} s",
                pause.shortest_seconds, pause.longest_seconds
            )?,
            Pace::Closed { pause: None } => out.write_str(", closed loop")?,
        }
        write!(out, ", after {} s of warm-up", self.warm_up_seconds)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Protocol::Http1 => "HTTP/1.1",
            Protocol::Http2 => "HTTP/2",
            Protocol::Http3 => "HTTP/3",
        })
    }
}
