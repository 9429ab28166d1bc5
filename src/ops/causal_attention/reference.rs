//! The reference: two matrix products with a mask in between, in ordinary tensor ops.

use super::{CausalAttention, Weights};
use candle_core::{Result, Tensor, D};

/// Subtracted from masked scores: e^{-1e30} is zero, and nothing becomes NaN.
const FAR: f64 = 1e30;

pub(super) fn causal_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    op: &CausalAttention,
) -> Result<Tensor> {
    if !op.headed {
        let [q, k, v] = [q.unsqueeze(1)?, k.unsqueeze(1)?, v.unsqueeze(1)?];
        return headed(&q, &k, &v, op)?.squeeze(1);
    }
    headed(q, k, v, op)
}

fn headed(q: &Tensor, k: &Tensor, v: &Tensor, op: &CausalAttention) -> Result<Tensor> {
    let scores = (q.matmul(&k.transpose(2, 3)?.contiguous()?)? * op.scale::<f64>())?;
    let mask = causal_mask(op, q)?;
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
    let weights = match &op.mask {
        Some(mask) => {
            let factors = mask.factors(weights.elem_count());
            let factors = Tensor::from_vec(factors, weights.shape(), weights.device())?;
            (&weights * factors.to_dtype(weights.dtype())?)?
        }
        None => weights,
    };
    weights.matmul(v)
}

/// The causal mask: 1 where row i attends to step j, else 0; (B or 1, 1, R, L).
fn causal_mask(op: &CausalAttention, like: &Tensor) -> Result<Tensor> {
    let times = match &op.positions {
        Some(positions) => positions.reshape((op.batch, 1, op.rows, 1))?,
        None => Tensor::arange(0, op.rows as u32, like.device())?.reshape((1, 1, op.rows, 1))?,
    };
    let steps = Tensor::arange(0, op.len as u32, like.device())?;
    times.broadcast_ge(&steps)?.to_dtype(like.dtype())
}
