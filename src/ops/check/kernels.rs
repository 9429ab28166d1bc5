//! The check that the kernels of an op must pass.

use super::{compare, partial_tracking_in, run, Case};
use crate::distance::Distance;
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
        for (dtype, limit) in [
            (DType::F32, Distance::limit(DType::F32)),
            (DType::BF16, in_16_bits),
        ] {
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
