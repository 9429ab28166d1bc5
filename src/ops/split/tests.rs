use super::*;
use crate::runtime::check::{self, Case};
use candle_core::D;
use dsf_emulation::{emulated, launches};

/// The parts of each case, weighed and in another order.
fn reordered(parts: Vec<Tensor>) -> Result<Tensor> {
    let weighed = parts.iter().enumerate().rev().map(|(i, part)| part.flatten_all()? * (i + 1) as f64);
    Tensor::cat(&weighed.collect::<Result<Vec<_>>>()?, D::Minus1)
}

#[test]
fn kernels_equal_the_reference() {
    let shapes: [(&[usize], usize, &[usize]); 5] = [
        (&[3, 7], 1, &[2, 5]),
        (&[7, 3], 0, &[4, 3]),
        (&[2, 5, 90], 2, &[1, 33, 40, 16]),
        (&[6], 0, &[6]),
        (&[2, 4, 3], 1, &[1, 3]),
    ];
    for (shape, axis, sizes) in shapes {
        let case = Case::new(format!("{shape:?} at {axis} into {sizes:?}")).normal("x", shape);
        let fused = |ins: &[Tensor]| reordered(split(&ins[0], axis, sizes)?);
        let by_reference = |ins: &[Tensor]| reordered(reference::split(&ins[0], axis, sizes)?);
        check::kernels_agree(&[case], fused, by_reference);
    }
}

/// A part that the loss does not depend on has no gradient.
#[test]
fn an_unused_part_has_zero_gradients() {
    let x = candle_core::Var::rand(-1f32, 1.0, (2, 5), &candle_core::Device::Cpu).unwrap();
    let grads = emulated(|| {
        let before = launches();
        let parts = split(&x, 1, &[2, 3]).unwrap();
        let grads = crate::backward(&parts[1].sum_all().unwrap()).unwrap();
        assert_eq!(launches() - before, 2);
        grads
    });
    let grad = grads.get(&x).unwrap().to_vec2::<f32>().unwrap();
    assert_eq!(grad, [[0.0, 0.0, 1.0, 1.0, 1.0]; 2]);
}

#[test]
fn sizes_must_add_up() {
    let x = Tensor::zeros((2, 5), candle_core::DType::F32, &candle_core::Device::Cpu).unwrap();
    let refusal = split(&x, 1, &[2, 2]).unwrap_err().to_string();
    assert!(refusal.contains("split: sizes [2, 2] do not add up to the 5 of axis 1"), "{refusal}");
}
