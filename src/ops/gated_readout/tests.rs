use super::cpu::CHUNK;
use super::*;
use crate::runtime::check::{self, Case, Suite};

fn case(inputs: usize, shape: &[usize]) -> Case {
    let names = ["h", "gate", "output"];
    let case = Case::new(format!("{inputs} of {shape:?}"));
    let add = |case: Case, name| case.normal(name, shape);
    names.into_iter().take(inputs).fold(case, add)
}

fn fused(ins: &[Tensor]) -> Result<Tensor> {
    gated_readout(&ins[0], &ins[1], ins.get(2))
}

fn by_reference(ins: &[Tensor]) -> Result<Tensor> {
    reference::gated_readout(&ins[0], &ins[1], ins.get(2))
}

#[test]
fn it_passes_the_suite() {
    let message = "gated_readout: gate has shape [2, 4], but h of shape [2, 3]";
    for inputs in [2, 3] {
        let shapes: [&[usize]; 3] = [&[2, 3], &[2, 4], &[2, 3]];
        let of_all = Suite {
            agree: &[1, 2, 63, 64, 65, 1000].map(|count| case(inputs, &[count])),
            differences: &[case(inputs, &[20])],
            bits: &[case(inputs, &[2 * CHUNK + 7])],
            tracked: &[case(inputs, &[2, 3])],
            refused: &[(&shapes[..inputs], message)],
        };
        check::suite(of_all, fused, by_reference);
    }
}

#[test]
fn silu_gates_pass_the_suite() {
    let message = "gated_readout: gate has shape [2, 4], but h of shape [2, 3]";
    let (fused, by_reference) =
        (|ins: &[Tensor]| silu_gate(&ins[0], &ins[1]), |ins: &[Tensor]| reference::silu_gate(&ins[0], &ins[1]));
    let of_all = Suite {
        agree: &[1, 63, 65, 1000].map(|count| case(2, &[count])),
        differences: &[case(2, &[20])],
        bits: &[case(2, &[2 * CHUNK + 7])],
        tracked: &[case(2, &[2, 3])],
        refused: &[(&[&[2, 3], &[2, 4]], message)],
    };
    check::suite(of_all, fused, by_reference);
    check::kernels_agree(&[1, 1025].map(|count| case(2, &[count])), fused, by_reference);
}

#[test]
fn kernels_equal_the_reference() {
    for inputs in [2, 3] {
        let cases = [1, 63, 1000, 1025].map(|count| case(inputs, &[count]));
        check::kernels_agree(&cases, fused, by_reference);
    }
}

#[test]
fn kernels_index_large_tensors() {
    for inputs in [2, 3] {
        check::large(&case(inputs, &[1, 1024])).agrees(fused, by_reference);
    }
}
