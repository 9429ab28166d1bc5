//! Rotary positions (Su et al. 2021): queries and keys turned by where they stand, so that their product
//! knows how far apart they are.

use crate::config::{ModelConfig, Rotary};
use crate::nn::Cx;
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
        let turned = |x, at| rotary(x, self.heads, self.dims, at);
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

/// Stands in for the op.
fn rotary(x: &Tensor, heads: usize, dims: usize, at: Option<&Tensor>) -> Result<Tensor> {
    let (batch, rows, width) = x.dims3()?;
    let head = width / heads;
    let places: Vec<f64> = match at {
        Some(at) => at
            .to_dtype(candle_core::DType::F64)?
            .flatten_all()?
            .to_vec1()?,
        None => (0..batch)
            .flat_map(|_| (0..rows).map(|i| i as f64))
            .collect(),
    };
    let half = dims / 2;
    let table = |f: fn(f64) -> f64| -> Result<Tensor> {
        let of = |place: &f64| {
            let place = *place;
            (0..half).map(move |j| f(place * 10_000f64.powf(-2.0 * j as f64 / dims as f64)))
        };
        let values: Vec<f64> = places.iter().flat_map(of).collect();
        Tensor::from_vec(values, (batch, rows, 1, half), x.device())?.to_dtype(x.dtype())
    };
    let (cos, sin) = (table(f64::cos)?, table(f64::sin)?);
    let x = x.reshape((batch, rows, heads, head))?;
    let (a, b) = (x.narrow(3, 0, half)?, x.narrow(3, half, half)?);
    let rest = x.narrow(3, dims, head - dims)?;
    let first = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
    let second = (b.broadcast_mul(&cos)? + a.broadcast_mul(&sin)?)?;
    let parts = match head - dims {
        0 => vec![first, second],
        _ => vec![first, second, rest],
    };
    Tensor::cat(&parts, 3)?.reshape((batch, rows, width))
}
