//! Starting another program without copying ourselves.
//!
//! The kernel's `fork` copies page tables, which for a server of many pages is most of the cost.
//! `posix_spawn` borrows our memory until the new program is there (`CLONE_VM | CLONE_VFORK`), and
//! only the thread that calls it waits. The standard library does so too, but not where a program is
//! to have a folder and a session of its own.

use rustix::process::{Pid, Resource, Rlimit};
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// A program to be started.
pub struct SpawnOptions<'p> {
    /// Its file, absolute.
    pub file: &'p CStr,
    /// Its arguments, the first being its name; each with a NUL behind it.
    pub arguments: &'p [u8],
    /// Its environment: `NAME=VALUE`, each with a NUL behind it. Nothing of ours is added.
    pub variables: &'p [u8],
    /// The folder that it stands in.
    pub folder: &'p CStr,
    /// Its standard input, output and error. All else that is open here must be closed on exec.
    pub standard: [BorrowedFd<'p>; 3],
}

/// Starts it, in a session and so a process group of its own, with no signal ignored or blocked.
/// Returns when its file was found good: ENOENT may mean its interpreter, EACCES that it may not be
/// executed, ENOEXEC that it is no program, ETXTBSY that it is being written, EAGAIN and ENOMEM that
/// there is no room. Waiting for its end is the caller's.
pub fn spawn(program: &SpawnOptions<'_>) -> io::Result<Pid> {
    let actions = FileActions::new(program)?;
    let attributes = SpawnAttributes::new()?;
    let arguments = pointers(program.arguments);
    let variables = pointers(program.variables);
    let mut pid = 0;
    // SAFETY: all pointers are to live values that outlast the call: a C string, two lists of C
    // strings that end with a null, and two objects that were initialised. The call copies nothing
    // out of them that lives on; it is documented not to write to the strings.
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
    let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("no process"))?;
    lower_nofile(pid);
    Ok(pid)
}

/// Programs that use `select`, or close whatever could be open, expect the usual number of
/// descriptors, and we have raised ours.
fn lower_nofile(pid: Pid) {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let lowered = Rlimit {
        current: Some(limit.maximum.unwrap_or(NOFILE_USUAL).min(NOFILE_USUAL)),
        maximum: limit.maximum,
    };
    // It may have ended by now.
    let _ = rustix::process::prlimit(Some(pid), Resource::Nofile, lowered);
}

/// What a process has when nobody raised it.
const NOFILE_USUAL: u64 = 1_024;

/// Where each of the strings begins, and a null.
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

/// What is done between the birth of the process and its program.
struct FileActions(libc::posix_spawn_file_actions_t);

impl FileActions {
    fn new(program: &SpawnOptions<'_>) -> io::Result<FileActions> {
        let mut object = MaybeUninit::uninit();
        // SAFETY: the call initialises what the pointer is to, or fails.
        check(unsafe { libc::posix_spawn_file_actions_init(object.as_mut_ptr()) })?;
        // SAFETY: it was initialised just now, and is destroyed once, when it is dropped.
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
        // SAFETY: it was initialised, and nobody uses it after this.
        let _ = unsafe { libc::posix_spawn_file_actions_destroy(&mut self.0) };
    }
}

fn no_signals() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the call initialises the set that the pointer is to, and can't fail.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// All that can be ignored: SIGPIPE is by us, and others may be by whoever started us (SIGHUP by
/// `nohup`), which would pass on to every program.
fn all_signals() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call initialises the set that the pointer is to; both signals exist.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        libc::sigdelset(set.as_mut_ptr(), libc::SIGKILL);
        libc::sigdelset(set.as_mut_ptr(), libc::SIGSTOP);
        set.assume_init()
    }
}

/// Whoever started us may have ignored SIGCHLD, and then the kernel keeps no child for us to wait for,
/// and gives its number to others; or blocked signals, and then nobody could stop us. For this thread
/// and those that it starts.
pub fn reset_signals() {
    let none = no_signals();
    // SAFETY: the set is initialised and lives; the old one isn't asked for. No handler is installed,
    // and none is replaced: we have none for this signal.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, ptr::null_mut());
    }
}

/// How the process differs from ours.
struct SpawnAttributes(libc::posix_spawnattr_t);

impl SpawnAttributes {
    fn new() -> io::Result<SpawnAttributes> {
        let mut object = MaybeUninit::uninit();
        // SAFETY: the call initialises what the pointer is to, or fails.
        check(unsafe { libc::posix_spawnattr_init(object.as_mut_ptr()) })?;
        // SAFETY: it was initialised just now, and is destroyed once, when it is dropped.
        let mut attributes = SpawnAttributes(unsafe { object.assume_init() });
        let (none, all) = (no_signals(), all_signals());
        let flags = libc::c_int::from(libc::POSIX_SPAWN_SETSID) // another width with each C library
                | libc::POSIX_SPAWN_SETSIGMASK
                | libc::POSIX_SPAWN_SETSIGDEF;
        // SAFETY: the object and the sets are initialised and live; the sets are copied.
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
        // SAFETY: it was initialised, and nobody uses it after this.
        let _ = unsafe { libc::posix_spawnattr_destroy(&mut self.0) };
    }
}
