//! Bounds of `build`: files that a configuration names.

/// Bytes of a file of redirects, 16 MiB: over 100,000 lines. The table of the redirects is held in memory.
pub(crate) const REDIRECT_MAP_BYTES_MAX: u64 = 16 << 20;
/// Largest user file in bytes: some 100,000 users.
pub(crate) const USER_FILE_BYTES_MAX: u64 = 16 << 20;
/// Redirects in a row from one path of a site, as many as browsers follow. A longer row counts as endless.
pub(crate) const REDIRECT_HOPS_MAX: usize = 20;
