//! The page cache: responses of handlers, kept for whoever asks next (RFC 9111, as a shared cache).
//!
//! The ledger here is one for all workers: pages, and calls under way whose responses are to become
//! pages, by the URI they are of. It is locked in parts, each for the time of a look-up. What may be
//! kept is decided in [`policy`], which is pure; a kept page is sent as a stored one is.

mod handler;
mod disk;
mod fill;
mod key;
mod page;
pub mod policy;
mod fill_task;

#[cfg(test)]
mod tests;

pub use crate::cache::handler::{CacheLayer, CacheLookup, CachedHandler, LookupContext};
pub use policy::PageCacheRule;

use crate::limits::{CACHE_HIT_FOR_PASS_SECONDS, CACHE_HIT_FOR_PASS_URIS_MAX, CACHE_VARIANTS_MAX};
use crate::site::{ContentBudget, gzip};
use fill::{CacheFill, FillPhase};
use key::{Audience, PresentedRequest};
use page::{CachedPage, CachedPageId};
use policy::Freshness;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

/// The ledger, one for the process.
pub struct PageCache {
    origin: Instant,
    budget: Arc<ContentBudget>,
    shards: Box<[Mutex<Shard>]>,
    hashes: RandomState,
    /// Of all pages, those that have been forgotten and are still being sent too.
    bytes: Arc<AtomicUsize>,
    pages: AtomicUsize,
    /// Of contents that are still coming.
    coming: AtomicUsize,
    calls: AtomicU64,
    collapsed: AtomicU64,
}

/// What the ledger tells of itself.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct CacheSummary {
    /// Pages that are kept.
    pub pages: usize,
    /// Their bytes.
    pub bytes: usize,
    /// What they may take.
    pub bytes_max: usize,
    /// Calls that were made to fill it.
    pub calls: u64,
    /// Requests that waited for the call of another.
    pub collapsed: u64,
}

/// A part of the ledger: what is kept under some of the keys.
#[derive(Default)]
struct Shard {
    slots: HashMap<Box<[u8]>, UriEntry>,
    /// What is for one client alone was found out by a call; until when nobody waits for such a call
    /// again, by hash of key and kind.
    passes: HashMap<u64, u64>,
    /// All pages of the slots, for eviction, and some that have gone.
    queue: VecDeque<Weak<CachedPage>>,
    pages: usize,
}

/// All that is known of one URI.
#[derive(Default)]
struct UriEntry {
    /// The newest first.
    pages: Vec<Arc<CachedPage>>,
    fills: Vec<Arc<CacheFill>>,
}

/// What a request does that finds no page to be used at once.
enum JoinOutcome {
    /// There is one now.
    Page(Arc<CachedPage>),
    /// It calls the handler, for all; the old page may help.
    Lead(Arc<CacheFill>, Option<Arc<CachedPage>>),
    /// It waits for the call of another.
    Follow(Arc<CacheFill>, Option<Arc<CachedPage>>),
    /// It calls for itself.
    Pass,
}

impl PageCache {
    /// An empty one, whose pages share `budget` with the contents of sites. `origin` is that of the
    /// workers' clocks.
    pub fn new(origin: Instant, budget: Arc<ContentBudget>) -> PageCache {
        PageCache {
            origin,
            budget,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hashes: RandomState::new(),
            bytes: Arc::default(),
            pages: AtomicUsize::new(0),
            coming: AtomicUsize::new(0),
            calls: AtomicU64::new(0),
            collapsed: AtomicU64::new(0),
        }
    }

    /// How it stands.
    pub fn summary(&self) -> CacheSummary {
        CacheSummary {
            pages: self.pages.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            bytes_max: self.bytes_max(),
            calls: self.calls.load(Ordering::Relaxed),
            collapsed: self.collapsed.load(Ordering::Relaxed),
        }
    }

    /// Forgets the pages of a site (by its first name) with this path, whatever their query; with a
    /// `*` at its end, all that begin so. Says how many they were.
    pub fn purge(&self, site: &str, path: &str) -> usize {
        let path = path.as_bytes();
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

    /// Something changed what this URI stands for (RFC 9111 §4.4).
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

    /// Forgets one page.
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

    /// Milliseconds of the workers' clocks.
    fn now_ms(&self) -> u64 {
        self.origin.elapsed().as_millis() as u64
    }

    /// What pages and contents that are coming may take together, bytes.
    fn pool(&self) -> usize {
        self.budget.bytes_max() / 2
    }

    fn bytes_max(&self) -> usize {
        self.pool() / 4 * 3
    }

    /// The largest content that is kept, whatever a rule says.
    fn page_bytes_max(&self) -> usize {
        self.pool() / 4
    }

    /// The content budget makes room for what is kept here.
    fn lend(&self) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let coming = if bytes > 0 { self.pool() / 4 } else { 0 };
        self.budget.lend(bytes + coming);
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        lock(&self.shards[shard_of(key)])
    }

    /// Joins who asks for a page that there isn't, or isn't any more.
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
        // The response to a request with Authorization is mostly for that client alone, so the request
        // does not wait for the call of another request.
        let mut fills = slot.fills.iter().filter(|_| !asker.authorized);
        if let Some(fill) = fills.find(|fill| fill.covers(asker)) {
            self.collapsed.fetch_add(1, Ordering::Relaxed);
            return JoinOutcome::Follow(fill.clone(), page);
        }
        let fill = self.begin(slot, place.clone(), asker);
        JoinOutcome::Lead(fill, page)
    }

    /// A call begins.
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

    /// A call is over: those who wait are told, and a page that came of it stays.
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
                // It counts as a page from now on, however long somebody reads it.
                fill.release();
            } else if slot.is_empty() {
                shard.slots.remove(&fill.place.key);
            }
        }
        fill.set(phase);
        self.lend();
    }

    /// Puts a page where others of its kind make way.
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

    /// Forgets pages of a slot; says how many.
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

    /// Has a page compressed in the background, as contents of sites are.
    fn want_gzip(self: &Arc<Self>, page: &Arc<CachedPage>) {
        let (cache, job) = (Arc::downgrade(self), Arc::downgrade(page));
        let is_queued = self.budget.gzip().push_other(move || {
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

    /// The compressed content of a page, if there is room for it.
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

    /// Evicts until there is room for `page`: what isn't used from any part of the ledger, before
    /// what is from the page's own. False if there is none: all is being sent to somebody.
    fn make_room(&self, page: &CachedPage) -> bool {
        self.make_room_of(page.weight(), shard_of(&page.place.key))
    }

    /// The same for so many bytes, beginning with this part.
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

    /// What is asked so is for one client alone: for a while nobody waits to find that out again.
    fn remember_pass(&self, key: &[u8], kind: &Audience, now_ms: u64) {
        let hash = self.pass_hash(key, kind);
        let mut shard = self.shard(key);
        if shard.passes.len() >= CACHE_HIT_FOR_PASS_URIS_MAX / SHARDS {
            shard.passes.retain(|_, until| now_ms < *until);
        }
        if shard.passes.len() >= CACHE_HIT_FOR_PASS_URIS_MAX / SHARDS {
            // Each costs a call more to be found out again.
            shard.passes.clear();
        }
        let until = now_ms + CACHE_HIT_FOR_PASS_SECONDS * 1_000;
        shard.passes.insert(hash, until);
    }

    /// Takes memory for content that is coming; false if there is none.
    fn take(&self, bytes: usize) -> bool {
        let before = self.coming.fetch_add(bytes, Ordering::Relaxed);
        let has_room = before + bytes <= self.pool() / 4;
        if !has_room {
            self.coming.fetch_sub(bytes, Ordering::Relaxed);
        }
        has_room
    }

    fn give_back(&self, bytes: usize) {
        self.coming.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Shard {
    /// The next page to go: one that nobody used twice since it was last looked at, or that is good
    /// for nothing; or else, the first.
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

    /// Drops what the queue still has of pages that have gone, once that is most of it.
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

/// Parts of the ledger that are locked apart: more than there are workers, mostly.
const SHARDS: usize = 16;

/// Any spread will do: who aims at one part gains nothing but waits there.
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
