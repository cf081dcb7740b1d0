//! Bounds of the crate: globs, the parts of a release, and the store.

// Globs

/// Bytes of a glob of the operator, 1 KiB. The states of a match fit on the stack. A longer glob is a configuration
/// error.
pub const GLOB_BYTES_MAX: usize = 1_024;
/// Alternatives that the braces of one glob may multiply to. A glob with more alternatives is a configuration
/// error.
pub const GLOB_ALTERNATIVES_MAX: usize = 64;

// Releases

/// Bytes of a manifest, 32 MiB: 250,000 files with long names. A larger manifest is refused before it is read.
pub const MANIFEST_BYTES_MAX: usize = 32 << 20;
/// Files of a release.
pub const RELEASE_FILES_MAX: usize = 250_000;
/// Folders of a release. A path of 100 bytes may name 50 folders, and each folder of a site takes more memory than its name
/// in the manifest.
pub const RELEASE_FOLDERS_MAX: usize = 250_000;
/// Rules of a manifest: error pages, cache ages, fields and redirects together. A site moved from another host brings
/// thousands of redirects.
pub const RELEASE_RULES_MAX: usize = 20_000;
/// Cache ages of a release. Each load of a file looks for the first glob that matches the file.
pub const RELEASE_CACHE_AGES_MAX: usize = 1_000;
/// Bytes of a glob in a release. The cost of a match grows with the length of the glob, and a publisher may not slow down
/// the other sites of the server.
pub const RELEASE_GLOB_BYTES_MAX: usize = 256;
/// Alternatives that the braces of one glob in a release may multiply to. Each branch costs a match some steps.
pub const RELEASE_GLOB_ALTERNATIVES_MAX: usize = 8;
/// Globs with wildcards or braces in a release. Each load of a file matches all of the globs with the path, which may take
/// 10 ms with the longest globs and paths. A glob without wildcards costs a comparison of two texts.
pub const RELEASE_PATTERNS_MAX: usize = 128;
/// Bytes of the name of a response field in a release. The longest registered names have about 50 bytes.
pub const RELEASE_FIELD_NAME_BYTES_MAX: usize = 128;
/// Bytes of the value of a response field in a release, 8 KiB: a long Content-Security-Policy fits. Browsers and proxies
/// take response heads of 16 KiB and more together.
pub const RELEASE_FIELD_VALUE_BYTES_MAX: usize = 8 * 1024;
/// Bytes of the names and values of all response fields for globs with wildcards, 16 KiB: all of them may apply to one
/// file. The fields for one path or one name without wildcards may have as many bytes again.
pub const RELEASE_FIELDS_BYTES_MAX: usize = 16 * 1024;
/// Bytes of the destination of a redirect, 2 KiB, in a release and in a redirect map. Longer URLs do not work in all
/// clients.
pub const REDIRECT_DESTINATION_BYTES_MAX: usize = 2 * 1024;
/// Redirects of a release with text behind the `*`. Each request that matches the text before the `*` tries such
/// redirects one by one.
pub const RELEASE_INNER_STARS_MAX: usize = 100;
/// Bytes of a name in a release, as on Linux file systems.
pub const RELEASE_NAME_BYTES_MAX: usize = 255;
/// Bytes of a path in a release, as on Linux.
pub const RELEASE_PATH_BYTES_MAX: usize = 4_095;
/// Bytes of all contents of a release together, 1 TiB, far beyond the disks of small servers. The bound keeps sums
/// within 64 bits.
pub const RELEASE_BYTES_MAX: u64 = 1 << 40;
/// Seconds of a cache age in a release, 10 years.
pub const RELEASE_CACHE_SECONDS_MAX: u64 = 10 * 366 * 24 * 60 * 60;
/// Bytes of a pointer to a release, 4 KiB. The longest pointer has less than 1 KiB.
pub const RELEASE_POINTER_BYTES_MAX: usize = 4 * 1024;
/// Bytes of the name of a site, of a label or of a publisher in the store of releases. The names are file names.
pub const RELEASE_LABEL_BYTES_MAX: usize = 63;
/// Least bytes of the identity of a site in a signed pointer, 16. A shorter text could be the same on two sites by chance.
pub const SITE_ID_BYTES_MIN: usize = 16;
/// Bytes of the payload of a frame between a publisher and a receiver, 64 KiB.
pub const RECEIVE_FRAME_BYTES_MAX: usize = 64 * 1024;

// Store

/// Releases of a site that stay in the store: the served release and 9 older releases for a rollback.
pub const RELEASES_KEPT_MAX: usize = 10;
/// Seconds for which each release of a site stays in the store after its replacement, 1 day. A browser with an open page
/// asks for contents of an older release within that time.
pub const RELEASES_KEPT_SECONDS: u64 = 24 * 60 * 60;
/// Bytes of all retained releases of a site, 4 GiB, half of a small memory card. Beyond the bound only the served, the
/// pinned and the labelled releases stay.
pub const RELEASES_KEPT_BYTES_MAX: u64 = 4 << 30;
/// Bytes of a manifest from which the store has a list of its contents for sweeps, 64 KiB: about 600 files. A shorter manifest
/// is read in less than 1 ms.
pub const MANIFEST_LISTED_BYTES_MIN: u64 = 64 * 1024;
/// Bytes of the buffer for reading and hashing of contents, 64 KiB.
pub const STORE_BUFFER_BYTES: usize = 64 * 1024;
/// Names of a folder of the store that are read, 1,000,000. A longer folder is an error.
pub const STORE_NAMES_MAX: usize = 1_000_000;
/// New files, and folders with new files, that a publisher syncs one by one, 64. With more files one sync of the whole
/// file system takes less time.
pub const STORE_FSYNC_MAX: usize = 64;
/// Bytes that each file of a store counts for the quota at least, 4 KiB: a file takes a block of the disk.
pub const STORE_FILE_BYTES_MIN: u64 = 4 * 1024;
/// Parts of contents that ended sessions of one publisher of a site leave for the next session, 4. A broken connection
/// leaves one part of its session, and few publishers send more than four releases at once.
pub const KEPT_DRAFTS_MAX: usize = 4;
/// Labels of one owner for a site, and pins of a site, 1,000 each. The releases with a label or a pin are never swept. The
/// bound counts the labels of each owner apart, so that no publisher takes the room of another one.
pub const STORE_MARKS_MAX: usize = 1_000;
/// Least number of hexadecimal digits that name a release in a command, 4. A label has another character, or fewer digits.
pub const RELEASE_DIGITS_MIN: usize = 4;
/// Seconds without progress of an upload after which its reservation of bytes lapses for other sessions, 60 s. A publisher
/// sends the contents without a pause, and a connection over a bad network recovers within that time.
pub const RESERVATION_SECONDS_MAX: u64 = 60;
/// Seconds without a reservation after which a publisher may reserve again as if it had made progress, 10 minutes. A
/// publisher that only reserves, and connects again each time, holds the bytes for a tenth of the time.
pub const RESERVATION_RENEWAL_SECONDS: u64 = 600;
/// Bytes of an upload that count as progress of its reservation, 1 MiB: 17 kB a second, less than any connection of today. A
/// slower upload goes on without a reservation of the whole.
pub const RESERVATION_PROGRESS_BYTES_MIN: u64 = 1 << 20;
/// Trials of a sweep to get the store for itself, 200, each [`SWEEP_PAUSE_MILLISECONDS`] after the one before: 1 s together.
/// A session has the store for the time of one request.
pub const SWEEP_TRIALS_MAX: usize = 200;
/// Milliseconds between two trials of a sweep, 5 ms.
pub const SWEEP_PAUSE_MILLISECONDS: u64 = 5;

// Acknowledgment

/// Milliseconds for which a receiver waits until the server serves a new release, 5 s. A server opens 100,000 files in a
/// part of a second.
pub const RECEIVE_SERVED_MILLISECONDS_MAX: u64 = 5_000;
/// Milliseconds for which a receiver waits for the first acknowledgment of a site, 1 s: perhaps no server runs.
pub const RECEIVE_FIRST_SERVED_MILLISECONDS_MAX: u64 = 1_000;
/// Milliseconds between two looks at the acknowledgment of the server, 2 ms: the wait is a part of the time of a publication.
pub const RECEIVE_SERVED_PAUSE_MILLISECONDS: u64 = 2;

// Folders

/// Depth of nested folders followed in a site or unpacked in a deployment: a loop of links must end. A
/// scan leaves out deeper folders and logs a warning, and a deployment fails.
pub const FOLDER_DEPTH_MAX: usize = 64;
