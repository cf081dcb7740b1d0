//! Bounds of `site`: contents, scans and directory listings.

// Contents, compression and descriptors

/// Largest automatic value of `memory_max`, the memory for contents and caches: 256 MiB. Without a
/// configured value the server takes an eighth of the machine's memory, up to the bound.
pub const MEMORY_BYTES_MAX: u64 = 256 << 20;
/// Smallest budget for contents of files, 2 MiB. A page just loaded must outlive the load of a few
/// other pages, or the request that caused the load would no longer find the page.
pub(crate) const CONTENT_BUDGET_BYTES_MIN: usize = 2 << 20;
/// Largest file with content kept in memory, 128 KiB. A larger file is sent from its descriptor.
pub(crate) const CONTENT_FILE_BYTES_MAX: u64 = 128 * 1024;
/// Smallest body sent by sendfile over plain HTTP, 8 KiB. The system call copies no bytes into the
/// process.
pub(crate) const SENDFILE_BYTES_MIN: u64 = 8 * 1024;
/// Largest file with a digest of the content as ETag, 1 MiB. The ETag of a larger file consists of size
/// and modification time.
pub(crate) const DIGEST_FILE_BYTES_MAX: u64 = 1 << 20;
/// Smallest text that is compressed, 512 bytes. A smaller text fits into one packet anyway.
pub(crate) const GZIP_FILE_BYTES_MIN: u64 = 512;
/// Largest text compressed in the background, 4 MiB. A larger text is sent uncompressed unless a
/// compressed sidecar file stands beside it.
pub(crate) const GZIP_FILE_BYTES_MAX: u64 = 4 << 20;
/// Files queued for compression. A file beyond the bound is queued again by a later request.
pub(crate) const GZIP_QUEUE_MAX: usize = 1_024;
/// Descriptors of files kept open between requests, for all sites together. A process may open 1,024
/// descriptors by default, and connections need most of them. Beyond the bound, another descriptor is
/// closed first.
pub(crate) const DESCRIPTORS_KEPT_MAX: usize = 256;

/// Seconds for which a content of a release that differs from its digest stays refused without another look. Each look
/// reads the whole content, and clients could otherwise keep the disk busy with a large one.
pub(crate) const WRONG_CONTENT_SECONDS: u32 = 30;

/// Seconds for which caches may keep a file with a hash of the content in its name: 1 year, the longest age of common
/// practice.
pub(crate) const HASHED_SECONDS: u64 = 31_536_000;
/// Previews of a site that are open at once, 4. Each open preview holds a tree, and the memory of the loaded files is
/// shared with all sites.
pub const PREVIEWS_OPEN_MAX: usize = 4;
/// Bytes of all previews together that are open without a login, 64 MiB in all sites: a preview of 250,000 files takes
/// 35 MB. Previews that a login opened do not count.
pub const PREVIEWS_BYTES_MAX: usize = 64 << 20;
/// Seconds after its opening for which a preview does not give way to a preview without a login, 60 s. Clients that want
/// more previews than fit would otherwise have the server open previews all the time. So 4 previews of a site are opened
/// in a minute, and 64 MiB of all sites.
pub const PREVIEW_STAY_SECONDS: u64 = 60;
/// Previews of a site that wait until an open preview may be closed, 64 in 3 KB. Each preview waits in one place, and the
/// preview that was requested first is opened first.
pub(crate) const PREVIEWS_WANTED_MAX: usize = 64;
/// Pause before the next trial to open a preview without a login, 1 s, after a trial that found no room. A request for a
/// closed preview costs the control plane nothing meanwhile.
pub(crate) const PREVIEW_RETRY_MILLISECONDS: u64 = 1_000;
/// Sizes of previews that did not fit, 1,000 in 40 KB. A known size refuses a preview without another look at the store.
pub const PREVIEW_SIZES_REMEMBERED_MAX: usize = 1_000;
/// Least number of hexadecimal digits of a release in the name of a preview, 16: 64 bits cannot be guessed by requests.
pub const PREVIEW_ID_DIGITS_MIN: usize = 16;
/// Steps of matching globs, 100 million, for which the rules of two releases are compared file by file. Files after
/// that do not stay loaded over the change of the release.
pub(crate) const RELEASE_COMPARED_STEPS_MAX: u64 = 100_000_000;

// Earlier releases

/// Files with a hash in the name of earlier releases that a site answers for open pages, 20,000 in all releases together,
/// in a running server as after a start. The bound limits the memory to some 6 MB.
pub(crate) const RETAINED_FILES_MAX: usize = 20_000;
/// Bytes of the paths of retained files of a site, 2 MiB: 100 bytes for each of 20,000 files. A path may have 4 KiB.
pub(crate) const RETAINED_PATH_BYTES_MAX: usize = 2 << 20;
/// Publications of the last day that the start of a site looks at for retained files, 10,000. With `publishers`, the
/// signature of each one costs some 0.1 ms.
pub(crate) const RETAINED_PUBLICATIONS_MAX: usize = 10_000;
/// Bytes of the manifests of earlier releases that are read at the start of a site, 32 MiB. The bound limits the time of
/// a start on a slow machine.
pub(crate) const RETAINED_MANIFEST_BYTES_MAX: u64 = 32 << 20;
/// Withdrawn releases of a site that the server remembers beside the store, 1,000 in 65 KB.
pub(crate) const RELEASES_REMEMBERED_MAX: usize = 1_000;

// Scans and directory listings

/// Folders reached through symbolic links in one scan, since links that cross each other multiply.
/// Further folders are left out with a warning in the log.
pub(crate) const LINKED_FOLDERS_MAX: usize = 4_096;
/// Symbolic links followed while one path is opened, as many as the kernel follows. A path with more
/// links can't be opened.
pub const LINK_HOPS_MAX: usize = 40;
/// Seconds without a change after which a file that a process has open for writing is served as the file stands, 2 s. A
/// process that writes a file once rarely pauses for as long, and the reader of a log seldom has to wait for more.
pub const OPEN_FILE_QUIET_SECONDS: u64 = 2;
/// Files that a process has open for writing since their creation, watched until they have been unchanged for
/// [`OPEN_FILE_QUIET_SECONDS`]. A further file is found by the first request for the file.
pub const OPEN_FILES_WATCHED_MAX: usize = 1_024;
/// Shortest time between two stat(2) calls for one stored file, about the duration of one turn of a
/// busy worker. Within the interval the file counts as unchanged.
pub(crate) const FILE_STAT_INTERVAL_MICROSECONDS_MIN: u64 = 100;
/// Period of stat(2) checks of a stored page, as a power of two: 2^12 ms, or 4.1 s. The kernel doesn't
/// report every change: writes through a hard link outside of the root, below the lower layer of an
/// overlay, or by another machine on a network file system go unreported. For one file the check costs
/// 2 system calls in 4.1 s, regardless of the number of requests. A power of two spares each request a
/// division.
pub(crate) const FILE_STAT_PERIOD_MILLISECONDS_LOG2: u32 = 12;
/// Paths remembered as changed without a report by inotify, until the control plane rescans the paths.
/// Further paths are not remembered. A later request finds the change again.
pub(crate) const STALE_PATHS_MAX: usize = 64;
/// Entries on one page of a directory listing. The remaining entries follow on further pages.
pub(crate) const LISTING_PAGE_ENTRIES: usize = 1_000;
/// Largest README shown below a directory listing, 32 KiB. The README is rendered for each request.
pub(crate) const LISTING_README_BYTES_MAX: u64 = 32 * 1024;
/// Largest README of a directory listing as HTML, 128 KiB. Markup turns each byte into a few bytes at most, so only
/// hostile content reaches the bound, and the README is left out.
pub(crate) const LISTING_README_HTML_BYTES_MAX: usize = 128 * 1024;
/// Size of one chunk of a directory listing, 16 KiB. A listing is generated chunk by chunk while the
/// client reads.
pub(crate) const LISTING_CHUNK_BYTES: usize = 16 * 1024;

/// Earliest modification time that is sent as Last-Modified: the 2nd of January 1980. Tools for reproducible builds give
/// all files one time, mostly the beginning of the Unix clock (1970) or of the DOS clock (1980), so the time does not
/// tell two contents apart.
pub(crate) const LAST_MODIFIED_SECONDS_MIN: u64 = 315_619_200;
