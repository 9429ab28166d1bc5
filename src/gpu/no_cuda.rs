//! The functions of `cuda.rs` in builds without CUDA.

use super::{Chip, Gpu};
use candle_core::{bail, CudaStorage, Device, Result, Shape, Tensor};

/// `None`: without CUDA, all tensors lie on the CPU.
pub(super) fn of(_: &Tensor) -> Option<Gpu> {
    None
}

/// An error; `--device` refuses a GPU before this is called.
pub fn open(_: usize) -> Result<Device> {
    bail!("this build has no CUDA support")
}

/// Nothing: there is no GPU.
pub fn close(_: Device) -> Result<()> {
    Ok(())
}

/// `None`: there is no GPU.
pub fn chip(_: &Device) -> Result<Option<Chip>> {
    Ok(None)
}

/// An error; never called, as no tensor lies on a GPU.
pub fn token(_: &CudaStorage) -> Result<(CudaStorage, Shape)> {
    bail!("this build has no CUDA support")
}
