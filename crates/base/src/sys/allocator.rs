//! Global allocator: dlmalloc, with a small cache of free blocks for each worker thread. dlmalloc wastes
//! the least memory beside the blocks that a TLS connection keeps.
//!
//! A request over TLS takes and returns the same three blocks each time. A worker that finds the blocks
//! again without the lock of all threads saves a twentieth of the time, and two workers don't wait for
//! each other. A thread has a cache only on request, and no block larger than a TLS record is cached.
//!
//! dlmalloc returns memory to the system by whole segments. By default dlmalloc joins each new mapping to
//! the mapping above, and a single block in use keeps the joined segment for ever. So segments are
//! separate here, and free segments are returned every few seconds: when 9,000 connections with heads of
//! 15 KB have gone, the memory of the connections has gone too.

use crate::sys::segments::{SEGMENT_BYTES, Segments};
use dlmalloc::Dlmalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The program's allocator.
pub struct Heap;

/// dlmalloc with all blocks of all threads, behind a lock.
static SHARED: Mutex<HeapState> = Mutex::new(HeapState {
    blocks: Dlmalloc::new_with_allocator(Segments::new()),
    used: 0,
});

struct HeapState {
    blocks: Dlmalloc<Segments>,
    /// Bytes held by callers.
    used: usize,
}

/// Free memory in bytes from which memory is returned to the system. Mapping memory again costs a page
/// fault for each 4 KiB.
const SLACK_BYTES_MAX: usize = 1 << 20;

/// Access to dlmalloc under the lock.
struct LockedHeap;

impl LockedHeap {
    fn lock() -> MutexGuard<'static, HeapState> {
        // No code that runs under the lock panics half-way.
        SHARED.lock().unwrap_or_else(PoisonError::into_inner)
    }

    unsafe fn alloc(layout: Layout) -> *mut u8 {
        let mut shared = LockedHeap::lock();
        // SAFETY: the caller keeps the promises of `alloc`.
        let block = unsafe { shared.blocks.malloc(layout.size(), layout.align()) };
        shared.count(block, layout.size(), 0);
        block
    }

    unsafe fn alloc_zeroed(layout: Layout) -> *mut u8 {
        let mut shared = LockedHeap::lock();
        // SAFETY: the caller keeps the promises of `alloc_zeroed`.
        let block = unsafe { shared.blocks.calloc(layout.size(), layout.align()) };
        shared.count(block, layout.size(), 0);
        block
    }

    unsafe fn dealloc(block: *mut u8, layout: Layout) {
        let mut shared = LockedHeap::lock();
        shared.used -= layout.size();
        // SAFETY: the caller keeps the promises of `dealloc`.
        unsafe { shared.blocks.free(block, layout.size(), layout.align()) }
    }

    unsafe fn realloc(block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        let mut shared = LockedHeap::lock();
        // SAFETY: the caller keeps the promises of `realloc`.
        let block = unsafe { shared.blocks.realloc(block, size, align, new_size) };
        shared.count(block, new_size, size);
        block
    }
}

impl HeapState {
    /// Counts a block of `size` bytes that replaces a block of `before` bytes, unless the allocation
    /// failed.
    fn count(&mut self, block: *mut u8, size: usize, before: usize) {
        if !block.is_null() {
            self.used += size;
            self.used -= before;
        }
    }
}

impl Heap {
    /// Turns the block cache of the calling thread on.
    pub fn enable_thread_cache() {
        CACHE.with(|cache| {
            cache.small.max.set(SMALL_CACHE_BYTES);
            cache.large.max.set(LARGE_CACHE_BYTES);
        });
    }

    /// Makes room in the calling thread's cache for the blocks of `calls` calls of handlers at a time, until the next
    /// [`Heap::trim`]. Blocks of calls that end in one turn of a worker then wait in the cache for the next calls. A
    /// thread without a cache stays without.
    pub fn enlarge_thread_cache(calls: usize) {
        let bytes = SMALL_CACHE_BYTES + calls.min(CACHED_CALLS_MAX) * CALL_BLOCK_BYTES;
        CACHE.with(|cache| {
            let max = cache.small.max.get();
            if max > 0 && max < bytes {
                cache.small.max.set(bytes);
            }
        });
    }

    /// Returns free memory to the system, where at least `SLACK_BYTES_MAX` bytes are free. The call takes
    /// some microseconds for each 100 MiB of mapped memory. The blocks in the calling thread's cache are
    /// returned first: cached blocks are spread over all segments, and one block keeps a whole segment.
    /// Returns the bytes that the system got.
    pub fn trim() -> usize {
        let mapped = |shared: &HeapState| shared.blocks.allocator().mapped();
        CACHE.with(|cache| {
            let max = &cache.small.max;
            max.set(max.get().min(SMALL_CACHE_BYTES));
        });
        let cached = CACHE.with(ThreadCache::bytes);
        let before = {
            let shared = LockedHeap::lock();
            let free = mapped(&shared).saturating_sub(shared.used) + cached;
            if free < SLACK_BYTES_MAX {
                return 0;
            }
            mapped(&shared)
        };
        let keeps_blocks = CACHE.with(ThreadCache::release);
        let after = {
            let mut shared = LockedHeap::lock();
            // SAFETY: the lock is held, and only free blocks are touched. The newest segment keeps the
            // free end for the next blocks.
            unsafe { shared.blocks.trim(SEGMENT_BYTES) };
            mapped(&shared)
        };
        if keeps_blocks {
            Heap::enable_thread_cache();
        }
        before.saturating_sub(after)
    }

    /// Returns all blocks in the calling thread's cache and turns the cache off.
    pub fn disable_thread_cache() {
        let _ = CACHE.with(ThreadCache::release);
    }
}

/// Free blocks that one thread keeps.
struct ThreadCache {
    bins: [UnsafeCell<Bin>; BINS + LINE_BINS],
    /// Bytes of the small blocks in the bins.
    small: CachedBytes,
    /// Bytes of the other blocks in the bins.
    large: CachedBytes,
}

/// Bytes in a part of a cache, and their bound.
struct CachedBytes {
    held: Cell<usize>,
    /// 0 while the cache is off.
    max: Cell<usize>,
}

impl CachedBytes {
    const fn off() -> CachedBytes {
        CachedBytes {
            held: Cell::new(0),
            max: Cell::new(0),
        }
    }
}

/// Linked list of free blocks of one size; each block holds the address of the next.
#[derive(Copy, Clone)]
struct Bin {
    first: *mut u8,
    size: usize,
}

/// Step between the sizes of cached blocks, in bytes. Sizes are rounded as in dlmalloc, less dlmalloc's
/// own word, so each block of a bin fits every request for the bin.
const GRAIN: usize = 2 * size_of::<usize>();
const OVERHEAD: usize = size_of::<usize>();
const BINS: usize = 256;
/// Alignment of the blocks in the last [`LINE_BINS`] bins, in bytes: tokio keeps each task on cache lines of
/// the task's own, and a proxied request is a task. Sizes of these blocks are multiples of the alignment.
const LINE: usize = 128;
/// Bins of blocks with the alignment [`LINE`].
const LINE_BINS: usize = 16;
/// Largest cached block in bytes: a whole TLS record and the bytes before the record.
const BLOCK_BYTES_MAX: usize = 20 * 1024;
/// Largest small block in bytes. A proxied request takes about 20 small blocks.
const SMALL_BLOCK_BYTES_MAX: usize = 2 * 1024;
/// Most bytes of small blocks in the cache of a thread without calls, 256 KiB. A larger cache would keep blocks of
/// handshakes between the blocks of connections, and the heap of 1,500 clients over TLS would be 1 to 4 MiB larger.
const SMALL_CACHE_BYTES: usize = 256 * 1024;
/// Bytes of small blocks for each call: a proxied request takes about 4 KB.
const CALL_BLOCK_BYTES: usize = 5 * 1024;
/// Most calls that the cache has room for: 4 MiB of blocks.
const CACHED_CALLS_MAX: usize = 800;
/// Most bytes of other blocks in the cache of one thread. The handshakes of 1,500 clients would leave several MiB.
const LARGE_CACHE_BYTES: usize = 256 * 1024;

thread_local! {
    // Initialized at compile time and without a destructor, so access to the cache allocates nothing.
    static CACHE: ThreadCache = const {
        ThreadCache {
            bins: [const { UnsafeCell::new(Bin { first: ptr::null_mut(), size: 0 }) }; BINS + LINE_BINS],
            small: CachedBytes::off(),
            large: CachedBytes::off(),
        }
    };
}

/// Returns the layout of the cached block for `layout`, or `None` where blocks for `layout` are not cached.
#[inline(always)] // a call for each allocation would cost as much as the function
fn kept_layout(layout: Layout) -> Option<Layout> {
    if layout.size() > BLOCK_BYTES_MAX || layout.align() > LINE {
        return None;
    }
    let (size, align) = if layout.align() <= GRAIN {
        (rounded(layout.size()), GRAIN)
    } else {
        (layout.size().next_multiple_of(LINE), LINE)
    };
    // SAFETY: the alignment is a power of 2, and the size is at most twice BLOCK_BYTES_MAX.
    Some(unsafe { Layout::from_size_align_unchecked(size, align) })
}

fn rounded(size: usize) -> usize {
    (size.max(GRAIN) + OVERHEAD).next_multiple_of(GRAIN) - OVERHEAD
}

impl ThreadCache {
    fn bin(&self, kept: Layout) -> &UnsafeCell<Bin> {
        match kept.align() {
            LINE => &self.bins[BINS + kept.size() / LINE % LINE_BINS],
            _ => &self.bins[kept.size() / GRAIN % BINS],
        }
    }

    /// Returns the part of the cache for blocks with the layout `kept`.
    #[inline]
    fn part(&self, kept: Layout) -> &CachedBytes {
        if kept.size() <= SMALL_BLOCK_BYTES_MAX {
            &self.small
        } else {
            &self.large
        }
    }

    /// Returns the bytes of all blocks in the cache.
    fn bytes(&self) -> usize {
        self.small.held.get() + self.large.held.get()
    }

    /// Takes a block with the layout `kept` out of the cache.
    #[inline]
    fn take(&self, kept: Layout) -> Option<*mut u8> {
        let bin = self.bin(kept).get();
        // SAFETY: the cache belongs to the calling thread alone, and no call below re-enters the cache. A
        // block in a bin is free and at least two words long, and the first word was written by `put`.
        unsafe {
            let block = (*bin).first;
            if block.is_null() || (*bin).size != kept.size() {
                return None;
            }
            (*bin).first = block.cast::<*mut u8>().read();
            let held = &self.part(kept).held;
            held.set(held.get() - kept.size());
            Some(block)
        }
    }

    /// Puts a free block with the layout `kept` into the cache. Returns false if the cache has no room.
    #[inline]
    fn put(&self, block: *mut u8, kept: Layout) -> bool {
        let bin = self.bin(kept).get();
        let part = self.part(kept);
        let held = part.held.get() + kept.size();
        if held > part.max.get() {
            return false;
        }
        // SAFETY: the cache belongs to the calling thread alone, as in `take`. The caller owns the block,
        // and the block is aligned for a word.
        unsafe {
            if (*bin).first.is_null() {
                (*bin).size = kept.size();
            } else if (*bin).size != kept.size() {
                return false;
            }
            block.cast::<*mut u8>().write((*bin).first);
            (*bin).first = block;
        }
        part.held.set(held);
        true
    }

    /// Returns all cached blocks to dlmalloc and turns the cache off. Returns true if the cache was on.
    fn release(&self) -> bool {
        let was_on = self.small.max.replace(0) > 0;
        self.large.max.set(0);
        for (number, bin) in self.bins.iter().enumerate() {
            let align = if number < BINS { GRAIN } else { LINE };
            // SAFETY: the cache belongs to the calling thread alone, as in `take`. A bin holds blocks of its
            // size and alignment.
            while let kept = unsafe { Layout::from_size_align_unchecked((*bin.get()).size, align) }
                && let Some(block) = self.take(kept)
            {
                // SAFETY: the block was allocated with the layout `kept`.
                unsafe { LockedHeap::dealloc(block, kept) };
            }
        }
        was_on
    }
}

// SAFETY: every block comes from dlmalloc, and the layout is widened in the same way when a block is
// allocated, freed and resized. So a cached block is large enough and aligned for every layout of the bin. A
// block is in one place only: cached, or in use.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(kept) = kept_layout(layout) else {
            // SAFETY: the caller keeps the promises of `alloc`.
            return unsafe { LockedHeap::alloc(layout) };
        };
        match CACHE.with(|cache| cache.take(kept)) {
            Some(block) => block,
            // SAFETY: the caller keeps the promises of `alloc`, and `kept` is no smaller than `layout`.
            None => unsafe { LockedHeap::alloc(kept) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(kept) = kept_layout(layout) else {
            // SAFETY: the caller keeps the promises of `dealloc`.
            return unsafe { LockedHeap::dealloc(block, layout) };
        };
        if !CACHE.with(|cache| cache.put(block, kept)) {
            // SAFETY: the block was allocated with the layout `kept`.
            unsafe { LockedHeap::dealloc(block, kept) }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // The kernel has cleared the memory of large blocks.
        if kept_layout(layout).is_none() {
            // SAFETY: the caller keeps the promises of `alloc_zeroed`.
            return unsafe { LockedHeap::alloc_zeroed(layout) };
        }
        // SAFETY: the caller keeps the promises of `alloc_zeroed`; a block that isn't null has the size
        // of `layout`.
        unsafe {
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the new size makes a sound layout.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        match (kept_layout(layout), kept_layout(new)) {
            (Some(old), Some(new)) if old == new => block,
            (old, new_kept) => {
                let new_size = new_kept.unwrap_or(new).size();
                // SAFETY: the block was allocated with the layout `old`, and the new size is no smaller than
                // the size that the caller asks for. dlmalloc keeps an alignment of at most GRAIN with every
                // block. A wider alignment is the same before and after.
                unsafe { LockedHeap::realloc(block, old.unwrap_or(layout), new_size) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All threads share one heap. A test that counts the bytes of the heap holds this lock, and so does each test
    /// that takes blocks.
    fn heap_of_one_test() -> MutexGuard<'static, ()> {
        static TESTS: Mutex<()> = Mutex::new(());
        TESTS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).unwrap()
    }

    #[test]
    fn free_memory_goes_back_to_the_system() {
        let _alone = heap_of_one_test();
        let mapped = || LockedHeap::lock().blocks.allocator().mapped();
        let layout = layout(15_000);
        // SAFETY: each block is freed once, with the layout of the allocation.
        unsafe {
            let mut blocks: Vec<_> = (0..4_096).map(|_| Heap.alloc(layout)).collect();
            assert!(mapped() >= 60 << 20);
            let stays = blocks.split_off(4_095);
            blocks.iter().for_each(|block| Heap.dealloc(*block, layout));
            Heap::trim();
            assert!(mapped() <= 8 << 20, "{}", mapped());
            Heap.dealloc(stays[0], layout);
        }
    }

    #[test]
    fn freed_blocks_are_reused_for_their_size() {
        let _alone = heap_of_one_test();
        Heap::enable_thread_cache();
        // SAFETY: each block is freed once, with the layout of the allocation.
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
        Heap::disable_thread_cache();
        let kept = kept_layout(layout(5_200)).unwrap();
        assert!(CACHE.with(|cache| cache.take(kept)).is_none());
    }

    #[test]
    fn aligned_blocks_are_reused_as_well() {
        let _alone = heap_of_one_test();
        let layout = |size| Layout::from_size_align(size, LINE).unwrap();
        Heap::enable_thread_cache();
        // SAFETY: each block is freed once, with the layout of the allocation.
        unsafe {
            let first = Heap.alloc(layout(1_500));
            assert!(first.addr().is_multiple_of(LINE));
            Heap.dealloc(first, layout(1_500));
            let unaligned = Heap.alloc(Layout::from_size_align(1_536, 8).unwrap());
            assert_ne!(first, unaligned, "a bin has blocks of one alignment");
            assert_eq!(first, Heap.alloc(layout(1_536)));
            let grown = Heap.realloc(first, layout(1_536), 4_000);
            assert!(grown.addr().is_multiple_of(LINE));
            Heap.dealloc(grown, layout(4_000));
            Heap.dealloc(unaligned, Layout::from_size_align(1_536, 8).unwrap());
        }
        Heap::disable_thread_cache();
    }

    #[test]
    fn the_thread_cache_is_bounded() {
        let _alone = heap_of_one_test();
        Heap::enable_thread_cache();
        let fill = |size: usize, count: usize| {
            // SAFETY: each block is freed once, with the layout of the allocation.
            unsafe {
                let blocks: Vec<_> = (0..count).map(|_| Heap.alloc(layout(size))).collect();
                let free = |block: &*mut u8| Heap.dealloc(*block, layout(size));
                blocks.iter().for_each(free);
            }
        };
        fill(16_384, 300);
        let large = CACHE.with(|cache| cache.large.held.get());
        assert!(
            large > LARGE_CACHE_BYTES / 2 && large <= LARGE_CACHE_BYTES,
            "{large}"
        );
        for calls in [0, 100, usize::MAX] {
            Heap::enlarge_thread_cache(calls);
            fill(1_024, 6_000);
            let small = CACHE.with(|cache| cache.small.held.get());
            let max = SMALL_CACHE_BYTES + calls.min(CACHED_CALLS_MAX) * CALL_BLOCK_BYTES;
            assert!(small > max / 2 && small <= max, "{calls}: {small}");
        }
        Heap::trim();
        assert_eq!(CACHE.with(ThreadCache::bytes), 0);
        assert_eq!(CACHE.with(|cache| cache.small.max.get()), SMALL_CACHE_BYTES);
        Heap::disable_thread_cache();
        Heap::enlarge_thread_cache(100);
        assert_eq!(CACHE.with(|cache| cache.small.max.get()), 0);
    }

    #[test]
    fn resizing_keeps_the_content() {
        let _alone = heap_of_one_test();
        Heap::enable_thread_cache();
        // SAFETY: each block is freed once with the layout of the allocation, and only written bytes are
        // read.
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
        Heap::disable_thread_cache();
    }
}
