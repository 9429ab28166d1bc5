use super::*;
use crate::runtime::check::{self, Case, Suite};

fn bare(batch: usize, len: usize, width: usize, taps: usize) -> Case {
    Case::new(format!("{batch} x {len} x {width}, {taps} taps"))
        .normal("x", &[batch, len, width])
        .normal("w", &[width, taps])
        .parameter()
}

fn case(batch: usize, len: usize, width: usize, taps: usize) -> Case {
    bare(batch, len, width, taps).normal("b", &[width]).parameter()
}

fn fused(ins: &[Tensor]) -> Result<Tensor> {
    causal_conv1d(&ins[0], &ins[1], ins.get(2))
}

fn by_reference(ins: &[Tensor]) -> Result<Tensor> {
    reference::causal_conv1d(&ins[0], &ins[1], ins.get(2))
}

#[test]
fn it_passes_the_suite() {
    let own = [1, 2, 63, 64, 65, 1000].map(|len| case(1 + len % 2 * 6, len, 5, 4));
    let odd = [case(2, 3, 17, 1), case(2, 3, 1, 3), case(1, 2, 33, 7)];
    let of_all = Suite {
        agree: &[&own[..], &odd, &[bare(2, 300, 17, 4), bare(1, 2, 3, 4)]].concat(),
        differences: &[case(2, 5, 2, 3)],
        bits: &[case(7, 30, 20, 4), case(1, 700, 20, 4)],
        tracked: &[case(2, 5, 3, 4)],
        refused: &[(&[&[1, 2, 3], &[4, 4], &[3]], "causal_conv1d: w has shape [4, 4], but x of shape [1, 2, 3]")],
    };
    check::suite(of_all, fused, by_reference);
}

#[test]
fn kernels_equal_the_reference() {
    let own = [1, 2, 63, 64, 65, 500].map(|len| case(1 + len % 2 * 6, len, 5, 4));
    let wide = [case(3, 9, 68, 4), case(2, 3, 17, 1), case(1, 40, 8, 9), case(7, 33, 20, 3)];
    let bare = [bare(2, 30, 17, 4), bare(1, 2, 3, 4)];
    check::kernels_agree(&[&own[..], &wide].concat(), fused, by_reference);
    check::kernels_agree(&bare, fused, by_reference);
}

#[test]
fn the_last_weight_meets_the_current_step() {
    let row = |values: &[f32], shape: &[usize]| Tensor::from_slice(values, shape, &candle_core::Device::Cpu).unwrap();
    let x = row(&[1.0, 10.0, 100.0], &[1, 3, 1]);
    let y = causal_conv1d(&x, &row(&[2.0, 3.0], &[1, 2]), Some(&row(&[0.5], &[1]))).unwrap();
    let y = y.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    assert_eq!(y, [3.5, 32.5, 320.5]);
}

#[test]
fn kernels_index_large_tensors() {
    check::large(&case(1, 16, 64, 4)).beyond_32_bits().agrees(fused, by_reference);
}
