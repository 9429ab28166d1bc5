//! Definition in ordinary tensor ops.

use candle_core::{Result, Tensor};

pub(super) fn time_steps(x: &Tensor) -> Result<Vec<Tensor>> {
    (0..x.dim(1)?).map(|t| x.narrow(1, t, 1)?.squeeze(1)).collect()
}
