//! Bounds of `backup`: archives.

/// Entries of a backup, 2,000,000. The names are in memory while the archive is read. Further entries
/// are an error.
pub(crate) const BACKUP_ENTRIES_MAX: u64 = 2_000_000;
/// Depth of nested folders in a backup. Each level has an open descriptor while it is saved. A deeper
/// folder is an error.
pub(crate) const BACKUP_DEPTH_MAX: usize = 128;
/// Largest file kept in memory while it is saved, 1 MiB. A larger file is copied to a temporary file
/// beside the archive.
pub(crate) const BACKUP_MEMORY_BYTES: u64 = 1 << 20;
/// Attempts to read a file that changes during the read. After the last attempt the backup fails.
pub(crate) const BACKUP_TRIES_MAX: u32 = 20;
/// Listings of a folder that changes while it is listed, 8. Each can miss a file that is replaced meanwhile; hardly one
/// is missed by all.
pub(crate) const BACKUP_LISTINGS_MAX: u32 = 8;
/// Bytes of a backup's own entries, 64 MiB: the manifest and the hit counts. Counts of 10,000 pages
/// take a few megabytes. A longer entry is an error.
pub(crate) const BACKUP_METADATA_BYTES_MAX: u64 = 64 << 20;
