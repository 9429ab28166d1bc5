//! Ops along sequences: scans, attention, convolution.

use super::{Fill, Input, Op, Shape, POINTWISE};
use crate::bench::floors::{self, Extent, Passes};
use crate::ops::{self, Gates, Weights};
use candle_core::Tensor;

pub(super) static OPS: &[Op] = &[
    Op {
        name: "selective_scan",
        about: "u, delta (B, L, d), a (d, n), b, c (B, L, n); elements B L d n",
        states: true,
        inputs: |s| scan(s, (vec![s.width, s.states], Fill::Harmonics)),
        run: selective_scan,
        elements: Extent::elements,
        floor: floors::selective_scan,
        ..POINTWISE
    },
    Op {
        name: "ssd",
        about: "u, delta (B, L, d), a (d), b, c (B, L, n); elements B L d n",
        states: true,
        inputs: |s| scan(s, (vec![s.width], Fill::Uniform(-1.5, -0.5))),
        run: |x| ops::ssd(&x[0], &x[1], &x[2], &x[3], &x[4], None),
        elements: Extent::elements,
        floor: floors::chunked,
        ..POINTWISE
    },
    Op {
        name: "linear_scan",
        about: "a and x (B, L, d); elements B L d",
        inputs: |s| {
            let x = s.sequence(s.width);
            vec![(x.clone(), Fill::Uniform(0.0, 1.0)), (x, Fill::Normal(1.0))]
        },
        run: |x| ops::linear_scan(&x[0], &x[1]),
        floor: floors::linear_scan,
        ..POINTWISE
    },
    Op {
        name: "causal_attention",
        about: "q, k (B, s, L, n/s), v (B, s, L, d/s); elements B L (L + 1) / 2",
        run: |x| attention(x, Weights::Softmax),
        elements: |e| e.tokens() * (e.len + 1.0) / 2.0,
        floor: floors::softmax,
        ..ATTENTION
    },
    Op {
        name: "causal_attention_linear",
        about: "the same, scores over their sum; elements B L d n",
        run: |x| attention(x, Weights::LinearNormalised),
        ..ATTENTION
    },
    Op {
        name: "causal_attention_plain",
        about: "the same, scores as they are; elements B L d n",
        run: |x| attention(x, Weights::Plain),
        ..ATTENTION
    },
    Op {
        name: "causal_conv1d",
        about: "x (B, L, d), four taps; elements B L d",
        inputs: |s| {
            let taps = (vec![s.width, 4], Fill::Uniform(-0.5, 0.5));
            let bias = (vec![s.width], Fill::Uniform(-0.5, 0.5));
            vec![(s.sequence(s.width), Fill::Normal(1.0)), taps, bias]
        },
        run: |x| ops::causal_conv1d(&x[0], &x[1], Some(&x[2])),
        ..POINTWISE
    },
    Op {
        name: "complex_scan",
        about: "a and x (B, L, 2, d), real before imaginary; elements B L d",
        inputs: |s| {
            let x = vec![s.batch, s.len, 2, s.width];
            vec![
                (x.clone(), Fill::Uniform(-0.6, 0.6)),
                (x, Fill::Normal(1.0)),
            ]
        },
        run: |x| ops::complex_scan(&x[0], &x[1]),
        floor: |e| Passes::moves(2.0 * e.channels(), 3.0, 8.0),
        ..POINTWISE
    },
    Op {
        name: "gated_scan",
        about: "gates (B, L, 2 d) of a qLSTM, x (B, L, d); elements B L d",
        inputs: |s| {
            let gates = (s.sequence(2 * s.width), Fill::Normal(1.0));
            vec![gates, (s.sequence(s.width), Fill::Normal(1.0))]
        },
        run: |x| ops::gated_scan(&x[0], &x[1], &Gates::Sigmoid, None),
        floor: |e| Passes::moves(e.channels(), 4.0, 12.0),
        ..POINTWISE
    },
];

/// Queries and keys above zero, so that a sum of scores is never one.
const ATTENTION: Op = Op {
    states: true,
    heads: true,
    inputs: |s| {
        let keys = (s.split(s.states), Fill::Uniform(0.05, 0.5));
        vec![keys.clone(), keys, (s.split(s.width), Fill::Normal(1.0))]
    },
    elements: Extent::elements,
    floor: floors::chunked,
    ..POINTWISE
};

fn attention(x: &[Tensor], weights: Weights) -> candle_core::Result<Tensor> {
    ops::causal_attention(&x[0], &x[1], &x[2], None, weights, None)
}

fn scan(s: &Shape, decays: Input) -> Vec<Input> {
    let x = s.sequence(s.width);
    let states = (
        s.sequence(s.states),
        Fill::Normal((s.states as f64).powf(-0.5)),
    );
    // The range of Mamba's initial steps: no decay underflows, which would slow some forms down.
    let steps = (x.clone(), Fill::Uniform(0.001, 0.1));
    vec![
        (x, Fill::Normal(1.0)),
        steps,
        decays,
        states.clone(),
        states,
    ]
}

fn selective_scan(x: &[Tensor]) -> candle_core::Result<Tensor> {
    ops::selective_scan(&x[0], &x[1], &x[2], &x[3], &x[4], None)
}
