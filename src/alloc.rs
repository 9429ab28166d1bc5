//! The process's allocator. Every op allocates its result, and handing that back to the system only to have it zeroed again
//! costs up to half of a step: large blocks wait to be used again, in pages of their own, and mimalloc, which has the
//! others, keeps its pages. With the large ones, too, it takes up to a quarter more memory, since it rounds them up.

#![allow(unsafe_code)]

use libmimalloc_sys as sys;
use mimalloc::MiMalloc;
#[cfg(target_os = "linux")]
use rustix::mm::{madvise, Advice};
use rustix::mm::{mmap_anonymous, munmap, MapFlags, ProtFlags};
use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `mi_option_purge_delay` of mimalloc.h, which the bindings leave out between 14 and 16.
const PURGE_DELAY: sys::mi_option_t = 15;

/// Bytes of the smallest block that is not mimalloc's.
const LARGE: usize = 1 << 20;

/// Bytes of a page, of which large blocks are made, on every system.
const PAGE: usize = 1 << 16;

/// The alignment of any page that the system hands out.
const ALIGN: usize = 1 << 12;

/// Bytes of a huge page, where there are such: with them a step is some two percent faster.
const HUGE: usize = 1 << 21;

/// The most blocks that wait.
const SLOTS: usize = 256;

/// Called first thing in `main`.
pub fn keep_pages() {
    // SAFETY: sets a plain number in the allocator's option table; -1 means "never purge". Valid at
    // any time, and called before other threads exist.
    unsafe { sys::mi_option_set(PURGE_DELAY, -1) }
}

/// The allocator of the binary.
pub struct Allocator;

static BLOCKS: Mutex<Blocks> = Mutex::new(Blocks::new());

fn blocks() -> MutexGuard<'static, Blocks> {
    BLOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A large block that nobody uses.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Block {
    address: *mut u8,
    bytes: usize,
}

// SAFETY: a block that waits belongs to the store alone.
unsafe impl Send for Block {}

/// What there is of large blocks.
struct Blocks {
    /// Those that wait, the one that was freed first before the others.
    waiting: [Block; SLOTS],
    count: usize,
    /// Bytes of those that wait.
    spare: usize,
    /// Bytes of those in use.
    used: usize,
    /// The most that were ever in use.
    most: usize,
}

impl Blocks {
    const fn new() -> Self {
        let none = Block {
            address: null_mut(),
            bytes: 0,
        };
        Self {
            waiting: [none; SLOTS],
            count: 0,
            spare: 0,
            used: 0,
            most: 0,
        }
    }

    /// The block of `bytes` bytes that was freed last: some of it may still be in a cache of the processor.
    fn take(&mut self, bytes: usize) -> Option<Block> {
        let mut waiting = self.waiting[..self.count].iter();
        let at = waiting.rposition(|block| block.bytes == bytes)?;
        self.use_more(bytes);
        Some(self.remove(at))
    }

    /// Counts a block of `bytes` as used.
    fn use_more(&mut self, bytes: usize) {
        self.used += bytes;
        self.most = self.most.max(self.used);
    }

    /// The block that has waited longest, if with `more` bytes in use all would be too many: a quarter more than were ever
    /// in use at a time.
    fn surplus(&mut self, more: usize) -> Option<Block> {
        let used = self.used + more;
        let most = self.most.max(used);
        let many = used + self.spare > most + most / 4;
        (many && self.count > 0).then(|| self.remove(0))
    }

    /// Has a block wait, for which the one that has waited longest may have to go.
    fn put(&mut self, block: Block) -> Option<Block> {
        let gone = (self.count == SLOTS).then(|| self.remove(0));
        self.used -= block.bytes;
        self.spare += block.bytes;
        self.waiting[self.count] = block;
        self.count += 1;
        gone
    }

    fn remove(&mut self, at: usize) -> Block {
        let block = self.waiting[at];
        self.waiting.copy_within(at + 1..self.count, at);
        self.count -= 1;
        self.spare -= block.bytes;
        block
    }
}

/// The bytes of the block for a large layout.
fn large(layout: Layout) -> Option<usize> {
    let is = layout.size() >= LARGE && layout.align() <= ALIGN;
    is.then(|| layout.size().next_multiple_of(PAGE))
}

/// A block, and whether it is known to be zero. Ends the process if the system has no more, as the standard library would,
/// but in a sentence instead of a backtrace.
fn obtain(bytes: usize) -> (*mut u8, bool) {
    obtained(bytes).unwrap_or_else(|used| {
        eprintln!("error: {}", refusal(bytes, used));
        std::process::exit(1)
    })
}

/// A block, and whether it is known to be zero; the bytes in use if the system has no more.
fn obtained(bytes: usize) -> Result<(*mut u8, bool), usize> {
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

fn keep(block: Block) {
    let gone = blocks().put(block);
    gone.into_iter().for_each(release);
}

/// New memory, which begins at a huge page if it is as large as one.
fn map(bytes: usize) -> *mut u8 {
    let more = if bytes < HUGE { 0 } else { HUGE };
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: asks for new memory; what is around the aligned part is given back at once, and nothing refers to it.
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
                let _ = munmap(rest, size); // unless the system is out of entries for it: then it stays, untouched
            }
        }
        #[cfg(target_os = "linux")]
        let _ = madvise(address, bytes, Advice::LinuxHugepage); // a wish
        address.cast()
    }
}

fn release(block: Block) {
    // SAFETY: it was mapped with that size, and nobody uses it.
    let _ = unsafe { munmap(block.address.cast(), block.bytes) };
}

// SAFETY: a large layout has a block of its own, which is with the caller until it is freed; all others are mimalloc's.
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
            Some(bytes) => keep(Block { address, bytes }),
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
