//! The worker's own epoll, inside the runtime's.
//!
//! A task with its waker, and the runtime's record of a socket, would cost each connection nearly a
//! kilobyte and each request two trips through a queue. So the runtime sees one descriptor for all
//! connections, and a worker goes through what has happened itself: a connection that waits for
//! nothing but its socket gets its turn straight from here.

use crate::base::sys;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use tokio::io::unix::AsyncFd;

/// An epoll instance.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
}

/// What has become possible on a socket.
#[derive(Copy, Clone, Debug)]
pub struct Ready(EventFlags);

/// A socket's name and its news.
pub type Event = (u32, Ready);

impl Poller {
    /// A new one, watching nothing.
    ///
    /// # Errors
    /// No descriptor or no memory left.
    pub fn new() -> io::Result<Poller> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Poller { epoll })
    }

    /// Tells of `socket` under the name `slot` from now on, until it is closed: what is possible now,
    /// then each change once.
    ///
    /// # Errors
    /// No memory left, or as many are watched as the system allows.
    pub fn add(&self, socket: BorrowedFd<'_>, slot: u32) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let slot = EventData::new_u64(u64::from(slot));
        Ok(epoll::add(&self.epoll, socket, slot, flags)?)
    }

    /// Registers it with the runtime of this thread: readable while there is news.
    ///
    /// # Errors
    /// No descriptor or no memory left.
    pub fn watched(&self) -> io::Result<AsyncFd<OwnedFd>> {
        sys::readable(self.epoll.try_clone()?)
    }

    /// Puts what has happened into `into`, at most as much as it has room for; never waits.
    pub fn take(&self, into: &mut Vec<epoll::Event>) -> io::Result<()> {
        into.clear();
        let now = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        loop {
            return match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(into),
                Some(&now),
            ) {
                Ok(_) => Ok(()),
                Err(Errno::INTR) => continue,
                Err(errno) => Err(errno.into()),
            };
        }
    }
}

/// Whose news, and what.
pub fn read(event: &epoll::Event) -> Event {
    (event.data.u64() as u32, Ready(event.flags))
}

impl Ready {
    /// There is something to read, were it the end.
    pub fn readable(self) -> bool {
        self.0.intersects(EventFlags::IN) || self.ended()
    }

    /// There is room to write, or writing will tell what is wrong.
    pub fn writable(self) -> bool {
        self.0
            .intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR)
    }

    /// The peer's side has ended, or the connection broke.
    pub fn ended(self) -> bool {
        self.0
            .intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
    }
}
