//! What the authors of the kernels expected before a GPU had run them: the comments at the top of
//! `cuda/*.cu`, as fractions of the floors here.

use super::timings::Way;
use crate::bench::ops::Shape;
use candle_core::DType;

/// The fraction of its floor that `op` was expected to reach.
pub(super) fn predicted(_op: &str, _shape: &Shape, _io: DType, _way: Way) -> Option<f64> {
    None
}
