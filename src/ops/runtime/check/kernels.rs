//! Check of an op's kernels.

use super::{compare, part, partial_tracking_in, run, Case};
use crate::gpu::{with_factors, Factors};
use crate::runtime::distance::Distance;
use candle_core::{DType, Result, Tensor};
use dsf_emulation::{emulated, launches};

/// Checks that output and gradients of the kernels of `fused` agree with `reference`: for
/// activations in f32 and in bf16 (up to the rounding of inputs and outputs), and for every subset
/// of tracked inputs of the first case. The emulation also checks every memory access.
pub(crate) fn kernels_agree(
    cases: &[Case],
    fused: impl Fn(&[Tensor]) -> Result<Tensor>,
    reference: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    let of_rows = Distance::limit(DType::BF16).of_rows;
    kernels_agree_to(of_rows, cases, fused, reference);
}

/// [`kernels_agree`] with another limit for rows of results in bf16, for an op that rounds terms which cancel.
pub(crate) fn kernels_agree_to(
    of_rows: f64,
    cases: &[Case],
    fused: impl Fn(&[Tensor]) -> Result<Tensor>,
    reference: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    let of_scale = Distance::limit(DType::BF16).of_scale;
    let in_16_bits = Distance { of_rows, of_scale };
    for case in cases {
        for (dtype, limit) in [(DType::F32, Distance::limit(DType::F32)), (DType::BF16, in_16_bits)] {
            let expected = case.rounded_to(dtype).vars(DType::F64);
            let expected = run(&expected, &reference);
            let before = launches();
            let got = emulated(|| run(&case.rounded_to(dtype).vars(dtype), &fused));
            assert!(launches() > before + 1, "no kernels forward and backward");
            let what = format!("{} by kernels in {dtype:?}", case.name);
            compare(&what, &got, &expected, limit);
        }
    }
    emulated(|| partial_tracking_in(DType::F32, &cases[0], &fused));
}

/// Checks the kernels of an op in f32 whose products round factors to TF32, against `reference` without that rounding.
/// `of_products` tells for the output, and then for each gradient, whether it results from products, of which up to
/// `depth` are consecutive. Such a result may differ by the rounding of both factors in each product, and must differ
/// by more than f32 rounding; any other result may differ only by f32 rounding.
pub(crate) fn rounded_to_tf32(
    depth: usize,
    case: &Case,
    of_products: &[bool],
    fused: impl Fn(&[Tensor]) -> Result<Tensor>,
    reference: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    const ROUNDING: f64 = 1.0 / 2048.0; // half of a last place, of 11 bits
    let exact = Distance::limit(DType::F32);
    let rounded = Distance {
        of_rows: 2.0 * depth as f64 * ROUNDING,
        // Rounding errors have either sign. TF32 has three bits more than bf16.
        of_scale: Distance::limit(DType::BF16).of_scale / 8.0,
    };
    let case = case.rounded_to(DType::F32);
    let expected = run(&case.vars(DType::F64), &reference);
    let run_in_tf32 = || run(&case.vars(DType::F32), &fused);
    let got = emulated(|| with_factors(Factors::Tf32, run_in_tf32));
    assert_eq!(of_products.len(), got.len());
    for (i, &of_product) in of_products.iter().enumerate() {
        let apart = Distance::new(&got[i], &expected[i]).unwrap();
        let (most, limit) = apart.worse(if of_product { rounded } else { exact });
        let what = format!("{} in tf32, {}: {apart:?}", case.name, part(i));
        assert!(most <= limit, "{what}, limit {limit:e}");
        assert_eq!(apart.of_rows > exact.of_rows, of_product, "{what}");
    }
}
