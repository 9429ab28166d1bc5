//! Small layers: named parameters, linear maps, norms, the MLP, and the context of a forward pass. Candle's own layers
//! are not used because its fused ones cut the gradient silently and its CPU generator cannot be seeded.

mod cx;
mod params;
mod positions;
mod tables;

pub use cx::{Cx, Rows};
pub use params::{GivenValues, Init, InitialValues, Params, Scheme, GPT_STD};
pub use positions::sinusoids;
pub use tables::Tables;

pub use crate::config::{Activation, NormKind};
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

/// Kind of a norm over the last axis, and its ε.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormSpec {
    /// Kind.
    pub kind: NormKind,
    /// Constant added to the variance or mean square.
    pub eps: f64,
}

impl NormSpec {
    /// Norm of `kind` with the ε of the released models: 1e-5 in a layer norm, 0 in Hawk's RMS norm.
    pub fn of(kind: NormKind) -> Self {
        Self { kind, eps: if kind == NormKind::Layer { 1e-5 } else { 0.0 } }
    }
}

/// Norm with its parameters.
pub struct Norm {
    /// Gain of each channel, ones in a norm without weights.
    weight: Tensor,
    /// Whether the gain is 1 plus the weight, which training changes between passes.
    offset: bool,
    /// Bias of a layer norm; `None` for an RMS norm.
    bias: Option<Tensor>,
    eps: f64,
}

impl Norm {
    /// Creates a norm of width `d` under `params`, with weight 1 and bias 0.
    pub fn new(spec: NormSpec, d: usize, params: &Params) -> Result<Self> {
        let bias = || params.get("bias", d, Init::Constant(0.0));
        let weight = |initial| params.get("weight", d, Init::Constant(initial));
        Ok(Self {
            weight: match spec.kind {
                NormKind::Layer | NormKind::Rms => weight(1.0)?,
                NormKind::RmsOffset => weight(0.0)?,
                NormKind::SimpleRms => Tensor::ones(d, params.dtype(), params.device())?,
            },
            offset: spec.kind == NormKind::RmsOffset,
            bias: (spec.kind == NormKind::Layer).then(bias).transpose()?,
            eps: spec.eps,
        })
    }

    /// Weight of each channel, `(d)`, without the 1 that is added to it in some norms; ones in a norm without weights.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    fn gain(&self) -> Result<Tensor> {
        if self.offset {
            &self.weight + 1.0
        } else {
            Ok(self.weight.clone())
        }
    }

    /// Returns x + y and the norm of that sum, for the two ends of a residual connection.
    pub fn add(&self, x: &Tensor, y: &Tensor) -> Result<(Tensor, Tensor)> {
        match &self.bias {
            Some(bias) => ops::add_layer_norm(x, y, &self.weight, bias, self.eps),
            None => {
                let sum = (x + y)?;
                let normed = ops::rms_norm(&sum, &self.gain()?, self.eps)?;
                Ok((sum, normed))
            }
        }
    }

    /// Normalises the last axis.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match &self.bias {
            Some(bias) => ops::layer_norm(x, &self.weight, bias, self.eps),
            None => ops::rms_norm(x, &self.gain()?, self.eps),
        }
    }
}

/// Two linear maps around an activation: `w2 f(w1 x + b1) + b2`.
pub struct Mlp {
    w1: Tensor,
    w2: Tensor,
    /// b1 and b2, if there are any.
    biases: Option<[Tensor; 2]>,
    activation: Activation,
}

/// `activation` of every element of x.
fn activate(x: &Tensor, activation: Activation) -> Result<Tensor> {
    match activation {
        Activation::Gelu => ops::gelu(x),
        Activation::GeluTanh => ops::gelu_tanh(x),
        Activation::Silu => ops::silu(x),
        Activation::Identity => Ok(x.clone()),
    }
}

impl Mlp {
    /// Creates an MLP from width `d` to `hidden` and back. `stds` are the standard deviations of the two initial
    /// weights under [`Scheme::Gpt`].
    pub fn new(
        [d, hidden]: [usize; 2],
        stds: [f64; 2],
        (activation, biases): (Activation, bool),
        params: &Params,
    ) -> Result<Self> {
        let both = || -> Result<[Tensor; 2]> { Ok([params.bias("b1", hidden, d)?, params.bias("b2", d, hidden)?]) };
        Ok(Self {
            w1: params.weight("w1", (hidden, d), stds[0])?,
            w2: params.weight("w2", (d, hidden), stds[1])?,
            biases: biases.then(both).transpose()?,
            activation,
        })
    }

    /// Output `(.., d)` for x `(.., d)`, with dropout on the hidden layer and on the result.
    pub fn forward(&self, x: &Tensor, dropout: [Option<Dropout>; 2]) -> Result<Tensor> {
        if let (Activation::Gelu, Some([b1, b2])) = (self.activation, &self.biases) {
            return ops::mlp(x, [&self.w1, b1], [&self.w2, b2], dropout);
        }
        let dropped = |x: Tensor, mask: Option<Dropout>| match mask {
            Some(mask) => ops::dropout(&x, mask),
            None => Ok(x),
        };
        let [b1, b2] = self.biases.as_ref().map_or([None, None], |[b1, b2]| [Some(b1), Some(b2)]);
        let hidden = dropped(activate(&linear(x, &self.w1, b1)?, self.activation)?, dropout[0])?;
        dropped(linear(&hidden, &self.w2, b2)?, dropout[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};

    #[test]
    fn a_norm_has_the_weights_that_training_has_reached() {
        for kind in [NormKind::Layer, NormKind::Rms, NormKind::RmsOffset] {
            let params = Params::seeded(1, DType::F64, &Device::Cpu);
            let spec = NormSpec::of(kind);
            let norm = Norm::new(spec, 3, &params).unwrap();
            let x = Tensor::new(&[[1.0, -2.0, 0.5]], &Device::Cpu).unwrap();
            let before = norm.forward(&x).unwrap().to_vec2::<f64>().unwrap();
            for (_, var) in params.vars() {
                var.set(&(var.as_tensor() + 0.25).unwrap()).unwrap();
            }
            let after = norm.forward(&x).unwrap().to_vec2::<f64>().unwrap();
            let built = Norm::new(spec, 3, &params).unwrap().forward(&x).unwrap();
            assert_eq!(after, built.to_vec2::<f64>().unwrap());
            assert_ne!(after, before);
        }
    }
}
