//! Every bound of the data plane, with its unit, its reason and the effect of reaching it.
//!
//! Bounds that an operator may change are fields of [`Limits`] (`[server] limits = { … }`), also those of the control
//! plane. Bounds for developers are constants, in one file for each room that enforces the bounds, and used as
//! `limits::NAME`. The unit is part of each name.

mod ledger;
mod site;
mod tls;
mod world;
mod handler;
mod upstream;
mod cache;
#[cfg(feature = "http3")]
mod h3;
mod hits;
mod serve;

pub use crate::limits::cache::*;
#[cfg(feature = "http3")]
pub(crate) use crate::limits::h3::*;
pub use crate::limits::handler::*;
pub use crate::limits::hits::*;
pub use crate::limits::ledger::*;
pub use crate::limits::serve::*;
pub use crate::limits::site::*;
pub use crate::limits::tls::*;
pub use crate::limits::upstream::*;
pub use crate::limits::world::*;

use wire::limits::HeadLimits;

/// Bounds that an operator may set under the names of the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    // serve: connections and streams
    /// Open connections in all. Beyond the bound, idle connections of the client with the most connections
    /// are closed. Without idle connections the server stops accepting.
    pub connections: usize,
    /// Open connections from one client: an IPv4 address or an IPv6 /64 network. Further connections are
    /// refused. 0 means no limit, since many people share one address behind a NAT.
    pub connections_per_address: usize,
    /// Requests under way over HTTP/2 and HTTP/3 on all connections of one worker. Further requests are
    /// refused, and the client may retry. Each request takes a few hundred bytes that a client can occupy
    /// for the duration of a stall, and the received part of the body. The body is bounded by the
    /// connection's window. Bodies buffered for scripts are bounded for all requests together
    /// ([`BODY_MEMORY_PARTS`]).
    pub streams: usize,

    // serve: request heads
    /// Bounds of request heads.
    pub head: HeadLimits,

    // serve: timeouts and rates
    /// Seconds for a whole TLS handshake. A slower connection is closed.
    pub handshake_seconds: u32,
    /// Seconds from the first byte of a head to the end of the head. A slower request is answered with 408.
    pub head_seconds: u32,
    /// Seconds that a kept-alive connection may be idle between requests, and a tunnel after one side has
    /// ended its direction. Then the connection is closed.
    pub idle_seconds: u32,
    /// Seconds that a client may take no byte of a response. Then the response is broken off.
    pub write_stall_seconds: u32,
    /// Bytes a second that a request body must bring on average after a grace of [`BODY_GRACE_SECONDS`]. A
    /// slower body is answered with 408.
    pub body_rate_bytes_per_second: u32,

    // serve and handler: request bodies
    /// Bytes of an unwanted request body that are read and discarded before the response over HTTP/1.1, to keep the
    /// connection. A longer body is answered at once, and the connection ends after the response.
    pub body_discard_bytes: u64,
    /// Bytes of a request body for a handler. A longer body is answered with 413.
    pub body_bytes: u64,
    /// Bytes of all request bodies that are stored on the disk until complete. One client may take a
    /// quarter. Further bodies are answered with 503. The default is room for four bodies of the largest
    /// size: a disk has the room, and bodies of unknown length are rare.
    pub spooled_bytes: u64,

    // control: shutdown
    /// Seconds for requests under way to finish when the server stops. Then the remaining connections are
    /// closed.
    pub drain_seconds: u32,
    /// Seconds for which a former process of the server goes on with its requests after a restart without a loss. Then
    /// the remaining transfers and tunnels are cut.
    pub restart_seconds: u32,

    // handler: scripts
    /// Scripts that run at the same time for all sites. Further calls wait for a slot.
    pub scripts: usize,
    /// Calls that wait for a script slot, each for at most 10 s ([`CALL_QUEUE_SECONDS`]). Further calls are
    /// answered with 503.
    pub script_queue: usize,
    /// Seconds in which a script neither reads input nor writes output. Then the script is ended.
    pub script_silent_seconds: u32,
    /// Seconds for a whole call of a script. Then the script is ended.
    pub script_seconds: u32,
    /// Bytes of one response of a script. A longer response is broken off.
    pub script_output_bytes: u64,

    // handler: git over HTTP
    /// Seconds for a whole fetch or push of git. A large repository takes hours on a slow line, and
    /// `script_silent_seconds` and `write_stall_seconds` end stuck transfers.
    pub git_seconds: u32,

    // deploy: trees
    /// Files, folders and links of a deployed tree. A larger tree is refused.
    pub deploy_files: usize,
    /// Bytes of a deployed tree. A larger tree is refused. A disk holds up to 4 trees at the same time.
    pub deploy_bytes: u64,

    // handler: git web pages
    /// Expensive git web pages (diffs, logs of a path, snapshots, feeds) that one address may request in a
    /// minute, and at once. Further requests are answered with 429. No person reads one page a second for
    /// long.
    pub git_heavy_per_minute: u32,
    /// Git web pages of any kind that one address may request in a minute, and at once: 10 a second.
    /// Further requests are answered with 429. Immutable pages from the page cache don't count.
    pub git_pages_per_minute: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 10_000,
            connections_per_address: 0,
            streams: 20_000,
            head: HeadLimits::default(),
            handshake_seconds: 10,
            head_seconds: 10,
            idle_seconds: 75,
            write_stall_seconds: 30,
            body_rate_bytes_per_second: 512,
            body_discard_bytes: 1 << 20,
            body_bytes: 1 << 30,
            spooled_bytes: 4 << 30,
            drain_seconds: 30,
            restart_seconds: 3_600,
            scripts: 16,
            script_queue: 128,
            script_silent_seconds: 60,
            script_seconds: 3_600,
            script_output_bytes: 4 << 30,
            git_seconds: 86_400,
            deploy_files: 200_000,
            deploy_bytes: 4 << 30,
            git_heavy_per_minute: 60,
            git_pages_per_minute: 600,
        }
    }
}
