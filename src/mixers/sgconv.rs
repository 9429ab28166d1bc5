//! SGConv (Li et al. 2022): a long convolution whose kernel is a concatenation of sub-kernels with the same number of
//! free taps, each interpolated to twice the length of the one before it and scaled down by α,
//!
//! y = K * u + D ⊙ u,  K = [w_0, α w_1, α² stretch_2(w_2), α³ stretch_4(w_3), ..]

use super::{in_range, Core, Entry, Family, Growth, Mixer, MixerOption, MixerSpec, MixerWork, ReleasedBlock};
use crate::nn::{Cx, Init, Params, Tables};
use crate::ops;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "sgconv",
    equation: "y = K * u + D ⊙ u, K = [w_0, α w_1, α² stretch_2(w_2), α³ stretch_4(w_3), ..]",
    cite: "Li et al. 2022",
    dsf: "no (its kernel has no finite rank)",
    released: ReleasedBlock::CHANNEL_BY_CHANNEL,
    options: &[
        MixerOption {
            name: "taps",
            help: "free taps of each sub-kernel: `16`, up to 4096",
            default: |_| "16",
            accepts: |v| in_range(v, 1..=4096),
            short: Some("2"),
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "scales",
            help: "number of sub-kernels; the kernel spans taps · 2^(scales-1) tokens: `10`, up to 20",
            default: |_| "10",
            accepts: |v| in_range(v, 1..=20),
            short: Some("3"),
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "decay",
            help: "factor α from one sub-kernel to the next, above 0: `0.5`, at most 1",
            default: |_| "0.5",
            accepts: |v| v.parse().is_ok_and(|a: f64| a > 0.0 && a <= 1.0),
            ..MixerOption::DEFAULT
        },
    ],
    growth: Growth::No("its kernel has no state: there is no n to grow"),
    stem: "sgconv",
    own_init: &["dskip", "pieces"],
    uncounted: &["pieces"],
    work: |spec| Some(MixerWork::new(Core::LongConvolution, [spec.d_model, 1], 0)),
    build: |spec, params| Ok(Box::new(SgConv::new(spec, params)?)),
    ..Entry::of(Family::Convolution)
};

struct SgConv {
    /// Free taps w of all sub-kernels, the shortest first, `(d, scales · taps)`.
    pieces: Tensor,
    /// D, `(d)`.
    dskip: Tensor,
    taps: usize,
    decay: f64,
    /// Interpolations of the sub-kernels that a length needs, scaled by α^s, each `(taps, count)`.
    maps: Tables<Vec<Tensor>>,
}

/// Interpolation factor of sub-kernel `scale`: 1, 1, 2, 4, .., so that the length of the whole kernel doubles with each
/// scale.
fn stretch(scale: usize) -> usize {
    1 << scale.saturating_sub(1)
}

impl SgConv {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let number = |name: &str| spec.parsed::<f64>(name);
        let taps = number("taps").map_or(16, |n| n as usize);
        let scales = number("scales").map_or(10, |n| n as usize);
        let decay = number("decay").unwrap_or(0.5);
        // The published kernel is divided by its initial norm; this one is initialised with an expected norm of 1. An
        // interpolated tap has two thirds of the variance of a free one on average.
        let squared_norm = |scale: usize| {
            let variance = if stretch(scale) == 1 { 1.0 } else { 2.0 / 3.0 };
            decay.powi(2 * scale as i32) * variance * (taps * stretch(scale)) as f64
        };
        let std = (0..scales).map(squared_norm).sum::<f64>().powf(-0.5);
        let (d, width) = (spec.d_model, scales * taps);
        Ok(Self {
            pieces: params.get("pieces", (d, width), Init::Normal(std))?,
            dskip: params.get("dskip", d, Init::Normal(1.0))?,
            taps,
            decay,
            maps: Tables::default(),
        })
    }

    /// First `len` taps of the kernel, `(d, len)`, or all of them, if it has fewer.
    fn kernel(&self, len: usize) -> Result<Tensor> {
        let maps = self.maps.of(len, || self.maps_of(len))?;
        let part = |(scale, map): (usize, &Tensor)| {
            let w = self.pieces.narrow(1, scale * self.taps, self.taps)?; // (d, taps)
            w.contiguous()?.matmul(map)
        };
        let parts = maps.iter().enumerate().map(part).collect::<Result<Vec<_>>>()?;
        Tensor::cat(&parts, 1)?.contiguous()
    }

    fn maps_of(&self, len: usize) -> Result<Vec<Tensor>> {
        let (_, width) = self.pieces.dims2()?;
        let mut maps = Vec::new();
        let mut start = 0;
        for scale in 0..width / self.taps {
            if start >= len {
                break;
            }
            let count = (self.taps * stretch(scale)).min(len - start);
            let map = interpolation(self.taps, stretch(scale), count);
            let map = Tensor::from_vec(map, (self.taps, count), self.pieces.device())?;
            maps.push((map.to_dtype(self.pieces.dtype())? * self.decay.powi(scale as i32))?);
            start += count;
        }
        Ok(maps)
    }
}

/// Matrix `(taps, count)` of linear interpolation by the factor `by`, truncated to `count` taps. Free taps lie at the
/// centres of their intervals, and the kernel is constant beyond the first and the last of them.
fn interpolation(taps: usize, by: usize, count: usize) -> Vec<f64> {
    let mut map = vec![0.0; taps * count];
    for at in 0..count {
        let position = ((at as f64 + 0.5) / by as f64 - 0.5).clamp(0.0, (taps - 1) as f64);
        let (low, weight) = (position as usize, position.fract());
        map[low * count + at] += 1.0 - weight;
        map[(low + 1).min(taps - 1) * count + at] += weight;
    }
    map
}

impl Mixer for SgConv {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let y = ops::long_conv(u, &self.kernel(u.dim(1)?)?)?;
        ops::add_scaled(&cx.select(&y)?, &cx.select(u)?, &self.dskip)
    }

    /// Elements kept when decoding: all inputs of the convolution, since its kernel has no finite-dimensional state.
    fn state_size(&self, seq_len: usize) -> usize {
        seq_len * self.dskip.elem_count()
    }

    fn without_system(&self) -> &'static str {
        "its kernel is not a finite sum of exponentials; only a shift register of all L tokens, N = L d, has it"
    }
}
