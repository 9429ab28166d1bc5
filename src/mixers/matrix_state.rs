//! The state that gated linear attention and its kin share: a matrix a head, decayed by row,
//!
//! S_t = diag(e^{g_t}) S_{t-1} + k_t v_tᵀ,  o_t = S_tᵀ q_t,  y_t = W (factor(o_t) ⊙ o_t) + b
//!
//! as a pass over the sequence, as one step, and as matrices. What differs from mixer to mixer is how q, k, v and g are made of
//! the input, and the factor: a gate, a norm, a normaliser or none.

use super::rotary::Positions;
use super::{Core, Mixer, MixerSpec, MixerWork, Recurrent, State};
use crate::ltv::{Inner, Ltv};
use crate::nn::{linear, Cx, Map};
use crate::ops;
use candle_core::{Result, Tensor, D};

/// The inputs of the state, and what the read-out needs beside it.
pub(super) struct Drive {
    /// Queries `(batch, rows, heads, m)`.
    pub q: Tensor,
    /// Keys `(batch, seq_len, heads, m)`.
    pub k: Tensor,
    /// Values `(batch, seq_len, heads, columns)`.
    pub v: Tensor,
    /// Logarithms of decays, 0 at most: one a row of the state, `(batch, seq_len, heads, m)`, or one a head, `(.., 1)`.
    pub g: Tensor,
    /// What [`MatrixState::factor`] is computed from, `(batch, rows, any)`.
    pub beside: Tensor,
}

/// The arrangement of a layer.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    /// Heads, s.
    pub heads: usize,
    /// Rows of a head's state, m = n/s.
    pub features: usize,
    /// Values of a head, e = d/s.
    pub values: usize,
    /// Columns of a head's state: the values, or one more where a column of ones sums what the rows are multiplied with.
    pub columns: usize,
}

impl Sizes {
    /// Of `spec`, without a column of ones.
    pub fn of(spec: &MixerSpec) -> Self {
        let (heads, values) = (spec.n_heads, spec.d_model / spec.n_heads);
        Self {
            heads,
            features: spec.d_state / heads,
            values,
            columns: values,
        }
    }

    /// `(.., heads · width)` to `(.., heads, width)`.
    pub fn split(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, rows, width) = x.dims3()?;
        x.reshape((batch, rows, self.heads, width / self.heads))
    }

    /// What every channel of a head has of x `(1, seq_len, heads, m)`: `(seq_len, d, m)`.
    pub fn per_channel(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.squeeze(0)?.unsqueeze(2)?; // (seq_len, heads, 1, m)
        let (seq_len, heads, _, width) = x.dims4()?;
        let wide = (seq_len, heads, self.values, width);
        let wide = x.broadcast_as(wide)?.contiguous()?;
        wide.reshape((seq_len, heads * self.values, width))
    }

    /// The same constant decay of each head everywhere along k, where `log_decays` holds one a head.
    pub fn constant(&self, log_decays: &[f64], k: &Tensor) -> Result<Tensor> {
        let (batch, seq_len, ..) = k.dims4()?;
        let decays = Tensor::new(log_decays, k.device())?.to_dtype(k.dtype())?;
        let decays = decays.reshape((1, 1, self.heads, 1))?;
        decays
            .broadcast_as((batch, seq_len, self.heads, 1))?
            .contiguous()
    }
}

/// The arithmetic of such a layer with `maps` further maps of width d, beside those to queries, keys and values.
pub(super) fn work(spec: &MixerSpec, maps: usize) -> MixerWork {
    let (d, n) = (spec.d_model, spec.d_state);
    MixerWork::new(Core::MatrixScan, [d, n], d * (2 * n + d + maps * d))
}

/// A mixer with such a state.
pub(super) trait MatrixState {
    /// Why the mixer is not itself a system (11), and what surrounds the one inside it; `None` where it is one.
    const AROUND: Option<&'static str>;

    fn sizes(&self) -> Sizes;

    /// The inputs of the state along u `(batch, seq_len, d)`.
    fn drive(&self, u: &Tensor, at: &Positions) -> Result<Drive>;

    /// The factor of the keys that also makes the decays, `(batch, seq_len, heads)`, for analysis alone; `None` where no factor
    /// of the keys does.
    fn gate(&self, _u: &Tensor) -> Result<Option<Tensor>> {
        Ok(None)
    }

    /// What o `(batch, rows, heads, columns)` is multiplied with, `(batch, rows, d)`; `None` is 1.
    fn factor(&self, o: &Tensor, beside: &Tensor) -> Result<Option<Tensor>>;

    /// The map of values `(d, d)` and its bias.
    fn value(&self) -> Map<'_>;

    /// The map behind the state and its bias; `None` is the identity.
    fn output(&self) -> Option<Map<'_>>;
}

/// A [`MatrixState`] as a mixer.
pub(super) struct MatrixMixer<M>(pub M);

impl<M: MatrixState> MatrixMixer<M> {
    /// y for o.
    fn finish(&self, o: &Tensor, beside: &Tensor) -> Result<Tensor> {
        let values = self.values(o)?;
        let scaled = match self.0.factor(o, beside)? {
            Some(factor) => (values * factor)?,
            None => values,
        };
        match self.0.output() {
            Some((w, b)) => linear(&scaled, w, b),
            None => Ok(scaled),
        }
    }

    /// The columns of o that are values, `(batch, rows, d)`.
    fn values(&self, o: &Tensor) -> Result<Tensor> {
        let values = self.0.sizes().values;
        o.narrow(D::Minus1, 0, values)?
            .contiguous()?
            .flatten_from(2)
    }

    /// The system along u `(seq_len, d)`: state c·m + k is row k of the column of channel c.
    fn system(&self, u: &Tensor) -> Result<Ltv> {
        let (sizes, cx) = (self.0.sizes(), Cx::eval());
        let drive = self.0.drive(&u.unsqueeze(0)?, &Positions::Sequence(&cx))?;
        let o = scan(&drive, &cx)?;
        let write = sizes.per_channel(&drive.k)?;
        let mut read = sizes.per_channel(&drive.q)?;
        if let Some(factor) = self.0.factor(&o, &drive.beside)? {
            read = read.broadcast_mul(&factor.squeeze(0)?.unsqueeze(2)?)?;
        }
        let (value, bias) = self.0.value();
        let output = self.0.output();
        let decay = sizes.per_channel(&drive.g.exp()?)?;
        let decay = decay.broadcast_as(write.shape())?.contiguous()?;
        let gate = self.0.gate(&u.unsqueeze(0)?)?;
        let gate = gate.map(|gate| sizes.per_channel(&gate.unsqueeze(3)?)?.squeeze(2));
        Ok(Ltv {
            gate: gate.transpose()?,
            value: Some(match bias {
                Some(b) => Tensor::cat(&[value, &b.unsqueeze(1)?], 1)?,
                None => value.clone(),
            }),
            output: output.map(|(w, _)| w.clone()),
            offset: output.and_then(|(_, b)| b.cloned()),
            ..Ltv::new(decay, write, read)
        })
    }
}

fn scan(drive: &Drive, cx: &Cx) -> Result<Tensor> {
    let at = cx.rows().map(|rows| &rows.positions);
    ops::gla(&drive.q, &drive.k, &drive.v, &drive.g, at)
}

impl<M: MatrixState> Mixer for MatrixMixer<M> {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let drive = self.0.drive(u, &Positions::Sequence(cx))?;
        self.finish(&scan(&drive, cx)?, &drive.beside)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        let sizes = self.0.sizes();
        sizes.heads * sizes.features * sizes.columns
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn ltv(&self, u: &Tensor) -> Result<Option<Ltv>> {
        match M::AROUND {
            None => self.system(u).map(Some),
            Some(_) => Ok(None),
        }
    }

    fn inner(&self, u: &Tensor) -> Result<Option<Inner>> {
        let Some(around) = M::AROUND else {
            return Ok(None);
        };
        let mut system = self.system(u)?;
        // What drives it is its values: the map to them lies in front.
        let value = system.value.take();
        let input = match value {
            Some(value) => linear(u, &value, None)?,
            None => u.clone(),
        };
        Ok(Some(Inner {
            system,
            input,
            around,
        }))
    }
}

impl<M: MatrixState> Recurrent for MatrixMixer<M> {
    /// The state `(batch, heads, features, columns)`.
    fn init(&self, batch: usize) -> Result<State> {
        let Sizes {
            heads,
            features,
            columns,
            ..
        } = self.0.sizes();
        let (w, _) = self.0.value();
        let shape = (batch, heads, features, columns);
        let zeros = Tensor::zeros(shape, w.dtype(), w.device())?;
        Ok(State(vec![zeros]))
    }

    fn step(&self, x_t: &Tensor, at: usize, state: &mut State) -> Result<Tensor> {
        let drive = self.0.drive(&x_t.unsqueeze(1)?, &Positions::Token(at))?;
        let column = |x: &Tensor| x.squeeze(1)?.unsqueeze(3); // (batch, heads, m, 1)
        let row = |x: &Tensor| x.squeeze(1)?.unsqueeze(2); // (batch, heads, 1, columns)
        let written = column(&drive.k)?.broadcast_mul(&row(&drive.v)?)?;
        let s = (state.0[0].broadcast_mul(&column(&drive.g.exp()?)?)? + written)?;
        let o = s.broadcast_mul(&column(&drive.q)?)?.sum(2)?.unsqueeze(1)?;
        *state = State(vec![s]);
        self.finish(&o, &drive.beside)?.squeeze(1)
    }
}

/// 1/√(mean(x²) + ε) over the last axis, which stays with size 1: the factor of an RMS norm.
pub(super) fn rms_factor(x: &Tensor, eps: f64) -> Result<Tensor> {
    (x.sqr()?.mean_keepdim(D::Minus1)? + eps)?.sqrt()?.recip()
}

/// [`rms_factor`] of each head of o `(batch, rows, heads, e)`, for each of its channels: `(batch, rows, d)`.
pub(super) fn head_rms_factor(o: &Tensor, eps: f64) -> Result<Tensor> {
    let factor = rms_factor(o, eps)?;
    factor
        .broadcast_as(o.shape())?
        .contiguous()?
        .flatten_from(2)
}

/// The norm of each head of o `(batch, rows, heads, e)`, of mean 0 and variance 1, with the weights and biases `(d)` of all of
/// them: `(batch, rows, d)`.
pub(super) fn head_norm(o: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
    let centred = o.broadcast_sub(&o.mean_keepdim(D::Minus1)?)?;
    let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
    let scaled = centred
        .broadcast_div(&(variance + eps)?.sqrt()?)?
        .flatten_from(2)?;
    scaled
        .broadcast_mul(&weight.to_dtype(o.dtype())?)?
        .broadcast_add(&bias.to_dtype(o.dtype())?)
}

/// ln σ(x), without overflow.
pub(super) fn log_sigmoid(x: &Tensor) -> Result<Tensor> {
    ops::softplus(&x.neg()?)?.neg()
}
