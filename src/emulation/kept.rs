//! The allocator of tests: on request, what a thread frees stays where it is.

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

thread_local! {
    static KEEPING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; memory that this thread frees meanwhile is never used again.
pub(crate) fn keeping<T>(work: impl FnOnce() -> T) -> T {
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            KEEPING.set(false);
        }
    }
    let _restore = Restore;
    KEEPING.set(true);
    work()
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
        if !KEEPING.get() {
            MiMalloc.dealloc(memory, layout);
        }
    }
}
