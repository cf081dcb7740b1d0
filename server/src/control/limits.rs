//! Bounds of `control`: publishing of changes.

/// Divisor for the control thread's time spent on new Worlds: a fifth, so that a deployment or a busy
/// folder leaves the processor to requests. The next World waits accordingly.
pub(crate) const WORLD_UPDATE_TIME_DIVISOR: u32 = 5;
/// Shortest pause between two Worlds. Each World is taken up by every worker, and related changes
/// mostly arrive within 10 ms.
pub(crate) const WORLD_UPDATE_PAUSE_MILLISECONDS_MIN: u64 = 10;
/// Seconds that `drain --wait` waits for the end of a member's requests, unless the operator gives a number.
pub(crate) const MEMBER_WAIT_SECONDS: u32 = 60;
/// Longest wait for the end of a member's requests, a day. The wait holds a connection of the control socket.
pub(crate) const MEMBER_WAIT_SECONDS_MAX: u32 = 24 * 60 * 60;
/// Interval at which a wait looks for the end of a member's requests.
pub(crate) const MEMBER_WAIT_POLL_MILLISECONDS: u64 = 50;
/// Pause after a datagram with a heartbeat could not be received.
pub(crate) const HEARTBEAT_PAUSE_MILLISECONDS: u64 = 100;
/// Longest pause between two Worlds, for a folder so large that reading a change takes long.
pub(crate) const WORLD_UPDATE_PAUSE_MILLISECONDS_MAX: u64 = 100;
/// Bytes of the state file of edits that are read at most. A longer file is refused like a cut-off file.
pub(crate) const EDIT_FILE_BYTES_MAX: usize = 16 << 20;
/// Seconds of one read of a site or a store after which the read is given up and repeated later, 5 minutes. A slow disk
/// reads a million files in that time.
pub(crate) const SCAN_SECONDS_MAX: u64 = 300;
/// Threads that read sites and stores. A disk that does not answer holds one, and the other reads the other sites.
pub(crate) const SCAN_THREADS: usize = 2;
/// Milliseconds that a command of the operator, such as a reload, leaves to the reads under way before the reads are given
/// up, 1 s. Most reads take less, and need no repetition then.
pub(crate) const URGENT_COMMAND_WAIT_MILLISECONDS: u64 = 1_000;
/// Bytes of a message between two servers in a takeover, 1,024: the name of a socket has at most 255.
pub(crate) const TAKEOVER_MESSAGE_BYTES_MAX: usize = 1_024;
/// Bytes of a reason in such a message.
pub(crate) const TAKEOVER_TEXT_BYTES_MAX: usize = 1_000;
/// Descriptors in one message of a takeover.
pub(crate) const TAKEOVER_SOCKETS_A_MESSAGE_MAX: usize = 64;
/// Messages before the running server is complete, 4,096: a message for each address, and those of HTTP/3.
pub(crate) const TAKEOVER_MESSAGES_MAX: usize = 4_096;
/// Seconds that a successor waits for a message of the running server. The running server may finish a World first.
pub(crate) const TAKEOVER_ANSWER_SECONDS_MAX: u64 = 30;
/// Seconds in which a successor must have read and built everything, 10 minutes. The running server takes no reload
/// meanwhile.
pub(crate) const SUCCESSOR_BUILD_SECONDS_MAX: u64 = 600;
/// Seconds in which a successor must serve after the running server has paused, 10. Clients wait meanwhile.
pub(crate) const SUCCESSOR_START_SECONDS_MAX: u64 = 10;
/// Seconds in which workers must have paused.
pub(crate) const PAUSE_SECONDS_MAX: u64 = 5;
/// Servers that still have connections beside the running server. A further restart ends the oldest.
pub(crate) const PREDECESSORS_MAX: usize = 3;
/// Interval at which a server that leaves opens its logs again, since its successor renames them.
pub(crate) const LEAVING_REOPEN_SECONDS: u64 = 60;
/// Seconds for which active checks may delay the start of a successor.
pub(crate) const FIRST_CHECKS_SECONDS_MAX: u64 = 5;
