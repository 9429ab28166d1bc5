mod kernels;

use super::*;
use crate::runtime::check::{self, Case, Suite};
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

fn fused_at(positions: Option<&Tensor>) -> impl Fn(&[Tensor]) -> Result<Tensor> + Sync + '_ {
    move |ins| selective_scan(&ins[0], &ins[1], &ins[2], &ins[3], &ins[4], positions)
}

fn fused_by(rule: StepRule) -> impl Fn(&[Tensor]) -> Result<Tensor> + Sync {
    move |ins| discretised_scan(rule, [&ins[0], &ins[1], &ins[2], &ins[3], &ins[4]], None)
}

fn reference_by(rule: StepRule) -> impl Fn(&[Tensor]) -> Result<Tensor> {
    move |ins| {
        let ins = [&ins[0], &ins[1], &ins[2], &ins[3], &ins[4]];
        reference::selective_scan(ins, &SelectiveScan { rule, ..SelectiveScan::check(ins, None)? })
    }
}

fn reference_at(positions: Option<&Tensor>) -> impl Fn(&[Tensor]) -> Result<Tensor> + '_ {
    move |ins| {
        let ins = [&ins[0], &ins[1], &ins[2], &ins[3], &ins[4]];
        reference::selective_scan(ins, &SelectiveScan::check(ins, positions)?)
    }
}

fn agree(case: Case, positions: Option<&Tensor>) {
    check::agree(&[case], fused_at(positions), reference_at(positions));
}

fn positions(times: &[&[u32]]) -> Tensor {
    Tensor::new(times.concat(), &Device::Cpu).unwrap().reshape((times.len(), times[0].len())).unwrap()
}

/// Numbers of states around the block and the tile; numbers of channels around the group, the span and the panel; many
/// sequences, which share a task. Seventy sequences give tasks of two sequences; one sequence gives tasks of one group.
#[test]
fn it_passes_the_suite() {
    let lengths = [(7, 1), (1, 2), (7, 63), (2, 64), (1, 65), (1, 1000)].map(|(batch, len)| case(batch, len, 3, 5));
    let widths =
        [(7, 17, 1), (1, 33, 4), (9, 140, 3), (1, 290, 6), (2, 16, 16), (1, 17, 100), (1, 3, 256), (1, 2, 1024)];
    let widths = widths.map(|(batch, channels, states)| case(batch, 19, channels, states));
    let others = [case(2, 130, 33, 69), case(130, 5, 18, 5), extreme()];
    let (x, a, b) = (&[2, 5, 3][..], &[3, 4][..], &[2, 5, 4][..]);
    let few_states = "selective_scan: a has shape [3, 2], but b of shape [2, 5, 4] asks for [3, 4]";
    let few_rows = "selective_scan: c has shape [2, 2, 4], but b of shape [2, 5, 4] asks for [2, 5, 4]";
    let of_all = Suite {
        agree: &[&lengths[..], &widths, &others].concat(),
        differences: &[case(2, 3, 2, 2)],
        bits: &[case(7, 35, 20, 5), case(1, 70, 60, 5), case(70, 5, 20, 5)],
        tracked: &[case(2, 5, 3, 2)],
        refused: &[
            (&[x, &[2, 5, 4], a, b, b], "selective_scan: delta has shape [2, 5, 4], but u of shape [2, 5, 3]"),
            (&[x, x, &[3, 2], b, b], few_states),
            (&[x, x, a, b, &[2, 2, 4]], few_rows),
            (&[x, x, &[3], b, b], "selective_scan: a has shape [3], but b of shape [2, 5, 4]"),
        ],
    };
    check::suite(of_all, fused_at(None), reference_at(None));
}

/// Steps and rates whose products lie on both sides of where the power series ends.
#[test]
fn other_rules_pass_the_suite() {
    let cases = [case(7, 1, 3, 5), case(2, 65, 17, 6), case(1, 200, 9, 69), case(70, 5, 18, 3), extreme()];
    for rule in [StepRule::Hold, StepRule::Bilinear] {
        let of_all = Suite {
            agree: &cases,
            differences: &[case(2, 3, 2, 2)],
            bits: &[case(7, 35, 20, 5), case(1, 70, 60, 5)],
            tracked: &[case(2, 5, 3, 2)],
            refused: &[],
        };
        check::suite(of_all, fused_by(rule), reference_by(rule));
    }
}

/// With u = b = c = 1 at every step, the zero-order hold is the exact solution of h' = a h + 1, whatever the steps; the
/// trapezoidal rule comes closer with the square of the step, and Euler's rule with the step.
#[test]
fn the_hold_is_exact_for_a_constant_input_and_the_others_converge() {
    let (rate, end) = (-1.3_f64, 2.0);
    let exact = ((rate * end).exp() - 1.0) / rate;
    let error = |rule, steps: usize| {
        let column = |value: f64| Tensor::full(value, (1, steps, 1), &Device::Cpu).unwrap();
        let a = Tensor::full(rate, (1, 1), &Device::Cpu).unwrap();
        let one = column(1.0);
        let y = discretised_scan(rule, [&one, &column(end / steps as f64), &a, &one, &one], None).unwrap();
        let last = y.flatten_all().unwrap().to_vec1::<f64>().unwrap()[steps - 1];
        (last / exact - 1.0).abs()
    };
    assert!([1, 7, 200].iter().all(|&steps| error(StepRule::Hold, steps) < 1e-14));
    let ratio = |rule| error(rule, 100) / error(rule, 200);
    assert!((ratio(StepRule::Euler) - 2.0).abs() < 0.05, "{}", ratio(StepRule::Euler));
    assert!((ratio(StepRule::Bilinear) - 4.0).abs() < 0.05, "{}", ratio(StepRule::Bilinear));
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
fn finite_differences_and_refusals_hold_for_some_rows() {
    let times = positions(&[&[1, 3]]);
    check::finite_differences(&case_of_rows(1, 5, 2, 2, 5), fused_at(Some(&times)));
    let (x, a, b) = (&[2, 5, 3][..], &[3, 4][..], &[2, 5, 4][..]);
    let refusals: [(&[&[u32]], &str); 3] = [
        (&[&[0, 1, 2], &[0, 1, 2]], "positions has shape [2, 3], but c asks for [2, 2]"),
        (&[&[0, 1], &[0, 5]], "position 5, but u has 5 steps"),
        (&[&[0, 1], &[3, 3]], "position 3 follows 3, but positions of a sequence must ascend"),
    ];
    for (times, message) in refusals {
        check::refuses(&[x, x, a, b, &[2, 2, 4]], fused_at(Some(&positions(times))), message);
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
