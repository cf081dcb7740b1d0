//! The allocator: dlmalloc, which wastes least beside what a TLS connection keeps, and before it a
//! few blocks that a worker has just given back.
//!
//! A request over TLS takes and gives back the same three blocks each time. A worker that finds them
//! again without the lock that all threads share saves a twentieth of its time, and two workers don't
//! wait for each other. Threads that don't ask for a cache have none, and nothing is kept that is
//! larger than a TLS record.
//!
//! dlmalloc gives memory back to the system by whole segments. Left to itself it joins each new
//! mapping to the one above it, which makes a single segment that one block in use keeps for ever. So
//! segments are apart here, and those that have become free are given back every few seconds: after
//! 9,000 connections with heads of 15 KB have gone, so has their memory.

use super::segments::{SEGMENT_BYTES, Segments};
use dlmalloc::Dlmalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The program's allocator.
pub struct Heap;

/// All blocks of all threads.
static SHARED: Mutex<Shared> = Mutex::new(Shared {
    blocks: Dlmalloc::new_with_allocator(Segments::new()),
    used: 0,
});

struct Shared {
    blocks: Dlmalloc<Segments>,
    /// Bytes that were asked for and not given back.
    used: usize,
}

/// Free memory is given back to the system when there is at least this much, bytes: mapping it again
/// costs a page fault for each 4 KiB.
const SLACK_BYTES_MAX: usize = 1 << 20;

/// dlmalloc behind its lock.
struct Blocks;

impl Blocks {
    fn lock() -> MutexGuard<'static, Shared> {
        // Nothing that runs under the lock panics half-way.
        SHARED.lock().unwrap_or_else(PoisonError::into_inner)
    }

    unsafe fn alloc(layout: Layout) -> *mut u8 {
        let mut shared = Blocks::lock();
        // SAFETY: the caller keeps the promises of `alloc`.
        let block = unsafe { shared.blocks.malloc(layout.size(), layout.align()) };
        shared.count(block, layout.size(), 0);
        block
    }

    unsafe fn alloc_zeroed(layout: Layout) -> *mut u8 {
        let mut shared = Blocks::lock();
        // SAFETY: the caller keeps the promises of `alloc_zeroed`.
        let block = unsafe { shared.blocks.calloc(layout.size(), layout.align()) };
        shared.count(block, layout.size(), 0);
        block
    }

    unsafe fn dealloc(block: *mut u8, layout: Layout) {
        let mut shared = Blocks::lock();
        shared.used -= layout.size();
        // SAFETY: the caller keeps the promises of `dealloc`.
        unsafe { shared.blocks.free(block, layout.size(), layout.align()) }
    }

    unsafe fn realloc(block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        let mut shared = Blocks::lock();
        // SAFETY: the caller keeps the promises of `realloc`.
        let block = unsafe { shared.blocks.realloc(block, size, align, new_size) };
        shared.count(block, new_size, size);
        block
    }
}

impl Shared {
    /// Counts a block of `size` bytes that takes the place of `before`, if there was memory for it.
    fn count(&mut self, block: *mut u8, size: usize, before: usize) {
        if !block.is_null() {
            self.used += size;
            self.used -= before;
        }
    }
}

impl Heap {
    /// This thread keeps blocks that it gives back, for itself.
    pub fn keep_blocks() {
        CACHE.with(|cache| cache.bytes_left.set(CACHE_BYTES));
    }

    /// Gives free memory back to the system, where there is much of it. It takes some microseconds for
    /// each 100 MiB that are mapped. Blocks that this thread keeps for itself go back first: they are
    /// spread over all segments, and one keeps a whole segment.
    pub fn give_back() {
        let slack = {
            let shared = Blocks::lock();
            shared
                .blocks
                .allocator()
                .mapped()
                .saturating_sub(shared.used)
        };
        if slack < SLACK_BYTES_MAX {
            return;
        }
        let keeps_blocks = CACHE.with(Cache::release);
        // SAFETY: the lock is held, and only free blocks are touched. The newest segment keeps its free
        // end, which is for the next blocks.
        unsafe { Blocks::lock().blocks.trim(SEGMENT_BYTES) };
        if keeps_blocks {
            Heap::keep_blocks();
        }
    }

    /// All that this thread kept goes back, and nothing is kept any more.
    pub fn release_blocks() {
        let _ = CACHE.with(Cache::release);
    }
}

/// What one thread keeps.
struct Cache {
    bins: [UnsafeCell<Bin>; BINS],
    bytes_left: Cell<usize>,
}

/// A list of free blocks of one size, each holding the address of the next.
#[derive(Copy, Clone)]
struct Bin {
    first: *mut u8,
    size: usize,
}

/// Blocks are of one of these sizes, in bytes: what dlmalloc would round them up to, less its own
/// word, so that blocks of one bin fit all who look there.
const GRAIN: usize = 2 * size_of::<usize>();
const OVERHEAD: usize = size_of::<usize>();
const BINS: usize = 128;
/// The largest block that is kept: a whole TLS record and what comes before it.
const BLOCK_BYTES_MAX: usize = 20 * 1024;
/// What one thread keeps at most.
const CACHE_BYTES: usize = 64 * 1024;

thread_local! {
    // Made beforehand and without a destructor: asking for it allocates nothing.
    static CACHE: Cache = const {
        Cache {
            bins: [const { UnsafeCell::new(Bin { first: ptr::null_mut(), size: 0 }) }; BINS],
            bytes_left: Cell::new(0),
        }
    };
}

/// The size of the block that `layout` gets, where blocks of its kind are kept.
fn kept_size(layout: Layout) -> Option<usize> {
    (layout.size() <= BLOCK_BYTES_MAX && layout.align() <= GRAIN).then(|| rounded(layout.size()))
}

fn rounded(size: usize) -> usize {
    (size.max(GRAIN) + OVERHEAD).next_multiple_of(GRAIN) - OVERHEAD
}

fn with_size(layout: Layout, size: usize) -> Layout {
    // SAFETY: the alignment is that of a layout, and the size at most twice BLOCK_BYTES_MAX.
    unsafe { Layout::from_size_align_unchecked(size, layout.align()) }
}

impl Cache {
    fn bin(&self, size: usize) -> &UnsafeCell<Bin> {
        &self.bins[size / GRAIN % BINS]
    }

    /// A block of `size`, if one is kept.
    fn take(&self, size: usize) -> Option<*mut u8> {
        let bin = self.bin(size).get();
        // SAFETY: the cache is this thread's alone, and nothing below calls back into it. A block in
        // a bin is free and at least two words long, and its first word is what `put` wrote there.
        unsafe {
            let block = (*bin).first;
            if block.is_null() || (*bin).size != size {
                return None;
            }
            (*bin).first = block.cast::<*mut u8>().read();
            self.bytes_left.set(self.bytes_left.get() + size);
            Some(block)
        }
    }

    /// Keeps a free block of `size`; false if there is no room.
    fn put(&self, block: *mut u8, size: usize) -> bool {
        let bin = self.bin(size).get();
        let Some(left) = self.bytes_left.get().checked_sub(size) else {
            return false;
        };
        // SAFETY: as in `take`; the block is the caller's to give, and aligned for a word.
        unsafe {
            if (*bin).first.is_null() {
                (*bin).size = size;
            } else if (*bin).size != size {
                return false;
            }
            block.cast::<*mut u8>().write((*bin).first);
            (*bin).first = block;
        }
        self.bytes_left.set(left);
        true
    }

    /// Gives back all kept blocks and keeps no more; was any kept, or might it have been?
    fn release(&self) -> bool {
        let mut kept = self.bytes_left.replace(0);
        for bin in &self.bins {
            // SAFETY: as in `take`.
            while let size = unsafe { (*bin.get()).size }
                && let Some(block) = self.take(size)
            {
                kept += size;
                // SAFETY: it came from dlmalloc with this size and an alignment of at most GRAIN,
                // which dlmalloc gives to every block.
                unsafe {
                    Blocks::dealloc(block, Layout::from_size_align_unchecked(size, GRAIN));
                }
            }
        }
        self.bytes_left.set(0);
        kept > 0
    }
}

// SAFETY: every block comes from dlmalloc, with a size that is rounded up in the same way wherever it
// is asked for, given back or resized; so a kept block is as large as any layout that finds it needs,
// and is in one place only: kept, or in use.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(size) = kept_size(layout) else {
            // SAFETY: the caller keeps the promises of `alloc`.
            return unsafe { Blocks::alloc(layout) };
        };
        match CACHE.with(|cache| cache.take(size)) {
            Some(block) => block,
            // SAFETY: as above, and no size that is asked for becomes smaller.
            None => unsafe { Blocks::alloc(with_size(layout, size)) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(size) = kept_size(layout) else {
            // SAFETY: the caller keeps the promises of `dealloc`.
            return unsafe { Blocks::dealloc(block, layout) };
        };
        if !CACHE.with(|cache| cache.put(block, size)) {
            // SAFETY: it was asked for with this size.
            unsafe { Blocks::dealloc(block, with_size(layout, size)) }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // Large ones come from the kernel, which has cleared them.
        if kept_size(layout).is_none() {
            // SAFETY: the caller keeps the promises of `alloc_zeroed`.
            return unsafe { Blocks::alloc_zeroed(layout) };
        }
        // SAFETY: the caller keeps the promises; a block that isn't null has this size.
        unsafe {
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let old = kept_size(layout);
        let new = kept_size(with_new_size(layout, new_size));
        match (old, new) {
            (Some(old), Some(new)) if old == new => block,
            (old, new) => {
                let old = old.map_or(layout, |size| with_size(layout, size));
                // SAFETY: it was asked for with this layout; the new size is what the caller
                // promised to be sound, or that rounded up.
                unsafe { Blocks::realloc(block, old, new.unwrap_or(new_size)) }
            }
        }
    }
}

fn with_new_size(layout: Layout, size: usize) -> Layout {
    // SAFETY: the caller of `realloc` promises that its new size makes a sound layout.
    unsafe { Layout::from_size_align_unchecked(size, layout.align()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).unwrap()
    }

    #[test]
    fn free_memory_goes_back_to_the_system() {
        let mapped = || Blocks::lock().blocks.allocator().mapped();
        let layout = layout(15_000);
        // SAFETY: each block is given back once, with the layout that it was asked for with.
        unsafe {
            let mut blocks: Vec<_> = (0..4_096).map(|_| Heap.alloc(layout)).collect();
            assert!(mapped() >= 60 << 20);
            let stays = blocks.split_off(4_095);
            blocks.iter().for_each(|block| Heap.dealloc(*block, layout));
            Heap::give_back();
            assert!(mapped() <= 8 << 20, "{}", mapped());
            Heap.dealloc(stays[0], layout);
        }
    }

    #[test]
    fn blocks_come_back_to_who_asks_for_their_size() {
        Heap::keep_blocks();
        // SAFETY: each block is given back once, with the layout that it was asked for with.
        unsafe {
            let first = Heap.alloc(layout(5_200));
            Heap.dealloc(first, layout(5_200));
            let again = Heap.alloc_zeroed(layout(5_198));
            assert_eq!(first, again);
            let bytes = std::slice::from_raw_parts(again, 5_198);
            assert!(bytes.iter().all(|byte| *byte == 0));
            let other = Heap.alloc(layout(5_200));
            assert_ne!(other, again);
            Heap.dealloc(other, layout(5_200));
            Heap.dealloc(again, layout(5_198));
        }
        Heap::release_blocks();
        assert!(CACHE.with(|cache| cache.take(rounded(5_200))).is_none());
    }

    #[test]
    fn what_is_kept_is_bounded() {
        Heap::keep_blocks();
        let layout = layout(16_384);
        // SAFETY: as above.
        unsafe {
            let blocks: Vec<_> = (0..8).map(|_| Heap.alloc(layout)).collect();
            blocks.iter().for_each(|block| Heap.dealloc(*block, layout));
        }
        let left = CACHE.with(|cache| cache.bytes_left.get());
        assert!(left < CACHE_BYTES / 2, "{left}");
        Heap::release_blocks();
    }

    #[test]
    fn resizing_keeps_what_is_in_it() {
        Heap::keep_blocks();
        // SAFETY: as above, and only what was written is read.
        unsafe {
            let mut size = 1;
            let mut block = Heap.alloc(layout(size));
            block.write(7);
            for next in [
                2,
                24,
                25,
                4_000,
                20 * 1024,
                20 * 1024 + 1,
                1 << 20,
                3_000,
                9,
            ] {
                block = Heap.realloc(block, layout(size), next);
                size = next;
                assert_eq!(block.read(), 7);
                block.add(size - 1).write(if size == 1 { 7 } else { 1 });
            }
            Heap.dealloc(block, layout(size));
        }
        Heap::release_blocks();
    }
}
