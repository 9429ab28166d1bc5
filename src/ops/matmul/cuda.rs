//! Launches of the kernels of `cuda/matmul.cu`.

use super::Matmul;
use crate::gpu::{self, Buffer, Gpu, Matrix};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward};
use candle_core::Result;

impl CudaOp for Matmul {
    fn forward(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        let sizes = [self.rows, self.inner, self.columns];
        let [a, b] = [ins[0], ins[1]].map(Matrix::plain);
        Ok(vec![self.products(gpu, sizes, a, b)?])
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (gpu, gy, [a, b]) = (call.gpu, call.only().grad, [call.ins[0], call.ins[1]]);
        let (rows, inner, columns) = (self.rows, self.inner, self.columns);
        let of_a = || {
            let (gy, b) = (Matrix::plain(gy), Matrix::transposed(b));
            self.products(gpu, [rows, columns, inner], gy, b)
        };
        let of_b = || {
            let (a, gy) = (Matrix::transposed(a), Matrix::plain(gy));
            self.products(gpu, [inner, rows, columns], a, gy)
        };
        Ok(vec![call.needs_grad[0].then(of_a).transpose()?, call.needs_grad[1].then(of_b).transpose()?])
    }
}

impl Matmul {
    /// Computes all products with `sizes` (rows, inner, columns) on a GPU.
    fn products(&self, gpu: &Gpu, sizes: [usize; 3], left: Matrix, right: Matrix) -> Result<Buffer> {
        let batch = self.leading.iter().product();
        let [rows, _, columns] = sizes;
        let mut to = gpu.alloc(left.values.dtype(), batch * rows * columns)?;
        let one = gpu::Product::one(sizes, left, right);
        gpu.multiply(gpu::Product { batch, ..one }, &mut to)?;
        Ok(to)
    }
}
