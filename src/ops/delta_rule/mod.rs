//! Generalised delta rule: a matrix state for each head, whose transition is a diagonal plus a matrix of rank one. Used
//! by DeltaNet, Gated DeltaNet, RWKV-7 and the linear form of test-time training.

mod backward;
mod columns;
mod forward;
mod launch;
mod reference;
mod rows;
mod span;

use crate::gpu::Buffer;
use crate::runtime::autograd::{apply_one, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use crate::runtime::float::Float;
use crate::runtime::matrix_state::Sizes;
use crate::runtime::shape;
use candle_core::{Result, Shape, Tensor};

/// S_t = (diag(e^{g_t}) + a_t b_tᵀ) S_{t-1} + k_t v_tᵀ and o_t = S_tᵀ q_t with S_{-1} = 0, for each
/// sequence and head.
///
/// `q`: (B, R, s, m); `k`, `a`, `b`: (B, L, s, m); `v`: (B, L, s, e); `g`: (B, L, s, m), or
/// (B, L, s, 1) with one decay a head; result (B, R, s, e). `rows`: (B, R) of u32, the times of the
/// queries, below L and ascending within each sequence, a time possibly several times; without it
/// R = L and query t is at time t. The logarithms `g` are finite. `g`, `a` and `b` of the first step
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
    if runs_on(k) {
        apply_one(op, &ins)
    } else {
        reference::delta_rule(ins, rows)
    }
}

/// Delta rule; the inputs are in the order q, k, v, g, a, b.
struct DeltaRule(Sizes);

impl DeltaRule {
    fn check([q, k, v, g, a, b]: [&Tensor; 6], rows: Option<&Tensor>) -> Result<Self> {
        let sizes = Sizes::check(Self::NAME, [q, k, v, g], rows)?;
        shape::expect(Self::NAME, ("a", a), ("k", k), k.dims())?;
        shape::expect(Self::NAME, ("b", b), ("k", k), k.dims())?;
        Ok(Self(sizes))
    }
}

impl FusedOp for DeltaRule {
    const NAME: &'static str = "delta_rule";

    fn out_shapes(&self) -> Vec<Shape> {
        let sizes = &self.0;
        vec![(sizes.batch, sizes.times.rows, sizes.heads, sizes.values).into()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        vec![forward::forward(&self.0, ins)]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        backward::backward(&self.0, call.ins, call.only().grad)
    }

    /// Saves the states before spans of events and the projections b_tᵀ S_{t-1}, if tracked.
    fn launch(&self, call: Launch) -> Result<Vec<Buffer>> {
        launch::forward(&self.0, call)
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        launch::backward(&self.0, call)
    }
}

#[cfg(test)]
mod tests;
