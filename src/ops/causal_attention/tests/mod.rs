use super::*;
use crate::runtime::check::{self, Case, Suite};
use crate::runtime::route::{with_pairs, Pairs};
use candle_core::{DType, Device};

mod biases;
mod kernels;
mod one_time;
mod patterns;

const RULES: [Weights; 3] = [Weights::Softmax, Weights::LinearNormalised, Weights::Plain];
const DROPOUT: Dropout = Dropout { p: 0.25, key: [7, 8], index: 3 };
/// Limit for rows of gradients in bf16. The gradient of a score is its weight times a difference of two numbers, one of
/// which is computed from outputs rounded to bf16. If one key has nearly all of the weight, little more than the
/// rounding error remains.
const CANCELLED: f64 = 3e-2;

/// Batch, heads, rows, length, key width, value width.
type Sizes = [usize; 6];

/// Inputs with positive queries and keys, for which the normaliser of linear attention is positive.
fn case([batch, heads, rows, len, m, e]: Sizes) -> Case {
    Case::new(format!("{batch} x {heads} x {rows} of {len}, {m} and {e} wide"))
        .uniform("q", &[batch, heads, rows, m], 0.1, 1.0)
        .uniform("k", &[batch, heads, len, m], 0.1, 1.0)
        .normal("v", &[batch, heads, len, e])
}

/// Times in no order, with the last step among them.
fn positions([batch, _, rows, len, ..]: Sizes) -> Tensor {
    let ids: Vec<u32> = (0..batch * rows).map(|i| (len - 1 - i * 5 % len) as u32).collect();
    Tensor::from_vec(ids, (batch, rows), &Device::Cpu).unwrap()
}

/// Returns the number of heads of inputs with an axis of heads, otherwise 1.
fn heads(x: &[Tensor]) -> usize {
    match x[0].dims() {
        [_, heads, _, _] => *heads,
        _ => 1,
    }
}

fn attend(x: &[Tensor], positions: Option<&Tensor>, rule: Weights, dropout: Option<Dropout>) -> Result<Tensor> {
    causal_attention([&x[0], &x[1], &x[2]], heads(x), positions, rule, dropout)
}

/// [`attend`] for tensors whose heads are side by side.
fn attend_beside(x: &[Tensor], positions: Option<&Tensor>, rule: Weights, dropout: Option<Dropout>) -> Result<Tensor> {
    beside(x, |ins, heads| causal_attention(ins, heads, positions, rule, dropout))
}

/// Moves the heads of the inputs side by side, calls `attend`, and moves the heads of its result back to an axis.
fn beside(x: &[Tensor], attend: impl Fn([&Tensor; 3], usize) -> Result<Tensor>) -> Result<Tensor> {
    let [q, k, v] = [&x[0], &x[1], &x[2]].map(place::heads_beside);
    place::heads_apart(&attend([&q?, &k?, &v?], heads(x))?, heads(x))
}

fn checked(
    x: &[Tensor],
    positions: Option<&Tensor>,
    rule: Weights,
    dropout: Option<Dropout>,
) -> Result<CausalAttention> {
    CausalAttention::check([&x[0], &x[1], &x[2]], heads(x), positions, rule, dropout)
}

/// [`attend`] by the reference.
fn by_definition(x: &[Tensor], positions: Option<&Tensor>, rule: Weights, dropout: Option<Dropout>) -> Result<Tensor> {
    let op = checked(x, positions, rule, dropout)?;
    reference::causal_attention([&x[0], &x[1], &x[2]], &op)
}

fn agree(sizes: Sizes, positions: Option<&Tensor>, rule: Weights, dropout: Option<Dropout>) {
    let expected = |x: &[Tensor]| by_definition(x, positions, rule, dropout);
    let fused = |x: &[Tensor]| attend(x, positions, rule, dropout);
    check::agree(&[case(sizes)], fused, expected);
    if sizes[1] > 1 {
        let fused = |x: &[Tensor]| attend_beside(x, positions, rule, dropout);
        check::agree(&[case(sizes)], fused, expected);
    }
}

#[test]
fn fused_equals_reference_at_all_lengths() {
    for len in [1, 2, 63, 64, 65] {
        for rule in RULES {
            agree([7, 1, len, len, 3, 5], None, rule, None);
            agree([1, 2, len, len, 4, 2], None, rule, Some(DROPOUT));
        }
    }
    // Several tiles of steps, with few items and with more items than tasks.
    for rule in RULES {
        for len in [127, 128, 129, 300] {
            agree([1, 1, len, len, 2, 3], None, rule, Some(DROPOUT));
        }
        agree([9, 2, 150, 150, 2, 3], None, rule, Some(DROPOUT));
    }
    agree([1, 1, 1000, 1000, 2, 3], None, Weights::Softmax, Some(DROPOUT));
}

/// Scores that rise from tile to tile by more than the range of an exponential, and that fall as much.
#[test]
fn later_tiles_may_have_far_larger_or_smaller_scores() {
    for sign in [1.0, -1.0] {
        let len = 300;
        let q = Tensor::ones((1, 1, len, 1), DType::F32, &Device::Cpu).unwrap();
        let k = Tensor::arange(0f32, len as f32, &Device::Cpu).unwrap();
        let v = k.reshape((1, 1, len, 1)).unwrap();
        let k = (&v * (sign * 300.0)).unwrap();
        let o = causal_attention([&q, &k, &v], 1, None, Weights::Softmax, None).unwrap();
        // The last step, or the first, has all of the weight in each row.
        let expected: Vec<f32> = (0..len).map(|i| if sign > 0.0 { i as f32 } else { 0.0 }).collect();
        let o = o.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(o, expected);
    }
}

#[test]
fn fused_equals_reference_at_all_widths() {
    for (m, e) in [(1, 1), (16, 100), (100, 16), (33, 64), (256, 4), (4, 1024)] {
        for rule in RULES {
            agree([2, 3, 10, 10, m, e], None, rule, Some(DROPOUT));
        }
    }
}

#[test]
fn fused_equals_reference_for_some_rows() {
    for sizes in [[2, 2, 1, 9, 3, 4], [3, 2, 7, 40, 5, 17], [1, 1, 70, 6, 2, 2]] {
        for rule in RULES {
            agree(sizes, Some(&positions(sizes)), rule, None);
            agree(sizes, Some(&positions(sizes)), rule, Some(DROPOUT));
        }
    }
}

/// Long enough for the chunked sum, which these rules take if it costs less.
#[test]
fn fused_equals_reference_where_time_is_linear() {
    let ascending = |[batch, _, rows, len, ..]: Sizes| {
        let ids: Vec<u32> = (0..batch * rows).map(|i| (i % rows * len / rows + i / rows) as u32).collect();
        Tensor::from_vec(ids, (batch, rows), &Device::Cpu).unwrap()
    };
    for rule in [Weights::LinearNormalised, Weights::Plain] {
        let whole = [2, 2, 300, 300, 5, 3];
        let some = [2, 2, 100, 300, 3, 20];
        // All rows of a sequence see the same tokens: in one sequence all tokens, in the other all but padding.
        let lasts: Vec<u32> = (0..600).map(|i| if i < 300 { 299 } else { 270 }).collect();
        let lasts = Tensor::from_vec(lasts, (2, 300), &Device::Cpu).unwrap();
        for (sizes, positions) in [(whole, None), (some, Some(ascending(some))), (whole, Some(lasts))] {
            let x: Vec<Tensor> =
                case(sizes).vars(candle_core::DType::F64).iter().map(|x| x.as_tensor().clone()).collect();
            let op = checked(&x, positions.as_ref(), rule, None);
            assert!(cpu::linear::sums(&op.unwrap()).is_some(), "{sizes:?}");
            agree(sizes, positions.as_ref(), rule, None);
        }
        check::same_bits(&case([1, 1, 300, 300, 5, 6]), |x| attend(x, None, rule, None));
    }
}

#[test]
fn a_single_head_needs_no_axis() {
    let bare = |x: &[Tensor], rule| {
        let [q, k, v] = [0, 1, 2].map(|i| x[i].squeeze(1).unwrap());
        causal_attention([&q, &k, &v], 1, None, rule, Some(DROPOUT))?.unsqueeze(1)
    };
    for rule in RULES {
        let sizes = [3, 1, 70, 70, 5, 6];
        let with_axis = |x: &[Tensor]| {
            let op = checked(x, None, rule, Some(DROPOUT))?;
            reference::causal_attention([&x[0], &x[1], &x[2]], &op)
        };
        check::agree(&[case(sizes)], |x| bare(x, rule), with_axis);
    }
}

#[test]
fn it_passes_the_suite() {
    let q = &[2, 1, 4, 3][..];
    for rule in RULES {
        for dropout in [None, Some(DROPOUT)] {
            let of_rule = Suite {
                agree: &[case([2, 3, 10, 10, 3, 5])],
                differences: &[case([1, 2, 3, 3, 2, 2])],
                bits: &[case([3, 2, 70, 70, 5, 6]), case([1, 1, 200, 200, 5, 6])],
                tracked: &[case([2, 2, 4, 4, 3, 2])],
                refused: &[
                    (&[q, &[2, 1, 4, 2], q], "k has shape [2, 1, 4, 2], but q of shape [2, 1, 4, 3]"),
                    (&[q, q, &[2, 2, 4, 3]], "v has shape [2, 2, 4, 3], but q of shape [2, 1, 4, 3]"),
                    (&[q, &[2, 1, 5, 3], &[2, 1, 5, 3]], "without positions"),
                ],
            };
            let reference = |x: &[Tensor]| by_definition(x, None, rule, dropout);
            check::suite(of_rule, |x| attend(x, None, rule, dropout), reference);
        }
    }
}

#[test]
fn a_row_does_not_see_what_comes_later() {
    let x = |len: usize| Tensor::arange(0f64, (len * 3) as f64, &Device::Cpu).unwrap();
    let whole = x(6).sin().unwrap().reshape((1, 1, 6, 3)).unwrap();
    let past = whole.narrow(2, 0, 4).unwrap();
    for rule in RULES {
        let run = |x: &Tensor| causal_attention([x; 3], 1, None, rule, None).unwrap();
        let rows = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f64>().unwrap();
        assert_eq!(rows(&run(&whole))[..12], rows(&run(&past))[..]);
    }
}

#[test]
fn huge_scores_do_not_overflow() {
    let x = |values: &[f32]| Tensor::from_slice(values, (1, 1, 2, 1), &Device::Cpu).unwrap();
    let (q, v) = (x(&[1e18, -1e18]), x(&[3.0, 5.0]));
    let o = causal_attention([&q, &q, &v], 1, None, Weights::Softmax, None).unwrap();
    assert_eq!(o.flatten_all().unwrap().to_vec1::<f32>().unwrap(), [3.0, 5.0]);
}

#[test]
fn a_late_position_is_named() {
    let x = Tensor::ones((1, 1, 2, 2), candle_core::DType::F32, &Device::Cpu).unwrap();
    let late = Tensor::new(&[[0u32, 2]], &Device::Cpu).unwrap();
    let error = causal_attention([&x; 3], 1, Some(&late), Weights::Plain, None).unwrap_err();
    assert!(error.to_string().contains("position 2, but k has 2 steps"), "{error}");
}

#[test]
fn both_ways_to_sum_over_pairs_can_be_asked_for_and_agree() {
    let vars = case([2, 2, 130, 130, 3, 5]).vars(DType::F64);
    let x: Vec<Tensor> = vars.iter().map(|x| x.as_tensor().clone()).collect();
    for rule in [Weights::LinearNormalised, Weights::Plain] {
        let sums = |pairs| with_pairs(pairs, || attend(&x, None, rule, None).unwrap());
        let (direct, chunked) = (sums(Pairs::Direct), sums(Pairs::Chunked));
        let apart = (&direct - &chunked).unwrap().abs().unwrap();
        let apart: f64 = apart.max_all().unwrap().to_scalar().unwrap();
        assert!(apart < 1e-11 && apart > 0.0, "{rule:?}: {apart}");
    }
}
