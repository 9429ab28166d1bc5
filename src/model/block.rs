//! The one block: a mixer and a feed-forward half on the residual stream, as a [`BlockSpec`] says.

use super::spec::{BehindMixer, BlockSpec, DropoutOn, FeedForward, Order};
use crate::config::ModelConfig;
use crate::mixers::{self, Mixer, MixerSpec, Recurrent, State};
use crate::nn::{linear, Cx, Init, Mlp, Norm, Params};
use crate::ops::{self, Dropout, Glu};
use candle_core::{Result, Tensor};

/// The residual stream between two halves of blocks.
pub(super) struct Residual {
    x: Tensor,
    /// What the half before adds to x, left to the norm that reads the sum: one pass does both.
    branch: Option<Tensor>,
}

impl From<Tensor> for Residual {
    fn from(x: Tensor) -> Self {
        Self { x, branch: None }
    }
}

impl Residual {
    /// x + y, not added yet.
    fn open(x: Tensor, y: Tensor) -> Self {
        Self { x, branch: Some(y) }
    }

    /// The sum.
    pub fn sum(self) -> Result<Tensor> {
        match self.branch {
            Some(branch) => self.x + branch,
            None => Ok(self.x),
        }
    }

    /// The sum, and `norm` of it.
    pub fn normed(self, norm: &Norm) -> Result<(Tensor, Tensor)> {
        match &self.branch {
            Some(branch) => norm.add(&self.x, branch),
            None => Ok((self.x.clone(), norm.forward(&self.x)?)),
        }
    }
}

/// A block with its parameters.
pub(super) struct Block {
    spec: BlockSpec,
    norm1: Norm,
    pub mixer: Box<dyn Mixer>,
    /// Of [`BehindMixer::GeluGlu`]: weight `(2d, d)` and bias.
    glu: Option<[Tensor; 2]>,
    /// λ `(1)`.
    skip: Option<Tensor>,
    /// Absent where the block has no second half or its norm is shared.
    norm2: Option<Norm>,
    feed_forward: Option<Half>,
}

/// The parameters of a second half.
enum Half {
    Identity,
    Mlp(Mlp),
    /// `(2m, d)` and `(d, m)`.
    GatedMlp([Tensor; 2]),
}

impl Block {
    /// The block of layer `layer`, from 0.
    pub fn new(
        model: &ModelConfig,
        layer: usize,
        spec: &BlockSpec,
        params: &Params,
    ) -> Result<Self> {
        let (d, m) = (model.d_model, spec.mlp_width);
        let (entry, of_layer) = mixers::of_layer(model, layer).map_err(candle_core::Error::wrap)?;
        let norm = |name: &str| Norm::new(spec.norm, d, &params.scope(name));
        let glu = || -> Result<[Tensor; 2]> {
            let params = params.scope("glu");
            let w = params.weight("w", (2 * d, d), 1.0)?;
            Ok([w, params.bias("b", 2 * d, d)?])
        };
        let mlp = params.scope("mlp");
        let half = |kind: FeedForward| -> Result<Half> {
            Ok(match kind {
                FeedForward::Identity => Half::Identity,
                FeedForward::Mlp => {
                    let mixer = MixerSpec::from(model);
                    let stds = [mixer.input_std, mixer.output_std];
                    Half::Mlp(Mlp::new([d, m], stds, &mlp)?)
                }
                FeedForward::GatedMlp => Half::GatedMlp([
                    mlp.weight("grow", (2 * m, d), 1.0)?,
                    mlp.weight("shrink", (d, m), 1.0)?,
                ]),
            })
        };
        let own_norm = spec.feed_forward.is_some() && !spec.shared_norm;
        let skip = || params.get("lambda", 1, Init::Constant(1.0));
        Ok(Self {
            spec: *spec,
            norm1: norm("norm1")?,
            mixer: entry.build(
                MixerSpec::from(&*of_layer).in_layer(layer),
                &params.scope("mixer"),
            )?,
            glu: (spec.behind_mixer == BehindMixer::GeluGlu)
                .then(glu)
                .transpose()?,
            skip: spec.learnt_skip.then(skip).transpose()?,
            norm2: own_norm.then(|| norm("norm2")).transpose()?,
            feed_forward: spec.feed_forward.map(half).transpose()?,
        })
    }

    /// The stream of `(batch, seq_len, d)` behind this block, at the positions that `cx` selects.
    pub fn forward(&self, stream: Residual, cx: &Cx) -> Result<Residual> {
        self.around(stream, cx, |u| self.mixer.forward(u, cx))
    }

    /// [`Self::forward`] at every position, without dropout, that puts what the mixer reads into `read`.
    pub fn forward_telling(&self, stream: Residual, read: &mut Vec<Tensor>) -> Result<Residual> {
        let cx = Cx::eval();
        self.around(stream, &cx, |u| {
            read.push(u.clone());
            self.mixer.forward(u, &cx)
        })
    }

    /// [`Self::forward`] of the token at position `at` of each sequence, `(batch, d)`; `mixer` is this
    /// block's.
    pub fn step(
        &self,
        stream: Residual,
        mixer: &dyn Recurrent,
        at: usize,
        state: &mut State,
    ) -> Result<Residual> {
        self.around(stream, &Cx::eval(), |u| mixer.step(u, at, state))
    }

    fn around(
        &self,
        stream: Residual,
        cx: &Cx,
        mix: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<Residual> {
        let (x, u) = self.before(stream, &self.norm1)?;
        let (mixed, x) = (self.behind_mixer(mix(&u)?, cx)?, cx.select(&x)?);
        let norm2 = self.norm2.as_ref().unwrap_or(&self.norm1);
        match (&self.feed_forward, self.spec.order) {
            (Some(half), Order::Parallel) => {
                let beside = self.second(half, &norm2.forward(&x)?, cx)?;
                let branch = ops::residual(&beside, &mixed, self.mask("mixer", cx), None)?;
                Ok(Residual::open(x, branch))
            }
            (Some(half), Order::Pre | Order::Post) => {
                let stream = self.after(self.add_mixed(x, mixed, cx)?, &self.norm1)?;
                let (x, u) = self.before(stream, norm2)?;
                let sum = Residual::open(x, self.second(half, &u, cx)?);
                self.after(self.drop_sum(sum, "mlp", cx)?, norm2)
            }
            (None, _) => self.after(self.add_mixed(x, mixed, cx)?, &self.norm1),
        }
    }

    /// The residual, and what a half of the block reads of it.
    fn before(&self, stream: Residual, norm: &Norm) -> Result<(Tensor, Tensor)> {
        match self.spec.order {
            Order::Pre | Order::Parallel => stream.normed(norm),
            Order::Post => {
                let x = stream.sum()?;
                Ok((x.clone(), x))
            }
        }
    }

    /// The residual behind a half of the block.
    fn after(&self, stream: Residual, norm: &Norm) -> Result<Residual> {
        match self.spec.order {
            Order::Pre | Order::Parallel => Ok(stream),
            Order::Post => Ok(stream.normed(norm)?.1.into()),
        }
    }

    fn behind_mixer(&self, mixed: Tensor, cx: &Cx) -> Result<Tensor> {
        if self.spec.behind_mixer == BehindMixer::Nothing {
            return Ok(mixed);
        }
        let v = cx.dropout(&ops::gelu(&mixed)?, "mixer", self.spec.dropout)?;
        match &self.glu {
            Some([w, b]) => ops::glu(&linear(&v, w, Some(b))?, Glu::Sigmoid),
            None => Ok(v),
        }
    }

    /// λ x + the mixer's branch, left open where nothing is scaled or dropped.
    fn add_mixed(&self, x: Tensor, mixed: Tensor, cx: &Cx) -> Result<Residual> {
        let place = match self.spec.behind_mixer {
            BehindMixer::Nothing => "mixer",
            BehindMixer::Gelu | BehindMixer::GeluGlu => "glu",
        };
        let sum = match (&self.skip, self.mask(place, cx)) {
            (None, None) => Residual::open(x, mixed),
            (skip, mask) => ops::residual(&x, &mixed, mask, skip.as_ref())?.into(),
        };
        self.drop_sum(sum, place, cx)
    }

    /// The second half of u `(.., d)`, with dropout.
    fn second(&self, half: &Half, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        match half {
            Half::Identity => Ok(u.clone()),
            Half::Mlp(mlp) => {
                let masks = ["mlp/hidden", "mlp"].map(|place| self.mask(place, cx));
                mlp.forward(u, masks)
            }
            Half::GatedMlp([grow, shrink]) => {
                let hidden = ops::glu(&linear(u, grow, None)?, Glu::Gelu)?;
                let y = linear(&hidden, shrink, None)?;
                match self.mask("mlp", cx) {
                    Some(mask) => ops::dropout(&y, mask),
                    None => Ok(y),
                }
            }
        }
    }

    /// What is dropped of a branch at `place`.
    fn mask(&self, place: &str, cx: &Cx) -> Option<Dropout> {
        let branches = self.spec.dropout_on == DropoutOn::Branches && self.spec.dropout > 0.0;
        branches.then(|| cx.mask(place, self.spec.dropout))?
    }

    /// Dropout on the residual stream itself.
    fn drop_sum(&self, sum: Residual, place: &str, cx: &Cx) -> Result<Residual> {
        match self.spec.dropout_on {
            DropoutOn::Branches => Ok(sum),
            DropoutOn::Sums => Ok(cx.dropout(&sum.sum()?, place, self.spec.dropout)?.into()),
        }
    }
}
