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

/// An epoll instance. It holds the descriptor on which the kernel tells of changes on disk beside the
/// sockets: rename(2) queues its event before it returns, so the call that delivers a later request
/// tells of the change as well, and no request needs a call of its own for that.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    disk: RefCell<Option<Arc<Inotify>>>,
    /// Changes on disk were told, and it isn't known yet that all of them are read.
    is_told: Cell<bool>,
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
        Ok(Poller {
            epoll,
            disk: RefCell::default(),
            is_told: Cell::new(false),
        })
    }

    /// Hears of changes on disk here from now on.
    pub fn follow(&self, disk: Option<Arc<Inotify>>) {
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
        // One that can't be added is asked by every request.
        let is_added = disk
            .as_ref()
            .is_none_or(|new| epoll::add(&self.epoll, new.as_fd(), DISK, ONCE).is_ok());
        self.is_told.set(!is_added);
        *followed = disk;
    }

    /// Whether changes on disk were told by the last [`Poller::take`] or [`Poller::look`], or before
    /// that, and may be unread.
    pub fn is_told(&self) -> bool {
        self.is_told.get()
    }

    /// Looks for changes on disk now, with a system call. A request needs it whose bytes may have come
    /// after the last [`Poller::take`].
    pub fn look(&self) {
        let disk = self.disk.borrow();
        if !self.is_told.get() && disk.as_ref().is_some_and(|disk| disk.has_unread()) {
            self.is_told.set(true);
        }
    }

    /// Whether changes that were told are still unread. If they aren't, the poller hears of the next
    /// ones again.
    pub fn is_unread(&self) -> bool {
        let disk = self.disk.borrow();
        let Some(disk) = disk.as_ref() else {
            return false;
        };
        if disk.has_unread() {
            return true;
        }
        // What is told from here on is reported, because a change of the flags looks for it.
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
    /// Looks for the news of the disk among all that has happened. Where there was no room for all of
    /// it, it may be in what is left.
    fn hear(&self, events: &[epoll::Event]) {
        if events.iter().any(|event| event.data.u64() == DISK.u64()) {
            self.is_told.set(true);
        } else if events.len() >= EVENTS_MAX {
            self.look();
        }
    }
}

/// So much news is taken from the kernel at once.
pub const EVENTS_MAX: usize = 256;

/// The name of the disk, which no socket has.
const DISK: EventData = EventData::new_u64(u32::MAX as u64);
/// A change is told once until [`Poller::is_unread`] asks for the next one. So a storm of changes wakes
/// an idle worker once.
const ONCE: EventFlags = EventFlags::IN
    .union(EventFlags::ET)
    .union(EventFlags::ONESHOT);

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
