//! Bounds of `base`: counters, logs, thread pools, admission of calls and UDP sockets.

// Counters

/// Counters of refused requests by rule, for each worker: room for all rules, in 1.5 KiB.
pub const REFUSAL_RULES_MAX: usize = 192;

// Requests under way

/// Bytes of the host of a request under way for the operator. Most names are shorter, and a table of 20,000 waiting
/// requests takes at most 7 MB with the bounds of host and path.
pub const ACTIVE_REQUEST_HOST_BYTES_MAX: usize = 64;
/// Bytes of the path of a request under way for the operator. The beginning of a longer path shows the route and the
/// script.
pub const ACTIVE_REQUEST_PATH_BYTES_MAX: usize = 128;

// Log destinations

/// Access-log bytes queued for one slow destination, 4 MiB. Beyond the bound, lines are dropped and
/// counted, so that a slow disk or pipe never blocks a worker.
pub const LOG_QUEUE_BYTES: usize = 4 << 20;
/// Log lines that a worker collects before the batch goes to the destination's writer thread, 16 KiB.
/// One hand-over for many lines costs one lock. A full batch is handed over at once.
pub const LOG_BATCH_BYTES: usize = 16 * 1024;
/// Empty buffers that a log destination keeps for reuse: about one for each worker and one in the
/// queue. A buffer beyond the bound is freed.
pub const LOG_SPARE_BUFFERS_MAX: usize = 32;
/// Smallest size of a log file that the server rotates, 64 KiB: four full batches of a worker. A rotation costs a
/// few system calls for each earlier file.
pub const LOG_ROTATION_BYTES_MIN: u64 = 64 * 1024;
/// Largest size of a log file that the server rotates, 1 TiB.
pub const LOG_ROTATION_BYTES_MAX: u64 = 1 << 40;
/// Most earlier files of a rotated log. Each file is renamed at every rotation.
pub const LOG_FILES_KEPT_MAX: u32 = 1_000;
/// Bytes of an earlier log file compressed between two looks at the queue of lines, 64 KiB. A step takes about 2 ms,
/// and a full queue holds the lines of a longer time. A step follows each written batch, and a batch has at
/// least four times fewer bytes, so the compression ends before the next rotation.
pub const LOG_COMPRESS_STEP_BYTES: usize = 64 * 1024;
/// Lines about one kind of an event that any client can cause, such as a TLS handshake for an unknown name, in
/// [`RARE_LINES_MILLISECONDS`]. The first lines show the mistake, and further events are counted.
pub const RARE_LINES_MAX: u32 = 5;
/// Window of [`RARE_LINES_MAX`]: 1 minute, so that a flood writes at most 6 lines of a kind in a minute.
pub const RARE_LINES_MILLISECONDS: u64 = 60_000;

// Change of the user

/// Milliseconds between two looks at the threads of the process before a change of the user.
pub const THREAD_END_LOOK_MILLISECONDS: u64 = 10;
/// Looks at the threads of the process before a change of the user, together 1 s. A thread that has ended disappears
/// within microseconds; the bound allows for a busy machine.
pub const THREAD_END_LOOKS_MAX: usize = 100;

// Folders that change their owner

/// Levels of folders below a state folder that get another owner with it, 32. The server itself makes at most 4 levels;
/// the bound keeps a chain of folders from exhausting the stack.
pub const OWNED_FOLDER_DEPTH_MAX: usize = 32;

// Thread pools

/// Seconds without a job after which a thread of a pool ends, so that an idle server has no such
/// threads. The next job starts a new thread.
pub const POOL_IDLE_SECONDS: u64 = 10;

// Admission of calls to scripts and backends

/// Seconds for which the last quarter of the slots is reserved for clients with few calls, after a
/// client had to wait while another client held more than its share. The reservation keeps a continuing
/// flood from delaying the next request of a small client. A client that is alone soon has all slots
/// again.
pub const CALL_SHARE_SECONDS: u64 = 60;
/// Wait of a client without a place after which the slowest call below [`DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE`] gives
/// way, 2 s, as for connections. A few clients with a transfer of some KiB/s each would otherwise hold all places.
///
/// [`DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE`]: crate::limits::DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE
pub const NEWCOMER_WAIT_MILLISECONDS: u64 = 2_000;
/// Time without the beginning of a response after which a call counts as possibly still in the
/// backend's own queue. Most pages take less than 1 s.
pub const CALL_UNANSWERED_MILLISECONDS: u64 = 1_000;
/// Pause between two slow calls that are ended for the benefit of waiting clients. A backend takes a
/// moment to notice that a call has ended and to take up the next call.
pub const CALL_END_PAUSE_MILLISECONDS: u64 = 250;

// Descriptors

/// Divisor for the descriptors of the process that connections leave to listening sockets, logs, files and
/// scripts: a quarter of a small limit.
pub const DESCRIPTOR_RESERVE_DIVISOR: usize = 4;
/// Smallest reserve of descriptors. An idle server with 4 workers has about 60 open. A process with fewer than
/// 128 descriptors keeps half of its limit.
pub const DESCRIPTOR_RESERVE_MIN: usize = 64;
/// Largest reserve of descriptors: room for 256 scripts with 3 pipes each, and for files under way.
pub const DESCRIPTOR_RESERVE_MAX: usize = 1_024;
/// Divisor for the descriptors of connections that only connections to members may take: an eighth.
pub const DESCRIPTOR_MEMBER_DIVISOR: usize = 8;
/// Most descriptors that only connections to members may take. With a limit of 20,000 descriptors,
/// 9,000 clients may wait for members at once.
pub const DESCRIPTOR_MEMBER_MAX: usize = 512;
/// Divisor for a client with few connections to members: below a sixty-fourth of the descriptors of connections,
/// at least one connection.
pub const DESCRIPTOR_SMALL_DIVISOR: usize = 64;

// Timers

/// Interval at which a worker looks for passed coarse timers. The timers bound waits of seconds.
pub const COARSE_TIMER_MILLISECONDS: u64 = 250;

// UDP sockets

/// Receive buffer of each UDP socket, 4 MiB. The kernel doubles the number and charges 2,304 bytes for
/// a datagram of 1,200 to 1,472 bytes, so 3,640 datagrams wait while the worker is busy. The usual
/// default (212,992 bytes, or 92 datagrams) is less than the 200 datagrams with which 100 browsers
/// begin at once. The kernel drops datagrams beyond the bound. A client repeats a lost first datagram
/// after 1 s, then after 2 s, 4 s and 8 s.
pub const UDP_RECEIVE_BYTES: usize = 4 << 20;

// Memory of bodies under way

/// Divisor of `memory_max` for the bodies under way: a third. The remaining memory is for contents and caches.
pub const BODY_MEMORY_PARTS: u64 = 3;
/// Smallest memory for the bodies under way, 1 MiB: 128 calls.
pub const BODY_MEMORY_BYTES_MIN: u64 = 1 << 20;
/// Bytes reserved for a call of a handler from its beginning to its end, 8 KiB: the smallest pipe, as many bytes on
/// their way to the socket, and the state of the call. A call needs no other reservation to complete, except for the
/// buffers of TLS to a member. 9,000 waiting calls take 70 of the 85 MiB of a machine with 2 GiB.
pub const CALL_RESERVED_BYTES: usize = 8 * 1024;
/// Bytes of the bound in one reservation of a worker: 1 of 64, divided among the workers. Unused reservations of
/// all workers together take at most 2 of 64.
pub const BODY_BATCH_DIVISOR: usize = 64;
/// Largest reservation of a worker, 256 KiB: 32 calls.
pub const BODY_BATCH_BYTES_MAX: usize = 256 * 1024;
/// Buckets in which a worker counts the bytes of its clients. The buckets take 4 KiB.
pub const BODY_SHARE_BUCKETS: usize = 512;

// Request rates

/// Clients with a bucket under one request rate: 640 KiB of memory at most. Beyond the bound, buckets of clients that sent
/// the fewest requests are forgotten first.
pub const RATE_CLIENTS_MAX: usize = 16_384;

// Transfers between sockets

/// Received bytes that are moved without a copy, 16 KiB or more. A move of fewer bytes costs more than a copy, and keeps
/// the whole pages of many small packets for a client that does not read.
pub const PASSED_BYTES_MIN: usize = 16 * 1024;

// Messages

/// Characters of a text of a less trusted party that a log line, the status or an error quotes, 80: enough to find the text.
pub const QUOTED_CHARACTERS_MAX: usize = 80;
