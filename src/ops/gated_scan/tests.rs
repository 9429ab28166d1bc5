use super::*;
use crate::runtime::check::{self, some_times, Case, Suite};
use candle_core::{DType, Device, Var};
use dsf_emulation::emulated;

type Make = fn(&[Tensor]) -> Gates;

/// Every rule, given the third input; RG-LRU without and with the term under the root.
const RULES: [Make; 4] = [
    |_| Gates::Sigmoid,
    |ins| Gates::Reversed { alpha: ins[2].clone() },
    |ins| rg_lru(ins, 0.0),
    |ins| rg_lru(ins, 1e-6),
];

fn rg_lru(ins: &[Tensor], eps: f64) -> Gates {
    let lambda = ins[2].clone();
    Gates::RgLru { lambda, eps }
}

fn case(rule: usize, batch: usize, len: usize, width: usize) -> Case {
    let case = Case::new(format!("rule {rule}, {batch} x {len} x {width}"))
        .uniform("z", &[batch, len, 2 * width], -4.0, 4.0)
        .normal("x", &[batch, len, width]);
    match rule {
        0 => case,
        1 => case.uniform("alpha", &[1], 0.5, 2.0).parameter(),
        _ => case.uniform("lambda", &[width], -4.0, 1.0).parameter(),
    }
}

fn fused(rule: usize, selected: bool) -> impl Fn(&[Tensor]) -> Result<Tensor> {
    move |ins| gated_scan(&ins[0], &ins[1], &RULES[rule](ins), rows(ins, selected)?.as_ref())
}

fn by_reference(rule: usize, selected: bool) -> impl Fn(&[Tensor]) -> Result<Tensor> {
    move |ins| reference::gated_scan(&ins[0], &ins[1], &RULES[rule](ins), rows(ins, selected)?.as_ref())
}

/// Some times of each sequence of the inputs, or `None` for all.
fn rows(ins: &[Tensor], selected: bool) -> Result<Option<Tensor>> {
    let (batch, len, _) = ins[1].dims3()?;
    Ok(selected.then(|| some_times(batch, len)))
}

#[test]
fn it_passes_the_suite() {
    let small = [(7, 1, 3), (1, 2, 16), (7, 63, 5), (1, 64, 100), (17, 65, 33)];
    let large = [(0, (1, 1000, 70)), (1, (1, 1000, 1)), (3, (1, 130, 256)), (2, (1, 5, 1024))];
    for rule in 0..RULES.len() {
        let large = large.iter().filter(|(of, _)| *of == rule).map(|(_, size)| *size);
        let cases = small.into_iter().chain(large).map(|(batch, len, width)| case(rule, batch, len, width));
        let of_rule = Suite {
            agree: &cases.collect::<Vec<_>>(),
            differences: &[case(rule, 2, 4, 2)],
            bits: &[case(rule, 1, 70, 200), case(rule, 17, 30, 20)],
            tracked: &[case(rule, 2, 5, 3)],
            refused: &[],
        };
        for selected in [false, true] {
            check::suite(of_rule, fused(rule, selected), by_reference(rule, selected));
        }
    }
}

/// Compares kernels and reference for one rule and case, with time divided into `pieces`.
fn kernels_agree(rule: usize, (batch, len, width): (usize, usize, usize), pieces: usize) {
    for selected in [false, true] {
        let in_pieces = |ins: &[Tensor]| {
            let sizes = ScanSizes::check(&ins[0], &ins[1], rows(ins, selected)?.as_ref())?;
            let extent = sizes.extent.cut(pieces);
            scan(ScanSizes { extent, ..sizes }, &ins[0], &ins[1], &RULES[rule](ins))
        };
        // The gradient of alpha is one sum over all numbers; its rounding errors are as large as the remainder after
        // cancellation.
        let of_rows = if rule == 1 { 3e-2 } else { 1.2e-2 };
        check::kernels_agree_to(of_rows, &[case(rule, batch, len, width)], in_pieces, by_reference(rule, selected));
    }
}

#[test]
fn kernels_equal_the_reference() {
    for rule in 0..RULES.len() {
        for (size, pieces) in [((7, 1, 3), 1), ((1, 2, 16), 2), ((7, 63, 5), 1), ((1, 64, 40), 3), ((3, 65, 33), 65)] {
            kernels_agree(rule, size, pieces);
        }
    }
}

#[test]
fn kernels_equal_the_reference_for_long_and_wide_ones() {
    kernels_agree(0, (1, 1000, 20), 1);
    kernels_agree(1, (1, 1000, 1), 31);
    kernels_agree(2, (1, 5, 1024), 1);
    kernels_agree(3, (2, 130, 70), 4);
}

#[test]
fn gates_at_their_ends_give_no_nan() {
    no_nan();
    emulated(no_nan);
}

fn no_nan() {
    let ends = [-1e30f32, -200.0, -90.0, 0.0, 90.0, 200.0, 1e30];
    let (len, third) = (ends.len(), [0.0f32, -200.0, 50.0]);
    let z: Vec<f32> = (0..2 * len).map(|i| ends[(i / 2 + i % 2 * 3) % len]).collect();
    for (rule, gates) in RULES.iter().enumerate() {
        for third in third {
            let var = |values: &[f32], shape: &[usize]| Var::from_slice(values, shape, &Device::Cpu).unwrap();
            let vars = [var(&z, &[1, len, 2]), var(&vec![1.0; len], &[1, len, 1]), var(&[third.abs()], &[1])];
            let third = var(&[third], &[1]);
            let last = if rule == 1 { &vars[2] } else { &third };
            let ins = [&vars[0], &vars[1], last].map(|v| v.as_tensor().clone());
            let h = gated_scan(&ins[0], &ins[1], &gates(&ins), None).unwrap();
            let grads = h.backward().unwrap();
            for x in [Some(&h), grads.get(&ins[0]), grads.get(&ins[1]), grads.get(last)] {
                let Some(x) = x else { continue };
                let x = x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
                assert!(x.iter().all(|x| x.is_finite()), "rule {rule}: {x:?}");
            }
        }
    }
}

#[test]
fn rows_must_be_ascending_times_of_every_sequence() {
    let zeros = Tensor::zeros((2, 3, 2), DType::F32, &Device::Cpu).unwrap();
    let x = zeros.narrow(2, 0, 1).unwrap();
    let refused = |rows: &Tensor| {
        let error = gated_scan(&zeros, &x, &Gates::Sigmoid, Some(rows)).unwrap_err();
        error.to_string()
    };
    let rows = |times: &[[u32; 2]; 2]| Tensor::new(times, &Device::Cpu).unwrap();
    assert!(refused(&rows(&[[0, 1], [1, 0]])).contains("must ascend"));
    assert!(refused(&rows(&[[0, 1], [1, 3]])).contains("position 3, but x has 3 steps"));
    let one = rows(&[[0, 1], [0, 1]]).narrow(0, 0, 1).unwrap();
    assert!(refused(&one).contains("positions has shape [1, 2], but x asks for [2, 2]"));
}

#[test]
fn kernels_index_large_tensors() {
    for rule in 0..RULES.len() {
        check::large(&case(rule, 1, 16, 64)).beyond_32_bits().agrees(fused(rule, false), by_reference(rule, false));
    }
}
