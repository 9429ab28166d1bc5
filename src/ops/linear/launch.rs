//! Linear maps by the library's products, and biases by a kernel.

use super::Linear;
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, Matrix, Product, View};
use crate::ops::fused::{Launch, LaunchBackward};
use crate::ops::narrow::narrowed;
use crate::ops::sums::sum_rows;
use candle_core::{DType, Result};

impl Linear {
    /// The maps; then, if tracked, the weights as the products read them, where they had to be made.
    pub(super) fn launch_maps(&self, call: Launch) -> Result<Vec<Buffer>> {
        let (gpu, x) = (call.gpu, call.ins[0]);
        let (mut outs, mut narrow) = (Vec::new(), Vec::new());
        for (map, &out) in self.outs.iter().enumerate() {
            let weight = call.ins[1 + map];
            let own = narrowed(gpu, weight, x.dtype())?;
            let weight = Matrix::transposed(own.as_ref().map_or(weight, Buffer::view));
            let mut y = gpu.alloc(x.dtype(), self.rows() * out)?;
            let product = Product::one([self.rows(), self.inner, out], Matrix::plain(x), weight);
            gpu.multiply(product, &mut y)?;
            if self.biased {
                add_bias(gpu, &mut y, call.ins[1 + self.outs.len() + map], None)?;
            }
            outs.push(y);
            narrow.extend(own.filter(|_| call.tracked));
        }
        outs.append(&mut narrow);
        Ok(outs)
    }

    pub(super) fn launch_gradients(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (gpu, x, maps) = (call.gpu, call.ins[0], self.outs.len());
        let mut grads = vec![self.launch_x(&call)?];
        for (map, &out) in self.outs.iter().enumerate() {
            let used = call.outs[map].filter(|_| call.wanted[1 + map]);
            let weight = used.map(|used| -> Result<Buffer> {
                let mut gw = gpu.alloc(DType::F32, out * self.inner)?;
                let (gy, x) = (Matrix::transposed(used.grad), Matrix::plain(x));
                gpu.multiply(Product::one([out, self.rows(), self.inner], gy, x), &mut gw)?;
                Ok(gw)
            });
            grads.push(weight.transpose()?);
        }
        for (map, &out) in self.outs.iter().enumerate().filter(|_| self.biased) {
            let used = call.outs[map].filter(|_| call.wanted[1 + maps + map]);
            let bias = used.map(|used| sum_rows(gpu, used.grad, out));
            grads.push(bias.transpose()?);
        }
        Ok(grads)
    }

    /// The gradient of x: Σ over maps of gy W.
    fn launch_x(&self, call: &LaunchBackward) -> Result<Option<Buffer>> {
        if !call.wanted[0] {
            return Ok(None);
        }
        let mut gx = call.gpu.alloc(call.ins[0].dtype(), call.ins[0].len())?;
        let mut add = false;
        for (map, &out) in self.outs.iter().enumerate() {
            let Some(used) = call.outs[map] else {
                continue;
            };
            let weight = call.kept.get(map).map_or(call.ins[1 + map], Buffer::view);
            let (gy, weight) = (Matrix::plain(used.grad), Matrix::plain(weight));
            let product = Product::one([self.rows(), out, self.inner], gy, weight);
            call.gpu.multiply(product.added(add), &mut gx)?;
            add = true;
        }
        Ok(Some(gx))
    }
}

/// y += bias, row by row, and then a = gelu(y) if there is an a.
pub(in crate::ops) fn add_bias(
    gpu: &Gpu,
    y: &mut Buffer,
    bias: View,
    a: Option<&mut Buffer>,
) -> Result<()> {
    let (io, count, width) = (y.dtype(), y.len(), bias.len());
    let views = [Some(y.view()), Some(bias), a.as_ref().map(|a| a.view())];
    let aligned = views.iter().flatten().all(|view| view.aligned(4));
    let mut args: Vec<Arg> = vec![y.into(), bias.into(), a.into(), count.into()];
    args.extend([width.into(), (aligned && width.is_multiple_of(4)).into()]);
    let grid = Grid::for_each(count.div_ceil(4));
    gpu.launch(Kernel::of("linear", "add_bias", io), grid, &args)
}
