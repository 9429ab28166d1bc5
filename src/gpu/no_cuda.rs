//! What stands for CUDA in builds without it: nothing.

use super::Gpu;
use candle_core::{bail, CudaStorage, Device, Result, Shape, Tensor};

/// No tensor lies on a GPU.
pub(super) fn of(_: &Tensor) -> Option<Gpu> {
    None
}

/// Never called: `--device` has refused before.
pub(crate) fn open(_: usize) -> Result<Device> {
    bail!("this build has no CUDA support")
}

/// There are no products on a GPU.
pub(crate) fn products_in_tf32(_: bool) {}

/// Never called.
pub(crate) fn token(_: &CudaStorage) -> Result<(CudaStorage, Shape)> {
    bail!("this build has no CUDA support")
}
