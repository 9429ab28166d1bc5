use super::*;
use crate::runtime::autograd::apply_one;
use crate::runtime::check::{self, Case, Suite};

/// Decays inside the unit circle.
fn case(batch: usize, len: usize, width: usize) -> Case {
    Case::new(format!("{batch} x {len} x {width}"))
        .uniform("a", &[batch, len, 2, width], -0.7, 0.7)
        .normal("x", &[batch, len, 2, width])
}

fn cases() -> [Case; 6] {
    [1, 2, 63, 64, 65, 1000].map(|len| case(1 + len % 2 * 6, len, 1 + len % 7 * 5))
}

fn fused(ins: &[Tensor]) -> Result<Tensor> {
    complex_scan(&ins[0], &ins[1])
}

fn reference(ins: &[Tensor]) -> Result<Tensor> {
    reference::complex_scan(&ins[0], &ins[1])
}

#[test]
fn it_passes_the_suite() {
    let of_all = Suite {
        agree: &cases(),
        differences: &[case(2, 4, 2)],
        bits: &[case(1, 30, 200), case(20, 30, 10)],
        tracked: &[case(2, 5, 3)],
        refused: &[
            (&[&[2, 3, 2, 4], &[2, 3, 2, 5]], "complex_scan: x has shape [2, 3, 2, 5]"),
            (&[&[2, 3, 3, 4], &[2, 3, 3, 4]], "a real and an imaginary part"),
        ],
    };
    check::suite(of_all, fused, reference);
}

#[test]
fn kernels_equal_the_reference() {
    check::kernels_agree(&cases(), fused, reference);
}

#[test]
fn kernels_agree_in_any_number_of_pieces() {
    for pieces in [1, 2, 31] {
        let in_pieces = |ins: &[Tensor]| {
            let scan = ComplexScan::check(&ins[0], &ins[1])?;
            apply_one(ComplexScan(scan.0.cut(pieces)), &[&ins[0], &ins[1]])
        };
        check::kernels_agree(&cases()[1..5], in_pieces, reference);
    }
}

#[test]
fn a_constant_decay_turns_an_impulse_around_the_circle() {
    let (len, angle) = (9, 0.7f64);
    let values = |f: &dyn Fn(usize) -> [f64; 2]| {
        let values: Vec<f64> = (0..len).flat_map(f).collect();
        Tensor::from_vec(values, (1, len, 2, 1), &candle_core::Device::Cpu).unwrap()
    };
    let a = values(&|_| [0.9 * angle.cos(), 0.9 * angle.sin()]);
    let h = complex_scan(&a, &values(&|t| [f64::from(t == 0), 0.0])).unwrap();
    let h = h.flatten_all().unwrap().to_vec1::<f64>().unwrap();
    for (t, h) in h.chunks_exact(2).enumerate() {
        let (size, angle) = (0.9f64.powi(t as i32), angle * t as f64);
        assert!((h[0] - size * angle.cos()).abs() < 1e-14, "{t}");
        assert!((h[1] - size * angle.sin()).abs() < 1e-14, "{t}");
    }
}

#[test]
fn kernels_index_large_tensors() {
    check::large(&case(1, 16, 64)).beyond_32_bits().agrees(fused, reference);
}
