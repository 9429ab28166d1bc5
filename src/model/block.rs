//! Residual block: a mixer and a feed-forward half on the residual stream, as described by a [`BlockSpec`].

use super::spec::{BehindMixer, BlockSpec, DropoutOn, FeedForward, Order};
use crate::config::ModelConfig;
use crate::mixers::{self, Mixer, MixerSpec, Recurrent, State};
use crate::nn::{linear, Cx, Init, Mlp, Norm, Params};
use crate::ops::{self, Dropout, Glu};
use candle_core::{Result, Tensor};

/// Residual stream between two halves of blocks.
pub(super) struct Residual {
    x: Tensor,
    /// Output of the previous half that is not yet added to `x`, so that the next norm adds and normalises in one pass.
    branch: Option<Tensor>,
}

impl From<Tensor> for Residual {
    fn from(x: Tensor) -> Self {
        Self { x, branch: None }
    }
}

impl Residual {
    /// The sum x + y, with the addition deferred.
    fn deferred(x: Tensor, y: Tensor) -> Self {
        Self { x, branch: Some(y) }
    }

    pub fn sum(self) -> Result<Tensor> {
        match self.branch {
            Some(branch) => self.x + branch,
            None => Ok(self.x),
        }
    }

    pub fn normed(self, norm: &Norm) -> Result<(Tensor, Tensor)> {
        match &self.branch {
            Some(branch) => norm.add(&self.x, branch),
            None => Ok((self.x.clone(), norm.forward(&self.x)?)),
        }
    }
}

/// Block with its parameters.
pub(super) struct Block {
    spec: BlockSpec,
    norm1: Norm,
    pub mixer: Box<dyn Mixer>,
    /// Weight `(2d, d)` and bias of [`BehindMixer::GeluGlu`].
    glu: Option<[Tensor; 2]>,
    /// Scale λ of the residual, `(1)`.
    skip: Option<Tensor>,
    /// Absent if the block has no second half or shares one norm between both halves.
    norm2: Option<Norm>,
    feed_forward: Option<Half>,
}

/// Parameters of a second half.
enum Half {
    Identity,
    Mlp(Mlp),
    /// Weights `(2m, d)` and `(d, m)`.
    GatedMlp([Tensor; 2]),
}

impl Block {
    /// Creates the block of layer `layer`, counted from 0.
    pub fn new(model: &ModelConfig, layer: usize, spec: &BlockSpec, params: &Params) -> Result<Self> {
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
                FeedForward::GatedMlp => {
                    Half::GatedMlp([mlp.weight("grow", (2 * m, d), 1.0)?, mlp.weight("shrink", (d, m), 1.0)?])
                }
            })
        };
        let own_norm = spec.feed_forward.is_some() && !spec.shared_norm;
        let skip = || params.get("lambda", 1, Init::Constant(1.0));
        Ok(Self {
            spec: *spec,
            norm1: norm("norm1")?,
            mixer: entry.build(MixerSpec::from(&*of_layer).in_layer(layer), &params.scope("mixer"))?,
            glu: (spec.behind_mixer == BehindMixer::GeluGlu).then(glu).transpose()?,
            skip: spec.learnt_skip.then(skip).transpose()?,
            norm2: own_norm.then(|| norm("norm2")).transpose()?,
            feed_forward: spec.feed_forward.map(half).transpose()?,
        })
    }

    /// Residual stream `(batch, rows, d)` after this block, at the positions that `cx` selects.
    pub fn forward(&self, stream: Residual, cx: &Cx) -> Result<Residual> {
        self.around(stream, cx, |u| self.mixer.forward(u, cx))
    }

    /// Same as [`Self::forward`] at every position and without dropout; appends the mixer's input to `read`.
    pub fn forward_recording(&self, stream: Residual, read: &mut Vec<Tensor>) -> Result<Residual> {
        let cx = Cx::eval();
        self.around(stream, &cx, |u| {
            read.push(u.clone());
            self.mixer.forward(u, &cx)
        })
    }

    /// Same as [`Self::forward`] for the token at position `at` of each sequence, `(batch, d)`. `mixer` is the mixer of
    /// this block.
    pub fn step(&self, stream: Residual, mixer: &dyn Recurrent, at: usize, state: &mut State) -> Result<Residual> {
        self.around(stream, &Cx::eval(), |u| mixer.step(u, at, state))
    }

    fn around(&self, stream: Residual, cx: &Cx, mix: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Residual> {
        let (x, u) = self.before(stream, &self.norm1)?;
        let (mixed, x) = (self.behind_mixer(mix(&u)?, cx)?, cx.select(&x)?);
        let norm2 = self.norm2.as_ref().unwrap_or(&self.norm1);
        match (&self.feed_forward, self.spec.order) {
            (Some(half), Order::Parallel) => {
                let beside = self.second(half, &norm2.forward(&x)?, cx)?;
                let branch = ops::residual(&beside, &mixed, self.mask("mixer", cx), None)?;
                Ok(Residual::deferred(x, branch))
            }
            (Some(half), Order::Pre | Order::Post) => {
                let stream = self.after(self.add_mixed(x, mixed, cx)?, &self.norm1)?;
                let (x, u) = self.before(stream, norm2)?;
                let sum = Residual::deferred(x, self.second(half, &u, cx)?);
                self.after(self.drop_sum(sum, "mlp", cx)?, norm2)
            }
            (None, _) => self.after(self.add_mixed(x, mixed, cx)?, &self.norm1),
        }
    }

    /// Returns the residual and the input of the next half of the block.
    fn before(&self, stream: Residual, norm: &Norm) -> Result<(Tensor, Tensor)> {
        match self.spec.order {
            Order::Pre | Order::Parallel => stream.normed(norm),
            Order::Post => {
                let x = stream.sum()?;
                Ok((x.clone(), x))
            }
        }
    }

    /// Residual stream after a half of the block.
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

    /// λ x + the mixer's branch. The addition is deferred unless the sum is scaled or a mask applies.
    fn add_mixed(&self, x: Tensor, mixed: Tensor, cx: &Cx) -> Result<Residual> {
        let place = match self.spec.behind_mixer {
            BehindMixer::Nothing => "mixer",
            BehindMixer::Gelu | BehindMixer::GeluGlu => "glu",
        };
        let sum = match (&self.skip, self.mask(place, cx)) {
            (None, None) => Residual::deferred(x, mixed),
            (skip, mask) => ops::residual(&x, &mixed, mask, skip.as_ref())?.into(),
        };
        self.drop_sum(sum, place, cx)
    }

    /// Output of the second half for u `(.., d)`, with dropout inside.
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

    /// Dropout mask of the branch at `place`; `None` if branches have no dropout.
    fn mask(&self, place: &str, cx: &Cx) -> Option<Dropout> {
        let branches = self.spec.dropout_on == DropoutOn::Branches && self.spec.dropout > 0.0;
        branches.then(|| cx.mask(place, self.spec.dropout))?
    }

    /// Applies dropout to the residual stream itself, if the spec says so.
    fn drop_sum(&self, sum: Residual, place: &str, cx: &Cx) -> Result<Residual> {
        match self.spec.dropout_on {
            DropoutOn::Branches => Ok(sum),
            DropoutOn::Sums => Ok(cx.dropout(&sum.sum()?, place, self.spec.dropout)?.into()),
        }
    }
}
