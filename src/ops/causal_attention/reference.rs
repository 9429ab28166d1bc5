//! The reference: two matrix products with a mask in between, in ordinary tensor ops.

use super::pattern::Checked;
use super::place::{self, Heads};
use super::{CausalAttention, Weights};
use crate::dropout::reference::dropout;
use candle_core::{DType, Result, Tensor, D};

/// Subtracted from masked scores: e^{-1e30} is zero, and nothing becomes NaN.
const FAR: f64 = 1e30;

pub(super) fn causal_attention(ins: [&Tensor; 3], op: &CausalAttention) -> Result<Tensor> {
    match op.layout {
        Heads::Apart => headed(ins, op),
        Heads::Beside => {
            let [q, k, v] = ins.map(|x| place::heads_apart(x, op.heads));
            place::heads_beside(&headed([&q?, &k?, &v?], op)?)
        }
    }
}

fn headed([q, k, v]: [&Tensor; 3], op: &CausalAttention) -> Result<Tensor> {
    let mut scores = (q.matmul(&k.transpose(2, 3)?.contiguous()?)? * op.scale::<f64>())?;
    let mut mask = causal_mask(op, q)?;
    if let Some(pattern) = &op.pattern {
        let [slopes, allowed] = [slopes(op, pattern, q)?, allowed(op, pattern, q)?];
        scores = scores.broadcast_sub(&distances(op, q)?.broadcast_mul(&slopes)?)?;
        if let Some(bias) = op.bias() {
            scores = scores.broadcast_add(&biases(op, bias, q)?)?;
        }
        mask = (mask * rows_of(op, &allowed)?)?;
    }
    let weights = match op.weights {
        Weights::Softmax => {
            let hidden = mask.affine(FAR, -FAR)?;
            candle_nn::ops::softmax(&scores.broadcast_add(&hidden)?, D::Minus1)?
        }
        Weights::LinearNormalised => {
            let scores = scores.broadcast_mul(&mask)?;
            scores.broadcast_div(&scores.sum_keepdim(D::Minus1)?)?
        }
        Weights::Plain => scores.broadcast_mul(&mask)?,
    };
    dropout(&weights, op.mask)?.matmul(v)
}

/// The causal mask: 1 where row i attends to step j, else 0; (B or 1, 1, R, L).
fn causal_mask(op: &CausalAttention, like: &Tensor) -> Result<Tensor> {
    let steps = Tensor::arange(0, op.len as u32, like.device())?;
    times(op, like)?.broadcast_ge(&steps)?.to_dtype(like.dtype())
}

/// (B or 1, 1, R, 1) of u32.
fn times(op: &CausalAttention, like: &Tensor) -> Result<Tensor> {
    match &op.positions {
        Some(positions) => positions.reshape((op.batch, 1, op.rows, 1)),
        None => Tensor::arange(0, op.rows as u32, like.device())?.reshape((1, 1, op.rows, 1)),
    }
}

/// i - j of row i and step j, (B or 1, 1, R, L).
fn distances(op: &CausalAttention, like: &Tensor) -> Result<Tensor> {
    let steps = Tensor::arange(0, op.len as u32, like.device())?.to_dtype(like.dtype())?;
    times(op, like)?.to_dtype(like.dtype())?.broadcast_sub(&steps)
}

/// Slope of each head, (1, s, 1, 1).
fn slopes(op: &CausalAttention, pattern: &Checked, like: &Tensor) -> Result<Tensor> {
    let slopes: Vec<f64> = (0..op.heads).map(|head| pattern.slope(head, op.heads)).collect();
    Tensor::from_vec(slopes, (1, op.heads, 1, 1), like.device())?.to_dtype(like.dtype())
}

/// Values of `bias` at the distance of each pair, (B or 1, s, R, L); arbitrary where the step is later than the row.
fn biases(op: &CausalAttention, bias: &Tensor, like: &Tensor) -> Result<Tensor> {
    let far = (op.distances() - 1) as f64;
    let distances = distances(op, &like.to_dtype(DType::F64)?)?;
    let (lists, _, rows, len) = distances.dims4()?;
    let at = distances.clamp(0.0, far)?.to_dtype(DType::U32)?;
    bias.to_dtype(like.dtype())?
        .index_select(&at.flatten_all()?, 1)?
        .reshape((op.heads, lists, rows, len))?
        .transpose(0, 1)
}

/// 1 where a row at time i attends to step j, (L, L).
fn allowed(op: &CausalAttention, pattern: &Checked, like: &Tensor) -> Result<Tensor> {
    let pairs = (0..op.len).flat_map(|time| (0..op.len).map(move |step| (time, step)));
    let allowed = pairs.map(|(time, step)| f64::from(step <= time && pattern.allows(time, step)));
    Tensor::from_vec(allowed.collect(), (op.len, op.len), like.device())?.to_dtype(like.dtype())
}

/// Rows of a tensor (L, L) at the times of the queries, (B or 1, 1, R, L).
fn rows_of(op: &CausalAttention, x: &Tensor) -> Result<Tensor> {
    match &op.positions {
        Some(positions) => x.index_select(&positions.flatten_all()?, 0)?.reshape((op.batch, 1, op.rows, op.len)),
        None => x.reshape((1, 1, op.rows, op.len)),
    }
}
