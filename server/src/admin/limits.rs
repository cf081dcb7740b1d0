//! Bounds of `admin`: edits of balancers and members, the history of the counters, and the problems of a status.

// Edits

/// Entries of the history of edits. A few hundred bytes each; enough for months of daily edits. The oldest
/// entry makes room for a new entry, and its edit stays in force.
pub(crate) const EDIT_HISTORY_ENTRIES_MAX: usize = 1_000;
/// Edits in force. The state file is written whole for each edit, and stays below 1 MiB. Further edits are
/// refused.
pub(crate) const EDITS_IN_FORCE_MAX: usize = 4_096;
/// Bytes of the text of an edited value.
pub(crate) const EDIT_TEXT_BYTES_MAX: usize = 1_024;
/// Bytes of an unknown name in an error, enough to recognise a typing error.
pub(crate) const UNKNOWN_NAME_BYTES_MAX: usize = 64;
/// Values in one command of edits. A form has a few more than a dozen.
pub(crate) const EDIT_VALUES_MAX: usize = 64;
/// Edits that are left out one by one to find the edit that a new configuration makes impossible. Each attempt
/// parses a balancer of up to 1,000 members, which takes a few milliseconds.
pub(crate) const EDIT_SUSPECTS_MAX: usize = 64;
/// Longest `queue_timeout` of an edit in seconds, as in Apache's balancer-manager.
pub(crate) const EDIT_QUEUE_TIMEOUT_SECONDS_MAX: u64 = 7_200;
/// Longest `check_interval` of an edit in seconds: a day. Checks at longer intervals find no failure in time.
pub(crate) const EDIT_CHECK_INTERVAL_SECONDS_MAX: u64 = 86_400;

// Requests under way

/// Requests under way in a list, the oldest first: far more than an operator reads, in at most 40 KB. The table of a
/// worker is locked during the copies, so the bound also limits the wait of the worker.
pub(crate) const ACTIVE_REQUESTS_LISTED_MAX: usize = 100;

// History of the counters

/// Interval of the samples of the counters. A chart of the last minutes shows each change of 5 s or more.
pub(crate) const HISTORY_INTERVAL_SECONDS: u64 = 5;
/// Samples of the counters, for the last 20 minutes. The samples take 13 KiB.
pub(crate) const HISTORY_SAMPLES_MAX: usize = 240;
/// Members of balancers with samples of requests and errors. The samples of a member take 2 KiB.
pub(crate) const HISTORY_MEMBERS_MAX: usize = 200;

// Problems and status

/// Days until the end of an automatically renewed certificate below which the page warns, 1. Certificates are renewed
/// at two thirds of their lifetime, and the shortest have a lifetime of 6 days.
pub(crate) const MANAGER_CERTIFICATE_RENEWED_DAYS_MIN: i64 = 1;
/// Temperature in thousandths of a degree Celsius, 80 degrees, from which the page warns. A Raspberry Pi lowers its
/// frequency from this temperature on.
pub(crate) const MANAGER_TEMPERATURE_MILLIDEGREES_MAX: i64 = 80_000;
/// Use of a limited resource in percent, 90 %, from which the page warns.
pub(crate) const MANAGER_USE_WARNING_PERCENT: u64 = 90;
/// Seconds for which the status warns of a restart by the supervisor, a day.
pub(crate) const RESTART_WARNED_SECONDS: u64 = 86_400;
/// Members among the problems at the top of the page. The tables of the balancers below have all members.
pub(crate) const MANAGER_PROBLEMS_MAX: usize = 20;
/// Sites and certificates in the text of `anthill status`, 30 of each, so that the text of a server with 1,000 sites stays
/// on a few screens.
pub(crate) const STATUS_ROWS_MAX: usize = 30;
