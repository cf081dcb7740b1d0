//! Bounds of `store`: retention of releases, and listings of folders.

/// Releases of a site that stay in the store: the served release and 9 older releases for a rollback.
pub const RELEASES_KEPT_MAX: usize = 10;
/// Seconds for which each release of a site stays in the store after its replacement, 1 day. A browser with an open page
/// asks for contents of an older release within that time.
pub const RELEASES_KEPT_SECONDS: u64 = 24 * 60 * 60;
/// Bytes of all retained releases of a site, 4 GiB, half of a small memory card. Beyond the bound only the served, the
/// pinned and the labelled releases stay.
pub const RELEASES_KEPT_BYTES_MAX: u64 = 4 << 30;
/// Files with a hash in the name of earlier releases that a site answers for open pages, 20,000 in all releases together,
/// in a running server as after a start. The bound limits the memory to some 6 MB.
pub const RETAINED_FILES_MAX: usize = 20_000;
/// Bytes of the paths of retained files of a site, 2 MiB: 100 bytes for each of 20,000 files. A path may have 4 KiB.
pub const RETAINED_PATH_BYTES_MAX: usize = 2 << 20;
/// Publications of the last day that the start of a site looks at for retained files, 10,000. With `publishers`, the
/// signature of each one costs some 0.1 ms.
pub const RETAINED_PUBLICATIONS_MAX: usize = 10_000;
/// Bytes of the manifests of earlier releases that are read at the start of a site, 32 MiB. The bound limits the time of
/// a start on a slow machine.
pub const RETAINED_MANIFEST_BYTES_MAX: u64 = 32 << 20;
/// Bytes of the buffer for reading and hashing of contents, 64 KiB.
pub const STORE_BUFFER_BYTES: usize = 64 * 1024;
/// Names of a folder of the store that are read, 1,000,000. A longer folder is an error.
pub const STORE_NAMES_MAX: usize = 1_000_000;
/// New files, and folders with new files, that a publisher syncs one by one, 64. With more files one sync of the whole
/// file system takes less time.
pub const STORE_FSYNC_MAX: usize = 64;
/// Milliseconds for which a receiver waits until the server serves a new release, 5 s. A server opens 100,000 files in a
/// part of a second.
pub const RECEIVE_SERVED_MILLISECONDS_MAX: u64 = 5_000;
/// Milliseconds for which a receiver waits for the first acknowledgment of a site, 1 s: perhaps no server runs.
pub const RECEIVE_FIRST_SERVED_MILLISECONDS_MAX: u64 = 1_000;
/// Milliseconds between two looks at the acknowledgment of the server, 2 ms: the wait is a part of the time of a publication.
pub const RECEIVE_SERVED_PAUSE_MILLISECONDS: u64 = 2;
/// Bytes of completed contents, 64 MiB, after which a receiver writes the contents to the disk. A receiver that is killed
/// loses no more.
pub const RECEIVE_UNSYNCED_BYTES_MAX: u64 = 64 << 20;
/// Completed contents, 4,096, after which a receiver writes the contents to the disk, even of few bytes. The names of the
/// contents are in memory until then.
pub const RECEIVE_UNSYNCED_CONTENTS_MAX: usize = 4_096;
/// Seconds without a byte from a publisher, or without room for an answer, after which a receiver ends the session,
/// 30 minutes. A publisher of a large site compresses texts for minutes between two requests.
pub const RECEIVE_IDLE_SECONDS_MAX: u64 = 30 * 60;
/// Seconds without a frame from a publisher after which its reservation of bytes lapses for other sessions, 60 s. A
/// publisher sends the contents without a pause, and a connection over a bad network recovers within that time.
pub const RESERVATION_SILENCE_SECONDS_MAX: u64 = 60;
/// Bytes that each file of a store counts for the quota at least, 4 KiB: a file takes a block of the disk.
pub const STORE_FILE_BYTES_MIN: u64 = 4 * 1024;
/// Labels of one owner for a site, and pins of a site, 1,000 each. The releases with a label or a pin are never swept. The
/// bound counts the labels of each owner apart, so that no publisher takes the room of another one.
pub const STORE_MARKS_MAX: usize = 1_000;
/// Least number of hexadecimal digits that name a release in a command, 4. A label has another character, or fewer digits.
pub const RELEASE_DIGITS_MIN: usize = 4;
/// Withdrawn releases of a site that the server remembers beside the store, 1,000 in 65 KB.
pub const RELEASES_REMEMBERED_MAX: usize = 1_000;
/// Bytes of a manifest on its way, and of a difference on its way, that a session holds in memory, 512 KiB each. The rest
/// goes to a draft until the digest of the manifest is verified.
pub const RECEIVE_MANIFEST_MEMORY_BYTES_MAX: usize = 512 * 1024;
/// Trials of a sweep to get the store for itself, 200, each [`SWEEP_PAUSE_MILLISECONDS`] after the one before: 1 s together.
/// A session has the store for the time of one request.
pub const SWEEP_TRIALS_MAX: usize = 200;
/// Milliseconds between two trials of a sweep, 5 ms.
pub const SWEEP_PAUSE_MILLISECONDS: u64 = 5;
