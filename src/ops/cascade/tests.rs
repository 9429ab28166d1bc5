use super::*;
use crate::runtime::check::{self, Case, Suite};

fn case(width: usize, states: usize) -> Case {
    let shape = [width, states];
    Case::new(format!("{shape:?}"))
        .uniform("a", &shape, -0.7, 0.9)
        .parameter()
        .uniform("b", &shape, -0.2, 0.4)
        .parameter()
        .normal("w", &shape)
        .parameter()
}

/// HiPPO-LegS with steps from 0.001 to 0.1.
fn legs(width: usize, states: usize) -> Case {
    let shape = [width, states];
    let of = |entry: fn(f64, f64) -> f64| -> Vec<f64> {
        let one = |at: usize| {
            let (c, i) = (at / states, (at % states) as f64);
            entry(0.0005 * 100f64.powf(c as f64 / width as f64), i)
        };
        (0..width * states).map(one).collect()
    };
    let a = of(|s, i| (1.0 - s * (i + 1.0)) / (1.0 + s * (i + 1.0)));
    let b = of(|s, i| s * (2.0 * i + 1.0) / (1.0 + s * (i + 1.0)));
    Case::new(format!("legs {shape:?}"))
        .values(&a, &shape)
        .parameter()
        .values(&b, &shape)
        .parameter()
        .normal("w", &shape)
        .parameter()
}

fn fused(len: usize) -> impl Fn(&[Tensor]) -> Result<Tensor> {
    move |x| cascade(&x[0], &x[1], &x[2], len)
}

fn reference(len: usize) -> impl Fn(&[Tensor]) -> Result<Tensor> {
    move |x| reference::cascade(&x[0], &x[1], &x[2], len)
}

/// Lengths around the number of time steps between stored states, and widths around the number of channels in a
/// group of lanes.
#[test]
fn it_passes_the_suite() {
    for len in [1, 2, 31, 32, 33, 100] {
        let of_len = Suite {
            agree: &[case(1, 1), case(17, 3), legs(16, 8)],
            differences: &[],
            bits: if len == 100 { &[legs(37, 9)] } else { &[] },
            tracked: &[case(2, 3)],
            refused: &[(&[&[2, 3], &[2, 4], &[2, 3]], "cascade: b has shape [2, 4]")],
        };
        check::suite(of_len, fused(len), reference(len));
    }
    check::finite_differences(&case(2, 3), fused(5));
    check::finite_differences(&legs(1, 5), fused(40));
}

#[test]
fn kernels_equal_the_reference() {
    for len in [1, 2, 127, 128, 129, 300] {
        let cases = [case(1, 1), legs(3, 32), legs(2, 40)];
        check::kernels_agree(&cases, fused(len), reference(len));
    }
}

/// A chain of 64 sections, for 2,048 steps.
#[test]
fn long_chains_keep_their_digits() {
    let case = legs(16, 64);
    let numbers = |dtype| {
        let x: Vec<Tensor> = case.vars(dtype).iter().map(|x| x.as_detached_tensor()).collect();
        let y = fused(2048)(&x).unwrap().to_dtype(DType::F64).unwrap();
        y.flatten_all().unwrap().to_vec1::<f64>().unwrap()
    };
    let (exact, got) = (numbers(DType::F64), numbers(DType::F32));
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let apart = norm(&mut exact.iter().zip(&got).map(|(x, y)| x - y));
    let whole = norm(&mut exact.iter().copied());
    assert!(apart < 1e-5 * whole, "{apart:e} of {whole}");
}
