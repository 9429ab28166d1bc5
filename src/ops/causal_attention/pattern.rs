//! Patterns of softmax attention: restrictions to some of the causal pairs, and biases by distance.

use crate::runtime::float::Float;
use crate::runtime::shape;
use candle_core::{bail, DType, Result, Tensor};
use std::ops::Range;

/// Restricts softmax attention to some of the past, and biases its scores by distance. The default does neither.
#[derive(Clone, Debug, Default)]
pub struct Pattern {
    /// A row at time i attends to the steps j > i - window; to the whole past if `None`. (Beltagy et al. 2020.)
    pub window: Option<usize>,
    /// Number of first steps that attend to their whole past and that every later row attends to. (Zaheer et al. 2020.)
    pub globals: usize,
    /// (L, r) of u32: row i lists further steps that a row at time i attends to; steps after i have no effect.
    pub links: Option<Tensor>,
    /// Whether 2^{-8(h+1)/s} (i - j) is subtracted from the scaled scores of head h of s, counted from 0. (Press et al.
    /// 2022.)
    pub slopes: bool,
    /// (s, distances): values added to the scaled scores of each head at a distance i - j; the last one also holds for
    /// greater distances. (Raffel et al. 2020.)
    pub bias: Option<Tensor>,
}

/// A pattern whose numbers fit the tensors.
pub(super) struct Checked {
    pub(super) pattern: Pattern,
    /// Rows of `links`; empty if they are on a GPU, or if there are none.
    links: Vec<Vec<u32>>,
}

impl Checked {
    /// Checks a pattern for queries `q` with the given number of heads, and for `len` keys.
    pub(super) fn new(op: &str, pattern: &Pattern, (q, heads): (&Tensor, usize), len: usize) -> Result<Self> {
        let mut pattern = pattern.clone();
        if let Some(bias) = &pattern.bias {
            let [_, distances] = shape::dims(op, ("bias", bias))?;
            shape::parameter(op, ("bias", bias), ("q", q), &[heads, distances])?;
        }
        if pattern.window == Some(0) {
            bail!("{}: a window of 0 steps leaves nothing to attend to, needed is 1 at least", op);
        }
        // A window of the whole sequence has no effect, and removing it enables fast paths.
        pattern.window = pattern.window.filter(|&window| window < len);
        let mut links = Vec::new();
        if let Some(tensor) = &pattern.links {
            let [rows, _] = shape::dims(op, ("links", tensor))?;
            if rows != len || tensor.dtype() != DType::U32 {
                bail!(
                    "{}: links have shape {:?} of {:?}, needed are {len} rows of U32, one for each step",
                    op,
                    tensor.dims(),
                    tensor.dtype()
                );
            }
            if tensor.device().is_cpu() {
                links = tensor.to_vec2()?;
            }
            pattern.links = Some(tensor.contiguous()?);
        }
        Ok(Self { pattern, links })
    }

    /// Factor of the distance that is subtracted from the scores of head `head` of `heads`.
    pub(super) fn slope(&self, head: usize, heads: usize) -> f64 {
        match self.pattern.slopes {
            true => (-8.0 * (head + 1) as f64 / heads as f64).exp2(),
            false => 0.0,
        }
    }

    /// Returns the window, if no step before it is attended to.
    pub(super) fn narrow(&self) -> Option<usize> {
        let alone = self.pattern.globals == 0 && self.pattern.links.is_none();
        self.pattern.window.filter(|_| alone)
    }

    /// Whether a row at `time` attends to `step`, which must not be later.
    pub(super) fn allows(&self, time: usize, step: usize) -> bool {
        let Some(window) = self.pattern.window else {
            return true;
        };
        let link = |row: &Vec<u32>| row.iter().any(|&link| link as usize == step);
        time - step < window
            || step < self.pattern.globals
            || time < self.pattern.globals
            || self.links.get(time).is_some_and(link)
    }

    /// Adds the biases to the scaled scores of a row at `time` with `steps`, none of which is later, and hides the
    /// steps that it does not attend to.
    pub(super) fn apply<F: Float>(
        &self,
        (slope, bias): (f64, Option<&[F]>),
        time: usize,
        steps: Range<usize>,
        scores: &mut [F],
    ) {
        if let Some([near @ .., far]) = bias {
            let nearest = (time + 1 - steps.end).min(near.len());
            let by_distance = near[nearest..].iter().chain(std::iter::repeat(far));
            for (score, bias) in scores.iter_mut().rev().zip(by_distance) {
                *score += *bias;
            }
        }
        if slope != 0.0 {
            for (step, score) in steps.clone().zip(scores.iter_mut()) {
                *score -= F::of(slope * (time - step) as f64);
            }
        }
        if self.narrow().is_none() && self.pattern.window.is_some() {
            for (step, score) in steps.zip(scores) {
                if !self.allows(time, step) {
                    *score = F::of(f64::NEG_INFINITY);
                }
            }
        }
    }
}
