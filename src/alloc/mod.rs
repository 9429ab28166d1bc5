//! Allocator of the process. Every op allocates its result. Returning that memory to the system, only to have it zeroed
//! again, costs up to half of a step. Large blocks are therefore cached for reuse in their own pages, and mimalloc,
//! which serves all others, keeps its pages. If mimalloc served the large blocks too, it would use up to a quarter more
//! memory, because it rounds their sizes up.

#![allow(unsafe_code)]

use libmimalloc_sys as sys;
use mimalloc::MiMalloc;
#[cfg(target_os = "linux")]
use rustix::mm::{madvise, Advice};
use rustix::mm::{mmap_anonymous, munmap, MapFlags, ProtFlags};
use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `mi_option_purge_delay` of mimalloc.h, which the bindings skip between 14 and 16.
const PURGE_DELAY: sys::mi_option_t = 15;

/// Size in bytes of the smallest block that mimalloc does not serve.
const LARGE: usize = 1 << 20;

/// Granularity of large blocks in bytes, a multiple of the page size on every system.
const PAGE: usize = 1 << 16;

/// Alignment guaranteed for any page of the system.
const ALIGN: usize = 1 << 12;

/// Size in bytes of a huge page. Where there are huge pages, a step is about two percent faster with them.
const HUGE: usize = 1 << 21;

/// Largest number of cached blocks.
const SLOTS: usize = 256;

/// Makes mimalloc keep its pages. Call this first in `main`.
pub fn keep_pages() {
    // SAFETY: sets a plain number in the allocator's option table; -1 means "never purge". Valid at
    // any time, and called before other threads exist.
    unsafe { sys::mi_option_set(PURGE_DELAY, -1) }
}

/// Global allocator of the binary.
pub struct Allocator;

static BLOCKS: Mutex<BlockCache> = Mutex::new(BlockCache::new());

fn blocks() -> MutexGuard<'static, BlockCache> {
    BLOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Large block that is not in use.
#[derive(Clone, Copy, Debug, PartialEq)]
struct FreeBlock {
    address: *mut u8,
    bytes: usize,
}

// SAFETY: a cached block belongs to the cache alone.
unsafe impl Send for FreeBlock {}

/// Cache of large blocks and its counters.
struct BlockCache {
    /// Cached blocks, the one freed first at the front.
    cached: [FreeBlock; SLOTS],
    count: usize,
    /// Total size of the cached blocks in bytes.
    spare: usize,
    /// Total size of the blocks in use in bytes.
    used: usize,
    /// Peak of `used`.
    peak: usize,
}

impl BlockCache {
    const fn new() -> Self {
        let none = FreeBlock { address: null_mut(), bytes: 0 };
        Self { cached: [none; SLOTS], count: 0, spare: 0, used: 0, peak: 0 }
    }

    /// Returns the block of `bytes` bytes that was freed last, since part of it may still be in a cache of the
    /// processor.
    fn take(&mut self, bytes: usize) -> Option<FreeBlock> {
        let mut cached = self.cached[..self.count].iter();
        let at = cached.rposition(|block| block.bytes == bytes)?;
        self.use_more(bytes);
        Some(self.remove(at))
    }

    /// Counts a block of `bytes` as used.
    fn use_more(&mut self, bytes: usize) {
        self.used += bytes;
        self.peak = self.peak.max(self.used);
    }

    /// Removes the block that was cached first if, with `more` further bytes in use, cached and used blocks together
    /// would exceed 5/4 of the peak of `used`.
    fn surplus(&mut self, more: usize) -> Option<FreeBlock> {
        let used = self.used + more;
        let peak = self.peak.max(used);
        let exceeds = used + self.spare > peak + peak / 4;
        (exceeds && self.count > 0).then(|| self.remove(0))
    }

    /// Caches a block. Returns the block that was cached first if there are no slots left.
    fn put(&mut self, block: FreeBlock) -> Option<FreeBlock> {
        let evicted = (self.count == SLOTS).then(|| self.remove(0));
        self.used -= block.bytes;
        self.spare += block.bytes;
        self.cached[self.count] = block;
        self.count += 1;
        evicted
    }

    fn remove(&mut self, at: usize) -> FreeBlock {
        let block = self.cached[at];
        self.cached.copy_within(at + 1..self.count, at);
        self.count -= 1;
        self.spare -= block.bytes;
        block
    }
}

/// Size in bytes of the block for `layout`; `None` if the layout is not large.
fn large(layout: Layout) -> Option<usize> {
    let is_large = layout.size() >= LARGE && layout.align() <= ALIGN;
    is_large.then(|| layout.size().next_multiple_of(PAGE))
}

/// Returns a block and whether it is known to be zero. If the system has no more memory, the process ends as with the
/// standard library, but with a message instead of a backtrace.
fn obtain(bytes: usize) -> (*mut u8, bool) {
    try_obtain(bytes).unwrap_or_else(|used| {
        eprintln!("error: {}", refusal(bytes, used));
        std::process::exit(1)
    })
}

/// Returns a block and whether it is known to be zero, or the bytes in use if the system has no more memory.
fn try_obtain(bytes: usize) -> Result<(*mut u8, bool), usize> {
    let mut blocks = blocks();
    if let Some(block) = blocks.take(bytes) {
        return Ok((block.address, false));
    }
    while let Some(block) = blocks.surplus(bytes) {
        release(block);
    }
    let made = map(bytes);
    if made.is_null() {
        return Err(blocks.used);
    }
    blocks.use_more(bytes);
    Ok((made, true))
}

fn refusal(bytes: usize, used: usize) -> String {
    let [more, used] = [bytes, used].map(|count| format!("{:.1} GB", count as f64 / 1e9));
    format!("memory allocation of {more} failed, beside {used} in use: take smaller sizes, a smaller batch or a shorter text")
}

fn recycle(block: FreeBlock) {
    let evicted = blocks().put(block);
    evicted.into_iter().for_each(release);
}

/// Maps new memory, aligned to a huge page if it is at least that large.
fn map(bytes: usize) -> *mut u8 {
    let more = if bytes < HUGE { 0 } else { HUGE };
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: requests new memory; the parts around the aligned block are unmapped at once, and nothing refers to them.
    unsafe {
        let Ok(all) = mmap_anonymous(null_mut(), bytes + more, access, MapFlags::PRIVATE) else {
            return null_mut();
        };
        if more == 0 {
            return all.cast();
        }
        let before = all.align_offset(HUGE);
        let address = all.byte_add(before);
        for (rest, size) in [(all, before), (address.byte_add(bytes), more - before)] {
            if size > 0 {
                let _ = munmap(rest, size); // fails only if the system has no map entries left; the part then stays mapped, untouched
            }
        }
        #[cfg(target_os = "linux")]
        let _ = madvise(address, bytes, Advice::LinuxHugepage); // only advice: errors do not matter
        address.cast()
    }
}

fn release(block: FreeBlock) {
    // SAFETY: the block was mapped with that size, and nothing uses it.
    let _ = unsafe { munmap(block.address.cast(), block.bytes) };
}

// SAFETY: a large layout has its own block, which belongs to the caller until it is freed; all others are mimalloc's.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match large(layout) {
            Some(bytes) => obtain(bytes).0,
            None => MiMalloc.alloc(layout),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some(bytes) = large(layout) else {
            return MiMalloc.alloc_zeroed(layout);
        };
        let (address, zero) = obtain(bytes);
        if !zero {
            address.write_bytes(0, layout.size());
        }
        address
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        match large(layout) {
            Some(bytes) => recycle(FreeBlock { address, bytes }),
            None => MiMalloc.dealloc(address, layout),
        }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let new = Layout::from_size_align_unchecked(size, layout.align());
        match (large(layout), large(new)) {
            (None, None) => MiMalloc.realloc(address, layout, size),
            (Some(before), Some(after)) if before == after => address,
            _ => {
                let to = self.alloc(new);
                if !to.is_null() {
                    address.copy_to_nonoverlapping(to, layout.size().min(size));
                    self.dealloc(address, layout);
                }
                to
            }
        }
    }
}

#[cfg(test)]
mod tests;
