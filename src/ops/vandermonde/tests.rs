use super::*;
use crate::runtime::check::{self, Case, Suite};
use candle_core::Device;

fn case(width: usize, states: usize) -> Case {
    within(0.7, [width, states])
}

fn within(most: f64, shape: [usize; 2]) -> Case {
    let case = Case::new(format!("{shape:?} within {most}"));
    let case = case.uniform("a_re", &shape, -most, most).parameter();
    weighed(case.uniform("a_im", &shape, -most, most).parameter(), shape)
}

/// States that hardly decay, like those for long sequences, and some that vanish at once.
fn slow(width: usize, states: usize) -> Case {
    let shape = [width, states];
    let radius = |i: usize| match i % 4 {
        0 => 0.0,
        1 => 1.0,
        by => 1.0 - 0.01 / (1 << by) as f64,
    };
    let part = |turned: fn(f64) -> f64| -> Vec<f64> {
        let one = |i| radius(i) * turned(0.37 * i as f64);
        (0..width * states).map(one).collect()
    };
    let case = Case::new(format!("slow {width} x {states}"));
    let case = case.values(&part(f64::cos), &shape).parameter();
    weighed(case.values(&part(f64::sin), &shape).parameter(), shape)
}

fn weighed(case: Case, shape: [usize; 2]) -> Case {
    let case = case.normal("w_re", &shape).parameter();
    case.normal("w_im", &shape).parameter()
}

fn fused(len: usize) -> impl Fn(&[Tensor]) -> Result<Tensor> {
    move |x| vandermonde([&x[0], &x[1]], [&x[2], &x[3]], len)
}

fn reference(len: usize) -> impl Fn(&[Tensor]) -> Result<Tensor> {
    move |x| reference::vandermonde([&x[0], &x[1]], [&x[2], &x[3]], len)
}

#[test]
fn it_passes_the_suite() {
    for len in [2, 15, 16, 17, 63, 128, 300] {
        let message = "vandermonde: the imaginary part of a has shape [2, 4]";
        let of_len = Suite {
            agree: &[case(1, 1), case(3, 4), case(2, 7), slow(5, 9)],
            differences: &[],
            bits: if len == 128 { &[slow(9, 33)] } else { &[] },
            tracked: &[case(2, 3)],
            refused: &[(&[&[2, 3], &[2, 4], &[2, 3], &[2, 3]], message)],
        };
        check::suite(of_len, fused(len), reference(len));
    }
    check::finite_differences(&case(2, 3), fused(5));
    check::finite_differences(&within(0.3, [1, 5]), fused(40));
}

#[test]
fn kernels_equal_the_reference() {
    for len in [2, 16, 17, 300, 4100] {
        let cases = [case(1, 1), case(3, 40), slow(2, 9)];
        check::kernels_agree(&cases, fused(len), reference(len));
    }
}

/// The first tap is the sum of the weights, independent of the states.
#[test]
fn one_tap_depends_on_weights_alone() {
    let vars = case(2, 3).vars(DType::F64);
    let x: Vec<Tensor> = vars.iter().map(|x| x.as_tensor().clone()).collect();
    let y = fused(1)(&x).unwrap();
    let wanted = x[2].sum_keepdim(1).unwrap();
    let apart = (&y - wanted).unwrap().abs().unwrap().max_all().unwrap();
    assert!(apart.to_scalar::<f64>().unwrap() < 1e-14);
    let grads = y.sum_all().unwrap().backward().unwrap();
    for (x, wanted) in x.iter().zip([0.0, 0.0, 1.0, 0.0]) {
        let grad = grads.get(x).unwrap().flatten_all().unwrap();
        assert_eq!(grad.to_vec1::<f64>().unwrap(), [wanted; 6]);
    }
}

/// The rounding error of a power grows with its exponent, but stays small.
#[test]
fn long_kernels_keep_their_digits() {
    const LEN: usize = 16_384;
    let numbers = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let angle: f64 = 0.001;
    let of = |x: f64| Tensor::new(&[[x as f32]], &Device::Cpu).unwrap();
    let a = [of(angle.cos()), of(angle.sin())];
    let exact = numbers(&a[0])[0] as f64;
    let angle = f64::atan2(numbers(&a[1])[0] as f64, exact);
    let radius = f64::hypot(numbers(&a[1])[0] as f64, exact);
    let y = vandermonde([&a[0], &a[1]], [&of(1.0), &of(0.0)], LEN).unwrap();
    for (l, y) in numbers(&y).into_iter().enumerate() {
        let wanted = radius.powi(l as i32) * (angle * l as f64).cos();
        assert!((y as f64 - wanted).abs() < 1e-4, "{l}: {y} and {wanted}");
    }
}
