//! Bounds of the crate: logs, threads, timers, sockets, archives.

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
/// Lines about failures with one rule in [`RARE_LINES_MILLISECONDS`], such as requests for a member that is down. The lines
/// show all pages that fail on an ordinary day, and a flood writes about 1.5 KB a second.
pub const FAILURE_LINES_MAX: u32 = 300;

// Messages to a service manager

/// Bytes of a message to a supervisor, 4,096. The longest message of the server is a line of status.
pub const NOTIFICATION_BYTES_MAX: usize = 4_096;
/// Descriptors in one message to a service manager, 64. The kernel allows 253; a server with more sockets sends several
/// messages.
pub const NOTIFICATION_SOCKETS_MAX: usize = 64;
/// Longest wait for room in the queue of a service manager, 100 ms. A manager that has stopped must not stop the server.
pub const NOTIFY_MILLISECONDS_MAX: u64 = 100;
/// Characters of the reason of a restart, 200. The reason travels in a variable of the environment.
pub const RESTART_REASON_CHARACTERS_MAX: usize = 200;

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

// Transfers between sockets

/// Received bytes that are moved without a copy, 16 KiB or more. A move of fewer bytes costs more than a copy, and keeps
/// the whole pages of many small packets for a client that does not read.
pub const PASSED_BYTES_MIN: usize = 16 * 1024;

// Messages

/// Characters of a text of a less trusted party that a log line, the status or an error quotes, 80: enough to find the text.
pub const QUOTED_CHARACTERS_MAX: usize = 80;

// Archives

/// Bytes of a path in a tar archive: Linux opens no longer path. A longer path is an error.
pub const TAR_NAME_BYTES_MAX: usize = 4_095;
/// Bytes of tar's extended header records before one entry, 16 KiB: at most a path and the target of a
/// link. Longer records are an error.
pub const TAR_RECORDS_BYTES_MAX: u64 = 16 * 1024;

// Shares of calls

/// Bytes a second demanded of a client with more than its share of the slots, 32 KiB. The rate is
/// higher since each response of the client keeps other clients waiting: to hold all 16 slots of
/// `scripts`, the client has to take 4 Mbit/s.
pub const DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE: u64 = 32 * 1024;
/// Wait of a client without a place after which the slowest call below [`DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE`] gives
/// way, 2 s, as for connections. A few clients with a transfer of some KiB/s each would otherwise hold all places.
pub const NEWCOMER_WAIT_MILLISECONDS: u64 = 2_000;
/// Milliseconds for which a place counts as given lately, 10 minutes: among clients that hold equally much, a client without
/// a place in this time goes first. After 60 s already, 250 addresses that take turns would keep newcomers out of 4 places.
pub const SERVED_MILLISECONDS: u64 = 600_000;
/// Shortest time for which a place counts as used, 500 ms. Clients with many short connections would otherwise go before
/// all other clients again and again.
pub const PLACE_USE_MILLISECONDS_MIN: u64 = 500;
/// Clients whose latest place is remembered, 2,048, about 100 KiB for each set of places. Clients served longest ago are
/// forgotten first.
pub const SERVED_CLIENTS_MAX: usize = 2_048;
/// Milliseconds for which a client that lost a place as too slow goes last, 10 minutes. To keep newcomers out for longer, a
/// party needs an address that was not slow yet for each place that it takes.
pub const SLOW_CLIENT_MILLISECONDS: u64 = 600_000;

// Marks

/// Clients or neighbourhoods that a table of marks remembers, 4,096, about 150 KiB: more than one party usually has.
pub const MARKS_MAX: usize = 4_096;
