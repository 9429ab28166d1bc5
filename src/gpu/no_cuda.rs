//! What stands for CUDA in builds without it: nothing.

use super::Gpu;
use candle_core::{bail, CudaStorage, Result, Shape, Tensor};

/// No tensor lies on a GPU.
pub(super) fn of(_: &Tensor) -> Option<Gpu> {
    None
}

/// Never called.
pub(crate) fn token(_: &CudaStorage) -> Result<(CudaStorage, Shape)> {
    bail!("this build has no CUDA support")
}
