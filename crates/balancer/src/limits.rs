//! Bounds of the crate: balancing methods, retries, ejection, and members.

// Balancing methods

/// Milliseconds after which a heartbeat of a member no longer counts, as in Apache's mod_lbmethod_heartbeat.
/// Members send a heartbeat each second.
pub(crate) const HEARTBEAT_EXPIRY_MILLISECONDS: u64 = 10_000;
/// Entries of a Maglev table with few members: a prime number, so that each step width visits every entry.
/// With 50 members, the shares of two members differ by at most a few percent.
pub(crate) const MAGLEV_ENTRIES: usize = 5_003;
/// Entries of a Maglev table with many members: a prime number. The table takes 128 KiB.
pub(crate) const MAGLEV_ENTRIES_MAX: usize = 65_537;
/// Largest number of members in a Maglev table of [`MAGLEV_ENTRIES`].
pub(crate) const MAGLEV_FEW_MEMBERS_MAX: usize = 50;
/// Time constant of the average latency of a member. A member without requests for three times as long
/// counts as nearly unmeasured, and gets the next request.
pub(crate) const LATENCY_DECAY_MILLISECONDS: u64 = 5_000;
/// Percent of a recovered member's weight at the beginning of the slow start.
pub(crate) const SLOW_START_PERCENT: u64 = 10;

// Retries

/// Seconds between two log lines about requests that failed at one member and went on at another. A dead member
/// under load would otherwise fill the log.
pub(crate) const RETRY_LINE_SECONDS: u64 = 10;
/// Seconds of requests that count for the budget of retries: long enough for a balancer with few requests,
/// short enough to follow the load.
pub(crate) const RETRY_WINDOW_SECONDS: u64 = 10;
/// Retries within [`RETRY_WINDOW_SECONDS`] that a balancer may always make. A balancer with few requests
/// would otherwise have no retry.
pub(crate) const RETRIES_MIN: u32 = 10;
/// Counts of requests and retries by client, for the share of each client in the budget of retries: 2 KiB for each
/// balancer.
pub(crate) const RETRY_SHARES: usize = 256;

// Ejection

/// Seconds without another request after which an upload tries an ejected member, and seconds in which the upload has
/// to decide about the member. After that, the next request tries the member as well, so that a slow client cannot
/// keep a member out.
pub(crate) const UPLOAD_TRIAL_SECONDS: u64 = 10;
/// Milliseconds in which failures of one client count once for the ejection of a member. A client could otherwise
/// eject a member by a few requests for a page that fails. A request that took longer counts only if the member
/// answered no other request meanwhile.
pub(crate) const EJECTION_CLIENT_MILLISECONDS: u64 = 1_000;
/// Shortest row of failed requests that ejects a member, 1 s without any success. Three clients could otherwise eject a
/// member between two requests of other clients, by a page at which the member closes the connection.
pub(crate) const EJECTION_ROW_MILLISECONDS: u64 = 1_000;
/// Clients with failures that a member remembers until its next success, in 2 KiB. The failures of further clients all
/// count.
pub(crate) const EJECTION_CLIENTS_MAX: usize = 64;

// Members

/// Last changes of state kept for each member, for the manager page.
pub(crate) const STATE_CHANGES_MAX: usize = 16;
/// Silence of both directions after which a tunnel or an event stream gives way to a client without a tunnel, 60 s, while
/// all places of tunnels are taken. Applications with WebSockets mostly send a ping at least every 30 s.
pub(crate) const TUNNEL_SILENCE_MILLISECONDS: u64 = 60_000;
/// Redirects followed in one search for the member of a session. Members may redirect in a circle, and many
/// members may have one route.
pub(crate) const SESSION_REDIRECTS_MAX: usize = 32;
