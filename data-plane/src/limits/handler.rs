//! Bounds of `handler`: request bodies, pipes and scripts.

// Proxied requests

/// Bytes of a request's body that a call takes from the client before the bytes are sent to the member.
pub(crate) const PROXY_UNSENT_BYTES_MAX: usize = 32 * 1024;
/// Seconds that a member may take to want a body (`Expect: 100-continue`). After that the body is sent, since
/// some servers never send 100 (RFC 9110 §10.1.1).
pub(crate) const PROXY_CONTINUE_SECONDS: u64 = 1;
/// Pause between two rounds of connection attempts while no member has room in its queue, or this machine lacks
/// local ports or descriptors.
pub(crate) const PROXY_SHORTAGE_PAUSE_MILLISECONDS: u64 = 50;
/// Longest wait of a request for a local port or a descriptor. Requests under way free both within this time on a
/// server that is only busy.
pub(crate) const PROXY_SHORTAGE_WAIT_MILLISECONDS: u64 = 1_000;
/// Seconds between two log lines about a lack of local ports, descriptors or memory, since each request would
/// repeat the line.
pub(crate) const PROXY_SHORTAGE_COMPLAINT_SECONDS: u64 = 10;

/// Attempts at the only member left that end with the statement that the request was not processed. A member that
/// restarts closes a connection for each attempt, and the first attempt alone is outside the budget of retries.
pub(crate) const PROXY_REFUSALS_MAX: u32 = 3;
/// Bytes of a streamed body that a call keeps until the response begins, 16 KiB. A member with HTTP/2 may state
/// that the request was not processed, and the request then goes to a member again.
pub(crate) const PROXY_REPLAY_BYTES_MAX: usize = 16 * 1024;

/// Pause of a client between two messages of a gRPC call, 1 year. The streams of gRPC stay open like tunnels, and
/// the system notices a client that has vanished.
pub(crate) const GRPC_PAUSE_SECONDS: u64 = 365 * 24 * 3_600;

// Forward authentication

/// Seconds for a complete answer of the server for forward authentication. The client's request waits meanwhile.
pub(crate) const AUTH_SECONDS: u64 = 5;
/// Content of an answer for forward authentication, 64 KiB. A login page of a browser is much shorter, and the content is
/// in memory while the client takes it.
pub(crate) const AUTH_CONTENT_BYTES_MAX: usize = 64 * 1024;
/// Questions about one request, 32. A client chooses the number of readings of a path and of resources in If, and each
/// question costs the server for forward authentication as much as a request.
pub(crate) const AUTH_QUESTIONS_MAX: u8 = 32;
/// Pause between two log lines about one server for forward authentication, since each request would repeat the line.
pub(crate) const AUTH_LOG_PAUSE_MILLISECONDS: u64 = 1_000;

// Interim responses

/// Interim responses of a handler that wait for the client. A handler sends few, and the final response
/// makes all others superfluous.
pub(crate) const INTERIM_RESPONSES_WAITING_MAX: usize = 4;

// Request bodies and pipes

// Compression of responses

/// Shortest content that is compressed, 512 bytes. A shorter one fits into a packet with its head in any case.
pub(crate) const COMPRESSED_BYTES_MIN: usize = 512;
/// Bytes that are compressed in one turn of the worker, 16 KiB. The turn takes 0.1 to 0.3 ms on a desktop.
pub(crate) const COMPRESSION_SLICE_BYTES: usize = 16 * 1024;
/// Longest content that is compressed before its head is sent. The head then has its length.
pub(crate) const COMPRESSED_AT_ONCE_BYTES: usize = COMPRESSION_SLICE_BYTES;
/// Time after which the bytes in a compressor leave, 5 ms. Packets of one response arrive sooner after
/// one another, and an event of a stream is not noticeably late.
pub(crate) const COMPRESSION_FLUSH_MILLISECONDS: u64 = 5;
/// Memory of a compressor of gzip, 320 KiB: the window of 32 KiB twice, the tables of the last places of each hash, and the
/// pending output.
pub(crate) const GZIP_CODER_BYTES: usize = 320 * 1024;
/// Memory of a compressor of zstd, 720 KiB: a window of 64 KiB with one block of input, the tables of two lengths of
/// hashes, and the sequences of a block.
#[cfg(feature = "zstd")]
pub(crate) const ZSTD_CODER_BYTES: usize = 720 * 1024;

/// Compressors of each coding that a worker keeps for the next responses, until a sweep finds them unused: at most 1.3 MiB
/// of gzip and 2.8 MiB of zstd, for up to a second after the last compressed response. Most responses under way at the
/// same time wait for their handlers or clients.
pub(crate) const CODERS_KEPT_MAX: usize = 4;

/// Capacity of the pipe for the body of a live call, 64 KiB in each direction. A full pipe blocks its
/// writer.
pub const PIPE_BYTES: usize = 64 * 1024;
/// Bytes that a pipe of a call may always hold, 4 KiB. A pipe grows to [`PIPE_BYTES`] while the memory of the
/// bodies under way has room for read-ahead.
pub const PIPE_BYTES_MIN: usize = 4 * 1024;
/// Request body that is received before a script starts, 64 KiB or the whole body if shorter: a slow
/// client occupies no script slot while a form arrives. A shorter body without Content-Length gets a
/// CONTENT_LENGTH by counting, since most CGI programs rely on CONTENT_LENGTH alone.
pub(crate) const BODY_BUFFER_BYTES: usize = PIPE_BYTES;
/// Step in which a buffered request body is counted in the memory of the bodies under way, 16 KiB. Without
/// room, a request with Content-Length waits for a script slot with a partially read body, and any other
/// request is answered with 503. No body exceeds the reserved memory by more than one step.
pub(crate) const BODY_BUFFER_PART_BYTES: usize = 16 * 1024;
/// Seconds that a request body may pause before `body_rate_bytes_per_second` applies.
pub(crate) const BODY_GRACE_SECONDS: u64 = 10;
/// Request bodies stored on the disk at the same time. Each body takes a descriptor, and a process may
/// open 1,024 descriptors by default. Further bodies are answered with 503.
pub(crate) const SPOOLS_MAX: usize = 256;
/// Divisor for the share of one client: a quarter of [`SPOOLS_MAX`] and of `spooled_bytes`. The
/// remaining room serves other clients. With the default bounds a quarter is one body of the largest
/// size. A client over its share is answered with 503.
pub(crate) const SPOOL_PEER_PARTS: u64 = 4;
/// Threads that read and write spooled bodies. More threads don't make a disk faster.
pub(crate) const SPOOL_THREADS: usize = 2;
/// Jobs queued for the spool threads: parts to be read or written, and files to be freed. Each body has
/// at most one job of each kind, so the bound is never exceeded.
pub(crate) const SPOOL_QUEUE_MAX: usize = 2 * SPOOLS_MAX;
/// Bytes a second demanded of a client while its script waits for the remaining body, 4 KiB: a modem on
/// a telephone line sends as fast. A slower client loses its script slot to a waiting call.
pub(crate) const UPLOAD_BYTES_PER_SECOND: u64 = 4 * 1024;
/// Seconds of waiting that a slow upload may owe before the rate [`UPLOAD_BYTES_PER_SECOND`] counts as
/// missed. A fast client can't save up more.
pub(crate) const UPLOAD_GRACE_SECONDS: u64 = 3;

// Rate of downloads from scripts

/// Interval of the checks of a client's download rate while a call waits for the client.
pub(crate) const DOWNLOAD_RATE_CHECK_MILLISECONDS: u64 = 250;
/// Checks over which the rate of a client is averaged, 4 s. A client at 40 KiB/s empties a socket buffer of 64 KiB in
/// 1.6 s, and its bytes move in bursts of that size.
pub(crate) const RATE_WINDOW_CHECKS: u64 = 16;
/// Bytes a second demanded of a client that takes a script's response, 4 KiB: a modem on a telephone
/// line takes more. While a call of another client waits for a slot, a slower client loses its slot.
pub(crate) const DOWNLOAD_BYTES_PER_SECOND: u64 = 4 * 1024;
/// Seconds that a client may pause before [`DOWNLOAD_BYTES_PER_SECOND`] applies: a phone in a tunnel
/// pauses as long.
pub(crate) const DOWNLOAD_GRACE_SECONDS: u64 = 10;
/// Seconds that a client with more than its share of the slots may pause. The pause is short so that
/// other clients are served within 2 s.
pub(crate) const DOWNLOAD_GRACE_SECONDS_OVER_SHARE: u64 = 1;
/// Seconds after which a response below the rate for a client over its share counts as one that drips, 10 s. Most pages are
/// complete earlier, at any rate.
pub(crate) const DRIP_WINDOW_SECONDS: u64 = 10;
/// Interval at which a call with such a response asks whether another call needs its slot.
pub(crate) const DRIP_CHECK_MILLISECONDS: u64 = 500;

// Calls of scripts

/// Seconds that a call waits for a slot. The client of a call beyond the bound gets 503 and may repeat
/// the request.
pub const CALL_QUEUE_SECONDS: u64 = 10;
/// Seconds that a call with a body waits for a connection to a backend while the body arrives, 60 s. In the queue of the
/// backend itself, such a call would wait as long as other calls, for `script_silent_seconds`.
pub(crate) const CALL_QUEUE_SECONDS_WITH_BODY: u64 = 60;
/// Internal redirects of one request from handler to handler. A longer chain counts as a loop and is
/// answered with 508.
pub(crate) const INTERNAL_REDIRECTS_MAX: u8 = 8;
/// Threads that start programs. Each thread blocks while the kernel reads the program's file.
pub(crate) const PROGRAM_THREADS: usize = 2;
/// Seconds between the signal to end and the kill of a program with its whole process group.
pub(crate) const PROGRAM_GRACE_SECONDS: u64 = 2;
/// Interval of the checks whether a signalled program has exited.
pub(crate) const PROGRAM_EXIT_POLL_MILLISECONDS: u64 = 20;
/// Time to wait for the exit status of a script after the end of its output. The exit status tells
/// whether the response is complete. After the wait the response counts as complete.
pub(crate) const PROGRAM_EXIT_MILLISECONDS: u64 = 100;
/// Seconds of silence after which a child process left behind by an exited script is ended. A child
/// that holds the output open may continue the response for as long as it keeps writing. After the
/// pause the response is complete.
pub(crate) const ORPHAN_OUTPUT_PAUSE_SECONDS_MAX: u64 = 1;
/// Bytes of standard error logged for one call, 64 KiB. Further output is dropped, and the log says so.
pub(crate) const PROGRAM_STDERR_BYTES_MAX: usize = 64 * 1024;
/// Bytes of one logged line of standard error. A longer line is split.
pub(crate) const PROGRAM_STDERR_LINE_BYTES_MAX: usize = 1_024;
/// Bytes of a member's malformed line quoted in the log, enough to recognise the line.
pub(crate) const PROXY_QUOTED_BYTES_MAX: usize = 80;
/// Bytes of a malformed script response quoted in the log, enough to recognise the response.
pub(crate) const SCRIPT_QUOTED_BYTES_MAX: usize = 80;
/// Bytes moved at once between a handler's pipe and a program, 16 KiB.
pub const PROGRAM_CHUNK_BYTES: usize = 16 * 1024;
/// First size of the buffer for a program's output, 4 KiB. Most responses are small, and clearing
/// memory takes time. The buffer grows when full.
pub(crate) const PROGRAM_BUFFER_BYTES_INITIAL: usize = 4 * 1024;
/// First capacity of the buffer for the response head of a live call. Most heads fit. The buffer grows
/// when full.
pub(crate) const SCRIPT_HEAD_BYTES_INITIAL: usize = 512;
/// First capacity of the buffer for a request to a FastCGI backend. Most requests fit. The buffer grows
/// when full.
pub(crate) const BACKEND_REQUEST_BYTES_INITIAL: usize = 1_536;
