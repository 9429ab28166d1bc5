//! Which implementation the ops take, and a record of which they took.

use std::sync::atomic::{AtomicBool, Ordering};

/// The implementations that an op can have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Hand-written, where there is one for the device and number type.
    Fused,
    /// Ordinary candle ops: the definition.
    Reference,
}

static REFERENCE_ONLY: AtomicBool = AtomicBool::new(false);
static TOOK_FUSED: AtomicBool = AtomicBool::new(false);
static TOOK_REFERENCE: AtomicBool = AtomicBool::new(false);

/// Sets what all ops of this process prefer from now on; the beginning is [`Route::Fused`].
pub fn prefer(route: Route) {
    REFERENCE_ONLY.store(route == Route::Reference, Ordering::Relaxed);
}

/// What the ops of this process have run so far.
pub fn taken() -> &'static str {
    let took = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
    match (took(&TOOK_FUSED), took(&TOOK_REFERENCE)) {
        (true, false) => "fused",
        (false, true) => "reference",
        (true, true) => "fused and reference",
        (false, false) => "none",
    }
}

/// Whether an op runs its fused implementation, given that it `can`.
pub(crate) fn take(can: bool) -> bool {
    let fused = can && !REFERENCE_ONLY.load(Ordering::Relaxed);
    let flag = if fused { &TOOK_FUSED } else { &TOOK_REFERENCE };
    flag.store(true, Ordering::Relaxed);
    fused
}
