use super::*;
use crate::runtime::check::{self, Case};
use candle_core::{DType, Device};

#[test]
fn kernels_equal_the_reference() {
    let shapes: [&[usize]; 5] = [&[3, 4], &[2, 5, 3], &[1, 1, 4], &[3, 40, 2, 7], &[2, 300, 5]];
    let cases = shapes.map(|shape| Case::new(format!("{shape:?}")).normal("x", shape));
    for case in &cases {
        check::bits_of_reference(case, |ins| shift(&ins[0]), |ins| reference::shift(&ins[0]));
        check::same_bits(case, |ins| shift(&ins[0]));
    }
    check::kernels_agree(&cases, |ins| shift(&ins[0]), |ins| reference::shift(&ins[0]));
}

#[test]
fn on_the_cpu_the_first_token_is_zero() {
    let x = Tensor::arange(0f32, 6.0, &Device::Cpu).unwrap().reshape((1, 3, 2)).unwrap();
    let y = shift(&x).unwrap().to_vec3::<f32>().unwrap();
    assert_eq!(y, [[[0.0, 0.0], [0.0, 1.0], [2.0, 3.0]]]);
    assert_eq!(x.dtype(), DType::F32);
}

#[test]
fn kernels_index_large_tensors() {
    let case = Case::new("large").normal("x", &[1, 16, 64]);
    check::large(&case).agrees(|ins| shift(&ins[0]), |ins| reference::shift(&ins[0]));
}
