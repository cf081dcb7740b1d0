//! Epoll instance of a worker, nested in the epoll instance of the runtime.
//!
//! A task with a waker, and the runtime's record of a socket, would cost each connection nearly 1 KB and
//! each request two passes through a queue. So the runtime watches one descriptor for all connections, and
//! the worker handles the events: a connection that waits only for the socket runs directly from the event
//! loop.

use base::sys::{self, Inotify};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::io::unix::AsyncFd;

/// The epoll instance of a worker, with the worker's sockets and the inotify descriptor that reports
/// changes on disk. rename(2) queues an inotify event before the call returns. So the `epoll_wait` that
/// delivers a later request also reports the change, and a request needs no system call of its own for the
/// check.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
    disk: RefCell<Option<Arc<Inotify>>>,
    /// True if changes on disk were reported and some of the changes may be unread.
    is_told: Cell<bool>,
    life: RefCell<LifeSign>,
}

/// Answers to the question whether the event loop runs.
#[derive(Default, Debug)]
struct LifeSign {
    /// Descriptor that is always readable, and reported once each time it is armed.
    event: Option<OwnedFd>,
    /// Values to be set at the next report.
    waiting: Vec<Arc<AtomicBool>>,
}

/// Readiness of a socket, as reported by the kernel.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Readiness(EventFlags);

/// Number of a socket, and the reported readiness.
pub(crate) type SocketEvent = (u32, Readiness);

impl Poller {
    /// Makes an epoll instance without sockets.
    ///
    /// # Errors
    /// Fails if no descriptor or no memory is left.
    pub(super) fn new() -> io::Result<Poller> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Poller {
            epoll,
            disk: RefCell::default(),
            is_told: Cell::new(false),
            life: RefCell::default(),
        })
    }

    /// Adds the inotify descriptor `disk` to the epoll instance, in place of a former one.
    pub(super) fn set_inotify(&self, disk: Option<Arc<Inotify>>) {
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

    /// Checks for changes on disk now, with a system call. The check is needed for a request that may
    /// have arrived after the last [`Poller::take`].
    pub(crate) fn check_inotify(&self) {
        let disk = self.disk.borrow();
        if !self.is_told.get() && disk.as_ref().is_some_and(|disk| disk.has_unread()) {
            self.is_told.set(true);
        }
    }

    /// Returns true if [`Poller::take`] or [`Poller::check_inotify`] has reported changes on disk, and the
    /// control plane has not read the changes. Without a report the check costs no system call.
    #[inline]
    pub(crate) fn has_unread_changes(&self) -> bool {
        self.is_told.get() && self.are_told_unread()
    }

    /// Returns true if reported changes on disk are still unread. If all changes are read, the poller
    /// arms the descriptor again, so that epoll reports the next change.
    #[cold]
    fn are_told_unread(&self) -> bool {
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

    /// Registers `socket` under the number `slot` until the socket is closed. Epoll reports the current
    /// readiness, then each change once.
    ///
    /// # Errors
    /// Fails if no memory is left, or if the limit of watched descriptors is reached.
    pub(super) fn add(&self, socket: BorrowedFd<'_>, slot: u32) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let slot = EventData::new_u64(u64::from(slot));
        Ok(epoll::add(&self.epoll, socket, slot, flags)?)
    }

    /// Sets `is_alive` when the event loop takes an event that is pending from now on.
    ///
    /// # Errors
    /// Fails if no descriptor or no memory is left.
    pub(super) fn report_at_next_event(&self, is_alive: Arc<AtomicBool>) -> io::Result<()> {
        let mut life = self.life.borrow_mut();
        match &life.event {
            Some(event) => epoll::modify(&self.epoll, event, LIFE, ONCE)?,
            None => {
                let event = eventfd(1, EventfdFlags::CLOEXEC)?;
                epoll::add(&self.epoll, &event, LIFE, ONCE)?;
                life.event = Some(event);
            }
        }
        life.waiting.push(is_alive);
        Ok(())
    }

    /// Registers the epoll instance with the runtime of the current thread. The descriptor is readable
    /// while events are pending.
    ///
    /// # Errors
    /// Fails if no descriptor or no memory is left.
    pub(super) fn watched(&self) -> io::Result<AsyncFd<OwnedFd>> {
        sys::async_readable(self.epoll.try_clone()?)
    }

    /// Puts pending events into `into`, at most as many as the vector has room for. Never waits.
    pub(super) fn take(&self, into: &mut Vec<epoll::Event>) -> io::Result<()> {
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
                    self.record_own(into);
                    Ok(())
                }
                Err(Errno::INTR) => continue,
                Err(errno) => Err(errno.into()),
            };
        }
    }
}

impl Poller {
    /// Records the events of the poller's own descriptors among `events`. If `events` is full, the kernel may still
    /// hold the inotify event, so the descriptor is checked directly.
    fn record_own(&self, events: &[epoll::Event]) {
        for event in events {
            if event.data.u64() >= LIFE.u64() {
                self.record(event.data.u64());
            }
        }
        if events.len() >= EVENTS_MAX {
            self.check_inotify();
        }
    }

    #[cold]
    fn record(&self, own: u64) {
        if own == DISK.u64() {
            return self.is_told.set(true);
        }
        for is_alive in std::mem::take(&mut self.life.borrow_mut().waiting) {
            is_alive.store(true, Relaxed);
        }
    }
}

/// Most events returned by one `epoll_wait`.
pub(crate) const EVENTS_MAX: usize = 256;

/// The epoll data of the inotify descriptor; no socket has this number.
const DISK: EventData = EventData::new_u64(u32::MAX as u64);
/// The epoll data of the descriptor of [`LifeSign`]; no socket has this number.
const LIFE: EventData = EventData::new_u64(u32::MAX as u64 - 1);
/// The epoll flags of the poller's own descriptors: epoll reports one change, and the next change only after
/// [`Poller::has_unread_changes`] has armed the descriptor again. So a storm of changes wakes an idle worker
/// once.
const ONCE: EventFlags = EventFlags::IN
    .union(EventFlags::ET)
    .union(EventFlags::ONESHOT);

/// Returns the socket number and the readiness of an event.
pub(super) fn read(event: &epoll::Event) -> SocketEvent {
    (event.data.u64() as u32, Readiness(event.flags))
}

impl Readiness {
    /// Returns true if bytes or the end of the stream can be read.
    pub(super) fn readable(self) -> bool {
        self.0.intersects(EventFlags::IN) || self.ended()
    }

    /// Returns true if the socket has room for writing, or if a write would report an error.
    pub(super) fn writable(self) -> bool {
        self.0
            .intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR)
    }

    /// Returns true if the connection broke, for example by a reset. A peer that has only ended the sending side still
    /// waits for bytes.
    pub(super) fn broke(self) -> bool {
        self.0.intersects(EventFlags::HUP | EventFlags::ERR)
    }

    /// Returns true if the peer has ended the sending side, or if the connection broke.
    pub(super) fn ended(self) -> bool {
        self.0
            .intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
    }
}
