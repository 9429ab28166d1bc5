//! Ops along sequences: scans, attention, convolution.

use super::op::{input, parameter, Fill, Input, Op, POINTWISE};
use super::sizes::{Shape, Sizes};
use crate::bench::floors::{self, Extent, Passes, Work};
use crate::config::Pool;
use crate::ops::{self, Gates, Weights};
use candle_core::Tensor;

pub(super) static OPS: &[Op] = &[
    Op {
        name: "selective_scan",
        sizes: Sizes::DecayedStates,
        about: "u, delta (B, L, d), a (d, n), b, c (B, L, n); elements B L d n",
        states: true,
        inputs: |s| scan(s, parameter([s.width, s.states], Fill::Harmonics)),
        run: |x, _| selective_scan(x),
        elements: Extent::elements,
        floor: floors::selective_scan,
        ..POINTWISE
    },
    Op {
        name: "ssd",
        sizes: Sizes::States,
        about: "u, delta (B, L, d), a (d), b, c (B, L, n); elements B L d n",
        states: true,
        inputs: |s| scan(s, parameter([s.width], Fill::Uniform(-1.5, -0.5))),
        run: |x, _| ops::ssd(&x[0], &x[1], &x[2], &x[3], &x[4], None),
        elements: Extent::elements,
        floor: floors::chunked,
        ..POINTWISE
    },
    Op {
        name: "linear_scan",
        sizes: Sizes::Sequences,
        about: "a and x (B, L, d); elements B L d",
        inputs: |s| {
            let x = s.sequence(s.width);
            vec![
                input(x.clone(), Fill::Uniform(0.0, 1.0)),
                input(x, Fill::Normal(1.0)),
            ]
        },
        run: |x, _| ops::linear_scan(&x[0], &x[1]),
        floor: floors::linear_scan,
        ..POINTWISE
    },
    Op {
        name: "causal_attention",
        about: "q, k (B, s, L, n/s), v (B, s, L, d/s); elements B L (L + 1) / 2",
        run: |x, _| attention(x, Weights::Softmax),
        elements: |e| e.tokens() * (e.len + 1.0) / 2.0,
        floor: floors::softmax,
        ..ATTENTION
    },
    Op {
        name: "causal_attention_linear",
        about: "the same, scores divided by their sum; elements B L d n",
        run: |x, _| attention(x, Weights::LinearNormalised),
        ..ATTENTION
    },
    Op {
        name: "causal_attention_plain",
        about: "the same, scores unnormalised; elements B L d n",
        run: |x, _| attention(x, Weights::Plain),
        ..ATTENTION
    },
    Op {
        name: "causal_conv1d",
        sizes: Sizes::Sequences,
        about: "x (B, L, d), four taps; elements B L d",
        inputs: |s| {
            let taps = parameter([s.width, 4], Fill::Uniform(-0.5, 0.5));
            let bias = parameter([s.width], Fill::Uniform(-0.5, 0.5));
            vec![input(s.sequence(s.width), Fill::Normal(1.0)), taps, bias]
        },
        run: |x, _| ops::causal_conv1d(&x[0], &x[1], Some(&x[2])),
        ..POINTWISE
    },
    Op {
        name: "complex_scan",
        sizes: Sizes::Sequences,
        about: "a and x (B, L, 2, d), real before imaginary; elements B L d",
        inputs: |s| {
            let x = vec![s.batch, s.len, 2, s.width];
            vec![
                input(x.clone(), Fill::Uniform(-0.6, 0.6)),
                input(x, Fill::Normal(1.0)),
            ]
        },
        run: |x, _| ops::complex_scan(&x[0], &x[1]),
        floor: |e| Passes::moves(2.0 * e.channels(), 3.0, 8.0),
        ..POINTWISE
    },
    Op {
        name: "gated_scan",
        about: "gates (B, L, 2 d) of a qLSTM, x (B, L, d); elements B L d",
        run: |x, _| ops::gated_scan(&x[0], &x[1], &Gates::Sigmoid, None),
        ..GATED
    },
    Op {
        name: "gated_scan_reversed",
        about: "the same with the reversed gate and its alpha; elements B L d",
        inputs: |s| gated(s, Some(parameter([1], Fill::Uniform(0.5, 1.5)))),
        run: |x, _| {
            let alpha = x[2].clone();
            ops::gated_scan(&x[0], &x[1], &Gates::Reversed { alpha }, None)
        },
        ..GATED
    },
    Op {
        name: "gated_scan_rg_lru",
        about: "the same with the gates of an RG-LRU; elements B L d",
        inputs: |s| gated(s, Some(parameter([s.width], Fill::Uniform(-6.0, -2.0)))),
        run: |x, _| {
            let (lambda, eps) = (x[2].clone(), 1e-6);
            ops::gated_scan(&x[0], &x[1], &Gates::RgLru { lambda, eps }, None)
        },
        ..GATED
    },
    Op {
        name: "time_steps",
        about: "x (B, L, d) split into L tensors and stacked again; elements B L d",
        run: |x, _| Tensor::stack(&ops::time_steps(&x[0])?, 1),
        floor: |e| Passes::moves(e.channels(), 4.0, 8.0),
        ..POINTWISE
    },
    Op {
        name: "select_rows",
        about: "x (B, L, d), one row of sixteen; elements B L d",
        sizes: Sizes::Sequences,
        inputs: |s| {
            let rows = [s.batch, s.len.div_ceil(16)];
            let positions = input(rows, Fill::Classes(s.len));
            vec![input(s.sequence(s.width), Fill::Normal(1.0)), positions]
        },
        run: |x, _| ops::select_rows(&x[0], &x[1]),
        // The gradient of all other rows is zero, which has to be written too.
        floor: |e| {
            let few = e.channels() / 16.0;
            Passes {
                forward: Work::words(2.0 * few),
                both: Work::words(3.0 * few + e.channels()),
            }
        },
        ..POINTWISE
    },
    Op {
        name: "pool_mean",
        run: |x, _| ops::pool(&x[0], Some(&x[1]), Pool::Mean),
        ..POOL
    },
    Op {
        name: "pool_last",
        run: |x, _| ops::pool(&x[0], Some(&x[1]), Pool::Last),
        floor: |e| Passes::moves(e.channels(), 2.0 / e.len, 1.0),
        ..POOL
    },
    Op {
        name: "pool_max",
        run: |x, _| ops::pool(&x[0], Some(&x[1]), Pool::Max),
        ..POOL
    },
];

/// On average half of a sequence is pooled; its gradient is written everywhere.
const POOL: Op = Op {
    sizes: Sizes::Sequences,
    about: "x (B, L, d) up to lengths evenly below L; elements B L d",
    inputs: |s| {
        let lengths = input([s.batch], Fill::Lengths(s.len));
        vec![input(s.sequence(s.width), Fill::Normal(1.0)), lengths]
    },
    floor: |e| Passes::moves(e.channels(), 0.5, 1.5),
    ..POINTWISE
};

/// Queries and keys are positive, so that no sum of scores is near zero.
const ATTENTION: Op = Op {
    sizes: Sizes::States,
    states: true,
    heads: true,
    inputs: |s| {
        let keys = input(s.split(s.states), Fill::Uniform(0.05, 0.5));
        vec![
            keys.clone(),
            keys,
            input(s.split(s.width), Fill::Normal(1.0)),
        ]
    },
    elements: Extent::elements,
    floor: floors::chunked,
    ..POINTWISE
};

/// Decay and input scale of every channel come from gates, which are read beside the input.
const GATED: Op = Op {
    sizes: Sizes::Sequences,
    inputs: |s| gated(s, None),
    floor: |e| Passes::moves(e.channels(), 4.0, 12.0),
    ..POINTWISE
};

fn gated(s: &Shape, parameter: Option<Input>) -> Vec<Input> {
    let gates = input(s.sequence(2 * s.width), Fill::Normal(1.0));
    let x = input(s.sequence(s.width), Fill::Normal(1.0));
    [gates, x].into_iter().chain(parameter).collect()
}

fn attention(x: &[Tensor], weights: Weights) -> candle_core::Result<Tensor> {
    ops::causal_attention(&x[0], &x[1], &x[2], None, weights, None)
}

fn scan(s: &Shape, decays: Input) -> Vec<Input> {
    let x = s.sequence(s.width);
    let spread = Fill::Normal((s.states as f64).powf(-0.5));
    let states = input(s.sequence(s.states), spread);
    // The range of Mamba's initial steps: no decay underflows, which would slow some implementations down.
    let steps = input(x.clone(), Fill::Uniform(0.001, 0.1));
    vec![
        input(x, Fill::Normal(1.0)),
        steps,
        decays,
        states.clone(),
        states,
    ]
}

fn selective_scan(x: &[Tensor]) -> candle_core::Result<Tensor> {
    ops::selective_scan(&x[0], &x[1], &x[2], &x[3], &x[4], None)
}
