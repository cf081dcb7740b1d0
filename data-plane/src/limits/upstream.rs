//! Bounds of `upstream`: connections to FastCGI and SCGI backends, balancers, and their members.

// Connections

/// Connections to one backend without a configured number. Most of these wait in the backend's own
/// queue, and further connections could only wait, too. Further calls wait for a slot.
pub(crate) const BACKEND_CONNECTIONS_MAX: usize = 128;
/// Seconds for one attempt to connect to a backend, which runs on the same machine or next to it.
pub(crate) const BACKEND_CONNECT_SECONDS: u64 = 5;
/// Attempts to connect to a backend that isn't there, since the backend may just be restarting. After
/// the last attempt the request is answered with 502.
pub(crate) const BACKEND_CONNECT_TRIES: u32 = 5;
/// Pause between two attempts to connect to a backend.
pub(crate) const BACKEND_RETRY_MILLISECONDS: u64 = 100;
/// Shortest time that a connection to a backend without `keep` waits for the next request. The longest
/// is twice the bound. Then the connection is closed.
pub(crate) const BACKEND_IDLE_MILLISECONDS: u64 = 5;
/// Time without any response of a backend after which calls waiting for a handed-over connection open
/// connections of their own.
pub(crate) const BACKEND_STALLED_MILLISECONDS: u64 = 20;

// Handover of connections between calls

/// Age at which a handed-over connection is closed after the current request, so that the backend's
/// process can serve clients other than this server.
pub(crate) const BACKEND_HANDOVER_AGE_MILLISECONDS_MAX: u64 = 50;
/// Time after which an unread request counts as queued: in the backend's queue because all processes
/// are busy, or for the one process at the end of a handed-over connection.
pub(crate) const BACKEND_UNREAD_QUEUED_MILLISECONDS: u64 = 2;
/// Time after which an unread request on a handed-over connection is sent to another process. The
/// process has answered the previous request and goes on with other work (`fastcgi_finish_request`). If
/// the process still reads the request later, its work is in vain.
pub(crate) const BACKEND_UNREAD_RETRY_MILLISECONDS: u64 = 100;
/// Shortest interval between two checks for unread requests.
pub(crate) const BACKEND_UNREAD_POLL_MICROSECONDS: u64 = 1_000;
/// Divisor for the requests on handed-over connections that may count as queued: one in 20. Beyond the
/// bound the backend continues its work after responses, or lacks processor time. Handover then gains
/// little and is suspended.
pub(crate) const BACKEND_QUEUED_DIVISOR: u32 = 20;
/// First interval between probes for additional processes of a backend. Each probe opens one more
/// connection.
pub(crate) const BACKEND_PROBE_MILLISECONDS: u64 = 10;
/// Longest interval between probes for additional processes of a backend, reached by doubling while
/// probes fail.
pub(crate) const BACKEND_PROBE_MILLISECONDS_MAX: u64 = 250;
/// First pause before the server again keeps connections open to a backend that closed such connections
/// or was slow to read requests on them.
pub(crate) const BACKEND_KEEP_RETRY_SECONDS: u64 = 10;
/// Longest pause before the server again keeps connections open to a backend that stays slow to read
/// requests on such connections.
pub(crate) const BACKEND_KEEP_RETRY_SECONDS_MAX: u64 = 600;

// Connections to members

/// Lists of idle connections to a member. Each worker uses one list, so that workers rarely wait for one
/// another. More workers than lists share the lists.
pub(crate) const MEMBER_IDLE_LISTS: usize = 32;
/// Interval at which a worker closes idle connections that the member closed or that were idle for too
/// long.
pub(crate) const MEMBER_IDLE_SWEEP_MILLISECONDS: u64 = 1_000;
/// Plaintext sealed by one write to a member over TLS, 64 bytes below 32 KiB: the sealed records take at most
/// 32 KiB. The next write waits until the socket has accepted the records.
pub(crate) const MEMBER_TLS_WRITE_BYTES_MAX: usize = 32 * 1024 - 64;
/// Bytes of frames for one HTTP/2 connection to a member that wait for the socket, 32 KiB. Beyond the bound,
/// requests wait with their bodies. As many bytes again may be on their way into the socket.
pub(crate) const H2_MEMBER_UNSENT_BYTES_MAX: usize = 32 * 1024;
/// Capacity up to which the empty buffers of an HTTP/2 connection to a member are kept between two requests, 4 KiB:
/// the heads of some requests. An upload needs up to 128 KiB for both buffers.
pub(crate) const H2_MEMBER_KEPT_BUFFER_BYTES: usize = 4 * 1024;
/// Silence of an idle HTTP/2 connection to a member, 1 s, after which a request that must not be sent twice
/// first waits for the acknowledgement of a PING.
pub(crate) const H2_MEMBER_PROBE_AFTER_MILLISECONDS: u64 = 1_000;
/// Longest wait for the acknowledgement, 1 s. The request then takes a new connection.
pub(crate) const H2_MEMBER_PROBE_MILLISECONDS: u64 = 1_000;
/// Head of a request up to which the request shares an HTTP/2 connection to a member, 8,000 bytes in total. nginx ends
/// the whole connection at a field or path above 8 KiB, and the requests of other clients with it.
pub(crate) const H2_MEMBER_SHARED_HEAD_BYTES_MAX: usize = 8_000;
/// Responses of one HTTP/2 connection to a member that anthill cancels by a reset, until the connection takes no
/// further request. The requests under way may be cancelled as well, so at most 199 resets pass, and anthill
/// remembers all of them ([`H2_RESETS_REMEMBERED`](wire::limits::H2_RESETS_REMEMBERED)). Netty closes a connection
/// with more than 200 resets in 30 s, and Go closes a connection with more than 1,250 requests under way. The cancelled
/// requests of one client would otherwise end the requests of other clients.
pub(crate) const H2_MEMBER_RESETS_MAX: usize = 100;
/// Turns of reading and writing of one HTTP/2 connection to a member, until other tasks of the worker run.
pub(crate) const H2_MEMBER_TURNS_MAX: usize = 16;

/// Receive buffer of a new connection to a member, 8 KiB. The kernel doubles the number, and lets the member send
/// 12 KiB ahead, about as many bytes as the first packets of a connection carry (RFC 6928). Most pages fit.
pub(crate) const MEMBER_RECEIVE_BYTES_MIN: u32 = 8 * 1024;
/// Receive buffer of a connection to a member after a longer response, 64 KiB, while the memory of the bodies under way
/// is not short. The kernel doubles the number, and lets the member send 128 KiB ahead. Without a bound the kernel
/// holds 2 to 4 MB for a client that has read some MB fast and then stops.
pub(crate) const MEMBER_RECEIVE_BYTES: u32 = 64 * 1024;
/// Bytes that a member may send ahead on a connection with [`MEMBER_RECEIVE_BYTES`].
pub(crate) const MEMBER_WINDOW_BYTES: usize = 128 * 1024;
/// Length of a response from which the receive buffer becomes [`MEMBER_FAR_RECEIVE_BYTES`], 256 KiB, if much memory is
/// free: a window of 128 KiB brings 2.5 MB/s from a member at a distance of 50 ms, and each update of the window costs
/// time.
pub(crate) const MEMBER_FAR_RESPONSE_BYTES: usize = 256 * 1024;
/// Receive buffer of a connection to a member after a response of [`MEMBER_FAR_RESPONSE_BYTES`], 256 KiB. The kernel
/// doubles the number. The usual `net.core.rmem_max` of 208 KiB lowers the buffer to 416 KiB.
pub(crate) const MEMBER_FAR_RECEIVE_BYTES: u32 = 256 * 1024;
/// Bytes that a member may send ahead on a connection with [`MEMBER_FAR_RECEIVE_BYTES`], 512 KiB.
pub(crate) const MEMBER_FAR_WINDOW_BYTES: usize = 512 * 1024;
/// Last bytes of a content of known length that are copied, 4 KiB. The bytes before go from the member's socket to a
/// client without TLS in the kernel, without a copy. The copy shows whether bytes follow the content.
pub(crate) const COPIED_REST_BYTES_MIN: u64 = 4 * 1024;
/// Unsent bytes of a streamed request body in the kernel, 64 KiB for each connection to a member. Without a bound the
/// kernel holds 2 to 4 MB for a member that does not read.
pub const MEMBER_UNSENT_BYTES: u32 = 64 * 1024;
/// Unsent bytes of a streamed request body in the kernel, 4 KiB and one write instead of [`MEMBER_UNSENT_BYTES`], for
/// a request that begins while the memory of the bodies under way is short.
pub(crate) const MEMBER_UNSENT_BYTES_MIN: u32 = 4 * 1024;
/// Bytes of a response in the buffers of TLS, 32 KiB: a record of up to 16 KiB before and after decryption.
pub(crate) const MEMBER_TLS_RECEIVE_BYTES: usize = 32 * 1024;
/// Age up to which an idle connection counts as alive. With all local ports in use, a request that needs a new
/// connection takes a connection that has answered within this time. Servers keep idle connections for at least
/// 1 s, mostly for 5 s or more.
pub(crate) const MEMBER_FRESH_MILLISECONDS: u64 = 500;
/// Idle connections to members that are closed at once when descriptors are short, so that one search serves
/// several requests.
pub(crate) const MEMBER_IDLE_CLOSED_AT_ONCE: usize = 16;

// Balancers

/// Bytes of a heartbeat datagram. Apache's mod_heartbeat sends at most 43 bytes, and Tomcat at most 54; a
/// longer datagram is ignored.
pub const HEARTBEAT_BYTES_MAX: usize = 256;
/// Pause between two claims of a waiting request to the place of a silent tunnel, 1 s. A claim looks at each tunnel of the
/// balancer.
pub(crate) const TUNNEL_CLAIM_MILLISECONDS: u64 = 1_000;

// Active checks

/// Active checks of all balancers at the same time. Each check takes a descriptor and some KiB; further
/// checks wait for the end of a check, at most for its timeout.
pub(crate) const CHECKS_MAX: usize = 128;
/// Bytes of the content of a response that a check reads, 64 KiB.
pub(crate) const CHECK_CONTENT_BYTES_MAX: usize = 64 * 1024;
/// Bytes that a check reads at once.
pub(crate) const CHECK_READ_BYTES: usize = 8 * 1024;
/// Largest head of a response to a check, 32 KiB, as for other responses of members.
pub(crate) const CHECK_HEAD_BYTES_MAX: usize = 32 * 1024;
/// Largest number of field lines in the response to a check.
pub(crate) const CHECK_FIELDS_MAX: usize = 256;
/// Interim responses to a check. A member that sends more fails the check.
pub(crate) const CHECK_INTERIM_RESPONSES_MAX: u32 = 32;

// Names of members

/// Seconds after which the addresses of a host name in use are looked up again. The C library hides the
/// lifetime of the records.
pub(crate) const RESOLVE_AGAIN_SECONDS: u64 = 30;
/// Seconds after which a failed look-up of a host name is repeated.
pub(crate) const RESOLVE_RETRY_SECONDS: u64 = 5;
/// Interval at which the server looks for names that are due, while a name is in use.
pub(crate) const RESOLVER_INTERVAL_SECONDS: u64 = 1;
/// Addresses of one host name to which connections are opened. Of further addresses, those in use are preferred.
pub(crate) const RESOLVED_ADDRESSES_MAX: usize = 16;
/// Addresses of one answer that are read. Connections to an address in the answer stay in use. The answer comes from a
/// name server, and a name with more addresses is none that this server sends requests to.
pub(crate) const ANSWERED_ADDRESSES_MAX: usize = 256;
/// Look-ups for which an address of a rotating name stays in use after its last answer: 4 minutes. A name server that
/// picks 8 of 30 addresses for each answer leaves an address out so often in 8 % of the cases.
pub(crate) const ROTATION_LOOK_UPS: u32 = 8;
/// Threads for look-ups of host names. A dead name server holds a thread for about 10 s.
pub(crate) const RESOLVER_THREADS_MAX: usize = 4;
/// Look-ups of host names that wait for a thread.
pub(crate) const RESOLVER_QUEUE_MAX: usize = 64;
