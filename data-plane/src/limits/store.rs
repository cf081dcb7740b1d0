//! Bounds of `store`: retention of releases, and listings of folders.

/// Releases of a site that stay in the store: the served release and 9 older releases for a rollback.
pub const RELEASES_KEPT_MAX: usize = 10;
/// Seconds for which all releases of a site stay in the store, 1 day. A browser with an open page asks for contents of
/// an older release within that time.
pub const RELEASES_KEPT_SECONDS: u64 = 24 * 60 * 60;
/// Bytes of all retained releases of a site, 4 GiB, half of a small memory card. Beyond the bound only the served, the
/// pinned and the labelled releases stay.
pub const RELEASES_KEPT_BYTES_MAX: u64 = 4 << 30;
/// Bytes of the buffer for reading and hashing of contents, 64 KiB.
pub const STORE_BUFFER_BYTES: usize = 64 * 1024;
/// Names of a folder of the store that are read, 1,000,000. A longer folder is an error.
pub const STORE_NAMES_MAX: usize = 1_000_000;
/// Seconds after a rename for which the folder of an unchanged content is synced again, 10 minutes. A publisher that was
/// killed leaves renamed contents in folders without a sync, and file systems write such folders within a minute.
pub const STORE_UNSYNCED_SECONDS: u64 = 10 * 60;
/// Seconds for which a receiver waits until the server serves a new release.
pub const RECEIVE_SERVED_SECONDS_MAX: u64 = 30;
/// Milliseconds between two looks at the statement of the server, 2 ms: the wait is a part of the time of a publication.
pub const RECEIVE_SERVED_PAUSE_MILLISECONDS: u64 = 2;
