use super::*;

/// Windows that end within, at and beyond a block or the sequence, with and without the other restrictions.
pub(super) fn patterns(len: usize) -> Vec<Pattern> {
    let windows = [1, 5, 64, 70].map(|window| Pattern { window: Some(window), ..Pattern::default() });
    let links: Vec<u32> = (0..2 * len).map(|i| (i * 7 % len) as u32).collect();
    let links = Tensor::from_vec(links, (len, 2), &Device::Cpu).unwrap();
    let mut patterns = windows.to_vec();
    patterns.extend([
        Pattern { slopes: true, ..Pattern::default() },
        Pattern { window: Some(9), slopes: true, ..Pattern::default() },
        Pattern { window: Some(3), globals: 2, ..Pattern::default() },
        Pattern { window: Some(3), globals: 2, links: Some(links), slopes: true, bias: None },
    ]);
    patterns
}

fn within(x: &[Tensor], at: Option<&Tensor>, pattern: &Pattern, dropout: Option<Dropout>) -> Result<Tensor> {
    beside(x, |ins, heads| patterned_attention(ins, heads, at, pattern, dropout))
}

fn plainly(x: &[Tensor], at: Option<&Tensor>, pattern: &Pattern, dropout: Option<Dropout>) -> Result<Tensor> {
    let op = checked(x, at, Weights::Softmax, dropout)?;
    reference::causal_attention([&x[0], &x[1], &x[2]], &op.within(&x[0], pattern)?)
}

#[test]
fn fused_equals_reference_for_every_pattern() {
    for len in [1, 2, 64, 65, 200, 330] {
        for pattern in patterns(len) {
            for dropout in [None, Some(DROPOUT)] {
                check::agree(
                    &[case([1, 3, len, len, 3, 5])],
                    |x| within(x, None, &pattern, dropout),
                    |x| plainly(x, None, &pattern, dropout),
                );
            }
        }
    }
}

#[test]
fn fused_equals_reference_for_some_rows_of_a_pattern() {
    for sizes in [[2, 2, 7, 40, 5, 17], [1, 1, 90, 150, 2, 2]] {
        let at = positions(sizes);
        for pattern in patterns(sizes[3]) {
            check::agree(
                &[case(sizes)],
                |x| within(x, Some(&at), &pattern, Some(DROPOUT)),
                |x| plainly(x, Some(&at), &pattern, Some(DROPOUT)),
            );
        }
    }
}

/// A window of one step is excluded: its weight is 1 for any score, so the gradients of the scores are only rounding
/// errors.
#[test]
fn kernels_equal_the_reference_for_every_pattern() {
    for sizes in [[1, 2, 20, 20, 4, 3], [1, 1, 130, 130, 4, 4]] {
        for pattern in &patterns(sizes[3])[1..] {
            check::kernels_agree_to(
                CANCELLED,
                &[case(sizes)],
                |x| within(x, None, pattern, Some(DROPOUT)),
                |x| plainly(x, None, pattern, Some(DROPOUT)),
            );
        }
    }
    let sizes = [2, 2, 20, 70, 5, 17];
    let at = positions(sizes);
    for pattern in &patterns(sizes[3])[1..] {
        check::kernels_agree_to(
            CANCELLED,
            &[case(sizes)],
            |x| within(x, Some(&at), pattern, None),
            |x| plainly(x, Some(&at), pattern, None),
        );
    }
}

#[test]
fn gradients_of_patterns_are_finite_differences() {
    for pattern in patterns(6) {
        check::finite_differences(&case([1, 2, 6, 6, 2, 2]), |x| within(x, None, &pattern, None));
    }
}

#[test]
fn bits_of_patterns_do_not_depend_on_threads() {
    for pattern in patterns(200) {
        check::same_bits(&case([1, 2, 200, 200, 5, 6]), |x| within(x, None, &pattern, None));
    }
}

/// A window of w steps, computed from the definition.
#[test]
fn a_row_attends_to_its_window_alone() {
    let x: Vec<Tensor> = case([1, 1, 9, 9, 1, 1]).vars(DType::F64).iter().map(|x| x.as_detached_tensor()).collect();
    let numbers = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f64>().unwrap();
    let [q, k, v] = [0, 1, 2].map(|i| numbers(&x[i]));
    let pattern = Pattern { window: Some(3), ..Pattern::default() };
    let o = numbers(&within(&x, None, &pattern, None).unwrap());
    for i in 0..9usize {
        let weights: Vec<(f64, f64)> = (i.saturating_sub(2)..=i).map(|j| ((q[i] * k[j]).exp(), v[j])).collect();
        let sum: f64 = weights.iter().map(|(w, _)| w).sum();
        let wanted = weights.iter().map(|(w, v)| w * v).sum::<f64>() / sum;
        assert!((o[i] - wanted).abs() < 1e-12, "{i}: {} and not {wanted}", o[i]);
    }
}

#[test]
fn a_pattern_that_does_not_fit_is_refused() {
    let refused = |pattern: Pattern, message| {
        let run = |x: &[Tensor]| within(x, None, &pattern, None);
        let q = &[2, 1, 4, 3][..];
        check::refuses(&[q, q, q], run, message);
    };
    let window = Pattern { window: Some(0), ..Pattern::default() };
    refused(window, "a window of 0 steps");
    let links = |dtype| Pattern {
        window: Some(1),
        links: Some(Tensor::zeros((5, 2), dtype, &Device::Cpu).unwrap()),
        ..Pattern::default()
    };
    refused(links(DType::U32), "links have shape [5, 2] of U32, needed are 4 rows of U32");
    refused(links(DType::F32), "of F32");
}
