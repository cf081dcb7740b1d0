//! The worker's own epoll, inside the runtime's.
//!
//! A task with its waker, and the runtime's record of a socket, would cost each connection nearly a
//! kilobyte and each request two trips through a queue. So the runtime sees one descriptor for all
//! connections, and a worker goes through what has happened itself: a connection that waits for
//! nothing but its socket gets its turn straight from here.

use crate::base::sys::{self, Inotify};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use tokio::io::unix::AsyncFd;

/// The epoll instance of a worker, with the worker's sockets and the inotify descriptor that reports
/// changes on disk. rename(2) queues its event before rename(2) returns. So the `epoll_wait` that
/// delivers a later request also reports the change, and a request needs no system call of its own for
/// the check.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    disk: RefCell<Option<Arc<Inotify>>>,
    /// True if changes on disk were reported and some of the changes may be unread.
    is_told: Cell<bool>,
}

/// What has become possible on a socket.
#[derive(Copy, Clone, Debug)]
pub struct Readiness(EventFlags);

/// A socket's name and its news.
pub type SocketEvent = (u32, Readiness);

impl Poller {
    /// A new one, watching nothing.
    ///
    /// # Errors
    /// No descriptor or no memory left.
    pub fn new() -> io::Result<Poller> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Poller {
            epoll,
            disk: RefCell::default(),
            is_told: Cell::new(false),
        })
    }

    /// Adds the inotify descriptor `disk` to the epoll instance, in place of a former one.
    pub fn set_inotify(&self, disk: Option<Arc<Inotify>>) {
        let mut followed = self.disk.borrow_mut();
        let is_same = match (&*followed, &disk) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            (None, None) => true,
            _ => false,
        };
        if is_same {
            return;
        }
        if let Some(old) = followed.take() {
            let _ = epoll::delete(&self.epoll, old.as_fd());
        }
        // If epoll does not accept the descriptor, every request asks the descriptor itself.
        let is_added = disk
            .as_ref()
            .is_none_or(|new| epoll::add(&self.epoll, new.as_fd(), DISK, ONCE).is_ok());
        self.is_told.set(!is_added);
        *followed = disk;
    }

    /// Returns true if [`Poller::take`] or [`Poller::look`] has reported changes on disk that may be
    /// unread.
    pub fn has_disk_changes(&self) -> bool {
        self.is_told.get()
    }

    /// Checks for changes on disk now, with a system call. The check is needed for a request that may
    /// have arrived after the last [`Poller::take`].
    pub fn check_inotify(&self) {
        let disk = self.disk.borrow();
        if !self.is_told.get() && disk.as_ref().is_some_and(|disk| disk.has_unread()) {
            self.is_told.set(true);
        }
    }

    /// Returns true if reported changes on disk are still unread. If all changes are read, the poller
    /// arms the descriptor again, so that epoll reports the next change.
    pub fn has_unread_changes(&self) -> bool {
        let disk = self.disk.borrow();
        let Some(disk) = disk.as_ref() else {
            return false;
        };
        if disk.has_unread() {
            return true;
        }
        // epoll_ctl(2) with EPOLL_CTL_MOD checks the descriptor anew, so a change that arrived
        // meanwhile is reported.
        if epoll::modify(&self.epoll, disk.as_fd(), DISK, ONCE).is_ok() {
            self.is_told.set(false);
        }
        false
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
        sys::async_readable(self.epoll.try_clone()?)
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
                Ok(_) => {
                    self.hear(into);
                    Ok(())
                }
                Err(Errno::INTR) => continue,
                Err(errno) => Err(errno.into()),
            };
        }
    }
}

impl Poller {
    /// Notes an event of the inotify descriptor among `events`. If `events` is full, the kernel may
    /// still hold that event, so the descriptor itself is asked.
    fn hear(&self, events: &[epoll::Event]) {
        if events.iter().any(|event| event.data.u64() == DISK.u64()) {
            self.is_told.set(true);
        } else if events.len() >= EVENTS_MAX {
            self.check_inotify();
        }
    }
}

/// The maximum number of events that one `epoll_wait` returns.
pub const EVENTS_MAX: usize = 256;

/// The epoll data of the inotify descriptor; no socket has this number.
const DISK: EventData = EventData::new_u64(u32::MAX as u64);
/// The epoll flags of the inotify descriptor: epoll reports one change, and the next change only after
/// [`Poller::has_unread_changes`] has armed the descriptor again. So a storm of changes wakes an idle worker
/// once.
const ONCE: EventFlags = EventFlags::IN
    .union(EventFlags::ET)
    .union(EventFlags::ONESHOT);

/// Whose news, and what.
pub fn read(event: &epoll::Event) -> SocketEvent {
    (event.data.u64() as u32, Readiness(event.flags))
}

impl Readiness {
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
