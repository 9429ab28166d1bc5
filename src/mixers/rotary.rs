//! Rotary positions (Su et al. 2021): queries and keys turned by where they stand, so that their product
//! knows how far apart they are.

use crate::config::{ModelConfig, Rotary};
use crate::nn::Cx;
use crate::ops;
use candle_core::{Result, Tensor};

/// Where queries and keys stand in their sequences.
pub(super) enum Places<'a> {
    /// Keys at 0, 1, 2 and so on, queries at the rows wanted.
    Rows(&'a Cx),
    /// One of each in every sequence, both at this place.
    Token(usize),
}

/// The first channels of each head, turned.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    heads: usize,
    dims: usize,
}

impl Turn {
    /// `None` where the model turns nothing.
    pub fn new(model: &ModelConfig) -> Option<Self> {
        let language = model.language.as_ref()?;
        (language.rotary != Rotary::None).then_some(Self {
            heads: model.n_heads,
            dims: language.rotary_dims,
        })
    }

    /// `q` `(batch, rows, n)` and `k` `(batch, seq_len, n)`, or features of them, each turned by its place.
    pub fn apply(&self, [q, k]: [&Tensor; 2], places: &Places) -> Result<[Tensor; 2]> {
        let turned = |x, at| ops::rotary(x, self.heads, self.dims, at);
        match places {
            Places::Rows(cx) => {
                let rows = cx.rows().map(|rows| &rows.positions);
                Ok([turned(q, rows)?, turned(k, None)?])
            }
            Places::Token(at) => {
                let (batch, rows, _) = q.dims3()?;
                let at = Tensor::full(*at as u32, (batch, rows), q.device())?;
                Ok([turned(q, Some(&at))?, turned(k, Some(&at))?])
            }
        }
    }
}
