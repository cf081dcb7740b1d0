//! Tracking of file changes reported by inotify and not served yet.
//!
//! The tracker connects the control plane, which reads the reports, with requests for missing files. The
//! kernel queues a report before the writer's system call returns. A worker that finds no unread report,
//! and no read report that is still unserved, may therefore answer from its World. The check costs one
//! `poll` and happens only before a 404. An unread report may concern any site. A report that was read
//! concerns known sites.

use crate::limits::CATCH_UP_WAIT_MILLISECONDS_MAX;
use arc_swap::ArcSwapOption;
use base::sys::Inotify;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// Changes reported by the kernel and not served yet, for the whole process.
#[derive(Debug)]
pub struct ChangeTracker {
    /// The inotify descriptor for reports of changes, or None if folders are not watched.
    told: ArcSwapOption<Inotify>,
    /// True while reports are taken out of the inotify descriptor and not yet recorded for their sites.
    is_reading: AtomicBool,
    rounds: watch::Sender<RoundCounts>,
    /// The number of requests that found the disk different from the site although no change was reported.
    asked: AtomicU64,
    /// The value of `asked` at the beginning of the current round: the round handles requests up to the
    /// number.
    taken: AtomicU64,
    asks: Notify,
}

/// Counts of completed rounds.
#[derive(Copy, Clone, Default, Debug)]
struct RoundCounts {
    /// Rounds in which all reports were read and recorded for their sites.
    read: u64,
    /// Rounds in which all reports were read, and the changes are served or had no effect.
    served: u64,
    /// The number of requests in [`ChangeTracker::asked`] that are settled: the new content is served, or
    /// the site did not change.
    answered: u64,
}

/// Changes of one site reported by inotify and not served yet.
#[derive(Clone, Debug)]
pub struct SiteChangeTracker {
    tracker: Arc<ChangeTracker>,
    /// True while a worker does not serve a change read from inotify.
    is_pending: Arc<AtomicBool>,
}

/// A request's wait until changes reported so far are served.
#[derive(Debug)]
pub(crate) struct CatchUp {
    site: SiteChangeTracker,
    begun: RoundCounts,
    /// The number of the request in [`ChangeTracker::asked`]; 0 for a request that waits for reported
    /// changes.
    ticket: u64,
    rounds: watch::Receiver<RoundCounts>,
}

impl Default for ChangeTracker {
    fn default() -> ChangeTracker {
        ChangeTracker {
            told: ArcSwapOption::empty(),
            is_reading: AtomicBool::new(false),
            rounds: watch::Sender::default(),
            asked: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            asks: Notify::new(),
        }
    }
}

impl ChangeTracker {
    /// Sets the inotify descriptor. With None, only changes already recorded for a
    /// site count as pending.
    pub fn set_inotify(&self, told: Option<Arc<Inotify>>) {
        self.told.store(told);
    }

    /// Returns the inotify descriptor, or None if folders are not watched.
    pub(crate) fn inotify(&self) -> Option<Arc<Inotify>> {
        self.told.load_full()
    }

    /// Waits for a call of [`SiteChangeTracker::request_recheck`].
    pub async fn recheck_requested(&self) {
        self.asks.notified().await;
    }

    /// Begins a round that handles the stale paths of all requests made so far. The control
    /// plane calls this function before it takes the stale paths from the sites.
    pub fn begin_recheck(&self) {
        let asked = self.asked.load(Ordering::SeqCst);
        self.taken.store(asked, Ordering::SeqCst);
    }

    /// Ends the round and wakes the requests included by [`ChangeTracker::begin_recheck`]. By now every
    /// worker serves the new content of their paths, or the sites did not change.
    pub fn finish_recheck(&self) {
        let answered = self.taken.load(Ordering::SeqCst);
        self.rounds.send_modify(|rounds| rounds.answered = answered);
    }

    /// Marks the beginning of a read from inotify. The call must precede the read: a worker that then finds
    /// no unread report sees the read under way.
    pub fn begin_read(&self) {
        self.is_reading.store(true, Ordering::SeqCst);
    }

    /// Marks the end of a read from inotify: all reports are recorded for their sites.
    pub fn finish_read(&self) {
        self.is_reading.store(false, Ordering::SeqCst);
        self.rounds.send_modify(|rounds| rounds.read += 1);
    }

    /// Records that every worker serves the changes read so far, or that the changes had no effect. No
    /// change of a site is pending any more.
    pub fn mark_served(&self) {
        self.rounds.send_modify(|rounds| rounds.served += 1);
        self.finish_recheck();
    }

    /// Returns true if a report is unread or being read.
    fn is_unread(&self) -> bool {
        // `is_reading` is loaded before and after the poll, since reports disappear from inotify during the
        // read.
        let told = self.told.load();
        self.is_reading.load(Ordering::SeqCst)
            || told.as_ref().is_some_and(|told| told.has_unread())
            || self.is_reading.load(Ordering::SeqCst)
    }
}

impl SiteChangeTracker {
    /// Makes a tracker for a site without pending changes.
    pub fn new(tracker: &Arc<ChangeTracker>) -> SiteChangeTracker {
        SiteChangeTracker {
            tracker: Arc::clone(tracker),
            is_pending: Arc::default(),
        }
    }

    /// Records that a change of this site was read from inotify.
    pub fn mark_pending(&self) {
        self.is_pending.store(true, Ordering::SeqCst);
    }

    /// Records that all pending changes of the site are served.
    pub fn clear(&self) {
        self.is_pending.store(false, Ordering::SeqCst);
    }

    /// Returns the wait for changes reported so far, or None if all are served. A worker calls this
    /// function after the lookup in its World, and before it takes up the next World.
    pub(crate) fn pending_catch_up(&self) -> Option<CatchUp> {
        let is_behind = self.is_pending() || self.tracker.is_unread() || self.is_pending();
        is_behind.then(|| self.catch_up(0))
    }

    /// Returns true if no change that was read still waits to be served. Changes that the kernel has
    /// reported but the control plane has not read do not count: the worker's poller knows of those
    /// changes. The check runs for every request of a stored page and costs a few atomic loads.
    pub(crate) fn is_caught_up(&self) -> bool {
        // The order of the loads matters: the control plane records a change for its site before the
        // control plane clears `is_reading`.
        !self.tracker.is_reading.load(Ordering::SeqCst) && !self.is_pending()
    }

    /// Asks the control plane to read the path that the request recorded as stale, and returns the wait for
    /// the next World. Returns None without inotify: folders are then scanned from time to time, or the
    /// server is stopping.
    pub(crate) fn request_recheck(&self) -> Option<CatchUp> {
        self.tracker.told.load().as_ref()?;
        let ticket = self.tracker.asked.fetch_add(1, Ordering::SeqCst) + 1;
        self.tracker.asks.notify_one();
        Some(self.catch_up(ticket))
    }

    fn catch_up(&self, ticket: u64) -> CatchUp {
        let rounds = self.tracker.rounds.subscribe();
        let begun = *rounds.borrow();
        CatchUp {
            site: self.clone(),
            begun,
            ticket,
            rounds,
        }
    }

    fn is_pending(&self) -> bool {
        self.is_pending.load(Ordering::SeqCst)
    }
}

impl CatchUp {
    /// Waits until the changes are served, at most [`CATCH_UP_WAIT_MILLISECONDS_MAX`]. If changes arrive
    /// faster than the control plane reads them, the request is answered from the current World.
    pub(crate) async fn wait(mut self) {
        let caught_up = async { while !self.is_served() && self.rounds.changed().await.is_ok() {} };
        let _ = timeout(
            Duration::from_millis(CATCH_UP_WAIT_MILLISECONDS_MAX),
            caught_up,
        )
        .await;
    }

    /// Returns true if the changes are served. A round under way at the start of the wait may have begun
    /// before the change, so the wait includes the next round, too.
    fn is_served(&mut self) -> bool {
        let rounds = *self.rounds.borrow_and_update();
        if self.ticket > 0 {
            return rounds.answered >= self.ticket;
        }
        let is_read = rounds.read >= self.begun.read + ROUNDS || !self.site.tracker.is_unread();
        let is_served = rounds.served >= self.begun.served + ROUNDS;
        is_read && (is_served || !self.site.is_pending())
    }
}

const ROUNDS: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::future::ready;
    use tokio::runtime::Builder;

    #[test]
    fn reported_changes_are_pending_until_they_are_served() {
        let folder = tempfile::tempdir().expect("a folder");
        let inotify = Arc::new(Inotify::new().expect("inotify"));
        inotify
            .watch(folder.path(), Inotify::FOLDER)
            .expect("a watch");
        let write = || fs::write(folder.path().join("new"), "text").expect("written");
        let tracker = Arc::new(ChangeTracker::default());
        let [site, other] = [
            SiteChangeTracker::new(&tracker),
            SiteChangeTracker::new(&tracker),
        ];
        let is_behind = |site: &SiteChangeTracker| site.pending_catch_up().is_some();
        write();
        assert!(!is_behind(&site), "no change is reported");
        tracker.set_inotify(Some(Arc::clone(&inotify)));
        // An unread report may concern any site.
        assert_eq!([&site, &other].map(is_behind), [true, true]);
        let unread = [&site, &other].map(|site| site.pending_catch_up().expect("unread"));
        tracker.begin_read();
        assert!(!inotify.read().expect("read").is_empty());
        assert_eq!([&site, &other].map(is_behind), [true, true]);
        assert!(!site.is_caught_up() && !other.is_caught_up());
        site.mark_pending();
        tracker.finish_read();
        assert_eq!([&site, &other].map(is_behind), [true, false]);
        assert!(!site.is_caught_up() && other.is_caught_up());
        let pending = site.pending_catch_up().expect("pending");
        let runtime = Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        let is_done = async |waits: CatchUp| {
            tokio::select! {
                biased;
                () = waits.wait() => true,
                () = ready(()) => false,
            }
        };
        runtime.block_on(async {
            let [unread, of_other] = unread;
            assert!(is_done(of_other).await, "the change was in another site");
            assert!(!is_done(site.pending_catch_up().expect("pending")).await);
            site.clear();
            tracker.mark_served();
            assert!(is_done(unread).await && is_done(pending).await);
            assert!(!is_behind(&site));
            // Changes are reported continually: the second round contains the earlier reports.
            write();
            let waits = site.pending_catch_up().expect("unread");
            site.mark_pending();
            tracker.finish_read();
            tracker.mark_served();
            tracker.finish_read();
            tracker.mark_served();
            assert!(is_done(waits).await);
            assert!(is_behind(&site));
            // The report stays unread, so the wait ends by its timeout.
            site.pending_catch_up().expect("unread").wait().await;
            assert!(is_behind(&site));
            // A round includes the request that asked before the round began, and not a request that asks
            // later.
            let before = site.request_recheck().expect("a round to come");
            tracker.begin_recheck();
            let after = site.request_recheck().expect("a round to come");
            tracker.mark_served();
            assert!(is_done(before).await && !is_done(after).await);
            tracker.set_inotify(None);
            assert!(site.request_recheck().is_none());
            site.clear();
            assert!(!is_behind(&site));
        });
    }
}
