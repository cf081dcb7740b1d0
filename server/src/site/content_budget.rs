//! The ledger of the content budget: what all sites together keep loaded.
//!
//! Eviction gives a second chance: variants stand in a queue; one that was used since it was last
//! looked at goes to its end, another goes. A warm page doesn't come near this: it at most sets a
//! mark of its own.

use crate::limits::{CONTENT_BUDGET_BYTES_MIN, DESCRIPTORS_KEPT_MAX};
use crate::site::file::{SiteFile, VariantKind};
use crate::site::gzip_queue::GzipQueue;
use crate::site::variant::{Variant, VariantContent};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The budget of the process, shared by all sites.
pub struct ContentBudget {
    bytes_max: usize,
    descriptors_max: usize,
    ledger: Mutex<ContentLedger>,
    gzip: GzipQueue,
}

#[derive(Default)]
struct ContentLedger {
    /// Contents in memory, which the bytes are about.
    memory: VecDeque<LoadedVariant>,
    /// Contents on disk: little memory, and a descriptor each.
    disk: VecDeque<LoadedVariant>,
    bytes: usize,
    descriptors: usize,
    /// Of the budget, what somebody else has.
    lent: usize,
}

/// A loaded variant, to be found again.
struct LoadedVariant {
    file: Weak<SiteFile>,
    which: VariantKind,
    bytes: usize,
    descriptors: usize,
}

impl ContentBudget {
    /// A budget of so many bytes of contents and heads, but at least
    /// [`CONTENT_BUDGET_BYTES_MIN`] and at most half of what can be addressed: on 32 bits, 2 GiB.
    pub fn new(bytes: u64) -> ContentBudget {
        let bytes = bytes.min(isize::MAX as u64) as usize;
        ContentBudget::exactly(bytes.max(CONTENT_BUDGET_BYTES_MIN), DESCRIPTORS_KEPT_MAX)
    }

    pub(super) fn exactly(bytes_max: usize, descriptors_max: usize) -> ContentBudget {
        ContentBudget {
            bytes_max,
            descriptors_max,
            ledger: Mutex::default(),
            gzip: GzipQueue::default(),
        }
    }

    /// What is held now, bytes.
    pub fn bytes_used(&self) -> usize {
        self.lock().bytes
    }

    /// What may be held, bytes.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// So much of it (at most half) belongs to somebody else now; contents make room for it.
    pub fn lend(&self, bytes: usize) {
        let mut ledger = self.lock();
        ledger.lent = bytes.min(self.bytes_max / 2);
        let bytes_max = self.bytes_max - ledger.lent;
        ledger.shrink(bytes_max, self.descriptors_max);
    }

    /// The texts that wait to be compressed; a thread of low priority works them off.
    pub fn gzip(&self) -> &GzipQueue {
        &self.gzip
    }

    /// Hangs a loaded variant into its slot, if none is there yet, and evicts what has to go.
    pub(super) fn keep(&self, file: &Arc<SiteFile>, which: VariantKind, mut variant: Variant) {
        let Some(slot) = file.slot(which) else { return };
        let mut ledger = self.lock();
        if slot.load().is_some() {
            return;
        }
        let in_memory = matches!(variant.content, VariantContent::Memory(_));
        if in_memory && ledger.descriptors >= self.descriptors_max / 2 {
            // A convenience only; large files have none but this.
            variant.kept = None;
        }
        let holding = LoadedVariant {
            file: Arc::downgrade(file),
            which,
            bytes: variant.weight(),
            descriptors: usize::from(variant.disk().is_some()),
        };
        // Room is made before it joins the queue: it is for somebody who is yet to take it.
        let lent = ledger.lent;
        ledger.shrink(
            (self.bytes_max - lent).saturating_sub(holding.bytes),
            self.descriptors_max.saturating_sub(holding.descriptors),
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

    /// Forgets what belongs to files that no tree holds any more.
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

    fn subtract(&mut self, evicted: &LoadedVariant) {
        self.bytes -= evicted.bytes;
        self.descriptors -= evicted.descriptors;
    }
}

/// Evicts the first that wasn't used since it was last looked at; if all were, the first.
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
    fn more_than_can_be_addressed_is_much_and_not_little() {
        assert_eq!(ContentBudget::new(64 << 20).bytes_max(), 64 << 20);
        // Cut to 32 bits these are nothing, and one.
        for bytes in [1 << 32, (1 << 32) + 1] {
            assert!(ContentBudget::new(bytes).bytes_max() > 1 << 30);
        }
    }
}
