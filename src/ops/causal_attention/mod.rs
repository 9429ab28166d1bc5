//! Causal attention, for every rule that turns scores into weights.

mod cpu;
mod cuda;
mod pattern;
mod place;
mod reference;

use crate::runtime::autograd::{apply_or, Op};
use crate::runtime::float::Float;
use crate::runtime::mask::{Dropout, Mask};
use crate::runtime::shape;
use candle_core::{bail, Result, Shape, Tensor};
use pattern::Checked;
pub use pattern::Pattern;
pub use place::{heads_apart, heads_beside};
use place::{HeadRows, HeadSizes, Heads};

/// The rule from scores s_ij = q_i . k_j to weights p_ij, over the steps j that row i attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// p_ij = softmax_j(s_ij / sqrt(m)), equation (2).
    Softmax,
    /// p_ij = s_ij / Σ_j s_ij, equation (16).
    LinearNormalised,
    /// p_ij = s_ij, equation (17); a normaliser, if any, is applied outside.
    Plain,
}

/// o_i = Σ_{j <= pos_i} dropout(p_ij) v_j, in each of s heads.
///
/// The inputs are `q`: (B, R, s m); `k`: (B, L, s m); `v`: (B, L, s e); result (B, R, s e): heads side by side, in the
/// layout of projections. Alternatively all of them have an axis of heads before that of steps: (B, s, R, m) and so on.
/// `positions`: (B, R) of u32 below L, the time of each query row; without it R = L and row i is at time i. The dropout
/// mask is that of [`dropout`](crate::dropout()) on a (B, s, R, L) tensor. Without dropout and with ascending rows, the
/// two rules without a softmax take time linear in L if that is faster.
pub fn causal_attention(
    ins: [&Tensor; 3],
    heads: usize,
    positions: Option<&Tensor>,
    weights: Weights,
    dropout: Option<Dropout>,
) -> Result<Tensor> {
    apply(CausalAttention::check(ins, heads, positions, weights, dropout)?, ins)
}

/// [`causal_attention`] with a softmax over the pairs of a pattern. If the pattern is only a window, time is
/// proportional to the window.
pub fn patterned_attention(
    ins: [&Tensor; 3],
    heads: usize,
    positions: Option<&Tensor>,
    pattern: &Pattern,
    dropout: Option<Dropout>,
) -> Result<Tensor> {
    let op = CausalAttention::check(ins, heads, positions, Weights::Softmax, dropout)?;
    apply(op.within(ins[0], pattern)?, ins)
}

/// [`patterned_attention`] for queries `q`: (B, s, R, m) that are all at time `at`, after a cache of keys (B, s, L, m)
/// and values (B, s, L, e), of which only the rows up to that time are read.
pub fn attention_at(at: usize, ins: [&Tensor; 3], pattern: &Pattern) -> Result<Tensor> {
    let (batch, heads, rows, _) = ins[0].dims4()?;
    let times = Tensor::full(at as u32, (batch, rows), ins[0].device())?;
    let op = CausalAttention::check(ins, heads, Some(&times), Weights::Softmax, None)?;
    apply(CausalAttention { one_time: true, ..op.within(ins[0], pattern)? }, ins)
}

fn apply(op: CausalAttention, ins: [&Tensor; 3]) -> Result<Tensor> {
    let (q, heads) = (ins[0], op.heads);
    let wanted = op.wanted(q).filter(|_| heads > 1).unwrap_or(op.layout);
    if wanted != op.layout {
        let moved = CausalAttention { layout: wanted, ..op };
        return match wanted {
            Heads::Apart => {
                let [q, k, v] = ins.map(|x| place::heads_apart(x, heads));
                place::heads_beside(&apply(moved, [&q?, &k?, &v?])?)
            }
            Heads::Beside => {
                let [q, k, v] = ins.map(place::heads_beside);
                place::heads_apart(&apply(moved, [&q?, &k?, &v?])?, heads)
            }
        };
    }
    let bias = op.bias().cloned();
    apply_or(op, &[&ins[..], bias.as_ref().as_slice()].concat(), |op| reference::causal_attention(ins, op))
}

/// Sizes, named like in [`causal_attention`], and options.
struct CausalAttention {
    batch: usize,
    heads: usize,
    layout: Heads,
    rows: usize,
    len: usize,
    key_width: usize,
    value_width: usize,
    /// The number of steps up to the time of each row: one list for all sequences, or one per batch
    /// element. Empty for positions on a GPU.
    reach: Vec<usize>,
    positions: Option<Tensor>,
    /// Whether all rows are at one time, which reads each key and value once and in place.
    one_time: bool,
    weights: Weights,
    /// Pattern, for a softmax only.
    pattern: Option<Checked>,
    mask: Option<Mask>,
}

impl CausalAttention {
    const OP: &'static str = "causal_attention";

    fn check(
        [q, k, v]: [&Tensor; 3],
        heads: usize,
        positions: Option<&Tensor>,
        weights: Weights,
        dropout: Option<Dropout>,
    ) -> Result<Self> {
        // The number of heads is the size of an axis.
        let (layout, across, [batch, rows, key_width]) = match q.rank() {
            3 => (Heads::Beside, heads, shape::dims(Self::OP, ("q", q))?),
            _ => {
                let [batch, axis, rows, width] = shape::dims(Self::OP, ("q", q))?;
                if axis != heads {
                    let dims = q.dims();
                    bail!("{}: q has shape {dims:?}, needed are {heads} heads on its second axis", Self::OP);
                }
                (Heads::Apart, 1, [batch, rows, width])
            }
        };
        let (len, value_width) = match v.dims() {
            [.., len, width] if v.elem_count() > 0 => (*len, *width),
            dims => bail!("{}: v has shape {dims:?}, needed are those of q", Self::OP),
        };
        for (name, width) in [("q", key_width), ("v", value_width)] {
            if !width.is_multiple_of(across) {
                bail!("{}: {name} has rows of {width} numbers, needed is a multiple of {heads} heads", Self::OP);
            }
        }
        let leading = &q.dims()[..q.rank() - 2];
        let v_shape = [leading, &[len, value_width]].concat();
        shape::expect(Self::OP, ("v", v), ("q", q), &v_shape)?;
        let k_shape = [leading, &[len, key_width]].concat();
        shape::expect(Self::OP, ("k", k), ("q", q), &k_shape)?;
        let reach = match positions {
            Some(positions) => {
                let by = ("q", [batch, rows]);
                let times = shape::times(Self::OP, positions, by, ("k", len))?;
                times.into_iter().map(|time| time + 1).collect()
            }
            None if rows == len => (1..=len).collect(),
            None => bail!(
                "{}: q has shape {:?} and v {:?}; without positions they have as many rows",
                Self::OP,
                q.dims(),
                v.dims()
            ),
        };
        let mask = Mask::new(Self::OP, dropout)?;
        Ok(Self {
            batch,
            heads,
            layout,
            rows,
            len,
            key_width: key_width / across,
            value_width: value_width / across,
            reach,
            positions: positions.map(Tensor::contiguous).transpose()?,
            one_time: false,
            weights,
            pattern: None,
            mask,
        })
    }

    /// Returns the layout of heads that the implementation requires: consecutive heads for the chunked sum, side by
    /// side for GPU kernels; `None` if any will do.
    fn wanted(&self, q: &Tensor) -> Option<Heads> {
        let (on_gpu, by_chunks) = match crate::gpu::of(q) {
            Some(_) => (true, cuda::linear::applies(self)),
            None => (false, cpu::linear::sums(self).is_some()),
        };
        match by_chunks {
            true => Some(Heads::Apart),
            false => on_gpu.then_some(Heads::Beside),
        }
    }

    fn within(self, q: &Tensor, pattern: &Pattern) -> Result<Self> {
        let checked = Checked::new(Self::OP, pattern, (q, self.heads), self.len)?;
        Ok(Self { pattern: Some(checked), ..self })
    }

    /// Sizes of a tensor with `rows` rows per head and `width` numbers per row.
    fn sizes(&self, rows: usize, width: usize) -> HeadSizes {
        HeadSizes { sequences: self.batch, heads: self.heads, rows, width }
    }

    /// The rows of `item` (batch and head) in such a tensor.
    fn rows_of<'a, F>(&self, x: &'a [F], item: usize, rows: usize, width: usize) -> HeadRows<'a, F> {
        self.layout.rows_of(x, self.sizes(rows, width), item)
    }

    /// The rows of each item in such a tensor.
    fn rows_by_item<'a, F>(&self, x: &'a mut [F], rows: usize, width: usize) -> Vec<Vec<&'a mut [F]>> {
        self.layout.rows_by_item(x, self.sizes(rows, width))
    }

    /// Returns the fourth input.
    fn bias(&self) -> Option<&Tensor> {
        self.pattern.as_ref()?.pattern.bias.as_ref()
    }

    /// Number of distances with a bias of their own; 0 if there is no bias.
    fn distances(&self) -> usize {
        self.bias().map_or(0, |bias| bias.dims()[1])
    }

    /// The scale of the products of queries and keys.
    fn scale<F: Float>(&self) -> F {
        match self.weights {
            Weights::Softmax => F::of((self.key_width as f64).powf(-0.5)),
            Weights::LinearNormalised | Weights::Plain => F::one(),
        }
    }

    /// The number of steps up to the time of each row of `item` (batch and head).
    fn reach_of(&self, item: usize) -> &[usize] {
        let lists = self.reach.len() / self.rows;
        &self.reach[(item / self.heads).min(lists - 1) * self.rows..][..self.rows]
    }
}

impl Op for CausalAttention {
    const NAME: &'static str = Self::OP;

    fn out_shapes(&self) -> Vec<Shape> {
        let (batch, rows, width) = (self.batch, self.rows, self.value_width);
        vec![match self.layout {
            Heads::Beside => (batch, rows, self.heads * width).into(),
            Heads::Apart => (batch, self.heads, rows, width).into(),
        }]
    }
}

#[cfg(test)]
mod tests;
