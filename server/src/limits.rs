//! Every bound of the program, with its unit, its reason and the effect of reaching it.
//!
//! Bounds that an operator may change are fields of [`Limits`] (`[server] limits = { … }`). Bounds for
//! developers are constants, grouped by the module that enforces the bound. The unit is part of each name.

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
    /// ([`BODY_BUDGET_BYTES_MAX`]).
    pub streams: usize,

    // wire: request heads
    /// Bytes of the request line without CRLF: the size that browsers and proxies still send. A longer line
    /// is answered with 414.
    pub request_line_bytes: usize,
    /// Bytes of the whole request head. A longer head is answered with 431.
    pub head_bytes: usize,
    /// Field lines of one head. A head with more lines is answered with 431.
    pub fields: usize,

    // serve: timeouts and rates
    /// Seconds for a whole TLS handshake. A slower connection is closed.
    pub handshake_seconds: u32,
    /// Seconds from the first byte of a head to the end of the head. A slower request is answered with 408.
    pub head_seconds: u32,
    /// Seconds that a kept-alive connection may be idle between requests. Then the connection is closed.
    pub idle_seconds: u32,
    /// Seconds that a client may take no byte of a response. Then the response is broken off.
    pub write_stall_seconds: u32,
    /// Bytes a second that a request body must bring on average after a grace of [`BODY_GRACE_SECONDS`]. A
    /// slower body is answered with 408.
    pub body_rate_bytes_per_second: u32,

    // serve and handler: request bodies
    /// Bytes of an unwanted request body that are read and discarded to keep the connection. A longer body
    /// is answered with 413.
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
            request_line_bytes: 8 * 1024,
            head_bytes: 16 * 1024,
            fields: 100,
            handshake_seconds: 10,
            head_seconds: 10,
            idle_seconds: 75,
            write_stall_seconds: 30,
            body_rate_bytes_per_second: 512,
            body_discard_bytes: 1 << 20,
            body_bytes: 1 << 30,
            spooled_bytes: 4 << 30,
            drain_seconds: 30,
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

// base: log destinations

/// Access-log bytes queued for one slow destination, 4 MiB. Beyond the bound, lines are dropped and
/// counted, so that a slow disk or pipe never blocks a worker.
pub const LOG_QUEUE_BYTES: usize = 4 << 20;
/// Log lines that a worker collects before the batch goes to the destination's writer thread, 16 KiB.
/// One hand-over for many lines costs one lock. A full batch is handed over at once.
pub const LOG_BATCH_BYTES: usize = 16 * 1024;
/// Empty buffers that a log destination keeps for reuse: about one for each worker and one in the
/// queue. A buffer beyond the bound is freed.
pub const LOG_SPARE_BUFFERS_MAX: usize = 32;

// base: thread pools

/// Seconds without a job after which a thread of a pool ends, so that an idle server has no such
/// threads. The next job starts a new thread.
pub const POOL_IDLE_SECONDS: u64 = 10;

// base: admission of calls to scripts and backends

/// Seconds for which the last quarter of the slots is reserved for clients with few calls, after a
/// client had to wait while another client held more than its share. The reservation keeps a continuing
/// flood from delaying the next request of a small client. A client that is alone soon has all slots
/// again.
pub const CALL_SHARE_SECONDS: u64 = 60;
/// Time without the beginning of a response after which a call counts as possibly still in the
/// backend's own queue. Most pages take less than 1 s.
pub const CALL_UNANSWERED_MILLISECONDS: u64 = 1_000;
/// Pause between two slow calls that are ended for the benefit of waiting clients. A backend takes a
/// moment to notice that a call has ended and to take up the next call.
pub const CALL_END_PAUSE_MILLISECONDS: u64 = 250;

// base: UDP sockets

/// Receive buffer of each UDP socket, 4 MiB. The kernel doubles the number and charges 2,304 bytes for
/// a datagram of 1,200 to 1,472 bytes, so 3,640 datagrams wait while the worker is busy. The usual
/// default (212,992 bytes, or 92 datagrams) is less than the 200 datagrams with which 100 browsers
/// begin at once. The kernel drops datagrams beyond the bound. A client repeats a lost first datagram
/// after 1 s, then after 2 s, 4 s and 8 s.
pub const UDP_RECEIVE_BYTES: usize = 4 << 20;

// wire: HTTP/1.1 messages and field sections

/// Bytes of one chunk extension in a chunk-size line. RFC 9112 §7.1.1 asks for a bound, and real
/// clients send no extensions. A longer extension is answered with 400.
pub const CHUNK_EXTENSION_BYTES_MAX: usize = 256;
/// Bytes of all trailer lines of one chunked body, 4 KiB. Trailers are checked and dropped, so the
/// bound only ends an endless trailer section, with 431.
pub const TRAILER_BYTES_MAX: usize = 4 * 1024;
/// Ranges in one request. A request with more ranges is answered with the whole representation: RFC
/// 9110 §14.2 lets a server ignore the Range field.
pub const RANGES_MAX: usize = 8;
/// Multiple of `head_bytes` at which a field section counts as a decompression bomb. The connection
/// ends, while a section that is merely too large is answered with 431.
pub const HEAD_BOMB_FACTOR: usize = 4;

// wire: responses of scripts

/// Bytes of the head of a script's response, 64 KiB: cookies and policies of the largest applications
/// fit. A longer head is answered with 502.
pub const CGI_HEAD_BYTES_MAX: usize = 64 * 1024;
/// Field lines in the head of a script's response. A head with more lines is answered with 502.
pub const CGI_FIELDS_MAX: usize = 200;
/// Bytes of a reason phrase chosen by a script: a sentence fits, and a stored head stays small. The
/// phrase of the IANA registry replaces a longer phrase.
pub const STATUS_REASON_BYTES_MAX: usize = 256;

// wire: JSON

/// Nesting of values in JSON text. ACME needs 4 levels. Text with deeper nesting is rejected as
/// malformed.
pub const JSON_DEPTH_MAX: usize = 16;

// wire: HTTP/2

/// Streams that a client may have open at the same time on one HTTP/2 connection. Browsers use a few
/// dozen at once, and RFC 9113 §6.5.2 recommends at least 100. Further streams are reset with
/// REFUSED_STREAM.
pub const H2_STREAMS_MAX: usize = 100;
/// Connection flow-control window for request bodies, 256 KiB received and not yet consumed on all
/// streams of one HTTP/2 connection. Each stream has at most the size of a pipe, so that a stalled
/// stream doesn't block other streams. Bodies of calls in the script queue don't count: `script_queue`
/// bounds these for all connections.
pub const H2_CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;
/// Compressed bytes of one field block, 32 KiB. No ordinary head grows by compression. A larger block
/// ends the connection with ENHANCE_YOUR_CALM.
pub const H2_BLOCK_BYTES_MAX: usize = 32 * 1024;
/// Frames of one field block (HEADERS and CONTINUATION). A head of the largest size fits into 2 frames.
/// A block with more frames ends the connection with ENHANCE_YOUR_CALM, as a CONTINUATION flood.
pub const H2_BLOCK_FRAMES_MAX: usize = 16;
/// Streams reset by the server. The last frames of the streams may still be in flight and must be
/// ignored. Beyond the bound, the oldest stream is forgotten.
pub const H2_RESETS_REMEMBERED: usize = 256;
/// Priorities remembered for HTTP/2 streams that the client has not opened yet. Further priorities are
/// ignored.
pub const H2_PRIORITIES_AHEAD_MAX: usize = 16;
/// Largest response body in memory that is sent directly behind the head instead of being queued behind
/// other responses, 16 KiB.
pub const H2_SMALL_BODY_BYTES: usize = 16 * 1024;
/// Response bytes sent without interleaving, 4 MiB, for a response with non-incremental priority (RFC
/// 9218). Beyond the bound, the response takes turns with other responses, since an endless response
/// would starve these.
pub const H2_NON_INCREMENTAL_BYTES_MAX: u64 = 4 << 20;

// wire: HTTP/3

/// Bytes of a compressed field section in HTTP/3, 64 KiB. No client sends a longer section by mistake,
/// so a longer section ends the connection.
pub const H3_SECTION_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a frame on the HTTP/3 control stream that are buffered until the frame is complete, 4 KiB.
/// SETTINGS takes a few dozen bytes. A longer frame ends the connection.
pub const H3_CONTROL_FRAME_BYTES_MAX: usize = 4 * 1024;

// wire: abuse budget of an HTTP/2 or HTTP/3 connection

/// Points of a connection's abuse budget. Each frame that serves no response costs points. Time and
/// completed responses give points back. A burst is therefore free, a flood empties the budget within a
/// fraction of a second and ends the connection, and no client that loads pages comes near the bound.
pub const ABUSE_POINTS_MAX: u32 = 10_000;
/// Points of the abuse budget given back each second: 10 resets or 50 PINGs a second can go on for
/// ever.
pub const ABUSE_POINTS_PER_SECOND: u32 = 1_000;
/// Points for a stream that was reset by the client, or by the server because of a fault of the client:
/// the work for the stream was in vain. A browser that leaves a page resets up to 100 streams at once.
pub const RESET_POINTS: u32 = 50;
/// Points for a SETTINGS frame. The server acknowledges each frame and walks over all streams, and a
/// client sends 1 or 2 frames in all.
pub const H2_SETTINGS_POINTS: u32 = 100;
/// Points for a PING frame. The server answers each PING, and a client that measures the round trip
/// sends a few a second.
pub const H2_PING_POINTS: u32 = 20;
/// Points for a PRIORITY or PRIORITY_UPDATE frame. A browser sends one for an image that comes into
/// view.
pub const H2_PRIORITY_POINTS: u32 = 10;
/// Points for a WINDOW_UPDATE by less than [`WINDOW_UPDATE_BYTES_LARGE`], and over HTTP/3 for a part of
/// a body that was cut short by the client's windows. A sufficiently large DATA frame pays for 2 such
/// updates ([`DATA_POINT_BYTES`]).
pub const WINDOW_UPDATE_POINTS: u32 = 5;
/// Bytes from which a WINDOW_UPDATE costs only 1 point. Go's client sends an update for the stream and
/// an update for the connection for each 4 KiB read by its program, so 8 updates for each DATA frame of
/// 16 KiB.
pub const WINDOW_UPDATE_BYTES_LARGE: u32 = 1_024;
/// Points for a DATA frame with less than [`SMALL_DATA_BYTES`] that doesn't end its stream: the frame
/// header is more work than the content.
pub const EMPTY_DATA_POINTS: u32 = 20;
/// Bytes below which a DATA frame counts as nearly empty. Interactive streams send short messages, so
/// the bound is low.
pub const SMALL_DATA_BYTES: usize = 8;
/// Bytes of a DATA frame that pay for one nearly empty frame, 4 KiB. An upload leaves remainders of a
/// few bytes wherever the client's buffers and the server's windows end, and a window is 64 KiB.
pub const LARGE_DATA_BYTES: usize = 4 * 1024;
/// Nearly empty DATA frames that large frames can pay for in advance. Large frames beyond the bound add
/// no credit.
pub const SMALL_DATA_CREDITS_MAX: u32 = 64;
/// Points for a frame of an unknown type, which a server must ignore.
pub const UNKNOWN_FRAME_POINTS: u32 = 20;
/// Points given back for each response that was sent completely.
pub const RESPONSE_POINTS: u32 = 20;
/// Points given back at most for a DATA frame sent by the server, or for a part of a body over HTTP/3,
/// in addition to the points by [`DATA_POINT_BYTES_LARGE`].
pub const DATA_POINTS: usize = 10;
/// Bytes of a sent DATA frame for which one additional point is given back: a frame of 16 KiB pays for
/// 42 updates by 1 KiB.
pub const DATA_POINT_BYTES_LARGE: usize = 512;
/// Bytes of a sent DATA frame for which one point is given back. A client that opens the windows of a
/// stream and of the connection in steps of 320 bytes may do so for ever. A client that opens windows
/// byte by byte costs the server a frame and a walk over all streams for each byte: 100 connections
/// with 100 streams each took two thirds of a processor.
pub const DATA_POINT_BYTES: usize = 32;

// site: contents, compression and descriptors

/// Largest automatic value of `memory_max`, the memory for contents and caches: 256 MiB. Without a
/// configured value the server takes an eighth of the machine's memory, up to the bound.
pub const MEMORY_BYTES_MAX: u64 = 256 << 20;
/// Smallest budget for contents of files, 2 MiB. A page just loaded must outlive the load of a few
/// other pages, or the request that caused the load would no longer find the page.
pub const CONTENT_BUDGET_BYTES_MIN: usize = 2 << 20;
/// Largest file with content kept in memory, 128 KiB. A larger file is sent from its descriptor.
pub const CONTENT_FILE_BYTES_MAX: u64 = 128 * 1024;
/// Smallest body sent by sendfile over plain HTTP, 8 KiB. The system call copies no bytes into the
/// process.
pub const SENDFILE_BYTES_MIN: u64 = 8 * 1024;
/// Largest file with a digest of the content as ETag, 1 MiB. The ETag of a larger file consists of size
/// and modification time.
pub const DIGEST_FILE_BYTES_MAX: u64 = 1 << 20;
/// Smallest text that is compressed, 512 bytes. A smaller text fits into one packet anyway.
pub const GZIP_FILE_BYTES_MIN: u64 = 512;
/// Largest text compressed in the background, 4 MiB. A larger text is sent uncompressed unless a
/// compressed sidecar file stands beside it.
pub const GZIP_FILE_BYTES_MAX: u64 = 4 << 20;
/// Files queued for compression. A file beyond the bound is queued again by a later request.
pub const GZIP_QUEUE_MAX: usize = 1_024;
/// Descriptors of files kept open between requests, for all sites together. A process may open 1,024
/// descriptors by default, and connections need most of them. Beyond the bound, another descriptor is
/// closed first.
pub const DESCRIPTORS_KEPT_MAX: usize = 256;

// site: scans and directory listings

/// Depth of nested folders followed in a site or unpacked in a deployment: a loop of links must end. A
/// scan leaves out deeper folders and logs a warning, and a deployment fails.
pub const FOLDER_DEPTH_MAX: usize = 64;
/// Folders reached through symbolic links in one scan, since links that cross each other multiply.
/// Further folders are left out with a warning in the log.
pub const LINKED_FOLDERS_MAX: usize = 4_096;
/// Symbolic links followed while one path is opened, as many as the kernel follows. A path with more
/// links can't be opened.
pub const LINK_HOPS_MAX: usize = 40;
/// Shortest time between two stat(2) calls for one stored file, about the duration of one turn of a
/// busy worker. Within the interval the file counts as unchanged.
pub const FILE_STAT_INTERVAL_MICROSECONDS_MIN: u64 = 100;
/// Period of stat(2) checks of a stored page, as a power of two: 2^12 ms, or 4.1 s. The kernel doesn't
/// report every change: writes through a hard link outside of the root, below the lower layer of an
/// overlay, or by another machine on a network file system go unreported. For one file the check costs
/// 2 system calls in 4.1 s, regardless of the number of requests. A power of two spares each request a
/// division.
pub const FILE_STAT_PERIOD_MILLISECONDS_LOG2: u32 = 12;
/// Paths remembered as changed without a report by inotify, until the control plane rescans the paths.
/// Further paths are not remembered. A later request finds the change again.
pub const STALE_PATHS_MAX: usize = 64;
/// Alternatives that the braces of one glob may multiply to. A glob with more alternatives is a
/// configuration error.
pub const GLOB_ALTERNATIVES_MAX: usize = 64;
/// Entries on one page of a directory listing. The remaining entries follow on further pages.
pub const LISTING_PAGE_ENTRIES: usize = 1_000;
/// Size of one chunk of a directory listing, 16 KiB. A listing is generated chunk by chunk while the
/// client reads.
pub const LISTING_CHUNK_BYTES: usize = 16 * 1024;

// world: logins

/// Threads that compute password hashes. Password hashes are slow by design, and pages take precedence.
pub const LOGIN_THREADS: usize = 2;
/// Logins that wait for a password hash. Further logins are answered with 503.
pub const LOGIN_QUEUE_MAX: usize = 64;
/// Failed logins that one client may have at once. A person mistypes a few times, and a program with an
/// old password requests several pages at the same time with one login. Further logins are answered
/// with 429.
pub const LOGIN_FAILURES_MAX: u64 = 10;
/// Seconds after which a client may fail one more login, also sent as Retry-After. The rate of 10 a
/// minute allows 14,400 guesses a day, and no serious password is among so few guesses.
pub const LOGIN_FAILURE_SECONDS: u64 = 6;
/// Clients with counted failed logins. Beyond the bound, clients with the fewest failures are forgotten
/// first.
pub const LOGIN_CLIENTS_MAX: usize = 4_096;
/// Seconds for which a successful login vouches for its client: a repeated login is no guess, and the
/// client precedes other clients in the queue for password hashes.
pub const LOGIN_TRUSTED_SECONDS: u64 = 3_600;
/// Seconds for which the result of a checked login, right or wrong, is remembered. A later login is
/// checked again.
pub const LOGIN_REMEMBERED_SECONDS: u64 = 60;
/// Results of logins remembered at the same time. Beyond the bound, results of wrong logins are
/// forgotten first.
pub const LOGINS_MAX: usize = 4_096;
/// Bytes of a password. The cost of some hash schemes grows with the square of the length, so a longer
/// password counts as wrong and is not hashed.
pub const PASSWORD_BYTES_MAX: usize = 512;

// handler: request bodies and pipes

/// Capacity of the pipe for the body of a live call, 64 KiB in each direction. A full pipe blocks its
/// writer.
pub const PIPE_BYTES: usize = 64 * 1024;
/// Request body that is received before a script starts, 64 KiB or the whole body if shorter: a slow
/// client occupies no script slot while a form arrives. A shorter body without Content-Length gets a
/// CONTENT_LENGTH by counting, since most CGI programs rely on CONTENT_LENGTH alone.
pub const BODY_BUFFER_BYTES: usize = PIPE_BYTES;
/// Memory for buffered request bodies of all connections and streams together, 64 MiB. Beyond the
/// bound, a request with Content-Length waits for a script slot with a partially read body, and any
/// other request is answered with 503.
pub const BODY_BUDGET_BYTES_MAX: usize = 64 << 20;
/// Step in which buffered request bodies are counted against [`BODY_BUDGET_BYTES_MAX`], 16 KiB. No body
/// exceeds the budget by more than one step.
pub const BODY_BUFFER_PART_BYTES: usize = 16 * 1024;
/// Seconds that a request body may pause before `body_rate_bytes_per_second` applies.
pub const BODY_GRACE_SECONDS: u64 = 10;
/// Request bodies stored on the disk at the same time. Each body takes a descriptor, and a process may
/// open 1,024 descriptors by default. Further bodies are answered with 503.
pub const SPOOLS_MAX: usize = 256;
/// Divisor for the share of one client: a quarter of [`SPOOLS_MAX`] and of `spooled_bytes`. The
/// remaining room serves other clients. With the default bounds a quarter is one body of the largest
/// size. A client over its share is answered with 503.
pub const SPOOL_PEER_PARTS: u64 = 4;
/// Threads that read and write spooled bodies. More threads don't make a disk faster.
pub const SPOOL_THREADS: usize = 2;
/// Jobs queued for the spool threads: parts to be read or written, and files to be freed. Each body has
/// at most one job of each kind, so the bound is never exceeded.
pub const SPOOL_QUEUE_MAX: usize = 2 * SPOOLS_MAX;
/// Bytes a second demanded of a client while its script waits for the remaining body, 4 KiB: a modem on
/// a telephone line sends as fast. A slower client loses its script slot to a waiting call.
pub const UPLOAD_BYTES_PER_SECOND: u64 = 4 * 1024;
/// Seconds of waiting that a slow upload may owe before the rate [`UPLOAD_BYTES_PER_SECOND`] counts as
/// missed. A fast client can't save up more.
pub const UPLOAD_GRACE_SECONDS: u64 = 3;

// handler: rate of downloads from scripts

/// Interval of the checks of a client's download rate while a call waits for the client.
pub const DOWNLOAD_RATE_CHECK_MILLISECONDS: u64 = 250;
/// Bytes a second demanded of a client that takes a script's response, 4 KiB: a modem on a telephone
/// line takes more. While a call of another client waits for a slot, a slower client loses its slot.
pub const DOWNLOAD_BYTES_PER_SECOND: u64 = 4 * 1024;
/// Seconds that a client may pause before [`DOWNLOAD_BYTES_PER_SECOND`] applies: a phone in a tunnel
/// pauses as long.
pub const DOWNLOAD_GRACE_SECONDS: u64 = 10;
/// Bytes a second demanded of a client with more than its share of the slots, 32 KiB. The rate is
/// higher since each response of the client keeps other clients waiting: to hold all 16 slots of
/// `scripts`, the client has to take 4 Mbit/s.
pub const DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE: u64 = 32 * 1024;
/// Seconds that a client with more than its share of the slots may pause. The pause is short so that
/// other clients are served within 2 s.
pub const DOWNLOAD_GRACE_SECONDS_OVER_SHARE: u64 = 1;

// handler: calls of scripts

/// Seconds that a call waits for a slot. The client of a call beyond the bound gets 503 and may repeat
/// the request.
pub const CALL_QUEUE_SECONDS: u64 = 10;
/// Internal redirects of one request from handler to handler. A longer chain counts as a loop and is
/// answered with 508.
pub const INTERNAL_REDIRECTS_MAX: u8 = 8;
/// Threads that start programs. Each thread blocks while the kernel reads the program's file.
pub const PROGRAM_THREADS: usize = 2;
/// Seconds between the signal to end and the kill of a program with its whole process group.
pub const PROGRAM_GRACE_SECONDS: u64 = 2;
/// Interval of the checks whether a signalled program has exited.
pub const PROGRAM_EXIT_POLL_MILLISECONDS: u64 = 20;
/// Time to wait for the exit status of a script after the end of its output. The exit status tells
/// whether the response is complete. After the wait the response counts as complete.
pub const PROGRAM_EXIT_MILLISECONDS: u64 = 100;
/// Seconds of silence after which a child process left behind by an exited script is ended. A child
/// that holds the output open may continue the response for as long as it keeps writing. After the
/// pause the response is complete.
pub const ORPHAN_OUTPUT_PAUSE_SECONDS_MAX: u64 = 1;
/// Bytes of standard error logged for one call, 64 KiB. Further output is dropped, and the log says so.
pub const PROGRAM_STDERR_BYTES_MAX: usize = 64 * 1024;
/// Bytes of one logged line of standard error. A longer line is split.
pub const PROGRAM_STDERR_LINE_BYTES_MAX: usize = 1_024;
/// Bytes of a malformed script response quoted in the log, enough to recognise the response.
pub const SCRIPT_QUOTED_BYTES_MAX: usize = 80;
/// Bytes moved at once between a handler's pipe and a program, 16 KiB.
pub const PROGRAM_CHUNK_BYTES: usize = 16 * 1024;
/// First size of the buffer for a program's output, 4 KiB. Most responses are small, and clearing
/// memory takes time. The buffer grows when full.
pub const PROGRAM_BUFFER_BYTES_INITIAL: usize = 4 * 1024;
/// First capacity of the buffer for the response head of a live call. Most heads fit. The buffer grows
/// when full.
pub const SCRIPT_HEAD_BYTES_INITIAL: usize = 512;
/// First capacity of the buffer for a request to a FastCGI backend. Most requests fit. The buffer grows
/// when full.
pub const BACKEND_REQUEST_BYTES_INITIAL: usize = 1_536;

// handler: git over HTTP

/// Bytes of git's ref advertisement read before the response starts, 64 KiB. A repository that can't be
/// read fails within the buffer, and the client gets an error instead of a truncated response.
pub const GIT_REFS_BUFFER_BYTES: usize = PIPE_BYTES;
/// Memory of each git process for a clone, a fetch or a push, 2 GiB. Memory-mapped packs don't count. A
/// clone of the Linux kernel (11 million objects) takes a little over 1 GiB, and so does a push of a
/// changed file of 500 MB. Beyond the bound, allocations of the process fail.
pub const GIT_EXCHANGE_MEMORY_BYTES: u64 = 2 << 30;
/// Processor seconds of each git process for a clone, a fetch or a push. A clone of the Linux kernel
/// without bitmaps takes about 2 minutes, and a push of 1 GiB as long. A repository that was never
/// packed takes several times as long. The kernel ends a process beyond the bound.
pub const GIT_EXCHANGE_CPU_SECONDS: u64 = 1_800;
/// Seconds that git gets to remove the received objects of an aborted push after the end of its input.
pub const GIT_END_SECONDS: u64 = 30;
/// Bytes of a client's Git-Protocol field: `version=2`, and room for future values. A longer value is
/// ignored.
pub const GIT_PROTOCOL_BYTES_MAX: usize = 256;
/// Seconds that the body of a push may pause. A client lists its objects in a few bytes and may then
/// take minutes to pack a large object. A client that pushes has logged in.
pub const PUSH_PAUSE_SECONDS: u64 = 300;
/// Seconds that the response to a push waits for the deployment. Proxies and users give up soon after.
/// Beyond the bound, the response ends and the deployment goes on.
pub const PUSH_RESPONSE_WAIT_SECONDS_MAX: u64 = 120;
/// Interval of keep-alive packets to the client while the response to a push waits for the deployment,
/// as git itself sends them.
pub const PUSH_KEEP_ALIVE_SECONDS: u64 = 5;

// handler: git web pages, processes and queues

/// Seconds that git may take for one page of a repository. A log of a path through a long history takes
/// seconds. Beyond the bound, git is ended.
pub const GIT_PAGE_SECONDS: u64 = 30;
/// Memory of git for one page, 256 MiB. A few objects that name each other make a tree of more files
/// than there are atoms, and any client with push access can create such objects. Beyond the bound,
/// allocations of the process fail.
pub const GIT_PAGE_MEMORY_BYTES: u64 = 256 << 20;
/// Processor seconds of git for a page or a download. To compress 1 GB takes half of the bound. The
/// kernel ends a process beyond the bound.
pub const GIT_CPU_SECONDS: u64 = 120;
/// Seconds that a client may take to receive a snapshot, 15 minutes. Git is at work for the whole
/// download. A slower download is broken off.
pub const GIT_SNAPSHOT_SECONDS: u64 = 15 * 60;
/// Bytes of a raw file or snapshot read before the response head is sent, 64 KiB. Within the buffer the
/// media type becomes known, and an error of git can still become an error response.
pub const GIT_STREAM_BUFFER_BYTES: usize = 64 * 1024;
/// Pages made by git at the same time, and as many downloads, and at most a quarter of `scripts` of
/// each. The remaining slots are for clones. Further requests wait in the queue.
pub const GIT_PAGES_AT_ONCE_MAX: usize = 4;
/// Expensive pages made by git at the same time, and as many snapshots, and at most an eighth of
/// `scripts` of each. Further requests wait in the queue.
pub const GIT_HEAVY_PAGES_AT_ONCE_MAX: usize = 2;
/// Addresses with counted page rates. Beyond the bound, addresses below their rate are forgotten first.
pub const GIT_RATED_ADDRESSES_MAX: usize = 4_096;
/// Threads that look up repositories on the disk.
pub const GIT_LOOKUP_THREADS: usize = 1;
/// Threads that walk over folders for a list of repositories and render READMEs. Lookups of single
/// repositories have threads of their own and don't wait for walks.
pub const GIT_WALK_THREADS: usize = 1;
/// Jobs queued for the threads of repository lookups, and as many for the threads of folder walks.
/// Further requests are answered with 503.
pub const GIT_LOOKUP_QUEUE_MAX: usize = 256;
/// Largest page handed over as one block, 64 KiB: the capacity of a pipe. A larger page counts against
/// [`GIT_PAGES_SENDING_BYTES_MAX`].
pub const GIT_PAGE_WHOLE_BYTES: usize = PIPE_BYTES;
/// Memory of large pages being sent to all clients together, 64 MiB: a slow client keeps its page in
/// memory. Further large pages are answered with 503.
pub const GIT_PAGES_SENDING_BYTES_MAX: usize = 64 << 20;
/// Memory of large pages being sent to one address, 16 MiB: a few of the largest pages. Further large
/// pages for the address are answered with 503, while other addresses still get pages.
pub const GIT_PAGES_SENDING_BYTES_PER_ADDRESS_MAX: usize = GIT_PAGES_SENDING_BYTES_MAX / 4;
/// Seconds for which the page cache serves the page of a commit without a check. The page never
/// changes, but the operator may withdraw the repository.
pub const GIT_COMMIT_PAGE_RECHECK_SECONDS: u64 = 10;

// handler: git web pages, contents

/// Output of git read for one page, 1 MiB. Beyond the bound the page is cut, and the page says so.
pub const GIT_PAGE_BYTES_MAX: usize = 1 << 20;
/// Bytes of one rendered page, 4 MiB. Markup turns each input byte into a few bytes at most, so only
/// hostile content reaches the bound, and the page is cut.
pub const GIT_HTML_BYTES_MAX: usize = 4 << 20;
/// Bytes of a file shown with line numbers, 512 KiB. The page of a longer file is cut and links to the
/// raw file.
pub const GIT_FILE_BYTES_MAX: usize = 512 * 1024;
/// Bytes of a README that are rendered, 256 KiB. A longer README is cut.
pub const GIT_README_BYTES_MAX: usize = 256 * 1024;
/// Nesting of quotes and lists in a README. The parser looks at each level for every line. A README
/// with deeper nesting is shown as plain text.
pub const GIT_README_NESTING_MAX: usize = 64;
/// Lines of a file or diff on one page. A browser on a phone takes 1 s for 20,000 lines. A longer page
/// is cut.
pub const GIT_LINES_MAX: usize = 20_000;
/// Bytes of one line on a page, 4 KiB. Generated files have lines of megabytes. A longer line is cut.
pub const GIT_LINE_BYTES_MAX: usize = 4 * 1024;
/// Commits on one page of a log. Earlier commits follow on further pages.
pub const GIT_LOG_COMMITS: usize = 50;
/// Largest offset of a log page in commits, since git walks over all earlier entries. A larger offset
/// is answered with 404.
pub const GIT_LOG_OFFSET_MAX: u64 = 10_000_000;
/// Commits, branches and tags on the summary page of a repository.
pub const GIT_SUMMARY_LINES: usize = 10;
/// Entries of a feed.
pub const GIT_FEED_ENTRIES: usize = 20;
/// Branches and tags read for one page, the newest first. Further refs are not shown.
pub const GIT_REFS_MAX: usize = 2_000;
/// Bytes of the name of a branch or tag, as Linux allows for a path below `refs`. A longer name is
/// answered with 404.
pub const GIT_REF_BYTES_MAX: usize = 1_024;
/// Bytes of a path within a repository, as Linux allows for a path. A longer path is answered with 404.
pub const GIT_PATH_BYTES_MAX: usize = 4_096;
/// Components of a path shown as links. Each link is as long as the path up to the component. Further
/// components are plain text.
pub const GIT_PATH_LINKS_MAX: usize = 64;
/// Repositories on the list of a folder. A longer list is cut, and the page says so.
pub const GIT_LIST_REPOSITORIES_MAX: usize = 1_000;
/// File names examined for one list of repositories. Beyond the bound the list is cut, and the page
/// says so.
pub const GIT_LIST_NAMES_MAX: usize = 20_000;
/// Depth of folders searched for repositories. Deeper folders are left out, and the list says that it
/// is incomplete.
pub const GIT_LIST_DEPTH_MAX: usize = 8;
/// Lifetime of a cached list of repositories. A later request walks over the folders again.
pub const GIT_LIST_CACHE_MILLISECONDS: u64 = 1_500;
/// Cached lists of repositories, each with up to [`GIT_LIST_REPOSITORIES_MAX`] entries.
pub const GIT_LISTS_CACHED_MAX: usize = 16;
/// Bytes of a repository's configuration read by the server, 16 KiB. For a longer configuration the
/// server asks git.
pub const GIT_CONFIG_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a repository's description on the list. A longer description is cut.
pub const GIT_DESCRIPTION_BYTES_MAX: usize = 512;

// upstream: connections to FastCGI and SCGI backends

/// Connections to one backend without a configured number. Most of these wait in the backend's own
/// queue, and further connections could only wait, too. Further calls wait for a slot.
pub const BACKEND_CONNECTIONS_MAX: usize = 128;
/// Seconds for one attempt to connect to a backend, which runs on the same machine or next to it.
pub const BACKEND_CONNECT_SECONDS: u64 = 5;
/// Attempts to connect to a backend that isn't there, since the backend may just be restarting. After
/// the last attempt the request is answered with 502.
pub const BACKEND_CONNECT_TRIES: u32 = 5;
/// Pause between two attempts to connect to a backend.
pub const BACKEND_RETRY_MILLISECONDS: u64 = 100;
/// Shortest time that a connection to a backend without `keep` waits for the next request. The longest
/// is twice the bound. Then the connection is closed.
pub const BACKEND_IDLE_MILLISECONDS: u64 = 5;
/// Time without any response of a backend after which calls waiting for a handed-over connection open
/// connections of their own.
pub const BACKEND_STALLED_MILLISECONDS: u64 = 20;

// upstream: handover of connections between calls

/// Age at which a handed-over connection is closed after the current request, so that the backend's
/// process can serve clients other than this server.
pub const BACKEND_HANDOVER_AGE_MILLISECONDS_MAX: u64 = 50;
/// Time after which an unread request counts as queued: in the backend's queue because all processes
/// are busy, or for the one process at the end of a handed-over connection.
pub const BACKEND_UNREAD_QUEUED_MILLISECONDS: u64 = 2;
/// Time after which an unread request on a handed-over connection is sent to another process. The
/// process has answered the previous request and goes on with other work (`fastcgi_finish_request`). If
/// the process still reads the request later, its work is in vain.
pub const BACKEND_UNREAD_RETRY_MILLISECONDS: u64 = 100;
/// Shortest interval between two checks for unread requests.
pub const BACKEND_UNREAD_POLL_MICROSECONDS: u64 = 1_000;
/// Divisor for the requests on handed-over connections that may count as queued: one in 20. Beyond the
/// bound the backend continues its work after responses, or lacks processor time. Handover then gains
/// little and is suspended.
pub const BACKEND_QUEUED_DIVISOR: u32 = 20;
/// First interval between probes for additional processes of a backend. Each probe opens one more
/// connection.
pub const BACKEND_PROBE_MILLISECONDS: u64 = 10;
/// Longest interval between probes for additional processes of a backend, reached by doubling while
/// probes fail.
pub const BACKEND_PROBE_MILLISECONDS_MAX: u64 = 250;
/// First pause before the server again keeps connections open to a backend that closed such connections
/// or was slow to read requests on them.
pub const BACKEND_KEEP_RETRY_SECONDS: u64 = 10;
/// Longest pause before the server again keeps connections open to a backend that stays slow to read
/// requests on such connections.
pub const BACKEND_KEEP_RETRY_SECONDS_MAX: u64 = 600;

// cache: page cache

/// Largest content stored in the page cache of a route without a configured size, 1 MiB. Pages are
/// smaller, and a larger content is a download. A larger content is passed through.
pub const CACHE_PAGE_BYTES: u64 = 1 << 20;
/// Responses stored for one URI, distinguished by the fields in Vary and by the permitted clients.
/// Beyond the bound the oldest response is dropped.
pub const CACHE_VARIANTS_MAX: usize = 32;
/// Seconds for which requests for a URI don't wait for each other's calls after the URI had a response
/// for one client alone.
pub const CACHE_HIT_FOR_PASS_SECONDS: u64 = 10;
/// URIs remembered as private, a few dozen bytes each. Beyond the bound the memory is cleared, and each
/// URI costs one more waiting call to be recognised again.
pub const CACHE_HIT_FOR_PASS_URIS_MAX: usize = 16_384;
/// Seconds without a further call of a handler that failed while a stale page exists. Requests get the
/// stale page meanwhile.
pub const CACHE_FAILED_SECONDS: u64 = 5;
/// Seconds that a call may refresh a stale page without a waiting client. The call serves the stale
/// page's next request, and a page has at most one refresh at a time. Beyond the bound the call ends.
pub const CACHE_REFRESH_UNATTENDED_SECONDS_MAX: u32 = 60;
/// Seconds that a call goes on after all waiting clients have left. A quick call is worth finishing. A
/// longer call would take a slot from waiting clients and ends.
pub const CACHE_FILL_ABANDONED_SECONDS_MAX: u32 = 2;
/// Seconds that a call goes on after all waiting clients have left, if more than half of a content of
/// known length has arrived.
pub const CACHE_FILL_ABANDONED_LATE_SECONDS_MAX: u32 = 10;
/// Seconds within which a content of unknown length must be complete, since other clients wait for the
/// content. A content that takes longer is not stored.
pub const CACHE_FILL_UNKNOWN_LENGTH_SECONDS_MAX: u64 = 30;
/// Bytes copied at a time out of a page that is still arriving, 16 KiB.
pub const CACHE_CHUNK_BYTES: usize = 16 * 1024;
/// Pages stored on the disk over a restart, 64 MiB: a slow disk writes as much within a few seconds.
/// Further pages are not stored.
pub const CACHE_DISK_BYTES_MAX: usize = 64 << 20;

// hits: counts of page views

/// Pages of one site with counts of their own. Views of further pages count for the site alone.
pub const HITS_PATHS_MAX: usize = 10_000;
/// Days with counts remembered for one site: a year, and the same month of the year before. The oldest
/// day is dropped.
pub const HITS_DAYS_MAX: usize = 400;
/// Days with views remembered for one page. The oldest day is dropped.
pub const HITS_PAGE_DAYS_MAX: usize = 31;
/// Paths that a worker counts before the worker sends the counts to the ledger.
pub const HITS_TALLY_PATHS_MAX: usize = 1_024;

// serve: admission of connections

/// Accepted connections of one listening socket that wait while all of `connections` are taken. The
/// client with the fewest connections goes first. Further connections wait in the kernel's queue.
pub const ACCEPTED_WAITING_MAX: usize = 64;
/// Idle connections that one client loses at once when no more connections may be opened. The search
/// walks over all connections and takes 100 to 200 microseconds for 10,000 connections, so one search
/// serves up to 64 evictions.
pub const IDLE_EVICTIONS_AT_ONCE_MAX: usize = 64;
/// Divisor for the idle connections that one client loses at once: a sixteenth of its connections, so
/// that a small holder loses one.
pub const IDLE_EVICTIONS_CLIENT_DIVISOR: usize = 16;
/// Divisor for a small holder. A client loses a request under way only to a client that holds at most
/// an eighth as many connections as the largest holder. Shares of requests and of calls have the same
/// bound for small clients.
pub const SMALL_HOLDER_DIVISOR: usize = 8;
/// Time that a new HTTP/3 connection waits for another connection to close before the server refuses
/// the connection. Closing takes less than a round trip, and the client retries after 1 s.
pub const H3_ADMISSION_WAIT_MILLISECONDS_MAX: u64 = 900;

// serve: request heads and handshakes

/// Bytes of an incomplete ClientHello, 16 KiB. Browsers send 2 KB with a post-quantum key share. rustls
/// alone would buffer 64 KiB of each for `handshake_seconds`. A connection with a longer ClientHello is
/// closed.
pub const TLS_HELLO_BYTES_MAX: usize = 16 * 1024;
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
pub const UNFINISHED_HEAD_BYTES_FREE: usize = 1_024;

// serve: turns of connections and progress of responses

/// Requests of one connection served in one turn. Then other connections have a turn, since a client
/// that pipelines requests without end would occupy the worker. 32 stored pages take about 200
/// microseconds. Browsers and load generators rarely send more at once.
pub const TURN_REQUESTS_MAX: u32 = 32;
/// Response bytes sent over TLS in one turn of a connection, 256 KiB: about 100 microseconds of
/// encryption. A client that reads as fast as the server sends would otherwise occupy the worker.
pub const TURN_BYTES_MAX: usize = 256 * 1024;
/// Largest response assembled in memory and sent by one system call, 8 KiB. The body of a larger
/// response follows its head.
pub const COALESCED_RESPONSE_BYTES_MAX: usize = 8 * 1024;
/// Body bytes by which a response must progress in each `write_stall_seconds` while only the client's
/// window or socket holds up the response, 8 KiB. The default makes 273 bytes a second, a tenth of the
/// rate of a telephone modem. Without the bound a client that grants 1 byte at a time holds its
/// responses for ever at almost no cost. A slower response is broken off.
pub const RESPONSE_PROGRESS_BYTES_MIN: u64 = 8 * 1024;
/// Acknowledged bytes that allow a client over TCP to take nothing for another `write_stall_seconds`,
/// 128 KiB: 16 times [`RESPONSE_PROGRESS_BYTES_MIN`]. `curl --limit-rate 20k` lets 1 MB gather in the
/// receive buffer, and the kernel opens the window again only 50 s later. A client that never reads
/// acknowledges less: a receive buffer is 128 KiB at first.
pub const RESPONSE_PAUSE_BYTES: u64 = 128 * 1024;
/// Consecutive pauses allowed by [`RESPONSE_PAUSE_BYTES`]. A client that has taken many bytes and has
/// then gone is kept for no longer.
pub const RESPONSE_PAUSES_MAX: u64 = 3;
/// Response bytes buffered unsent in one connection, 32 KiB, so that 1,500 clients that don't read stay
/// cheap. The response waits until the socket takes bytes.
pub const UNSENT_BYTES_MAX: usize = 32 * 1024;
/// Unsent response bytes of one TCP connection in the kernel, 64 KiB, and one packet of up to 64 KiB
/// more. Without a bound the kernel holds 2 to 4 MB for each client on loopback or a fast network that
/// stops reading, and 2,000 such clients fill the machine's memory for TCP. With 64 KiB these clients
/// take 195 MB, with 96 KiB 290 MB. CPU time per 512 KB response is equal from 48 to 256 KiB. The bound
/// doesn't limit the congestion window, so a fast and distant network stays full.
pub const SOCKET_UNSENT_BYTES: u32 = 64 * 1024;
/// Unsent response bytes in the kernel, 256 KiB instead of [`SOCKET_UNSENT_BYTES`], for a TCP
/// connection with a client that has taken 512 KiB and therefore reads. At 300 Mbit/s and a round trip
/// of 50 ms, beside other load, CUBIC brought 29 MB/s with 128 KiB or without a bound, and 19 to 23
/// MB/s with 64 KiB.
pub const SOCKET_UNSENT_BYTES_FAST: u32 = 256 * 1024;

// serve: HTTP/3

/// Request streams that a client may have open at the same time on one HTTP/3 connection, as many as
/// over HTTP/2. QUIC flow control enforces the bound.
pub const H3_STREAMS_MAX: u32 = 100;
/// Unidirectional streams of a client: the 3 streams of HTTP/3 and a few of unknown types. QUIC flow
/// control enforces the bound.
pub const H3_ONE_WAY_STREAMS_MAX: u32 = 8;
/// Stream flow-control window of a request body, 64 KiB received and not yet consumed.
pub const H3_STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// Connection flow-control window for all request bodies of one HTTP/3 connection, 256 KiB received and
/// not yet consumed. Bodies of calls in the script queue don't count: `script_queue` bounds these for
/// all connections.
pub const H3_CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;
/// Capacity of the pipe from an HTTP/3 request body to the handler, 16 KiB. The connection holds one
/// stream window in addition.
pub const H3_PIPE_BYTES: usize = 16 * 1024;
/// Bytes of one DATA frame sent by the server for a body that isn't in memory, 16 KiB.
pub const H3_DATA_BYTES: usize = 16 * 1024;
/// Bytes of the first part of a response body assembled for HTTP/3, 2 KiB. The part stays in memory
/// until the client takes it. No later part is larger than the bytes taken so far.
pub const H3_FIRST_DATA_BYTES: usize = 2 * 1024;
/// Response bytes sent and not acknowledged on a new HTTP/3 connection, 64 KiB. A client that never
/// acknowledges holds no more of the server's memory.
pub const H3_UNACKNOWLEDGED_BYTES_MIN: u64 = 64 * 1024;
/// Response bytes sent and not acknowledged on one HTTP/3 connection with a client that keeps
/// acknowledging: twice the congestion window, at most 4 MiB. All connections together share a bound
/// for bytes above [`H3_UNACKNOWLEDGED_BYTES_MIN`], as large as the bound for heads of waiting requests
/// ([`PENDING_HEAD_BYTES_MAX`], 12 MiB for all workers) and divided among clients. Without the bound,
/// 60 connections that download a file, ask again and fall silent hold 257 MiB.
pub const H3_UNACKNOWLEDGED_BYTES_MAX: u64 = 4 << 20;
/// Handshakes under way on one worker with clients at addresses that are not validated. Beyond the
/// bound, a client has to validate its address first (Retry, RFC 9000 §8.1.2), which costs the server
/// no memory.
pub const H3_UNVALIDATED_HANDSHAKES_MAX: usize = 64;
/// HTTP/3 connections waiting to be accepted by a worker. Further connections are refused.
pub const H3_INCOMING_MAX: usize = 1_024;
/// Bytes received from all HTTP/3 connections waiting to be accepted by a worker, 4 MiB. Further
/// datagrams are dropped. See [`H3_INCOMING_MAX`].
pub const H3_INCOMING_BYTES_MAX: u64 = 4 << 20;

// control: publishing of changes

/// Time that a request for a missing file waits for changes reported by inotify and not served yet. The
/// request waits for two Worlds. The wait takes some milliseconds, and some hundred on a busy processor
/// or with a large folder. Only a reload takes longer. After the wait the request is answered from the
/// current World.
pub const CATCH_UP_WAIT_MILLISECONDS_MAX: u64 = 1_000;
/// Divisor for the control thread's time spent on new Worlds: a fifth, so that a deployment or a busy
/// folder leaves the processor to requests. The next World waits accordingly.
pub const WORLD_UPDATE_TIME_DIVISOR: u32 = 5;
/// Shortest pause between two Worlds. Each World is taken up by every worker, and related changes
/// mostly arrive within 10 ms.
pub const WORLD_UPDATE_PAUSE_MILLISECONDS_MIN: u64 = 10;
/// Longest pause between two Worlds, for a folder so large that reading a change takes long.
pub const WORLD_UPDATE_PAUSE_MILLISECONDS_MAX: u64 = 100;

// acme: requests to a directory

/// Bytes of the content of a directory's response, 256 KiB. A certificate with its chain has 4 to 8
/// KiB. A longer response is an error.
pub const ACME_RESPONSE_BYTES_MAX: usize = 256 * 1024;
/// Bytes of the head of a directory's response, 16 KiB. A longer head is an error.
pub const ACME_HEAD_BYTES_MAX: usize = 16 * 1024;
/// Seconds for one request to a directory, from the look-up of the name to the last byte. A slower
/// request fails.
pub const ACME_CALL_SECONDS: u64 = 30;
/// Seconds to connect to one address of a directory, within [`ACME_CALL_SECONDS`]. Then the next
/// address is tried.
pub const ACME_CONNECT_SECONDS: u64 = 8;
/// Attempts of one request that a directory refuses because of the nonce. A restarted directory refuses
/// all earlier nonces, and a test directory refuses every second nonce. After the last attempt the
/// request fails.
pub const ACME_NONCE_TRIES: usize = 20;
/// Seconds that a directory may take to validate a name or to issue a certificate. Beyond the bound,
/// the attempt fails.
pub const ACME_VALIDATION_SECONDS: u64 = 300;
/// Longest pause between two polls of a directory, regardless of the directory's Retry-After.
pub const ACME_POLL_SECONDS_MAX: u64 = 60;
/// Characters of a directory's problem document written to the log. A longer text is cut.
pub const ACME_PROBLEM_CHARS_MAX: usize = 500;
/// Bytes of a DNS hook's output kept for the log, 4 KiB. The beginning of longer output is dropped.
pub const ACME_HOOK_OUTPUT_BYTES_MAX: usize = 4 * 1024;

// acme: schedule of orders

/// Orders begun for one site in an hour. Public directories allow 5 failed validations. Further orders
/// wait.
pub const ACME_ORDERS_PER_HOUR: usize = 4;
/// Orders begun for one site in a day, regardless of the outcome. Further orders wait.
pub const ACME_ORDERS_PER_DAY: usize = 12;
/// Pause after a first failure. Each further pause is four times as long, up to
/// [`ACME_RETRY_SECONDS_MAX`].
pub const ACME_RETRY_SECONDS: u64 = 60;
/// Longest pause after failures.
pub const ACME_RETRY_SECONDS_MAX: u64 = 86_400;
/// Times that a begun order is resumed without a pause. Further failures count as failures of the
/// order.
pub const ACME_RESUMES_MAX: u64 = 5;
/// Shortest interval between two requests for renewal information, regardless of Retry-After (RFC 9773
/// §4.3.1).
pub const ACME_RENEWAL_INFO_SECONDS_MIN: u64 = 3_600;
/// Longest interval between two requests for renewal information, regardless of Retry-After (RFC 9773
/// §4.3.1).
pub const ACME_RENEWAL_INFO_SECONDS_MAX: u64 = 86_400;

// backup: archives

/// Bytes of a path in a backup: Linux opens no longer path. A longer path is an error.
pub const BACKUP_NAME_BYTES_MAX: usize = 4_095;
/// Bytes of tar's extended header records before one entry, 16 KiB: at most a path and the target of a
/// link. Longer records are an error.
pub const BACKUP_RECORDS_BYTES_MAX: u64 = 16 * 1024;
/// Entries of a backup, 2,000,000. The names are in memory while the archive is read. Further entries
/// are an error.
pub const BACKUP_ENTRIES_MAX: u64 = 2_000_000;
/// Depth of nested folders in a backup. Each level has an open descriptor while it is saved. A deeper
/// folder is an error.
pub const BACKUP_DEPTH_MAX: usize = 128;
/// Largest file kept in memory while it is saved, 1 MiB. A larger file is copied to a temporary file
/// beside the archive.
pub const BACKUP_MEMORY_BYTES: u64 = 1 << 20;
/// Attempts to read a file that changes during the read. After the last attempt the backup fails.
pub const BACKUP_TRIES_MAX: u32 = 20;
/// Bytes of a backup's own entries, 64 MiB: the manifest and the hit counts. Counts of 10,000 pages
/// take a few megabytes. A longer entry is an error.
pub const BACKUP_METADATA_BYTES_MAX: u64 = 64 << 20;

// deploy: trees and git processes

/// Former trees kept beside the served tree. Responses under way still read the last tree, and an
/// operator may want to inspect a tree. Older trees are removed.
pub const DEPLOYED_TREES_KEPT: usize = 2;
/// Symbolic links in a deployed tree. The names of all links are remembered until all targets are
/// known. A tree with more links is refused.
pub const DEPLOY_LINKS_MAX: usize = 4_096;
/// Files of a tree that is synced file by file, a few milliseconds each. For a larger tree the whole
/// file system is synced.
pub const DEPLOY_FSYNC_FILES_MAX: u64 = 100;
/// Seconds without output after which a git process of a deployment is ended.
pub const DEPLOY_SILENT_SECONDS: u64 = 60;
/// Memory of git for an archive, 512 MiB. Git reads a file with substitutions whole, and a file stored
/// as a delta as well. Pushed files may have any size. Beyond the bound, allocations of the process
/// fail.
pub const DEPLOY_MEMORY_BYTES: u64 = 512 << 20;
/// Seconds for all first deployments together, before the server starts without the missing trees. Init
/// systems end a service that isn't ready after about a minute.
pub const DEPLOY_FIRST_SECONDS: u64 = 10;
/// Seconds that an abandoned first deployment has to clean up. After the bound the server starts
/// without waiting.
pub const DEPLOY_CLEANUP_SECONDS_MAX: u64 = 2;
/// Bytes of git's standard error kept for the log, 4 KiB. Further output is dropped.
pub const DEPLOY_STDERR_BYTES_MAX: usize = 4 * 1024;
