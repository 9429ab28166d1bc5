//! Rotary position embedding (RoPE, Su et al. 2021): queries and keys are rotated by angles proportional to their
//! positions, so that their product depends on the distance between them.

use super::spec::ROTARY_BASE;
use super::MixerSpec;
use crate::nn::Cx;
use crate::ops;
use candle_core::{Result, Tensor};

/// Positions of queries and keys in their sequences.
pub(super) enum RotaryPositions<'a> {
    /// Keys at 0, 1, 2, .., queries at the positions that the forward pass selects.
    Sequence(&'a Cx),
    /// One query and one key per sequence, both at this position.
    Token(usize),
}

/// Forward pass at all positions, for single steps.
static ALL_POSITIONS: Cx = Cx::eval();

impl RotaryPositions<'_> {
    /// Context of the forward pass.
    pub fn cx(&self) -> &Cx {
        match self {
            Self::Sequence(cx) => cx,
            Self::Token(_) => &ALL_POSITIONS,
        }
    }
}

/// Rotation of the first `dims` channels of each head.
#[derive(Clone, Copy)]
pub(super) struct RotaryEmbedding {
    /// Heads of queries, and heads of keys.
    heads: [usize; 2],
    dims: usize,
    base: f64,
}

impl RotaryEmbedding {
    /// Rotary embedding of `spec`; `None` where the model has none.
    pub fn new(spec: &MixerSpec) -> Option<Self> {
        let heads = [spec.n_heads, spec.kv_heads()];
        spec.rotary.map(|rotary| Self { heads, dims: rotary.dims, base: rotary.base })
    }

    /// Rotation of all `width` channels of a head, except the last one if `width` is odd.
    pub fn over(heads: usize, width: usize) -> Self {
        Self { heads: [heads; 2], dims: width / 2 * 2, base: ROTARY_BASE }
    }

    /// The same with angles that are evenly spaced on a logarithmic scale from 1 to 1/10,000, both included.
    pub fn to_the_base(self) -> Self {
        let pairs = self.dims / 2;
        // The last of n pairs has the exponent (n - 1)/n of the base.
        let base = if pairs > 1 { self.base.powf(pairs as f64 / (pairs - 1) as f64) } else { self.base };
        Self { base, ..self }
    }

    /// Rotates `q` `(batch, rows, heads · m)` and `k` `(batch, seq_len, key heads · m)`, or features of them.
    pub fn apply(&self, [q, k]: [&Tensor; 2], positions: &RotaryPositions) -> Result<[Tensor; 2]> {
        let [heads, key_heads] = self.heads;
        match positions {
            RotaryPositions::Sequence(cx) => {
                let rows = cx.rows().map(|rows| &rows.positions);
                Ok([self.turn(q, heads, rows)?, self.turn(k, key_heads, None)?])
            }
            RotaryPositions::Token(at) => {
                let (batch, rows, _) = q.dims3()?;
                let at = Tensor::full(*at as u32, (batch, rows), q.device())?;
                Ok([self.turn(q, heads, Some(&at))?, self.turn(k, key_heads, Some(&at))?])
            }
        }
    }

    /// Rotates x `(batch, rows, n)` at the positions `at` `(batch, rows)`, by default 0, 1, 2, ..
    pub fn rotate(&self, x: &Tensor, at: Option<&Tensor>) -> Result<Tensor> {
        self.turn(x, self.heads[0], at)
    }

    fn turn(&self, x: &Tensor, heads: usize, at: Option<&Tensor>) -> Result<Tensor> {
        ops::rotary(x, heads, self.dims, self.base, at)
    }
}
