//! What is asked of a server: a [`Plan`] is the whole of one measurement, in data.
//!
//! It can be checked without a server and described in one line, which is what a result keeps.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// One measurement: whom to ask, for what, how often and for how long.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The server; several are taken in turn, connection by connection.
    pub addresses: Vec<SocketAddr>,
    /// Content of the `Host` field (`:authority` in HTTP/2 and 3).
    pub host: String,
    /// Taken in turn by each connection, which begin at different ones.
    pub paths: Vec<String>,
    /// GET, or HEAD.
    pub method: Method,
    /// The version of HTTP; nothing else is accepted from the server.
    pub protocol: Protocol,
    /// Encrypted, and how; `None` for plain HTTP. HTTP/3 has no plain form.
    pub tls: Option<Tls>,
    /// Connections, or users: each asks for one thing at a time (HTTP/1.1) or for [`Plan::streams`].
    pub connections: usize,
    /// Requests at once on each connection of HTTP/2 and 3; of no effect in HTTP/1.1.
    pub streams: usize,
    /// Threads that share the connections; never more than there are connections.
    pub threads: usize,
    /// Whether a connection serves request after request; else each request opens its own, says
    /// `Connection: close` and waits for the server to close, as ab does without `-k`.
    pub keep_alive: bool,
    /// When the next request is sent.
    pub pace: Pace,
    /// When it is enough.
    pub length: Length,
    /// Seconds of the same load before anything is counted.
    pub warm_up_seconds: f64,
    /// What a right response is.
    pub expect: Expect,
    /// Seconds until a connection, or a response, is given up.
    pub timeout_seconds: f64,
    /// Processors the threads are held to, thread by thread in turn; empty for any.
    pub cpus: Vec<usize>,
}

/// The method of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// A response with content.
    #[default]
    Get,
    /// A response without content, whatever its fields say.
    Head,
}

/// The version of HTTP that is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// HTTP/1.1 over TCP.
    #[default]
    Http1,
    /// HTTP/2 over TCP; with prior knowledge where there is no TLS.
    Http2,
    /// HTTP/3 over QUIC.
    Http3,
}

/// How a connection is encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// Whose certificates are believed.
    pub trust: Trust,
    /// Whether a connection takes up the session of an earlier one.
    pub resumption: Resumption,
    /// The key exchange that is offered.
    pub groups: Groups,
    /// The name that is asked for (SNI) and, with [`Trust::Authority`], looked for.
    pub server_name: String,
}

/// Whose certificates are believed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Trust {
    /// Nobody's: any certificate is taken, and its signature isn't verified, which spares the client
    /// a third of its work in a handshake and the server nothing.
    #[default]
    Nobody,
    /// Certificates that this authority (PEM) has signed, for the name that was asked for.
    Authority(String),
}

/// Whether a connection takes up the session of an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Resumption {
    /// Every handshake is a full one.
    #[default]
    Full,
    /// Every handshake uses a ticket or session, once there is one; each ticket once.
    Resumed,
}

/// The key exchange that is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Groups {
    /// X25519 alone.
    X25519,
    /// The hybrid with ML-KEM-768 alone.
    X25519MLKEM768,
    /// What rustls offers: the hybrid first, then X25519 and the curves of NIST.
    #[default]
    Default,
}

/// When the next request is sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// A user asks again when it has its response: the server sets the pace, and while it stalls
    /// nobody asks.
    Closed {
        /// Seconds, shortest and longest, of a random pause before each request, as siege's
        /// `--delay`; `None` for no pause.
        pause: Option<(f64, f64)>,
    },
    /// Requests fall due at a fixed rate whether or not the earlier ones were answered; one that
    /// finds no free connection waits, and its latency counts from when it was due.
    Open {
        /// Requests a second, all connections together.
        rate: f64,
    },
}

/// When it is enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Length {
    /// After so many seconds, warm-up apart.
    Seconds(f64),
    /// After so many requests, right or failed, those of the warm-up apart.
    Requests(u64),
}

/// What a right response is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expect {
    /// Its status.
    pub status: u16,
    /// Bytes of its content, as sent; `None` if they vary.
    pub length: Option<u64>,
    /// Its content, compared byte by byte; `None` if it doesn't matter.
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

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            addresses: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 80))],
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

/// Why a plan can't be carried out by anybody.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPlan {
    /// Nothing to connect to.
    #[error("the plan names no address")]
    NoAddress,
    /// Nothing to ask for.
    #[error("the plan names no path")]
    NoPath,
    /// A path or host that would break the request's form.
    #[error("{0:?} cannot stand in a request")]
    BadText(String),
    /// A number outside its range.
    #[error("{0} must be greater than zero and finite")]
    BadNumber(&'static str),
    /// A pause that ends before it begins.
    #[error("a pause of {0} to {1} s is none")]
    BadPause(String, String),
    /// HTTP/3 without TLS.
    #[error("HTTP/3 has no plain form")]
    PlainHttp3,
}

impl Plan {
    /// A plan of one connection that asks `address` for `/` for one second, to be changed at will.
    pub fn new(address: SocketAddr) -> Plan {
        Plan {
            addresses: vec![address],
            host: address.to_string(),
            ..Plan::default()
        }
    }

    /// Finds what no server could make sense of.
    pub fn check(&self) -> Result<(), BadPlan> {
        if self.addresses.is_empty() {
            return Err(BadPlan::NoAddress);
        }
        if self.paths.is_empty() {
            return Err(BadPlan::NoPath);
        }
        for path in &self.paths {
            let whole = format!("http://{}{path}", self.host);
            let sound = whole.bytes().all(|byte| byte.is_ascii_graphic())
                && whole.parse::<http::Uri>().is_ok();
            if !sound || !path.starts_with('/') {
                return Err(BadPlan::BadText(whole));
            }
        }
        if self.protocol == Protocol::Http3 && self.tls.is_none() {
            return Err(BadPlan::PlainHttp3);
        }
        self.check_numbers()
    }

    fn check_numbers(&self) -> Result<(), BadPlan> {
        let positive = |name, value: f64| {
            if value.is_finite() && value > 0.0 {
                Ok(())
            } else {
                Err(BadPlan::BadNumber(name))
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
            Pace::Closed {
                pause: Some((from, to)),
            } if !(from >= 0.0 && to >= from && to.is_finite()) => {
                Err(BadPlan::BadPause(from.to_string(), to.to_string()))
            }
            Pace::Closed { .. } => Ok(()),
        }
    }

    /// Threads that have a connection to serve.
    pub fn threads_used(&self) -> usize {
        self.threads.min(self.connections)
    }
}

impl fmt::Display for Plan {
    /// One line that tells everything that has an effect: `HTTP/1.1 over TLS (resumed, X25519) to …`.
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
        if self.protocol != Protocol::Http1 {
            write!(out, " of {} streams", self.streams)?;
        }
        write!(out, ", {} threads", self.threads_used())?;
        if !self.keep_alive {
            out.write_str(", each request on its own connection")?;
        }
        match self.pace {
            Pace::Open { rate } => write!(out, ", open loop at {rate} requests/s")?,
            Pace::Closed {
                pause: Some((from, to)),
            } => write!(out, ", closed loop with pauses of {from} to {to} s")?,
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
