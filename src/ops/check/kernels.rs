//! The check that the kernels of an op must pass.

use super::{compare, partial_tracking_in, run, Case};
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
    for case in cases {
        for (dtype, tolerance) in [(DType::F32, 2e-5), (DType::BF16, 1.2e-2)] {
            let expected = run(&case.rounded_to(dtype).vars(DType::F64), &reference);
            let before = launches();
            let got = emulated(|| run(&case.vars(dtype), &fused));
            assert!(launches() > before + 1, "no kernels forward and backward");
            let what = format!("{} by kernels in {dtype:?}", case.name);
            compare(&what, &got, &expected, tolerance);
        }
    }
    emulated(|| partial_tracking_in(DType::F32, &cases[0], &fused));
}
