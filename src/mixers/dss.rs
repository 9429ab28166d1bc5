//! DSS (Gupta et al. 2022): a diagonal state space model whose kernel is a sum of complex softmaxes over L positions, so that
//! no mode can grow whatever its sign. L is the longest input of the task; the kernel has as many taps, of which a shorter input
//! meets the first ones.

use super::complex::Complex;
use super::diagonal::{log_step, taps};
use super::{
    kernel_length, Core, Entry, Family, Growth, Mixer, MixerSpec, MixerWork, ReleasedBlock,
};
use crate::nn::{Cx, Init, Params};
use crate::ops;
use candle_core::{Result, Tensor};
use std::f64::consts::PI;

pub(super) const ENTRY: Entry = Entry {
    name: "dss",
    equation: "y = K * u + D u, K_l = 2 Re Σ_k (w_k/A_k) softmax_l(Δ A_k l), per channel",
    cite: "Gupta et al. 2022",
    variants: &["softmax"],
    dsf: "no (its read-out depends on L)",
    expands: true,
    released: ReleasedBlock::CHANNEL_BY_CHANNEL,
    options: &[kernel_length::option(
        "positions of the softmax, L: `auto` is the task's --seq-len, up to 16777216",
        true,
    )],
    growth: Growth::Exact {
        zeroed: &["w_re", "w_im"],
        scaled: &[],
    },
    stem: "dss",
    own_init: &["a_im", "a_re", "dskip", "log_dt", "w_im", "w_re"],
    uncounted: &["a_im", "a_re", "w_im", "w_re"],
    work: |spec| {
        Some(MixerWork::new(
            Core::LongConvolution,
            [spec.d_model, 2 * spec.d_state],
            0,
        ))
    },
    build: |spec, params| Ok(Box::new(Dss::new(spec, params)?)),
    ..Entry::of(Family::StateSpace)
};

struct Dss {
    a: Complex,
    w: Complex,
    log_dt: Tensor,
    dskip: Tensor,
    /// L; `None` where every input has that length.
    l_max: Option<usize>,
}

impl Dss {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, m) = (spec.d_model, spec.d_state);
        let frequency = move |i: usize, _: &mut _| PI * (i % m) as f64;
        let weight = |name| params.get(name, (d, m), Init::Normal(1.0));
        Ok(Self {
            a: Complex {
                re: params.get("a_re", (d, m), Init::Constant(-0.5))?,
                im: params.get("a_im", (d, m), Init::Each(&frequency))?,
            },
            w: Complex {
                re: weight("w_re")?,
                im: weight("w_im")?,
            },
            log_dt: params.get("log_dt", d, Init::Each(&log_step))?,
            dskip: params.get("dskip", d, Init::Normal(1.0))?,
            l_max: kernel_length::of(spec),
        })
    }

    /// The first `len` taps of the kernel, `(d, len)`; `(d, L)` if it has no more.
    fn kernel(&self, len: usize) -> Result<Tensor> {
        let positions = self.l_max.unwrap_or(len);
        let len = len.min(positions);
        let p = self.a.scaled(&self.log_dt.exp()?.unsqueeze(1)?)?;
        // A mode that grows is taken from its end, where it is largest: e^{p l} / Σ e^{p l} is e^{-p (L-1-l)} / Σ e^{-p l}.
        let grows = p.re.detach().gt(0.0)?.to_dtype(p.re.dtype())?;
        let falls = grows.affine(-1.0, 1.0)?;
        let falling = p.scaled(&(&falls - &grows)?)?;
        // The sum of a geometric series.
        let sum = falling.affine(positions as f64, 0.0)?.exp_m1()?;
        let sum = sum.times(&falling.exp_m1()?.recip()?)?;
        let read = self.w.times(&self.a.times(&sum)?.recip()?)?;
        let a = falling.exp()?;
        let forwards = taps(&a, &read.scaled(&falls)?, len)?;
        let mut from_end = read.scaled(&grows)?;
        if len < positions {
            let behind = falling.affine((positions - len) as f64, 0.0)?;
            from_end = from_end.times(&behind.exp()?)?;
        }
        let backwards = taps(&a, &from_end, len)?;
        let turned: Vec<u32> = (0..len as u32).rev().collect();
        forwards + backwards.index_select(&Tensor::new(turned, p.re.device())?, 1)?
    }
}

impl Mixer for Dss {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let y = ops::long_conv(u, &self.kernel(u.dim(1)?)?)?;
        ops::add_scaled(&cx.select(&y)?, &cx.select(u)?, &self.dskip)
    }

    /// Behind L tokens the last L of them are kept, too: the oldest leaves the sum.
    fn state_size(&self, seq_len: usize) -> usize {
        let kept = self.l_max.filter(|positions| seq_len > *positions);
        2 * self.a.re.elem_count() + kept.unwrap_or(0) * self.dskip.elem_count()
    }

    fn without_system(&self) -> &'static str {
        "its softmax runs over all positions of the task, so that the read-out depends on how many there are"
    }
}
