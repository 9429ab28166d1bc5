use super::cpu::CHUNK;
use super::*;
use crate::runtime::check::{self, Case, Suite};
use candle_core::Device;

type Op = fn(&Tensor) -> Result<Tensor>;

/// Every function with its reference.
const ALL: [(Op, Op); 8] = [
    (sigmoid, reference::sigmoid),
    (softplus, reference::softplus),
    (elu1, reference::elu1),
    (gelu, reference::gelu),
    (gelu_tanh, reference::gelu_tanh),
    (silu, reference::silu),
    (tanh, reference::tanh),
    (phi1, reference::phi1),
];

/// The functions that overflow for no x.
const BOUNDED: &[(Op, Op)] = ALL.split_at(7).0;

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
    for (fused, _) in BOUNDED {
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

/// Against values of 40 digits, and from 0 through the end of the series to where e^x is 0.
#[test]
fn phi1_is_exact_near_zero_and_far_to_the_left() {
    for (x, exact) in [
        (0.0, 1.0),
        (-1e-30, 1.0),
        (-1e-6, 0.999_999_500_000_166_7),
        (-0.01, 0.995_016_625_083_194_6),
        (-0.499, 0.787_299_611_745_912_6),
        (-0.501, 0.786_577_979_606_412_2),
        (-3.0, 0.316_737_643_877_378_7),
        (-1e4, 1e-4),
        (-1e30, 1e-30),
    ] {
        let var = candle_core::Var::new(&[x as f32], &Device::Cpu).unwrap();
        let got = phi1(var.as_tensor()).unwrap();
        let slope = got.backward().unwrap().get(&var).unwrap().to_vec1::<f32>().unwrap()[0];
        let got = f64::from(got.to_vec1::<f32>().unwrap()[0]);
        assert!((got - exact).abs() < 3e-7 * exact, "{x}: {got}");
        assert!(slope.is_finite() && (0.0..0.51).contains(&slope), "{x}: {slope}");
        let wide = phi1(&Tensor::new(&[x], &Device::Cpu).unwrap()).unwrap().to_vec1::<f64>().unwrap()[0];
        assert!((wide - exact).abs() < 1e-15 * exact, "{x}: {wide}");
    }
}

#[test]
fn kernels_index_large_tensors() {
    let case = Case::new("large").uniform("x", &[1, 1024], -3.0, 3.0);
    check::large(&case).agrees(|ins| gelu(&ins[0]), |ins| reference::gelu(&ins[0]));
}
