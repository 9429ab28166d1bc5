//! Table of predicted speeds: the fraction of its floor that each kernel in `cuda/` was expected to reach on an H200,
//! before any GPU had run it. Rows of `dsf bench --device cuda` contain the prediction next to the measurement.

use super::floors::{OpShape, H200};
use super::ops::{Op, TimedPasses, TASKS};
use candle_core::DType;

/// Fractions of the floors of forward and backward pass.
type Fractions = [f64; 2];

/// Ops, condition on the shape, and fractions in f32 and in bf16.
type Prediction = (&'static [&'static str], Condition, Fractions, Fractions);

/// No prediction.
const UNKNOWN: Fractions = [f64::NAN; 2];

const NORMS: &[&str] = &["layer_norm", "add_layer_norm", "rms_norm"];
const GLU: &[&str] = &["glu_sigmoid", "glu_gelu", "glu_gelu_tanh", "glu_silu", "glu_bilinear"];
const POOLS: &[&str] = &["pool_mean", "pool_max"];
const CHANNELS: &[&str] = &["softplus_biased", "add_scaled", "scale_heads"];
const SCANS: &[&str] = &["linear_scan", "complex_scan"];
const GATED: &[&str] = &["gated_scan", "gated_scan_reversed"];

/// The first matching row counts.
#[rustfmt::skip]
static PREDICTIONS: &[Prediction] = &[
    (&["selective_scan"], |s| s.batch > 1, [0.7, 0.45], [0.7, 0.45]),
    (SCANS, FILLS, [0.6, 0.6], [0.6, 0.6]),
    (SCANS, ALWAYS, [0.4, 0.4], [0.4, 0.4]),
    (GATED, FILLS, [0.55, 0.5], [0.55, 0.5]),
    (&["gated_scan_rg_lru"], FILLS, [0.4, 0.4], [0.4, 0.4]),
    (&["causal_conv1d"], ALWAYS, [0.75, 0.65], [0.75, 0.65]),
    (NORMS, |s| s.width > 1024, [0.4, 0.4], [0.4, 0.4]),
    (NORMS, WIDE, [0.8, 0.8], [0.8, 0.8]),
    (NORMS, NARROW, [0.5, 0.5], [0.5, 0.5]),
    (GLU, WIDE, [0.8, 0.8], [0.8, 0.8]),
    (GLU, NARROW, [0.55, 0.55], [0.55, 0.55]),
    (&["residual", "dropout"], ALWAYS, [0.8, 0.8], [0.6, 0.6]),
    (&["rotary"], WIDE, [0.75, 0.75], [0.6, 0.6]),
    (POOLS, WIDE, [0.7, 0.8], [0.6, 0.8]),
    (POOLS, NARROW, [0.4, 0.4], [0.4, 0.4]),
    (&["embedding"], WIDE, [0.6, 0.5], [0.6, 0.5]),
    (CHANNELS, WIDE, [0.75, 0.75], [0.6, 0.6]),
    (CHANNELS, NARROW, [0.6, 0.6], [0.45, 0.45]),
    (&["cross_entropy"], WIDE, [0.6, 0.6], [0.6, 0.6]),
    (&["cross_entropy"], NARROW, [0.25, 0.25], [0.25, 0.25]),
    (&["gated_readout", "silu_gate"], ALWAYS, [0.7, 0.7], [0.6, 0.5]),
    (&["select_rows"], WIDE, [0.6, 0.6], [0.6, 0.6]),
    (&["time_steps"], WIDE, [0.7, 0.7], [0.7, 0.7]),
    // Each run of sixteen taps begins with a power in f64, which takes as long as eight to sixteen taps.
    (&["vandermonde"], ALWAYS, [0.45, 0.4], UNKNOWN),
    // One warp per channel, whose every step waits for two sections and a shuffle: some 150 cycles.
    (&["cascade"], WIDE, [0.08, 0.06], UNKNOWN),
    // L / 2 multiply-adds per output, while the floor assumes transforms of length 2 L: 32 instead of 56.
    (&["long_conv"], |s| s.len == 64, [0.6, 0.6], [0.6, 0.6]),
    // cuBLAS: full f32 products reach a sixth of the floor, which assumes tf32; at d = 64 they are memory bound.
    (&["mlp"], WIDE, [0.13, 0.13], [0.6, 0.6]),
    (&["mlp"], NARROW, [0.4, 0.4], [0.4, 0.4]),
    // Derived from the bounds of the four kernels, each of which recomputes the scores, in three tf32 products.
    (&["causal_attention"], |s| *s == OpShape::from(TASKS[0]), [0.45, 0.23], UNKNOWN),
    (&["causal_attention"], |s| *s == OpShape::from(TASKS[3]), [0.095, 0.064], [0.145, 0.1]),
];

type Condition = fn(&OpShape) -> bool;

const ALWAYS: Condition = |_| true;
/// Sequences times channels give enough threads for an H200.
const FILLS: Condition = |s| s.batch * s.width >= 32_768;
const WIDE: Condition = |s| s.width == 512;
const NARROW: Condition = |s| s.width == 64;

/// Returns the predicted fraction of its floor on an H200 for `op`.
pub(super) fn predicted(op: &Op, shape: &OpShape, io: DType, pass: TimedPasses) -> Option<f64> {
    let fits = |(ops, at, ..): &&Prediction| ops.contains(&op.name) && at(shape);
    let (.., f32, bf16) = PREDICTIONS.iter().find(fits)?;
    let [forward, backward] = *if io == DType::BF16 { bf16 } else { f32 };
    let floor = |pass| H200.seconds(op.floor(shape, pass), io.size_in_bytes() as f64);
    let (first, both) = (floor(TimedPasses::Forward), floor(TimedPasses::Both));
    let fraction = match pass {
        TimedPasses::Forward => forward,
        TimedPasses::Both => both / (first / forward + (both - first) / backward),
    };
    Some(fraction).filter(|fraction| !fraction.is_nan())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::ops;

    #[test]
    fn predictions_are_fractions_of_ops_that_exist() {
        let mut found = 0;
        for op in ops::all() {
            for shape in op.sizes.on_gpu() {
                for (io, pass) in [(DType::F32, TimedPasses::Forward), (DType::BF16, TimedPasses::Both)] {
                    if let Some(fraction) = predicted(op, &shape, io, pass) {
                        assert!((0.05..1.0).contains(&fraction), "{}", op.name);
                        found += 1;
                    }
                }
            }
        }
        assert!(found > 50, "{found}");
        for name in PREDICTIONS.iter().flat_map(|row| row.0) {
            assert!(ops::find(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn both_passes_are_predicted_from_the_share_that_each_has_of_the_floor() {
        let op = ops::find("causal_conv1d").unwrap();
        let shape = OpShape::from(TASKS[3]);
        let both = predicted(op, &shape, DType::F32, TimedPasses::Both).unwrap();
        assert!((both - 1.0 / (0.4 / 0.75 + 0.6 / 0.65)).abs() < 1e-12);
    }
}
