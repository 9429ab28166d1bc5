//! The rules of discretisation inside the loops.

use crate::pointwise::Phi1;
use crate::runtime::float::Float;
use crate::runtime::lanes::{each, splat, Lanes, LANES};
use std::f64::consts::LN_2;

/// States computed together, so that the inputs of a channel are loaded once for all of them. The last block is padded
/// with states that stay zero.
pub(super) const BLOCK: usize = 4;

/// One group of lanes per state of a block.
pub(super) type LaneBlock<F> = [Lanes<F>; BLOCK];

/// The rates of a block of states: a log2(e), and, for rules that scale the input by state, a and 1/a.
pub(super) struct Rates<F> {
    pub(super) log2: LaneBlock<F>,
    pub(super) a: LaneBlock<F>,
    inverse: LaneBlock<F>,
}

/// The rate of one state: a log2(e), a and 1/a.
#[derive(Clone, Copy)]
pub(super) struct RateOf<F> {
    log2: F,
    a: F,
    inverse: F,
}

impl<F: Float> Rates<F> {
    #[inline(always)]
    pub(super) fn of<R: Stepping>(log2: LaneBlock<F>) -> Self {
        let mut rates = Self { log2, a: [splat(F::zero()); BLOCK], inverse: [splat(F::zero()); BLOCK] };
        if R::SCALES_BY_STATE {
            for ((a, inverse), log2) in rates.a.iter_mut().zip(&mut rates.inverse).zip(&log2) {
                *a = each(|i| log2[i] * F::of(LN_2));
                *inverse = each(|i| F::one() / a[i]);
            }
        }
        rates
    }

    #[inline(always)]
    pub(super) fn at(&self, k: usize, lane: usize) -> RateOf<F> {
        RateOf { log2: self.log2[k][lane], a: self.a[k][lane], inverse: self.inverse[k][lane] }
    }
}

/// A rule of discretisation, see [`StepRule`](crate::StepRule). Its functions run for every state and step.
pub(super) trait Stepping: Send + Sync + 'static {
    /// Whether b̄ depends on the state. Then `drive` is u, otherwise δ u.
    const SCALES_BY_STATE: bool;

    /// The part of the input that all states of a channel share.
    #[inline(always)]
    fn drive<F: Float>(u: F, delta: F) -> F {
        match Self::SCALES_BY_STATE {
            true => u,
            false => delta * u,
        }
    }

    /// The gradient of u added to `so_far`. If b̄ depends on the state, the backward pass sums the gradients of u and δ
    /// themselves; otherwise dL/dh b (`along_b`) and log2(e) dL/d(δ a) a (`along_a`).
    #[inline(always)]
    fn add_to_u<F: Float>(so_far: F, along_b: F, delta: F) -> F {
        match Self::SCALES_BY_STATE {
            true => so_far + along_b,
            false => delta.fma(along_b, so_far),
        }
    }

    /// The gradient of δ for the sums `along_b` and `along_a`.
    #[inline(always)]
    fn of_delta<F: Float>([along_b, along_a]: [F; 2], u: F) -> F {
        match Self::SCALES_BY_STATE {
            true => along_a,
            false => along_a.fma(F::of(LN_2), u * along_b),
        }
    }

    /// ā and b̄.
    fn discretise<F: Float>(delta: F, rate: RateOf<F>) -> [F; 2];
    /// b̄, dā/d(δ a) and db̄/da, given ā; only read if b̄ depends on the state. The second is also db̄/dδ, since b̄ =
    /// (ā - 1)/a.
    fn slopes<F: Float>(delta: F, rate: RateOf<F>, decay: F) -> [F; 3];
}

/// Computes several numbers for each lane by its index.
#[inline(always)]
pub(super) fn each_of<F: Float, const N: usize>(f: impl Fn(usize) -> [F; N]) -> [Lanes<F>; N] {
    let mut out = [splat(F::zero()); N];
    for i in 0..LANES {
        let numbers = f(i);
        for (lanes, number) in out.iter_mut().zip(numbers) {
            lanes[i] = number;
        }
    }
    out
}

pub(super) struct EulerSteps;
pub(super) struct HoldSteps;
pub(super) struct BilinearSteps;

impl Stepping for EulerSteps {
    const SCALES_BY_STATE: bool = false;

    #[inline(always)]
    fn discretise<F: Float>(delta: F, rate: RateOf<F>) -> [F; 2] {
        [(delta * rate.log2).exp2(), delta]
    }

    #[inline(always)]
    fn slopes<F: Float>(delta: F, _: RateOf<F>, decay: F) -> [F; 3] {
        [delta, decay, F::zero()]
    }
}

impl HoldSteps {
    /// b̄ = (ā - 1)/a; near 0 by the power series of φ₁.
    #[inline(always)]
    fn scale<F: Float>(delta: F, rate: RateOf<F>, decay: F) -> F {
        let x = delta * rate.a;
        let (near, far) = (delta * Phi1::series(0, x), (decay - F::one()) * rate.inverse);
        if Phi1::is_near(x) {
            near
        } else {
            far
        }
    }
}

impl Stepping for HoldSteps {
    const SCALES_BY_STATE: bool = true;

    #[inline(always)]
    fn discretise<F: Float>(delta: F, rate: RateOf<F>) -> [F; 2] {
        let decay = (delta * rate.log2).exp2();
        [decay, Self::scale(delta, rate, decay)]
    }

    /// db̄/da is (δ ā - b̄)/a; near 0 by the power series of the derivative of φ₁.
    #[inline(always)]
    fn slopes<F: Float>(delta: F, rate: RateOf<F>, decay: F) -> [F; 3] {
        let scale = Self::scale(delta, rate, decay);
        let x = delta * rate.a;
        let (near, far) = (delta * delta * Phi1::series(1, x), (delta * decay - scale) * rate.inverse);
        [scale, decay, if Phi1::is_near(x) { near } else { far }]
    }
}

impl Stepping for BilinearSteps {
    const SCALES_BY_STATE: bool = true;

    #[inline(always)]
    fn discretise<F: Float>(delta: F, rate: RateOf<F>) -> [F; 2] {
        let half = F::of(0.5) * delta * rate.a;
        let shrink = F::one() / (F::one() - half);
        [(F::one() + half) * shrink, delta * shrink]
    }

    /// db̄/da is b̄²/2.
    #[inline(always)]
    fn slopes<F: Float>(delta: F, rate: RateOf<F>, _: F) -> [F; 3] {
        let shrink = F::one() / (F::one() - F::of(0.5) * delta * rate.a);
        let scale = delta * shrink;
        [scale, shrink * shrink, F::of(0.5) * scale * scale]
    }
}
