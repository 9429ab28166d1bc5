//! Residual block: a mixer and a feed-forward half on the residual stream, as described by a [`BlockSpec`].

use super::feed_forward::Half;
use super::spec::{AfterMixer, BlockSpec, DropoutOn, Order};
use crate::config::ModelConfig;
use crate::mixers::{self, Carried, Mixer, MixerSpec, State};
use crate::nn::{linear, Cx, Init, Norm, Params};
use crate::ops::{self, Dropout, Glu};
use candle_core::{bail, Result, Tensor};

/// Residual stream between two halves of blocks.
pub(super) struct Residual {
    x: Tensor,
    /// Output of the previous half that is not yet added to `x`, so that the next norm adds and normalises in one pass.
    branch: Option<Tensor>,
    /// Tensors that the mixers hand on.
    carried: Carried,
}

impl From<Tensor> for Residual {
    fn from(x: Tensor) -> Self {
        Self { x, branch: None, carried: Carried::default() }
    }
}

impl Residual {
    /// The sum x + y, with the addition deferred.
    fn deferred(x: Tensor, y: Tensor) -> Self {
        Self { x, branch: Some(y), carried: Carried::default() }
    }

    /// The stream at the positions that `cx` selects.
    fn selected(self, cx: &Cx) -> Result<Self> {
        let branch = self.branch.map(|branch| cx.select(&branch)).transpose()?;
        Ok(Self { x: cx.select(&self.x)?, branch, carried: self.carried })
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

/// State of a block between two tokens.
#[derive(Clone, Debug)]
pub(super) struct BlockState {
    mixer: State,
    /// Input of the second half for the last token, `(batch, d)`, if that half reads it again.
    previous: Option<Tensor>,
}

impl BlockState {
    /// Tensors of the mixer's state.
    pub fn of_mixer(&mut self) -> &mut [Tensor] {
        self.mixer.tensors_mut()
    }

    /// Tensors of the state.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.mixer.0.iter().chain(&self.previous)
    }
}

/// Name of the input of the second half for the last token.
const PREVIOUS: &str = "previous";

impl BlockState {
    /// Tensors of the state by name: those of the mixer by number, and `previous`.
    pub fn named(&self) -> impl Iterator<Item = (String, &Tensor)> {
        let mixer = self.mixer.0.iter().enumerate().map(|(number, tensor)| (number.to_string(), tensor));
        mixer.chain(self.previous.iter().map(|tensor| (PREVIOUS.to_owned(), tensor)))
    }

    /// Replaces the tensors by those that `take` gives for their names. A cache without a token has no tensors, and gets
    /// all that there are. Fails with a sentence if one is missing, or has another type or another number of axes.
    pub fn restore(&mut self, take: &mut dyn FnMut(&str) -> Option<Tensor>) -> std::result::Result<(), String> {
        let fits = |name: &str, found: &Tensor, own: &Tensor| {
            let same = found.dtype() == own.dtype() && found.rank() == own.rank();
            same.then_some(()).ok_or_else(|| format!("`{name}` is {:?} of {:?}", found.dtype(), found.dims()))
        };
        let found: Vec<Tensor> = (0..).map_while(|number: usize| take(&number.to_string())).collect();
        let own = &self.mixer.0;
        if found.len() != own.len() && !own.is_empty() {
            return Err(format!("{} tensors of the mixer's state in place of {}", found.len(), own.len()));
        }
        found
            .iter()
            .zip(own)
            .enumerate()
            .try_for_each(|(number, (found, own))| fits(&number.to_string(), found, own))?;
        self.mixer = State::new(found);
        if let Some(own) = &mut self.previous {
            let found = take(PREVIOUS).ok_or_else(|| format!("no tensor `{PREVIOUS}`"))?;
            fits(PREVIOUS, &found, own)?;
            *own = found;
        }
        Ok(())
    }

    /// State of each of `batch` sequences, from that of one.
    pub fn repeated(&self, batch: usize) -> Result<Self> {
        let repeated =
            |x: &Tensor| x.repeat(std::iter::once(batch).chain(x.dims().iter().skip(1).map(|_| 1)).collect::<Vec<_>>());
        Ok(Self {
            mixer: State::new(self.mixer.0.iter().map(repeated).collect::<Result<_>>()?),
            previous: self.previous.as_ref().map(repeated).transpose()?,
        })
    }
}

/// Input of the second half for the token before.
enum Past<'a> {
    /// It is not kept.
    Unused,
    /// The input is that of one token: it reads the one before, and replaces it.
    Token(&'a mut Tensor),
    /// The input is that of whole sequences, whose last token is kept.
    Sequence(&'a mut Tensor),
}

/// Block with its parameters.
pub(super) struct Block {
    spec: BlockSpec,
    norm1: Norm,
    mixer: Box<dyn Mixer>,
    /// Weight `(2d, d)` and bias of [`AfterMixer::GeluGlu`].
    glu: Option<[Tensor; 2]>,
    /// Scale λ of the residual, `(1)`.
    skip: Option<Tensor>,
    /// Absent if the block has no second half or shares one norm between both halves.
    norm2: Option<Norm>,
    feed_forward: Option<Half>,
}

impl Block {
    /// Creates the block of layer `layer`, counted from 0.
    pub fn new(model: &ModelConfig, layer: usize, spec: &BlockSpec, params: &Params) -> Result<Self> {
        let d = model.d_model;
        let (entry, of_layer) = mixers::of_layer(model, layer).map_err(candle_core::Error::wrap)?;
        let norm = |name: &str| Norm::new(spec.norm, d, &params.scope(name));
        let glu = || -> Result<[Tensor; 2]> {
            let params = params.scope("glu");
            let w = params.weight("w", (2 * d, d), 1.0)?;
            Ok([w, params.bias("b", 2 * d, d)?])
        };
        let half = |kind| Half::new(kind, model, layer, spec, &params.scope("mlp"));
        let own_norm = spec.feed_forward.is_some() && !spec.shared_norm;
        let skip = || params.get("lambda", 1, Init::Constant(1.0));
        Ok(Self {
            spec: *spec,
            norm1: norm("norm1")?,
            mixer: entry.build(MixerSpec::from(&*of_layer).in_layer(layer), &params.scope("mixer"))?,
            glu: (spec.after_mixer == AfterMixer::GeluGlu).then(glu).transpose()?,
            skip: spec.learnt_skip.then(skip).transpose()?,
            norm2: own_norm.then(|| norm("norm2")).transpose()?,
            feed_forward: spec.feed_forward.map(half).transpose()?,
        })
    }

    /// Residual stream `(batch, rows, d)` after this block, at the positions that `cx` selects.
    pub fn forward(&self, stream: Residual, cx: &Cx) -> Result<Residual> {
        let everywhere = cx.clone().only(None);
        let within = if self.reads_previous() { &everywhere } else { cx };
        let stream =
            self.around(stream, Past::Unused, within, |u, carried| self.mixer.forward_with(u, carried, within))?;
        match self.reads_previous() {
            true => stream.selected(cx),
            false => Ok(stream),
        }
    }

    /// Same as [`Self::forward`] at every position; appends the mixer's input to `read`.
    pub fn forward_recording(&self, stream: Residual, cx: &Cx, read: &mut Vec<Tensor>) -> Result<Residual> {
        self.around(stream, Past::Unused, cx, |u, carried| {
            read.push(u.clone());
            self.mixer.forward_with(u, carried, cx)
        })
    }

    /// State before the first token of `batch` sequences; `None` if the mixer cannot be stepped through time.
    pub fn begin(&self, batch: usize) -> Result<Option<BlockState>> {
        let Some(mixer) = self.mixer.recurrent() else {
            return Ok(None);
        };
        let zeros = |weight: &Tensor| Tensor::zeros((batch, weight.dim(0)?), weight.dtype(), weight.device());
        Ok(Some(BlockState {
            mixer: mixer.init(batch)?,
            previous: self.reads_previous().then(|| zeros(self.norm1.weight())).transpose()?,
        }))
    }

    /// Same as [`Self::forward`] for the token at position `at` of each sequence, `(batch, d)`.
    pub fn step(&self, stream: Residual, at: usize, state: &mut BlockState) -> Result<Residual> {
        let Some(mixer) = self.mixer.recurrent() else {
            bail!("the decoder belongs to another model");
        };
        let past = state.previous.as_mut().map_or(Past::Unused, Past::Token);
        self.around(stream, past, &Cx::eval(), |u, carried| mixer.step_with(u, at, &mut state.mixer, carried))
    }

    /// Same as [`Self::forward`] at every position of the first tokens of each sequence; `state` becomes the state after
    /// them.
    pub fn read(&self, stream: Residual, state: &mut BlockState) -> Result<Residual> {
        let Some(mixer) = self.mixer.recurrent() else {
            bail!("the decoder belongs to another model");
        };
        let past = state.previous.as_mut().map_or(Past::Unused, Past::Sequence);
        self.around(stream, past, &Cx::eval(), |u, carried| {
            let (y, after) = mixer.read_with(u, carried)?;
            state.mixer = after;
            Ok(y)
        })
    }

    /// Elements of the state per sequence after `seq_len` tokens.
    pub fn state_size(&self, seq_len: usize) -> usize {
        let previous = if self.reads_previous() { self.norm1.weight().elem_count() } else { 0 };
        self.mixer.state_size(seq_len) + previous
    }

    fn reads_previous(&self) -> bool {
        self.feed_forward.as_ref().is_some_and(Half::reads_previous)
    }

    /// The block around `mix`.
    fn around(
        &self,
        stream: Residual,
        past: Past,
        cx: &Cx,
        mix: impl FnOnce(&Tensor, &mut Carried) -> Result<Tensor>,
    ) -> Result<Residual> {
        let mut carried = stream.carried.clone();
        let (x, u) = self.before(stream, &self.norm1)?;
        let (mixed, x) = (self.after_mixer(mix(&u, &mut carried)?, cx)?, cx.select(&x)?);
        let norm2 = self.norm2.as_ref().unwrap_or(&self.norm1);
        let second = |half: &Half, u: &Tensor| -> Result<Tensor> {
            let masks = ["mlp/hidden", "mlp"].map(|place| self.mask(place, cx));
            match past {
                Past::Unused => half.forward(u, None, masks),
                Past::Token(previous) => {
                    let y = half.forward(u, Some(previous), masks)?;
                    *previous = u.clone();
                    Ok(y)
                }
                Past::Sequence(last) => {
                    *last = u.narrow(1, u.dim(1)? - 1, 1)?.squeeze(1)?.contiguous()?;
                    half.forward(u, None, masks)
                }
            }
        };
        let stream = match (&self.feed_forward, self.spec.order) {
            (Some(half), Order::Parallel) => {
                let beside = second(half, &norm2.forward(&x)?)?;
                let branch = ops::residual(&beside, &mixed, self.mask("mixer", cx), None)?;
                Residual::deferred(x, branch)
            }
            (Some(half), Order::Pre | Order::Post) => {
                let stream = self.after(self.add_mixed(x, mixed, cx)?, &self.norm1)?;
                let (x, u) = self.before(stream, norm2)?;
                let sum = Residual::deferred(x, second(half, &u)?);
                self.after(self.drop_sum(sum, "mlp", cx)?, norm2)?
            }
            (None, _) => self.after(self.add_mixed(x, mixed, cx)?, &self.norm1)?,
        };
        Ok(Residual { carried, ..stream })
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

    fn after_mixer(&self, mixed: Tensor, cx: &Cx) -> Result<Tensor> {
        if self.spec.after_mixer == AfterMixer::Nothing {
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
        let place = match self.spec.after_mixer {
            AfterMixer::Nothing => "mixer",
            AfterMixer::Gelu | AfterMixer::GeluGlu => "glu",
        };
        let sum = match (&self.skip, self.mask(place, cx)) {
            (None, None) => Residual::deferred(x, mixed),
            (skip, mask) => ops::residual(&x, &mixed, mask, skip.as_ref())?.into(),
        };
        self.drop_sum(sum, place, cx)
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
