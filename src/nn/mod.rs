//! Small layers: named parameters, linear maps, norms, the MLP, and the context of a forward pass. They
//! are our own because candle's fused layers cut the gradient silently and its CPU generator cannot be
//! seeded.

mod cx;
mod params;
mod positions;

pub use cx::{Cx, Rows};
pub use params::{Init, Params, Scheme};
pub use positions::sinusoids;

pub use crate::ops::{linear, linears};

use crate::ops::{self, Dropout};
use candle_core::{Result, Tensor};

/// A weight `(out, in)` and its bias `(out)`.
pub type Map<'a> = (&'a Tensor, Option<&'a Tensor>);

/// Linear maps of one sequence: the result of [`project`].
pub struct Projected {
    /// `(batch, seq_len, out)` for each map that is computed at all positions.
    pub all: Vec<Tensor>,
    /// `(batch, rows, out)` for each map that is computed at the queried positions.
    pub queried: Vec<Tensor>,
    /// x at the queried positions.
    pub selected: Tensor,
}

/// Linear maps of x `(batch, seq_len, in)`, some at all positions and some only at the positions that
/// `cx` selects. They share passes over x wherever they can; all have a bias or none has.
pub fn project(x: &Tensor, all: &[Map], queried: &[Map], cx: &Cx) -> Result<Projected> {
    let selected = cx.select(x)?;
    let (all, queried) = match cx.rows() {
        Some(_) => (linears(x, all)?, linears(&selected, queried)?),
        None => {
            let mut outs = linears(x, &[all, queried].concat())?;
            let queried = outs.split_off(all.len());
            (outs, queried)
        }
    };
    Ok(Projected {
        all,
        queried,
        selected,
    })
}

/// Added to the variance in a layer norm.
const EPS: f64 = 1e-5;

/// Kinds of norms over the last axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// Mean 0 and variance 1, then a learnt weight and bias per channel.
    Layer,
    /// Mean square 1, then a learnt weight per channel.
    Rms,
}

/// A norm with its parameters.
pub struct Norm {
    weight: Tensor,
    /// Of a layer norm.
    bias: Option<Tensor>,
}

impl Norm {
    /// Weight 1 and bias 0 of width `d` under `params`.
    pub fn new(kind: NormKind, d: usize, params: &Params) -> Result<Self> {
        let bias = || params.get("bias", d, Init::Constant(0.0));
        Ok(Self {
            weight: params.get("weight", d, Init::Constant(1.0))?,
            bias: (kind == NormKind::Layer).then(bias).transpose()?,
        })
    }

    /// x + y, and that sum normalised: the two ends of a residual connection.
    pub fn add(&self, x: &Tensor, y: &Tensor) -> Result<(Tensor, Tensor)> {
        match &self.bias {
            Some(bias) => ops::add_layer_norm(x, y, &self.weight, bias, EPS),
            None => {
                let sum = (x + y)?;
                let normed = ops::rms_norm(&sum, &self.weight)?;
                Ok((sum, normed))
            }
        }
    }

    /// Normalises the last axis.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match &self.bias {
            Some(bias) => ops::layer_norm(x, &self.weight, bias, EPS),
            None => ops::rms_norm(x, &self.weight),
        }
    }
}

/// Two linear maps around a GELU: `w2 gelu(w1 x + b1) + b2`.
pub struct Mlp {
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    b2: Tensor,
}

impl Mlp {
    /// From `d` to `hidden` and back. `stds` are the standard deviations of the two initial weights under
    /// [`Scheme::Gpt`].
    pub fn new([d, hidden]: [usize; 2], stds: [f64; 2], params: &Params) -> Result<Self> {
        Ok(Self {
            w1: params.weight("w1", (hidden, d), stds[0])?,
            b1: params.bias("b1", hidden, d)?,
            w2: params.weight("w2", (d, hidden), stds[1])?,
            b2: params.bias("b2", d, hidden)?,
        })
    }

    /// `(.., d)` in and out, with dropout on the hidden layer and on the result.
    pub fn forward(&self, x: &Tensor, dropout: [Option<Dropout>; 2]) -> Result<Tensor> {
        ops::mlp(x, [&self.w1, &self.b1], [&self.w2, &self.b2], dropout)
    }
}
