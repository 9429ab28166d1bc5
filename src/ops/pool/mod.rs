//! Pooling of a sequence over time. Candle would copy the sequences to exclude the steps beyond
//! their lengths.

mod cpu;
mod cuda;
mod reference;

use crate::runtime::autograd::{apply_or, Op};
use crate::runtime::shape;
use candle_core::{bail, DType, Result, Shape, Tensor};

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
    apply_or(op, &[x], |op| reference::pool(op, x))
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
}

impl Op for Pooled {
    const NAME: &'static str = "pool";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![(self.batch, self.width).into()]
    }
}

#[cfg(test)]
mod tests;
