//! Bounds of `upstream`: connections to FastCGI and SCGI backends, and to the members of balancers.

// Connections

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

// Handover of connections between calls

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

// Connections to members

/// Lists of idle connections to a member. Each worker uses one list, so that workers rarely wait for one
/// another. More workers than lists share the lists.
pub const MEMBER_IDLE_LISTS: usize = 32;
/// Interval at which a worker closes idle connections that the member closed or that were idle for too
/// long.
pub const MEMBER_IDLE_SWEEP_MILLISECONDS: u64 = 1_000;
/// Plaintext sealed by one write to a member over TLS, 64 bytes below 32 KiB: the sealed records take at most
/// 32 KiB. The next write waits until the socket has accepted the records.
pub const MEMBER_TLS_WRITE_BYTES_MAX: usize = 32 * 1024 - 64;
