//! Linear attention (16), Katharopoulos et al. 2020: attention with a positive feature map φ in place of the
//! exponential,
//!
//! S_i = S_{i-1} + φ(k_i) v_iᵀ,  z_i = z_{i-1} + φ(k_i),  o_i = S_iᵀ φ(q_i) / (z_i·φ(q_i)),  φ = elu + 1
//!
//! The Taylor polynomial and the Performer are the same recurrence with other feature maps.

use super::attention::{accumulate, Projections};
use super::log_features::{split, LogFeatures, LOW};
use super::rotary::{RotaryEmbedding, RotaryPositions};
use super::{
    attention, Core, Entry, Family, Growth, Mixer, MixerSpec, Recurrent, ReleasedBlock, State, StateNormPlace,
};
use crate::ltv::Ltv;
use crate::nn::{Cx, Params};
use crate::ops::{self, Weights};
use candle_core::{DType, Device, Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "linear",
    equation: "o_i = Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j), φ = elu+1",
    cite: "(15), (16)",
    variants: &["reference", "paper"],
    dsf: "N = n d/s",
    heads: true,
    expands: true,
    rotary: true,
    bidirectional: true,
    released: ReleasedBlock::ATTENTION,
    state_norm: StateNormPlace::OF_WIDTH_D,
    growth: Growth::Limit { zeroed: &["wq", "wk", "bq", "bk"], bias: "bk" },
    stem: "linear_attention",
    work: |spec| Some(attention::work(spec, Core::ChunkedScan)),
    build: |spec, params| {
        let map = |_: &Device| Ok(Elu1Features(spec.d_state / spec.n_heads));
        Ok(Box::new(LinearAttention::new(spec, params, map)?))
    },
    ..Entry::of(Family::LinearAttention)
};

/// Feature map φ of queries and keys, whose inner products are the attention weights.
pub(super) trait FeatureMap {
    /// Number of features of a head.
    fn width(&self) -> usize;

    /// φ `(batch, rows, heads · width)` of x `(batch, rows, heads · m)`.
    fn features(&self, x: &Tensor) -> Result<Tensor>;

    /// Whether the output is multiplied by √(i/e), for a mean over i tokens of values of width e.
    fn scales_output(&self) -> bool {
        false
    }

    /// ln φ of queries and keys, where φ itself could underflow.
    fn logs(&self, _qk: [&Tensor; 2], _heads: usize) -> Result<Option<LogFeatures>> {
        Ok(None)
    }
}

/// φ(x) = elu(x) + 1 per element, with m elements per head.
struct Elu1Features(usize);

impl FeatureMap for Elu1Features {
    fn width(&self) -> usize {
        self.0
    }

    fn features(&self, x: &Tensor) -> Result<Tensor> {
        ops::elu1(x)
    }

    /// Only on the CPU: reading the minimum from a GPU would synchronise.
    fn logs(&self, [q, k]: [&Tensor; 2], heads: usize) -> Result<Option<LogFeatures>> {
        let least = |x: &Tensor| x.min_all()?.to_dtype(DType::F64)?.to_scalar::<f64>();
        if !q.device().is_cpu() || least(q)? + least(k)? >= LOW {
            return Ok(None);
        }
        // ln φ(x) is x below 0 and ln(1 + x) above.
        let log = |x: &Tensor| split(&((x.relu()? + 1.0)?.log()? - x.neg()?.relu()?)?, heads);
        Ok(Some(LogFeatures { q: log(q)?, k: log(k)? }))
    }
}

/// φ(q) and φ(k), `(batch, rows, heads · width)` each.
struct Features {
    normaliser: [Tensor; 2],
    numerator: [Tensor; 2],
}

/// Linear attention with the feature map `M`.
pub(super) struct LinearAttention<M> {
    projections: Projections,
    map: M,
    /// Rotary embedding of the features in the numerator, but not in the normaliser, which stays positive (Su et al.
    /// 2021).
    rotary: Option<RotaryEmbedding>,
}

impl<M: FeatureMap> LinearAttention<M> {
    /// Layer of `spec` with the feature map that `map` builds on the device of the parameters.
    pub fn new(spec: &MixerSpec, params: &Params, map: impl FnOnce(&Device) -> Result<M>) -> Result<Self> {
        let mut projections = Projections::new(spec, params)?;
        let after = spec.rotary.is_some_and(|rotary| rotary.after_feature_map);
        Ok(Self {
            rotary: after.then(|| projections.rotary.take()).flatten(),
            map: map(projections.device())?,
            projections,
        })
    }

    /// ln φ of queries and keys, if products of φ could underflow. Rotated features may be negative and have no
    /// logarithm.
    fn underflowing(&self, qk: [&Tensor; 2], cx: &Cx) -> Result<Option<LogFeatures>> {
        let logs = match self.rotary {
            None => self.map.logs(qk, self.projections.n_heads)?,
            Some(_) => None,
        };
        match logs {
            Some(logs) if !logs.are_moderate(cx)? => Ok(Some(logs)),
            _ => Ok(None),
        }
    }

    /// √(i/e) for outputs that see each number i of `tokens`, of the dtype and on the device of `like`; `None` where the
    /// map does not scale the output.
    fn scale(&self, tokens: impl FnOnce() -> Result<Tensor>, like: &Tensor) -> Result<Option<Tensor>> {
        if !self.map.scales_output() {
            return Ok(None);
        }
        let root = (tokens()?.to_dtype(DType::F64)? / self.projections.head_dim as f64)?.sqrt()?;
        Ok(Some(root.to_dtype(like.dtype())?))
    }

    /// [`Self::scale`] of each output, `(batch, rows, 1)`, or `(1, rows, 1)` where all sequences are alike.
    fn scales(&self, seq_len: usize, cx: &Cx, like: &Tensor) -> Result<Option<Tensor>> {
        let tokens = || match cx.reach() {
            Some(last) => last.to_dtype(DType::F64)? + 1.0,
            None => Tensor::arange(1, seq_len as u32 + 1, like.device())?.unsqueeze(0),
        };
        self.scale(|| tokens()?.unsqueeze(2), like)
    }

    /// φ(q) and φ(k) in the normaliser and in the numerator, where they may be rotated.
    fn features(&self, [q, k]: [&Tensor; 2], positions: &RotaryPositions) -> Result<Features> {
        let (q, k) = (self.map.features(q)?, self.map.features(k)?);
        let rotated = match &self.rotary {
            Some(rotary) => rotary.apply([&q, &k], positions)?,
            None => [q.clone(), k.clone()],
        };
        Ok(Features { normaliser: [q, k], numerator: rotated })
    }
}

impl<M: FeatureMap> LinearAttention<M> {
    /// φ(q) and ψ(k) `(1, heads, seq_len, m)`, and η `(heads, seq_len)`, along u `(seq_len, d_model)`.
    fn factors(&self, u: &Tensor, cx: &Cx) -> Result<[Tensor; 3]> {
        let (p, at) = (&self.projections, RotaryPositions::Sequence(cx));
        let [q, k, _] = p.qkv(&u.unsqueeze(0)?, &at)?;
        let features = self.features([&q, &k], &at)?;
        let [q, k] = &features.normaliser;
        let [phi, psi] = &features.numerator;
        let mut eta = p.sums(q, k, cx)?; // (1, seq_len, heads)
        if let Some(scales) = self.scales(u.dim(0)?, cx, &eta)? {
            eta = eta.broadcast_div(&scales)?;
        }
        Ok([p.split(phi)?, p.split(psi)?, eta.squeeze(0)?.t()?])
    }
}

impl<M: FeatureMap> Mixer for LinearAttention<M> {
    fn forward(&self, x: &Tensor, cx: &Cx) -> Result<Tensor> {
        let p = &self.projections;
        let at = RotaryPositions::Sequence(cx);
        let [q, k, v] = p.qkv(x, &at)?;
        let scaled = |o: Tensor| match self.scales(x.dim(1)?, cx, &o)? {
            Some(scales) => o.broadcast_mul(&scales),
            None => Ok(o),
        };
        if let Some(logs) = self.underflowing([&q, &k], cx)? {
            return p.output(&scaled(logs.attend(p, &v, cx)?)?);
        }
        let features = self.features([&q, &k], &at)?;
        let [q, k] = &features.normaliser; // (batch, rows, heads · width)
        let o = match &self.rotary {
            None => p.attend([q, k, &v], Weights::LinearNormalised, cx)?,
            Some(_) => {
                let [rotated_q, rotated_k] = &features.numerator;
                let sum = p.attend([rotated_q, rotated_k, &v], Weights::Plain, cx)?;
                ops::scale_heads(&sum, &p.sums(q, k, cx)?.recip()?)?
            }
        };
        p.output(&scaled(o)?)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        let (p, features) = (&self.projections, self.map.width());
        p.state_size(features) + p.n_heads * features
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn ltv(&self, u: &Tensor) -> Result<Option<Ltv>> {
        let [phi, psi, eta] = self.factors(u, &Cx::eval())?;
        self.projections.separable(&phi, &psi, &eta).map(Some)
    }

    fn ltv_of_both_sides(&self, u: &Tensor) -> Result<Option<[Ltv; 2]>> {
        let [phi, psi, eta] = self.factors(u, &Cx::eval().seeing_all_of(u)?)?;
        self.projections.separable_on_both_sides(&phi, &psi, &eta).map(Some)
    }
}

impl<M: FeatureMap> Recurrent for LinearAttention<M> {
    fn init(&self, batch: usize) -> Result<State> {
        let s = self.projections.zero_state(batch, self.map.width())?;
        let z = s.narrow(3, 0, 1)?.transpose(2, 3)?.contiguous()?; // (batch, heads, 1, m)
        Ok(State::new(vec![s, z]))
    }

    fn step(&self, x_t: &Tensor, at: usize, state: &mut State) -> Result<Tensor> {
        let (p, seen) = (&self.projections, at + 1);
        let at = RotaryPositions::Token(at);
        let [q, k, v] = p.qkv(&x_t.unsqueeze(1)?, &at)?;
        let features = self.features([&q, &k], &at)?;
        let [q, k] = &features.normaliser;
        let [phi, psi] = &features.numerator;
        let s = accumulate(&state.0[0], &p.split(psi)?, &p.split(&v)?)?; // (batch, heads, m, e)
        let z = (&state.0[1] + p.split(k)?)?; // (batch, heads, 1, m)
        let eta = (p.split(q)? * &z)?.sum_keepdim(3)?; // (batch, heads, 1, 1)
        let mut o = p.split(phi)?.matmul(&s)?.broadcast_div(&eta)?;
        if let Some(scale) = self.scale(|| Tensor::new(seen as f64, o.device()), &o)? {
            o = o.broadcast_mul(&scale)?;
        }
        *state = State::new(vec![s, z]);
        p.output_step(&o)
    }
}
