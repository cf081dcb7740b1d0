//! Bounds of `cache`: the page cache.

/// Largest content stored in the page cache of a route without a configured size, 1 MiB. Pages are
/// smaller, and a larger content is a download. A larger content is passed through.
pub const CACHE_PAGE_BYTES: u64 = 1 << 20;
/// Responses stored for one URI, distinguished by the fields in Vary and by the permitted clients.
/// Beyond the bound the oldest response is dropped.
pub(crate) const CACHE_VARIANTS_MAX: usize = 32;
/// Seconds for which requests for a URI don't wait for each other's calls after the URI had a response
/// for one client alone.
pub(crate) const CACHE_HIT_FOR_PASS_SECONDS: u64 = 10;
/// URIs remembered as private, a few dozen bytes each. Beyond the bound the memory is cleared, and each
/// URI costs one more waiting call to be recognised again.
pub(crate) const CACHE_HIT_FOR_PASS_URIS_MAX: usize = 16_384;
/// Seconds without a further call of a handler that failed while a stale page exists. Requests get the
/// stale page meanwhile.
pub(crate) const CACHE_FAILED_SECONDS: u64 = 5;
/// Seconds that a call may refresh a stale page without a waiting client. The refreshed page
/// serves the next request, and a page has at most one refresh at a time. Beyond the bound the call ends.
pub(crate) const CACHE_REFRESH_UNATTENDED_SECONDS_MAX: u32 = 60;
/// Seconds that a call goes on after all waiting clients have left. A quick call is worth finishing. A
/// longer call would take a slot from waiting clients and ends.
pub(crate) const CACHE_FILL_ABANDONED_SECONDS_MAX: u32 = 2;
/// Seconds that a call goes on after all waiting clients have left, if more than half of a content of
/// known length has arrived.
pub(crate) const CACHE_FILL_ABANDONED_LATE_SECONDS_MAX: u32 = 10;
/// Seconds within which a content of unknown length must be complete, since other clients wait for the
/// content. A content that takes longer is not stored.
pub(crate) const CACHE_FILL_UNKNOWN_LENGTH_SECONDS_MAX: u64 = 30;
/// Bytes copied at a time out of a page that is still arriving, 16 KiB.
pub(crate) const CACHE_CHUNK_BYTES: usize = 16 * 1024;
/// Pages stored on the disk over a restart, 64 MiB: a slow disk writes as much within a few seconds.
/// Further pages are not stored.
pub(crate) const CACHE_DISK_BYTES_MAX: usize = 64 << 20;
