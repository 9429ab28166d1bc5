//! Elementwise ops with one operand broadcast along an axis. Candle would copy that operand first,
//! and sum its gradient on one thread.

mod cpu;
mod launch;

use crate::gpu::Buffer;
use crate::pointwise;
use crate::runtime::autograd::{apply_one, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use crate::runtime::float::Float;
use crate::runtime::lanes::{map_chunks, map_chunks_with_sums};
use crate::runtime::parallel::InParallel;
use crate::runtime::shape;
use crate::runtime::zeros::{copied, zeros};
use candle_core::{bail, Result, Shape, Tensor, D};
use cpu::{add_scaled_rows, products, scaled, softplus_rows, softplus_rows_back, sum_products};

/// Rows per task, and per partial sum of a channel's gradient.
const ROWS: usize = 256;

/// x + scale ⊙ y, with one scale per channel. `x`, `y`: (..., d); `scale`: (d); result like `x`.
pub fn add_scaled(x: &Tensor, y: &Tensor, scale: &Tensor) -> Result<Tensor> {
    let (_, width) = shape::rows(AddScaled::NAME, ("x", x))?;
    shape::expect(AddScaled::NAME, ("y", y), ("x", x), x.dims())?;
    shape::parameter(AddScaled::NAME, ("scale", scale), ("x", x), &[width])?;
    if runs_on(x) {
        let shape = x.shape().clone();
        apply_one(AddScaled { shape, width }, &[x, y, scale])
    } else {
        x + y.broadcast_mul(&scale.to_dtype(x.dtype())?)?
    }
}

/// softplus(x + bias), with one bias per channel. `x`: (..., d), or (..., 1) for the same number in
/// every channel; `bias`: (d); result (..., d).
pub fn softplus_biased(x: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let (leading, given) = shape::rows(SoftplusBiased::NAME, ("x", x))?;
    let [width] = shape::dims(SoftplusBiased::NAME, ("bias", bias))?;
    if given != width && given != 1 {
        bail!("softplus_biased: bias has shape [{width}], but x of shape {:?} asks for [{given}]", x.dims());
    }
    shape::parameter(SoftplusBiased::NAME, ("bias", bias), ("x", x), &[width])?;
    if !runs_on(x) {
        return pointwise::softplus(&x.broadcast_add(&bias.to_dtype(x.dtype())?)?);
    }
    let op = SoftplusBiased { leading: leading.to_vec(), given, width };
    apply_one(op, &[x, bias])
}

/// Multiplies each head of x by a number: y\[.., s, e\] = x\[.., s, e\] scale\[.., s\].
///
/// `x`: (..., d) with `d` a multiple of the heads; `scale`: (..., heads); result like `x`.
pub fn scale_heads(x: &Tensor, scale: &Tensor) -> Result<Tensor> {
    let (leading, width) = shape::rows(ScaleHeads::NAME, ("x", x))?;
    let (_, heads) = shape::rows(ScaleHeads::NAME, ("scale", scale))?;
    let needed = [leading, &[heads]].concat();
    shape::expect(ScaleHeads::NAME, ("scale", scale), ("x", x), &needed)?;
    if width % heads != 0 {
        bail!("scale_heads: x has {width} channels, which {heads} heads cannot share equally");
    }
    let head = width / heads;
    let shape = x.shape().clone();
    if runs_on(x) {
        apply_one(ScaleHeads { shape, head }, &[x, scale])
    } else {
        let split = x.reshape([leading, &[heads, head]].concat())?;
        split.broadcast_mul(&scale.unsqueeze(D::Minus1)?)?.reshape(shape)
    }
}

struct AddScaled {
    shape: Shape,
    width: usize,
}

impl FusedOp for AddScaled {
    const NAME: &'static str = "add_scaled";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.shape.clone()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let mut out = copied(ins[0]);
        let chunk = ROWS * self.width;
        out.chunks_mut(chunk).zip(ins[1].chunks(chunk)).in_parallel(|(out, y)| add_scaled_rows(out, y, ins[2]));
        vec![out]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let (y, scale, grad) = (call.ins[1], call.ins[2], call.only().grad);
        let (ins, chunks) = ([y, grad], [ROWS * self.width; 2]);
        let [gy, gscale] = map_chunks_with_sums(ins, chunks, self.width, |[y, grad], gy, part| {
            add_scaled_rows(gy, grad, scale);
            sum_products(y, grad, part);
        });
        vec![copied(grad), gy, gscale]
    }

    fn launch(&self, call: Launch) -> Result<Vec<Buffer>> {
        Ok(vec![self.launch_forward(call)?])
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        self.launch_back(call)
    }
}

struct SoftplusBiased {
    /// The axes of x before the last.
    leading: Vec<usize>,
    /// Channels of x: 1 or `width`.
    given: usize,
    width: usize,
}

impl FusedOp for SoftplusBiased {
    const NAME: &'static str = "softplus_biased";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![[&self.leading[..], &[self.width]].concat().into()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let chunks = [ROWS * self.given, ROWS * self.width];
        vec![map_chunks(ins[0], chunks, |x, y| {
            softplus_rows(x, ins[1], y);
        })]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let (x, bias, grad) = (call.ins[0], call.ins[1], call.only().grad);
        let chunks = [ROWS * self.given, ROWS * self.width];
        map_chunks_with_sums([x, grad], chunks, self.width, |[x, grad], gx, part| {
            softplus_rows_back(x, bias, grad, gx, part);
        })
        .into()
    }

    fn launch(&self, call: Launch) -> Result<Vec<Buffer>> {
        Ok(vec![self.launch_forward(call)?])
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        self.launch_back(call)
    }
}

struct ScaleHeads {
    shape: Shape,
    /// Channels per head.
    head: usize,
}

impl FusedOp for ScaleHeads {
    const NAME: &'static str = "scale_heads";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.shape.clone()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let mut y = zeros(ins[0].len());
        y.chunks_mut(ROWS * self.head)
            .zip(ins[0].chunks(ROWS * self.head).zip(ins[1].chunks(ROWS)))
            .in_parallel(|(y, (x, scale))| scaled(x, scale, y));
        vec![y]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let (x, scale, grad) = (call.ins[0], call.ins[1], call.only().grad);
        let (mut gx, mut gs) = (zeros(x.len()), zeros(scale.len()));
        let chunk = ROWS * self.head;
        gx.chunks_mut(chunk)
            .zip(gs.chunks_mut(ROWS))
            .zip(x.chunks(chunk).zip(scale.chunks(ROWS)))
            .zip(grad.chunks(chunk))
            .in_parallel(|(((gx, gs), (x, scale)), grad)| {
                scaled(grad, scale, gx);
                products(x, grad, gs);
            });
        vec![gx, gs]
    }

    fn launch(&self, call: Launch) -> Result<Vec<Buffer>> {
        Ok(vec![self.launch_forward(call)?])
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        self.launch_back(call)
    }
}

#[cfg(test)]
mod tests;
