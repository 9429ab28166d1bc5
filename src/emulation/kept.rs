//! Allocator of tests. On request, it retains memory that a thread frees, and counts memory freed that existed before.

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A cheap hash, since every freed address is looked up.
#[derive(Default)]
struct Address(u64);

impl Hasher for Address {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    fn write_usize(&mut self, address: usize) {
        self.0 = (self.0 ^ address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

thread_local! {
    static KEEPING: Cell<bool> = const { Cell::new(false) };
    /// Addresses of GPU memory that this thread has allocated, and whether a recording was in progress.
    static ALLOCATED: RefCell<HashMap<usize, bool, BuildHasherDefault<Address>>> = RefCell::default();
    static FREED: Cell<usize> = const { Cell::new(0) };
}

/// Runs `work`; memory that this thread frees meanwhile is never reused. Returns the result, and the number of GPU
/// allocations that were freed although they existed before.
pub(crate) fn keeping<T>(work: impl FnOnce() -> T) -> (T, usize) {
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            KEEPING.set(false);
        }
    }
    let _restore = Restore;
    FREED.set(0);
    KEEPING.set(true);
    let made = work();
    (made, FREED.get())
}

/// Records that GPU memory begins at `address`, if it is unknown: kernels also use memory allocated by Candle.
pub(crate) fn in_use(address: usize) {
    let during = KEEPING.get();
    ALLOCATED.with_borrow_mut(|all| {
        all.entry(address).or_insert(during);
    });
}

/// Records that memory was freed.
fn freed(address: usize) {
    // The map may be gone at the end of a thread, and is borrowed while it frees its own memory.
    let found = ALLOCATED.try_with(|all| {
        let mut all = all.try_borrow_mut().ok()?;
        // Most threads have no GPU, so their maps are empty.
        (!all.is_empty()).then(|| all.remove(&address))?
    });
    if let (Ok(Some(false)), true) = (found, KEEPING.get()) {
        FREED.set(FREED.get() + 1);
    }
}

struct Keeper;

#[global_allocator]
static ALLOCATOR: Keeper = Keeper;

// SAFETY: all memory comes from and goes to mimalloc; leaking some of it is allowed. The default `realloc` is a new
// allocation, a copy and a `dealloc`.
unsafe impl GlobalAlloc for Keeper {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MiMalloc.alloc(layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        MiMalloc.alloc_zeroed(layout)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        freed(memory as usize);
        if !KEEPING.get() {
            MiMalloc.dealloc(memory, layout);
        }
    }
}
