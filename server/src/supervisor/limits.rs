//! Bounds of the supervisor.

/// Seconds of silence after which a server that has been ready is ended, 30: three of the intervals in which the server
/// asks its threads.
pub(super) const SILENCE_SECONDS_MAX: u64 = 30;
/// Seconds in which a successor must be ready, 30. The running server serves meanwhile.
pub(super) const SUCCESSOR_SECONDS_MAX: u64 = 30;
/// Seconds in which the death of a new program brings the previous program back, 1 minute.
pub(super) const TRIAL_SECONDS: u64 = 60;
/// Number of the descriptor of a kept program file at least, 700: beyond the sockets of a start.
pub(super) const PROGRAM_DESCRIPTOR_MIN: i32 = 700;
/// Parts of the longest silence between two looks of the supervisor at the time. A supervisor that did not run for longer
/// was suspended itself.
pub(super) const LOOKS_IN_SILENCE: u32 = 3;
/// Milliseconds by which a wake-up of the supervisor may be late without counting as a suspension, 1 s: a busy machine.
pub(super) const LATE_MILLISECONDS_MAX: u64 = 1_000;
/// Multiple of the longest silence after which a start without work is ended, 2: a minute. The longest waits of a start are
/// those for a name, a few seconds, and for a first deployment, 10 s.
pub(super) const START_SILENCES_MAX: u32 = 2;
/// Time of processors that counts as work of a start, 50 ms: 1/1200 of the minute. A scan that waits 30 ms for each folder
/// of a slow disk uses more, and a server that waits for a lock or for a dead disk uses none. The number of files is
/// therefore not limited.
pub(super) const WORK_MILLISECONDS_MIN: u64 = 50;
/// First pause before a start, 1 s, after a start that followed at once and did not last.
pub(super) const PAUSE_SECONDS_MIN: u64 = 1;
/// Longest pause before a start, 30 s. The pauses double.
pub(super) const PAUSE_SECONDS_MAX: u64 = 30;
/// Seconds of service after which the next end is followed by a start at once, 1 minute.
pub(super) const LASTING_SECONDS: u64 = 60;
/// Sockets that the supervisor keeps for the next server, 512: within the usual limit of 1,024 open files, together with
/// the copies at a start. A server with 16 workers has 16 sockets for each address.
pub(super) const SOCKETS_MAX: usize = 512;
/// Bytes of the name of a kept socket, 255, as systemd allows.
pub(super) const SOCKET_NAME_BYTES_MAX: usize = 255;
/// Messages of the server read in one round, 64. The supervisor looks at signals and at the time after each round, so a
/// flood of messages delays neither.
pub(super) const MESSAGES_A_ROUND_MAX: usize = 64;
/// Threads of a silent server in the log, 64: the control plane comes first, and workers follow.
pub(super) const THREADS_SHOWN_MAX: usize = 64;
/// Bytes read of a file that describes a thread, 4,096.
pub(super) const THREAD_FILE_BYTES_MAX: u64 = 4_096;
/// Addition to the score by which the kernel chooses a process to end for want of memory, 200 of 1,000. The scripts inherit
/// the score of the server, and the supervisor keeps its own, so the supervisor is the last to go.
pub(super) const OOM_SCORE_ADDITION: i32 = 200;
