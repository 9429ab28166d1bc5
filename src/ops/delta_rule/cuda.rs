//! Launches of the kernels of `cuda/delta_rule.cu`.

use super::DeltaRule;
use crate::gpu::Buffer;
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward, Op};
use candle_core::Result;

impl CudaOp for DeltaRule {
    fn forward(&self, call: Launch) -> Result<Vec<Buffer>> {
        self.0.launch(Self::NAME, call)
    }

    /// The gradients of q, k, v, g, a and b.
    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        self.0.launch_backward(Self::NAME, call)
    }
}
