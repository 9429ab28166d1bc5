//! The process-wide choice between fused and reference implementations, and a record of which each
//! thread has run.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

/// An implementation of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The fused implementation, if the op has one for the device and number type.
    Fused,
    /// The reference made of ordinary candle ops, which defines the op.
    Reference,
}

/// Algorithm, on the CPU, for sums over all pairs of tokens without a softmax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// The algorithm with fewer products.
    Cheapest,
    /// Every query with every earlier key: quadratic in the length.
    Direct,
    /// Within chunks, and through a state between them: linear in the length.
    Chunked,
}

thread_local! {
    static PAIRS: Cell<Pairs> = const { Cell::new(Pairs::Cheapest) };
}

/// Runs `run`; forward passes of this thread compute the sums by `pairs`.
pub fn with_pairs<T>(pairs: Pairs, run: impl FnOnce() -> T) -> T {
    let before = PAIRS.replace(pairs);
    let result = run();
    PAIRS.set(before);
    result
}

/// Whether a sum is computed by chunks; `cheaper` tells whether that costs less.
pub(crate) fn by_chunks(cheaper: bool) -> bool {
    match PAIRS.get() {
        Pairs::Cheapest => cheaper,
        Pairs::Direct => false,
        Pairs::Chunked => true,
    }
}

static REFERENCE_ONLY: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether an op of this thread has run its fused implementation, and whether one has run its reference.
    static TOOK: Cell<[bool; 2]> = const { Cell::new([false; 2]) };
}

/// Sets the implementation that all ops of this process prefer; [`Route::Fused`] by default.
pub fn prefer(route: Route) {
    REFERENCE_ONLY.store(route == Route::Reference, Ordering::Relaxed);
}

/// The implementations that ops of this thread have run so far: "fused", "reference", "fused and
/// reference" or "none".
pub fn taken() -> &'static str {
    match TOOK.get() {
        [true, false] => "fused",
        [false, true] => "reference",
        [true, true] => "fused and reference",
        [false, false] => "none",
    }
}

/// Whether ops of this process run their fused implementations where they can.
pub(crate) fn prefers_fused() -> bool {
    !REFERENCE_ONLY.load(Ordering::Relaxed)
}

/// Records and returns whether an op runs its fused implementation, given whether it `can`.
pub(crate) fn take(can: bool) -> bool {
    let fused = can && prefers_fused();
    let [took_fused, took_reference] = TOOK.get();
    TOOK.set([took_fused || fused, took_reference || !fused]);
    fused
}
