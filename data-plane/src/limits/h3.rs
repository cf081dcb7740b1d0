//! Bounds of HTTP/3.

/// Time that a new HTTP/3 connection waits for another connection to close before the server refuses
/// the connection. Closing takes less than a round trip, and the client retries after 1 s.
pub(crate) const H3_ADMISSION_WAIT_MILLISECONDS_MAX: u64 = 900;
/// Time that a new HTTP/3 connection of a client without a connection lately waits while all connections are taken, 8 s:
/// longer than [`NEWCOMER_WAIT_MILLISECONDS`](base::limits::NEWCOMER_WAIT_MILLISECONDS), and shorter than the patience of clients.
pub(crate) const H3_NEWCOMER_WAIT_MILLISECONDS_MAX: u64 = 8_000;
/// New HTTP/3 connections of one worker that wait while all connections are taken. Each walks over all connections every
/// 100 ms. Further connections are refused, and browsers then use TCP.
pub(crate) const H3_NEWCOMERS_WAITING_MAX: usize = 16;
/// Request streams that a client may have open at the same time on one HTTP/3 connection, as many as
/// over HTTP/2. QUIC flow control enforces the bound.
pub(crate) const H3_STREAMS_MAX: u32 = 100;
/// Unidirectional streams of a client: the 3 streams of HTTP/3 and a few of unknown types. QUIC flow
/// control enforces the bound.
pub(crate) const H3_ONE_WAY_STREAMS_MAX: u32 = 8;
/// Stream flow-control window of a request body, 64 KiB received and not yet consumed.
pub(crate) const H3_STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// Connection flow-control window for all request bodies of one HTTP/3 connection, 64 KiB received and not yet consumed.
/// The memory ledger does not count the window: QUIC does not tell which stream the bytes belong to. Bodies of calls in
/// the script queue don't count: `script_queue` bounds these for all connections.
pub(crate) const H3_CONNECTION_WINDOW_BYTES: u32 = 64 * 1024;
/// Connection flow-control window while the memory ledger has room, 256 KiB: a body of one stream that waits for its handler
/// does not hold up the bodies of 3 further streams.
pub(crate) const H3_WIDE_CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;
/// Capacity of the pipe from an HTTP/3 request body to the handler, 16 KiB. The connection holds one
/// stream window in addition.
pub(crate) const H3_PIPE_BYTES: usize = 16 * 1024;
/// Bytes of one DATA frame sent by the server for a body that isn't in memory, 16 KiB.
pub(crate) const H3_DATA_BYTES: usize = 16 * 1024;
/// Bytes of the first part of a response body assembled for HTTP/3, 2 KiB. The part stays in memory
/// until the client takes it. No later part is larger than the bytes taken so far.
pub(crate) const H3_FIRST_DATA_BYTES: usize = 2 * 1024;
/// Response bytes sent and not acknowledged on a new HTTP/3 connection, 64 KiB. A client that never
/// acknowledges holds no more of the server's memory.
pub(crate) const H3_UNACKNOWLEDGED_BYTES_MIN: u64 = 64 * 1024;
/// Response bytes sent and not acknowledged on one HTTP/3 connection with a client that keeps
/// acknowledging: twice the congestion window, at most 4 MiB. All connections together share a bound
/// for bytes above [`H3_UNACKNOWLEDGED_BYTES_MIN`], as large as the bound for heads of waiting requests
/// ([`PENDING_HEAD_BYTES_MAX`], 12 MiB for all workers) and divided among clients. Without the bound,
/// 60 connections that download a file, ask again and fall silent hold 257 MiB.
pub(crate) const H3_UNACKNOWLEDGED_BYTES_MAX: u64 = 4 << 20;
/// Handshakes under way on one worker with clients at addresses that are not validated. Beyond the
/// bound, a client has to validate its address first (Retry, RFC 9000 §8.1.2), which costs the server
/// no memory.
pub(crate) const H3_UNVALIDATED_HANDSHAKES_MAX: usize = 64;
/// HTTP/3 connections waiting to be accepted by a worker. Further connections are refused.
pub(crate) const H3_INCOMING_MAX: usize = 1_024;
/// Bytes received from all HTTP/3 connections waiting to be accepted by a worker, 4 MiB. Further
/// datagrams are dropped. See [`H3_INCOMING_MAX`].
pub(crate) const H3_INCOMING_BYTES_MAX: u64 = 4 << 20;
/// Send buffer of the socket pair that takes the packets for a predecessor of the process, 1 MiB. The kernel doubles
/// the number, and lowers it to `net.core.wmem_max`: with the usual limit, about 180 datagrams wait while the
/// predecessor is busy. Further datagrams are dropped.
pub(crate) const H3_FORWARDED_BYTES_MAX: usize = 1 << 20;
