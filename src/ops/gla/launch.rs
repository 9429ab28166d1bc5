//! The op on a GPU.

use super::Gla;
use crate::fused::{Launch, LaunchBackward};
use crate::gpu::Buffer;
use candle_core::{bail, Result};

pub(super) fn forward(_: &Gla, _: Launch) -> Result<Vec<Buffer>> {
    bail!("gla: no kernels yet");
}

pub(super) fn backward(_: &Gla, _: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
    bail!("gla: no kernels yet");
}
