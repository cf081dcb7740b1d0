//! Every bound of the program, with its reason.
//!
//! What an operator may change is a field of [`Limits`] (`[server] limits = { … }`); what only a
//! developer should change is a constant. Units stand last in a name.

/// The bounds that an operator may set, by these very names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open connections in all; past it, idle ones of the client that holds most are closed, and where
    /// there are none accepting pauses.
    pub connections: usize,
    /// Open connections from one client, which is an IPv4 address or an IPv6 /64; 0 = no limit (many
    /// people share one address behind a NAT).
    pub connections_per_address: usize,
    /// Requests under way by HTTP/2 and 3 on all connections of one worker; past it new ones are
    /// refused, to be tried again. Each is a few hundred bytes that a client can hold for the time of
    /// a stall, and what has come of its body: that is bounded by the connection's window, and where it
    /// is gathered for a script, for all together ([`BODY_BUDGET_BYTES_MAX`]).
    pub streams: usize,
    /// Request line, bytes without its CRLF: what browsers and proxies still send, and 414 past it.
    pub request_line_bytes: usize,
    /// Whole head, bytes; 431 past it.
    pub head_bytes: usize,
    /// Field lines in one head; 431 past it.
    pub fields: usize,
    /// Seconds for a whole TLS handshake.
    pub handshake_seconds: u32,
    /// Seconds from the first byte of a head to its end.
    pub head_seconds: u32,
    /// Seconds that a kept-alive connection may be silent between requests.
    pub idle_seconds: u32,
    /// Seconds that a peer may take nothing of a response.
    pub write_stall_seconds: u32,
    /// Bytes a second that a request body must bring on average, after a first grace.
    pub body_rate_bytes_per_second: u32,
    /// Request body that is read and thrown away where nobody wants it; 413 past it.
    pub body_discard_bytes: u64,
    /// Request body for a handler, bytes; 413 past it.
    pub body_bytes: u64,
    /// Request bodies that lie on the disk until they are whole, all together, bytes, and a
    /// quarter of it for one client; 503 past it. Four of the longest: a disk has room for them, and who
    /// sends without a length is rare.
    pub spooled_bytes: u64,
    /// Seconds that requests under way get to finish on stop.
    pub drain_seconds: u32,
    /// Scripts that run at the same time, for all sites; more wait for their turn.
    pub scripts: usize,
    /// Calls that may wait for a script's turn, ten seconds at most; 503 past it.
    pub script_queue: usize,
    /// Seconds in which a script neither takes nor says anything, before it is ended.
    pub script_silent_seconds: u32,
    /// Seconds that a script may take in all.
    pub script_seconds: u32,
    /// What a script may send in one response, bytes; past it the response is broken off.
    pub script_output_bytes: u64,
    /// Seconds that a fetch or push of git may take in all: on a slow line a large repository takes
    /// hours, and what is stuck is ended by `script_silent_seconds` and `write_stall_seconds`.
    pub git_seconds: u32,
    /// Files, folders and links of a tree that is deployed.
    pub deploy_files: usize,
    /// Bytes of a tree that is deployed; a disk holds up to four of them at the same time.
    pub deploy_bytes: u64,
    /// Pages of repositories that take git long (diffs, logs of a path, snapshots, feeds) which one
    /// address may ask for in a minute, and at once; 429 past it. Nobody reads one a second for long.
    pub git_heavy_per_minute: u32,
    /// Pages of repositories of any kind that one address may ask for in a minute, and at once; 429
    /// past it. Pages that are kept and can't change don't count. It is ten a second.
    pub git_pages_per_minute: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 10_000,
            connections_per_address: 0,
            streams: 20_000,
            request_line_bytes: 8 * 1024,
            head_bytes: 16 * 1024,
            fields: 100,
            handshake_seconds: 10,
            head_seconds: 10,
            idle_seconds: 75,
            write_stall_seconds: 30,
            body_rate_bytes_per_second: 512,
            body_discard_bytes: 1 << 20,
            body_bytes: 1 << 30,
            spooled_bytes: 4 << 30,
            drain_seconds: 30,
            scripts: 16,
            script_queue: 128,
            script_silent_seconds: 60,
            script_seconds: 3_600,
            script_output_bytes: 4 << 30,
            git_seconds: 86_400,
            deploy_files: 200_000,
            deploy_bytes: 4 << 30,
            git_heavy_per_minute: 60,
            git_pages_per_minute: 600,
        }
    }
}

/// Bytes of a ClientHello that isn't whole: browsers send 2 KB with a post-quantum key share. rustls alone
/// would keep 64 KiB of each, for `handshake_seconds`.
pub const TLS_HELLO_BYTES_MAX: usize = 16 * 1024;
/// One chunk-extension part of a chunk-size line, bytes: real clients send none (RFC 9112 §7.1.1
/// asks for a bound).
pub const CHUNK_EXTENSION_BYTES_MAX: usize = 256;
/// All trailer lines of one chunked body, bytes; they are checked and dropped, so this only ends
/// what would never end.
pub const TRAILER_BYTES_MAX: usize = 4 * 1024;
/// Ranges in one request; more are answered with the whole (RFC 9110 §14.2 lets a server ignore them).
pub const RANGES_MAX: usize = 8;
/// Body bytes that a response must bring forward in each `write_stall_seconds` while the client's
/// window or socket is all that holds it: 273 bytes a second by default, a tenth of what a modem of the
/// telephone network takes. Without this rate a client that grants 1 byte at a time holds its responses
/// for ever at next to no cost.
pub const RESPONSE_PROGRESS_BYTES_MIN: u64 = 8 * 1024;
/// Acknowledged bytes for which a client over TCP may take nothing for `write_stall_seconds` once more. It
/// is 16 times the price of trickling. `curl --limit-rate 20k` lets 1 MB gather in its receive buffer, and the
/// kernel opens the window again only 50 s later. A client that never reads acknowledges less: a receive
/// buffer is 128 KiB at first.
pub const RESPONSE_PAUSE_BYTES: u64 = 128 * 1024;
/// Such pauses one after the other: a client that has taken much and has then gone is kept for no longer.
pub const RESPONSE_PAUSES_MAX: u64 = 3;
/// Heads of requests that wait take at most one part in 16 of `memory_max`, and at most 12 MiB: 12,000
/// waiting requests of browsers, whose heads have 1 KB.
pub const PENDING_HEAD_BYTES_MAX: usize = 12 << 20;
/// Divisor of `memory_max` for [`PENDING_HEAD_BYTES_MAX`].
pub const PENDING_HEAD_MEMORY_PARTS: u64 = 16;
/// Each worker can keep at least this many bytes of heads, so that a head of the largest size fits into
/// an eighth of them.
pub const PENDING_HEAD_BYTES_MIN: usize = 256 * 1024;
/// Bytes of a head that isn't whole which a connection may have without being counted: the beginning of
/// an ordinary request that came in two parts.
pub const UNFINISHED_HEAD_BYTES_FREE: usize = 1_024;
/// The first part of a response's body that is put together for HTTP/3, bytes: it waits in memory until
/// the client takes it, and each part after it is no larger than what the client has taken.
pub const H3_FIRST_DATA_BYTES: usize = 2 * 1024;
/// Never more response bytes waiting unsent in a connection: 1,500 silent readers stay cheap.
pub const UNSENT_BYTES_MAX: usize = 32 * 1024;
/// Response bytes of one TCP connection that the kernel takes before it has sent them, bytes; it may
/// take one packet of up to 64 KiB more. Without a bound the kernel holds 2 to 4 MB for each client on
/// loopback or a fast network that stops reading, and 2,000 such clients fill the memory that the machine
/// has for TCP. With 64 KiB they take 195 MB, with 96 KiB 290 MB. CPU per 512 KB response is the same from 48
/// to 256 KiB. The congestion window isn't bounded by it, so a fast network far away stays full.
pub const SOCKET_UNSENT_BYTES: u32 = 64 * 1024;
/// Bound of unsent response bytes in the kernel, as [`SOCKET_UNSENT_BYTES`], for a TCP connection on which the client
/// has taken half a megabyte, and so is known to read. At 300 Mbit/s with 50 ms there
/// and back, beside other load, CUBIC brought 29 MB/s with 128 KiB or no bound, and 19 to 23 MB/s with 64 KiB.
pub const SOCKET_UNSENT_BYTES_FAST: u32 = 256 * 1024;
/// A client loses at most so many idle connections at once when no more may be opened. Finding them takes
/// a look at every connection, 100 to 200 microseconds of 10,000, which so many share.
pub const IDLE_EVICTIONS_AT_ONCE_MAX: usize = 64;
/// A client loses at most one in so many of its connections at once, so that a small holder loses one.
pub const IDLE_EVICTIONS_CLIENT_DIVISOR: usize = 16;
/// A client loses a request under way only to a client that holds at most one in so many of what the
/// largest holder has. Shares of requests and of calls have the same bound for small clients.
pub const SMALL_HOLDER_DIVISOR: usize = 8;
/// Connections that a listening socket has accepted while all of `connections` are taken, and that wait for a
/// place. Who they belong to decides which goes first; the rest waits in the kernel's queue.
pub const ACCEPTED_WAITING_MAX: usize = 64;
/// A client of HTTP/3 waits at most so long for another connection to be closed before it is refused:
/// closing one takes less than a round trip, and the client asks again after a second.
pub const H3_ADMISSION_WAIT_MILLISECONDS_MAX: u64 = 900;
/// Requests that a connection is answered in one turn. Then the other connections have theirs: a client
/// that sends requests without waiting for answers would keep the worker for as long as it sends. About
/// 200 microseconds of stored pages; browsers and load generators rarely send more at once.
pub const TURN_REQUESTS_MAX: u32 = 32;
/// Bytes of a response that a connection is sent in one turn over TLS: some 100 microseconds of
/// encryption. A client that reads as fast as it is sent to would keep the worker otherwise.
pub const TURN_BYTES_MAX: usize = 256 * 1024;
/// A worker's read scratch, bytes; a head never exceeds it.
pub const READ_BUFFER_BYTES: usize = 32 * 1024;
/// A file up to this size is served from the content budget; a larger one from its descriptor.
pub const CONTENT_FILE_BYTES_MAX: u64 = 128 * 1024;
/// A response up to this size is put together in memory and leaves by one plain send.
pub const COALESCED_RESPONSE_BYTES_MAX: usize = 8 * 1024;
/// Over plain HTTP a body of this size or more goes by sendfile, which copies nothing.
pub const SENDFILE_BYTES_MIN: u64 = 8 * 1024;
/// Within so many microseconds a file isn't looked at twice for whether it is still the same: about
/// what one turn of a busy worker takes.
pub const FILE_STAT_INTERVAL_MICROSECONDS_MIN: u64 = 100;
/// A file up to this size has an ETag of its content; a larger one of its size and time.
pub const DIGEST_FILE_BYTES_MAX: u64 = 1 << 20;
/// Text smaller than this is not worth compressing: it fits one packet anyway.
pub const GZIP_FILE_BYTES_MIN: u64 = 512;
/// Each body of a live call, both ways, is a pipe of this size.
pub const PIPE_BYTES: usize = 64 * 1024;
/// Entries on one page of a directory listing.
pub const LISTING_PAGE_ENTRIES: usize = 1_000;
/// Access-log bytes waiting for a slow destination before lines are dropped and counted.
pub const LOG_QUEUE_BYTES: usize = 4 << 20;
/// How deep folders are followed: a loop of links must end.
pub const FOLDER_DEPTH_MAX: usize = 64;
/// A log line's bytes are collected by each worker up to this before they are handed over.
pub const LOG_BATCH_BYTES: usize = 16 * 1024;
/// Empty buffers that a log destination keeps for its workers: about one for each, and one on its way.
pub const LOG_SPARE_BUFFERS_MAX: usize = 32;
/// A thread for blocking work ends after this time without any.
pub const POOL_IDLE_SECONDS: u64 = 10;
/// Password hashes computed at the same time: they are made to be slow, and pages go first.
pub const LOGIN_THREADS: usize = 2;
/// Logins waiting to be checked before more are told to come back (503).
pub const LOGIN_QUEUE_MAX: usize = 64;
/// Failed logins that one client may have at once: a person mistypes a few times, and a program with an
/// old password asks for several pages at the same time, with one login.
pub const LOGIN_FAILURES_MAX: u64 = 10;
/// One more may fail after this long, seconds: 10 a minute are 14,400 guesses a day, and no password
/// that is worth its name is among so few. It is the Retry-After of a refusal too.
pub const LOGIN_FAILURE_SECONDS: u64 = 6;
/// Clients whose failed logins are counted. Beyond that, clients with the fewest failures are
/// forgotten first.
pub const LOGIN_CLIENTS_MAX: usize = 4_096;
/// A login that was right within this time is no guess, and its client goes before others in the queue
/// of hashes, seconds.
pub const LOGIN_TRUSTED_SECONDS: u64 = 3_600;
/// A checked login, right or wrong, is remembered this long.
pub const LOGIN_REMEMBERED_SECONDS: u64 = 60;
/// Logins remembered at the same time; of more, the wrong ones are forgotten first.
pub const LOGINS_MAX: usize = 4_096;
/// A longer password is wrong without hashing it: the cost of some schemes grows with its square.
pub const PASSWORD_BYTES_MAX: usize = 512;
/// Contents and caches never take more than this of memory by themselves, however much there is.
pub const MEMORY_BYTES_MAX: u64 = 256 << 20;
/// The content budget is never smaller: a page just loaded must outlive the load of a few others,
/// or the request it was loaded for would not find it.
pub const CONTENT_BUDGET_BYTES_MIN: usize = 2 << 20;
/// Descriptors of files that stay open between requests, for all sites together: what a process
/// may open by default is 1,024, and connections need most of it.
pub const DESCRIPTORS_KEPT_MAX: usize = 256;
/// Text up to this size is compressed in the background; a larger one should bring its own sidecar.
pub const GZIP_FILE_BYTES_MAX: u64 = 4 << 20;
/// Files waiting to be compressed; one that finds no place is asked for again later.
pub const GZIP_QUEUE_MAX: usize = 1_024;
/// Folders reached through links in one scan: links that cross each other multiply.
pub const LINKED_FOLDERS_MAX: usize = 4_096;
/// Links followed while one path is opened, as many as the kernel follows.
pub const LINK_HOPS_MAX: usize = 40;
/// One piece of a directory listing on its way out.
pub const LISTING_CHUNK_BYTES: usize = 16 * 1024;
/// A stored page is compared with its file by stat(2) in each step of 2^12 ms, which is 4.1 s, because the kernel
/// doesn't tell of every change: writes through a hard link outside of the root, below the lower layer of
/// an overlay, or by another machine on a network file system. For one file these are two
/// system calls in 4.1 s, however many requests there are. A power of two spares each request a division.
pub const FILE_STAT_PERIOD_MILLISECONDS_LOG2: u32 = 12;
/// Paths remembered as changed behind the watcher's back until somebody rescans them.
pub const STALE_PATHS_MAX: usize = 64;
/// A request for what isn't there waits so long at most for changes that the disk has told and nobody
/// has looked at yet. It waits for two Worlds, which takes some milliseconds, and up to some hundred
/// where the processor is busy or a folder large; only a reload may keep them back for longer.
pub const CATCH_UP_WAIT_MILLISECONDS_MAX: u64 = 1_000;
/// Bringing changes into the World may take one part in so many of the control thread's time, so that
/// a deployment or a busy folder leaves the processor to requests.
pub const WORLD_UPDATE_TIME_DIVISOR: u32 = 5;
/// Between two Worlds there is a pause of so long at least: each is taken up by every worker, and
/// changes that belong together mostly come within it.
pub const WORLD_UPDATE_PAUSE_MILLISECONDS_MIN: u64 = 10;
/// And so long at most: on a folder so large that looking at a change takes long, it is waited for.
pub const WORLD_UPDATE_PAUSE_MILLISECONDS_MAX: u64 = 100;
/// What the braces of one glob may multiply to.
pub const GLOB_ALTERNATIVES_MAX: usize = 64;
/// The head of what a script answers, bytes: cookies and policies of the largest applications fit.
pub const CGI_HEAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a reason phrase that a script may choose: a sentence fits, and a stored head stays small.
pub const STATUS_REASON_BYTES_MAX: usize = 256;
/// Fields in it.
pub const CGI_FIELDS_MAX: usize = 200;
/// A program that is told to end may take so long before it is killed, with all of its group.
pub const PROGRAM_GRACE_SECONDS: u64 = 2;
/// How often it is looked whether it has ended.
pub const PROGRAM_EXIT_POLL_MILLISECONDS: u64 = 20;
/// A script whose output has ended is waited for so long before its response is taken for whole: how
/// it ended tells whether it is.
pub const PROGRAM_EXIT_MILLISECONDS: u64 = 100;
/// Threads that start programs: each waits while a program's file is read.
pub const PROGRAM_THREADS: usize = 2;
/// Of what a program says on standard error during one call, this much is logged.
pub const PROGRAM_STDERR_BYTES_MAX: usize = 64 * 1024;
/// A line of it that is longer is cut.
pub const PROGRAM_STDERR_LINE_BYTES_MAX: usize = 1_024;
/// So much is quoted of what a script said where that was wrong, bytes: enough to know it again.
pub const SCRIPT_QUOTED_BYTES_MAX: usize = 80;
/// A script that has ended may have left a child that holds its output open. What such a child says
/// counts for as long as it goes on; after a pause like this it is ended, and the response is whole.
pub const ORPHAN_OUTPUT_PAUSE_SECONDS_MAX: u64 = 1;
/// Calls that wait for their turn do so for at most this long: a client that waits longer asks again.
pub const CALL_QUEUE_SECONDS: u64 = 10;
/// So much of a body is there before its script begins, or all of it: a slow client keeps no script
/// waiting for a form. One without a length is counted by that, if it isn't longer: most programs that
/// speak CGI believe in CONTENT_LENGTH alone.
pub const BODY_BUFFER_BYTES: usize = PIPE_BYTES;
/// What lies in memory so in all: each connection, and each of its streams, can have one. Past it a body
/// whose length is known waits for its place as it is, and any other is told to come back.
pub const BODY_BUDGET_BYTES_MAX: usize = 64 << 20;
/// It is counted after each part of this size, so that no body is over by more.
pub const BODY_BUFFER_PART_BYTES: usize = 16 * 1024;
/// Bodies that lie on the disk until they are whole: each has a descriptor, and a process may open
/// 1,024 by default.
pub const SPOOLS_MAX: usize = 256;
/// One client may have such a part of their places and bytes, a quarter, so that the others have some
/// whatever it does: with the usual bounds it is one of the longest bodies.
pub const SPOOL_PEER_PARTS: u64 = 4;
/// Threads that write and read them: a disk is no faster by more.
pub const SPOOL_THREADS: usize = 2;
/// Parts that wait to be written or read, and files to be freed. Each body has one of both at most.
pub const SPOOL_QUEUE_MAX: usize = 2 * SPOOLS_MAX;
/// A request body may pause for so long before its rate counts.
pub const BODY_GRACE_SECONDS: u64 = 10;
/// That of a push: a client says what it has in a few bytes, and may then take minutes to pack a large
/// object. Who pushes has logged in.
pub const PUSH_PAUSE_SECONDS: u64 = 300;
/// A script that waits for the rest of a longer body has to be given this much in each second of
/// waiting, or its client loses the place to who waits for one: a modem on a telephone line brings it.
pub const UPLOAD_BYTES_PER_SECOND: u64 = 4 * 1024;
/// So many seconds it may owe, and no more can be saved up.
pub const UPLOAD_GRACE_SECONDS: u64 = 3;
/// How often a call looks at how fast its client takes the response, while the client is what the call
/// waits for, milliseconds.
pub const DOWNLOAD_RATE_CHECK_MILLISECONDS: u64 = 250;
/// While a call of another client waits for a place, a client that takes less than this of a response
/// loses its place, bytes per second: a modem on a telephone line takes more.
pub const DOWNLOAD_BYTES_PER_SECOND: u64 = 4 * 1024;
/// A client may pause for this long first, seconds: a phone in a tunnel does.
pub const DOWNLOAD_GRACE_SECONDS: u64 = 10;
/// The same rate for a client that has more than its share of the places, bytes per second. It is
/// asked for more, since each of its responses keeps other clients waiting: with the 16 places of
/// `scripts` it has to take 4 Mbit/s to hold them all.
pub const DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE: u64 = 32 * 1024;
/// And its pauses are short, seconds: other clients are to be answered within two.
pub const DOWNLOAD_GRACE_SECONDS_OVER_SHARE: u64 = 1;
/// After a client had to wait while another one had more than its share of the places, the last quarter
/// of them is kept for clients with few for this long, seconds. A flood that goes on is so no obstacle
/// to the next request, and a client alone soon has all places again.
pub const CALL_SHARE_SECONDS: u64 = 60;
/// A backend that hasn't begun to answer a call for this long may have it in its own queue,
/// milliseconds: most pages take less.
pub const CALL_UNANSWERED_MILLISECONDS: u64 = 1_000;
/// Then slow calls end one after the other with this pause, milliseconds: a backend takes a moment to
/// see that a call has ended, and to take up the next.
pub const CALL_END_PAUSE_MILLISECONDS: u64 = 250;
/// What moves at once between a handler's pipe and a program.
pub const PROGRAM_CHUNK_BYTES: usize = 16 * 1024;
/// The head of most responses of live calls fits in so much.
pub const SCRIPT_HEAD_BYTES_INITIAL: usize = 512;
/// What a backend is told of most requests fits in so much.
pub const BACKEND_REQUEST_BYTES_INITIAL: usize = 1_536;
/// The buffers for it begin so small: most responses are, and clearing memory takes time.
pub const PROGRAM_BUFFER_BYTES_INITIAL: usize = 4 * 1024;
/// Of git's answer to the first question, the list of refs, so much is read before it is sent on: a
/// repository that can't be read fails within it, and its client gets an error instead of a piece.
pub const GIT_REFS_BUFFER_BYTES: usize = PIPE_BYTES;
/// Memory that git may take for a clone, a fetch or a push, bytes for each of its processes. What it maps
/// of packs doesn't count. A clone of the Linux kernel (11 million objects) takes a little over 1 GiB,
/// and so does a push of a changed file of 500 MB.
pub const GIT_EXCHANGE_MEMORY_BYTES: u64 = 2 << 30;
/// Of the processor git may take for it, seconds for each of its processes. That clone of a repository
/// without bitmaps takes about 2 minutes, and a push of 1 GiB as much; a repository that was never
/// packed takes several times as long.
pub const GIT_EXCHANGE_CPU_SECONDS: u64 = 1_800;
/// A push that is broken off ends its input, and git gets so long to take away what has come of it.
pub const GIT_END_SECONDS: u64 = 30;
/// What a client says of its version of git's protocol: `version=2`, and room for what may come.
pub const GIT_PROTOCOL_BYTES_MAX: usize = 256;
/// What git may take for one page of a repository, from the first question to its last word; a log of
/// a path through a long history takes seconds.
pub const GIT_PAGE_SECONDS: u64 = 30;
/// Memory that git may take for it, bytes: a few objects that name each other make a tree of more files
/// than there are atoms, and whoever may push can make them.
pub const GIT_PAGE_MEMORY_BYTES: u64 = 256 << 20;
/// Of what git says for a page, so much is taken in, bytes: past it a page is cut, and says so.
pub const GIT_PAGE_BYTES_MAX: usize = 1 << 20;
/// Of a file so much is shown with line numbers, bytes; all of it is one link away.
pub const GIT_FILE_BYTES_MAX: usize = 512 * 1024;
/// Of a README so much is read.
pub const GIT_README_BYTES_MAX: usize = 256 * 1024;
/// Quotes and lists in one another that a README may have: past it it is shown as text, for the parser
/// looks at each of them for every line.
pub const GIT_README_NESTING_MAX: usize = 64;
/// Lines of a file or of a diff on one page: browsers take a second for so many on a phone.
pub const GIT_LINES_MAX: usize = 20_000;
/// A line on a page that is longer is cut, bytes: generated files have lines of megabytes.
pub const GIT_LINE_BYTES_MAX: usize = 4 * 1024;
/// A whole page as it is made, bytes: markup makes of each byte a few at most, and this many never.
pub const GIT_HTML_BYTES_MAX: usize = 4 << 20;
/// A page up to this is handed over whole, bytes: as much as a pipe holds.
pub const GIT_PAGE_WHOLE_BYTES: usize = PIPE_BYTES;
/// Larger pages on their way to clients, all together, bytes: who takes one slowly keeps it in memory.
pub const GIT_PAGES_SENDING_BYTES_MAX: usize = 64 << 20;
/// Of those, what pages for one address may take, bytes: a few of the largest. Others still get theirs.
pub const GIT_PAGES_SENDING_BYTES_PER_ADDRESS_MAX: usize = GIT_PAGES_SENDING_BYTES_MAX / 4;
/// Commits on a page of a log.
pub const GIT_LOG_COMMITS: usize = 50;
/// Commits, branches and tags on the summary of a repository.
pub const GIT_SUMMARY_LINES: usize = 10;
/// Branches and tags that are looked at for a page, the newest first.
pub const GIT_REFS_MAX: usize = 2_000;
/// Entries of a feed.
pub const GIT_FEED_ENTRIES: usize = 20;
/// How far back a log goes: git walks over all that comes before.
pub const GIT_LOG_OFFSET_MAX: u64 = 10_000_000;
/// A name of a branch or tag, bytes, as Linux allows for a path below `refs`.
pub const GIT_REF_BYTES_MAX: usize = 1_024;
/// Repositories on the list of a folder.
pub const GIT_LIST_REPOSITORIES_MAX: usize = 1_000;
/// Names looked at for it.
pub const GIT_LIST_NAMES_MAX: usize = 20_000;
/// How deep below the folder repositories are looked for.
pub const GIT_LIST_DEPTH_MAX: usize = 8;
/// Of a repository's configuration so much is looked at, bytes; git is asked about a longer one.
pub const GIT_CONFIG_BYTES_MAX: usize = 16 * 1024;
/// A repository's description on the list, bytes.
pub const GIT_DESCRIPTION_BYTES_MAX: usize = 512;
/// Of a file or snapshot on its way so much is read before it begins: what it is shows by then, and
/// whether git can read it.
pub const GIT_STREAM_BUFFER_BYTES: usize = 64 * 1024;
/// Pages made by git at the same time, a quarter of `scripts` at most, and as many downloads: the rest
/// of the places is for clones.
pub const GIT_PAGES_AT_ONCE_MAX: usize = 4;
/// Of pages that take git long, an eighth of `scripts` at most, and as many snapshots.
pub const GIT_HEAVY_PAGES_AT_ONCE_MAX: usize = 2;
/// A snapshot on its way to its client, which takes all of it that long: git is at work meanwhile.
pub const GIT_SNAPSHOT_SECONDS: u64 = 15 * 60;
/// Of the processor git may take for what a browser asked, seconds: to compress a gigabyte takes half.
pub const GIT_CPU_SECONDS: u64 = 120;
/// Paths within a repository, bytes, as Linux allows for one.
pub const GIT_PATH_BYTES_MAX: usize = 4_096;
/// Of a path so many parts are links: each of them is as long as the path up to there.
pub const GIT_PATH_LINKS_MAX: usize = 64;
/// Threads that look for repositories on disk.
pub const GIT_LOOKUP_THREADS: usize = 1;
/// Threads that walk over folders for a list, and render READMEs; looks don't wait for them.
pub const GIT_WALK_THREADS: usize = 1;
/// A list of repositories is shown again for so long without a walk over the folders, milliseconds.
pub const GIT_LIST_CACHE_MILLISECONDS: u64 = 1_500;
/// Lists that are kept so, each of up to `GIT_LIST_REPOSITORIES_MAX` repositories.
pub const GIT_LISTS_CACHED_MAX: usize = 16;
/// Looks at the disk that may wait.
pub const GIT_LOOKUP_QUEUE_MAX: usize = 256;
/// Addresses whose heavy pages are counted; past it those that are owed nothing go first.
pub const GIT_RATED_ADDRESSES_MAX: usize = 4_096;
/// A page of a commit never changes, but its repository may be withdrawn: after so long the page
/// cache asks whether it is still there.
pub const GIT_COMMIT_PAGE_RECHECK_SECONDS: u64 = 10;
/// Connections to one backend where it isn't said how many are kept: most of them wait in its own
/// queue, and beyond that it can do nothing but wait.
pub const BACKEND_CONNECTIONS_MAX: usize = 128;
/// A connection to a backend without `keep` waits at least so long for the next request, and at most
/// twice as long,
pub const BACKEND_IDLE_MILLISECONDS: u64 = 5;
/// and is closed after the request that it is at when it is so old: others want its process too.
pub const BACKEND_HANDOVER_AGE_MILLISECONDS_MAX: u64 = 50;
/// A request that was said on such a connection and isn't read after so long is asked elsewhere: the
/// process has answered the one before, and goes on with something else (`fastcgi_finish_request`).
/// It may still come to it, and then does in vain what another has done.
pub const BACKEND_UNREAD_RETRY_MILLISECONDS: u64 = 100;
/// A request that isn't read after so long waits: in the backend's queue, for all of its processes are
/// busy, or for the one process that a connection was passed on from.
pub const BACKEND_UNREAD_QUEUED_MILLISECONDS: u64 = 2;
/// One in so many may wait for that one. Where more do, the backend goes on after its answers, or waits
/// for a processor: then there is little to be had from passing connections on.
pub const BACKEND_QUEUED_DIVISOR: u32 = 20;
/// What isn't read is looked for so often at most.
pub const BACKEND_UNREAD_POLL_MICROSECONDS: u64 = 1_000;
/// When it has answered nothing for so long, those that wait for a connection make their own.
pub const BACKEND_STALLED_MILLISECONDS: u64 = 20;
/// Whether there are more processes by now is tried so often,
pub const BACKEND_PROBE_MILLISECONDS: u64 = 10;
/// and at last only so often where there are none.
pub const BACKEND_PROBE_MILLISECONDS_MAX: u64 = 250;
/// A backend that closes connections that are to stay, or takes its time to read what is said on them,
/// is asked to keep them open after so long again,
pub const BACKEND_KEEP_RETRY_SECONDS: u64 = 10;
/// and after so long at last, if it goes on to take its time.
pub const BACKEND_KEEP_RETRY_SECONDS_MAX: u64 = 600;
/// One try to connect to a backend, which is on this machine or next to it.
pub const BACKEND_CONNECT_SECONDS: u64 = 5;
/// A backend that is not there may just be starting anew: so often it is looked.
pub const BACKEND_CONNECT_TRIES: u32 = 5;
/// The pause between two of those looks.
pub const BACKEND_RETRY_MILLISECONDS: u64 = 100;
/// Pages that a handler may send for one another before that is a loop.
pub const INTERNAL_REDIRECTS_MAX: u8 = 8;
/// Streams that a client of HTTP/2 may have open at a time: browsers use a few dozen at once, and
/// RFC 9113 §6.5.2 advises against fewer.
pub const H2_STREAMS_MAX: usize = 100;
/// Request bodies of one connection that may have come and not yet been taken, all streams together.
/// Each stream has at most a pipe of it, so that one which stands still doesn't hold up the rest. What
/// waits for a place among the scripts doesn't count: `script_queue` bounds it for all connections.
pub const H2_CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;
/// Compressed bytes of one field block beyond those of its frame: no real head grows by coding.
pub const H2_BLOCK_BYTES_MAX: usize = 32 * 1024;
/// Frames that one field block may be cut into: a head of the largest size fits into two.
pub const H2_BLOCK_FRAMES_MAX: usize = 16;
/// A field block so many times larger than a head may be is no mistake, but a bomb: the connection
/// ends. What is only too large is answered.
pub const HEAD_BOMB_FACTOR: usize = 4;
/// Streams that we reset whose last frames may still be on their way, and are to be ignored.
pub const H2_RESETS_REMEMBERED: usize = 256;
/// Priorities remembered for streams that haven't begun yet.
pub const H2_PRIORITIES_AHEAD_MAX: usize = 16;
/// What a client may ask of us for nothing, in points: each frame that serves no response costs
/// some (below), time and responses give them back. So a burst is free and a flood is over within
/// a fraction of a second, while no client that loads pages comes near it.
pub const ABUSE_POINTS_MAX: u32 = 10_000;
/// Points given back each second: 10 resets or 50 PINGs a second can go on for ever.
pub const ABUSE_POINTS_PER_SECOND: u32 = 1_000;
/// A stream that was reset, by the client or by us for what it sent: the work for it was in vain.
/// A browser that leaves a page resets up to a hundred at once.
pub const RESET_POINTS: u32 = 50;
/// SETTINGS: we answer each, and walk over all streams; a client sends one or two in all.
pub const H2_SETTINGS_POINTS: u32 = 100;
/// PING: we answer each; a client that measures the way sends a few a second.
pub const H2_PING_POINTS: u32 = 20;
/// PRIORITY and PRIORITY_UPDATE: a browser sends one for an image that comes into view.
pub const H2_PRIORITY_POINTS: u32 = 10;
/// WINDOW_UPDATE by less than [`WINDOW_UPDATE_BYTES_LARGE`], and over HTTP/3 a part of a body that the client's
/// windows cut. A DATA frame that is large enough pays for two of them ([`DATA_POINT_BYTES`]).
pub const WINDOW_UPDATE_POINTS: u32 = 5;
/// A WINDOW_UPDATE by at least this many bytes costs 1 point. Go's client sends one for the stream and one for
/// the connection for each 4 KiB that its program has read, so 8 of them for each DATA frame of 16 KiB.
pub const WINDOW_UPDATE_BYTES_LARGE: u32 = 1_024;
/// A DATA frame with less than [`SMALL_DATA_BYTES`] that doesn't end its stream: its header is
/// more work than its content.
pub const EMPTY_DATA_POINTS: u32 = 20;
/// Interactive streams send short messages; only what holds next to nothing is suspicious.
pub const SMALL_DATA_BYTES: usize = 8;
/// A DATA frame of so much pays for a small one: an upload leaves rests of a few bytes wherever its
/// buffers and our windows end, and a window is 64 KiB.
pub const LARGE_DATA_BYTES: usize = 4 * 1024;
/// Small frames that may be paid for so beforehand.
pub const SMALL_DATA_CREDITS_MAX: u32 = 64;
/// A frame of a type that we don't know, which must be ignored.
pub const UNKNOWN_FRAME_POINTS: u32 = 20;
/// Given back for each response that was sent to its end.
pub const RESPONSE_POINTS: u32 = 20;
/// Given back at most for a DATA frame that was sent, or part of one over HTTP/3, besides the points by
/// [`DATA_POINT_BYTES_LARGE`].
pub const DATA_POINTS: usize = 10;
/// Bytes of a DATA frame for which one further point is given back: a frame of 16 KiB pays for 42 updates by 1 KiB.
pub const DATA_POINT_BYTES_LARGE: usize = 512;
/// Bytes of a DATA frame that was sent for which one point is given back. A client that opens a window by
/// steps of 320 bytes, and the connection's with it, may do so for ever. A client that opens windows byte by
/// byte costs the server a frame and a look at all streams for each byte: 100 connections with 100 streams
/// each took two thirds of a processor.
pub const DATA_POINT_BYTES: usize = 32;
/// A response that is in memory and no larger than this isn't queued behind others.
pub const H2_SMALL_BODY_BYTES: usize = 16 * 1024;
/// After so many bytes a response that asked to go alone takes turns with the others: one that has
/// no end would starve them.
pub const H2_NON_INCREMENTAL_BYTES_MAX: u64 = 4 << 20;
/// A directory's answer, bytes: a certificate with its chain is 4 to 8 KiB.
pub const ACME_RESPONSE_BYTES_MAX: usize = 256 * 1024;
/// The head of a directory's answer, bytes.
pub const ACME_HEAD_BYTES_MAX: usize = 16 * 1024;
/// One call to a directory, from the look-up of its name to the last byte.
pub const ACME_CALL_SECONDS: u64 = 30;
/// Of that, one of the directory's addresses may take so long to connect to.
pub const ACME_CONNECT_SECONDS: u64 = 8;
/// A call that is refused for its nonce is made again so often: a directory that restarts refuses all
/// that it gave out before, and one that does so every second time is a test.
pub const ACME_NONCE_TRIES: usize = 20;
/// How long a directory may take to validate a name, or to issue a certificate.
pub const ACME_VALIDATION_SECONDS: u64 = 300;
/// The pause between two looks at what a directory is doing, whatever it asks for.
pub const ACME_POLL_SECONDS_MAX: u64 = 60;
/// What a hook says is kept up to this for the log.
pub const ACME_HOOK_OUTPUT_BYTES_MAX: usize = 4 * 1024;
/// Orders begun for one site in an hour: public directories allow five failed validations.
pub const ACME_ORDERS_PER_HOUR: usize = 4;
/// Orders begun for one site in a day, however they end.
pub const ACME_ORDERS_PER_DAY: usize = 12;
/// The pause after a first failure; each further one waits four times as long.
pub const ACME_RETRY_SECONDS: u64 = 60;
/// The longest pause after failures.
pub const ACME_RETRY_SECONDS_MAX: u64 = 86_400;
/// An order that was begun is gone on with so often without a pause, before failures count.
pub const ACME_RESUMES_MAX: u64 = 5;
/// Renewal information is asked for at most this often, whatever Retry-After says (RFC 9773 §4.3.1).
pub const ACME_RENEWAL_INFO_SECONDS_MIN: u64 = 3_600;
/// And at least this often.
pub const ACME_RENEWAL_INFO_SECONDS_MAX: u64 = 86_400;
/// The longest text of a directory's problem that is logged, characters.
pub const ACME_PROBLEM_CHARS_MAX: usize = 500;
/// Values inside values in JSON that is read here: ACME needs four.
pub const JSON_DEPTH_MAX: usize = 16;
/// Streams that a client of HTTP/3 may have open at a time, for requests; as many as over HTTP/2.
pub const H3_STREAMS_MAX: u32 = 100;
/// Streams that go one way: three that the protocol has, and a few of a kind that nobody knows.
pub const H3_ONE_WAY_STREAMS_MAX: u32 = 8;
/// A compressed field section that is longer is no mistake: the connection ends.
pub const H3_SECTION_BYTES_MAX: usize = 64 * 1024;
/// A frame of the control stream that is kept until it is whole; SETTINGS takes a few dozen bytes.
pub const H3_CONTROL_FRAME_BYTES_MAX: usize = 4 * 1024;
/// Of one request body, so much may have come and not yet been taken.
pub const H3_STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// The same for all request bodies of a connection, but for those that wait for a place among the
/// scripts: `script_queue` bounds them for all connections.
pub const H3_CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;
/// A request body's pipe to its handler: beside it, a window of it waits with the connection.
pub const H3_PIPE_BYTES: usize = 16 * 1024;
/// One DATA frame that we send, where a body isn't in memory.
pub const H3_DATA_BYTES: usize = 16 * 1024;
/// What may be on its way to a client, sent and not acknowledged, of a connection that has shown
/// nothing yet. A client that never acknowledges holds no more of us than this.
pub const H3_UNACKNOWLEDGED_BYTES_MIN: u64 = 64 * 1024;
/// Bytes sent and not acknowledged of one connection whose client keeps taking: twice its congestion
/// window, but never more than this. What all connections of a worker may have above
/// [`H3_UNACKNOWLEDGED_BYTES_MIN`] together has the bound of the heads of requests that wait
/// ([`PENDING_HEAD_BYTES_MAX`], 12 MiB for all workers), shared among clients: without it 60 connections
/// that download a file, ask again and fall silent hold 257 MiB.
pub const H3_UNACKNOWLEDGED_BYTES_MAX: u64 = 4 << 20;
/// Handshakes under way on one worker with clients that haven't shown that their address is theirs.
/// Past it a client has to show it first (Retry, RFC 9000 §8.1.2), which costs us no memory.
pub const H3_UNVALIDATED_HANDSHAKES_MAX: usize = 64;
/// Receive buffer of each UDP socket, bytes. The kernel doubles the number and charges 2,304 bytes for a
/// datagram of 1,200 to 1,472 bytes, so 3,640 of them wait while the worker is busy. The usual default
/// (212,992, or 92 datagrams) is less than the 200 datagrams in which 100 browsers begin at once; a client sends
/// a lost one again after 1 s, then after 2 s, 4 s and 8 s.
pub const UDP_RECEIVE_BYTES: usize = 4 << 20;
/// Connections that wait to be taken by a worker, and what they may have sent by then.
pub const H3_INCOMING_MAX: usize = 1_024;
/// See [`H3_INCOMING_MAX`].
pub const H3_INCOMING_BYTES_MAX: u64 = 4 << 20;
/// A content for the page cache, bytes, where a route says nothing of it: pages are smaller, and what
/// is larger is a download.
pub const CACHE_PAGE_BYTES: u64 = 1 << 20;
/// Answers to one URI that are kept beside each other, by what Vary names and who may have them.
pub const CACHE_VARIANTS_MAX: usize = 32;
/// For so long nobody waits for another's call to a URI whose answer was for one client alone.
pub const CACHE_HIT_FOR_PASS_SECONDS: u64 = 10;
/// URIs of which that is known, a few dozen bytes each.
pub const CACHE_HIT_FOR_PASS_URIS_MAX: usize = 16_384;
/// A handler that failed while there is an old page isn't asked for it again before then.
pub const CACHE_FAILED_SECONDS: u64 = 5;
/// A call that makes a stale page anew goes on for so long with nobody waiting for it: nobody has to,
/// and there is one for a page that somebody wanted before.
pub const CACHE_REFRESH_UNATTENDED_SECONDS_MAX: u32 = 60;
/// Any other call that everybody has left: one that is quick is worth its end, and one that isn't would
/// take a place from those who wait.
pub const CACHE_FILL_ABANDONED_SECONDS_MAX: u32 = 2;
/// The same where more than half of a content of known length is there.
pub const CACHE_FILL_ABANDONED_LATE_SECONDS_MAX: u32 = 10;
/// A content of unknown length comes to its end within this time, or isn't kept: others wait for it.
pub const CACHE_FILL_UNKNOWN_LENGTH_SECONDS_MAX: u64 = 30;
/// What is copied at a time out of a page that is still coming.
pub const CACHE_CHUNK_BYTES: usize = 16 * 1024;
/// Pages that are kept over a restart, bytes: a slow disk writes so much within a few seconds.
pub const CACHE_DISK_BYTES_MAX: usize = 64 << 20;
/// Pages of one site whose views are counted apart; those of more count for the site alone.
pub const HITS_PATHS_MAX: usize = 10_000;
/// Days that are remembered of a site: a year, and the same month before.
pub const HITS_DAYS_MAX: usize = 400;
/// Days with views that are remembered of a page.
pub const HITS_PAGE_DAYS_MAX: usize = 31;
/// Paths that a worker counts before it tells the ledger.
pub const HITS_TALLY_PATHS_MAX: usize = 1_024;
/// A path in a backup: Linux opens no longer one.
pub const BACKUP_NAME_BYTES_MAX: usize = 4_095;
/// Tar's records before an entry: a path and the target of a link, at most.
pub const BACKUP_RECORDS_BYTES_MAX: u64 = 16 * 1024;
/// Entries of a backup; their names are in memory while it is read.
pub const BACKUP_ENTRIES_MAX: u64 = 2_000_000;
/// Folders in one another in a backup: each has an open descriptor while it is saved.
pub const BACKUP_DEPTH_MAX: usize = 128;
/// A larger file isn't kept in memory while it is saved, but in a file beside the archive.
pub const BACKUP_MEMORY_BYTES: u64 = 1 << 20;
/// So often a file is read that changes meanwhile, before the backup fails.
pub const BACKUP_TRIES_MAX: u32 = 20;
/// What a backup says of itself, and its hit counts: 10,000 pages take a few megabytes.
pub const BACKUP_METADATA_BYTES_MAX: u64 = 64 << 20;
/// Trees that were deployed before the one that is served are kept so many: responses under way still
/// read the last one, and an operator may want to look at one.
pub const DEPLOYED_TREES_KEPT: usize = 2;
/// Links in a tree that is deployed: their names are remembered until it is known where all lead.
pub const DEPLOY_LINKS_MAX: usize = 4_096;
/// A tree of so many files is brought to the disk file by file, which takes a few milliseconds each; a
/// larger one with all that is waiting for the disk.
pub const DEPLOY_FSYNC_FILES_MAX: u64 = 100;
/// `git` that says nothing for so long while a branch is deployed is ended.
pub const DEPLOY_SILENT_SECONDS: u64 = 60;
/// Memory that git may take for an archive, bytes: a file in which something is to be filled in is taken
/// in whole, and so is one that was packed as a difference. Pushed files may be of any size.
pub const DEPLOY_MEMORY_BYTES: u64 = 512 << 20;
/// All first deployments together have so long before the server starts without them, seconds: init systems
/// end what isn't ready after a minute or so.
pub const DEPLOY_FIRST_SECONDS: u64 = 10;
/// One that was given up then has so long to clean up before nobody waits for it, seconds.
pub const DEPLOY_CLEANUP_SECONDS_MAX: u64 = 2;
/// What git complains of is kept up to this for the log.
pub const DEPLOY_STDERR_BYTES_MAX: usize = 4 * 1024;
/// The answer to a push waits so long for its deployment: proxies and patience end soon after.
pub const PUSH_RESPONSE_WAIT_SECONDS_MAX: u64 = 120;
/// Meanwhile the client hears so often that somebody is there, as it does from git itself.
pub const PUSH_KEEP_ALIVE_SECONDS: u64 = 5;
