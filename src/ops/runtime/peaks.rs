//! Peak rates of one core of this processor, measured by loops that do nothing else, with the current instruction set.

use crate::gpu::Factors;
use crate::runtime::float::{in_single, Float};
use crate::runtime::gemm;
use crate::runtime::simd::Simd;
use dsf_simd::simd;
use std::hint::black_box;
use std::time::Instant;

/// Rates of one thread, each the best of several short runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// Multiplications and additions of f32 per second, fused if the instruction set supports it.
    pub flops: f64,
    /// Multiplications and additions per second in products of bf16, if the processor has a unit for them.
    pub bf16: Option<f64>,
    /// Lanes of f32 per second in multiplications and additions that are not fused.
    pub lanes: f64,
    /// Exponentials per second: powers of two of f32 below 1, as used by scans.
    pub exps: f64,
    /// Bytes of memory read and written per second, far beyond the caches.
    pub bytes: f64,
}

/// Steps per number in arithmetic loops, fused and separate: few enough that a processor can overlap as many numbers as
/// it needs to hide the latency of a step.
const FUSED: usize = 8;
const SEPARATE: usize = 4;
/// Numbers that stay in the nearest cache, and the number of passes over them in a run.
const CACHED: usize = 1 << 10;
const TURNS: usize = 64;
/// Numbers of an array that exceeds every cache.
const FAR: usize = 1 << 23;
/// Number of short runs, the best of which counts, and of the longer runs for memory.
const RUNS: usize = 40;
const PASSES: usize = 20;

impl Peaks {
    /// Multiplications and additions per second in products of such factors.
    pub fn products(&self, factors: Factors) -> f64 {
        match (factors, self.bf16) {
            (Factors::Bf16, Some(rate)) => rate,
            // Three products of bf16.
            (Factors::Tf32, Some(rate)) if Simd::current() == Simd::Amx => rate / 3.0,
            _ => self.flops,
        }
    }

    /// Measures the rates in about a third of a second. Other work on the same core makes them lower.
    pub fn measure() -> Self {
        let mut near = vec![0.5f32; CACHED];
        let numbers: Vec<f32> = (0..CACHED).map(|i| -8.0 * i as f32 / CACHED as f32).collect();
        let turns = |work: &mut dyn FnMut()| {
            let run = || (0..TURNS).for_each(|_| work());
            (CACHED * TURNS) as f64 / best(RUNS, run)
        };
        let mut separate = || separate(black_box(&mut near), black_box(0.9), black_box(0.1));
        let lanes = (2 * SEPARATE) as f64 * turns(&mut separate);
        let mut fused = || fused(black_box(&mut near), black_box(0.9), black_box(0.1));
        let flops = match Simd::current() {
            // SSE has no fused multiply-add.
            Simd::Baseline if cfg!(target_arch = "x86_64") => lanes,
            _ => (2 * FUSED) as f64 * turns(&mut fused),
        };
        let exps = in_single!(F => turns(&mut || {
            exponentials(F::wrap_slice(black_box(&numbers)), F::wrap_mut(black_box(&mut near)));
        }));
        let [x, y] = [1.0f32, 2.0].map(|x| vec![x; FAR]);
        let mut sums = vec![0.0; FAR];
        // The first pass also allocates the pages of the result, so a later pass is the best.
        let pass = best(PASSES, || add_scaled(black_box(&mut sums), black_box(&x), black_box(&y)));
        Self { flops, bf16: bf16_peak(), lanes, exps, bytes: (3 * size_of_val(&x[..])) as f64 / pass }
    }
}

/// Rate of products of bf16 on the current unit, the best of several short runs.
fn bf16_peak() -> Option<f64> {
    let (operations, mut work) = gemm::bf16_loop()?;
    Some(operations / best(RUNS, &mut work))
}

/// Returns the shortest duration of `runs` calls, in seconds.
fn best(runs: usize, mut work: impl FnMut()) -> f64 {
    let timed = (0..runs).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    });
    timed.fold(f64::INFINITY, f64::min)
}

/// x ← x · by + add, fused, several times.
#[simd]
fn fused(x: &mut [f32], by: f32, add: f32) {
    for x in x {
        *x = chain::<FUSED>(*x, |x| x.mul_add(by, add));
    }
}

/// x ← x · by + add in two instructions, several times.
#[simd]
fn separate(x: &mut [f32], by: f32, add: f32) {
    for x in x {
        *x = chain::<SEPARATE>(*x, |x| x * by + add);
    }
}

#[inline(always)]
fn chain<const STEPS: usize>(mut x: f32, step: impl Fn(f32) -> f32) -> f32 {
    for _ in 0..STEPS {
        x = step(x);
    }
    x
}

#[simd]
fn exponentials<F: Float>(x: &[F], y: &mut [F]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = x.exp2();
    }
}

/// Reads two numbers and writes one.
#[simd]
fn add_scaled(sums: &mut [f32], x: &[f32], y: &[f32]) {
    for ((sum, &x), &y) in sums.iter_mut().zip(x).zip(y) {
        *sum = x + 3.0 * y;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fusing_is_no_slower_and_an_exponential_takes_some_instructions() {
        let bounds = |&Peaks { flops, bf16, lanes, exps, bytes }: &Peaks| {
            flops > 1e8
                && flops > 0.5 * lanes
                && exps > 1e6
                && exps < lanes
                && bf16.is_none_or(|bf16| bf16 > 0.5 * flops)
                && bytes > 1e8
                && bytes < 1e13
        };
        // A busy machine may slow any part of a measurement, so one of several must be within the bounds.
        let mut measured = Vec::new();
        let holds = (0..10).any(|_| {
            measured.push(Peaks::measure());
            measured.last().is_some_and(bounds)
        });
        assert!(holds, "{measured:?}");
    }
}
