//! The allocator of tests: on request, what a thread frees stays where it is, and what it had before is not to be freed.

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A hash that costs next to nothing, since every piece of memory that is freed is looked up.
#[derive(Default)]
struct Address(u64);

impl Hasher for Address {
    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_usize(usize::from(*byte)));
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
    /// Addresses of the GPU's memory that this thread has allocated, and whether a recording was in progress.
    static ALLOCATED: RefCell<HashMap<usize, bool, BuildHasherDefault<Address>>> = RefCell::default();
    static FREED: Cell<usize> = const { Cell::new(0) };
}

/// Runs `work`; memory that this thread frees meanwhile is never used again. With what it makes, the number of pieces of
/// memory of the GPU that it freed although they were there before.
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

/// Notes that memory of the GPU begins at `address`, if that is not known: kernels also use what candle has allocated.
pub(crate) fn in_use(address: usize) {
    let during = KEEPING.get();
    ALLOCATED.with_borrow_mut(|all| {
        all.entry(address).or_insert(during);
    });
}

/// Takes note of what is freed.
fn freed(address: usize) {
    // Not at the end of a thread, and not for the map's own memory.
    let found = ALLOCATED.try_with(|all| {
        let mut all = all.try_borrow_mut().ok()?;
        // Most of what is freed belongs to threads without a GPU.
        (!all.is_empty()).then(|| all.remove(&address))?
    });
    if let (Ok(Some(false)), true) = (found, KEEPING.get()) {
        FREED.set(FREED.get() + 1);
    }
}

struct Keeper;

#[global_allocator]
static ALLOCATOR: Keeper = Keeper;

// SAFETY: all memory comes from and goes to mimalloc; keeping some of it breaks no promise. The
// default `realloc` is a new allocation, a copy and a `dealloc`.
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
