//! Linear attention (16): features elu(x)+1, normalised by their sum. Katharopoulos et al. 2020. With any other
//! non-negative sum of features it is the same recurrence.

use super::attention::{accumulate, Projections};
use super::log_features::{split, LogFeatures, LOW};
use super::rotary::{Positions, RotaryEmbedding};
use super::{
    attention, Core, Entry, Family, Growth, Mixer, MixerSpec, Recurrent, ReleasedBlock, State,
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
    growth: Growth::Limit {
        zeroed: &["wq", "wk", "bq", "bk"],
        bias: "bk",
    },
    stem: "linear_attention",
    work: |spec| Some(attention::work(spec, Core::ChunkedScan)),
    build: |spec, params| {
        let map = |_: &Device| Ok(Elu1(spec.d_state / spec.n_heads));
        Ok(Box::new(LinearAttention::new(spec, params, map)?))
    },
    ..Entry::of(Family::LinearAttention)
};

/// φ, from queries or keys to features whose inner products are weights.
pub(super) trait FeatureMap {
    /// Features of a head.
    fn width(&self) -> usize;

    /// x `(batch, rows, heads · m)` to `(batch, rows, heads · width)`.
    fn features(&self, x: &Tensor) -> Result<Tensor>;

    /// The logarithms of the features of queries and keys, where the features themselves could be too small to be told from 0.
    fn logs(&self, _maps: [&Tensor; 2], _heads: usize) -> Result<Option<LogFeatures>> {
        Ok(None)
    }
}

/// elu(x) + 1 of each of m numbers.
struct Elu1(usize);

impl FeatureMap for Elu1 {
    fn width(&self) -> usize {
        self.0
    }

    fn features(&self, x: &Tensor) -> Result<Tensor> {
        ops::elu1(x)
    }

    /// It is asked of the numbers on a CPU alone, since a GPU would have to be waited for.
    fn logs(&self, [q, k]: [&Tensor; 2], heads: usize) -> Result<Option<LogFeatures>> {
        let least = |x: &Tensor| x.min_all()?.to_dtype(DType::F64)?.to_scalar::<f64>();
        if !q.device().is_cpu() || least(q)? + least(k)? >= LOW {
            return Ok(None);
        }
        // x below 0, and ln(1 + x) above.
        let log = |x: &Tensor| split(&((x.relu()? + 1.0)?.log()? - x.neg()?.relu()?)?, heads);
        Ok(Some(LogFeatures {
            q: log(q)?,
            k: log(k)?,
        }))
    }
}

/// o_i = Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j).
pub(super) struct LinearAttention<M> {
    projections: Projections,
    map: M,
    /// Rotates features in the weighted sum of values and not in the normaliser, which stays positive
    /// (Su et al. 2021).
    rotary: Option<RotaryEmbedding>,
}

impl<M: FeatureMap> LinearAttention<M> {
    /// With a feature map whose tensors lie on a device.
    pub fn new(
        spec: &MixerSpec,
        params: &Params,
        map: impl FnOnce(&Device) -> Result<M>,
    ) -> Result<Self> {
        let mut projections = Projections::new(spec, params)?;
        let after = spec.rotary.is_some_and(|rotary| rotary.after_feature_map);
        Ok(Self {
            rotary: after.then(|| projections.rotary.take()).flatten(),
            map: map(projections.device())?,
            projections,
        })
    }

    /// The logarithms of features that are too small for their products. Rotated features are no positive ones.
    fn small_features(&self, maps: [&Tensor; 2], cx: &Cx) -> Result<Option<LogFeatures>> {
        let logs = match self.rotary {
            None => self.map.logs(maps, self.projections.n_heads)?,
            Some(_) => None,
        };
        match logs {
            Some(logs) if !logs.are_moderate(cx)? => Ok(Some(logs)),
            _ => Ok(None),
        }
    }

    /// φ(q) and φ(k) for the normaliser, and both for the weighted sum of values.
    fn features(&self, [q, k]: [&Tensor; 2], positions: &Positions) -> Result<[[Tensor; 2]; 2]> {
        let (q, k) = (self.map.features(q)?, self.map.features(k)?);
        let rotated = match &self.rotary {
            Some(rotary) => rotary.apply([&q, &k], positions)?,
            None => [q.clone(), k.clone()],
        };
        Ok([[q, k], rotated])
    }
}

impl<M: FeatureMap> Mixer for LinearAttention<M> {
    fn forward(&self, x: &Tensor, cx: &Cx) -> Result<Tensor> {
        let p = &self.projections;
        let at = Positions::Sequence(cx);
        let [q, k, v] = p.maps(x, &at)?;
        if let Some(logs) = self.small_features([&q, &k], cx)? {
            return p.output(&logs.attend(p, &v, cx)?);
        }
        let [[q, k], rotated] = self.features([&q, &k], &at)?;
        let o = match &self.rotary {
            None => p.attend([&q, &k, &v], Weights::LinearNormalised, cx)?,
            Some(_) => {
                let sum = p.attend([&rotated[0], &rotated[1], &v], Weights::Plain, cx)?;
                ops::scale_heads(&sum, &p.sums(&q, &k, cx)?.recip()?)?
            }
        };
        p.output(&o)
    }

    fn state_size(&self, _seq_len: usize) -> usize {
        let (p, features) = (&self.projections, self.map.width());
        p.state_size(features) + p.n_heads * features
    }

    fn recurrent(&self) -> Option<&dyn Recurrent> {
        Some(self)
    }

    fn ltv(&self, u: &Tensor) -> Result<Option<Ltv>> {
        let (p, cx) = (&self.projections, Cx::eval());
        let at = Positions::Sequence(&cx);
        let [q, k, _] = p.maps(&u.unsqueeze(0)?, &at)?;
        let [[q, k], [read, write]] = self.features([&q, &k], &at)?;
        let eta = p.sums(&q, &k, &cx)?.squeeze(0)?.t()?;
        p.separable(&p.split(&read)?, &p.split(&write)?, &eta)
            .map(Some)
    }
}

impl<M: FeatureMap> Recurrent for LinearAttention<M> {
    fn init(&self, batch: usize) -> Result<State> {
        let s = self.projections.zero_state(batch, self.map.width())?;
        let z = s.narrow(3, 0, 1)?.transpose(2, 3)?.contiguous()?; // (batch, heads, 1, m)
        Ok(State(vec![s, z]))
    }

    fn step(&self, x_t: &Tensor, at: usize, state: &mut State) -> Result<Tensor> {
        let (p, at) = (&self.projections, Positions::Token(at));
        let [q, k, v] = p.maps(&x_t.unsqueeze(1)?, &at)?;
        let [[q, k], [read, write]] = self.features([&q, &k], &at)?;
        let s = accumulate(&state.0[0], &p.split(&write)?, &p.split(&v)?)?;
        let z = (&state.0[1] + p.split(&k)?)?;
        let eta = (p.split(&q)? * &z)?.sum_keepdim(3)?;
        let o = p.split(&read)?.matmul(&s)?.broadcast_div(&eta)?;
        *state = State(vec![s, z]);
        p.output_step(&o)
    }
}
