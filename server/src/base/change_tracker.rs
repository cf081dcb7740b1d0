//! How far what is served lags behind the disk: a ledger between who hears of changes and who is asked
//! for what isn't there.
//!
//! The kernel notes a change before the writer's call returns, so whoever finds nothing unread, and
//! nothing read that isn't served, may trust what is served. To ask costs one `poll`, and only who says
//! no asks. What isn't read may concern anybody; what is read is known to concern some sites only.

use crate::base::sys::Inotify;
use crate::limits::CATCH_UP_WAIT_MILLISECONDS_MAX;
use arc_swap::ArcSwapOption;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// What the disk has told and isn't served yet.
#[derive(Debug)]
pub struct ChangeTracker {
    /// Where changes are told; None where they aren't.
    told: ArcSwapOption<Inotify>,
    /// Some of it is taken out there, and not noted yet for the sites that it concerns.
    is_reading: AtomicBool,
    rounds: watch::Sender<RoundCounts>,
    /// The number of requests that found the disk different from the site although no change was
    /// reported.
    asked: AtomicU64,
    /// The value of `asked` when the current round began: the round handles requests up to this number.
    taken: AtomicU64,
    asks: Notify,
}

/// How often something was done.
#[derive(Copy, Clone, Default, Debug)]
struct RoundCounts {
    /// All that was told was read and noted.
    read: u64,
    /// All that was told was read, and is served or came to nothing.
    served: u64,
    /// The number of requests in [`ChangeTracker::asked`] that are settled: the new content is served, or the
    /// site did not change.
    answered: u64,
}

/// The same for one site.
#[derive(Clone, Debug)]
pub struct SiteChangeTracker {
    lag: Arc<ChangeTracker>,
    /// True while a change was read from inotify that some worker does not serve yet.
    is_pending: Arc<AtomicBool>,
}

/// Somebody who waits until what was told is served.
#[derive(Debug)]
pub struct CatchUp {
    site: SiteChangeTracker,
    begun: RoundCounts,
    /// The number of the request in [`ChangeTracker::asked`]; 0 for a request that waits for reported changes.
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
    /// From now on changes are told here; where nobody tells, nothing lags behind but what is noted.
    pub fn set_inotify(&self, told: Option<Arc<Inotify>>) {
        self.told.store(told);
    }

    /// The inotify descriptor that reports changes; None if folders are not watched.
    pub fn inotify(&self) -> Option<Arc<Inotify>> {
        self.told.load_full()
    }

    /// Waits for a request that calls [`SiteChangeTracker::ask`].
    pub async fn recheck_requested(&self) {
        self.asks.notified().await;
    }

    /// Begins a round that handles the stale paths of all requests that have asked so far. The control
    /// plane calls this function before the stale paths are taken from the sites.
    pub fn begin_recheck(&self) {
        let asked = self.asked.load(Ordering::SeqCst);
        self.taken.store(asked, Ordering::SeqCst);
    }

    /// Ends the round: wakes the requests that [`ChangeTracker::begin_recheck`] included. Every worker serves their
    /// paths anew, or the sites did not change.
    pub fn finish_recheck(&self) {
        let answered = self.taken.load(Ordering::SeqCst);
        self.rounds.send_modify(|rounds| rounds.answered = answered);
    }

    /// What was told is read next. It must be said before: who then finds nothing unread sees that it
    /// is being read.
    pub fn begin_read(&self) {
        self.is_reading.store(true, Ordering::SeqCst);
    }

    /// What was read is noted for the sites that it concerns.
    pub fn finish_read(&self) {
        self.is_reading.store(false, Ordering::SeqCst);
        self.rounds.send_modify(|rounds| rounds.read += 1);
    }

    /// What was read is served by every worker, or changes nothing; nothing is noted any more.
    pub fn mark_served(&self) {
        self.rounds.send_modify(|rounds| rounds.served += 1);
        self.finish_recheck();
    }

    /// Is there something that nobody has looked at?
    fn is_unread(&self) -> bool {
        // What was told is looked for first: once read it is no longer there.
        let told = self.told.load();
        self.is_reading.load(Ordering::SeqCst)
            || told.as_ref().is_some_and(|told| told.has_unread())
            || self.is_reading.load(Ordering::SeqCst)
    }
}

impl SiteChangeTracker {
    /// Of a site that nothing is noted for.
    pub fn new(lag: &Arc<ChangeTracker>) -> SiteChangeTracker {
        SiteChangeTracker {
            lag: Arc::clone(lag),
            is_pending: Arc::default(),
        }
    }

    /// Records that a change of this site was read from inotify.
    pub fn mark_pending(&self) {
        self.is_pending.store(true, Ordering::SeqCst);
    }

    /// All that was noted is served.
    pub fn clear(&self) {
        self.is_pending.store(false, Ordering::SeqCst);
    }

    /// How to wait for what was told before, if that isn't all served yet. A worker asks after it has
    /// looked at its World, and before it takes up another one.
    pub fn pending_catch_up(&self) -> Option<CatchUp> {
        let is_behind = self.is_pending() || self.lag.is_unread() || self.is_pending();
        is_behind.then(|| self.catch_up(0))
    }

    /// Returns true if no change that was read still waits to be served. Changes that the kernel has
    /// reported but the control plane has not read do not count: the worker's poller knows of those
    /// changes. The check runs for every request of a stored page and costs a few atomic loads.
    pub fn is_caught_up(&self) -> bool {
        // The order of the loads matters: the control plane notes a change for its site before it
        // clears `is_reading`.
        !self.lag.is_reading.load(Ordering::SeqCst) && !self.is_pending()
    }

    /// Asks the control plane to read the path that the request noted as stale, and returns the wait
    /// for the next World. Returns None where inotify is not in use: folders are scanned from time to
    /// time, or the server stops.
    pub fn request_recheck(&self) -> Option<CatchUp> {
        self.lag.told.load().as_ref()?;
        let ticket = self.lag.asked.fetch_add(1, Ordering::SeqCst) + 1;
        self.lag.asks.notify_one();
        Some(self.catch_up(ticket))
    }

    fn catch_up(&self, ticket: u64) -> CatchUp {
        let rounds = self.lag.rounds.subscribe();
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
    /// Waits, but not for ever: where changes come faster than they are read, the answer is that of
    /// the World at hand.
    pub async fn wait(mut self) {
        let caught_up = async { while !self.is_served() && self.rounds.changed().await.is_ok() {} };
        let _ = timeout(
            Duration::from_millis(CATCH_UP_WAIT_MILLISECONDS_MAX),
            caught_up,
        )
        .await;
    }

    /// A round that was under way when it was asked may have begun before; the next one has everything.
    fn is_served(&mut self) -> bool {
        let rounds = *self.rounds.borrow_and_update();
        if self.ticket > 0 {
            return rounds.answered >= self.ticket;
        }
        let is_read = rounds.read >= self.begun.read + ROUNDS || !self.site.lag.is_unread();
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
    fn what_is_told_lags_until_it_is_served() {
        let folder = tempfile::tempdir().expect("a folder");
        let inotify = Arc::new(Inotify::new().expect("inotify"));
        inotify
            .watch(folder.path(), Inotify::FOLDER)
            .expect("a watch");
        let write = || fs::write(folder.path().join("new"), "text").expect("written");
        let lag = Arc::new(ChangeTracker::default());
        let [site, other] = [SiteChangeTracker::new(&lag), SiteChangeTracker::new(&lag)];
        let is_behind = |site: &SiteChangeTracker| site.pending_catch_up().is_some();
        write();
        assert!(!is_behind(&site), "no change is told");
        lag.set_inotify(Some(Arc::clone(&inotify)));
        // Until it is read it may concern anybody.
        assert_eq!([&site, &other].map(is_behind), [true, true]);
        let unread = [&site, &other].map(|site| site.pending_catch_up().expect("unread"));
        lag.begin_read();
        assert!(!inotify.read().expect("read").is_empty());
        assert_eq!([&site, &other].map(is_behind), [true, true]);
        assert!(!site.is_caught_up() && !other.is_caught_up());
        site.mark_pending();
        lag.finish_read();
        assert_eq!([&site, &other].map(is_behind), [true, false]);
        assert!(!site.is_caught_up() && other.is_caught_up());
        let noted = site.pending_catch_up().expect("noted");
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
            assert!(is_done(of_other).await, "it was about another site");
            assert!(!is_done(site.pending_catch_up().expect("noted")).await);
            site.clear();
            lag.mark_served();
            assert!(is_done(unread).await && is_done(noted).await);
            assert!(!is_behind(&site));
            // What is told again and again: the second round has what was told before.
            write();
            let waits = site.pending_catch_up().expect("unread");
            site.mark_pending();
            lag.finish_read();
            lag.mark_served();
            lag.finish_read();
            lag.mark_served();
            assert!(is_done(waits).await);
            assert!(is_behind(&site));
            // Nobody ever reads this.
            site.pending_catch_up().expect("unread").wait().await;
            assert!(is_behind(&site));
            // A round includes the request that asked before the round began, and not a request that
            // asks later.
            let before = site.request_recheck().expect("a round to come");
            lag.begin_recheck();
            let after = site.request_recheck().expect("a round to come");
            lag.mark_served();
            assert!(is_done(before).await && !is_done(after).await);
            lag.set_inotify(None);
            assert!(site.request_recheck().is_none());
            site.clear();
            assert!(!is_behind(&site));
        });
    }
}
