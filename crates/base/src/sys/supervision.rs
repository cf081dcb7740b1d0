//! System calls of a supervisor: a process with one thread that starts another program again and again, and that may be
//! process 1 of a container.

use super::must_be_single_threaded;
use super::spawn::{NO_SIGNALS, SignalSet, default_signals, set_signal_mask};
use rustix::process::{Signal, WaitOptions, WaitStatus};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Signals that wait to be read instead of interrupting the process.
#[derive(Debug)]
pub struct SignalQueue(OwnedFd);

impl SignalQueue {
    /// Blocks the signals, and all later ones of these kinds wait in the queue. Process 1 of a PID namespace gets no signal
    /// with the default action, but gets blocked ones. Must be called before a second thread exists.
    pub fn new(signals: &[i32]) -> io::Result<SignalQueue> {
        must_be_single_threaded()?;
        let bits = signals.iter().map(|signal| 1 << (signal - 1));
        let set = bits.fold(NO_SIGNALS, |set: SignalSet, bit: SignalSet| set | bit);
        set_signal_mask(set);
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: the set is live and has the size of the kernel's sets. The call returns a new descriptor or an error.
        let number = unsafe {
            let size = size_of::<SignalSet>();
            libc::syscall(libc::SYS_signalfd4, -1, &raw const set, size, flags)
        };
        let number = RawFd::try_from(number).unwrap_or(-1);
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, so no other code owns it.
        Ok(SignalQueue(unsafe { OwnedFd::from_raw_fd(number) }))
    }

    /// Returns the next waiting signal, or None.
    pub fn next(&self) -> Option<i32> {
        // `struct signalfd_siginfo` begins with the number of the signal.
        let mut record = [0_u8; size_of::<libc::signalfd_siginfo>()];
        let read = rustix::io::read(&self.0, &mut record);
        let number = u32::from_ne_bytes(*record.first_chunk()?);
        (read == Ok(record.len())).then(|| number.try_into().ok())?
    }
}

impl AsFd for SignalQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// End of a process.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ProcessEnd {
    /// The process ended itself with an exit status.
    Status(i32),
    /// A signal ended the process.
    Signal(i32),
}

/// Returns an ended child with its end, or None. As process 1, all orphans of the namespace are children.
pub fn next_ended_child() -> Option<(u32, ProcessEnd)> {
    loop {
        let (pid, status) = rustix::process::wait(WaitOptions::NOHANG).ok()??;
        if let Some(end) = end_of(status) {
            return Some((pid.as_raw_nonzero().get().unsigned_abs(), end));
        }
    }
}

fn end_of(status: WaitStatus) -> Option<ProcessEnd> {
    let exited = status.exit_status().map(ProcessEnd::Status);
    exited.or_else(|| status.terminating_signal().map(ProcessEnd::Signal))
}

/// Sends a signal to the process `pid`.
pub fn send_signal(pid: u32, signal: i32) -> io::Result<()> {
    let pid = i32::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the call takes two numbers and touches no memory.
    match unsafe { libc::kill(pid, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has the kernel end this process with SIGKILL when its parent ends. A change of the user takes the setting back.
pub fn end_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(
        Signal::KILL,
    ))?)
}

/// Program that a supervisor starts.
#[derive(Debug)]
pub struct SupervisedProgram<'p> {
    /// File of the program. If the file is gone, the file of the running program is started.
    pub file: &'p Path,
    /// Name of the program in its own list of arguments.
    pub name: &'p Path,
    /// Arguments after the program's name.
    pub arguments: &'p [OsString],
    /// Variables to set, beside those of the supervisor.
    pub variables: &'p [(&'p str, String)],
    /// Sockets that the program gets from descriptor 3 on, each with its name (LISTEN_FDS, LISTEN_FDNAMES).
    pub sockets: &'p [(&'p str, BorrowedFd<'p>)],
    /// Addition to the score by which the kernel chooses a process to end for want of memory.
    pub oom_score_addition: i32,
}

impl SupervisedProgram<'_> {
    /// Starts the program in a process group of its own, so that a signal of the terminal reaches the supervisor alone, and
    /// with no signal ignored or blocked. Returns the number of the process. A program that can't be started prints the
    /// reason, and the process ends with status 1. Must be called while the process has one thread.
    pub fn start(&self) -> io::Result<u32> {
        must_be_single_threaded()?;
        // SAFETY: the process has one thread (checked above), so no lock is held in the copy, and the copy may run any code.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let error = self.become_program();
                let name = self.name.display();
                let _ = writeln!(io::stderr(), "error: {name} can't be started: {error}");
                super::exit_at_once(1)
            }
            pid => Ok(pid.unsigned_abs()),
        }
    }

    /// Turns the child process into the program, and returns the error if the kernel refuses.
    fn become_program(&self) -> io::Error {
        let prepared = self.prepare();
        if let Err(error) = prepared {
            return error;
        }
        let error = self.command(self.file.as_os_str()).exec();
        if error.kind() != io::ErrorKind::NotFound {
            return error;
        }
        self.command("/proc/self/exe".as_ref()).exec()
    }

    fn prepare(&self) -> io::Result<()> {
        default_signals();
        set_signal_mask(NO_SIGNALS);
        rustix::process::setpgid(None, None)?;
        end_with_parent()?;
        // A process may always raise its own score. A sandbox without the file leaves the usual score.
        let _ = add_to_oom_score(self.oom_score_addition);
        let mut copies = Vec::with_capacity(self.sockets.len());
        let free = FIRST_PASSED + self.sockets.len() as RawFd;
        for (_, socket) in self.sockets {
            copies.push(rustix::io::fcntl_dupfd_cloexec(socket, free)?);
        }
        for (number, copy) in (FIRST_PASSED..).zip(&copies) {
            // SAFETY: no code of the child uses another descriptor from here than the copies, which have higher numbers, and
            // the standard descriptors, which have lower ones.
            if unsafe { libc::dup2(copy.as_raw_fd(), number) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    fn command(&self, file: &OsStr) -> Command {
        let mut command = Command::new(file);
        command.arg0(self.name).args(self.arguments);
        for (name, value) in self.variables {
            command.env(name, value);
        }
        let own = std::process::id().to_string();
        if !self.sockets.is_empty() {
            let names: Vec<&str> = self.sockets.iter().map(|it| it.0).collect();
            command
                .env("LISTEN_FDS", names.len().to_string())
                .env("LISTEN_FDNAMES", names.join(":"))
                .env("LISTEN_PID", &own);
        }
        command.env("WATCHDOG_PID", &own);
        command
    }
}

/// Number of the first passed descriptor (SD_LISTEN_FDS_START).
const FIRST_PASSED: RawFd = 3;
/// Highest score, with which the kernel ends a process first (OOM_SCORE_ADJ_MAX).
const OOM_SCORE_MAX: i32 = 1_000;

fn add_to_oom_score(addition: i32) -> io::Result<()> {
    let file = "/proc/self/oom_score_adj";
    let score: i32 = fs::read_to_string(file)?.trim().parse().unwrap_or(0);
    fs::write(file, (score + addition).min(OOM_SCORE_MAX).to_string())
}
