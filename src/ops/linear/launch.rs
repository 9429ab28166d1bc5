//! Linear maps on a GPU: products by cuBLAS, and biases by a kernel.

use super::Linear;
use crate::convert::converted;
use crate::fused::{Launch, LaunchBackward};
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, Matrix, Product, View};
use crate::maps::{padded, table, MAPS};
use crate::mask::Mask;
use crate::sums::sums_of_some;
use candle_core::{bail, DType, Result};

impl Linear {
    /// The outputs of the maps; then, if tracked, the weights that had to be converted for the
    /// products.
    pub(super) fn launch_maps(&self, call: Launch) -> Result<Vec<Buffer>> {
        let (gpu, x, maps) = (call.gpu, call.ins[0], self.outs.len());
        if maps > MAPS {
            bail!("linear: {maps} maps of one input, kernels take up to {MAPS}");
        }
        let mut narrow = self.narrowed(&call)?;
        let mut outs = Vec::new();
        for (map, &out) in self.outs.iter().enumerate() {
            let weight = narrow.get(map).map_or(call.ins[1 + map], Buffer::view);
            let mut y = gpu.alloc(x.dtype(), self.rows() * out)?;
            let (x, weight) = (Matrix::plain(x), Matrix::transposed(weight));
            gpu.multiply(
                Product::one([self.rows(), self.inner, out], x, weight),
                &mut y,
            )?;
            outs.push(y);
        }
        if self.biased {
            self.add_biases(gpu, &mut outs, &call.ins[1 + maps..])?;
        }
        if call.tracked {
            outs.append(&mut narrow);
        }
        Ok(outs)
    }

    /// The weights converted to the number type of x; empty if they have that type.
    fn narrowed(&self, call: &Launch) -> Result<Vec<Buffer>> {
        let (gpu, io) = (call.gpu, call.ins[0].dtype());
        let weights = &call.ins[1..][..self.outs.len()];
        if io == DType::F32 {
            return Ok(Vec::new());
        }
        let alloc = |weight: &View| gpu.alloc(io, weight.len());
        let mut narrow = weights.iter().map(alloc).collect::<Result<Vec<_>>>()?;
        let counts = weights.iter().map(View::len);
        let grid = self.grid(counts.clone().max().unwrap_or_default());
        let mut args = vec![table(weights.iter().copied()), table(narrow.iter_mut())];
        args.extend(padded(counts));
        gpu.launch(Kernel::new("linear", "narrow_maps"), grid, &args)?;
        Ok(narrow)
    }

    fn add_biases(&self, gpu: &Gpu, outs: &mut [Buffer], biases: &[View]) -> Result<()> {
        let io = outs[0].dtype();
        let whole = outs.iter().all(|y| y.view().aligned(4))
            && biases
                .iter()
                .all(|bias| bias.aligned(4) && bias.len().is_multiple_of(4));
        let widest = outs.iter().map(Buffer::len).max().unwrap_or_default();
        u32::try_from(widest).map_err(candle_core::Error::wrap)?; // the kernel counts in 32 bits
        let ys = table(outs.iter_mut());
        let mut args = vec![
            ys,
            table(biases.iter().copied()),
            self.rows().into(),
            whole.into(),
        ];
        args.extend(padded(self.outs.iter().copied()));
        let grid = self.grid(widest.div_ceil(4));
        gpu.launch(Kernel::of("linear", "add_biases", io), grid, &args)
    }

    /// One thread for each of `count` elements of each map.
    fn grid(&self, count: usize) -> Grid {
        let mut grid = Grid::for_each(count);
        grid.blocks[1] = self.outs.len();
        grid
    }

    pub(super) fn launch_gradients(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (gpu, x, maps) = (call.gpu, call.ins[0], self.outs.len());
        let mut grads = vec![self.launch_x(&call)?];
        for (map, &out) in self.outs.iter().enumerate() {
            let used = call.outs[map].filter(|_| call.needs_grad[1 + map]);
            let weight = used.map(|used| -> Result<Buffer> {
                let mut gw = gpu.alloc(DType::F32, out * self.inner)?;
                let (gy, x) = (Matrix::transposed(used.grad), Matrix::plain(x));
                gpu.multiply(Product::one([out, self.rows(), self.inner], gy, x), &mut gw)?;
                Ok(gw)
            });
            grads.push(weight.transpose()?);
        }
        if self.biased {
            let used = |map: usize| call.outs[map].filter(|_| call.needs_grad[1 + maps + map]);
            let rows = |map| used(map).map(|used| (used.grad, self.outs[map]));
            let rows: Vec<_> = (0..maps).map(rows).collect();
            grads.extend(sums_of_some(gpu, &rows)?);
        }
        Ok(grads)
    }

    /// The gradient of x: Σ over maps of gy W.
    fn launch_x(&self, call: &LaunchBackward) -> Result<Option<Buffer>> {
        if !call.needs_grad[0] {
            return Ok(None);
        }
        // Of several maps the sum is in f32, and rounded once.
        let io = call.ins[0].dtype();
        let several = call.outs.iter().flatten().count() > 1;
        let of = if several { DType::F32 } else { io };
        let mut gx = call.gpu.alloc(of, call.ins[0].len())?;
        let mut add = false;
        for (map, &out) in self.outs.iter().enumerate() {
            let Some(used) = call.outs[map] else {
                continue;
            };
            let weight = call.saved.get(map).map_or(call.ins[1 + map], Buffer::view);
            let (gy, weight) = (Matrix::plain(used.grad), Matrix::plain(weight));
            let product = Product::one([self.rows(), out, self.inner], gy, weight);
            call.gpu.multiply(product.added(add), &mut gx)?;
            add = true;
        }
        let rounded = converted(call.gpu, gx.view(), io)?;
        Ok(Some(rounded.unwrap_or(gx)))
    }
}

/// y += bias for every row and, if there is an a, a = gelu(y); the last of the two is multiplied by
/// the mask.
pub(crate) fn add_bias(
    gpu: &Gpu,
    y: &mut Buffer,
    bias: View,
    a: Option<&mut Buffer>,
    mask: Option<&Mask>,
) -> Result<()> {
    let (io, count, width) = (y.dtype(), y.len(), bias.len());
    let views = [Some(y.view()), Some(bias), a.as_ref().map(|a| a.view())];
    let aligned = views.iter().flatten().all(|view| view.aligned(4));
    let vector = aligned && width.is_multiple_of(4);
    let mut args: Vec<Arg> = vec![y.into(), bias.into(), a.into()];
    args.extend(Mask::args(mask, gpu)?);
    args.extend([count.into(), width.into(), vector.into()]);
    let grid = Grid::for_each(count.div_ceil(4));
    gpu.launch(Kernel::of("linear", "add_bias", io), grid, &args)
}
