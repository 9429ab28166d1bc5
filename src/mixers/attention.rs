//! Multi-head projections, shared by all attention mixers, and the separable form (13) to (15) of attention without a
//! softmax,
//!
//! o_i = Σ_{j≤i} φ(q_i)·ψ(k_j) v_j / η_i
//!
//! Options of softmax attention give several heads of queries one head of keys and values, set the width of a head, and
//! leave out biases.
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | q, k, v | queries, keys, values; m = n/s and e = d/s per head | `(batch, seq_len, n or d)` |
//! | φ, ψ | features of queries and keys | `(batch, heads, seq_len, m)` |
//! | η | normaliser | `(heads, seq_len)` |

use super::rotary::{RotaryEmbedding, RotaryPositions};
use super::state_norm::StateNorm;
use super::{in_range, Core, MixerOption, MixerSpec, MixerWork};
use crate::error::{self, refuse};
use crate::ltv::{ratios, Ltv};
use crate::nn::{linear, project, Cx, Map, Params};
use crate::ops::{self, Dropout, Pattern, Weights};
use candle_core::{Device, Result, Tensor};

/// Heads of keys and values.
pub(super) const KV_HEADS: MixerOption = MixerOption {
    name: "kv_heads",
    help: "heads of keys and values, each shared by an equal number of heads of queries: `auto` (--heads) or a number \
           that divides --heads",
    default: |_| "auto",
    accepts: |v| v == "auto" || in_range(v, 1..=4096),
    implied: true,
    ..MixerOption::DEFAULT
};

/// Width of a head.
pub(super) const HEAD_DIM: MixerOption = MixerOption {
    name: "head_dim",
    help: "width of the queries, keys and values of a head: `auto` (--n / --heads for queries and keys, --d / --heads \
           for values) or --n / --heads for all three",
    default: |_| "auto",
    accepts: |v| v == "auto" || in_range(v, 1..=1 << 20),
    variants: &["reference"],
    implied: true,
    ..MixerOption::DEFAULT
};

/// Biases of the projections.
pub(super) const BIAS: MixerOption = MixerOption {
    name: "bias",
    help: "projections with biases: `all`, `qkv` (queries, keys and values), `out` (the output) or `none`",
    default: |_| "all",
    accepts: |v| ["all", "qkv", "out", "none"].contains(&v),
    variants: &["reference"],
    implied: true,
    ..MixerOption::DEFAULT
};

/// Width of the values of all heads, where the option sets it.
pub(super) fn values(spec: &MixerSpec) -> Option<(&'static str, usize)> {
    spec.parsed::<usize>(HEAD_DIM.name).map(|width| (HEAD_DIM.name, width.saturating_mul(spec.n_heads)))
}

/// The same in any case.
pub(super) fn value_width(spec: &MixerSpec) -> usize {
    values(spec).map_or(spec.d_model, |(_, width)| width)
}

/// Error where heads of keys and values, or the width of a head, do not fit --heads and --n.
pub(super) fn check(spec: &MixerSpec) -> error::Result<()> {
    let (n, heads, kv_heads) = (spec.d_state, spec.n_heads, spec.kv_heads());
    if !heads.is_multiple_of(kv_heads) {
        refuse!(flag "--option" = format!("kv_heads={kv_heads}"), "does not divide --heads {heads}: each head of keys and values serves an equal number of heads of queries");
    }
    match values(spec) {
        Some((_, width)) if width != n => {
            refuse!(flag "--option" = format!("head_dim={}", width / heads), "with --heads {heads} makes queries of {width} channels, but --n is {n}: it must be --n divided by --heads")
        }
        _ => Ok(()),
    }
}

/// Projections to queries, keys and values, and the output projection. The variant `paper` has neither biases nor
/// an output projection; all others have an output projection, and biases unless an option leaves them out.
pub(super) struct Projections {
    /// Projections to queries `(s · m, d)`, keys `(kv_heads · m, d)` and values `(kv_heads · e, d)`.
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    biases: Option<[Tensor; 3]>,
    /// Output projection `(d, s · e)`.
    output: Option<(Tensor, Option<Tensor>)>,
    pub n_heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Query/key width of a head, m = n/s.
    pub head_features: usize,
    /// Value width of a head, e = d/s unless an option sets it.
    pub head_dim: usize,
    /// Rotary embedding of queries and keys.
    pub rotary: Option<RotaryEmbedding>,
    /// RMS norm in front of the output projection.
    norm: Option<StateNorm>,
    dropout: f64,
    /// Whether dropout of attention without a softmax acts on o instead of the weights, which its recurrent form does
    /// not have.
    pub drops_output: bool,
}

/// Arithmetic of attention whose heads are computed by `core`.
pub(super) fn work(spec: &MixerSpec, core: Core) -> MixerWork {
    let (d, n, width) = (spec.d_model, spec.d_state, value_width(spec));
    let shared = (n + width) / spec.n_heads * spec.kv_heads();
    let output = if spec.variant == "paper" { 0 } else { width };
    MixerWork::new(core, [width, n], d * (n + shared + output))
}

impl Projections {
    pub fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n, n_heads, kv_heads) = (spec.d_model, spec.d_state, spec.n_heads, spec.kv_heads());
        let (head_features, head_dim) = (n / n_heads, value_width(spec) / n_heads);
        let [keys, values, width] = [head_features * kv_heads, head_dim * kv_heads, head_dim * n_heads];
        let reference = spec.variant != "paper";
        let biased = |part: &str| spec.option(BIAS.name).is_none_or(|bias| bias == "all" || bias == part);
        let biases = || -> Result<[Tensor; 3]> {
            Ok([params.bias("bq", n, d)?, params.bias("bk", keys, d)?, params.bias("bv", values, d)?])
        };
        let output = || -> Result<(Tensor, Option<Tensor>)> {
            let weight = params.weight("wout", (d, width), spec.output_std)?;
            Ok((weight, biased("out").then(|| params.bias("bout", d, width)).transpose()?))
        };
        Ok(Self {
            wq: params.weight("wq", (n, d), spec.input_std)?,
            wk: params.weight("wk", (keys, d), spec.input_std)?,
            wv: params.weight("wv", (values, d), spec.input_std)?,
            biases: (reference && biased("qkv")).then(biases).transpose()?,
            output: reference.then(output).transpose()?,
            n_heads,
            kv_heads,
            head_features,
            head_dim,
            rotary: RotaryEmbedding::new(spec),
            norm: StateNorm::new(spec, width, params)?,
            dropout: spec.attn_dropout,
            drops_output: spec.drops_output,
        })
    }

    /// Queries at the queried positions `(batch, rows, n)`, keys `(batch, seq_len, kv_heads · m)` and values
    /// `(batch, seq_len, kv_heads · e)`, heads side by side; queries and keys are rotated if the model has a rotary
    /// embedding.
    pub fn qkv(&self, x: &Tensor, at: &RotaryPositions) -> Result<[Tensor; 3]> {
        Ok(self.qkv_and(x, at, &[])?.0)
    }

    /// [`Self::qkv`], and further projections of x at the queried positions, fused where possible.
    pub fn qkv_and(&self, x: &Tensor, at: &RotaryPositions, further: &[Map]) -> Result<([Tensor; 3], Vec<Tensor>)> {
        let bias = |i: usize| self.biases.as_ref().map(|b| &b[i]);
        let [q, k, v] = [(&self.wq, bias(0)), (&self.wk, bias(1)), (&self.wv, bias(2))];
        let maps = project(x, &[k, v], &[&[q], further].concat(), at.cx())?;
        let (mut all, mut queried) = (maps.all, maps.queried);
        let (v, k, q) = (all.remove(1), all.remove(0), queried.remove(0));
        let [q, k] = match &self.rotary {
            Some(rotary) => rotary.apply([&q, &k], at)?,
            None => [q, k],
        };
        Ok(([q, k, v], queried))
    }

    /// [`Self::qkv`] as `(batch, heads, rows, m or e)`.
    pub fn heads(&self, x: &Tensor, at: &RotaryPositions) -> Result<[Tensor; 3]> {
        let [q, k, v] = self.qkv(x, at)?;
        let shared = |x: &Tensor| ops::heads_apart(x, self.kv_heads);
        Ok([self.split(&q)?, shared(&k)?, shared(&v)?])
    }

    /// Keys or values `(batch, seq_len, kv_heads · width)`, repeated for each head of queries:
    /// `(batch, seq_len, heads · width)`.
    pub fn repeated(&self, x: &Tensor) -> Result<Tensor> {
        if self.kv_heads == self.n_heads {
            return Ok(x.clone());
        }
        let (batch, seq_len, width) = x.dims3()?;
        let x = x.reshape((batch, seq_len, self.kv_heads, 1, width / self.kv_heads))?;
        let wide = (batch, seq_len, self.kv_heads, self.n_heads / self.kv_heads, width / self.kv_heads);
        x.broadcast_as(wide)?.contiguous()?.flatten_from(2)
    }

    /// `(batch, rows, heads · width)` to `(batch, heads, rows, width)`.
    pub fn split(&self, y: &Tensor) -> Result<Tensor> {
        ops::heads_apart(y, self.n_heads)
    }

    /// `(batch, heads, rows, width)` to `(batch, rows, heads · width)`.
    pub fn merge(&self, o: &Tensor) -> Result<Tensor> {
        ops::heads_beside(o)
    }

    /// Causal attention o `(batch, rows, d)` for the output of [`Self::qkv`], with dropout of the weights or, in
    /// classifiers without a softmax, of o.
    pub fn attend(&self, qkv: [&Tensor; 3], weights: Weights, cx: &Cx) -> Result<Tensor> {
        if self.drops_output && weights != Weights::Softmax {
            let o = self.causal(qkv, weights, cx, None)?;
            return cx.dropout(&o, "attention", self.dropout);
        }
        self.causal(qkv, weights, cx, cx.mask("attention", self.dropout))
    }

    /// Softmax attention over the pairs of `pattern`, o `(batch, rows, d)`.
    pub fn attend_within(&self, qkv: [&Tensor; 3], pattern: &Pattern, cx: &Cx) -> Result<Tensor> {
        let mask = cx.mask("attention", self.dropout);
        ops::patterned_attention(qkv, self.n_heads, cx.reach(), pattern, mask)
    }

    /// Σ_{j≤i} q_i·k_j, `(batch, rows, heads)`, for q and k of [`Self::qkv`].
    pub fn sums(&self, q: &Tensor, k: &Tensor, cx: &Cx) -> Result<Tensor> {
        let (batch, seq_len, _) = k.dims3()?;
        let ones = Tensor::ones((batch, seq_len, self.n_heads), k.dtype(), k.device())?;
        self.causal([q, k, &ones], Weights::Plain, cx, None)
    }

    fn causal(&self, qkv: [&Tensor; 3], weights: Weights, cx: &Cx, mask: Option<Dropout>) -> Result<Tensor> {
        ops::causal_attention(qkv, self.n_heads, cx.reach(), weights, mask)
    }

    /// Output projection of o `(.., d)`, after its norm if there is one.
    pub fn output(&self, o: &Tensor) -> Result<Tensor> {
        let o = match &self.norm {
            Some(norm) => norm.forward(o)?,
            None => o.clone(),
        };
        match &self.output {
            Some((w, b)) => linear(&o, w, b.as_ref()),
            None => Ok(o),
        }
    }

    /// [`Self::output`] `(batch, d)` of one step, for o `(batch, heads, 1, e)`.
    pub fn output_step(&self, o: &Tensor) -> Result<Tensor> {
        self.output(&self.merge(o)?)?.squeeze(1)
    }

    /// System (15), (28) of separable attention along one sequence, without the norm, for φ, ψ `(1, heads, seq_len, m)`
    /// and η `(heads, seq_len)`.
    pub fn separable(&self, phi: &Tensor, psi: &Tensor, eta: &Tensor) -> Result<Ltv> {
        let eta = eta.t()?.contiguous()?.unsqueeze(2)?; // (seq_len, heads, 1)
        let per_channel = |x: &Tensor| -> Result<Tensor> {
            let (l, s, m) = x.dims3()?;
            if s == 1 {
                // All channels share the features of the only head, as a view.
                return x.broadcast_as((l, self.head_dim, m));
            }
            x.unsqueeze(2)?.broadcast_as((l, s, self.head_dim, m))?.reshape((l, s * self.head_dim, m))
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
            offset: self.output.as_ref().and_then(|(_, b)| b.clone()),
            ..Ltv::new(per_channel(&ratio)?, per_channel(&psi)?, per_channel(&features(phi)?)?)
        })
    }

    /// The two systems of separable attention to all tokens, for the factors of [`Self::separable`] with η of all tokens:
    /// over the tokens up to each one and, in reverse order, over those after it. The latter has D_i = -C_i B_i, since the
    /// token itself is in the former.
    pub fn separable_on_both_sides(&self, phi: &Tensor, psi: &Tensor, eta: &Tensor) -> Result<[Ltv; 2]> {
        let turned = |x: &Tensor, axis: usize| x.contiguous()?.flip(&[axis]);
        let later = self.separable(&turned(phi, 2)?, &turned(psi, 2)?, &turned(eta, 1)?)?;
        let own = (&later.read * &later.write)?.sum(2)?.neg()?;
        Ok([self.separable(phi, psi, eta)?, Ltv { skip: Some(own), offset: None, ..later }])
    }

    /// Dropout probability of attention weights.
    pub fn dropout(&self) -> f64 {
        self.dropout
    }

    /// A weight, as the template of dtype and device.
    pub fn like(&self) -> &Tensor {
        &self.wq
    }

    /// Device of the weights.
    pub fn device(&self) -> &Device {
        self.wq.device()
    }

    /// Initial state S of separable attention, zeros `(batch, heads, features, e)`.
    pub fn zero_state(&self, batch: usize, features: usize) -> Result<Tensor> {
        let shape = (batch, self.n_heads, features, self.head_dim);
        Tensor::zeros(shape, self.wq.dtype(), self.wq.device())
    }

    /// Elements of [`Self::zero_state`] per sequence; n d / s for m features.
    pub fn state_size(&self, features: usize) -> usize {
        self.n_heads * features * self.head_dim
    }
}

/// S + ψ(k) vᵀ for one token, with ψ(k) `(batch, heads, 1, m)` and v `(batch, heads, 1, e)`.
pub(super) fn accumulate(state: &Tensor, psi: &Tensor, v: &Tensor) -> Result<Tensor> {
    state + psi.transpose(2, 3)?.contiguous()?.matmul(v)?
}
