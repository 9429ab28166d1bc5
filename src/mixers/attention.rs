//! Projections into heads, and the separable form (13) to (15) of attention without a softmax: shared by
//! all attention mixers.

use super::rotary::{Positions, RotaryEmbedding};
use super::{Core, MixerSpec, MixerWork};
use crate::ltv::{ratios, Ltv};
use crate::nn::{linear, project, Cx, Map, Params};
use crate::ops::{self, Dropout, Pattern, Weights};
use candle_core::{Device, Result, Tensor};

/// Queries, keys, values and output. The variant `reference` has biases and an output projection,
/// the variant `paper` has neither.
pub(super) struct Projections {
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    biases: Option<[Tensor; 3]>,
    output: Option<(Tensor, Tensor)>,
    pub n_heads: usize,
    /// Query/key features a head, m = n/s.
    pub head_features: usize,
    /// Values a head, e = d/s.
    pub head_dim: usize,
    /// Rotates queries and keys as they leave their projections.
    pub rotary: Option<RotaryEmbedding>,
    dropout: f64,
    /// Whether attention without a softmax drops elements of o and not weights: its running sums have no
    /// weights.
    pub drops_output: bool,
}

/// The arithmetic of an attention whose heads meet by `core`.
pub(super) fn work(spec: &MixerSpec, core: Core) -> MixerWork {
    let (d, n) = (spec.d_model, spec.d_state);
    let output = if spec.variant == "reference" { d } else { 0 };
    MixerWork::new(core, [d, n], d * (2 * n + d + output))
}

impl Projections {
    pub fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n) = (spec.d_model, spec.d_state);
        let reference = spec.variant == "reference";
        let biases = || -> Result<[Tensor; 3]> {
            Ok([
                params.bias("bq", n, d)?,
                params.bias("bk", n, d)?,
                params.bias("bv", d, d)?,
            ])
        };
        let output = || -> Result<(Tensor, Tensor)> {
            Ok((
                params.weight("wout", (d, d), spec.output_std)?,
                params.bias("bout", d, d)?,
            ))
        };
        Ok(Self {
            wq: params.weight("wq", (n, d), spec.input_std)?,
            wk: params.weight("wk", (n, d), spec.input_std)?,
            wv: params.weight("wv", (d, d), spec.input_std)?,
            biases: reference.then(biases).transpose()?,
            output: reference.then(output).transpose()?,
            n_heads: spec.n_heads,
            head_features: n / spec.n_heads,
            head_dim: d / spec.n_heads,
            rotary: RotaryEmbedding::new(spec),
            dropout: spec.attn_dropout,
            drops_output: spec.drops_output,
        })
    }

    /// Queries at the queried positions `(batch, rows, n)`, keys `(batch, seq_len, n)` and values
    /// `(batch, seq_len, d)`, heads side by side; queries and keys rotated where the model has rotary positions.
    pub fn maps(&self, x: &Tensor, at: &Positions) -> Result<[Tensor; 3]> {
        Ok(self.maps_and(x, at, &[])?.0)
    }

    /// [`Self::maps`], and what further weights and biases make of x at the queried positions. All
    /// of them share passes over x.
    pub fn maps_and(
        &self,
        x: &Tensor,
        at: &Positions,
        further: &[Map],
    ) -> Result<([Tensor; 3], Vec<Tensor>)> {
        let bias = |i: usize| self.biases.as_ref().map(|b| &b[i]);
        let [q, k, v] = [
            (&self.wq, bias(0)),
            (&self.wk, bias(1)),
            (&self.wv, bias(2)),
        ];
        let maps = project(x, &[k, v], &[&[q], further].concat(), at.cx())?;
        let (mut all, mut queried) = (maps.all, maps.queried);
        let (v, k, q) = (all.remove(1), all.remove(0), queried.remove(0));
        let [q, k] = match &self.rotary {
            Some(rotary) => rotary.apply([&q, &k], at)?,
            None => [q, k],
        };
        Ok(([q, k, v], queried))
    }

    /// [`Self::maps`] as `(batch, heads, rows, width)`.
    pub fn heads(&self, x: &Tensor, at: &Positions) -> Result<[Tensor; 3]> {
        let [q, k, v] = self.maps(x, at)?;
        Ok([self.split(&q)?, self.split(&k)?, self.split(&v)?])
    }

    /// `(batch, rows, heads · width)` to `(batch, heads, rows, width)`.
    pub fn split(&self, y: &Tensor) -> Result<Tensor> {
        ops::heads_apart(y, self.n_heads)
    }

    /// `(batch, heads, rows, width)` to `(batch, rows, heads · width)`.
    pub fn merge(&self, o: &Tensor) -> Result<Tensor> {
        ops::heads_beside(o)
    }

    /// o `(batch, rows, d)` for queries, keys and values as [`Self::maps`] gives them: the values
    /// weighted by `weights` of q·k over the past, with dropout on the weights or, in classifiers
    /// without a softmax, on o.
    pub fn attend(&self, maps: [&Tensor; 3], weights: Weights, cx: &Cx) -> Result<Tensor> {
        if self.drops_output && weights != Weights::Softmax {
            let o = self.weigh(maps, weights, cx, None)?;
            return cx.dropout(&o, "attention", self.dropout);
        }
        self.weigh(maps, weights, cx, cx.mask("attention", self.dropout))
    }

    /// [`Self::attend`] by a softmax over the pairs of a pattern.
    pub fn attend_within(&self, maps: [&Tensor; 3], pattern: &Pattern, cx: &Cx) -> Result<Tensor> {
        let mask = cx.mask("attention", self.dropout);
        ops::patterned_attention(maps, self.n_heads, cx.reach(), pattern, mask)
    }

    /// Σ_j q·k_j over the past `(batch, rows, heads)`, for q and k as [`Self::maps`] gives them.
    pub fn sums(&self, q: &Tensor, k: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (batch, seq_len, _) = k.dims3()?;
        let ones = Tensor::ones((batch, seq_len, self.n_heads), k.dtype(), k.device())?;
        self.weigh([q, k, &ones], Weights::Plain, cx, None)
    }

    fn weigh(
        &self,
        maps: [&Tensor; 3],
        weights: Weights,
        cx: &Cx,
        mask: Option<Dropout>,
    ) -> Result<Tensor> {
        ops::causal_attention(maps, self.n_heads, cx.reach(), weights, mask)
    }

    /// The projection of o `(.., d)`.
    pub fn output(&self, o: &Tensor) -> Result<Tensor> {
        match &self.output {
            Some((w, b)) => linear(o, w, Some(b)),
            None => Ok(o.clone()),
        }
    }

    /// [`Self::output`] of one step, o `(batch, heads, 1, e)`; `(batch, d)`.
    pub fn output_step(&self, o: &Tensor) -> Result<Tensor> {
        self.output(&self.merge(o)?)?.squeeze(1)
    }

    /// Equations (15) and (28): the system of separable attention along one sequence.
    ///
    /// `phi`, `psi` `(1, heads, seq_len, m)`: query and key features; `eta` `(heads, seq_len)`.
    pub fn separable(&self, phi: &Tensor, psi: &Tensor, eta: &Tensor) -> Result<Ltv> {
        let eta = eta.t()?.contiguous()?.unsqueeze(2)?; // (seq_len, heads, 1)
        let per_channel = |x: &Tensor| -> Result<Tensor> {
            let (l, s, m) = x.dims3()?;
            if s == 1 {
                // A view: one head's features are those of all channels.
                return x.broadcast_as((l, self.head_dim, m));
            }
            x.unsqueeze(2)?
                .broadcast_as((l, s, self.head_dim, m))?
                .reshape((l, s * self.head_dim, m))
        };
        let features = |x: &Tensor| x.squeeze(0)?.transpose(0, 1); // (seq_len, heads, m)
        let psi = features(psi)?.broadcast_div(&eta)?;
        let ratio = ratios(&eta)?.broadcast_as(psi.shape())?;
        let value = match &self.biases {
            Some([_, _, bv]) => Tensor::cat(&[&self.wv, &bv.unsqueeze(1)?], 1)?,
            None => self.wv.clone(),
        };
        Ok(Ltv {
            gate: Some(per_channel(&eta.recip()?)?.squeeze(2)?),
            value: Some(value),
            output: self.output.as_ref().map(|(w, _)| w.clone()),
            offset: self.output.as_ref().map(|(_, b)| b.clone()),
            ..Ltv::new(
                per_channel(&ratio)?,
                per_channel(&psi)?,
                per_channel(&features(phi)?)?,
            )
        })
    }

    /// Probability of dropout of attention weights.
    pub fn dropout(&self) -> f64 {
        self.dropout
    }

    /// A tensor of the number type and on the device of the weights.
    pub fn like(&self) -> &Tensor {
        &self.wq
    }

    /// Where the weights are.
    pub fn device(&self) -> &Device {
        self.wq.device()
    }

    /// The matrix state of separable attention before the first token, `(batch, heads, features, e)`.
    pub fn zero_state(&self, batch: usize, features: usize) -> Result<Tensor> {
        let shape = (batch, self.n_heads, features, self.head_dim);
        Tensor::zeros(shape, self.wq.dtype(), self.wq.device())
    }

    /// Size of [`Self::zero_state`] a sequence, n d / s where the features of a head are its m queries.
    pub fn state_size(&self, features: usize) -> usize {
        self.n_heads * features * self.head_dim
    }
}

/// S += psi(k) v^T for one token: psi `(batch, heads, 1, m)`, v `(batch, heads, 1, e)`.
pub(super) fn accumulate(state: &Tensor, psi: &Tensor, v: &Tensor) -> Result<Tensor> {
    state + psi.transpose(2, 3)?.contiguous()?.matmul(v)?
}
