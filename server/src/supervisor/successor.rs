//! Processes of the supervisor with their links, and the programs that they run.

use super::limits::PROGRAM_DESCRIPTOR_MIN;
use base::sys;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};
use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Process of the program.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) link: ServerLink,
    /// True once the kernel has been asked to end the process.
    pub(super) is_ending: bool,
}

impl Process {
    pub(super) fn new(pid: u32, link: ServerLink) -> Process {
        Process {
            pid,
            link,
            is_ending: false,
        }
    }
}

/// The supervisor's end of the link to a process; None after the end of the other side.
#[derive(Debug)]
pub(super) struct ServerLink(Option<OwnedFd>);

impl ServerLink {
    /// Returns a link, and the end for the process.
    pub(super) fn pair() -> io::Result<(ServerLink, OwnedFd)> {
        let (own, its) = sys::packet_pair()?;
        Ok((ServerLink(Some(own)), its))
    }

    /// Returns the descriptor to wait for.
    pub(super) fn source(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(AsFd::as_fd)
    }

    /// Returns the next message, or None if no message waits.
    pub(super) fn next(&mut self) -> Option<String> {
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        match recv(self.0.as_ref()?, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((0, _)) => {
                self.0 = None;
                None
            }
            Ok((length, _)) => Some(String::from_utf8_lossy(&bytes[..length]).into_owned()),
            Err(_) => None,
        }
    }

    /// Sends a message with a descriptor.
    pub(super) fn pass(&self, message: &str, passed: &OwnedFd) -> io::Result<()> {
        self.send(message, &[passed.as_fd()])
    }

    /// Sends a message. A process that reads nothing misses the message.
    pub(super) fn say(&self, message: &str) {
        let _ = self.send(message, &[]);
    }

    fn send(&self, message: &str, passed: &[BorrowedFd<'_>]) -> io::Result<()> {
        let link = self.0.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !passed.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(passed));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let text = [IoSlice::new(message.as_bytes())];
        sendmsg(link, &text, &mut control, flags)?;
        Ok(())
    }
}

/// Bytes of a message of the server.
const MESSAGE_BYTES_MAX: usize = 256;

/// Files of the programs, held open: a file that was replaced can still be started.
#[derive(Debug)]
pub(super) struct Programs {
    /// Path of the program.
    path: PathBuf,
    /// File of the running server.
    running: Option<OwnedFd>,
    /// File of the successor.
    new: Option<OwnedFd>,
    /// File of the server before the last restart.
    previous: Option<OwnedFd>,
    /// True if the next starts use the file of the running server instead of the path.
    is_fixed: bool,
}

impl Programs {
    pub(super) fn new(path: &Path) -> Programs {
        Programs {
            path: path.to_owned(),
            running: open(path).ok(),
            new: None,
            previous: None,
            is_fixed: false,
        }
    }

    /// Returns the path of the program for the next start.
    pub(super) fn file(&self) -> PathBuf {
        match &self.running {
            Some(file) if self.is_fixed => format!("/proc/self/fd/{}", file.as_raw_fd()).into(),
            _ => self.path.clone(),
        }
    }

    /// Opens the file of a successor.
    pub(super) fn open_new(&mut self, path: &Path) -> io::Result<()> {
        self.new = Some(open(path)?);
        Ok(())
    }

    /// Makes the file of the successor the running one.
    pub(super) fn succeed(&mut self, path: &Path) {
        let new = self.new.take().or_else(|| open(path).ok());
        self.previous = std::mem::replace(&mut self.running, new);
        self.is_fixed = false;
    }

    /// Makes the file before the last restart the running one. The next starts use the file, until the next restart.
    pub(super) fn use_previous(&mut self) {
        if let Some(previous) = self.previous.take() {
            self.running = Some(previous);
            self.is_fixed = true;
        }
    }
}

/// Opens a program, with a descriptor that no passed socket takes.
fn open(path: &Path) -> io::Result<OwnedFd> {
    let file = File::open(path)?;
    Ok(rustix::io::fcntl_dupfd_cloexec(
        &file,
        PROGRAM_DESCRIPTOR_MIN,
    )?)
}
