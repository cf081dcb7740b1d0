//! Start of child processes without copying the server's memory map.
//!
//! The kernel's `fork` copies page tables, most of the cost for a server with many pages. `posix_spawn`
//! shares the server's memory until the program is loaded (`CLONE_VM | CLONE_VFORK`), and only the calling
//! thread waits. The standard library uses `posix_spawn`, too, but not for a program with a working
//! directory and a session of its own.

use rustix::process::{Pid, Resource, Rlimit};
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

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
}

/// Starts the program in a session and process group of its own, with no signal ignored or blocked. Returns
/// after the kernel has accepted the file. ENOENT may refer to the interpreter; EACCES means a file that
/// may not be executed, ENOEXEC a file that is no program, ETXTBSY a file being written, EAGAIN and ENOMEM
/// a lack of resources. The caller has to wait for the exit status.
pub fn spawn(program: &SpawnOptions<'_>) -> io::Result<Pid> {
    let actions = FileActions::new(program)?;
    let attributes = SpawnAttributes::new()?;
    let arguments = pointers(program.arguments);
    let variables = pointers(program.variables);
    let mut pid = 0;
    // SAFETY: all pointers refer to live values that outlast the call: a C string, two lists of C strings
    // that end with a null pointer, and two initialised objects. The call keeps no reference, and is
    // documented not to write to the strings.
    let error = unsafe {
        libc::posix_spawn(
            &mut pid,
            program.file.as_ptr(),
            &actions.0,
            &attributes.0,
            arguments.as_ptr(),
            variables.as_ptr(),
        )
    };
    check(error)?;
    let pid =
        Pid::from_raw(pid).ok_or_else(|| io::Error::other("posix_spawn returned no process id"))?;
    lower_nofile(pid);
    Ok(pid)
}

/// Lowers the limit of open files to the usual number for a child process. Programs that use `select`, or
/// close every possible descriptor, expect the usual number, and the server has raised its own limit.
fn lower_nofile(pid: Pid) {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let lowered = Rlimit {
        current: Some(limit.maximum.unwrap_or(NOFILE_USUAL).min(NOFILE_USUAL)),
        maximum: limit.maximum,
    };
    // The process may have ended by now.
    let _ = rustix::process::prlimit(Some(pid), Resource::Nofile, lowered);
}

/// Usual limit of open files of a process.
const NOFILE_USUAL: u64 = 1_024;

/// Returns pointers to the beginning of each string, followed by a null pointer.
fn pointers(strings: &[u8]) -> Vec<*mut libc::c_char> {
    let mut all: Vec<*mut libc::c_char> = strings
        .split_inclusive(|byte| *byte == 0)
        .filter(|string| string.ends_with(b"\0"))
        .map(|string| string.as_ptr().cast_mut().cast())
        .collect();
    all.push(ptr::null_mut());
    all
}

fn check(error: libc::c_int) -> io::Result<()> {
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Actions between the creation of the process and the start of its program.
struct FileActions(libc::posix_spawn_file_actions_t);

impl FileActions {
    fn new(program: &SpawnOptions<'_>) -> io::Result<FileActions> {
        let mut object = MaybeUninit::uninit();
        // SAFETY: the call initialises the object behind the pointer, or fails.
        check(unsafe { libc::posix_spawn_file_actions_init(object.as_mut_ptr()) })?;
        // SAFETY: the object was initialised by the previous call, and is destroyed once, in `drop`.
        let mut actions = FileActions(unsafe { object.assume_init() });
        for (number, fd) in (0..).zip(program.standard) {
            // SAFETY: the object is initialised; descriptors are numbers.
            check(unsafe {
                libc::posix_spawn_file_actions_adddup2(&mut actions.0, fd.as_raw_fd(), number)
            })?;
        }
        // SAFETY: the object is initialised, and the string, which is copied, ends with a NUL.
        check(unsafe {
            libc::posix_spawn_file_actions_addchdir_np(&mut actions.0, program.folder.as_ptr())
        })?;
        Ok(actions)
    }
}

impl Drop for FileActions {
    fn drop(&mut self) {
        // SAFETY: the object was initialised and is not used after the call.
        let _ = unsafe { libc::posix_spawn_file_actions_destroy(&mut self.0) };
    }
}

fn no_signals() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the call initialises the set behind the pointer, and can't fail.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// Returns all signals that can be ignored. The server ignores SIGPIPE, and its parent may ignore further
/// signals (SIGHUP with `nohup`). Every child process would inherit the ignored signals.
fn all_signals() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call initialises the set behind the pointer. Both signals exist.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        libc::sigdelset(set.as_mut_ptr(), libc::SIGKILL);
        libc::sigdelset(set.as_mut_ptr(), libc::SIGSTOP);
        set.assume_init()
    }
}

/// Resets SIGCHLD and the signal mask for the calling thread and its later threads. A parent process may
/// have ignored SIGCHLD, and then the kernel keeps no exit status and reuses the numbers of child
/// processes. A parent process may have blocked signals, and then no signal could stop the server.
pub fn reset_signals() {
    let none = no_signals();
    // SAFETY: the set is initialised and live, and the old set is not requested. No handler is installed or
    // replaced: the server has no handler for SIGCHLD.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, ptr::null_mut());
    }
}

/// Attributes in which the child process differs from the server.
struct SpawnAttributes(libc::posix_spawnattr_t);

impl SpawnAttributes {
    fn new() -> io::Result<SpawnAttributes> {
        let mut object = MaybeUninit::uninit();
        // SAFETY: the call initialises the object behind the pointer, or fails.
        check(unsafe { libc::posix_spawnattr_init(object.as_mut_ptr()) })?;
        // SAFETY: the object was initialised by the previous call, and is destroyed once, in `drop`.
        let mut attributes = SpawnAttributes(unsafe { object.assume_init() });
        let (none, all) = (no_signals(), all_signals());
        let flags = libc::c_int::from(libc::POSIX_SPAWN_SETSID) // the type depends on the C library
                | libc::POSIX_SPAWN_SETSIGMASK
                | libc::POSIX_SPAWN_SETSIGDEF;
        // SAFETY: the object and the sets are initialised and live. The sets are copied.
        unsafe {
            check(libc::posix_spawnattr_setsigmask(&mut attributes.0, &none))?;
            check(libc::posix_spawnattr_setsigdefault(&mut attributes.0, &all))?;
            check(libc::posix_spawnattr_setflags(
                &mut attributes.0,
                flags as libc::c_short,
            ))?;
        }
        Ok(attributes)
    }
}

impl Drop for SpawnAttributes {
    fn drop(&mut self) {
        // SAFETY: the object was initialised and is not used after the call.
        let _ = unsafe { libc::posix_spawnattr_destroy(&mut self.0) };
    }
}
