//! Memory of the system for the allocator, in segments that are never next to each other.

use dlmalloc::Allocator;
use std::cell::Cell;
use std::ptr;

/// Maps and unmaps segments, and counts them.
pub(super) struct Segments {
    mapped: Cell<usize>,
}

/// A segment has at least this many bytes. One block in use keeps a whole segment from the system: with
/// segments of 1 MiB, 7 MiB stayed after a burst of 450 connections.
pub(super) const SEGMENT_BYTES: usize = 128 << 10;
/// The least that the kernel maps, on the processors that the server runs on; where its pages are
/// larger, so is the gap.
const PAGE_BYTES: usize = 4_096;

impl Segments {
    pub(super) const fn new() -> Segments {
        Segments {
            mapped: Cell::new(0),
        }
    }

    /// Bytes of all segments.
    pub(super) fn mapped(&self) -> usize {
        self.mapped.get()
    }
}

// SAFETY: a mapping of the kernel's is private, writable, and nobody else's until it is unmapped. The
// count is touched under the allocator's lock alone.
unsafe impl Allocator for Segments {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let failed = (ptr::null_mut(), 0, 0);
        let size = size.max(SEGMENT_BYTES);
        let Some(with_gap) = size.checked_add(PAGE_BYTES) else {
            return failed;
        };
        // SAFETY: a new mapping anywhere changes nothing that is mapped already.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                with_gap,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_ANONYMOUS | libc::MAP_PRIVATE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return failed;
        }
        let base = base.cast::<u8>();
        // The kernel maps from above downwards: the gap at the end keeps this segment from the one
        // before it.
        // SAFETY: the last page of the mapping, which nothing uses yet.
        unsafe { libc::munmap(base.add(size).cast(), PAGE_BYTES) };
        self.mapped.set(self.mapped.get() + size);
        (base, size, 0)
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        ptr::null_mut()
    }

    fn free_part(&self, base: *mut u8, size: usize, new_size: usize) -> bool {
        // SAFETY: dlmalloc has nothing in use there.
        let is_done = unsafe { libc::munmap(base.add(new_size).cast(), size - new_size) == 0 };
        if is_done {
            self.mapped.set(self.mapped.get() - (size - new_size));
        }
        is_done
    }

    fn free(&self, base: *mut u8, size: usize) -> bool {
        // SAFETY: as above.
        let is_done = unsafe { libc::munmap(base.cast(), size) == 0 };
        if is_done {
            self.mapped.set(self.mapped.get() - size);
        }
        is_done
    }

    fn can_release_part(&self, _: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE_BYTES
    }
}
