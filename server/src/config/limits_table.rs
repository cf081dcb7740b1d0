//! `limits` of `[server]`: the bounds that the operator may set.

use toml::Spanned;

use crate::config::declared_table::declare_table;
use crate::config::value_types::{ByteSize, Seconds};
use data_plane::limits::{Limits, READ_BUFFER_BYTES};
use wire::limits::HeadLimits;

/// Largest number of bytes.
const BYTES_MAX: ByteSize = ByteSize(u64::MAX);
/// Size of the read buffer, the largest size of a head.
const HEAD_BYTES_MAX: ByteSize = ByteSize(READ_BUFFER_BYTES as u64);
/// Shortest time.
const SECOND: Seconds = Seconds(1);
/// Longest time, one year: practically unlimited, and safe from overflow.
const YEAR: Seconds = Seconds(31_536_000);
/// Largest number of pages of repositories in a minute.
const PAGES_MAX: u32 = 1_000_000;

declare_table! {
    /// Keys of `limits`.
    pub(super) struct LimitsTable: "limits", such as "{ connections = 20000 }" {
        /// Open connections of the server; [beyond the limit](#when-all-connections-are-taken), idle connections are
        /// closed for new connections.
        connections: usize = default(usual().connections), within(1, usize::MAX), also ["worker_connections"],
            example "20000";
        /// Open connections of one client; 0 = no limit (many people share one address behind a NAT). The limit does
        /// not apply to proxies in [`trust`](behind-a-proxy.md). A client is an IPv4 address or an IPv6 /64 network.
        connections_per_address: usize = default(usual().connections_per_address), also ["limit_conn"],
            example "100";
        /// Requests under way over HTTP/2 and HTTP/3 on all connections of one worker. Beyond the limit a page in
        /// memory is still answered; a request that has to wait is refused, and the client may send the request again.
        /// See [shares](#shares).
        streams: usize = default(usual().streams), within(1, usize::MAX), example "10000";
        /// Bytes of a request line without CRLF, as long as lines of browsers and proxies; 414 beyond.
        request_line_bytes: ByteSize = default(ByteSize(usual().head.request_line_bytes as u64)),
            within(ByteSize(64), HEAD_BYTES_MAX), example "\"4KiB\"";
        /// Bytes of a whole head; 431 beyond.
        head_bytes: ByteSize = default(ByteSize(usual().head.head_bytes as u64)), within(ByteSize(256), HEAD_BYTES_MAX),
            example "\"8KiB\"";
        /// Field lines of one head; 431 beyond.
        fields: usize = default(usual().head.fields), within(1, READ_BUFFER_BYTES), example "50";
        /// Seconds for a whole TLS handshake. The ClientHello may have at most 16 KiB.
        handshake_seconds: Seconds = default(Seconds(usual().handshake_seconds.into())), within(SECOND, YEAR),
            example "5";
        /// Seconds from the first byte of a head, or of the TLS record with the start of the head, to the end of the
        /// head.
        head_seconds: Seconds = default(Seconds(usual().head_seconds.into())), within(SECOND, YEAR), example "5";
        /// Seconds of silence of a kept-alive connection between requests, and of a [tunnel](#tunnels) after one side
        /// has ended its direction.
        idle_seconds: Seconds = default(Seconds(usual().idle_seconds.into())), within(SECOND, YEAR), example "30";
        /// Seconds in which a client may take nothing of a response; see [slow readers](#slow-readers).
        write_stall_seconds: Seconds = default(Seconds(usual().write_stall_seconds.into())), within(SECOND, YEAR),
            example "60";
        /// Average bytes per second of a request body, after an initial grace period; not for
        /// [gRPC](proxied-applications.md#http2-to-members-and-grpc).
        body_rate_bytes_per_second: u32 = default(usual().body_rate_bytes_per_second), example "0";
        /// Bytes of a request body without a handler that are read before the response, to keep a connection of HTTP/1.1;
        /// beyond, the connection ends after the response. See [early responses](#early-responses).
        body_discard_bytes: ByteSize = default(ByteSize(usual().body_discard_bytes)), example "0";
        /// Bytes of a request body for a handler; 413 beyond. A route may set [another size](routes.md#sizes-of-contents).
        body_bytes: ByteSize = default(ByteSize(usual().body_bytes)), also ["client_max_body_size"],
            example "\"100MiB\"";
        /// Bytes of all [bodies without a length](cgi.md#request-bodies-without-a-length) on the disk, a quarter of them
        /// for one address; 503 beyond.
        spooled_bytes: ByteSize = default(ByteSize(usual().spooled_bytes)), example "\"1GiB\"";
        /// Seconds for requests under way to complete on stop.
        drain_seconds: Seconds = default(Seconds(usual().drain_seconds.into())), within(SECOND, YEAR), example "10";
        /// Seconds for transfers and tunnels of the former process to complete after a
        /// [restart without a loss](upgrades.md).
        restart_seconds: Seconds = default(Seconds(usual().restart_seconds.into())), within(SECOND, YEAR),
            example "\"10m\"";
        /// Scripts at the same time, for all sites; further calls wait.
        scripts: usize = default(usual().scripts), within(1, 100_000), example "32";
        /// Calls waiting for a script, each at most ten seconds; 503 beyond.
        script_queue: usize = default(usual().script_queue), example "64";
        /// Seconds in which a script neither reads nor writes; then the script is ended.
        script_silent_seconds: Seconds = default(Seconds(usual().script_silent_seconds.into())), within(SECOND, YEAR),
            example "\"5m\"";
        /// Seconds of a script in total.
        script_seconds: Seconds = default(Seconds(usual().script_seconds.into())), within(SECOND, YEAR),
            example "\"10m\"";
        /// Bytes of one response of a script; beyond, the response is broken off.
        script_output_bytes: ByteSize = default(ByteSize(usual().script_output_bytes)), within(ByteSize(1), BYTES_MAX),
            example "\"1GiB\"";
        /// Seconds of a fetch or push of git in total, instead of `script_seconds`.
        git_seconds: Seconds = default(Seconds(usual().git_seconds.into())), within(SECOND, YEAR), example "\"1h\"";
        /// Files, folders and links of a [deployed](deployment.md#content-of-a-tree) tree.
        deploy_files: usize = default(usual().deploy_files), within(1, usize::MAX), example "10000";
        /// Bytes of a deployed tree; the disk holds up to four trees at the same time.
        deploy_bytes: ByteSize = default(ByteSize(usual().deploy_bytes)), within(ByteSize(1), BYTES_MAX),
            example "\"1GiB\"";
        /// Expensive [pages of repositories](git.md#limits) for one address; 429 beyond.
        git_heavy_per_minute: u32 = default(usual().git_heavy_per_minute), within(1, PAGES_MAX), example "10";
        /// Pages of repositories of any kind for one address; 429 beyond.
        git_pages_per_minute: u32 = default(usual().git_pages_per_minute), within(1, PAGES_MAX), example "100";
    }
}

fn usual() -> Limits {
    Limits::default()
}

impl LimitsTable {
    pub(super) fn limits(self) -> Limits {
        // The bounds of the keys keep every number of seconds within 32 bits.
        let seconds = |key: Spanned<Seconds>| key.get_ref().0 as u32;
        let bytes = |key: Spanned<ByteSize>| key.get_ref().0;
        Limits {
            connections: self.connections.into_inner(),
            connections_per_address: self.connections_per_address.into_inner(),
            streams: self.streams.into_inner(),
            head: HeadLimits {
                request_line_bytes: bytes(self.request_line_bytes) as usize,
                head_bytes: bytes(self.head_bytes) as usize,
                fields: self.fields.into_inner(),
                ..HeadLimits::default()
            },
            handshake_seconds: seconds(self.handshake_seconds),
            head_seconds: seconds(self.head_seconds),
            idle_seconds: seconds(self.idle_seconds),
            write_stall_seconds: seconds(self.write_stall_seconds),
            body_rate_bytes_per_second: self.body_rate_bytes_per_second.into_inner(),
            body_discard_bytes: bytes(self.body_discard_bytes),
            body_bytes: bytes(self.body_bytes),
            spooled_bytes: bytes(self.spooled_bytes),
            drain_seconds: seconds(self.drain_seconds),
            restart_seconds: seconds(self.restart_seconds),
            scripts: self.scripts.into_inner(),
            script_queue: self.script_queue.into_inner(),
            script_silent_seconds: seconds(self.script_silent_seconds),
            script_seconds: seconds(self.script_seconds),
            script_output_bytes: bytes(self.script_output_bytes),
            git_seconds: seconds(self.git_seconds),
            deploy_files: self.deploy_files.into_inner(),
            deploy_bytes: bytes(self.deploy_bytes),
            git_heavy_per_minute: self.git_heavy_per_minute.into_inner(),
            git_pages_per_minute: self.git_pages_per_minute.into_inner(),
        }
    }
}
