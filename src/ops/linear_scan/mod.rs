//! The linear recurrence with one number of state per channel, real or complex, and given decays.

mod complex;
mod cpu;
mod launch;
mod reference;

pub use complex::complex_scan;
pub(super) use launch::{Direction, Extent, REAL};

use crate::gpu::Buffer;
use crate::runtime::autograd::{apply_one, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use crate::runtime::float::Float;
use crate::runtime::shape;
use candle_core::{Result, Shape, Tensor};

/// h_t = a_t h_{t-1} + x_t elementwise, h_{-1} = 0.
///
/// `a`, `x`: (B, L, N); result (B, L, N).
pub fn linear_scan(a: &Tensor, x: &Tensor) -> Result<Tensor> {
    let scan = LinearScan::check(a, x)?;
    if runs_on(a) {
        apply_one(scan, &[a, x])
    } else {
        reference::linear_scan(a, x)
    }
}

struct LinearScan(Extent);

impl LinearScan {
    fn check(a: &Tensor, x: &Tensor) -> Result<Self> {
        let [batch, len, width] = shape::dims(Self::NAME, ("a", a))?;
        shape::expect(Self::NAME, ("x", x), ("a", a), &[batch, len, width])?;
        Ok(Self(Extent::of(batch, len, width)))
    }
}

impl FusedOp for LinearScan {
    const NAME: &'static str = "linear_scan";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![(self.0.batch, self.0.len, self.0.width).into()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        vec![cpu::forward(self, ins[0], ins[1])]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        cpu::backward(self, call.ins[0], call.only())
    }

    fn launch(&self, call: Launch) -> Result<Vec<Buffer>> {
        launch::forward(call, REAL, self.0)
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        launch::backward(call, REAL, self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::check::{self, Case};

    fn cases() -> Vec<Case> {
        let sizes = [1, 2, 63, 64, 65, 1000].map(|len| (1 + len % 2 * 6, len, 1 + len % 7 * 5));
        let case = |(batch, len, width)| {
            Case::new(format!("{batch} x {len} x {width}"))
                .uniform("a", &[batch, len, width], 0.0, 1.0)
                .normal("x", &[batch, len, width])
        };
        sizes.into_iter().map(case).collect()
    }

    fn fused(ins: &[Tensor]) -> Result<Tensor> {
        linear_scan(&ins[0], &ins[1])
    }

    fn reference(ins: &[Tensor]) -> Result<Tensor> {
        reference::linear_scan(&ins[0], &ins[1])
    }

    #[test]
    fn fused_equals_reference() {
        check::agree(&cases(), fused, reference);
    }

    #[test]
    fn kernels_equal_the_reference() {
        check::kernels_agree(&cases(), fused, reference);
    }

    #[test]
    fn kernels_agree_in_any_number_of_pieces() {
        for pieces in [1, 2, 4, 31] {
            let in_pieces = |ins: &[Tensor]| {
                let scan = LinearScan::check(&ins[0], &ins[1])?;
                apply_one(LinearScan(scan.0.cut(pieces)), &[&ins[0], &ins[1]])
            };
            check::kernels_agree(&cases()[1..5], in_pieces, reference);
        }
    }

    #[test]
    fn many_channels_take_one_piece_and_few_take_more() {
        let pieces = |batch, len, width| Extent::of(batch, len, width).slots() / (batch * width);
        assert_eq!(pieces(512, 64, 64), 1);
        assert_eq!(pieces(64, 512, 512), 1);
        assert_eq!(pieces(1, 20, 64), 1);
        assert_eq!(pieces(1, 4096, 128), 128);
        assert_eq!(pieces(8, 4096, 512), 16);
    }

    #[test]
    fn gradients_are_finite_differences() {
        let case = Case::new("tiny").normal("a", &[2, 3, 2]).normal("x", &[2, 3, 2]);
        check::finite_differences(&case, fused);
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        check::same_bits(&cases()[4], fused);
        let long = Case::new("long").uniform("a", &[1, 70, 200], 0.0, 1.0);
        check::same_bits(&long.normal("x", &[1, 70, 200]), fused);
    }

    #[test]
    fn every_subset_of_inputs_can_be_tracked() {
        check::partial_tracking(&cases()[2], fused);
    }

    #[test]
    fn a_wrong_shape_is_named() {
        check::refuses(&[&[2, 3, 4], &[2, 3, 5]], fused, "linear_scan: x has shape [2, 3, 5]");
    }
}
