use super::*;

/// [`case`] with a bias for `distances` distances.
pub(super) fn biased(sizes: Sizes, distances: usize) -> Case {
    case(sizes).normal("bias", &[sizes[1], distances]).parameter()
}

fn attend(x: &[Tensor], at: Option<&Tensor>, window: Option<usize>, dropout: Option<Dropout>) -> Result<Tensor> {
    patterned_attention([&x[0], &x[1], &x[2]], heads(x), at, &pattern(x, window), dropout)
}

fn plainly(x: &[Tensor], at: Option<&Tensor>, window: Option<usize>, dropout: Option<Dropout>) -> Result<Tensor> {
    let op = checked(x, at, Weights::Softmax, dropout)?;
    let op = op.within(&x[0], &pattern(x, window))?;
    reference::causal_attention([&x[0], &x[1], &x[2]], &op)
}

pub(super) fn pattern(x: &[Tensor], window: Option<usize>) -> Pattern {
    Pattern { window, bias: Some(x[3].clone()), ..Pattern::default() }
}

#[test]
fn fused_equals_reference_with_a_bias() {
    for (len, distances) in [(1, 1), (1, 5), (9, 1), (64, 20), (65, 100), (200, 33)] {
        for (window, dropout) in [(None, None), (None, Some(DROPOUT)), (Some(7), Some(DROPOUT))] {
            check::agree(
                &[biased([2, 3, len, len, 3, 5], distances)],
                |x| attend(x, None, window, dropout),
                |x| plainly(x, None, window, dropout),
            );
        }
    }
}

#[test]
fn fused_equals_reference_for_some_rows_with_a_bias() {
    for sizes in [[2, 2, 7, 40, 5, 17], [1, 1, 90, 150, 2, 2]] {
        let at = positions(sizes);
        check::agree(
            &[biased(sizes, 12)],
            |x| attend(x, Some(&at), None, Some(DROPOUT)),
            |x| plainly(x, Some(&at), None, Some(DROPOUT)),
        );
    }
}

/// Few queries and many; distances within a tile and across many. A bias that covers all distances is excluded: the
/// softmax cancels it, and its gradient is only rounding error.
#[test]
fn kernels_equal_the_reference_with_a_bias() {
    for (sizes, distances) in [
        ([2, 2, 12, 12, 4, 3], 5),
        ([1, 2, 20, 20, 5, 3], 30),
        ([1, 1, 150, 150, 4, 4], 113),
        ([1, 1, 200, 200, 4, 4], 180),
    ] {
        for (window, dropout) in [(None, None), (Some(9), Some(DROPOUT))] {
            check::kernels_agree_to(
                CANCELLED,
                &[biased([1, 2, 4, 4, 2, 2], 2), biased(sizes, distances)],
                |x| attend(x, None, window, dropout),
                |x| plainly(x, None, window, dropout),
            );
        }
    }
    let sizes = [2, 2, 20, 70, 5, 17];
    let at = positions(sizes);
    check::kernels_agree_to(
        CANCELLED,
        &[biased(sizes, 9)],
        |x| attend(x, Some(&at), None, Some(DROPOUT)),
        |x| plainly(x, Some(&at), None, Some(DROPOUT)),
    );
}

#[test]
fn a_bias_and_its_gradient_go_with_products_in_tf32() {
    for sizes in [[2, 2, 12, 12, 4, 3], [1, 1, 150, 150, 4, 4]] {
        check::rounded_to_tf32(
            3,
            &biased(sizes, 7),
            &[true; 5],
            |x| attend(x, None, None, None),
            |x| plainly(x, None, None, None),
        );
    }
}

#[test]
fn gradients_of_a_bias_are_finite_differences() {
    for window in [None, Some(3)] {
        check::finite_differences(&biased([2, 2, 6, 6, 2, 2], 4), |x| attend(x, None, window, Some(DROPOUT)));
    }
}

#[test]
fn bits_with_a_bias_do_not_depend_on_threads() {
    for sizes in [[3, 2, 70, 70, 5, 6], [1, 1, 200, 200, 5, 6]] {
        for window in [None, Some(70)] {
            check::same_bits(&biased(sizes, 40), |x| attend(x, None, window, None));
        }
    }
}

#[test]
fn a_bias_can_be_tracked_alone() {
    check::partial_tracking(&biased([2, 2, 4, 4, 3, 2], 3), |x| attend(x, None, None, None));
}

/// ALiBi is a bias that falls by a constant for each step of distance.
#[test]
fn slopes_are_a_bias() {
    let x: Vec<Tensor> = case([1, 2, 30, 30, 3, 3]).vars(DType::F64).iter().map(|x| x.as_detached_tensor()).collect();
    let attend = |pattern| patterned_attention([&x[0], &x[1], &x[2]], heads(&x), None, &pattern, None).unwrap();
    let slopes = attend(Pattern { slopes: true, ..Pattern::default() });
    let falls = (1..=2).flat_map(|head| (0..30).map(move |i| -0.0625f64.powi(head) * f64::from(i)));
    let bias = Tensor::from_vec(falls.collect(), (2, 30), &Device::Cpu).unwrap();
    let biased = attend(Pattern { bias: Some(bias), ..Pattern::default() });
    let apart = (slopes - biased).unwrap().abs().unwrap().max_all().unwrap();
    assert!(apart.to_scalar::<f64>().unwrap() < 1e-14);
}

#[test]
fn a_bias_that_does_not_fit_is_refused() {
    let q = &[2, 3, 4, 3][..];
    let run = |x: &[Tensor]| attend(x, None, None, None);
    check::refuses(&[q, q, q, &[2, 5]], run, "bias has shape [2, 5], but q");
    check::refuses(&[q, q, q, &[3, 0]], run, "bias has shape [3, 0]");
}
