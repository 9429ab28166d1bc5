//! The small layers around a mixer: named parameters, linear maps, norms, and what a forward
//! pass carries along. Own versions because candle's fused layers cut the gradient silently and
//! its CPU generator cannot be seeded.

mod cx;
mod params;

pub use cx::{Cx, Rows};
pub use params::{Init, Params, Scheme};

pub use crate::ops::{linear, linears};

use crate::ops;
use candle_core::{Result, Tensor};

/// A weight `(out, in)` and its bias `(out)`.
pub type Map<'a> = (&'a Tensor, Option<&'a Tensor>);

/// What [`project`] gives.
pub struct Projected {
    /// `(batch, seq_len, out)` for each map that is wanted everywhere.
    pub everywhere: Vec<Tensor>,
    /// `(batch, rows, out)` for each of the others.
    pub read: Vec<Tensor>,
    /// x at the rows wanted.
    pub seen: Tensor,
}

/// Linear maps of x `(batch, seq_len, in)`: some wanted at every step, some only at the rows of
/// `cx`. They share passes over x wherever they can; all have a bias or none has.
pub fn project(x: &Tensor, everywhere: &[Map], read: &[Map], cx: &Cx) -> Result<Projected> {
    let seen = cx.select(x)?;
    let (everywhere, read) = match cx.rows() {
        Some(_) => (linears(x, everywhere)?, linears(&seen, read)?),
        None => {
            let mut outs = linears(x, &[everywhere, read].concat())?;
            let read = outs.split_off(everywhere.len());
            (outs, read)
        }
    };
    Ok(Projected {
        everywhere,
        read,
        seen,
    })
}

/// Added to the variance by [`LayerNorm`].
const EPS: f64 = 1e-5;

/// Layer norm with weight and bias.
pub struct LayerNorm {
    weight: Tensor,
    bias: Tensor,
}

impl LayerNorm {
    /// Weight 1 and bias 0 of width `d` under `params`.
    pub fn new(d: usize, params: &Params) -> Result<Self> {
        Ok(Self {
            weight: params.get("weight", d, Init::Constant(1.0))?,
            bias: params.get("bias", d, Init::Constant(0.0))?,
        })
    }

    /// x + y, and that sum normalised: the two ends of a residual connection.
    pub fn add(&self, x: &Tensor, y: &Tensor) -> Result<(Tensor, Tensor)> {
        ops::add_layer_norm(x, y, &self.weight, &self.bias, EPS)
    }

    /// Normalises the last axis.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::layer_norm(x, &self.weight, &self.bias, EPS)
    }
}

/// The feed-forward half of a block: `w2 gelu(w1 x + b1) + b2`.
pub struct Mlp {
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    b2: Tensor,
}

impl Mlp {
    /// From `d` to `hidden` and back. `stds` are the spreads of the two maps' initial values in a language
    /// model.
    pub fn new([d, hidden]: [usize; 2], stds: [f64; 2], params: &Params) -> Result<Self> {
        Ok(Self {
            w1: params.weight("w1", (hidden, d), stds[0])?,
            b1: params.bias("b1", hidden, d)?,
            w2: params.weight("w2", (d, hidden), stds[1])?,
            b2: params.bias("b2", d, hidden)?,
        })
    }

    /// [`Self::forward`] with dropout on the hidden layer and behind the map back.
    pub fn forward_dropped(&self, x: &Tensor, p: f64, cx: &Cx) -> Result<Tensor> {
        let masks = [cx.mask("mlp/hidden", p), cx.mask("mlp", p)];
        ops::mlp(x, [&self.w1, &self.b1], [&self.w2, &self.b2], masks)
    }

    /// `(.., d)` in and out.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::mlp(x, [&self.w1, &self.b1], [&self.w2, &self.b2], [None; 2])
    }
}
