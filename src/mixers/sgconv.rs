//! SGConv (Li et al. 2022): a convolution as long as the sequence whose kernel is laid end to end of pieces, each with as many free
//! taps, stretched to twice the length of the one before it and weaker.

use super::{Core, Entry, Family, Growth, Mixer, MixerOption, MixerSpec, MixerWork, ReleasedBlock};
use crate::nn::{Cx, Init, Params};
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
            help: "free taps of a piece of the kernel: `16`, up to 4096",
            default: |_| "16",
            accepts: |v| v.parse::<usize>().is_ok_and(|taps| (1..=4096).contains(&taps)),
            short: Some("2"),
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "scales",
            help: "pieces of the kernel, which reaches taps · 2^(scales-1) tokens back: `10`, up to 20",
            default: |_| "10",
            accepts: |v| v.parse::<usize>().is_ok_and(|scales| (1..=20).contains(&scales)),
            short: Some("3"),
            ..MixerOption::DEFAULT
        },
        MixerOption {
            name: "decay",
            help: "factor α from a piece to the next, above 0: `0.5`, at most 1",
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
    /// The taps of all pieces, the first piece's first, `(d, scales · taps)`.
    pieces: Tensor,
    dskip: Tensor,
    taps: usize,
    decay: f64,
}

/// How far piece `scale` is stretched: the first two are as long as each other, so that lengths double from there on.
fn stretch(scale: usize) -> usize {
    1 << scale.saturating_sub(1)
}

impl SgConv {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let number = |name: &str| spec.option(name).and_then(|v| v.parse::<f64>().ok());
        let taps = number("taps").map_or(16, |n| n as usize);
        let scales = number("scales").map_or(10, |n| n as usize);
        let decay = number("decay").unwrap_or(0.5);
        // Published kernels are divided by the norm they start with. Here they start with a norm near 1: a tap between two free
        // ones has two thirds of their variance on average.
        let squared = |scale: usize| {
            let share = if stretch(scale) == 1 { 1.0 } else { 2.0 / 3.0 };
            decay.powi(2 * scale as i32) * share * (taps * stretch(scale)) as f64
        };
        let std = (0..scales).map(squared).sum::<f64>().powf(-0.5);
        let (d, width) = (spec.d_model, scales * taps);
        Ok(Self {
            pieces: params.get("pieces", (d, width), Init::Normal(std))?,
            dskip: params.get("dskip", d, Init::Normal(1.0))?,
            taps,
            decay,
        })
    }

    /// The kernel of at most `len` taps, `(d, taps)`.
    fn kernel(&self, len: usize) -> Result<Tensor> {
        let (_, width) = self.pieces.dims2()?;
        let mut parts = Vec::new();
        let mut start = 0;
        for scale in 0..width / self.taps {
            if start >= len {
                break;
            }
            let count = (self.taps * stretch(scale)).min(len - start);
            let own = self.pieces.narrow(1, scale * self.taps, self.taps)?;
            let map = Tensor::from_vec(
                stretched(self.taps, stretch(scale), count),
                (self.taps, count),
                own.device(),
            )?;
            let map = (map.to_dtype(own.dtype())? * self.decay.powi(scale as i32))?;
            parts.push(own.contiguous()?.matmul(&map)?);
            start += count;
        }
        Tensor::cat(&parts, 1)?.contiguous()
    }
}

/// The map `(taps, count)` to the first `count` of `taps · by` taps, by straight lines between the free ones, which lie in the
/// middle of their stretches; before the first and behind the last the kernel is level.
fn stretched(taps: usize, by: usize, count: usize) -> Vec<f64> {
    let mut map = vec![0.0; taps * count];
    for at in 0..count {
        let place = ((at as f64 + 0.5) / by as f64 - 0.5).clamp(0.0, (taps - 1) as f64);
        let (low, share) = (place as usize, place.fract());
        map[low * count + at] += 1.0 - share;
        map[(low + 1).min(taps - 1) * count + at] += share;
    }
    map
}

impl Mixer for SgConv {
    fn forward(&self, u: &Tensor, cx: &Cx) -> Result<Tensor> {
        let y = ops::long_conv(u, &self.kernel(u.dim(1)?)?)?;
        ops::add_scaled(&cx.select(&y)?, &cx.select(u)?, &self.dskip)
    }

    /// Decoding keeps what the convolution has read: no shorter state gives its kernel.
    fn state_size(&self, seq_len: usize) -> usize {
        seq_len * self.dskip.elem_count()
    }

    fn without_system(&self) -> &'static str {
        "its kernel is no sum of finitely many decays; a register of all tokens would be one, of size L d"
    }
}
