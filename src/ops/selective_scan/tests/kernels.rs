//! The kernels against the reference: in one scan, and with time cut into chunks.

use super::*;
use crate::runtime::autograd::apply_one;
use candle_core::DType;
use dsf_emulation::{emulated, launches};

/// A chunk length that leaves time in one piece.
const WHOLE: Option<usize> = Some(1 << 20);

fn fused_in(chunk: Option<usize>, positions: Option<&Tensor>) -> impl Fn(&[Tensor]) -> Result<Tensor> + '_ {
    move |ins| {
        let ins = [&ins[0], &ins[1], &ins[2], &ins[3], &ins[4]];
        let scan = SelectiveScan::check(ins, positions)?;
        apply_one(SelectiveScan { chunk, ..scan }, &ins)
    }
}

fn kernels_agree(cases: &[Case], positions: Option<&Tensor>, chunk: Option<usize>) {
    check::kernels_agree(cases, fused_in(chunk, positions), reference_at(positions));
}

/// Runs a small case first, as all subsets of its inputs are tracked.
fn after_a_small_one(chunk: Option<usize>, cases: impl IntoIterator<Item = Case>) {
    let cases: Vec<_> = std::iter::once(case(1, 2, 2, 2)).chain(cases).collect();
    kernels_agree(&cases, None, chunk);
}

/// Lengths around the stage of 8 steps, the span of 16, and chunks of one and more spans.
#[test]
fn they_agree_at_all_lengths() {
    let shapes = [(2, 5), (7, 1), (1, 15), (1, 17), (2, 33), (1, 64), (1, 65)];
    for chunk in [WHOLE, Some(16), Some(32)] {
        after_a_small_one(chunk, shapes.map(|(batch, len)| case(batch, len, 3, 5)));
    }
}

#[test]
fn they_agree_at_a_long_length() {
    for chunk in [WHOLE, Some(208), None] {
        after_a_small_one(chunk, [case(1, 1000, 2, 3)]);
    }
}

/// Numbers of states around the tile, the warp's side, and the block of either pass.
#[test]
fn they_agree_at_all_state_sizes() {
    for chunk in [WHOLE, Some(16)] {
        let states = [1, 4, 16, 17, 100, 129, 256];
        after_a_small_one(chunk, states.map(|states| case(1, 18, 2, states)));
    }
}

#[test]
fn they_agree_at_1024_states() {
    for chunk in [WHOLE, Some(16)] {
        after_a_small_one(chunk, [case(1, 17, 1, 1024)]);
    }
}

/// Numbers of channels around the halves of a warp and the block.
#[test]
fn they_agree_at_all_widths() {
    let channels = [8, 17, 33, 64, 65, 130];
    after_a_small_one(None, channels.map(|channels| case(1, 9, channels, 9)));
    after_a_small_one(Some(16), [case(2, 18, 70, 40)]);
}

#[test]
fn they_agree_with_rows_at_positions() {
    kernels_agree(&[case_of_rows(1, 1, 1, 1, 1)], Some(&positions(&[&[0]])), WHOLE);
    let times = positions(&[&[5, 15, 16, 18], &[0, 1, 2, 17]]);
    let cases = [1, 130].map(|states| case_of_rows(2, 19, 4, 2, states));
    for chunk in [WHOLE, Some(16)] {
        kernels_agree(&cases, Some(&times), chunk);
    }
}

#[test]
fn they_agree_at_extreme_decays() {
    for chunk in [WHOLE, Some(16)] {
        after_a_small_one(chunk, [extreme()]);
    }
}

/// The division of time depends on the shapes.
#[test]
fn few_sequences_are_cut_and_many_are_not() {
    let launched = |batch: usize, len: usize| {
        let vars = case(batch, len, 2, 1).vars(DType::F32);
        let ins: Vec<_> = vars.iter().map(|var| var.as_detached_tensor()).collect();
        let before = launches();
        emulated(|| fused_at(None)(&ins)).unwrap();
        launches() - before
    };
    assert_eq!(launched(2, 64), 1);
    assert_eq!(launched(2, 65), 3);
    assert_eq!(launched(700, 65), 1);
}

#[test]
fn their_bits_do_not_change_when_repeated() {
    for chunk in [WHOLE, Some(16)] {
        let vars = case(2, 35, 20, 20).vars(DType::F32);
        let bits = || {
            let ins: Vec<_> = vars.iter().map(|var| var.as_tensor().clone()).collect();
            let y = emulated(|| fused_in(chunk, None)(&ins)).unwrap();
            let grads = emulated(|| y.backward()).unwrap();
            let grad = |var: &candle_core::Var| grads.get(var).unwrap().clone();
            let all: Vec<_> = std::iter::once(y).chain(vars.iter().map(grad)).collect();
            let bits = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            all.iter().map(bits).collect::<Vec<_>>()
        };
        assert_eq!(bits(), bits());
    }
}

#[test]
fn they_agree_under_other_rules() {
    let cases = [case(1, 2, 2, 2), case(2, 33, 3, 5), case(1, 18, 70, 40), case(1, 17, 2, 129), extreme()];
    for rule in [StepRule::Hold, StepRule::Bilinear] {
        for chunk in [WHOLE, Some(16)] {
            let fused = |ins: &[Tensor]| {
                let ins = [&ins[0], &ins[1], &ins[2], &ins[3], &ins[4]];
                apply_one(SelectiveScan { rule, chunk, ..SelectiveScan::check(ins, None)? }, &ins)
            };
            check::kernels_agree(&cases, fused, reference_by(rule));
        }
    }
}

#[test]
fn they_index_large_tensors() {
    for chunk in [WHOLE, Some(16)] {
        // several times 2^32 states are kept
        check::large(&case(1, 16, 32, 64)).blocks(4).agrees(fused_in(chunk, None), reference_at(None));
    }
}
