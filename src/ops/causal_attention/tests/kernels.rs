use super::*;
use crate::runtime::distance::numbers;
use crate::runtime::tuned::at_full_size;
use dsf_emulation::{emulated, launches};

/// Runs a small case first, as all subsets of its inputs are tracked, unless positions are those of one case.
fn kernels_agree(sizes: &[Sizes], positions: Option<&Tensor>, rule: Weights, dropout: Option<Dropout>) {
    let small = positions.is_none().then_some([2, 1, 8, 8, 4, 5]);
    let cases: Vec<Case> = small.into_iter().chain(sizes.iter().copied()).map(case).collect();
    let expected = |x: &[Tensor]| by_definition(x, positions, rule, dropout);
    let fused = |x: &[Tensor]| attend(x, positions, rule, dropout);
    check::kernels_agree_to(CANCELLED, &cases, fused, expected);
    if sizes.iter().any(|sizes| sizes[1] > 1) {
        let fused = |x: &[Tensor]| attend_beside(x, positions, rule, dropout);
        check::kernels_agree_to(CANCELLED, &cases, fused, expected);
    }
}

/// Enough blocks to occupy a GPU, with tiles of many queries, in the layout of heads that mixers use.
#[test]
fn grids_of_full_size_equal_the_reference() {
    let cases = [[1, 1, 2, 2, 1, 1], [33, 4, 65, 65, 4, 4]].map(case);
    at_full_size(|| {
        check::kernels_agree_to(
            CANCELLED,
            &cases,
            |x| attend_beside(x, None, Weights::Softmax, None),
            |x| by_definition(x, None, Weights::Softmax, None),
        );
    });
}

/// Sums of one sign over many factors: tensor cores cut each sum towards zero, which must not add up.
#[test]
fn long_sums_in_f32_have_no_bias() {
    for rule in RULES {
        let case = Case::new("positive")
            .uniform("q", &[1, 1, 200, 256], 0.0, 0.1)
            .uniform("k", &[1, 1, 200, 256], 0.0, 0.1)
            .uniform("v", &[1, 1, 200, 8], 0.5, 1.5);
        let ins = |dtype| case.vars(dtype).iter().map(|var| var.as_tensor().clone()).collect::<Vec<_>>();
        let exact = numbers(&by_definition(&ins(DType::F64), None, rule, None).unwrap()).unwrap();
        let found = emulated(|| attend(&ins(DType::F32), None, rule, None)).unwrap();
        let errors = numbers(&found).unwrap().iter().zip(&exact).map(|(y, exact)| (y - exact) / exact).sum::<f64>();
        let bias = errors / exact.len() as f64;
        assert!(bias.abs() < 1e-7, "{rule:?}: {bias:e} of each output");
    }
}

/// Few queries and many, full and partial tiles, with several heads.
#[test]
fn kernels_equal_the_reference() {
    for rule in RULES {
        kernels_agree(&[[2, 1, 3, 3, 4, 5], [1, 1, 65, 65, 20, 12]], None, rule, None);
        kernels_agree(&[[1, 2, 33, 33, 5, 3], [7, 1, 1, 1, 4, 4]], None, rule, Some(DROPOUT));
    }
}

/// Enough sequences of one tile each to occupy a GPU, so that one kernel computes all gradients.
#[test]
fn gradients_of_short_sequences_equal_the_reference() {
    let sizes = [[5, 1, 33, 33, 20, 12], [2, 2, 64, 64, 8, 4]];
    for rule in RULES {
        kernels_agree(&sizes, None, rule, Some(DROPOUT));
    }
    let count = |sizes: Sizes| {
        let vars = case(sizes).vars(DType::F32);
        let ins: Vec<Tensor> = vars.iter().map(|var| var.as_tensor().clone()).collect();
        emulated(|| {
            let loss = attend(&ins, None, Weights::Softmax, None).and_then(|y| y.sum_all());
            let before = launches();
            crate::backward(&loss.unwrap()).unwrap();
            launches() - before
        })
    };
    let short = count([4, 1, 64, 64, 4, 4]);
    assert_eq!(count([4, 1, 65, 65, 4, 4]), short);
    // by parts, whose gradients of queries are added
    assert_eq!(count([2, 1, 65, 65, 4, 4]), short + 1);
    assert_eq!(count([4, 1, 65, 65, 4, 129]), short + 2);
}

/// One pass over the pairs by one block for a sequence and by several, of a few tiles and of more than have a block, with
/// heads of each width that it has a kernel for. Wide queries are tested without a softmax: over long rows of keys that
/// resemble each other, the gradients of its scores nearly cancel in theirs, more than bf16 bears.
#[test]
fn gradients_of_long_sequences_equal_the_reference() {
    let sizes = [[4, 1, 70, 70, 8, 12], [1, 3, 130, 130, 8, 4], [1, 1, 300, 300, 4, 8]];
    for (i, rule) in RULES.into_iter().enumerate() {
        kernels_agree(&sizes, None, rule, [None, Some(DROPOUT)][i % 2]);
    }
    kernels_agree(&sizes, None, Weights::Softmax, Some(DROPOUT));
    kernels_agree(&[[2, 1, 66, 66, 8, 128]], None, Weights::Softmax, Some(DROPOUT));
    kernels_agree(&[[2, 1, 66, 66, 100, 128]], None, Weights::Plain, None);
    let sizes = [2, 2, 70, 140, 8, 8];
    kernels_agree(&[sizes], Some(&positions(sizes)), Weights::Softmax, Some(DROPOUT));
}

/// A kernel for each gradient, over several tiles.
#[test]
fn gradients_of_wide_heads_equal_the_reference() {
    for (i, rule) in RULES.into_iter().enumerate() {
        kernels_agree(&[[1, 1, 130, 130, 8, 140]], None, rule, [None, Some(DROPOUT)][i % 2]);
    }
    kernels_agree(&[[2, 1, 70, 70, 132, 12]], None, Weights::Plain, None);
    let sizes = [1, 1, 70, 140, 8, 132];
    kernels_agree(&[sizes], Some(&positions(sizes)), Weights::Softmax, Some(DROPOUT));
}

#[test]
fn kernels_equal_the_reference_over_many_tiles() {
    let sizes = [[4, 1, 2, 2, 1, 1], [2, 2, 64, 64, 12, 8], [1, 2, 130, 130, 4, 6]];
    kernels_agree(&sizes, None, Weights::Softmax, Some(DROPOUT));
    kernels_agree(&[[1, 1, 300, 300, 4, 8]], None, Weights::Softmax, None);
}

#[test]
fn kernels_equal_the_reference_at_all_widths() {
    let widths = [(100, 68), (257, 16), (16, 300), (64, 64), (4, 1024)];
    for (i, (m, e)) in widths.into_iter().enumerate() {
        let (batch, rows) = if i % 2 == 0 { (1, 20) } else { (4, 9) };
        kernels_agree(&[[batch, 1, rows, rows, m, e]], None, RULES[i % 3], None);
    }
}

#[test]
fn kernels_equal_the_reference_for_some_rows() {
    for sizes in [[2, 2, 1, 9, 3, 4], [2, 1, 20, 70, 5, 17]] {
        for rule in RULES {
            kernels_agree(&[sizes], Some(&positions(sizes)), rule, Some(DROPOUT));
        }
    }
    let sizes = [4, 1, 70, 100, 8, 8];
    kernels_agree(&[sizes], Some(&positions(sizes)), Weights::Softmax, None);
}

#[test]
fn kernels_need_no_axis_of_heads_and_bear_huge_scores() {
    let sizes = [3, 1, 20, 20, 5, 6];
    let run = |x: &[Tensor], q: f64| {
        let [q, k, v] = [(x[0].squeeze(1)? * q)?, x[1].squeeze(1)?, x[2].squeeze(1)?];
        causal_attention([&q, &k, &v], 1, None, Weights::Softmax, None)
    };
    let with_axis = |x: &[Tensor]| {
        let op = checked(x, None, Weights::Softmax, None)?;
        reference::causal_attention([&x[0], &x[1], &x[2]], &op)
    };
    check::kernels_agree_to(CANCELLED, &[case(sizes)], |x| run(x, 1.0)?.unsqueeze(1), with_axis);
    let vars = case(sizes).vars(candle_core::DType::F32);
    let x: Vec<Tensor> = vars.iter().map(|x| x.as_detached_tensor()).collect();
    for far in [1e30, -1e30] {
        let y = dsf_emulation::emulated(|| run(&x, far).unwrap());
        let apart = (y - run(&x, far).unwrap()).unwrap().abs().unwrap().max_all().unwrap();
        assert!(apart.to_scalar::<f32>().unwrap() < 1e-5);
    }
}

/// Long enough for several chunks.
#[test]
fn kernels_equal_the_reference_in_linear_time() {
    for rule in [Weights::Plain, Weights::LinearNormalised] {
        for sizes in [[1, 2, 200, 200, 4, 3], [1, 1, 129, 129, 5, 34]] {
            let [batch, heads, rows, len, m, e] = sizes;
            let zeros = |dims: [usize; 4]| Tensor::zeros(&dims[..], DType::F32, &Device::Cpu).unwrap();
            let (q, k) = ([batch, heads, rows, m], [batch, heads, len, m]);
            let [q, k, v] = [q, k, [batch, heads, len, e]].map(zeros);
            let op = CausalAttention::check([&q, &k, &v], heads, None, rule, None).unwrap();
            assert!(cuda::linear::applies(&op));
            kernels_agree(&[sizes], None, rule, None);
        }
    }
}

fn rounded_to_tf32(sizes: Sizes, rule: Weights) {
    check::rounded_to_tf32(
        3,
        &case(sizes),
        &[true; 4],
        |x| attend(x, None, rule, None),
        |x| by_definition(x, None, rule, None),
    );
}

/// Tiles of few queries and of many, narrow and wide.
#[test]
fn tiles_round_to_tf32() {
    for rule in RULES {
        rounded_to_tf32([1, 2, 33, 33, 20, 12], rule);
    }
    rounded_to_tf32([1, 1, 130, 130, 12, 100], Weights::Softmax);
    at_full_size(|| rounded_to_tf32([33, 4, 65, 65, 4, 4], Weights::Softmax));
}

#[test]
fn chunks_round_to_tf32() {
    for rule in [Weights::Plain, Weights::LinearNormalised] {
        rounded_to_tf32([1, 1, 200, 200, 5, 34], rule);
    }
}

/// Short sequences, several tiles, and heads of more than 128 columns: all kernels without positions.
#[test]
fn they_index_large_tensors() {
    let softmax = [(2, 16, 32, 32), (1, 100, 32, 48), (1, 70, 160, 160)].map(|sizes| (Weights::Softmax, sizes));
    let others = [Weights::LinearNormalised, Weights::Plain].map(|rule| (rule, (1, 70, 32, 48)));
    for (rule, (heads, len, m, e)) in softmax.into_iter().chain(others) {
        let case = Case::new(format!("{len} x {heads}, {m} and {e} wide"))
            .uniform("q", &[1, len, heads * m], 0.1, 1.0)
            .uniform("k", &[1, len, heads * m], 0.1, 1.0)
            .normal("v", &[1, len, heads * e]);
        let fused = |x: &[Tensor]| causal_attention([&x[0], &x[1], &x[2]], heads, None, rule, None);
        let expected = |x: &[Tensor]| {
            let apart = x.iter().map(|x| place::heads_apart(x, heads)).collect::<Result<Vec<_>>>()?;
            place::heads_beside(&by_definition(&apart, None, rule, None)?)
        };
        at_full_size(|| check::large(&case).within(2.0 * CANCELLED).agrees(fused, expected));
    }
}
