//! Gated linear attention: a matrix of state for each head, with a decay for every feature of the
//! key or one for the head. It serves GLA, HGRN2, mLSTM, RetNet and Lightning attention.

mod backward;
mod division;
mod forward;
mod launch;
mod reference;
mod steps;

use super::chunked::Times;
use super::fused::{apply_one, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use super::{float::Float, shape};
use crate::gpu::Buffer;
use candle_core::{bail, Result, Shape, Tensor};

/// S_t = diag(e^{g_t}) S_{t-1} + k_t v_tᵀ and o_t = S_tᵀ q_t with S_{-1} = 0, for each sequence and
/// head.
///
/// `q`: (B, R, s, m); `k`: (B, L, s, m); `v`: (B, L, s, e); `g`: (B, L, s, m), or (B, L, s, 1) with
/// one decay a head; result (B, R, s, e). `rows`: (B, R) of u32, the times of the queries, below L
/// and ascending within each sequence, a time possibly several times; without it R = L and query t
/// is at time t. The logarithms `g` are finite; those of the first step have no effect, and a
/// gradient of zero. Only e^{g_t} of single steps are computed, so that strong decays are exact.
pub fn gla(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    g: &Tensor,
    rows: Option<&Tensor>,
) -> Result<Tensor> {
    let ins = [q, k, v, g];
    let op = Gla::check(ins, rows)?;
    if runs_on(k) {
        apply_one(op, &ins)
    } else {
        reference::gla(ins, rows)
    }
}

/// The sizes of the op, and the times of the queries.
struct Gla {
    batch: usize,
    len: usize,
    heads: usize,
    /// m, the features of a key.
    keys: usize,
    /// e, the features of a value.
    values: usize,
    /// The decays of a head and step: m or 1.
    decays: usize,
    times: Times,
    /// (B, R), for kernels; `None` for a query at every step.
    rows: Option<Tensor>,
}

impl Gla {
    fn check([q, k, v, g]: [&Tensor; 4], rows: Option<&Tensor>) -> Result<Self> {
        let by = ("k", k);
        let [batch, len, heads, keys] = shape::dims(Self::NAME, by)?;
        let [_, _, _, values] = shape::dims(Self::NAME, ("v", v))?;
        let [_, _, _, decays] = shape::dims(Self::NAME, ("g", g))?;
        if decays != 1 && decays != keys {
            let given = g.dims();
            bail!(
                "gla: g has shape {given:?}, but needed are {keys} decays a head, as k has, or 1"
            );
        }
        let times = match rows {
            Some(rows) => {
                let [_, count] = shape::dims(Self::NAME, ("rows", rows))?;
                let (by, of) = (("k", [batch, count]), ("k", len));
                Times::lists(shape::ascending(Self::NAME, rows, by, of, 0)?, count, 1)
            }
            None => Times::all(len),
        };
        shape::expect(Self::NAME, ("q", q), by, &[batch, times.rows, heads, keys])?;
        shape::expect(Self::NAME, ("v", v), by, &[batch, len, heads, values])?;
        shape::expect(Self::NAME, ("g", g), by, &[batch, len, heads, decays])?;
        Ok(Self {
            batch,
            len,
            heads,
            keys,
            values,
            decays,
            times,
            rows: rows.map(Tensor::contiguous).transpose()?,
        })
    }
}

impl FusedOp for Gla {
    const NAME: &'static str = "gla";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![(self.batch, self.times.rows, self.heads, self.values).into()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        vec![forward::forward(self, ins)]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        backward::backward(self, call.ins, call.only().grad)
    }

    /// Saves the states before spans of steps, if tracked.
    fn launch(&self, call: Launch) -> Result<Vec<Buffer>> {
        launch::forward(self, call)
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        launch::backward(self, call)
    }
}

#[cfg(test)]
mod tests;
