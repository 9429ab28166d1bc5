//! What the authors of the kernels expected before a GPU had run them: the comments at the top of
//! `cuda/*.cu`, as fractions of the floors here. Where a comment speaks of other sizes or of another
//! floor, nothing was predicted.

use super::timings::Way;
use crate::bench::ops::Shape;
use candle_core::DType;

/// The fraction of its floor that `op` was expected to reach.
pub(super) fn predicted(op: &str, shape: &Shape, io: DType, way: Way) -> Option<f64> {
    let by_type = |f32: f64, bf16: f64| if io == DType::BF16 { bf16 } else { f32 };
    let (wide, narrow) = (shape.width == 512, shape.width == 64);
    let by_width = |at_512: f64, at_64: f64| match () {
        () if wide => Some(at_512),
        () if narrow => Some(at_64),
        () => None,
    };
    let full = shape.batch * shape.width >= 32_768;
    // Of both ways, from the share that the way forward has of the floor.
    let ways = |forward: f64, backward: f64, share: f64| match way {
        Way::Forward => forward,
        Way::Both => 1.0 / (share / forward + (1.0 - share) / backward),
    };
    match op {
        "selective_scan" if shape.batch > 1 => Some(ways(0.7, 0.45, 1.0 / 3.0)),
        "linear_scan" | "complex_scan" => Some(if full { 0.6 } else { 0.4 }),
        "gated_scan" | "gated_scan_reversed" if full => Some(ways(0.55, 0.5, 1.0 / 3.0)),
        "gated_scan_rg_lru" if full => Some(0.4),
        "causal_conv1d" => Some(ways(0.75, 0.65, 2.0 / 5.0)),
        "layer_norm" | "add_layer_norm" | "rms_norm" if shape.width > 1024 => Some(0.4),
        "layer_norm" | "add_layer_norm" | "rms_norm" => by_width(0.8, 0.5),
        "glu_sigmoid" | "glu_gelu" => by_width(0.8, 0.55),
        "residual" => Some(by_type(0.8, 0.6)),
        "rotary" if wide => Some(by_type(0.75, 0.6)),
        "pool_mean" | "pool_max" => by_width(ways(by_type(0.7, 0.6), 0.8, 1.0 / 3.0), 0.4),
        "dropout" => Some(by_type(0.8, 0.6)),
        "embedding" if wide => Some(ways(0.6, 0.5, 0.5)),
        "softplus_biased" | "add_scaled" | "scale_heads" => {
            by_width(by_type(0.75, 0.6), by_type(0.6, 0.45))
        }
        "cross_entropy" => by_width(0.6, 0.25),
        "gated_readout" => Some(by_type(0.7, ways(0.6, 0.5, 4.0 / 11.0))),
        "select_rows" if wide => Some(0.6),
        "time_steps" if wide => Some(0.7),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::ops;

    #[test]
    fn predictions_are_fractions_of_ops_that_exist() {
        let mut found = 0;
        for op in ops::all() {
            for shape in op.sizes.shapes() {
                for (io, way) in [(DType::F32, Way::Forward), (DType::BF16, Way::Both)] {
                    if let Some(fraction) = predicted(op.name, &shape, io, way) {
                        assert!((0.05..1.0).contains(&fraction), "{}", op.name);
                        found += 1;
                    }
                }
            }
        }
        assert!(found > 50, "{found}");
    }
}
