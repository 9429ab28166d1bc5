//! Launches of the kernels of `cuda/linear_scan.cu` for complex numbers.

use super::ComplexScan;
use crate::gpu::Buffer;
use crate::linear_scan::cuda::{backward, forward, Number};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward};
use candle_core::Result;

const COMPLEX: Number = ("complex_scan", 2);

impl CudaOp for ComplexScan {
    fn forward(&self, call: Launch) -> Result<Vec<Buffer>> {
        forward(call, COMPLEX, self.0)
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        backward(call, COMPLEX, self.0)
    }
}
