//! Launches of the kernels of `cuda/gla.cu`.

use super::Gla;
use crate::gpu::Buffer;
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward, Op};
use candle_core::Result;

impl CudaOp for Gla {
    fn forward(&self, call: Launch) -> Result<Vec<Buffer>> {
        self.0.launch(Self::NAME, call)
    }

    /// The gradients of q, k, v and g.
    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        self.0.launch_backward(Self::NAME, call)
    }
}
