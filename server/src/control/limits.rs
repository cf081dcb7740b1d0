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
