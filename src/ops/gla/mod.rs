//! Gated linear attention: a matrix state for each head, with a decay for every feature of the key or one for the head.
//! Used by GLA, HGRN2, mLSTM, RetNet and Lightning attention.

mod cpu;
mod cuda;
mod reference;

use crate::runtime::autograd::{apply_or, Op};
use crate::runtime::matrix_state::StateSizes;
use candle_core::{Result, Shape, Tensor};

/// S_t = diag(e^{g_t}) S_{t-1} + k_t v_tᵀ and o_t = S_tᵀ q_t with S_{-1} = 0, for each sequence and
/// head.
///
/// `q`: (B, R, s, m); `k`: (B, L, s, m); `v`: (B, L, s, e); `g`: (B, L, s, m), or (B, L, s, 1) with
/// one decay a head; result (B, R, s, e). `rows`: (B, R) of u32, the times of the queries, below L
/// and ascending within each sequence, a time possibly several times; without it R = L and query t
/// is at time t. All inputs are finite; the decays of the first step have no effect, and a
/// gradient of zero. Only e^{g_t} of single steps are computed, so that strong decays are exact. Kernels take keys of up to
/// 1024 features.
pub fn gla(q: &Tensor, k: &Tensor, v: &Tensor, g: &Tensor, rows: Option<&Tensor>) -> Result<Tensor> {
    let ins = [q, k, v, g];
    let op = Gla(StateSizes::check(Gla::NAME, ins, rows)?);
    apply_or(op, &ins, |_| reference::gla(ins, rows))
}

struct Gla(StateSizes);

impl Op for Gla {
    const NAME: &'static str = "gla";

    fn out_shapes(&self) -> Vec<Shape> {
        let sizes = &self.0;
        vec![(sizes.batch, sizes.times.rows, sizes.heads, sizes.values).into()]
    }
}

#[cfg(test)]
mod tests;
