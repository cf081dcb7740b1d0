//! Bounds of `ledger`: requests under way, admission of calls, descriptors, memory of bodies, request rates.

// Requests under way

/// Bytes of the host of a request under way for the operator. Most names are shorter, and a table of 20,000 waiting
/// requests takes at most 7 MB with the bounds of host and path.
pub(crate) const ACTIVE_REQUEST_HOST_BYTES_MAX: usize = 64;
/// Bytes of the path of a request under way for the operator. The beginning of a longer path shows the route and the
/// script.
pub(crate) const ACTIVE_REQUEST_PATH_BYTES_MAX: usize = 128;

// Admission of calls to scripts and backends

/// Seconds for which the last quarter of the slots is reserved for clients with few calls, after a
/// client had to wait while another client held more than its share. The reservation keeps a continuing
/// flood from delaying the next request of a small client. A client that is alone soon has all slots
/// again.
pub(crate) const CALL_SHARE_SECONDS: u64 = 60;
/// Time without the beginning of a response after which a call counts as possibly still in the
/// backend's own queue. Most pages take less than 1 s.
pub(crate) const CALL_UNANSWERED_MILLISECONDS: u64 = 1_000;
/// Pause between two slow calls that are ended for the benefit of waiting clients. A backend takes a
/// moment to notice that a call has ended and to take up the next call.
pub(crate) const CALL_END_PAUSE_MILLISECONDS: u64 = 250;
/// Slow calls that end for one call of a newcomer without an answer, where the kernel does not tell whether the call waits in
/// the backend's own queue, 16. A call that computes for long would otherwise end all slow calls, and 16 free a process
/// behind a queue of 15 calls.
pub(crate) const CALL_UNANSWERED_ENDS_MAX: u32 = 16;
/// Time without an answer or a read byte after which a call counts as waiting in the backend's own queue, 100 ms. A free
/// process takes a call up within some milliseconds.
pub(crate) const CALL_QUEUED_MILLISECONDS: u64 = 100;
/// Interval between two questions to the kernel which calls a backend has taken up, 5 ms. A question takes 0.3 us for each
/// call.
pub(crate) const CALL_TAKE_UP_CHECK_MILLISECONDS: u64 = 5;
/// Interval at which a call that is kept out of a backend's own queue asks whether the backend has taken up the call before,
/// 20 ms.
pub(crate) const CALL_TAKE_UP_WAIT_MILLISECONDS: u64 = 20;
/// Time for which the number of calls that a backend works on at once is known after the last call that waited in its own
/// queue, 60 s. php-fpm starts and ends processes by the load.
pub(crate) const CALL_CAPACITY_SECONDS: u64 = 60;
/// Divisor for the calls before a newcomer in the backend's own queue: up to a quarter end at once, so that 124 calls end
/// within 4 s.
pub(crate) const CALLS_AHEAD_DIVISOR: usize = 4;

// Descriptors

/// Divisor for the descriptors of the process that connections leave to listening sockets, logs, files and
/// scripts: a quarter of a small limit.
pub(crate) const DESCRIPTOR_RESERVE_DIVISOR: usize = 4;
/// Smallest reserve of descriptors. An idle server with 4 workers has about 60 open. A process with fewer than
/// 128 descriptors keeps half of its limit.
pub(crate) const DESCRIPTOR_RESERVE_MIN: usize = 64;
/// Largest reserve of descriptors: room for 256 scripts with 3 pipes each, and for files under way.
pub(crate) const DESCRIPTOR_RESERVE_MAX: usize = 1_024;
/// Divisor for the descriptors of connections that only connections to members may take: an eighth.
pub(crate) const DESCRIPTOR_MEMBER_DIVISOR: usize = 8;
/// Most descriptors that only connections to members may take. With a limit of 20,000 descriptors,
/// 9,000 clients may wait for members at once.
pub(crate) const DESCRIPTOR_MEMBER_MAX: usize = 512;
/// Divisor for a client with few connections to members: below a sixty-fourth of the descriptors of connections,
/// at least one connection.
pub(crate) const DESCRIPTOR_SMALL_DIVISOR: usize = 64;
/// Divisor for the descriptors by which the bounds are exceeded while requests that gave way end: a sixteenth, a quarter of
/// the smallest reserve.
pub(crate) const DESCRIPTOR_OVERDRAFT_DIVISOR: usize = 16;
/// Wait for a descriptor after which a request that moves gives way to a client with far fewer requests, 500 ms: half of the
/// longest wait. On a server that is only busy, requests free descriptors earlier.
pub(crate) const DESCRIPTOR_SHED_WAIT_MILLISECONDS: u64 = 500;
/// Connections to members for each millisecond between two searches for a request that gives way, 4,096. A search takes
/// 50 ns for each connection, so all searches take a fifth of the time of one core.
pub(crate) const DESCRIPTOR_USES_PER_MILLISECOND: u64 = 4_096;

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
pub(crate) const BODY_BATCH_DIVISOR: usize = 64;
/// Largest reservation of a worker, 256 KiB: 32 calls.
pub(crate) const BODY_BATCH_BYTES_MAX: usize = 256 * 1024;
/// Buckets in which a worker counts the bytes of its clients. The buckets take 4 KiB.
pub(crate) const BODY_SHARE_BUCKETS: usize = 512;
/// Divisor for the part of the bound that is left to newcomers while calls that gave way end: a sixteenth, 8 calls of the
/// smallest bound.
pub(crate) const BODY_RESERVE_DIVISOR: usize = 16;
/// Calls that end at once for the content of one request: as many as hold the window of a stream of HTTP/2 together.
pub(crate) const BODY_ENDED_CALLS_MAX: usize = 8;
/// Connections of a worker for each millisecond between two searches for a call that gives way, 1,024. A search takes about
/// 160 ns for each connection, so all searches take a sixth of the worker's time.
pub(crate) const CALL_SEARCHED_PER_MILLISECOND: u64 = 1_024;
/// Longest pause after a search for a client that found nothing, 250 ms: requests that stall are found soon.
pub(crate) const SEARCH_PAUSE_MILLISECONDS_MAX: u64 = 250;
/// Clients of a worker with such a pause, 4,096: the table takes at most 256 KiB.
pub(crate) const SEARCH_PAUSE_CLIENTS_MAX: usize = 4_096;

// Request rates

/// Clients with a bucket under one request rate: 640 KiB of memory at most. Beyond the bound, buckets of clients that sent
/// the fewest requests are forgotten first.
pub(crate) const RATE_CLIENTS_MAX: usize = 16_384;

// Changes on disk

/// Time that a request for a missing file waits for changes reported by inotify and not served yet. The
/// request waits for two Worlds. The wait takes some milliseconds, and some hundred on a busy processor
/// or with a large folder. Only a reload takes longer. After the wait the request is answered from the
/// current World.
pub(crate) const CATCH_UP_WAIT_MILLISECONDS_MAX: u64 = 1_000;
