//! The state of the delta rule and its kin: a matrix a head whose transition is a diagonal and a matrix of rank one,
//!
//! S_t = (diag(e^{g_t}) + a_t b_tᵀ) S_{t-1} + k_t v_tᵀ,  o_t = S_tᵀ q_t.

use super::matrix_state::Sizes;
use super::State;
use crate::ltv::{Ltv, OffDiagonal};
use crate::nn::Cx;
use crate::ops;
use candle_core::{Result, Tensor};

/// The inputs of the state.
pub(super) struct DeltaDrive {
    /// Queries `(batch, rows, heads, m)`.
    pub q: Tensor,
    /// Keys, `(batch, seq_len, heads, m)`.
    pub k: Tensor,
    /// Values `(batch, seq_len, heads, e)`.
    pub v: Tensor,
    /// What the transition puts in place of what it reads by `b`, `(batch, seq_len, heads, m)`.
    pub a: Tensor,
    /// `(batch, seq_len, heads, m)`.
    pub b: Tensor,
    /// Logarithms of decays, 0 at most: one a row of the state, `(batch, seq_len, heads, m)`, or one a head, `(.., 1)`.
    pub g: Tensor,
}

impl DeltaDrive {
    /// o `(batch, rows, heads, e)`.
    pub fn scan(&self, cx: &Cx) -> Result<Tensor> {
        let at = cx.rows().map(|rows| &rows.positions);
        ops::delta_rule(&self.q, &self.k, &self.v, &self.a, &self.b, &self.g, at)
    }

    /// The system along one sequence, which its values drive: state c·m + k is row k of the column of channel c.
    pub fn system(&self, sizes: Sizes) -> Result<Ltv> {
        let write = sizes.per_channel(&self.k)?;
        let decay = sizes.per_channel(&self.g.exp()?)?;
        let decay = decay.broadcast_as(write.shape())?.contiguous()?;
        Ok(Ltv {
            off_diagonal: OffDiagonal::RankOne {
                a: sizes.per_channel(&self.a)?,
                b: sizes.per_channel(&self.b)?,
            },
            ..Ltv::new(decay, write, sizes.per_channel(&self.q)?)
        })
    }

    /// o `(batch, 1, heads, e)` of one token; moves the first tensor of the state.
    pub fn step(&self, state: &mut State) -> Result<Tensor> {
        let column = |x: &Tensor| x.squeeze(1)?.unsqueeze(3); // (batch, heads, m, 1)
        let row = |x: &Tensor| x.squeeze(1)?.unsqueeze(2); // (batch, heads, 1, e)
        let s = &state.0[0];
        let found = s.broadcast_mul(&column(&self.b)?)?.sum_keepdim(2)?;
        let replaced = column(&self.a)?.broadcast_mul(&found)?;
        let written = column(&self.k)?.broadcast_mul(&row(&self.v)?)?;
        let s = ((s.broadcast_mul(&column(&self.g.exp()?)?)? + replaced)? + written)?;
        let o = s.broadcast_mul(&column(&self.q)?)?.sum(2)?.unsqueeze(1)?;
        state.0[0] = s;
        Ok(o)
    }
}

/// The state before the first token, `(batch, heads, m, e)`, where the parameter `like` is.
pub(super) fn zero_state(sizes: Sizes, batch: usize, like: &Tensor) -> Result<Tensor> {
    let shape = (batch, sizes.heads, sizes.features, sizes.values);
    Tensor::zeros(shape, like.dtype(), like.device())
}

/// x / |x| along the last axis, with something added to |x|² against division by zero.
pub(super) fn normalised(x: &Tensor) -> Result<Tensor> {
    const EPS: f64 = 1e-6;
    let length = (x.sqr()?.sum_keepdim(candle_core::D::Minus1)? + EPS)?.sqrt()?;
    x.broadcast_div(&length)
}
