//! The page cache: a shared cache for responses of handlers (RFC 9111).
//!
//! One cache serves all workers. The cache holds, by URI, stored pages and calls under way with responses
//! to be stored. The table is split into shards with a lock each, held for the time of a lookup. The module
//! [`policy`] decides about storage with pure functions. A stored page is sent like a static file.

mod cookie_rule;
mod handler;
mod disk;
mod fill;
mod key;
mod layer;
mod page;
pub mod policy;
mod fill_task;

#[cfg(test)]
mod tests;

pub use crate::cache::cookie_rule::CookieRule;
pub(crate) use crate::cache::handler::{CacheLookup, LookupContext};
pub use crate::cache::layer::CacheLayer;
pub(crate) use crate::cache::layer::CachedHandler;
pub use policy::PageCacheRule;

use crate::limits::{CACHE_HIT_FOR_PASS_SECONDS, CACHE_HIT_FOR_PASS_URIS_MAX, CACHE_VARIANTS_MAX};
use crate::site::{ContentBudget, gzip};
use fill::{CacheFill, FillBudget, FillPhase};
use key::{Audience, PresentedRequest};
use page::{CachedPage, CachedPageId};
use policy::Freshness;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;
use wire::path_readings::merged_slashes;

/// The page cache of the process.
pub struct PageCache {
    origin: Instant,
    budget: Arc<ContentBudget>,
    shards: Box<[Mutex<Shard>]>,
    hashes: RandomState,
    /// Bytes of all pages, including removed pages still being sent.
    bytes: Arc<AtomicUsize>,
    pages: AtomicUsize,
    /// Memory for contents of calls under way.
    fills: Arc<FillBudget>,
    calls: AtomicU64,
    collapsed: AtomicU64,
}

/// Figures of the cache.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct CacheSummary {
    /// The number of stored pages.
    pub pages: usize,
    /// The memory use of pages in bytes.
    pub bytes: usize,
    /// The upper bound of `bytes`.
    pub bytes_max: usize,
    /// The number of calls made to fill the cache.
    pub calls: u64,
    /// The number of requests that waited for another request's call.
    pub collapsed: u64,
}

/// A part of the cache with a lock of its own, selected by the key.
#[derive(Default)]
struct Shard {
    slots: HashMap<Box<[u8]>, UriEntry>,
    /// URIs with responses for one client alone, as found by a call: hash of key and audience, with the
    /// time in milliseconds until which requests do not wait for a shared call.
    passes: HashMap<u64, u64>,
    /// All pages of the slots in eviction order, and some removed pages.
    queue: VecDeque<Weak<CachedPage>>,
    pages: usize,
}

/// The pages and calls of one URI.
#[derive(Default)]
struct UriEntry {
    /// The pages, newest first.
    pages: Vec<Arc<CachedPage>>,
    fills: Vec<Arc<CacheFill>>,
}

/// The next step of a request without a page for immediate use.
enum JoinOutcome {
    /// A page has become available.
    Page(Arc<CachedPage>),
    /// The request calls the handler for all clients; the old page serves for revalidation and failures.
    Lead(Arc<CacheFill>, Option<Arc<CachedPage>>),
    /// The request waits for another request's call.
    Follow(Arc<CacheFill>, Option<Arc<CachedPage>>),
    /// The request calls the handler for one client alone.
    Pass,
}

impl PageCache {
    /// Creates an empty cache that shares `budget` with the contents of sites. `origin` is the origin of
    /// the workers' clocks.
    pub fn new(origin: Instant, budget: Arc<ContentBudget>) -> PageCache {
        // A quarter of the pool; the pages have three quarters.
        let fills = Arc::new(FillBudget::new(budget.bytes_max() / 2 / 4));
        PageCache {
            origin,
            budget,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hashes: RandomState::new(),
            bytes: Arc::default(),
            pages: AtomicUsize::new(0),
            fills,
            calls: AtomicU64::new(0),
            collapsed: AtomicU64::new(0),
        }
    }

    /// Returns the figures of the cache.
    pub fn summary(&self) -> CacheSummary {
        CacheSummary {
            pages: self.pages.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            bytes_max: self.bytes_max(),
            calls: self.calls.load(Ordering::Relaxed),
            collapsed: self.collapsed.load(Ordering::Relaxed),
        }
    }

    /// Removes the pages of a site, by the site's first name, with the given path and any query. A path
    /// with `*` at the end is a prefix. Doubled slashes make no difference. Returns the number of removed pages.
    pub fn purge(&self, site: &str, path: &str) -> usize {
        let path = merged_slashes(path.as_bytes());
        let is_meant = |place: &CachedPageId| {
            let is_path = match path.strip_suffix(b"*") {
                Some(prefix) => place.path.starts_with(prefix),
                None => *place.path == *path,
            };
            *place.site == *site && is_path
        };
        let mut gone = 0;
        for shard in &self.shards {
            let mut shard = lock(shard);
            let Shard { slots, pages, .. } = &mut *shard;
            slots.retain(|_, slot| {
                gone += self.forget(pages, slot, |page| is_meant(&page.place));
                let meant = slot.fills.iter().filter(|fill| is_meant(&fill.place));
                meant.for_each(|fill| fill.doom());
                !slot.is_empty()
            });
        }
        self.lend();
        gone
    }

    /// Removes all pages. Together with [`ContentBudget::give_up`], no further page is stored: another process serves in
    /// place of this one.
    pub fn give_up(&self) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            let Shard { slots, pages, .. } = &mut *shard;
            slots.retain(|_, slot| {
                self.forget(pages, slot, |_| true);
                !slot.is_empty()
            });
            slots.shrink_to_fit();
            shard.queue = VecDeque::new();
            shard.passes = HashMap::new();
        }
        self.lend();
    }

    /// Removes the pages of a URI after a change of the resource (RFC 9111 §4.4). Responses of
    /// calls under way are not stored.
    fn invalidate(&self, key: &[u8]) {
        let mut shard = self.shard(key);
        let shard = &mut *shard;
        if let Some(slot) = shard.slots.get_mut(key) {
            self.forget(&mut shard.pages, slot, |_| true);
            slot.fills.iter().for_each(|fill| fill.doom());
            if slot.is_empty() {
                shard.slots.remove(key);
            }
        }
    }

    /// Removes one page.
    fn drop_page(&self, page: &Arc<CachedPage>) {
        let key = &page.place.key;
        let mut shard = self.shard(key);
        let shard = &mut *shard;
        if let Some(slot) = shard.slots.get_mut(key) {
            self.forget(&mut shard.pages, slot, |other| std::ptr::eq(other, &**page));
            if slot.is_empty() {
                shard.slots.remove(key);
            }
        }
    }

    /// Returns the time of the workers' clocks in milliseconds.
    fn now_ms(&self) -> u64 {
        self.origin.elapsed().as_millis() as u64
    }

    /// Returns the bound for pages and contents of calls under way together, in bytes.
    fn pool(&self) -> usize {
        self.budget.bytes_max() / 2
    }

    fn bytes_max(&self) -> usize {
        self.pool() / 4 * 3
    }

    /// Returns the size of the largest content stored, in bytes; a rule may set a lower bound.
    fn page_bytes_max(&self) -> usize {
        self.pool() / 4
    }

    /// Reduces the content budget of sites by the memory use of the cache.
    fn lend(&self) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let coming = if bytes > 0 { self.pool() / 4 } else { 0 };
        self.budget.lend(bytes + coming);
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        lock(&self.shards[shard_of(key)])
    }

    /// Selects the next step of a request without a fresh page.
    fn join(
        &self,
        place: &Arc<CachedPageId>,
        asker: &PresentedRequest<'_>,
        now_ms: u64,
    ) -> JoinOutcome {
        let pass = self.pass_hash(&place.key, &asker.kind());
        let mut shard = self.shard(&place.key);
        if shard.passes.get(&pass).is_some_and(|until| now_ms < *until) {
            return JoinOutcome::Pass;
        }
        let slot = shard.slots.entry(place.key.clone()).or_default();
        let page = slot.pages.iter().find(|page| page.suits(asker)).cloned();
        if let Some(page) = &page
            && matches!(
                page.good_for(now_ms),
                Freshness::Fresh | Freshness::WhileRevalidate
            )
        {
            return JoinOutcome::Page(page.clone());
        }
        // The response to a request with Authorization is mostly for that client alone, so the request does
        // not wait for the call of another request.
        let mut fills = slot.fills.iter().filter(|_| !asker.authorized);
        if let Some(fill) = fills.find(|fill| fill.covers(asker)) {
            self.collapsed.fetch_add(1, Ordering::Relaxed);
            return JoinOutcome::Follow(fill.clone(), page);
        }
        let fill = self.begin(slot, place.clone(), asker);
        JoinOutcome::Lead(fill, page)
    }

    /// Registers a new call.
    fn begin(
        &self,
        slot: &mut UriEntry,
        place: Arc<CachedPageId>,
        asker: &PresentedRequest<'_>,
    ) -> Arc<CacheFill> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let known = slot
            .pages
            .first()
            .map(|page| page.varied.again(asker.fields));
        let fill = Arc::new(CacheFill::new(place, asker.kind(), known));
        slot.fills.push(fill.clone());
        fill
    }

    /// Ends a call: wakes the waiting requests and stores the resulting page, if any.
    fn settle(&self, fill: &Arc<CacheFill>, page: Option<&Arc<CachedPage>>, phase: FillPhase) {
        let page = page.filter(|page| self.make_room(page));
        {
            let mut shard = self.shard(&fill.place.key);
            let shard = &mut *shard;
            let slot = shard.slots.entry(fill.place.key.clone()).or_default();
            slot.fills.retain(|other| !Arc::ptr_eq(other, fill));
            if let Some(page) = page
                && !fill.is_doomed()
            {
                self.put(shard, page.clone());
                // The content is now counted as a page, even while a client still reads from the call.
                fill.release();
            } else if slot.is_empty() {
                shard.slots.remove(&fill.place.key);
            }
        }
        fill.set(phase);
        self.lend();
    }

    /// Stores a page and removes the page with the same audience and selecting fields. Beyond
    /// `CACHE_VARIANTS_MAX` pages, the oldest page of the URI is removed.
    fn put(&self, shard: &mut Shard, page: Arc<CachedPage>) {
        shard.tidy();
        let slot = shard.slots.entry(page.place.key.clone()).or_default();
        self.forget(&mut shard.pages, slot, |other| {
            other.kind == page.kind && other.varied == page.varied
        });
        if slot.pages.len() >= CACHE_VARIANTS_MAX
            && let Some(oldest) = slot.pages.last().cloned()
        {
            self.forget(&mut shard.pages, slot, |other| {
                std::ptr::eq(other, &*oldest)
            });
        }
        page.count();
        self.pages.fetch_add(1, Ordering::Relaxed);
        shard.pages += 1;
        shard.queue.push_back(Arc::downgrade(&page));
        slot.pages.insert(0, page);
    }

    /// Removes pages of a slot and returns the number of removed pages.
    fn forget(
        &self,
        count: &mut usize,
        slot: &mut UriEntry,
        is_meant: impl Fn(&CachedPage) -> bool,
    ) -> usize {
        let mut gone = 0;
        slot.pages.retain(|page| {
            let goes = is_meant(page);
            gone += usize::from(goes);
            !goes
        });
        *count -= gone;
        self.pages.fetch_sub(gone, Ordering::Relaxed);
        gone
    }

    /// Queues compression of a page on the background thread shared with the contents of sites.
    fn want_gzip(self: &Arc<Self>, page: &Arc<CachedPage>) {
        let (cache, job) = (Arc::downgrade(self), Arc::downgrade(page));
        let is_queued = self.budget.gzip().push(move || {
            if let (Some(cache), Some(page)) = (cache.upgrade(), job.upgrade())
                && let Some(made) = gzip(page.variant.bytes(), cache.page_bytes_max())
            {
                cache.hang_gzip(&page, made);
            }
        });
        if !is_queued {
            page.release_gzip();
        }
    }

    /// Stores the compressed content of a page if memory is available.
    fn hang_gzip(&self, page: &CachedPage, made: Box<[u8]>) {
        let part = shard_of(&page.place.key);
        if self.make_room_of(
            made.len() + page.weight() - page.variant.bytes().len(),
            part,
        ) {
            page.hang_gzip(page.gzip_of(made));
            self.lend();
        }
    }

    /// Evicts pages until `page` fits: first unused pages of all shards, then used pages, beginning with
    /// the page's own shard. Returns false if the page does not fit because all remaining pages are being
    /// sent.
    fn make_room(&self, page: &CachedPage) -> bool {
        self.make_room_of(page.weight(), shard_of(&page.place.key))
    }

    /// Evicts pages until `bytes` are free, beginning with the shard `first`.
    fn make_room_of(&self, bytes: usize, first: usize) -> bool {
        let room = self.bytes_max().saturating_sub(bytes);
        let parts = [false, true]
            .into_iter()
            .flat_map(|spares_none| (0..SHARDS).map(move |nth| (spares_none, nth)));
        for (spares_none, nth) in parts {
            if self.bytes.load(Ordering::Relaxed) <= room {
                return true;
            }
            let mut shard = lock(&self.shards[(first + nth) % SHARDS]);
            while self.bytes.load(Ordering::Relaxed) > room {
                let Some(victim) = shard.victim(self.now_ms(), spares_none) else {
                    break;
                };
                let shard = &mut *shard;
                if let Some(slot) = shard.slots.get_mut(&victim.place.key) {
                    self.forget(&mut shard.pages, slot, |page| std::ptr::eq(page, &*victim));
                    if slot.is_empty() {
                        shard.slots.remove(&victim.place.key);
                    }
                }
            }
        }
        self.bytes.load(Ordering::Relaxed) <= room
    }

    fn pass_hash(&self, key: &[u8], kind: &Audience) -> u64 {
        self.hashes.hash_one((key, kind))
    }

    /// Remembers for a while that responses to such requests are for one client alone, so that requests do
    /// not wait for a shared call in vain.
    fn remember_pass(&self, key: &[u8], kind: &Audience, now_ms: u64) {
        let hash = self.pass_hash(key, kind);
        let mut shard = self.shard(key);
        if shard.passes.len() >= CACHE_HIT_FOR_PASS_URIS_MAX / SHARDS {
            shard.passes.retain(|_, until| now_ms < *until);
        }
        if shard.passes.len() >= CACHE_HIT_FOR_PASS_URIS_MAX / SHARDS {
            // Each removed entry costs one additional shared call.
            shard.passes.clear();
        }
        let until = now_ms + CACHE_HIT_FOR_PASS_SECONDS * 1_000;
        shard.passes.insert(hash, until);
    }
}

impl Shard {
    /// Returns the next page to evict. Skips pages in use by a connection. Unless `spares_none` is set,
    /// also skips pages used again since the last visit, except pages no longer usable.
    fn victim(&mut self, now_ms: u64, spares_none: bool) -> Option<Arc<CachedPage>> {
        for _ in 0..self.queue.len() {
            let weak = self.queue.pop_front()?;
            let Some(page) = weak.upgrade() else { continue };
            if page.is_in_use() {
                self.queue.push_back(weak);
                continue;
            }
            let is_used = page.good_for(now_ms) != Freshness::Dead && page.variant.take_touch();
            if is_used && !spares_none {
                self.queue.push_back(weak);
                continue;
            }
            return Some(page);
        }
        None
    }

    /// Removes queue entries of dropped pages once the entries are the majority.
    fn tidy(&mut self) {
        if self.queue.len() > 2 * self.pages + 16 {
            self.queue.retain(|page| page.strong_count() > 0);
        }
    }
}

impl UriEntry {
    fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.fills.is_empty()
    }
}

/// The number of shards, mostly above the number of workers.
const SHARDS: usize = 16;

/// Returns the shard of a key. The hash needs no protection against chosen keys: a client gains only
/// contention on one shard.
fn shard_of(key: &[u8]) -> usize {
    let tail = &key[key.len().saturating_sub(8)..];
    let sum = tail.iter().fold(key.len(), |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(usize::from(*byte))
    });
    sum % SHARDS
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
