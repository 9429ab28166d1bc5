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
        check::bits_of_reference(&case, fused, by_reference);
        check::same_bits(&case, fused);
        check::kernels_agree(&[case], fused, by_reference);
    }
    let case = Case::new("several tasks").normal("x", &[70, 3, 400]);
    let sizes = [100, 7, 293];
    let fused = |ins: &[Tensor]| reordered(split(&ins[0], 2, &sizes)?);
    check::bits_of_reference(&case, fused, |ins| reordered(reference::split(&ins[0], 2, &sizes)?));
    check::partial_tracking(&case, fused);
}

#[test]
fn joined_tensors_equal_the_reference() {
    let shapes: [(&[&[usize]], usize); 3] =
        [(&[&[3, 2], &[3, 5]], 1), (&[&[4, 3], &[3, 3], &[1, 3], &[2, 3]], 0), (&[&[2, 5, 33], &[2, 5, 1]], 2)];
    for (shapes, axis) in shapes {
        let case = Case::new(format!("{shapes:?} at {axis}"));
        let case = shapes.iter().enumerate().fold(case, |case, (i, shape)| case.normal(&i.to_string(), shape));
        let by_reference = |ins: &[Tensor]| reference::join(&ins.iter().collect::<Vec<_>>(), axis);
        check::bits_of_reference(&case, |ins| join(ins, axis), by_reference);
        check::partial_tracking(&case, |ins| join(ins, axis));
        check::kernels_agree(&[case], |ins| join(ins, axis), by_reference);
    }
}

/// The same tensor twice gets the sum of both gradients.
#[test]
fn a_tensor_can_be_joined_to_itself() {
    let x = candle_core::Var::rand(-1f32, 1.0, (2, 2), &candle_core::Device::Cpu).unwrap();
    let grads = emulated(|| {
        let whole = join(&[x.as_tensor(), x.as_tensor()], 1).unwrap();
        let weights = Tensor::new(&[[1f32, 2.0, 3.0, 4.0]; 2], x.device()).unwrap();
        crate::backward(&(whole * weights).unwrap().sum_all().unwrap()).unwrap()
    });
    assert_eq!(grads.get(&x).unwrap().to_vec2::<f32>().unwrap(), [[4.0, 6.0]; 2]);
}

#[test]
fn joined_tensors_must_fit() {
    let x = Tensor::zeros((2, 5), candle_core::DType::F32, &candle_core::Device::Cpu).unwrap();
    for other in [x.narrow(0, 0, 1).unwrap(), x.flatten_all().unwrap(), x.to_dtype(candle_core::DType::F64).unwrap()] {
        assert!(emulated(|| join(&[&x, &other], 1)).is_err(), "{:?}", other.shape());
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

#[test]
fn kernels_index_large_tensors() {
    let case = Case::new("large").normal("x", &[1, 16, 64]);
    let second = |parts: Vec<Tensor>| Ok(parts[1].clone());
    let fused = |ins: &[Tensor]| second(split(&ins[0], 2, &[24, 40])?);
    check::large(&case).agrees(fused, |ins| second(reference::split(&ins[0], 2, &[24, 40])?));
    let case = Case::new("large").normal("x", &[1, 16, 24]).normal("y", &[1, 16, 40]);
    check::large(&case).agrees(|ins| join(ins, 2), |ins| reference::join(&[&ins[0], &ins[1]], 2));
}
