use super::*;
use crate::runtime::check::{self, Case, Suite};
use candle_core::Device;

fn positions(batch: usize, rows: usize, len: usize) -> Tensor {
    let steps: Vec<u32> = (0..batch * rows).map(|i| (i * 7 % len) as u32).collect();
    Tensor::from_vec(steps, (batch, rows), &Device::Cpu).unwrap()
}

fn fused(ins: &[Tensor]) -> Result<Tensor> {
    let (batch, len, _) = ins[0].dims3()?;
    select_rows(&ins[0], &positions(batch, 4, len))
}

fn by_reference(ins: &[Tensor]) -> Result<Tensor> {
    let (batch, len, _) = ins[0].dims3()?;
    reference::select_rows(&ins[0], &positions(batch, 4, len))
}

fn case(shape: &[usize]) -> Case {
    Case::new(format!("{shape:?}")).normal("x", shape)
}

#[test]
fn it_passes_the_suite() {
    let shapes: [&[usize]; 4] = [&[1, 1, 1], &[7, 2, 3], &[2, 65, 64], &[1, 1000, 5]];
    let of_all = Suite {
        agree: &shapes.map(case),
        differences: &[case(&[2, 3, 2])], // some steps are selected twice
        bits: &[case(&[9, 65, 3])],
        tracked: &[case(&[2, 5, 3])],
        refused: &[],
    };
    check::suite(of_all, fused, by_reference);
}

#[test]
fn kernels_equal_the_reference() {
    let shapes: [&[usize]; 4] = [&[1, 1, 1], &[7, 2, 3], &[2, 65, 40], &[1, 300, 5]];
    check::kernels_agree(&shapes.map(case), fused, by_reference);
    // More rows than are looked for without lists, most steps several times.
    let many = |x: &Tensor| positions(x.dims()[0], 70, x.dims()[1]);
    let cases = [case(&[3, 20, 9]), case(&[2, 65, 5])];
    check::kernels_agree(
        &cases,
        |ins| select_rows(&ins[0], &many(&ins[0])),
        |ins| reference::select_rows(&ins[0], &many(&ins[0])),
    );
}

#[test]
fn a_step_beyond_the_sequence_and_another_batch_are_errors() {
    let late = |ins: &[Tensor]| select_rows(&ins[0], &positions(2, 4, 9));
    let message = "select_rows: position 7, but x has 3 steps";
    check::refuses(&[&[2, 3, 4]], late, message);
    let message = "select_rows: positions has shape [2, 4], but x asks for [5, 4]";
    check::refuses(&[&[5, 3, 4]], late, message);
}

#[test]
fn kernels_index_large_tensors() {
    // the times of every sequence are those of the first
    check::large(&case(&[1, 28, 64])).blocks(1).agrees(fused, by_reference);
}
