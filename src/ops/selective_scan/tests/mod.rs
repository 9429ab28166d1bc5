mod kernels;

use super::*;
use crate::runtime::check::{self, Case};
use candle_core::Device;

fn case_of_rows(batch: usize, len: usize, rows: usize, channels: usize, states: usize) -> Case {
    Case::new(format!("{batch} x {len} x {channels}, {states} states, {rows} rows"))
        .normal("u", &[batch, len, channels])
        .uniform("delta", &[batch, len, channels], 0.0, 1.5)
        .uniform("a", &[channels, states], -2.0, 0.0)
        .parameter()
        .normal("b", &[batch, len, states])
        .normal("c", &[batch, rows, states])
}

fn case(batch: usize, len: usize, channels: usize, states: usize) -> Case {
    case_of_rows(batch, len, len, channels, states)
}

fn fused(ins: &[Tensor]) -> Result<Tensor> {
    fused_at(None)(ins)
}

fn fused_at(positions: Option<&Tensor>) -> impl Fn(&[Tensor]) -> Result<Tensor> + Sync + '_ {
    move |ins| selective_scan(&ins[0], &ins[1], &ins[2], &ins[3], &ins[4], positions)
}

fn agree(case: Case, positions: Option<&Tensor>) {
    let reference = |ins: &[Tensor]| {
        let ins = [&ins[0], &ins[1], &ins[2], &ins[3], &ins[4]];
        let scan = SelectiveScan::check(ins, positions)?;
        reference::selective_scan(ins, &scan)
    };
    check::agree(&[case], fused_at(positions), reference);
}

fn positions(times: &[&[u32]]) -> Tensor {
    Tensor::new(times.concat(), &Device::Cpu).unwrap().reshape((times.len(), times[0].len())).unwrap()
}

#[test]
fn fused_equals_reference_at_all_lengths() {
    for (batch, len) in [(7, 1), (1, 2), (7, 63), (2, 64), (1, 65), (1, 1000)] {
        agree(case(batch, len, 3, 5), None);
    }
}

/// Numbers of states around the block and the tile; numbers of channels around the group, the span
/// and the panel.
#[test]
fn fused_equals_reference_at_all_state_sizes_and_widths() {
    for (batch, channels, states) in
        [(7, 17, 1), (1, 33, 4), (9, 140, 3), (1, 290, 6), (2, 16, 16), (1, 17, 100), (1, 3, 256), (1, 2, 1024)]
    {
        agree(case(batch, 19, channels, states), None);
    }
    agree(case(2, 130, 33, 69), None);
}

#[test]
fn rows_at_positions_are_those_of_the_reference() {
    agree(case_of_rows(1, 1, 1, 3, 5), Some(&positions(&[&[0]])));
    agree(case_of_rows(1, 200, 1, 3, 5), Some(&positions(&[&[63]])));
    let times: [&[u32]; 2] = [&[5, 64, 65, 199], &[0, 1, 2, 130]];
    agree(case_of_rows(2, 200, 4, 20, 6), Some(&positions(&times)));
    let shared = [&times[0], &times[1]].repeat(4);
    let shared: Vec<&[u32]> = shared.into_iter().copied().collect();
    agree(case_of_rows(8, 200, 4, 20, 66), Some(&positions(&shared)));
}

#[test]
fn gradients_are_finite_differences() {
    check::finite_differences(&case(2, 3, 2, 2), fused);
    let positions = positions(&[&[1, 3]]);
    check::finite_differences(&case_of_rows(1, 5, 2, 2, 5), fused_at(Some(&positions)));
}

/// Seventy sequences give tasks of two sequences; one sequence gives tasks of one group.
#[test]
fn bits_do_not_depend_on_threads() {
    check::same_bits(&case(7, 35, 20, 5), fused);
    check::same_bits(&case(1, 70, 60, 5), fused);
    check::same_bits(&case(70, 5, 20, 5), fused);
}

#[test]
fn many_sequences_share_a_task() {
    agree(case(130, 5, 18, 5), None);
}

#[test]
fn every_subset_of_inputs_can_be_tracked() {
    check::partial_tracking(&case(2, 5, 3, 2), fused);
}

#[test]
fn wrong_shapes_and_positions_are_named() {
    let refused = |shapes: [&[usize]; 5], at: Option<&Tensor>, message| {
        check::refuses(&shapes, fused_at(at), message);
    };
    let (x, a, b) = (&[2, 5, 3][..], &[3, 4][..], &[2, 5, 4][..]);
    refused([x, &[2, 5, 4], a, b, b], None, "selective_scan: delta has shape [2, 5, 4], but u of shape [2, 5, 3]");
    refused(
        [x, x, &[3, 2], b, b],
        None,
        "selective_scan: a has shape [3, 2], but b of shape [2, 5, 4] asks for [3, 4]",
    );
    refused(
        [x, x, a, b, &[2, 2, 4]],
        None,
        "selective_scan: c has shape [2, 2, 4], but b of shape [2, 5, 4] asks for [2, 5, 4]",
    );
    refused([x, x, &[3], b, b], None, "selective_scan: a has shape [3], but b of shape [2, 5, 4]");
    let rows = [x, x, a, b, &[2, 2, 4]];
    let refusals: [(&[u32], &str); 3] = [
        ([[0, 1, 2], [0, 1, 2]].as_flattened(), "positions has shape [2, 3], but c asks for [2, 2]"),
        ([[0, 1], [0, 5]].as_flattened(), "position 5, but u has 5 steps"),
        ([[0, 1], [3, 3]].as_flattened(), "position 3 follows 3, but positions of a sequence must ascend"),
    ];
    for (times, message) in refusals {
        let positions = Tensor::new(times, &Device::Cpu).unwrap();
        let positions = positions.reshape((2, times.len() / 2)).unwrap();
        refused(rows, Some(&positions), message);
    }
}

/// Exponents from 0 to -1e4, within one state each; the reference has the same inputs.
fn extreme() -> Case {
    let (len, rates) = (70, [0.0, -1e-30, -1e-3, -80.0, -87.5, -126.5, -300.0, -1e4]);
    let ramp: Vec<f64> = (0..len).map(|t| t as f64 / len as f64).collect();
    Case::new("extreme")
        .normal("u", &[1, len, 1])
        .values(&ramp, &[1, len, 1])
        .values(&rates, &[1, rates.len()])
        .parameter()
        .normal("b", &[1, len, rates.len()])
        .normal("c", &[1, len, rates.len()])
}

#[test]
fn extreme_decays_agree_with_the_reference() {
    agree(extreme(), None);
}

/// The state is the last input alone if the decay is e^{-300}.
#[test]
fn a_decay_that_underflows_forgets_exactly() {
    let tensor = |values: &[f32], shape: &[usize]| {
        let values: Vec<f32> = values.to_vec();
        candle_core::Var::from_vec(values, shape, &Device::Cpu).unwrap()
    };
    let u = tensor(&[1.0, 2.0, 3.0], &[1, 3, 1]);
    let delta = tensor(&[1.0; 3], &[1, 3, 1]);
    let a = tensor(&[-300.0], &[1, 1]);
    let ones = tensor(&[1.0; 3], &[1, 3, 1]);
    let y = selective_scan(&u, &delta, &a, &ones, &ones, None).unwrap();
    assert_eq!(y.flatten_all().unwrap().to_vec1::<f32>().unwrap(), [1.0, 2.0, 3.0]);
    let grads = y.backward().unwrap();
    for (var, expected) in [(&u, vec![1.0f32; 3]), (&delta, vec![1.0, 2.0, 3.0]), (&a, vec![0.0])] {
        let grad = grads.get(var).unwrap().flatten_all().unwrap();
        assert_eq!(grad.to_vec1::<f32>().unwrap(), expected);
    }
}
