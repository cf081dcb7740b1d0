//! Bounds of `config`: values of `anthill.toml`. A value beyond a bound is refused, since the value is a
//! typing mistake.

/// Longest duration of a proxy or balancer in seconds, one year: practically unlimited, and safe from
/// overflow.
pub(crate) const CONFIG_DURATION_SECONDS_MAX: u64 = 31_536_000;
/// Members of one balancer, more than any machine with one address can keep busy.
pub(crate) const CONFIG_MEMBERS_MAX: usize = 1_000;
/// Connections, idle connections or waiting requests of one member, above the open files that a process may
/// have on common systems.
pub(crate) const CONFIG_MEMBER_CONNECTIONS_MAX: usize = 1_000_000;
/// Number of a member's last set, as in Apache.
pub(crate) const CONFIG_MEMBER_SET_MAX: u8 = 99;
/// Checks in a row that change the state of a member, and failures in a row that eject a member. Beyond the
/// bound a dead member would get requests for hours.
pub(crate) const CONFIG_IN_A_ROW_MAX: u32 = 1_000;
/// Retries of one request, as in Apache.
pub(crate) const CONFIG_RETRY_ATTEMPTS_MAX: u8 = 99;
/// Errors of one configuration that a message shows: more than an operator mends before the next check.
pub(crate) const CONFIG_ERRORS_SHOWN_MAX: usize = 50;
/// Entries of one served folder that a check looks at. A check answers within a moment, also for a folder with millions of
/// files.
pub(crate) const CONFIG_CHECKED_ENTRIES_MAX: usize = 10_000;
/// Files of one served folder whose first bytes a check reads, for the rules of `encodings`.
pub(crate) const CONFIG_CHECKED_FILES_MAX: usize = 1_000;
/// Patterns of one `hide`. A scan compares the name of each file with each pattern.
pub(crate) const CONFIG_HIDE_GLOBS_MAX: usize = 64;
/// Patterns of one `bypass_cookies`. Each request with cookies compares the name of each cookie with each pattern.
pub(crate) const CONFIG_COOKIE_GLOBS_MAX: usize = 64;
/// Files of one configuration. A larger number is a pattern of `include` that matches too much.
pub(crate) const CONFIG_FILES_MAX: usize = 10_000;
/// Bytes of all files of one configuration, 64 MiB: the files are kept in memory, for messages with their lines.
pub(crate) const CONFIG_ALL_FILES_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Requests of a client in one period, and at once: more than a client can send in a second.
pub(crate) const CONFIG_RATE_REQUESTS_MAX: u32 = 1_000_000;
/// Period of a request rate in seconds, one day. Counts are lost with a restart, so a longer period would not hold.
pub(crate) const CONFIG_RATE_PERIOD_SECONDS_MAX: u64 = 86_400;
/// Seconds for which browsers may remember the answer to a preflight, one day: no browser remembers an answer longer.
pub(crate) const CONFIG_CORS_SECONDS_MAX: u64 = 86_400;
