//! The process-wide choice between fused and reference implementations, and a record of which have
//! run.

use std::sync::atomic::{AtomicBool, Ordering};

/// An implementation of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The fused implementation, if the op has one for the device and number type.
    Fused,
    /// The reference made of ordinary candle ops, which defines the op.
    Reference,
}

static REFERENCE_ONLY: AtomicBool = AtomicBool::new(false);
static TOOK_FUSED: AtomicBool = AtomicBool::new(false);
static TOOK_REFERENCE: AtomicBool = AtomicBool::new(false);

/// Sets the implementation that all ops of this process prefer; [`Route::Fused`] by default.
pub fn prefer(route: Route) {
    REFERENCE_ONLY.store(route == Route::Reference, Ordering::Relaxed);
}

/// The implementations that ops of this process have run so far: "fused", "reference", "fused and
/// reference" or "none".
pub fn taken() -> &'static str {
    let took = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
    match (took(&TOOK_FUSED), took(&TOOK_REFERENCE)) {
        (true, false) => "fused",
        (false, true) => "reference",
        (true, true) => "fused and reference",
        (false, false) => "none",
    }
}

/// Records and returns whether an op runs its fused implementation, given whether it `can`.
pub(crate) fn take(can: bool) -> bool {
    let fused = can && !REFERENCE_ONLY.load(Ordering::Relaxed);
    let flag = if fused { &TOOK_FUSED } else { &TOOK_REFERENCE };
    flag.store(true, Ordering::Relaxed);
    fused
}
