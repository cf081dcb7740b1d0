//! Bounds of `world`: logins.

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
pub(crate) const LOGIN_CLIENTS_MAX: usize = 4_096;
/// Seconds for which a successful login vouches for its client: a repeated login is no guess, and the
/// client precedes other clients in the queue for password hashes.
pub(crate) const LOGIN_TRUSTED_SECONDS: u64 = 3_600;
/// Seconds for which a wrong login counts against its neighbourhood in the queue for password hashes, 10 minutes. A program
/// with the 256 addresses of a network fills the queue until the first of its logins is found wrong; then clients of other
/// networks go first.
pub(crate) const LOGIN_FAILED_SECONDS: u64 = 600;
/// Seconds for which the result of a checked login, right or wrong, is remembered. A later login is
/// checked again.
pub(crate) const LOGIN_REMEMBERED_SECONDS: u64 = 60;
/// Results of logins remembered at the same time. Beyond the bound, results of wrong logins are
/// forgotten first.
pub(crate) const LOGINS_MAX: usize = 4_096;
/// Bytes of a password. The cost of some hash schemes grows with the square of the length, so a longer
/// password counts as wrong and is not hashed.
pub const PASSWORD_BYTES_MAX: usize = 512;
