//! The process's allocator, told to keep its pages: every op allocates its result, and handing
//! big blocks back to the system only to have them zeroed again costs up to half of a step.

#![allow(unsafe_code)]

use libmimalloc_sys as sys;

/// `mi_option_purge_delay` of mimalloc.h, which the bindings leave out between 14 and 16.
const PURGE_DELAY: sys::mi_option_t = 15;

/// Called first thing in `main`.
pub fn keep_pages() {
    // SAFETY: sets a plain number in the allocator's option table; -1 means "never purge". Valid at
    // any time, and called before other threads exist.
    unsafe { sys::mi_option_set(PURGE_DELAY, -1) }
}
