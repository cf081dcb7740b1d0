//! Bounds of `deploy`: trees and git processes.

/// Former trees kept beside the served tree. Responses under way still read the last tree, and an
/// operator may want to inspect a tree. Older trees are removed.
pub(crate) const DEPLOYED_TREES_KEPT: usize = 2;
/// Symbolic links in a deployed tree. The names of all links are remembered until all targets are
/// known. A tree with more links is refused.
pub(crate) const DEPLOY_LINKS_MAX: usize = 4_096;
/// Files of a tree that is synced file by file, a few milliseconds each. For a larger tree the whole
/// file system is synced.
pub(crate) const DEPLOY_FSYNC_FILES_MAX: u64 = 100;
/// Seconds without output after which a git process of a deployment is ended.
pub(crate) const DEPLOY_SILENT_SECONDS: u64 = 60;
/// Memory of git for an archive, 512 MiB. Git reads a file with substitutions whole, and a file stored
/// as a delta as well. Pushed files may have any size. Beyond the bound, allocations of the process
/// fail.
pub(crate) const DEPLOY_MEMORY_BYTES: u64 = 512 << 20;
/// Seconds for all first deployments together, before the server starts without the missing trees. Init
/// systems end a service that isn't ready after about a minute.
pub(crate) const DEPLOY_FIRST_SECONDS: u64 = 10;
/// Seconds that an abandoned first deployment has to clean up. After the bound the server starts
/// without waiting.
pub(crate) const DEPLOY_CLEANUP_SECONDS_MAX: u64 = 2;
/// Bytes of git's standard error kept for the log, 4 KiB. Further output is dropped.
pub(crate) const DEPLOY_STDERR_BYTES_MAX: usize = 4 * 1024;
