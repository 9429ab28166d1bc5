//! The feed-forward layer on a GPU: products by cuBLAS, with kernels between them.

use super::Mlp;
use crate::dropout::cuda::masked_on;
use crate::gpu::{Buffer, Gpu, Grid, Kernel, Matrix, Product, View};
use crate::linear::cuda::add_bias;
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward};
use crate::runtime::convert::converted;
use crate::runtime::mask::Mask;
use crate::runtime::sums::sums_of;
use candle_core::{DType, Result};

impl CudaOp for Mlp {
    /// The result; then, if tracked, the pre-activation of the hidden layer, and the weights that
    /// had to be converted for the products.
    fn forward(&self, call: Launch) -> Result<Vec<Buffer>> {
        let (gpu, x, rows) = (call.gpu, call.ins[0], self.rows());
        let io = x.dtype();
        let [own1, own2] = [1, 3].map(|i| converted(gpu, call.ins[i], io));
        let (own1, own2) = (own1?, own2?);
        let [w1, w2] =
            [(1, &own1), (3, &own2)].map(|(i, own)| Matrix::transposed(own.as_ref().map_or(call.ins[i], Buffer::view)));
        let mut z = gpu.alloc(io, rows * self.hidden)?;
        let mut a = gpu.alloc(io, rows * self.hidden)?;
        let mut y = gpu.alloc(io, rows * self.out)?;
        let product = Product::one([rows, self.inner, self.hidden], Matrix::plain(x), w1);
        gpu.multiply(product, &mut z)?;
        let [inside, behind] = self.masks.each_ref().map(Option::as_ref);
        add_bias(gpu, &mut z, call.ins[2], Some(&mut a), inside)?;
        let product = Product::one([rows, self.hidden, self.out], Matrix::plain(a.view()), w2);
        gpu.multiply(product, &mut y)?;
        add_bias(gpu, &mut y, call.ins[4], None, behind)?;
        let kept = [Some(z), own1, own2].into_iter().flatten();
        let kept = kept.filter(|_| call.tracked);
        Ok([y].into_iter().chain(kept).collect())
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (gpu, rows, gy) = (call.gpu, self.rows(), call.only().grad);
        let masked = self.masks[1].map(|mask| masked_on(gpu, &mask, gy));
        let masked = masked.transpose()?;
        let gy = masked.as_ref().map_or(gy, Buffer::view);
        let (inner, hidden, out) = (self.inner, self.hidden, self.out);
        let weight = |i: usize, kept: usize| Matrix::plain(call.saved.get(kept).map_or(call.ins[i], Buffer::view));
        let [mut a, mut gz] = self.blank_layers(&call)?;
        let product = Product::one([rows, out, hidden], Matrix::plain(gy), weight(3, 2));
        gpu.multiply(product, &mut gz)?;
        self.launch_slopes(gpu, call.saved[0].view(), [&mut gz, &mut a])?;
        let product = |dtype: DType, sizes: [usize; 3], left: Matrix, right: Matrix| {
            let mut to = gpu.alloc(dtype, sizes[0] * sizes[2])?;
            gpu.multiply(Product::one(sizes, left, right), &mut to)?;
            Ok::<_, candle_core::Error>(Some(to))
        };
        let (x, a, gz) = (call.ins[0], a.view(), gz.view());
        let [to_gy, to_gz] = [gy, gz].map(Matrix::transposed);
        let [g_b1, g_b2] = sums_of(gpu, [(gz, hidden), (gy, out)])?;
        Ok(vec![
            product(x.dtype(), [rows, hidden, inner], Matrix::plain(gz), weight(1, 1))?,
            product(DType::F32, [hidden, rows, inner], to_gz, Matrix::plain(x))?,
            Some(g_b1),
            product(DType::F32, [out, rows, hidden], to_gy, Matrix::plain(a))?,
            Some(g_b2),
        ])
    }
}

impl Mlp {
    /// Computes the hidden layer from its pre-activation `z`, and the gradient of `z` from that of
    /// the hidden layer.
    fn launch_slopes(&self, gpu: &Gpu, z: View, [gz, a]: [&mut Buffer; 2]) -> Result<()> {
        let vector = [z, gz.view(), a.view()].iter().all(|view| view.aligned(4));
        let mask = Mask::args(self.masks[0].as_ref(), gpu)?;
        let tensors = [z.into(), gz.into(), a.into()];
        let args = [&tensors[..], &mask, &[z.len().into(), vector.into()]].concat();
        let kernel = Kernel::of("linear", "gelu_back", z.dtype());
        gpu.launch(kernel, Grid::for_each(z.len().div_ceil(4)), &args)
    }

    /// Memory for two hidden layers.
    fn blank_layers(&self, call: &LaunchBackward) -> Result<[Buffer; 2]> {
        let one = || call.gpu.alloc(call.ins[0].dtype(), self.rows() * self.hidden);
        Ok([one()?, one()?])
    }
}
