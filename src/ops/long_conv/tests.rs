use super::*;
use crate::runtime::check::{self, Case, Suite};
use crate::runtime::distance::numbers;
use candle_core::{DType, Device};

fn case(batch: usize, len: usize, width: usize, taps: usize) -> Case {
    Case::new(format!("{batch} x {len} x {width}, {taps} taps"))
        .normal("u", &[batch, len, width])
        .normal("kernel", &[width, taps])
        .parameter()
}

fn fused(ins: &[Tensor]) -> Result<Tensor> {
    long_conv(&ins[0], &ins[1])
}

fn reference(ins: &[Tensor]) -> Result<Tensor> {
    reference::long_conv(&ins[0], &ins[1])
}

#[test]
fn it_passes_the_suite() {
    let long = [1, 2, 63, 64, 65, 127, 700].map(|len| case(1 + len % 2 * 2, len, 5, len));
    let short = [1, 4, 63, 64, 65].map(|taps| case(2, 150, 17, taps));
    let beyond = [case(2, 1, 1, 3), case(2, 70, 3, 90), case(3, 9, 33, 200)];
    let message = "long_conv: kernel has shape [4, 3], but u of shape [1, 2, 3] asks for [3, 3]";
    let of_all = Suite {
        agree: &[&long[..], &short, &beyond].concat(),
        differences: &[case(2, 5, 2, 5), case(1, 70, 1, 66)],
        bits: &[case(3, 200, 20, 200), case(3, 200, 20, 5)],
        tracked: &[case(2, 5, 3, 4), case(2, 80, 3, 90)],
        refused: &[
            (&[&[1, 2, 3], &[4, 3]], message),
            (&[&[1, 2, 3], &[3, 0]], "long_conv: kernel has shape [3, 0]"),
            (&[&[2, 3], &[3, 2]], "long_conv: u has shape [2, 3]"),
        ],
    };
    check::suite(of_all, fused, reference);
}

#[test]
fn kernels_equal_the_reference() {
    let long = [1, 2, 63, 64, 65, 150].map(|len| case(1 + len % 2 * 2, len, 5, len));
    check::kernels_agree(&long, fused, reference);
    let others = [case(2, 100, 33, 4), case(1, 70, 3, 90), case(2, 9, 1, 200), case(2, 40, 64, 33)];
    check::kernels_agree(&others, fused, reference);
}

/// Transforms by kernels against those of the CPU in f64: [`transforms_round_little`] compares these with sums. Blocks
/// have 32 channels at first, then half as many for twice the length, and split transforms above 4,096 into 2 to 16
/// nodes.
#[test]
fn transforms_by_kernels_equal_those_on_the_cpu() {
    let [odd, few_taps, one_channel] = [case(3, 1000, 9, 1000), case(3, 600, 3, 150), case(1, 4096, 1, 4096)];
    check::kernels_agree(&[few_taps, odd, one_channel], fused, fused);
    let [wide, more_taps, late] = [case(2, 260, 35, 260), case(1, 300, 2, 700), case(2, 1024, 17, 1024)];
    check::kernels_agree(&[more_taps, wide, late], fused, fused);
    let [two_nodes, beyond] = [case(3, 4100, 3, 4100), case(1, 4097, 1, 5000)];
    check::kernels_agree(&[beyond, two_nodes], fused, fused);
    let more_nodes = [9_000, 20_000, 32_800].map(|len| case(1, len, 1, len));
    check::kernels_agree(&more_nodes, fused, fused);
}

/// A convolution of one channel, and the sums that define it in f64.
fn one_channel(len: usize) -> [Vec<f64>; 3] {
    let vars = case(1, len, 1, len).vars(DType::F64);
    let numbers = |i: usize| vars[i].flatten_all().unwrap().to_vec1::<f64>().unwrap();
    let (u, kernel) = (numbers(0), numbers(1));
    let at = |t: usize| (0..=t).map(|j| kernel[t - j] * u[j]).sum();
    let y = (0..len).map(at).collect();
    [u, kernel, y]
}

/// The largest error of the op in numbers of a type, relative to the largest output.
fn error(len: usize, dtype: DType) -> f64 {
    let [u, kernel, exact] = one_channel(len);
    let tensor = |x: &[f64], shape: &[usize]| {
        let x = Tensor::from_slice(x, shape, &Device::Cpu).unwrap();
        x.to_dtype(dtype).unwrap()
    };
    let y = long_conv(&tensor(&u, &[1, len, 1]), &tensor(&kernel, &[1, len])).unwrap();
    let y = numbers(&y).unwrap();
    let largest = |numbers: &mut dyn Iterator<Item = f64>| numbers.fold(0.0, |most: f64, x| most.max(x.abs()));
    assert!(y.iter().all(|y| !y.is_nan()));
    let mut apart = y.iter().zip(&exact).map(|(y, exact)| y - exact);
    largest(&mut apart) / largest(&mut exact.iter().copied())
}

#[test]
fn transforms_round_little() {
    for len in [100, 1000, 4096] {
        let [single, double] = [DType::F32, DType::F64].map(|dtype| error(len, dtype));
        assert!(single < 2e-6, "{len}: {single:e} in f32");
        assert!(double < 1e-14, "{len}: {double:e} in f64");
    }
}

#[test]
fn an_impulse_returns_the_kernel_and_the_first_tap_meets_the_current_step() {
    for taps in [3, 80] {
        let kernel: Vec<f64> = (0..taps).map(|lag| 1.0 + lag as f64).collect();
        let mut u = vec![0.0; 100];
        u[7] = 1.0;
        let u = Tensor::from_vec(u, (1, 100, 1), &Device::Cpu).unwrap();
        let kernel = Tensor::from_vec(kernel, (1, taps), &Device::Cpu).unwrap();
        let y = long_conv(&u, &kernel).unwrap();
        let y = y.flatten_all().unwrap().to_vec1::<f64>().unwrap();
        for (t, y) in y.into_iter().enumerate() {
            let tap = t.checked_sub(7).filter(|&lag| lag < taps);
            let expected = tap.map_or(0.0, |lag| 1.0 + lag as f64);
            assert!((y - expected).abs() < 1e-12, "{t}: {y}");
        }
    }
}

#[test]
fn what_is_not_finite_stays_in_its_channel_and_sequence() {
    let mut u = vec![1f32; 2 * 100 * 2];
    u[3 * 2] = f32::NAN;
    let u = Tensor::from_vec(u, (2, 100, 2), &Device::Cpu).unwrap();
    let kernel = Tensor::ones((2, 100), DType::F32, &Device::Cpu).unwrap();
    let y = long_conv(&u, &kernel).unwrap();
    let y = y.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    for (i, y) in y.into_iter().enumerate() {
        let beside = i >= 200 || i % 2 == 1;
        assert!(!beside || y.is_finite(), "{i}: {y}");
        assert!(beside || i < 6 || y.is_nan(), "{i}: {y}");
    }
}

/// Sums over few taps. Their gradient is not tested, and neither are transforms: both process all sequences in few blocks.
#[test]
fn kernels_index_large_tensors() {
    let given = case(1, 64, 16, 4).vars(DType::F64);
    let kernel = |dtype| given[1].as_detached_tensor().to_dtype(dtype);
    let case = Case::new("64 x 16, 4 taps").normal("u", &[1, 64, 16]);
    let fused = |ins: &[Tensor]| long_conv(&ins[0], &kernel(DType::F32)?);
    let by_definition = |ins: &[Tensor]| long_conv(&ins[0], &kernel(DType::F64)?);
    check::large(&case).blocks(4).agrees(fused, by_definition);
}
