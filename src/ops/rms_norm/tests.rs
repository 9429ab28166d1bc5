use super::*;
use crate::runtime::check::{self, Case, Suite};
use crate::runtime::tuned::at_full_size;
use candle_core::{Device, Var};
use dsf_emulation::emulated;

fn case(shape: &[usize]) -> Case {
    Case::new(format!("{shape:?}")).normal("x", shape).uniform("gamma", &shape[shape.len() - 1..], 0.5, 1.5).parameter()
}

/// No eps, and one that is not small beside the squares.
const EPS: [f64; 2] = [0.0, 0.1];

fn fused(eps: f64) -> impl Fn(&[Tensor]) -> Result<Tensor> + Sync {
    move |ins| rms_norm(&ins[0], &ins[1], eps)
}

fn by_reference(eps: f64) -> impl Fn(&[Tensor]) -> Result<Tensor> {
    move |ins| reference::rms_norm(&ins[0], &ins[1], eps)
}

/// Rows of very different norms, with one of zeros.
fn with_zeros() -> Case {
    let scales = [0.1, 0.0, 30.0];
    let x: Vec<f64> = (0..15).map(|i| scales[i / 5] * (i as f64 - 6.5).sin()).collect();
    let gamma = [0.5, -1.0, 2.0, 1.0, 0.75];
    let case = Case::new("a row of zeros").values(&x, &[3, 5]);
    case.values(&gamma, &[5]).parameter()
}

#[test]
fn it_passes_the_suite() {
    let shapes: [&[usize]; 6] = [&[5], &[2, 2], &[7, 63, 16], &[2, 64, 64], &[65, 17], &[1, 1000, 33]];
    for eps in EPS {
        let of_all = Suite {
            agree: &[&shapes.map(case)[..], &[with_zeros()]].concat(),
            differences: &[case(&[2, 3])],
            bits: &[case(&[3, 100, 20])],
            tracked: &[case(&[3, 5])],
            refused: &[(&[&[2, 3], &[4]], "rms_norm: gamma has shape [4], but x of shape [2, 3] asks for [3]")],
        };
        check::suite(of_all, fused(eps), by_reference(eps));
    }
}

#[test]
fn kernels_equal_the_reference() {
    let shapes: [&[usize]; 9] =
        [&[3, 5], &[2, 2], &[3, 11, 16], &[130, 64], &[7, 100], &[2, 256], &[9, 384], &[33, 1024], &[2, 1030]];
    for eps in EPS {
        check::kernels_agree(&shapes.map(case), fused(eps), by_reference(eps));
        check::kernels_agree(&[with_zeros()], fused(eps), by_reference(eps));
    }
}

/// More rows than the blocks of a backward pass take at once.
#[test]
fn grids_of_full_size_equal_the_reference() {
    let cases = [&[1, 2], &[8500, 8], &[540, 65]].map(|x| case(x));
    at_full_size(|| check::kernels_agree(&cases, fused(0.0), by_reference(0.0)));
}

#[test]
fn kernels_index_large_tensors() {
    at_full_size(|| check::large(&case(&[1, 1024])).blocks(1).agrees(fused(0.0), by_reference(0.0)));
}

/// The result and the gradient of x, for gamma = 1.
fn both_ways(x: &[f32], dims: (usize, usize)) -> [Vec<f32>; 2] {
    let x = Var::from_vec(x.to_vec(), dims, &Device::Cpu).unwrap();
    let y = rms_norm(&x, &x.ones_like().unwrap().get(0).unwrap(), 0.0).unwrap();
    let weights = Tensor::arange(0f32, (dims.0 * dims.1) as f32, &Device::Cpu).unwrap();
    let loss = (&y * weights.reshape(dims).unwrap()).unwrap();
    let grads = loss.backward().unwrap();
    [&y, grads.get(&x).unwrap()].map(|x| x.flatten_all().unwrap().to_vec1().unwrap())
}

#[test]
fn rows_of_zeros_give_zeros_and_a_zero_gradient() {
    for width in [3, 4, 1100] {
        let zeros = vec![0.0; 2 * width];
        let expected = [zeros.clone(), zeros.clone()];
        assert_eq!(both_ways(&zeros, (2, width)), expected);
        assert_eq!(emulated(|| both_ways(&zeros, (2, width))), expected);
        let x = Var::from_vec(zeros, (2, width), &Device::Cpu).unwrap();
        let y = reference::rms_norm(&x, &x.ones_like().unwrap().get(0).unwrap(), 0.0).unwrap();
        let grads = y.backward().unwrap();
        for x in [&y, grads.get(&x).unwrap()] {
            let sum = x.abs().unwrap().sum_all().unwrap();
            assert_eq!(sum.to_scalar::<f32>().unwrap(), 0.0);
        }
    }
}

#[test]
fn the_scale_of_a_row_does_not_matter() {
    let row = [3.0, -1.0, 0.5, 2.0];
    let expected = both_ways(&row, (1, 4))[0].clone();
    for power in [-120, -64, 64, 125] {
        let scaled = row.map(|x: f32| x * 2f32.powi(power));
        for [y, gx] in [both_ways(&scaled, (1, 4)), emulated(|| both_ways(&scaled, (1, 4)))] {
            let close = |(x, y): (&f32, &f32)| (x - y).abs() < 1e-6;
            assert!(y.iter().zip(&expected).all(close), "2^{power}: {y:?}");
            assert!(gx.iter().all(|g| g.is_finite()), "2^{power}: {gx:?}");
        }
    }
}

#[test]
fn what_is_no_number_stays_none() {
    let x = [0.0, f32::NAN, 0.0, 0.0];
    for [y, _] in [both_ways(&x, (1, 4)), emulated(|| both_ways(&x, (1, 4)))] {
        assert!(y[1].is_nan(), "{y:?}");
    }
}
