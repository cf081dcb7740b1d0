//! Start of child processes without copying the server's memory map.
//!
//! The kernel's `fork` copies page tables, most of the cost for a server with many pages. A child made with
//! `CLONE_VM | CLONE_VFORK` shares the server's memory until its program is loaded, and only the calling thread
//! waits. `posix_spawn` makes such a child too, but can't set resource limits. A limit that the server sets from
//! outside comes late: on a busy machine, the program runs and starts processes before. So the child sets its own
//! limits, and no instruction of the program runs without them.
//!
//! Other threads of the server run on while the child uses their memory, and one of them may hold a lock. The
//! child therefore makes nothing but system calls: it allocates nothing, takes no lock and can't panic.

use rustix::io::{Errno, FdFlags};
use rustix::process::{Pid, Resource, Rlimit, WaitOptions};
use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

/// Program to be started.
pub struct SpawnOptions<'p> {
    /// Absolute path of the program's file.
    pub file: &'p CStr,
    /// Arguments, each followed by a NUL. The first argument is the program's name.
    pub arguments: &'p [u8],
    /// Environment: `NAME=VALUE`, each followed by a NUL. No variables of the server are added.
    pub variables: &'p [u8],
    /// Working directory.
    pub folder: &'p CStr,
    /// Standard input, output and error. All other descriptors of the server must be closed on exec.
    pub standard: [BorrowedFd<'p>; 3],
    /// Limits of the program and of each process that it starts.
    pub limits: ResourceLimits,
}

/// Resource limits of a process and, each for itself, of its descendants. A lower limit of the server stays.
#[derive(Clone, Copy, Default)]
pub struct ResourceLimits {
    /// Memory in bytes, if limited (`RLIMIT_DATA`). File mappings don't count.
    pub memory_bytes: Option<u64>,
    /// Processor time in seconds, if limited (`RLIMIT_CPU`).
    pub processor_seconds: Option<u64>,
}

/// Starts the program in a session and process group of its own, with no signal ignored or blocked. Returns
/// after the kernel has accepted the file. ENOENT may refer to the interpreter; EACCES means a file that
/// may not be executed, ENOEXEC a file that is no program, ETXTBSY a file being written, EAGAIN and ENOMEM
/// a lack of resources. The caller has to wait for the exit status.
pub fn spawn(program: &SpawnOptions<'_>) -> io::Result<Pid> {
    let (arguments, variables) = (pointers(program.arguments), pointers(program.variables));
    let child = Child {
        program,
        arguments: arguments.as_ptr(),
        variables: variables.as_ptr(),
        limits: program.limits.settings(),
        error: AtomicI32::new(0),
    };
    let mut stack = ChildStack(MaybeUninit::uninit());
    // A handler of the server must not run in the child.
    let mask = set_signal_mask(ALL_SIGNALS);
    // SAFETY: the child runs `Child::run` on a stack of its own, which grows down from the end of `stack`. With
    // CLONE_VFORK, the call returns after the child has loaded its program or ended, so `stack`, `child` and all
    // that `child` refers to outlast the child's use of this memory. The calling thread stands still meanwhile, so
    // the child may use the thread's `errno`.
    let pid = unsafe {
        libc::clone(
            Child::run,
            ptr::from_mut(&mut stack).add(1).cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            ptr::from_ref(&child).cast_mut().cast(),
        )
    };
    let failed = io::Error::last_os_error();
    set_signal_mask(mask);
    let pid = Pid::from_raw(pid.max(0)).ok_or(failed)?;
    match child.error.load(Ordering::Relaxed) {
        0 => Ok(pid),
        error => {
            // The child has ended. ECHILD: another waiter was faster.
            let wait = || rustix::process::waitpid(Some(pid), WaitOptions::empty());
            while matches!(wait(), Err(Errno::INTR)) {}
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

impl ResourceLimits {
    /// Returns the limits to be set in a child process.
    fn settings(&self) -> [Option<(Resource, Rlimit)>; 3] {
        let bounded = |resource, most| {
            let hard = rustix::process::getrlimit(resource).maximum;
            (resource, bounded_limit(most, hard))
        };
        let files = rustix::process::getrlimit(Resource::Nofile).maximum;
        let files = Rlimit {
            current: bounded_limit(NOFILE_USUAL, files).current,
            maximum: files,
        };
        [
            Some((Resource::Nofile, files)),
            self.memory_bytes.map(|most| bounded(Resource::Data, most)),
            self.processor_seconds
                .map(|most| bounded(Resource::Cpu, most)),
        ]
    }
}

/// Returns a limit of `most`, or the hard limit of the server if that is lower: a process without privileges can't
/// raise a hard limit.
fn bounded_limit(most: u64, hard: Option<u64>) -> Rlimit {
    let most = Some(hard.map_or(most, |hard| hard.min(most)));
    Rlimit {
        current: most,
        maximum: most,
    }
}

/// Usual limit of open files of a process. Programs that use `select`, or close every possible descriptor, expect
/// the usual number, and the server has raised its own limit.
const NOFILE_USUAL: u64 = 1_024;

/// Returns pointers to the beginning of each string, followed by a null pointer.
fn pointers(strings: &[u8]) -> Vec<*const c_char> {
    let mut all: Vec<*const c_char> = strings
        .split_inclusive(|byte| *byte == 0)
        .filter(|string| string.ends_with(b"\0"))
        .map(|string| string.as_ptr().cast())
        .collect();
    all.push(ptr::null());
    all
}

/// Stack of a child process until its program is loaded. Every supported processor wants an alignment of 16 bytes
/// at most.
#[repr(align(16))]
struct ChildStack(
    #[expect(dead_code, reason = "only the child uses the memory")]
    MaybeUninit<[u8; CHILD_STACK_BYTES]>,
);

/// The child needs less than 2 KiB, without optimisation.
const CHILD_STACK_BYTES: usize = 16 * 1024;

/// Child process until its program is loaded.
struct Child<'p> {
    program: &'p SpawnOptions<'p>,
    /// Lists of C strings that end with a null pointer.
    arguments: *const *const c_char,
    variables: *const *const c_char,
    limits: [Option<(Resource, Rlimit)>; 3],
    /// Error number of the child; 0 while there is none. The server reads the number in the shared memory.
    error: AtomicI32,
}

impl Child<'_> {
    /// Entry of the child process.
    extern "C" fn run(child: *mut c_void) -> c_int {
        // SAFETY: `spawn` passes a pointer to a live `Child`, and changes nothing while the child runs.
        let child = unsafe { &*child.cast::<Child<'_>>() };
        let error = match child.prepare() {
            Ok(()) => child.exec(),
            Err(error) => error.raw_os_error(),
        };
        child.error.store(error, Ordering::Relaxed);
        EXIT_NOT_STARTED
    }

    /// Sets everything in which the child differs from the server.
    fn prepare(&self) -> Result<(), Errno> {
        default_signals();
        rustix::process::setsid()?;
        let [input, output, error] = self.program.standard;
        use_as(0, input, rustix::stdio::dup2_stdin)?;
        use_as(1, output, rustix::stdio::dup2_stdout)?;
        use_as(2, error, rustix::stdio::dup2_stderr)?;
        rustix::process::chdir(self.program.folder)?;
        for (resource, limit) in self.limits.iter().flatten() {
            rustix::process::setrlimit(*resource, *limit)?;
        }
        set_signal_mask(NO_SIGNALS);
        Ok(())
    }

    /// Loads the program. Returns the error number if the kernel refuses.
    fn exec(&self) -> i32 {
        // SAFETY: all pointers refer to live C strings, and both lists end with a null pointer.
        unsafe { libc::execve(self.program.file.as_ptr(), self.arguments, self.variables) };
        io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::ENOEXEC)
    }
}

/// Exit status of a child that has no program. The server waits for the child and reads the error instead.
const EXIT_NOT_STARTED: c_int = 127;

/// Makes a descriptor the standard descriptor `number`, open after exec.
fn use_as<'f>(
    number: c_int,
    fd: BorrowedFd<'f>,
    dup2: fn(BorrowedFd<'f>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    if fd.as_raw_fd() == number {
        rustix::io::fcntl_setfd(fd, FdFlags::empty())
    } else {
        dup2(fd)
    }
}

/// Sets all signals to their default action. The server ignores SIGPIPE, and its parent may ignore further signals
/// (SIGHUP with `nohup`). Every child process would inherit the ignored signals.
pub(super) fn default_signals() {
    // The kernel's own structure, larger than on any processor: zeros are SIG_DFL, no flags and an empty mask.
    let default = [0_u64; 8];
    for signal in 1..=SIGNALS_MAX {
        // SAFETY: the structure is live, and the old action is not requested. The C library's `sigaction` takes a
        // lock. Two signals can't be set and need no change: SIGKILL and SIGSTOP.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                ptr::null_mut::<u64>(),
                size_of::<SignalSet>(),
            );
        }
    }
}

/// The kernel's set of signals: a bit for each.
pub(super) type SignalSet = u64;

const SIGNALS_MAX: c_long = 64;
pub(super) const NO_SIGNALS: SignalSet = 0;
const ALL_SIGNALS: SignalSet = SignalSet::MAX;

/// Blocks the signals in `blocked` and no others, for the calling thread. Returns the signals blocked before. The C
/// library's function leaves out the signals that the library uses itself.
pub(super) fn set_signal_mask(blocked: SignalSet) -> SignalSet {
    let mut before = NO_SIGNALS;
    // SAFETY: both sets are live and have the kernel's size. The call can't fail.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            c_long::from(libc::SIG_SETMASK),
            ptr::from_ref(&blocked),
            ptr::from_mut(&mut before),
            size_of::<SignalSet>(),
        );
    }
    before
}

/// Resets SIGCHLD and the signal mask for the calling thread and its later threads. A parent process may
/// have ignored SIGCHLD, and then the kernel keeps no exit status and reuses the numbers of child
/// processes. A parent process may have blocked signals, and then no signal could stop the server.
pub fn reset_signals() {
    // SAFETY: no handler is installed or replaced: the server has no handler for SIGCHLD.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    set_signal_mask(NO_SIGNALS);
}

#[cfg(test)]
mod tests;
