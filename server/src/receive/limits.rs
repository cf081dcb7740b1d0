//! Bounds of `receive`: contents on their way, and silence of a publisher.

/// Bytes of completed contents, 64 MiB, after which a receiver writes the contents to the disk. A receiver that is killed
/// loses no more.
pub(crate) const RECEIVE_UNSYNCED_BYTES_MAX: u64 = 64 << 20;
/// Completed contents, 4,096, after which a receiver writes the contents to the disk, even of few bytes. The names of the
/// contents are in memory until then.
pub(crate) const RECEIVE_UNSYNCED_CONTENTS_MAX: usize = 4_096;
/// Seconds without a byte from a publisher, or without room for an answer, after which a receiver ends the session,
/// 30 minutes. A publisher of a large site compresses texts for minutes between two requests.
pub(crate) const RECEIVE_IDLE_SECONDS_MAX: u64 = 30 * 60;
/// Bytes of a manifest on its way, and of a difference on its way, that a session holds in memory, 512 KiB each. The rest
/// goes to a draft until the digest of the manifest is verified.
pub(crate) const RECEIVE_MANIFEST_MEMORY_BYTES_MAX: usize = 512 * 1024;
/// Gzip contents of one text that `verify` decodes, 4: a publisher makes 1. A small gzip content decodes to a text of a
/// thousand times its size, so the work must not grow with the lines of a manifest.
pub(crate) const GZIP_CONTENTS_VERIFIED_MAX: usize = 4;
