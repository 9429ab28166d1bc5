//! Stubs of `cuda.rs` in builds without CUDA.

use super::{Chip, Gpu};
use candle_core::{bail, CudaStorage, Device, Result, Shape, Tensor};

/// Returns `None`: without CUDA, all tensors are on the CPU.
pub(super) fn of(_: &Tensor) -> Option<Gpu> {
    None
}

/// Returns an error; `--device` refuses a GPU before this is called.
pub fn open(_: usize) -> Result<Device> {
    bail!("this build has no CUDA support")
}

/// Does nothing: there is no GPU.
pub fn close(_: Device) -> Result<()> {
    Ok(())
}

/// Returns `None`: there is no GPU.
pub fn chip(_: &Device) -> Result<Option<Chip>> {
    Ok(None)
}

/// Returns `None`: there is no GPU.
pub fn name(_: &Device) -> Result<Option<String>> {
    Ok(None)
}

/// Returns an error; never called, since no tensor is on a GPU.
pub fn empty(_: &CudaStorage) -> Result<(CudaStorage, Shape)> {
    bail!("this build has no CUDA support")
}
