//! DSS (Gupta et al. 2022): a diagonal state space model whose kernel is normalised by a complex softmax over L
//! positions, so that no mode can blow up, whatever the sign of Re A,
//!
//! y = K * u + D ⊙ u,  K_l = 2 Re Σ_k (w_k / A_k) softmax_l(Δ A_k l)
//!
//! | symbol | meaning | shape |
//! |---|---|---|
//! | A, w | eigenvalues and weights, complex, one of each conjugate pair | `(d, m)` |
//! | Δ | step size e^(`log_dt`) | `(d)` |
//! | L | length of the kernel; shorter inputs read its first taps | option `l_max` |

use super::complex::Complex;
use super::diagonal::{initial_log_dt, vandermonde_kernel, Start};
use super::{kernel_length, Core, Entry, Family, Growth, Mixer, MixerOption, MixerSpec, MixerWork, ReleasedBlock};
use crate::nn::{Cx, Init, Params, Tables};
use crate::ops;
use crate::ops::rng::Rng;
use candle_core::{Result, Tensor};
use std::cell::OnceCell;

pub(super) const ENTRY: Entry = Entry {
    name: "dss",
    equation: "y = K * u + D u, K_l = 2 Re Σ_k (w_k/A_k) softmax_l(Δ A_k l), per channel",
    cite: "Gupta et al. 2022",
    variants: &["softmax"],
    dsf: "no (its read-out depends on L)",
    expands: true,
    released: ReleasedBlock::CHANNEL_BY_CHANNEL,
    options: &[
        kernel_length::option("length L of the softmax: `auto` is the task's --seq-len, up to 16777216", true),
        MixerOption {
            name: "start",
            help: "initial A: `linear`, -1/2 + i π k, or `legs`, the eigenvalues of the normal part of HiPPO-LegS as in the \
                   paper",
            default: |_| "linear",
            accepts: |v| v == "linear" || v == "legs",
            implied: true,
            ..MixerOption::DEFAULT
        },
    ],
    growth: Growth::Exact { zeroed: &["w_re", "w_im"], scaled: &[] },
    stem: "dss",
    own_init: &["a_im", "a_re", "dskip", "log_dt", "w_im", "w_re"],
    uncounted: &["a_im", "a_re", "w_im", "w_re"],
    work: |spec| Some(MixerWork::new(Core::LongConvolution, [spec.d_model, 2 * spec.d_state], 0)),
    build: |spec, params| Ok(Box::new(Dss::new(spec, params)?)),
    ..Entry::of(Family::StateSpace)
};

struct Dss {
    a: Complex,
    w: Complex,
    log_dt: Tensor,
    /// D, `(d)`.
    dskip: Tensor,
    /// L; `None` takes the length of the input.
    l_max: Option<usize>,
    /// Indices of the last position to the first.
    reversed: Tables<Tensor>,
}

impl Dss {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, m) = (spec.d_model, spec.d_state);
        let legs = spec.option("start") == Some("legs");
        let start = if legs { Start::Legs } else { Start::Linear };
        // Computed where a value is drawn: a model without values is only counted.
        let cell = OnceCell::new();
        let initial = |i: usize| -> [f64; 2] { cell.get_or_init(|| start.eigenvalues(m))[i % m] };
        let a_re = |i: usize, _: &mut Rng| initial(i)[0];
        let a_im = |i: usize, _: &mut Rng| initial(i)[1];
        let re = if legs { Init::Each(&a_re) } else { Init::Constant(-0.5) };
        let w = |name| params.get(name, (d, m), Init::Normal(1.0));
        Ok(Self {
            a: Complex { re: params.get("a_re", (d, m), re)?, im: params.get("a_im", (d, m), Init::Each(&a_im))? },
            w: Complex { re: w("w_re")?, im: w("w_im")? },
            log_dt: params.get("log_dt", d, Init::Each(&initial_log_dt))?,
            dskip: params.get("dskip", d, Init::Normal(1.0))?,
            l_max: kernel_length::of(spec),
            reversed: Tables::default(),
        })
    }

    /// First `len` taps of the kernel, `(d, len)`, or all L of them, if it has fewer.
    fn kernel(&self, len: usize) -> Result<Tensor> {
        let l_max = self.l_max.unwrap_or(len);
        let len = len.min(l_max);
        let p = self.a.scaled(&self.log_dt.exp()?.unsqueeze(1)?)?;
        // Growing modes are evaluated from their end, against overflow:
        // e^{p l} / Σ e^{p l} = e^{-p (L-1-l)} / Σ e^{-p l}.
        let grows = p.re.detach().gt(0.0)?.to_dtype(p.re.dtype())?;
        let decays = grows.affine(-1.0, 1.0)?;
        let decaying_p = p.scaled(&(&decays - &grows)?)?;
        // Geometric series: Σ_l e^{p l} = (e^{p L} - 1) / (e^p - 1).
        let sum = decaying_p.affine(l_max as f64, 0.0)?.exp_m1()?;
        let sum = sum.times(&decaying_p.exp_m1()?.recip()?)?;
        let c = self.w.times(&self.a.times(&sum)?.recip()?)?;
        let a = decaying_p.exp()?;
        let forward = vandermonde_kernel(&a, &c.scaled(&decays)?, len)?; // (d, len)
        let mut c_grows = c.scaled(&grows)?;
        if len < l_max {
            let skipped = decaying_p.affine((l_max - len) as f64, 0.0)?;
            c_grows = c_grows.times(&skipped.exp()?)?;
        }
        let backward = vandermonde_kernel(&a, &c_grows, len)?;
        let reversed = || Tensor::new((0..len as u32).rev().collect::<Vec<_>>(), p.re.device());
        forward + backward.index_select(&self.reversed.of(len, reversed)?, 1)?
    }
}

impl Mixer for Dss {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let y = ops::long_conv(u, &self.kernel(u.dim(1)?)?)?;
        ops::add_scaled(&cx.select(&y)?, &cx.select(u)?, &self.dskip)
    }

    /// Beyond L tokens the last L inputs are kept as well, since the oldest one leaves the sum.
    fn state_size(&self, seq_len: usize) -> usize {
        let kept = self.l_max.filter(|l_max| seq_len > *l_max);
        2 * self.a.re.elem_count() + kept.unwrap_or(0) * self.dskip.elem_count()
    }

    fn without_system(&self) -> &'static str {
        "its softmax runs over all L positions, so that its output depends on L"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipes;
    use candle_core::{DType, Device};

    #[test]
    fn the_start_of_the_paper_is_that_of_hippo() {
        let settings = [("preset", "smoke"), ("mixer", "dss"), ("d", "2"), ("n", "4"), ("option", "start=legs")];
        let model = recipes::run("mqar", &settings).unwrap().model;
        let dss = Dss::new(&MixerSpec::from(&model), &Params::seeded(1, DType::F64, &Device::Cpu)).unwrap();
        let [re, im] = [&dss.a.re, &dss.a.im].map(|x| x.to_vec2::<f64>().unwrap());
        for channel in 0..2 {
            for (k, expected) in Start::Legs.eigenvalues(4).into_iter().enumerate() {
                assert_eq!([re[channel][k], im[channel][k]], expected);
            }
        }
    }
}
