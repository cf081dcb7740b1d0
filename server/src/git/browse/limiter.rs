//! Limits of repository browsing: the number of pages generated at a time, separate from clones, and the
//! rate of expensive requests per client address. All workers share one limiter.

use crate::git::browse::locate::RepositoryList;
use crate::git::limits::{
    GIT_HEAVY_PAGES_AT_ONCE_MAX, GIT_LIST_CACHE_MILLISECONDS, GIT_LISTS_CACHED_MAX,
    GIT_LOOKUP_QUEUE_MAX, GIT_LOOKUP_THREADS, GIT_PAGES_AT_ONCE_MAX, GIT_PAGES_SENDING_BYTES_MAX,
    GIT_PAGES_SENDING_BYTES_PER_ADDRESS_MAX, GIT_RATED_ADDRESSES_MAX, GIT_WALK_THREADS,
};
use crate::git::repository::GitSettings;
use base::client_network::ClientNetwork;
use base::thread_pool::{ThreadPool, ThreadPoolError};
use data_plane::handler::HandlerError;
use data_plane::ledger::admission::{AdmissionControl, AdmissionRefused, CallSlot, WorkStart};
use data_plane::ledger::shared_limit::{RefusalCounters, SharedLimit};
use data_plane::limits::CALL_QUEUE_SECONDS;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use wire::reject::Reject;

/// Limiter of repository browsing.
pub struct BrowseLimiter {
    refusals: Arc<RefusalCounters>,
    light: Arc<AdmissionControl>,
    heavy: Arc<AdmissionControl>,
    files: DownloadSlots,
    snapshots: DownloadSlots,
    held: Arc<Mutex<PageBytesLedger>>,
    lookup_pool: ThreadPool,
    walk_pool: ThreadPool,
    lists: Mutex<HashMap<ListKey, (Instant, Arc<RepositoryList>)>>,
    origin: Instant,
    heavy_requests: Mutex<HashMap<ClientNetwork, u64>>,
    requests: Mutex<HashMap<ClientNetwork, u64>>,
}

/// Key of a cached list: the route's folder, two flags (all repositories are exported; guards need the
/// repositories' names), and the listed subfolder.
type ListKey = (PathBuf, [bool; 2], Vec<u8>);

fn list_key(settings: &GitSettings, folder: Vec<u8>) -> ListKey {
    let flags = [settings.exports_all, settings.is_guarded];
    (settings.root.path().to_owned(), flags, folder)
}

/// Slots for downloads, each held until the client has received the response. One address uses at most half
/// of the slots.
struct DownloadSlots {
    refusals: Arc<RefusalCounters>,
    all: Arc<AdmissionControl>,
    each_max: AtomicUsize,
    by_address: Mutex<HashMap<ClientNetwork, Weak<AdmissionControl>>>,
}

/// Counts of page bytes not yet sent to clients.
#[derive(Default)]
struct PageBytesLedger {
    all: usize,
    by_address: HashMap<ClientNetwork, usize>,
}

/// Reserved memory for a page being sent; released on drop.
pub(crate) struct PageBytesReservation {
    all: Arc<Mutex<PageBytesLedger>>,
    peer: ClientNetwork,
    bytes: usize,
}

impl PageBytesLedger {
    /// Reserves `bytes`. Errors: the limit of the address or the limit of all addresses is exceeded.
    fn take(&mut self, peer: ClientNetwork, bytes: usize) -> Result<(), Reject> {
        let all = self.all + bytes;
        let own = self.by_address.get(&peer).copied().unwrap_or(0) + bytes;
        if own > GIT_PAGES_SENDING_BYTES_PER_ADDRESS_MAX {
            return Err(Reject::SHARE_TAKEN);
        }
        if all > GIT_PAGES_SENDING_BYTES_MAX {
            return Err(Reject::CALLS_BUSY);
        }
        self.all = all;
        self.by_address.insert(peer, own);
        Ok(())
    }
}

impl Drop for PageBytesReservation {
    fn drop(&mut self) {
        let mut held = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        held.all -= self.bytes;
        if let Some(own) = held.by_address.get_mut(&self.peer) {
            *own -= self.bytes;
            if *own == 0 {
                held.by_address.remove(&self.peer);
            }
        }
    }
}

/// Slots held by git's work for one request: for a download a slot of the client, and in any case a slot of
/// all clients. Released on drop.
pub(crate) struct BrowseSlots {
    own: Option<CallSlot>,
    shared: CallSlot,
}

impl IntoIterator for BrowseSlots {
    type Item = CallSlot;
    type IntoIter = std::iter::Chain<std::option::IntoIter<CallSlot>, std::iter::Once<CallSlot>>;

    fn into_iter(self) -> Self::IntoIter {
        self.own.into_iter().chain(std::iter::once(self.shared))
    }
}

/// Creates `max` slots for git processes of pages.
fn slots(max: usize, refusals: &Arc<RefusalCounters>) -> Arc<AdmissionControl> {
    let slots = AdmissionControl::new(max, WorkStart::AtOnce, SharedLimit::GitPages, refusals);
    Arc::new(slots)
}

impl DownloadSlots {
    fn new(refusals: &Arc<RefusalCounters>) -> DownloadSlots {
        DownloadSlots {
            refusals: Arc::clone(refusals),
            all: slots(1, refusals),
            each_max: AtomicUsize::new(1),
            by_address: Mutex::default(),
        }
    }

    fn resize(&self, max: usize) {
        self.all.resize(max);
        self.each_max.store(max / 2, Ordering::Relaxed);
    }

    /// Returns the slots of the client. The slots exist as long as a call holds or awaits a slot of the
    /// client.
    fn slots_of(&self, client: ClientNetwork) -> Arc<AdmissionControl> {
        let mut all = self
            .by_address
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(slots) = all.get(&client).and_then(Weak::upgrade) {
            return slots;
        }
        all.retain(|_, slots| slots.strong_count() > 0);
        let slots = slots(self.each_max.load(Ordering::Relaxed), &self.refusals);
        all.insert(client, Arc::downgrade(&slots));
        slots
    }
}

/// Cost class of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageCost {
    /// A page generated quickly by git.
    Light,
    /// A page with more work for git.
    Heavy,
}

/// Kind of git's work for a request, with slots of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BrowseWork {
    /// A page.
    Page(PageCost),
    /// A file, sent at the speed of the client.
    File,
    /// An archive, generated by git while the client receives the archive.
    Snapshot,
}

/// Error: an address exceeds its request rate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct RateExceeded {
    /// Seconds until the next request is allowed, provided the address sends no other request; at least 1,
    /// at most 60.
    pub after_seconds: u64,
}

impl BrowseLimiter {
    /// Creates a limiter for a server with `scripts` script slots. Requests refused because a client
    /// exceeds its share are counted in `refusals`.
    pub fn new(scripts: usize, refusals: &Arc<RefusalCounters>) -> BrowseLimiter {
        let limiter = BrowseLimiter {
            refusals: Arc::clone(refusals),
            light: slots(1, refusals),
            heavy: slots(1, refusals),
            files: DownloadSlots::new(refusals),
            snapshots: DownloadSlots::new(refusals),
            held: Arc::default(),
            lookup_pool: ThreadPool::new("anthill-git", GIT_LOOKUP_THREADS, GIT_LOOKUP_QUEUE_MAX),
            walk_pool: ThreadPool::new("anthill-git-walk", GIT_WALK_THREADS, GIT_LOOKUP_QUEUE_MAX),
            lists: Mutex::default(),
            origin: Instant::now(),
            heavy_requests: Mutex::default(),
            requests: Mutex::default(),
        };
        limiter.resize(scripts);
        limiter
    }

    /// Adapts the number of slots to `scripts` script slots.
    pub(crate) fn resize(&self, scripts: usize) {
        self.light.resize((scripts / 4).min(GIT_PAGES_AT_ONCE_MAX));
        self.heavy
            .resize((scripts / 8).min(GIT_HEAVY_PAGES_AT_ONCE_MAX));
        self.files.resize((scripts / 4).min(GIT_PAGES_AT_ONCE_MAX));
        self.snapshots
            .resize((scripts / 8).min(GIT_HEAVY_PAGES_AT_ONCE_MAX));
    }

    /// Waits for the slots of `work` for a bounded time.
    pub(crate) async fn enter(
        &self,
        work: BrowseWork,
        peer: IpAddr,
        queue_max: usize,
    ) -> Result<BrowseSlots, HandlerError> {
        let refused = |refused: AdmissionRefused| HandlerError::new("git page", refused.into());
        let (shared, downloads) = match work {
            BrowseWork::Page(PageCost::Light) => (&self.light, None),
            BrowseWork::Page(PageCost::Heavy) => (&self.heavy, None),
            BrowseWork::File => (&self.files.all, Some(&self.files)),
            BrowseWork::Snapshot => (&self.snapshots.all, Some(&self.snapshots)),
        };
        let (client, patience) = (peer.into(), Duration::from_secs(CALL_QUEUE_SECONDS));
        let mut own = None;
        if let Some(downloads) = downloads {
            let slot = downloads
                .slots_of(client)
                .enter(client, queue_max, patience)
                .await;
            own = Some(slot.map_err(|_| {
                self.refusals.increment(SharedLimit::GitPages);
                refused(AdmissionRefused::ShareTaken)
            })?);
        }
        let slot = shared.enter(client, queue_max, patience).await;
        let shared = slot.map_err(refused)?;
        Ok(BrowseSlots { own, shared })
    }

    /// Reserves memory for a page of `bytes` bytes until the page has been sent to `peer`.
    pub(crate) fn hold(
        &self,
        peer: IpAddr,
        bytes: usize,
    ) -> Result<PageBytesReservation, HandlerError> {
        let client = peer.into();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match held.take(client, bytes) {
            Ok(()) => Ok(PageBytesReservation {
                all: Arc::clone(&self.held),
                peer: client,
                bytes,
            }),
            Err(reject) => {
                if reject == Reject::SHARE_TAKEN {
                    self.refusals.increment(SharedLimit::GitPages);
                }
                Err(HandlerError::new("git page", reject))
            }
        }
    }

    /// Runs a short job with blocking disk access in the lookup thread pool.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T, HandlerError> + Send + 'static,
    ) -> Result<T, HandlerError> {
        done(self.lookup_pool.run(job).await)
    }

    /// Runs a longer blocking job in the thread pool for directory walks.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T, HandlerError> + Send + 'static,
    ) -> Result<T, HandlerError> {
        done(self.walk_pool.run(job).await)
    }

    /// Returns the repositories below a folder, possibly from a list cached shortly before.
    pub(in crate::git) async fn list(
        self: &Arc<Self>,
        settings: &Arc<GitSettings>,
        folder: Vec<u8>,
    ) -> Result<Arc<RepositoryList>, HandlerError> {
        let key = list_key(settings, folder);
        if let Some(list) = self.cached_list(&key) {
            return Ok(list);
        }
        let (limiter, settings) = (Arc::clone(self), Arc::clone(settings));
        let walk = move || {
            // An earlier job of the queue may have walked the folder already.
            if let Some(list) = limiter.cached_list(&key) {
                return Ok(list);
            }
            let list = Arc::new(settings.list(&key.2));
            limiter.cache_list(key, Arc::clone(&list));
            Ok(list)
        };
        self.work(walk).await
    }

    /// Returns true if a repository exists below the folder.
    pub(in crate::git) async fn has_any(
        self: &Arc<Self>,
        settings: &Arc<GitSettings>,
        folder: Vec<u8>,
    ) -> Result<bool, HandlerError> {
        let key = list_key(settings, folder);
        if let Some(list) = self.cached_list(&key) {
            return Ok(!list.all.is_empty());
        }
        let settings = Arc::clone(settings);
        self.work(move || Ok(settings.has_any(&key.2))).await
    }

    fn cached_list(&self, key: &ListKey) -> Option<Arc<RepositoryList>> {
        let lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, list) = lists.get(key)?;
        (at.elapsed() < LIST_KEPT).then(|| Arc::clone(list))
    }

    fn cache_list(&self, key: ListKey, list: Arc<RepositoryList>) {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        lists.retain(|_, (at, _)| at.elapsed() < LIST_KEPT);
        if lists.len() < GIT_LISTS_CACHED_MAX {
            lists.insert(key, (Instant::now(), list));
        }
    }

    /// Counts a page request of the address. An address may send `per_minute` requests in a minute, also in
    /// one burst.
    pub(crate) fn count_request(
        &self,
        peer: IpAddr,
        work: PageCost,
        per_minute: u32,
    ) -> Result<(), RateExceeded> {
        let now = self.origin.elapsed().as_micros() as u64;
        let mut requests = self.requests_of(work);
        count(&mut requests, peer.into(), per_minute, now)
    }

    /// Returns the error response for an exceeded request rate, and counts the refusal.
    pub(crate) fn refused(&self, why: RateExceeded) -> HandlerError {
        self.refusals.increment(SharedLimit::GitPages);
        HandlerError {
            after_seconds: Some(why.after_seconds),
            ..HandlerError::new("git page", Reject::ASKED_TOO_OFTEN)
        }
    }

    /// Checks the request rate of the address without counting a request.
    pub(crate) fn check_rate(
        &self,
        peer: IpAddr,
        work: PageCost,
        per_minute: u32,
    ) -> Result<(), RateExceeded> {
        let now = self.origin.elapsed().as_micros() as u64;
        let requests = self.requests_of(work);
        after(&requests, peer.into(), per_minute, now).map(drop)
    }

    fn requests_of(&self, work: PageCost) -> MutexGuard<'_, HashMap<ClientNetwork, u64>> {
        let requests = match work {
            PageCost::Light => &self.requests,
            PageCost::Heavy => &self.heavy_requests,
        };
        requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn done<T>(done: Result<Result<T, HandlerError>, ThreadPoolError>) -> Result<T, HandlerError> {
    match done {
        Ok(found) => found,
        Err(ThreadPoolError::Busy) => Err(HandlerError::new("git page", Reject::CALLS_BUSY)),
        Err(ThreadPoolError::Failed) => Err(HandlerError::new("git page", Reject::HANDLER_FAILED)),
    }
}

const LIST_KEPT: Duration = Duration::from_millis(GIT_LIST_CACHE_MILLISECONDS);

/// Counts a request of `peer`. The value per address is the time in microseconds at which all counted
/// requests would be complete at the permitted rate. An address may use the requests of one minute in
/// advance.
fn count(
    requests: &mut HashMap<ClientNetwork, u64>,
    peer: ClientNetwork,
    per_minute: u32,
    now: u64,
) -> Result<(), RateExceeded> {
    let after = after(requests, peer, per_minute, now)?;
    if requests.len() >= GIT_RATED_ADDRESSES_MAX && !requests.contains_key(&peer) {
        requests.retain(|_, until| *until > now);
        let least = requests.iter().min_by_key(|(_, until)| **until);
        if let (true, Some(least)) = (
            requests.len() >= GIT_RATED_ADDRESSES_MAX,
            least.map(|(it, _)| *it),
        ) {
            requests.remove(&least);
        }
    }
    requests.insert(peer, after);
    Ok(())
}

/// Returns the value of [`count`] for `peer` after a further request.
fn after(
    requests: &HashMap<ClientNetwork, u64>,
    peer: ClientNetwork,
    per_minute: u32,
    now: u64,
) -> Result<u64, RateExceeded> {
    let before = requests.get(&peer).copied().unwrap_or(0).max(now);
    let after = before + MINUTE_US / u64::from(per_minute.max(1));
    match (after - now).saturating_sub(MINUTE_US) {
        0 => Ok(after),
        wait_us => Err(RateExceeded {
            // A reload may have lowered the permitted rate.
            after_seconds: wait_us.div_ceil(1_000_000).min(60),
        }),
    }
}

const MINUTE_US: u64 = 60_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn address(nth: usize) -> IpAddr {
        IpAddr::from([10, (nth >> 16) as u8, (nth >> 8) as u8, nth as u8])
    }

    #[test]
    fn requests_of_a_minute_may_come_in_one_burst() {
        let mut requests = HashMap::new();
        let peer = address(1).into();
        // Seconds to wait for each request; 0 for an allowed request.
        let mut waits = |at: [u64; 4]| {
            at.map(|second| {
                let counted = count(&mut requests, peer, 3, second * 1_000_000 + 5);
                counted.map_or_else(|why| why.after_seconds, |()| 0)
            })
        };
        assert_eq!(waits([0, 0, 0, 0]), [0, 0, 0, 20]);
        assert_eq!(waits([1, 19, 20, 20]), [19, 1, 0, 20]);
        assert_eq!(waits([39, 40, 40, 41]), [1, 0, 20, 19]);
        assert_eq!(waits([200, 200, 200, 200]), [0, 0, 0, 20]);
    }

    #[test]
    fn waits_are_rounded_up_to_seconds() {
        let mut requests = HashMap::new();
        let wait = |requests: &mut _, per_minute, now| {
            let counted = count(requests, address(1).into(), per_minute, now);
            counted.map_or_else(|why| why.after_seconds, |()| 0)
        };
        assert_eq!(wait(&mut requests, 1, 0), 0);
        assert_eq!(wait(&mut requests, 1, 0), 60);
        assert_eq!(wait(&mut requests, 1, 1), 60);
        assert_eq!(wait(&mut requests, 1, 1_000_000), 59);
        assert_eq!(wait(&mut requests, 1, 59_999_999), 1);
        // At a rate of many requests a second, 1 is the shortest possible wait.
        assert_eq!(wait(&mut requests, 60_000, 0), 1);
        assert_eq!(wait(&mut requests, 1, 60_000_000), 0);
    }

    #[test]
    fn a_full_ledger_removes_the_address_with_the_fewest_requests() {
        let mut requests = HashMap::new();
        let greedy = address(usize::MAX & 0xff_ffff).into();
        for _ in 0..10 {
            assert!(count(&mut requests, greedy, 10, 0).is_ok());
        }
        for nth in 0..3 * GIT_RATED_ADDRESSES_MAX {
            assert!(count(&mut requests, address(nth).into(), 10, 0).is_ok());
            assert!(requests.len() <= GIT_RATED_ADDRESSES_MAX);
        }
        assert!(count(&mut requests, greedy, 10, 0).is_err());
        assert!(count(&mut requests, address(0x50_0000).into(), 10, MINUTE_US).is_ok());
        assert_eq!(requests.len(), 1);
    }

    fn wait<F: Future>(future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.expect("a runtime").block_on(future)
    }

    #[test]
    fn one_address_gets_half_of_the_download_slots() {
        wait(async {
            let limiter = BrowseLimiter::new(16, &Arc::default());
            let take = |nth| limiter.enter(BrowseWork::File, address(nth), 0);
            let mut one = vec![take(1).await.unwrap(), take(1).await.unwrap()];
            assert!(take(1).await.is_err());
            let _other = [take(2).await.unwrap(), take(2).await.unwrap()];
            assert!(take(3).await.is_err());
            one.pop();
            let third = take(3).await.unwrap();
            drop((third, one));
            take(1).await.unwrap();
            // Archives have separate slots.
            let take = |nth| limiter.enter(BrowseWork::Snapshot, address(nth), 0);
            let _one = take(1).await.unwrap();
            assert!(take(1).await.is_err());
            let _two = take(2).await.unwrap();
            assert!(limiter.files.by_address.lock().unwrap().len() <= 3);
        });
    }

    #[test]
    fn memory_of_pages_being_sent_is_limited() {
        let limiter = BrowseLimiter::new(16, &Arc::default());
        let each = GIT_PAGES_SENDING_BYTES_PER_ADDRESS_MAX;
        let all: Vec<_> = (0..GIT_PAGES_SENDING_BYTES_MAX / each)
            .map(|nth| limiter.hold(address(nth), each).unwrap())
            .collect();
        let refused = limiter.hold(address(100), 1).err();
        assert_eq!(refused.map(|fault| fault.reject), Some(Reject::CALLS_BUSY));
        drop(all);
        drop(limiter.hold(address(100), 1).unwrap());
        assert!(limiter.held.lock().unwrap().by_address.is_empty());
    }

    #[test]
    fn memory_of_pages_being_sent_is_limited_for_each_address() {
        let limiter = BrowseLimiter::new(16, &Arc::default());
        let one = limiter
            .hold(address(1), GIT_PAGES_SENDING_BYTES_PER_ADDRESS_MAX - 1)
            .unwrap();
        let refused = limiter.hold(address(1), 2).err();
        assert_eq!(refused.map(|fault| fault.reject), Some(Reject::SHARE_TAKEN));
        let last = limiter.hold(address(1), 1).unwrap();
        let _other = limiter
            .hold(address(2), GIT_PAGES_SENDING_BYTES_PER_ADDRESS_MAX)
            .unwrap();
        drop(one);
        assert!(
            limiter
                .hold(address(1), GIT_PAGES_SENDING_BYTES_PER_ADDRESS_MAX)
                .is_err()
        );
        drop(last);
        assert!(
            limiter
                .hold(address(1), GIT_PAGES_SENDING_BYTES_PER_ADDRESS_MAX)
                .is_ok()
        );
    }
}
