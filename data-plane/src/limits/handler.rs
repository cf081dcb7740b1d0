//! Bounds of `handler`: request bodies, pipes, scripts and git.

// Proxied requests

/// Bytes of a request's body that a call takes from the client before the bytes are sent to the member.
pub(crate) const PROXY_UNSENT_BYTES_MAX: usize = 32 * 1024;
/// Seconds that a member may take to want a body (`Expect: 100-continue`). After that the body is sent, since
/// some servers never send 100 (RFC 9110 §10.1.1).
pub(crate) const PROXY_CONTINUE_SECONDS: u64 = 1;
/// Pause between two rounds of connection attempts while no member has room in its queue, or this machine lacks
/// local ports or descriptors.
pub(crate) const PROXY_SHORTAGE_PAUSE_MILLISECONDS: u64 = 50;
/// Longest wait of a request for a local port or a descriptor. Requests under way free both within this time on a
/// server that is only busy.
pub(crate) const PROXY_SHORTAGE_WAIT_MILLISECONDS: u64 = 1_000;
/// Seconds between two log lines about a lack of local ports, descriptors or memory, since each request would
/// repeat the line.
pub(crate) const PROXY_SHORTAGE_COMPLAINT_SECONDS: u64 = 10;

/// Attempts at the only member left that end with the statement that the request was not processed. A member that
/// restarts closes a connection for each attempt, and the first attempt alone is outside the budget of retries.
pub(crate) const PROXY_REFUSALS_MAX: u32 = 3;
/// Bytes of a streamed body that a call keeps until the response begins, 16 KiB. A member with HTTP/2 may state
/// that the request was not processed, and the request then goes to a member again.
pub(crate) const PROXY_REPLAY_BYTES_MAX: usize = 16 * 1024;

/// Pause of a client between two messages of a gRPC call, 1 year. The streams of gRPC stay open like tunnels, and
/// the system notices a client that has vanished.
pub(crate) const GRPC_PAUSE_SECONDS: u64 = 365 * 24 * 3_600;

// Interim responses

/// Interim responses of a handler that wait for the client. A handler sends few, and the final response
/// makes all others superfluous.
pub(crate) const INTERIM_RESPONSES_WAITING_MAX: usize = 4;

// Request bodies and pipes

/// Capacity of the pipe for the body of a live call, 64 KiB in each direction. A full pipe blocks its
/// writer.
pub const PIPE_BYTES: usize = 64 * 1024;
/// Bytes that a pipe of a call may always hold, 4 KiB. A pipe grows to [`PIPE_BYTES`] while the memory of the
/// bodies under way has room for read-ahead.
pub const PIPE_BYTES_MIN: usize = 4 * 1024;
/// Request body that is received before a script starts, 64 KiB or the whole body if shorter: a slow
/// client occupies no script slot while a form arrives. A shorter body without Content-Length gets a
/// CONTENT_LENGTH by counting, since most CGI programs rely on CONTENT_LENGTH alone.
pub(crate) const BODY_BUFFER_BYTES: usize = PIPE_BYTES;
/// Step in which a buffered request body is counted in the memory of the bodies under way, 16 KiB. Without
/// room, a request with Content-Length waits for a script slot with a partially read body, and any other
/// request is answered with 503. No body exceeds the reserved memory by more than one step.
pub(crate) const BODY_BUFFER_PART_BYTES: usize = 16 * 1024;
/// Seconds that a request body may pause before `body_rate_bytes_per_second` applies.
pub(crate) const BODY_GRACE_SECONDS: u64 = 10;
/// Request bodies stored on the disk at the same time. Each body takes a descriptor, and a process may
/// open 1,024 descriptors by default. Further bodies are answered with 503.
pub(crate) const SPOOLS_MAX: usize = 256;
/// Divisor for the share of one client: a quarter of [`SPOOLS_MAX`] and of `spooled_bytes`. The
/// remaining room serves other clients. With the default bounds a quarter is one body of the largest
/// size. A client over its share is answered with 503.
pub(crate) const SPOOL_PEER_PARTS: u64 = 4;
/// Threads that read and write spooled bodies. More threads don't make a disk faster.
pub(crate) const SPOOL_THREADS: usize = 2;
/// Jobs queued for the spool threads: parts to be read or written, and files to be freed. Each body has
/// at most one job of each kind, so the bound is never exceeded.
pub(crate) const SPOOL_QUEUE_MAX: usize = 2 * SPOOLS_MAX;
/// Bytes a second demanded of a client while its script waits for the remaining body, 4 KiB: a modem on
/// a telephone line sends as fast. A slower client loses its script slot to a waiting call.
pub(crate) const UPLOAD_BYTES_PER_SECOND: u64 = 4 * 1024;
/// Seconds of waiting that a slow upload may owe before the rate [`UPLOAD_BYTES_PER_SECOND`] counts as
/// missed. A fast client can't save up more.
pub(crate) const UPLOAD_GRACE_SECONDS: u64 = 3;

// Rate of downloads from scripts

/// Interval of the checks of a client's download rate while a call waits for the client.
pub(crate) const DOWNLOAD_RATE_CHECK_MILLISECONDS: u64 = 250;
/// Checks over which the rate of a client is averaged, 4 s. A client at 40 KiB/s empties a socket buffer of 64 KiB in
/// 1.6 s, and its bytes move in bursts of that size.
pub(crate) const RATE_WINDOW_CHECKS: u64 = 16;
/// Bytes a second demanded of a client that takes a script's response, 4 KiB: a modem on a telephone
/// line takes more. While a call of another client waits for a slot, a slower client loses its slot.
pub(crate) const DOWNLOAD_BYTES_PER_SECOND: u64 = 4 * 1024;
/// Seconds that a client may pause before [`DOWNLOAD_BYTES_PER_SECOND`] applies: a phone in a tunnel
/// pauses as long.
pub(crate) const DOWNLOAD_GRACE_SECONDS: u64 = 10;
/// Seconds that a client with more than its share of the slots may pause. The pause is short so that
/// other clients are served within 2 s.
pub(crate) const DOWNLOAD_GRACE_SECONDS_OVER_SHARE: u64 = 1;

// Calls of scripts

/// Seconds that a call waits for a slot. The client of a call beyond the bound gets 503 and may repeat
/// the request.
pub const CALL_QUEUE_SECONDS: u64 = 10;
/// Internal redirects of one request from handler to handler. A longer chain counts as a loop and is
/// answered with 508.
pub(crate) const INTERNAL_REDIRECTS_MAX: u8 = 8;
/// Threads that start programs. Each thread blocks while the kernel reads the program's file.
pub(crate) const PROGRAM_THREADS: usize = 2;
/// Seconds between the signal to end and the kill of a program with its whole process group.
pub(crate) const PROGRAM_GRACE_SECONDS: u64 = 2;
/// Interval of the checks whether a signalled program has exited.
pub(crate) const PROGRAM_EXIT_POLL_MILLISECONDS: u64 = 20;
/// Time to wait for the exit status of a script after the end of its output. The exit status tells
/// whether the response is complete. After the wait the response counts as complete.
pub(crate) const PROGRAM_EXIT_MILLISECONDS: u64 = 100;
/// Seconds of silence after which a child process left behind by an exited script is ended. A child
/// that holds the output open may continue the response for as long as it keeps writing. After the
/// pause the response is complete.
pub(crate) const ORPHAN_OUTPUT_PAUSE_SECONDS_MAX: u64 = 1;
/// Bytes of standard error logged for one call, 64 KiB. Further output is dropped, and the log says so.
pub(crate) const PROGRAM_STDERR_BYTES_MAX: usize = 64 * 1024;
/// Bytes of one logged line of standard error. A longer line is split.
pub(crate) const PROGRAM_STDERR_LINE_BYTES_MAX: usize = 1_024;
/// Bytes of a member's malformed line quoted in the log, enough to recognise the line.
pub(crate) const PROXY_QUOTED_BYTES_MAX: usize = 80;
/// Bytes of a malformed script response quoted in the log, enough to recognise the response.
pub(crate) const SCRIPT_QUOTED_BYTES_MAX: usize = 80;
/// Bytes moved at once between a handler's pipe and a program, 16 KiB.
pub const PROGRAM_CHUNK_BYTES: usize = 16 * 1024;
/// First size of the buffer for a program's output, 4 KiB. Most responses are small, and clearing
/// memory takes time. The buffer grows when full.
pub(crate) const PROGRAM_BUFFER_BYTES_INITIAL: usize = 4 * 1024;
/// First capacity of the buffer for the response head of a live call. Most heads fit. The buffer grows
/// when full.
pub(crate) const SCRIPT_HEAD_BYTES_INITIAL: usize = 512;
/// First capacity of the buffer for a request to a FastCGI backend. Most requests fit. The buffer grows
/// when full.
pub(crate) const BACKEND_REQUEST_BYTES_INITIAL: usize = 1_536;

// Git over HTTP

/// Bytes of git's ref advertisement read before the response starts, 64 KiB. A repository that can't be
/// read fails within the buffer, and the client gets an error instead of a truncated response.
pub const GIT_REFS_BUFFER_BYTES: usize = PIPE_BYTES;
/// Memory of each git process for a clone, a fetch or a push, 2 GiB. Memory-mapped packs don't count. A
/// clone of the Linux kernel (11 million objects) takes a little over 1 GiB, and so does a push of a
/// changed file of 500 MB. Beyond the bound, allocations of the process fail.
pub const GIT_EXCHANGE_MEMORY_BYTES: u64 = 2 << 30;
/// Processor seconds of each git process for a clone, a fetch or a push. A clone of the Linux kernel
/// without bitmaps takes about 2 minutes, and a push of 1 GiB as long. A repository that was never
/// packed takes several times as long. The kernel ends a process beyond the bound.
pub const GIT_EXCHANGE_CPU_SECONDS: u64 = 1_800;
/// Seconds that git gets to remove the received objects of an aborted push after the end of its input.
pub const GIT_END_SECONDS: u64 = 30;
/// Bytes of a client's Git-Protocol field: `version=2`, and room for future values. A longer value is
/// ignored.
pub const GIT_PROTOCOL_BYTES_MAX: usize = 256;
/// Seconds that the body of a push may pause. A client lists its objects in a few bytes and may then
/// take minutes to pack a large object. A client that pushes has logged in.
pub const PUSH_PAUSE_SECONDS: u64 = 300;
/// Seconds that the response to a push waits for the deployment. Proxies and users give up soon after.
/// Beyond the bound, the response ends and the deployment goes on.
pub const PUSH_RESPONSE_WAIT_SECONDS_MAX: u64 = 120;
/// Interval of keep-alive packets to the client while the response to a push waits for the deployment,
/// as git itself sends them.
pub const PUSH_KEEP_ALIVE_SECONDS: u64 = 5;

// Git web pages, processes and queues

/// Seconds that git may take for one page of a repository. A log of a path through a long history takes
/// seconds. Beyond the bound, git is ended.
pub const GIT_PAGE_SECONDS: u64 = 30;
/// Memory of git for one page, 256 MiB. A few objects that name each other make a tree of more files
/// than there are atoms, and any client with push access can create such objects. Beyond the bound,
/// allocations of the process fail.
pub const GIT_PAGE_MEMORY_BYTES: u64 = 256 << 20;
/// Processor seconds of git for a page or a download. To compress 1 GB takes half of the bound. The
/// kernel ends a process beyond the bound.
pub const GIT_CPU_SECONDS: u64 = 120;
/// Seconds that a client may take to receive a snapshot, 15 minutes. Git is at work for the whole
/// download. A slower download is broken off.
pub const GIT_SNAPSHOT_SECONDS: u64 = 15 * 60;
/// Bytes of a raw file or snapshot read before the response head is sent, 64 KiB. Within the buffer the
/// media type becomes known, and an error of git can still become an error response.
pub const GIT_STREAM_BUFFER_BYTES: usize = 64 * 1024;
/// Pages made by git at the same time, and as many downloads, and at most a quarter of `scripts` of
/// each. The remaining slots are for clones. Further requests wait in the queue.
pub const GIT_PAGES_AT_ONCE_MAX: usize = 4;
/// Expensive pages made by git at the same time, and as many snapshots, and at most an eighth of
/// `scripts` of each. Further requests wait in the queue.
pub const GIT_HEAVY_PAGES_AT_ONCE_MAX: usize = 2;
/// Addresses with counted page rates. Beyond the bound, addresses below their rate are forgotten first.
pub const GIT_RATED_ADDRESSES_MAX: usize = 4_096;
/// Threads that look up repositories on the disk.
pub const GIT_LOOKUP_THREADS: usize = 1;
/// Threads that walk over folders for a list of repositories and render READMEs. Lookups of single
/// repositories have threads of their own and don't wait for walks.
pub const GIT_WALK_THREADS: usize = 1;
/// Jobs queued for the threads of repository lookups, and as many for the threads of folder walks.
/// Further requests are answered with 503.
pub const GIT_LOOKUP_QUEUE_MAX: usize = 256;
/// Largest page handed over as one block, 64 KiB: the capacity of a pipe. A larger page counts against
/// [`GIT_PAGES_SENDING_BYTES_MAX`].
pub const GIT_PAGE_WHOLE_BYTES: usize = PIPE_BYTES;
/// Memory of large pages being sent to all clients together, 64 MiB: a slow client keeps its page in
/// memory. Further large pages are answered with 503.
pub const GIT_PAGES_SENDING_BYTES_MAX: usize = 64 << 20;
/// Memory of large pages being sent to one address, 16 MiB: a few of the largest pages. Further large
/// pages for the address are answered with 503, while other addresses still get pages.
pub const GIT_PAGES_SENDING_BYTES_PER_ADDRESS_MAX: usize = GIT_PAGES_SENDING_BYTES_MAX / 4;
/// Seconds for which the page cache serves the page of a commit without a check. The page never
/// changes, but the operator may withdraw the repository.
pub const GIT_COMMIT_PAGE_RECHECK_SECONDS: u64 = 10;

// Git web pages, contents

/// Output of git read for one page, 1 MiB. Beyond the bound the page is cut, and the page says so.
pub const GIT_PAGE_BYTES_MAX: usize = 1 << 20;
/// Bytes of one rendered page, 4 MiB. Markup turns each input byte into a few bytes at most, so only
/// hostile content reaches the bound, and the page is cut.
pub const GIT_HTML_BYTES_MAX: usize = 4 << 20;
/// Bytes of a file shown with line numbers, 512 KiB. The page of a longer file is cut and links to the
/// raw file.
pub const GIT_FILE_BYTES_MAX: usize = 512 * 1024;
/// Bytes of a README that are rendered, 256 KiB. A longer README is cut.
pub const GIT_README_BYTES_MAX: usize = 256 * 1024;
/// Nesting of quotes and lists in a README. The parser looks at each level for every line. A README
/// with deeper nesting is shown as plain text.
pub const GIT_README_NESTING_MAX: usize = 64;
/// Lines of a file or diff on one page. A browser on a phone takes 1 s for 20,000 lines. A longer page
/// is cut.
pub const GIT_LINES_MAX: usize = 20_000;
/// Bytes of one line on a page, 4 KiB. Generated files have lines of megabytes. A longer line is cut.
pub const GIT_LINE_BYTES_MAX: usize = 4 * 1024;
/// Commits on one page of a log. Earlier commits follow on further pages.
pub const GIT_LOG_COMMITS: usize = 50;
/// Largest offset of a log page in commits, since git walks over all earlier entries. A larger offset
/// is answered with 404.
pub const GIT_LOG_OFFSET_MAX: u64 = 10_000_000;
/// Bytes of the text of a search in a log. A longer text is no word of a message.
pub const GIT_SEARCH_BYTES_MAX: usize = 200;
/// Commits, branches and tags on the summary page of a repository.
pub const GIT_SUMMARY_LINES: usize = 10;
/// Entries of a feed.
pub const GIT_FEED_ENTRIES: usize = 20;
/// Branches and tags read for one page, the newest first. Further refs are not shown.
pub const GIT_REFS_MAX: usize = 2_000;
/// Bytes of the name of a branch or tag, as Linux allows for a path below `refs`. A longer name is
/// answered with 404.
pub const GIT_REF_BYTES_MAX: usize = 1_024;
/// Bytes of a path within a repository, as Linux allows for a path. A longer path is answered with 404.
pub const GIT_PATH_BYTES_MAX: usize = 4_096;
/// Components of a path shown as links. Each link is as long as the path up to the component. Further
/// components are plain text.
pub const GIT_PATH_LINKS_MAX: usize = 64;
/// Repositories on the list of a folder. A longer list is cut, and the page says so.
pub const GIT_LIST_REPOSITORIES_MAX: usize = 1_000;
/// File names examined for one list of repositories. Beyond the bound the list is cut, and the page
/// says so.
pub const GIT_LIST_NAMES_MAX: usize = 20_000;
/// Depth of folders searched for repositories. Deeper folders are left out, and the list says that it
/// is incomplete.
pub const GIT_LIST_DEPTH_MAX: usize = 8;
/// Lifetime of a cached list of repositories. A later request walks over the folders again.
pub const GIT_LIST_CACHE_MILLISECONDS: u64 = 1_500;
/// Cached lists of repositories, each with up to [`GIT_LIST_REPOSITORIES_MAX`] entries.
pub const GIT_LISTS_CACHED_MAX: usize = 16;
/// Bytes of a repository's configuration read by the server, 16 KiB. For a longer configuration the
/// server asks git.
pub const GIT_CONFIG_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a repository's description on the list. A longer description is cut.
pub const GIT_DESCRIPTION_BYTES_MAX: usize = 512;
