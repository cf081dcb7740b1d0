//! Bounds of `git`: calls, pushes and pages of repositories.

use data_plane::limits::PIPE_BYTES;

// Git over HTTP

/// Bytes of git's ref advertisement read before the response starts, 64 KiB. A repository that can't be
/// read fails within the buffer, and the client gets an error instead of a truncated response.
pub(crate) const GIT_REFS_BUFFER_BYTES: usize = PIPE_BYTES;
/// Memory of each git process for a clone, a fetch or a push, 2 GiB. Memory-mapped packs don't count. A
/// clone of the Linux kernel (11 million objects) takes a little over 1 GiB, and so does a push of a
/// changed file of 500 MB. Beyond the bound, allocations of the process fail.
pub const GIT_EXCHANGE_MEMORY_BYTES: u64 = 2 << 30;
/// Processor seconds of each git process for a clone, a fetch or a push. A clone of the Linux kernel
/// without bitmaps takes about 2 minutes, and a push of 1 GiB as long. A repository that was never
/// packed takes several times as long. The kernel ends a process beyond the bound.
pub const GIT_EXCHANGE_CPU_SECONDS: u64 = 1_800;
/// Seconds that git gets to remove the received objects of an aborted push after the end of its input.
pub(crate) const GIT_END_SECONDS: u64 = 30;
/// Bytes of a client's Git-Protocol field: `version=2`, and room for future values. A longer value is
/// ignored.
pub(crate) const GIT_PROTOCOL_BYTES_MAX: usize = 256;
/// Seconds that the body of a push may pause. A client lists its objects in a few bytes and may then
/// take minutes to pack a large object. A client that pushes has logged in.
pub(crate) const PUSH_PAUSE_SECONDS: u64 = 300;
/// Seconds that the response to a push waits for the deployment. Proxies and users give up soon after.
/// Beyond the bound, the response ends and the deployment goes on.
pub(crate) const PUSH_RESPONSE_WAIT_SECONDS_MAX: u64 = 120;
/// Interval of keep-alive packets to the client while the response to a push waits for the deployment,
/// as git itself sends them.
pub(crate) const PUSH_KEEP_ALIVE_SECONDS: u64 = 5;

// Git web pages, processes and queues

/// Seconds that git may take for one page of a repository. A log of a path through a long history takes
/// seconds. Beyond the bound, git is ended.
pub(crate) const GIT_PAGE_SECONDS: u64 = 30;
/// Memory of git for one page, 256 MiB. A few objects that name each other make a tree of more files
/// than there are atoms, and any client with push access can create such objects. Beyond the bound,
/// allocations of the process fail.
pub(crate) const GIT_PAGE_MEMORY_BYTES: u64 = 256 << 20;
/// Processor seconds of git for a page or a download. To compress 1 GB takes half of the bound. The
/// kernel ends a process beyond the bound.
pub(crate) const GIT_CPU_SECONDS: u64 = 120;
/// Seconds that a client may take to receive a snapshot, 15 minutes. Git is at work for the whole
/// download. A slower download is broken off.
pub(crate) const GIT_SNAPSHOT_SECONDS: u64 = 15 * 60;
/// Bytes of a raw file or snapshot read before the response head is sent, 64 KiB. Within the buffer the
/// media type becomes known, and an error of git can still become an error response.
pub(crate) const GIT_STREAM_BUFFER_BYTES: usize = 64 * 1024;
/// Pages made by git at the same time, and as many downloads, and at most a quarter of `scripts` of
/// each. The remaining slots are for clones. Further requests wait in the queue.
pub(crate) const GIT_PAGES_AT_ONCE_MAX: usize = 4;
/// Expensive pages made by git at the same time, and as many snapshots, and at most an eighth of
/// `scripts` of each. Further requests wait in the queue.
pub(crate) const GIT_HEAVY_PAGES_AT_ONCE_MAX: usize = 2;
/// Addresses with counted page rates. Beyond the bound, addresses below their rate are forgotten first.
pub(crate) const GIT_RATED_ADDRESSES_MAX: usize = 4_096;
/// Threads that look up repositories on the disk.
pub(crate) const GIT_LOOKUP_THREADS: usize = 1;
/// Threads that walk over folders for a list of repositories and render READMEs. Lookups of single
/// repositories have threads of their own and don't wait for walks.
pub(crate) const GIT_WALK_THREADS: usize = 1;
/// Jobs queued for the threads of repository lookups, and as many for the threads of folder walks.
/// Further requests are answered with 503.
pub(crate) const GIT_LOOKUP_QUEUE_MAX: usize = 256;
/// Largest page handed over as one block, 64 KiB: the capacity of a pipe. A larger page counts against
/// [`GIT_PAGES_SENDING_BYTES_MAX`].
pub(crate) const GIT_PAGE_WHOLE_BYTES: usize = PIPE_BYTES;
/// Memory of large pages being sent to all clients together, 64 MiB: a slow client keeps its page in
/// memory. Further large pages are answered with 503.
pub(crate) const GIT_PAGES_SENDING_BYTES_MAX: usize = 64 << 20;
/// Memory of large pages being sent to one address, 16 MiB: a few of the largest pages. Further large
/// pages for the address are answered with 503, while other addresses still get pages.
pub(crate) const GIT_PAGES_SENDING_BYTES_PER_ADDRESS_MAX: usize = GIT_PAGES_SENDING_BYTES_MAX / 4;
/// Seconds for which the page cache serves the page of a commit without a check. The page never
/// changes, but the operator may withdraw the repository.
pub(crate) const GIT_COMMIT_PAGE_RECHECK_SECONDS: u64 = 10;

// Git web pages, contents

/// Output of git read for one page, 1 MiB. Beyond the bound the page is cut, and the page says so.
pub(crate) const GIT_PAGE_BYTES_MAX: usize = 1 << 20;
/// Bytes of one rendered page, 4 MiB. Markup turns each input byte into a few bytes at most, so only
/// hostile content reaches the bound, and the page is cut.
pub(crate) const GIT_HTML_BYTES_MAX: usize = 4 << 20;
/// Bytes of a file shown with line numbers, 512 KiB. The page of a longer file is cut and links to the
/// raw file.
pub(crate) const GIT_FILE_BYTES_MAX: usize = 512 * 1024;
/// Bytes of a README that are rendered, 256 KiB. A longer README is cut.
pub(crate) const GIT_README_BYTES_MAX: usize = 256 * 1024;
/// Nesting of quotes and lists in a README. The parser looks at each level for every line. A README
/// with deeper nesting is shown as plain text.
pub(crate) const GIT_README_NESTING_MAX: usize = 64;
/// Lines of a file or diff on one page. A browser on a phone takes 1 s for 20,000 lines. A longer page
/// is cut.
pub(crate) const GIT_LINES_MAX: usize = 20_000;
/// Bytes of one line on a page, 4 KiB. Generated files have lines of megabytes. A longer line is cut.
pub(crate) const GIT_LINE_BYTES_MAX: usize = 4 * 1024;
/// Commits on one page of a log. Earlier commits follow on further pages.
pub(crate) const GIT_LOG_COMMITS: usize = 50;
/// Largest offset of a log page in commits, since git walks over all earlier entries. A larger offset
/// is answered with 404.
pub(crate) const GIT_LOG_OFFSET_MAX: u64 = 10_000_000;
/// Bytes of the text of a search in a log. A longer text is no word of a message.
pub(crate) const GIT_SEARCH_BYTES_MAX: usize = 200;
/// Commits, branches and tags on the summary page of a repository.
pub(crate) const GIT_SUMMARY_LINES: usize = 10;
/// Entries of a feed.
pub(crate) const GIT_FEED_ENTRIES: usize = 20;
/// Branches and tags read for one page, the newest first. Further refs are not shown.
pub(crate) const GIT_REFS_MAX: usize = 2_000;
/// Bytes of the name of a branch or tag, as Linux allows for a path below `refs`. A longer name is
/// answered with 404.
pub(crate) const GIT_REF_BYTES_MAX: usize = 1_024;
/// Bytes of a path within a repository, as Linux allows for a path. A longer path is answered with 404.
pub(crate) const GIT_PATH_BYTES_MAX: usize = 4_096;
/// Components of a path shown as links. Each link is as long as the path up to the component. Further
/// components are plain text.
pub(crate) const GIT_PATH_LINKS_MAX: usize = 64;
/// Repositories on the list of a folder. A longer list is cut, and the page says so.
pub(crate) const GIT_LIST_REPOSITORIES_MAX: usize = 1_000;
/// File names examined for one list of repositories. Beyond the bound the list is cut, and the page
/// says so.
pub(crate) const GIT_LIST_NAMES_MAX: usize = 20_000;
/// Depth of folders searched for repositories. Deeper folders are left out, and the list says that it
/// is incomplete.
pub(crate) const GIT_LIST_DEPTH_MAX: usize = 8;
/// Lifetime of a cached list of repositories. A later request walks over the folders again.
pub(crate) const GIT_LIST_CACHE_MILLISECONDS: u64 = 1_500;
/// Cached lists of repositories, each with up to [`GIT_LIST_REPOSITORIES_MAX`] entries.
pub(crate) const GIT_LISTS_CACHED_MAX: usize = 16;
/// Bytes of a repository's configuration read by the server, 16 KiB. For a longer configuration the
/// server asks git.
pub(crate) const GIT_CONFIG_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a repository's description on the list. A longer description is cut.
pub(crate) const GIT_DESCRIPTION_BYTES_MAX: usize = 512;
