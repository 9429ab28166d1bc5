//! Small layers: named parameters, linear maps, norms, the MLP, and the context of a forward pass. Candle's own layers
//! are not used because its fused ones cut the gradient silently and its CPU generator cannot be seeded.

mod cx;
mod params;
mod positions;

pub use cx::{Cx, Rows};
pub use params::{Init, InitialValues, Params, Scheme, GPT_STD};
pub use positions::sinusoids;

pub use crate::ops::{linear, linears};

use crate::ops::{self, Dropout};
use candle_core::{Result, Tensor};

/// Weight `(out, in)` and bias `(out)` of a linear map.
pub type Map<'a> = (&'a Tensor, Option<&'a Tensor>);

/// Result of [`project`]: linear maps of a batch of sequences.
pub struct Projected {
    /// Outputs `(batch, seq_len, out)` of the maps that are computed at all positions.
    pub all: Vec<Tensor>,
    /// Outputs `(batch, rows, out)` of the maps that are computed at the queried positions.
    pub queried: Vec<Tensor>,
    /// Input x at the queried positions.
    pub selected: Tensor,
}

/// Computes linear maps of x `(batch, seq_len, in)`, `all` at all positions and `queried` only at the positions that
/// `cx` selects. Maps share passes over x if possible. Either all maps have a bias or none has.
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
    Ok(Projected { all, queried, selected })
}

/// Constant added to the variance in a layer norm.
const EPS: f64 = 1e-5;

/// Kinds of norms over the last axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// Layer norm: mean 0 and variance 1, then a learned weight and bias per channel.
    Layer,
    /// RMS norm: mean square 1, then a learned weight per channel.
    Rms,
}

/// Norm with its parameters.
pub struct Norm {
    weight: Tensor,
    /// Bias of a layer norm; `None` for an RMS norm.
    bias: Option<Tensor>,
}

impl Norm {
    /// Creates a norm of width `d` under `params`, with weight 1 and bias 0.
    pub fn new(kind: NormKind, d: usize, params: &Params) -> Result<Self> {
        let bias = || params.get("bias", d, Init::Constant(0.0));
        Ok(Self {
            weight: params.get("weight", d, Init::Constant(1.0))?,
            bias: (kind == NormKind::Layer).then(bias).transpose()?,
        })
    }

    /// Returns x + y and the norm of that sum, for the two ends of a residual connection.
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
    /// Creates an MLP from width `d` to `hidden` and back. `stds` are the standard deviations of the two initial
    /// weights under [`Scheme::Gpt`].
    pub fn new([d, hidden]: [usize; 2], stds: [f64; 2], params: &Params) -> Result<Self> {
        Ok(Self {
            w1: params.weight("w1", (hidden, d), stds[0])?,
            b1: params.bias("b1", hidden, d)?,
            w2: params.weight("w2", (d, hidden), stds[1])?,
            b2: params.bias("b2", d, hidden)?,
        })
    }

    /// Output `(.., d)` for x `(.., d)`, with dropout on the hidden layer and on the result.
    pub fn forward(&self, x: &Tensor, dropout: [Option<Dropout>; 2]) -> Result<Tensor> {
        ops::mlp(x, [&self.w1, &self.b1], [&self.w2, &self.b2], dropout)
    }
}
