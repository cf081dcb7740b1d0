//! Bounds of `serve`: connections, request heads, responses and HTTP/3.

// Admission of connections

/// Accepted connections of one listening socket that wait while all of `connections` are taken. The
/// client with the fewest connections goes first. Further connections wait in the kernel's queue.
pub(crate) const ACCEPTED_WAITING_MAX: usize = 64;
/// Accepted connections of one listening socket that wait while the descriptors for connections are taken. Each
/// takes a descriptor from the reserve of the process, which logs, files and scripts need.
pub(crate) const ACCEPTED_WAITING_SHORT_MAX: usize = 8;
/// Idle connections that one client loses at once when no more connections may be opened. The search
/// walks over all connections and takes 100 to 200 microseconds for 10,000 connections, so one search
/// serves up to 64 evictions.
pub(crate) const IDLE_EVICTIONS_AT_ONCE_MAX: usize = 64;
/// Divisor for the idle connections that one client loses at once: a sixteenth of its connections, so
/// that a small holder loses one.
pub(crate) const IDLE_EVICTIONS_CLIENT_DIVISOR: usize = 16;
/// Divisor for a small holder. A client loses a request under way only to a client that holds at most
/// an eighth as many connections as the largest holder. Shares of requests and of calls have the same
/// bound for small clients.
pub(crate) const SMALL_HOLDER_DIVISOR: usize = 8;
/// Connections of a client with few connections. A larger holder has at least eight times as many as a newcomer without
/// connections ([`SMALL_HOLDER_DIVISOR`]). Browsers open at most 6 connections to a host.
pub(crate) const FEW_CONNECTIONS_MAX: usize = SMALL_HOLDER_DIVISOR - 1;
/// Factor by which a client must hold more requests than another client would have, to lose slow requests to that client
/// for want of memory: 2.
pub(crate) const SLOW_HOLDER_DIVISOR: usize = 2;
/// Requests as which a slow or stalled request counts in the choice of the request that ends for want of memory: 4. The only
/// request of a client, an upload that pauses, stays while another client has 5.
pub(crate) const SLOW_REQUEST_WEIGHT: usize = 4;
/// Time over which the rate of the requests of a connection is measured, at least: 2 s. The measurement covers up to twice
/// the time.
pub(crate) const REQUEST_RATE_MILLISECONDS: u64 = 2_000;
/// Time without progress after which a request that waits for its client gives way to a client without a connection, while
/// all connections are taken by clients with few connections: 1 s. Transfers to most phones move more often.
pub(crate) const SHORT_STALL_MILLISECONDS: u64 = 1_000;
/// Time without progress after which a request that waits for a script or a member gives way in the same case: 10 s. Most
/// scripts need less, and the client is not at fault.
pub(crate) const SERVER_STALL_MILLISECONDS: u64 = 10_000;
/// Time of idleness after which the only connection of a client is closed for another client at once, 250 ms: more than the
/// pauses between two requests of a page. In a crowd that fills all connections several times, each client waits for as many
/// of these times.
pub(crate) const SHORT_IDLE_MILLISECONDS: u64 = 250;
/// Age of a connection up to which [`SHORT_IDLE_MILLISECONDS`] count, 2 s: the time of most page loads. A client that sends
/// small requests without end has had its turn then.
pub(crate) const PAGE_LOAD_MILLISECONDS: u64 = 2_000;
/// Time by which a handshake counts as idle later, 750 ms: the only connection of a client is kept for 1 s of its handshake,
/// which takes three round trips over a phone's network.
pub(crate) const HANDSHAKE_LEAD_MILLISECONDS: u64 = 750;
/// Wait after which a request that moves gives way to a client that got a connection in the last 10 minutes, 10 s. The
/// connection of the request must be as old.
pub(crate) const SERVED_CLIENT_WAIT_MILLISECONDS: u64 = 10_000;
/// Bytes acknowledged between two sweeps, each 500 ms, that count as progress of a client with a response, 2 KiB: 4 KiB/s.
pub(crate) const CLIENT_PROGRESS_BYTES_MIN: u64 = 2 * 1024;
/// Divisor for the waiting connections for which room is made at once: a sixteenth of the queue, and one more. In a crowd of
/// clients with a slow request each, a newcomer is then served within a few seconds after its wait.
pub(crate) const WAITING_AT_ONCE_DIVISOR: usize = 16;
/// Connections of one listener of the manager and one worker beyond the limit `connections`: the connections of a
/// browser, and of some programs.
pub(crate) const MANAGER_CONNECTIONS_RESERVED: usize = 8;

// Request heads and handshakes

/// Bytes of an incomplete ClientHello, 16 KiB. Browsers send 2 KB with a post-quantum key share. rustls
/// alone would buffer 64 KiB of each for `handshake_seconds`. A connection with a longer ClientHello is
/// closed.
pub(crate) const TLS_HELLO_BYTES_MAX: usize = 16 * 1024;
/// Size of a worker's read buffer, 32 KiB, and the upper bound for `head_bytes`.
pub const READ_BUFFER_BYTES: usize = 32 * 1024;
/// Memory for heads of waiting requests, 12 MiB, and at most a sixteenth of `memory_max`: room for
/// 12,000 waiting requests of browsers with heads of 1 KB. Requests beyond the bound are refused,
/// requests of clients with the most head bytes first.
pub const PENDING_HEAD_BYTES_MAX: usize = 12 << 20;
/// Divisor of `memory_max` for the memory of pending heads. See [`PENDING_HEAD_BYTES_MAX`].
pub const PENDING_HEAD_MEMORY_PARTS: u64 = 16;
/// Smallest memory of one worker for pending heads, 256 KiB, so that a head of the largest size fits
/// into an eighth.
pub const PENDING_HEAD_BYTES_MIN: usize = 256 * 1024;
/// Bytes of an incomplete head that don't count against the memory of pending heads: the beginning of
/// an ordinary request received in two parts.
pub(crate) const UNFINISHED_HEAD_BYTES_FREE: usize = 1_024;

// Turns of connections and progress of responses

/// Requests of one connection served in one turn. Then other connections have a turn, since a client
/// that pipelines requests without end would occupy the worker. 32 stored pages take about 200
/// microseconds. Browsers and load generators rarely send more at once.
pub(crate) const TURN_REQUESTS_MAX: u32 = 32;
/// Response bytes sent over TLS in one turn of a connection, 256 KiB: about 100 microseconds of
/// encryption. A client that reads as fast as the server sends would otherwise occupy the worker.
pub(crate) const TURN_BYTES_MAX: usize = 256 * 1024;
/// Largest response assembled in memory and sent by one system call, 8 KiB. The body of a larger
/// response follows its head.
pub(crate) const COALESCED_RESPONSE_BYTES_MAX: usize = 8 * 1024;
/// Largest content of a handler that is copied behind the head of the response, 2 KiB. A list of two buffers costs the
/// kernel as much as the copy of 2 to 8 KB costs the server, and needs no memory for the copy.
pub(crate) const COPIED_CONTENT_BYTES_MAX: usize = 2 * 1024;
/// Body bytes by which a response must progress in each `write_stall_seconds` while only the client's
/// window or socket holds up the response, 8 KiB. The default makes 273 bytes a second, a tenth of the
/// rate of a telephone modem. Without the bound a client that grants 1 byte at a time holds its
/// responses for ever at almost no cost. A slower response is broken off.
pub(crate) const RESPONSE_PROGRESS_BYTES_MIN: u64 = 8 * 1024;
/// Acknowledged bytes after which a client over TCP may pause, 128 KiB: 16 times
/// [`RESPONSE_PROGRESS_BYTES_MIN`]. A pause is one more `write_stall_seconds` without progress.
/// `curl --limit-rate 20k` lets 1 MB gather in the receive buffer, and the kernel opens the window again
/// only 50 s later. A client that never reads acknowledges less: a receive buffer is 128 KiB at first.
pub(crate) const RESPONSE_PAUSE_BYTES: u64 = 128 * 1024;
/// Consecutive pauses of a client over TCP, each paid by [`RESPONSE_PAUSE_BYTES`]. A client that has taken
/// many bytes and has then vanished is closed after 1 + 3 times `write_stall_seconds`.
pub(crate) const RESPONSE_PAUSES_MAX: u64 = 3;
/// Response bytes buffered unsent in one connection, 32 KiB, so that 1,500 clients that don't read stay
/// cheap. The response waits until the socket takes bytes.
pub(crate) const UNSENT_BYTES_MAX: usize = 32 * 1024;
/// Sent bytes that a buffer keeps before its unsent bytes, 16 KiB. Moving the unsent bytes to the beginning costs a
/// copy of at most [`UNSENT_BYTES_MAX`] bytes.
pub(crate) const SENT_BYTES_KEPT_MAX: usize = 16 * 1024;
/// Unsent response bytes of one TCP connection in the kernel, 64 KiB, and one packet of up to 64 KiB
/// more. Without a bound the kernel holds 2 to 4 MB for each client on loopback or a fast network that
/// stops reading, and 2,000 such clients fill the machine's memory for TCP. With 64 KiB these clients
/// take 195 MB, with 96 KiB 290 MB. CPU time per 512 KB response is equal from 48 to 256 KiB. The bound
/// doesn't limit the congestion window, so a fast and distant network stays full.
pub const SOCKET_UNSENT_BYTES: u32 = 64 * 1024;
/// Unsent response bytes of one TCP connection in the kernel, 4 KiB and one write instead of
/// [`SOCKET_UNSENT_BYTES`], for a long response that begins while the memory of the bodies under way is short.
pub(crate) const SOCKET_UNSENT_BYTES_MIN: u32 = 4 * 1024;
/// Bytes reserved for a client with a long response, 192 KiB: [`SOCKET_UNSENT_BYTES`], one packet of 64 KiB, and 64 KiB
/// on their way from the pipe to the socket.
pub(crate) const SOCKET_STREAM_BYTES: usize = 192 * 1024;
/// Unsent response bytes in the kernel, 256 KiB instead of [`SOCKET_UNSENT_BYTES`], for a TCP
/// connection with a client that has taken 512 KiB and therefore reads. At 300 Mbit/s and a round trip
/// of 50 ms, beside other load, CUBIC brought 29 MB/s with 128 KiB or without a bound, and 19 to 23
/// MB/s with 64 KiB.
pub(crate) const SOCKET_UNSENT_BYTES_FAST: u32 = 256 * 1024;

// Content behind an early response

/// Seconds for which the server reads on and discards the content of a request behind its complete
/// response, as `lingering_time` of nginx: 100 MB at 30 Mbit/s. Many clients (Python's http.client, Java, PHP)
/// send the whole content before they read, and a reset or a close in between takes the response away from
/// them (RFC 9112 §9.6). curl up to 7.88 loses the response of a stream of HTTP/2 that is reset while it sends.
pub(crate) const LINGER_SECONDS: u64 = 30;
/// Seconds without a byte after which a client behind an early response is taken to be done, as
/// `lingering_timeout` of nginx: longer than the retransmission of a lost packet.
pub(crate) const LINGER_SILENCE_SECONDS: u64 = 5;
/// Bytes discarded behind one early response, 4 GiB: more than 1 Gbit/s brings within [`LINGER_SECONDS`]. The
/// bound ends a client in the same machine or rack that sends for the sake of the server's CPU time.
pub(crate) const LINGER_BYTES_MAX: u64 = 4 << 30;
/// Reads of discarded content in one turn of a connection, 16: 512 KiB, which take about 100 microseconds.
/// A client that sends as fast as the server reads would otherwise occupy the worker.
pub(crate) const LINGER_READS_MAX: u32 = 16;

// Tunnels

/// Seconds of silence after which the kernel probes the client of a tunnel over TCP, and seconds between
/// two probes. A tunnel may be silent for hours, and only a probe shows that the client has vanished.
pub(crate) const TUNNEL_PROBE_SECONDS: u64 = 60;
/// Probes without an answer after which the kernel ends the connection of a tunnel: a client that has
/// vanished holds its connection for 5 minutes at most.
pub(crate) const TUNNEL_PROBES_MAX: u32 = 4;

// HTTP/3

/// Connections of a listening socket of a worker with a PROXY header under way. Further connections wait in the
/// kernel's queue. Only trusted proxies get that far, and send the header at once.
pub(crate) const PROXY_HEADERS_AWAITED_MAX: usize = 1_024;

/// Seconds between two log lines of a listening socket about connections without a valid PROXY header, so that
/// a scan of the port does not fill the log.
pub(crate) const PROXY_HEADER_COMPLAINT_SECONDS: u64 = 10;
