use super::cpu::CHUNK;
use super::*;
use crate::runtime::check::{self, Case};

fn case(inputs: usize, count: usize) -> Case {
    let names = ["h", "gate", "output"];
    let case = Case::new(format!("{inputs} of {count}"));
    let add = |case: Case, name| case.normal(name, &[count]);
    names.into_iter().take(inputs).fold(case, add)
}

fn fused(ins: &[Tensor]) -> Result<Tensor> {
    gated_readout(&ins[0], &ins[1], ins.get(2))
}

#[test]
fn fused_equals_reference() {
    for inputs in [2, 3] {
        let cases = [1, 2, 63, 64, 65, 1000].map(|count| case(inputs, count));
        check::agree(&cases, fused, |ins| reference::gated_readout(&ins[0], &ins[1], ins.get(2)));
    }
}

#[test]
fn kernels_equal_the_reference() {
    for inputs in [2, 3] {
        let cases = [1, 63, 1000, 1025].map(|count| case(inputs, count));
        check::kernels_agree(&cases, fused, |ins| reference::gated_readout(&ins[0], &ins[1], ins.get(2)));
    }
}

#[test]
fn gradients_are_finite_differences() {
    check::finite_differences(&case(2, 20), fused);
    check::finite_differences(&case(3, 20), fused);
}

#[test]
fn bits_do_not_depend_on_threads() {
    check::same_bits(&case(2, 2 * CHUNK + 7), fused);
    check::same_bits(&case(3, 2 * CHUNK + 7), fused);
}

#[test]
fn every_subset_of_inputs_can_be_tracked() {
    check::partial_tracking(&Case::new("2").normal("h", &[2, 3]).normal("g", &[2, 3]), fused);
}

#[test]
fn a_wrong_shape_is_named() {
    let message = "gated_readout: gate has shape [2, 4], but h of shape [2, 3]";
    check::refuses(&[&[2, 3], &[2, 4]], fused, message);
}
