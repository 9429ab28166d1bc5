//! Dropout masks that are recomputed instead of stored: element e of mask (key, index) is a
//! function of (key, index, e) alone.

use crate::gpu::{Arg, Gpu};
use crate::runtime::float::Float;
use crate::runtime::lanes::map;
use crate::runtime::rng::philox;
use candle_core::{bail, Result};

/// Philox blocks of four elements that are computed together.
const BLOCKS: usize = 16;

/// The parameters of a dropout mask, for [`dropout`](crate::dropout()) and attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The probability of dropping an element, 0 <= p < 1.
    pub p: f64,
    /// The key of the random number generator.
    pub key: [u32; 2],
    /// The training step: every step has a mask of its own.
    pub index: u64,
}

/// A dropout mask: each element is 0 with probability p, else 1 / (1 - p).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mask {
    key: [u32; 2],
    index: u64,
    threshold: u32,
    scale: f64,
}

impl Mask {
    /// `None` without dropout and for p = 0, which drops nothing.
    pub(crate) fn new(op: &str, dropout: impl Into<Option<Dropout>>) -> Result<Option<Self>> {
        let Some(Dropout { p, key, index }) = dropout.into() else {
            return Ok(None);
        };
        if !(0.0..1.0).contains(&p) {
            bail!("{op}: dropout of {p}, needed is 0 <= p < 1");
        }
        let threshold = (p * 4_294_967_296.0) as u32;
        let mask = Self { key, index, threshold, scale: 1.0 / (1.0 - p) };
        Ok((p > 0.0).then_some(mask))
    }

    /// The random bits of elements 4 block .. 4 block + 4.
    #[inline(always)]
    fn bits(&self, block: u64) -> [u32; 4] {
        let counter = [block, block >> 32, self.index, self.index >> 32];
        philox(map(counter, |word| word as u32), self.key)
    }

    /// Multiplies `x`, the elements from `first` on, by the mask.
    #[inline(always)]
    pub(crate) fn apply<F: Float>(&self, first: u64, x: &mut [F]) {
        let scale = F::of(self.scale);
        let factor = |bits: u32| {
            if bits >= self.threshold {
                scale
            } else {
                F::zero()
            }
        };
        let inside = (first % 4) as usize;
        let (head, body) = x.split_at_mut(((4 - inside) % 4).min(x.len()));
        for (x, bits) in head.iter_mut().zip(&self.bits(first / 4)[inside..]) {
            *x *= factor(*bits);
        }
        let mut block = first.div_ceil(4);
        let (whole, rest) = body.as_chunks_mut::<{ 4 * BLOCKS }>();
        for x in whole {
            let mut bits = [[0; 4]; BLOCKS];
            for (j, bits) in bits.iter_mut().enumerate() {
                *bits = self.bits(block + j as u64);
            }
            for (x, bits) in x.iter_mut().zip(bits.as_flattened()) {
                *x *= factor(*bits);
            }
            block += BLOCKS as u64;
        }
        for x in rest.chunks_mut(4) {
            for (x, bits) in x.iter_mut().zip(self.bits(block)) {
                *x *= factor(bits);
            }
            block += 1;
        }
    }

    /// Returns a mask, or none, as the parameters `MASK` of a kernel (`cuda/mask.cuh`). The kernel reads the step from
    /// GPU memory; in a recording that is the step of each replay.
    pub(crate) fn args<'a>(mask: Option<&Self>, gpu: &'a Gpu) -> Result<[Arg<'a>; 5]> {
        let Some(mask) = mask else {
            let [k0, k1, threshold] = [0; 3].map(Arg::U32);
            return Ok([Arg::Null, k0, k1, threshold, Arg::F32(1.0)]);
        };
        let [k0, k1] = mask.key.map(Arg::from);
        let (threshold, scale) = (mask.threshold.into(), (mask.scale as f32).into());
        Ok([gpu.step(mask.index)?.into(), k0, k1, threshold, scale])
    }

    /// The factors of elements 0 .. count, computed one by one.
    pub(crate) fn factors(&self, count: usize) -> Vec<f64> {
        let factor = |e: usize| {
            let kept = self.bits(e as u64 / 4)[e % 4] >= self.threshold;
            f64::from(u8::from(kept)) * self.scale
        };
        (0..count).map(factor).collect()
    }
}
