//! mLSTM, the matrix memory of xLSTM (Beck et al. 2024): linear attention with a forget gate and an exponential input gate a
//! head, normalised by the sum of what was written but never by less than 1.

use super::matrix_state::{log_sigmoid, work, Drive, MatrixMixer, MatrixState, Sizes};
use super::rotary::Positions;
use super::running_max::running_max;
use super::{Entry, Family, Growth, MixerSpec};
use crate::nn::{linear, project, Init, Map, Params};
use crate::ops;
use candle_core::{Result, Tensor, D};

pub(super) const ENTRY: Entry = Entry {
    name: "mlstm",
    equation: "C_i = f_i C_{i-1} + e^(w·u_i+b) k_i v_iᵀ, h_i = C_iᵀ q_i / max(|n_i·q_i|, 1)",
    cite: "Beck et al. 2024",
    dsf: "N = n d/s",
    heads: true,
    expands: true,
    growth: Growth::Exact {
        zeroed: &["wq", "bq"],
        scaled: &["wk"],
    },
    stem: "mlstm",
    own_init: &["bf", "bi", "wf", "wi"],
    work: |spec| {
        let mut work = work(spec, 2);
        work.projections += 2 * spec.n_heads * spec.d_model;
        Some(work)
    },
    build: |spec, params| Ok(Box::new(MatrixMixer(MLstm::new(spec, params)?))),
    ..Entry::of(Family::Recurrent)
};

struct MLstm {
    q: [Tensor; 2],
    k: [Tensor; 2],
    v: [Tensor; 2],
    /// Pre-activations of the input gates, one a head.
    i: [Tensor; 2],
    /// Of the forget gates, one a head.
    f: [Tensor; 2],
    /// Of the output gates, one a channel.
    o: [Tensor; 2],
    out: [Tensor; 2],
    sizes: Sizes,
}

impl MLstm {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n, heads) = (spec.d_model, spec.d_state, spec.n_heads);
        let map = |[weight, bias]: [&str; 2], rows: usize, std| -> Result<[Tensor; 2]> {
            Ok([
                params.weight(weight, (rows, d), std)?,
                params.bias(bias, rows, d)?,
            ])
        };
        // Gates do not read their input at first; memories start long and of several lengths.
        let last = heads.saturating_sub(1).max(1) as f64;
        let remember = |head: usize, _: &mut _| 3.0 + 3.0 * head as f64 / last;
        let gate = |[weight, bias]: [&str; 2], init| -> Result<[Tensor; 2]> {
            Ok([
                params.get(weight, (heads, d), Init::Constant(0.0))?,
                params.get(bias, heads, init)?,
            ])
        };
        let sizes = Sizes::of(spec);
        Ok(Self {
            q: map(["wq", "bq"], n, spec.input_std)?,
            k: map(["wk", "bk"], n, spec.input_std)?,
            v: map(["wv", "bv"], d, spec.input_std)?,
            i: gate(["wi", "bi"], Init::Normal(0.1))?,
            f: gate(["wf", "bf"], Init::Each(&remember))?,
            o: map(["wo", "bo"], d, spec.input_std)?,
            out: map(["wout", "bout"], d, spec.output_std)?,
            sizes: Sizes {
                columns: sizes.values + 1,
                ..sizes
            },
        })
    }
}

impl MLstm {
    /// Exponents of the input gates and logarithms of the forget gates along u, `(batch, seq_len, heads)` each.
    fn gates(&self, u: &Tensor) -> Result<[Tensor; 2]> {
        let [w, b] = [0, 1].map(|part| Tensor::cat(&[&self.i[part], &self.f[part]], 0));
        let gates = linear(u, &w?, Some(&b?))?;
        let gate = |i: usize| gates.narrow(2, i * self.sizes.heads, self.sizes.heads);
        Ok([gate(0)?, log_sigmoid(&gate(1)?.contiguous()?)?])
    }
}

/// Logarithms of decays and of what is written, for a state that is held divided by e^m, and m: the largest exponent so far,
/// which nothing else depends on.
fn scaled(input: &Tensor, log_forget: &Tensor) -> Result<[Tensor; 3]> {
    let m = running_max(log_forget, input)?;
    let before = Tensor::cat(&[&m.narrow(1, 0, 1)?, &m.narrow(1, 0, m.dim(1)? - 1)?], 1)?;
    let decay = (log_forget + (before - &m)?)?;
    Ok([decay, (input - &m)?, m])
}

impl MatrixState for MLstm {
    const AROUND: Option<&'static str> = None;

    fn sizes(&self) -> Sizes {
        self.sizes
    }

    fn drive(&self, u: &Tensor, at: &Positions) -> Result<Drive> {
        fn map([w, b]: &[Tensor; 2]) -> Map<'_> {
            (w, Some(b))
        }
        let (cx, sizes) = (at.cx(), self.sizes);
        let all = [map(&self.k), map(&self.v)];
        let maps = project(u, &all, &[map(&self.q), map(&self.o)], cx)?;
        // k = W_k u / √m + b: the scale is the weights' alone.
        let scale = (sizes.features as f64).powf(-0.5);
        let unscaled = (&self.k[1] * (1.0 - scale))?.to_dtype(u.dtype())?;
        let k = sizes.split(&(&maps.all[0] * scale)?.broadcast_add(&unscaled)?)?;
        let v = sizes.split(&maps.all[1])?;
        let [input, log_forget] = self.gates(u)?;
        let [decay, write, m] = match at {
            Positions::Sequence(_) => scaled(&input, &log_forget)?,
            Positions::Token(_) => [log_forget, input.clone(), input.zeros_like()?],
        };
        let k = k.broadcast_mul(&write.exp()?.unsqueeze(3)?)?;
        let ones = v.narrow(3, 0, 1)?.ones_like()?;
        let floor = cx.select(&m.neg()?.exp()?)?;
        Ok(Drive {
            q: sizes.split(&maps.queried[0])?,
            k,
            v: Tensor::cat(&[&v, &ones], 3)?,
            g: decay.unsqueeze(3)?,
            beside: Tensor::cat(&[&maps.queried[1], &floor], 2)?,
        })
    }

    fn gate(&self, u: &Tensor) -> Result<Option<Tensor>> {
        let [input, log_forget] = self.gates(u)?;
        let [_, write, _] = scaled(&input, &log_forget)?;
        write.exp().map(Some)
    }

    fn factor(&self, o: &Tensor, beside: &Tensor) -> Result<Option<Tensor>> {
        let Sizes { heads, values, .. } = self.sizes;
        let gate = ops::sigmoid(&beside.narrow(2, 0, heads * values)?.contiguous()?)?;
        let floor = beside.narrow(2, heads * values, heads)?;
        let sum = o.narrow(D::Minus1, values, 1)?.squeeze(D::Minus1)?;
        let scale = sum.abs()?.maximum(&floor)?.recip()?.unsqueeze(3)?;
        let (batch, rows, ..) = o.dims4()?;
        let scale = scale
            .broadcast_as((batch, rows, heads, values))?
            .contiguous()?;
        (gate * scale.flatten_from(2)?).map(Some)
    }

    fn value(&self) -> Map<'_> {
        (&self.v[0], Some(&self.v[1]))
    }

    fn output(&self) -> Option<Map<'_>> {
        Some((&self.out[0], Some(&self.out[1])))
    }
}
