//! Generalised delta rule: a matrix state for each head, whose transition is a diagonal plus a matrix of rank one. Used
//! by DeltaNet, Gated DeltaNet, RWKV-7 and the linear form of test-time training.

mod cpu;
mod cuda;
mod reference;

use crate::runtime::autograd::{apply_or, Op};
use crate::runtime::matrix_state::StateSizes;
use crate::runtime::shape;
use candle_core::{Result, Shape, Tensor};

/// S_t = (diag(e^{g_t}) + a_t b_tᵀ) S_{t-1} + k_t v_tᵀ and o_t = S_tᵀ q_t with S_{-1} = 0, for each
/// sequence and head.
///
/// `q`: (B, R, s, m); `k`, `a`, `b`: (B, L, s, m); `v`: (B, L, s, e); `g`: (B, L, s, m), or
/// (B, L, s, 1) with one decay a head; result (B, R, s, e). `rows`: (B, R) of u32, the times of the
/// queries, below L and ascending within each sequence, a time possibly several times; without it
/// R = L and query t is at time t. All inputs are finite. `g`, `a` and `b` of the first step
/// have no effect, and a gradient of zero. Only e^{g_t} of single steps are computed, and no
/// transition is ever inverted. Kernels take keys of up to 1024 features.
pub fn delta_rule(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    a: &Tensor,
    b: &Tensor,
    g: &Tensor,
    rows: Option<&Tensor>,
) -> Result<Tensor> {
    let ins = [q, k, v, g, a, b];
    let op = DeltaRule::check(ins, rows)?;
    apply_or(op, &ins, |_| reference::delta_rule(ins, rows))
}

/// Delta rule; the inputs are in the order q, k, v, g, a, b.
struct DeltaRule(StateSizes);

impl DeltaRule {
    fn check([q, k, v, g, a, b]: [&Tensor; 6], rows: Option<&Tensor>) -> Result<Self> {
        let sizes = StateSizes::check(Self::NAME, [q, k, v, g], rows)?;
        shape::expect(Self::NAME, ("a", a), ("k", k), k.dims())?;
        shape::expect(Self::NAME, ("b", b), ("k", k), k.dims())?;
        Ok(Self(sizes))
    }
}

impl Op for DeltaRule {
    const NAME: &'static str = "delta_rule";

    fn out_shapes(&self) -> Vec<Shape> {
        let sizes = &self.0;
        vec![(sizes.batch, sizes.times.rows, sizes.heads, sizes.values).into()]
    }
}

#[cfg(test)]
mod tests;
