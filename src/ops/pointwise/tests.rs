use super::cpu::CHUNK;
use super::*;
use crate::runtime::check::{self, Case, Suite};
use candle_core::Device;

type Op = fn(&Tensor) -> Result<Tensor>;

/// Every function with its reference.
const ALL: [(Op, Op); 7] = [
    (sigmoid, reference::sigmoid),
    (softplus, reference::softplus),
    (elu1, reference::elu1),
    (gelu, reference::gelu),
    (gelu_tanh, reference::gelu_tanh),
    (silu, reference::silu),
    (tanh, reference::tanh),
];

fn case(count: usize) -> Case {
    Case::new(count.to_string()).uniform("x", &[count], -9.0, 9.0)
}

#[test]
fn it_passes_the_suite() {
    let of_all = Suite {
        agree: &[1, 2, 63, 64, 65, 1000].map(case),
        differences: &[case(40)],
        bits: &[case(3 * CHUNK + 11)],
        tracked: &[Case::new("strided").normal("x", &[3, 4])],
        refused: &[], // any shape will do
    };
    for (fused, reference) in ALL {
        check::suite(of_all, |ins| fused(&ins[0]), |ins| reference(&ins[0]));
    }
}

#[test]
fn kernels_equal_the_reference() {
    let cases = [1, 1000].map(case);
    for (fused, reference) in ALL {
        check::kernels_agree(&cases, |ins| fused(&ins[0]), |ins| reference(&ins[0]));
    }
}

fn at(f: Op, x: f32) -> f32 {
    let x = Tensor::new(&[x], &Device::Cpu).unwrap();
    f(&x).unwrap().to_vec1::<f32>().unwrap()[0]
}

#[test]
fn softplus_is_e_to_the_x_far_to_the_left() {
    for x in [-20.0, -50.0, -80.0] {
        let exact = f64::from(x).exp();
        assert!((f64::from(at(softplus, x)) - exact).abs() < 3e-7 * exact, "{x}");
    }
    assert_eq!(at(softplus, 200.0), 200.0);
}

#[test]
fn nothing_overflows_into_nan() {
    for (fused, _) in ALL {
        for x in [-1e30, -1e4, -100.0, 0.0, 100.0, 1e4, 1e30] {
            let var = candle_core::Var::new(&[x as f32], &Device::Cpu).unwrap();
            let y = fused(var.as_tensor()).unwrap();
            let grads = y.backward().unwrap();
            let slope = grads.get(&var).unwrap().to_vec1::<f32>().unwrap()[0];
            let y = y.to_vec1::<f32>().unwrap()[0];
            assert!(y.is_finite() && slope.is_finite(), "f({x}) = {y}, f' = {slope}");
        }
    }
}
