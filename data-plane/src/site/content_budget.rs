//! Content budget: memory and descriptors of the content that all sites together keep loaded.
//!
//! Eviction follows the second-chance algorithm: variants stand in a queue, and the variant at the front is
//! moved to the end if used since the last visit, else evicted. Requests for loaded content do not touch
//! the budget; at most, a request sets a mark on the variant.

use crate::limits::{CONTENT_BUDGET_BYTES_MIN, DESCRIPTORS_KEPT_MAX};
use crate::site::file::{SiteFile, VariantKind};
use crate::site::gzip_queue::GzipQueue;
use crate::site::variant::{Variant, VariantContent};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Content budget of the process, shared by all sites.
pub struct ContentBudget {
    bytes_max: AtomicUsize,
    descriptors_max: AtomicUsize,
    ledger: Mutex<ContentLedger>,
    gzip: GzipQueue,
}

#[derive(Default)]
struct ContentLedger {
    /// Variants with content in memory. Nearly all bytes of the budget are in the queue.
    memory: VecDeque<LoadedVariant>,
    /// Variants with content on disk, each with little memory and one descriptor.
    disk: VecDeque<LoadedVariant>,
    bytes: usize,
    descriptors: usize,
    /// Bytes of the budget lent to the page cache.
    lent: usize,
}

/// Reference to a loaded variant.
struct LoadedVariant {
    file: Weak<SiteFile>,
    which: VariantKind,
    bytes: usize,
    descriptors: usize,
}

impl ContentBudget {
    /// Creates a budget in bytes for content and response heads: at least [`CONTENT_BUDGET_BYTES_MIN`], and
    /// at most half of the address space (2 GiB on 32-bit systems).
    pub fn new(bytes: u64) -> ContentBudget {
        let bytes = bytes.min(isize::MAX as u64) as usize;
        ContentBudget::exactly(bytes.max(CONTENT_BUDGET_BYTES_MIN), DESCRIPTORS_KEPT_MAX)
    }

    pub(super) fn exactly(bytes_max: usize, descriptors_max: usize) -> ContentBudget {
        ContentBudget {
            bytes_max: bytes_max.into(),
            descriptors_max: descriptors_max.into(),
            ledger: Mutex::default(),
            gzip: GzipQueue::default(),
        }
    }

    /// Returns the bytes in use.
    pub fn bytes_used(&self) -> usize {
        self.lock().bytes
    }

    /// Returns the descriptors in use.
    #[cfg(test)]
    pub(super) fn descriptors_used(&self) -> usize {
        self.lock().descriptors
    }

    /// Returns the bytes of the whole budget.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max.load(Relaxed)
    }

    fn descriptors_max(&self) -> usize {
        self.descriptors_max.load(Relaxed)
    }

    /// Evicts all content, and keeps no content from now on but that of the last load: another process serves in place of this
    /// one.
    pub fn give_up(&self) {
        let mut ledger = self.lock();
        self.bytes_max.store(0, Relaxed);
        self.descriptors_max.store(0, Relaxed);
        ledger.lent = 0;
        ledger.shrink(0, 0);
        ledger.memory.shrink_to_fit();
        ledger.disk.shrink_to_fit();
    }

    /// Lends bytes (at most half of the budget), and evicts content to make room.
    pub(crate) fn lend(&self, bytes: usize) {
        let mut ledger = self.lock();
        ledger.lent = bytes.min(self.bytes_max() / 2);
        let bytes_max = self.bytes_max() - ledger.lent;
        ledger.shrink(bytes_max, self.descriptors_max());
    }

    /// Returns the queue of texts to compress, served by a thread of low priority.
    pub fn gzip(&self) -> &GzipQueue {
        &self.gzip
    }

    /// Stores a loaded variant in a slot that is empty or has an outdated variant, and evicts other variants to make
    /// room.
    pub(super) fn keep(&self, file: &Arc<SiteFile>, which: VariantKind, mut variant: Variant) {
        let Some(slot) = file.slot(which) else { return };
        let mut ledger = self.lock();
        if let Some(loaded) = slot.load_full() {
            if loaded.is_current() {
                return;
            }
            ledger.forget(file, which);
        }
        let in_memory = matches!(variant.content, VariantContent::Memory(_));
        if in_memory && ledger.descriptors >= self.descriptors_max() / 2 {
            // For content in memory, the descriptor is optional; a large file needs the descriptor.
            variant.kept = None;
        }
        let holding = LoadedVariant {
            file: Arc::downgrade(file),
            which,
            bytes: variant.weight(),
            descriptors: usize::from(variant.disk().is_some()),
        };
        // Room is made before the variant joins the queue: a new variant has no mark of use yet, and could
        // be evicted before the waiting request.
        let lent = ledger.lent;
        ledger.shrink(
            (self.bytes_max() - lent).saturating_sub(holding.bytes),
            self.descriptors_max().saturating_sub(holding.descriptors),
        );
        ledger.bytes += holding.bytes;
        ledger.descriptors += holding.descriptors;
        if in_memory {
            ledger.memory.push_back(holding);
        } else {
            ledger.disk.push_back(holding);
        }
        slot.store(Some(Arc::new(variant)));
    }

    /// Removes variants of files that no tree holds any more.
    pub(super) fn sweep(&self) {
        let mut ledger = self.lock();
        let ContentLedger {
            memory,
            disk,
            bytes,
            descriptors,
            lent: _,
        } = &mut *ledger;
        for queue in [memory, disk] {
            queue.retain(|holding| {
                let alive = holding.file.strong_count() > 0;
                if !alive {
                    *bytes -= holding.bytes;
                    *descriptors -= holding.descriptors;
                }
                alive
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, ContentLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ContentLedger {
    fn shrink(&mut self, bytes_max: usize, descriptors_max: usize) {
        while self.descriptors > descriptors_max {
            let Some(evicted) = evict_one(&mut self.disk) else {
                break;
            };
            self.subtract(&evicted);
        }
        while self.bytes > bytes_max {
            let evicted = evict_one(&mut self.memory).or_else(|| evict_one(&mut self.disk));
            let Some(evicted) = evicted else { break };
            self.subtract(&evicted);
        }
    }

    /// Removes the outdated variant of a file, which is on disk.
    fn forget(&mut self, file: &Arc<SiteFile>, which: VariantKind) {
        let is_it = |holding: &LoadedVariant| {
            holding.which == which && holding.file.as_ptr() == Arc::as_ptr(file)
        };
        let at = self.disk.iter().position(is_it);
        if let Some(outdated) = at.and_then(|at| self.disk.remove(at)) {
            self.subtract(&outdated);
        }
    }

    fn subtract(&mut self, evicted: &LoadedVariant) {
        self.bytes -= evicted.bytes;
        self.descriptors -= evicted.descriptors;
    }
}

/// Evicts the first variant without a mark of use; if all variants are in use, the first variant.
fn evict_one(queue: &mut VecDeque<LoadedVariant>) -> Option<LoadedVariant> {
    for _ in 0..queue.len() {
        match queue.pop_front()? {
            used if used.in_use() => queue.push_back(used),
            unused => {
                unused.evict();
                return Some(unused);
            }
        }
    }
    let first = queue.pop_front()?;
    first.evict();
    Some(first)
}

impl LoadedVariant {
    fn in_use(&self) -> bool {
        let Some(file) = self.file.upgrade() else {
            return false;
        };
        let loaded = file.slot(self.which).map(|slot| slot.load());
        loaded
            .as_ref()
            .and_then(|slot| slot.as_ref())
            .is_some_and(|variant| variant.take_touch())
    }

    fn evict(&self) {
        let Some(file) = self.file.upgrade() else {
            return;
        };
        if let Some(slot) = file.slot(self.which) {
            slot.store(None);
        }
        if self.which == VariantKind::GeneratedGzip {
            file.release_gzip();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_beyond_the_address_space_is_capped() {
        assert_eq!(ContentBudget::new(64 << 20).bytes_max(), 64 << 20);
        // Truncated to 32 bits, the values would be 0 and 1.
        for bytes in [1 << 32, (1 << 32) + 1] {
            assert!(ContentBudget::new(bytes).bytes_max() > 1 << 30);
        }
    }
}
