//! Linear maps on a GPU: products by cuBLAS, with kernels around them. Maps of one input share its products: their rows
//! are side by side in the gradients, and in the result if a bias must be added after the product.

use super::Linear;
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, Matrix, Product, View};
use crate::runtime::autograd::{CudaOp, Launch, LaunchBackward};
use crate::runtime::maps::{padded, table, MAPS};
use crate::runtime::mask::Mask;
use crate::runtime::sums::sum_rows;
use candle_core::{bail, DType, Result};

impl CudaOp for Linear {
    /// Returns the outputs of the maps; then, if tracked, the factor of the products if it is not the weight itself.
    fn forward(&self, call: Launch) -> Result<Vec<Buffer>> {
        let (gpu, x, maps) = (call.gpu, call.ins[0], self.outs.len());
        if maps > MAPS {
            bail!("linear: {maps} maps of one input, kernels take up to {MAPS}");
        }
        let (weights, biases) = call.ins[1..].split_at(maps);
        let factor = self.factor(gpu, x.dtype(), weights)?;
        let weight = factor.as_ref().map_or(weights[0], Buffer::view);
        let product = |weight: View| -> Result<Buffer> {
            let sizes = [self.rows(), self.inner, weight.len() / self.inner];
            let mut y = gpu.alloc(x.dtype(), sizes[0] * sizes[2])?;
            let (x, weight) = (Matrix::plain(x), Matrix::transposed(weight));
            gpu.multiply(Product::one(sizes, x, weight), &mut y)?;
            Ok(y)
        };
        let mut outs = match biases {
            [] => {
                let mut start = 0;
                let mut next = |size| {
                    start += size;
                    product(weight.part(start - size, size))
                };
                self.sizes().map(&mut next).collect::<Result<Vec<_>>>()?
            }
            [bias] => {
                let mut y = product(weight)?;
                add_bias(gpu, &mut y, *bias, None, None)?;
                vec![y]
            }
            _ => self.split(gpu, product(weight)?.view(), biases)?,
        };
        if call.tracked {
            outs.extend(factor);
        }
        Ok(outs)
    }

    fn backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (gpu, x, rows) = (call.gpu, call.ins[0], self.rows());
        let gys: Vec<_> = call.outs.iter().map(|out| out.map(|used| used.grad)).collect();
        let joined;
        let gy = match gys[..] {
            [Some(gy)] => gy,
            _ => {
                joined = join(gpu, &gys, rows, &self.outs, x.dtype())?;
                joined.view()
            }
        };
        let (maps, width) = (gys.len(), gy.len() / rows);

        let of_x = || -> Result<Buffer> {
            let weight = call.saved.first().map_or(call.ins[1], Buffer::view);
            let mut gx = gpu.alloc(x.dtype(), x.len())?;
            let (gy, weight) = (Matrix::plain(gy), Matrix::plain(weight));
            gpu.multiply(Product::one([rows, width, self.inner], gy, weight), &mut gx)?;
            Ok(gx)
        };
        let of_weights = || -> Result<Buffer> {
            let mut gw = gpu.alloc(DType::F32, width * self.inner)?;
            let (gy, x) = (Matrix::transposed(gy), Matrix::plain(x));
            gpu.multiply(Product::one([width, rows, self.inner], gy, x), &mut gw)?;
            Ok(gw)
        };
        // A map that the loss does not depend on gets no gradient.
        let wanted = |first: usize| -> Vec<bool> {
            let needs = &call.needs_grad[first..];
            gys.iter().zip(needs).map(|(gy, needs)| gy.is_some() && *needs).collect()
        };
        let mut grads = vec![call.needs_grad[0].then(of_x).transpose()?];
        let sizes: Vec<_> = self.sizes().collect();
        grads.extend(parts(&wanted(1), &sizes, of_weights)?);
        if self.biased {
            grads.extend(parts(&wanted(1 + maps), &self.outs, || sum_rows(gpu, gy, width))?);
        }
        Ok(grads)
    }
}

impl Linear {
    /// Returns the weights of all maps, one below another, in the number type of x; `None` if there is a single one of
    /// that type.
    pub(super) fn factor(&self, gpu: &Gpu, io: DType, weights: &[View]) -> Result<Option<Buffer>> {
        if weights.len() == 1 && weights[0].dtype() == io {
            return Ok(None);
        }
        let weights: Vec<_> = weights.iter().copied().map(Some).collect();
        let sizes: Vec<_> = self.sizes().collect();
        Ok(Some(join(gpu, &weights, 1, &sizes, io)?))
    }

    /// The number of elements of each weight.
    fn sizes(&self) -> impl Iterator<Item = usize> + '_ {
        self.outs.iter().map(|out| out * self.inner)
    }

    /// Splits the joined rows into the rows of each map, and adds the biases.
    fn split(&self, gpu: &Gpu, joined: View, biases: &[View]) -> Result<Vec<Buffer>> {
        let (rows, io) = (self.rows(), joined.dtype());
        let alloc = |out: &usize| gpu.alloc(io, rows * out);
        let mut ys = self.outs.iter().map(alloc).collect::<Result<Vec<_>>>()?;
        let views = biases.iter().copied().chain([joined]).chain(ys.iter().map(Buffer::view));
        let vector = in_fours(views, &self.outs);
        let args = [joined.into(), table(biases.iter().copied()), table(ys.iter_mut())];
        launch_rows(gpu, Kernel::of("linear", "split", io), args.into(), rows, vector, &self.outs)?;
        Ok(ys)
    }
}

/// Returns those wanted of the parts of `whole`, which holds them one after another and is computed only if one is
/// wanted.
fn parts(wanted: &[bool], sizes: &[usize], whole: impl FnOnce() -> Result<Buffer>) -> Result<Vec<Option<Buffer>>> {
    if !wanted.contains(&true) {
        return Ok(wanted.iter().map(|_| None).collect());
    }
    let parts = whole()?.cut(sizes)?.into_iter().zip(wanted);
    Ok(parts.map(|(part, wanted)| wanted.then_some(part)).collect())
}

/// Joins the rows of all maps side by side in number type `to`; missing maps are zero.
fn join(gpu: &Gpu, maps: &[Option<View>], rows: usize, widths: &[usize], to: DType) -> Result<Buffer> {
    let there = || maps.iter().copied().flatten();
    let kernel = match there().next().map(|view| view.dtype()) {
        Some(from) if from == to => Kernel::of("linear", "join", to),
        _ => Kernel::new("linear", "join_narrow"),
    };
    let mut joined = gpu.alloc(to, rows * widths.iter().sum::<usize>())?;
    let vector = in_fours(there().chain([joined.view()]), widths);
    let args = vec![table(maps.iter().copied()), (&mut joined).into()];
    launch_rows(gpu, kernel, args, rows, vector, widths)?;
    Ok(joined)
}

/// Whether four consecutive elements of a row belong to one map, and can be read by one load in every tensor.
fn in_fours<'a>(mut views: impl Iterator<Item = View<'a>>, widths: &[usize]) -> bool {
    widths.iter().all(|width| width.is_multiple_of(4)) && views.all(|view| view.aligned(4))
}

/// Launches a kernel with one thread per four elements of a map; `args` are followed by the layout of the rows.
fn launch_rows(
    gpu: &Gpu,
    kernel: Kernel,
    mut args: Vec<Arg>,
    rows: usize,
    vector: bool,
    widths: &[usize],
) -> Result<()> {
    let widest = rows * widths.iter().copied().max().unwrap_or_default();
    u32::try_from(widest).map_err(candle_core::Error::wrap)?; // the kernels count in 32 bits
    args.extend([rows.into(), vector.into()]);
    args.extend(padded(widths.iter().copied()));
    let grid = Grid::for_each_of(widths.len(), widest.div_ceil(4));
    gpu.launch(kernel, grid, &args)
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
