//! Rotary position embedding (Su et al. 2021): queries and keys are rotated by their positions, so that
//! their product depends on the distance between them.

use super::MixerSpec;
use crate::nn::Cx;
use crate::ops;
use candle_core::{Result, Tensor};

/// Positions of queries and keys in their sequences.
pub(super) enum Positions<'a> {
    /// Keys at 0, 1, 2 and so on, queries at the positions that the pass selects.
    Sequence(&'a Cx),
    /// One query and one key per sequence, both at this position.
    Token(usize),
}

/// A pass at all positions, as every step by itself is.
static EVERYWHERE: Cx = Cx::eval();

impl Positions<'_> {
    /// The pass that computes them.
    pub fn cx(&self) -> &Cx {
        match self {
            Self::Sequence(cx) => cx,
            Self::Token(_) => &EVERYWHERE,
        }
    }
}

/// Rotates the first `dims` channels of each head.
#[derive(Clone, Copy)]
pub(super) struct RotaryEmbedding {
    heads: usize,
    dims: usize,
}

impl RotaryEmbedding {
    /// `None` where the model has no rotary embedding.
    pub fn new(spec: &MixerSpec) -> Option<Self> {
        spec.rotary.map(|rotary| Self {
            heads: spec.n_heads,
            dims: rotary.dims,
        })
    }

    /// Of `width` channels a head, all but an odd last one.
    pub fn over(heads: usize, width: usize) -> Self {
        Self {
            heads,
            dims: width / 2 * 2,
        }
    }

    /// Rotates `q` `(batch, rows, n)` and `k` `(batch, seq_len, n)`, or features of them.
    pub fn apply(&self, [q, k]: [&Tensor; 2], positions: &Positions) -> Result<[Tensor; 2]> {
        match positions {
            Positions::Sequence(cx) => {
                let rows = cx.rows().map(|rows| &rows.positions);
                Ok([self.rotate(q, rows)?, self.rotate(k, None)?])
            }
            Positions::Token(at) => {
                let (batch, rows, _) = q.dims3()?;
                let at = Tensor::full(*at as u32, (batch, rows), q.device())?;
                Ok([self.rotate(q, Some(&at))?, self.rotate(k, Some(&at))?])
            }
        }
    }

    /// Rotates x `(batch, rows, n)` at `(batch, rows)` positions, or at 0, 1, 2 and so on.
    pub fn rotate(&self, x: &Tensor, at: Option<&Tensor>) -> Result<Tensor> {
        ops::rotary(x, self.heads, self.dims, at)
    }
}
