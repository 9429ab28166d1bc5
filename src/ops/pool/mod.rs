//! Pooling of a sequence over time. Candle would copy the sequences to exclude the steps beyond
//! their lengths.

use crate::gpu::Buffer;
use crate::runtime::autograd::{apply_one, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use crate::runtime::float::Float;
use crate::runtime::lanes::add_chunk;
use crate::runtime::shape;
use crate::runtime::strips::{Strip, Strips};
use crate::runtime::zeros::zeros;
use candle_core::{bail, DType, Result, Shape, Tensor};
use dsf_simd::simd;

mod launch;

/// Reduction of a sequence to one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pool {
    /// Their mean.
    Mean,
    /// The last one.
    Last,
    /// The largest value in each channel.
    Max,
}

/// The mean, last value or maximum of each channel over the first lengths\[b\] steps of sequence b.
///
/// `x`: (B, L, d); `lengths`: (B) of u32, 1 ..= L, or `None` for L; result (B, d). Among equal
/// maxima the first gets the gradient; NaN counts as larger than any number. Sums of bf16 are
/// accumulated in f32. Lengths on a GPU are not checked but clamped to 1 ..= L.
pub fn pool(x: &Tensor, lengths: Option<&Tensor>, pool: Pool) -> Result<Tensor> {
    let op = Pooled::check(x, lengths, pool)?;
    if runs_on(x) {
        apply_one(op, &[x])
    } else {
        op.reference(x)
    }
}

struct Pooled {
    pool: Pool,
    /// (B), on the device of x.
    lengths: Option<Tensor>,
    /// The lengths on the CPU; empty for lengths on a GPU.
    known: Vec<usize>,
    batch: usize,
    len: usize,
    width: usize,
}

impl Pooled {
    fn check(x: &Tensor, lengths: Option<&Tensor>, pool: Pool) -> Result<Self> {
        let [batch, len, width] = shape::dims(Self::NAME, ("x", x))?;
        let mut known = vec![len; batch];
        if let Some(lengths) = lengths {
            let (dims, dtype) = (lengths.dims(), lengths.dtype());
            if dims != [batch] || dtype != DType::U32 {
                bail!("pool: lengths has shape {dims:?} of {dtype:?}, but x asks for [{batch}] of U32");
            }
            let lengths = shape::on_the_cpu(lengths)?;
            known = lengths.into_iter().map(|steps| steps as usize).collect();
        }
        if let Some(wrong) = known.iter().find(|&&steps| !(1..=len).contains(&steps)) {
            bail!("pool: a length of {wrong}, but x has {len} steps and needed are 1 ..= {len}");
        }
        Ok(Self { pool, lengths: lengths.map(Tensor::contiguous).transpose()?, known, batch, len, width })
    }

    /// The reference; sums of bf16 are accumulated in f32.
    fn reference(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, len, width) = x.dims3()?;
        let whole = || Tensor::full(len as u32, batch, x.device());
        let lengths = self.lengths.clone().map_or_else(whole, Ok)?;
        let lengths = lengths.reshape((batch, 1, 1))?;
        let wide = match x.dtype() {
            DType::F64 => DType::F64,
            _ => DType::F32,
        };
        let steps = Tensor::arange(0, len as u32, x.device())?.reshape((1, len, 1))?;
        let inside = steps.broadcast_lt(&lengths)?.broadcast_as(x.shape())?;
        let padded = |x: &Tensor, beyond: f32| {
            let beyond = Tensor::full(beyond, x.shape(), x.device())?;
            inside.where_cond(&x.to_dtype(wide)?, &beyond.to_dtype(wide)?)
        };
        let one_of = |index: Tensor| {
            let index = index.broadcast_as((batch, 1, width))?.contiguous()?;
            x.gather(&index, 1)?.squeeze(1)
        };
        match self.pool {
            Pool::Mean => {
                let sum = padded(x, 0.0)?.sum_keepdim(1)?;
                let mean = sum.broadcast_div(&lengths.to_dtype(wide)?)?;
                mean.squeeze(1)?.to_dtype(x.dtype())
            }
            Pool::Last => one_of((&lengths - lengths.ones_like()?)?),
            Pool::Max => one_of(padded(&x.detach(), f32::NEG_INFINITY)?.argmax_keepdim(1)?),
        }
    }

    fn strips(&self) -> Strips {
        Strips::new(self.batch, self.width)
    }

    /// The step whose value is the result of each channel of a strip, for the last value and the
    /// maximum.
    fn chosen<F: Float>(&self, strip: Strip, x: &[F]) -> Vec<usize> {
        let steps = self.known[strip.sequence];
        if self.pool == Pool::Last {
            return vec![steps - 1; strip.channels];
        }
        let mut best = strip.row(x, self.len, 0).to_vec();
        let mut at = vec![0; strip.channels];
        for step in 1..steps {
            take_larger(strip.row(x, self.len, step), step, &mut best, &mut at);
        }
        at
    }

    fn strip<F: Float>(&self, strip: Strip, x: &[F], y: &mut [F]) {
        if self.pool != Pool::Mean {
            for (channel, step) in self.chosen(strip, x).into_iter().enumerate() {
                y[channel] = strip.row(x, self.len, step)[channel];
            }
            return;
        }
        let steps = self.known[strip.sequence];
        for step in 0..steps {
            add_chunk(y, strip.row(x, self.len, step));
        }
        let count = F::of(steps as f64);
        y.iter_mut().for_each(|y| *y = *y / count);
    }

    /// Writes the gradient of x, which is zero on entry, given that of the result.
    fn strip_back<F: Float>(&self, strip: Strip, x: &[F], gy: &[F], gx: &mut [&mut [F]]) {
        let gy = strip.row(gy, 1, 0);
        if self.pool != Pool::Mean {
            for (channel, step) in self.chosen(strip, x).into_iter().enumerate() {
                gx[step][channel] = gy[channel];
            }
            return;
        }
        let steps = self.known[strip.sequence];
        let count = F::of(steps as f64);
        let share: Vec<F> = gy.iter().map(|&gy| gy / count).collect();
        for gx in &mut gx[..steps] {
            gx.copy_from_slice(&share);
        }
    }
}

impl FusedOp for Pooled {
    const NAME: &'static str = "pool";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![(self.batch, self.width).into()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let mut y = zeros(self.batch * self.width);
        self.strips().run([&mut y], |strip, [mut y]| self.strip(strip, ins[0], y[0]));
        vec![y]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let (x, gy) = (call.ins[0], call.only().grad);
        let mut gx = zeros(x.len());
        self.strips().run([&mut gx], |strip, [mut gx]| {
            self.strip_back(strip, x, gy, &mut gx);
        });
        vec![gx]
    }

    fn launch(&self, call: Launch) -> Result<Vec<Buffer>> {
        self.launch_rows(call)
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        self.launch_gradient(call)
    }
}

/// Updates the running maxima `best` and their steps `at` with the values of one step.
#[simd]
fn take_larger<F: Float>(x: &[F], step: usize, best: &mut [F], at: &mut [usize]) {
    for ((&x, best), at) in x.iter().zip(best).zip(at) {
        if x > *best || x.is_nan() && !best.is_nan() {
            (*best, *at) = (x, step);
        }
    }
}

#[cfg(test)]
mod tests;
