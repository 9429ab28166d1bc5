//! Ops on each row for itself: linear maps, norms, the head, functions of one number.

use super::{Fill, Op, POINTWISE};
use crate::bench::floors::{Extent, Passes};
use crate::ops::{self, Dropout};

pub(super) static OPS: &[Op] = &[
    Op {
        name: "layer_norm",
        about: "x (B, L, d), over d; elements B L d",
        inputs: |s| {
            let weight = (vec![s.width], Fill::Uniform(0.5, 1.5));
            let bias = (vec![s.width], Fill::Normal(1.0));
            vec![(s.sequence(s.width), Fill::Normal(1.0)), weight, bias]
        },
        run: |x| ops::layer_norm(&x[0], &x[1], &x[2], 1e-5),
        ..POINTWISE
    },
    Op {
        name: "linear",
        about: "x (B, L, d), to n features with a bias; elements B L d n",
        states: true,
        inputs: |s| {
            let weight = (vec![s.states, s.width], Fill::Normal(0.02));
            let bias = (vec![s.states], Fill::Normal(1.0));
            vec![(s.sequence(s.width), Fill::Normal(1.0)), weight, bias]
        },
        run: |x| ops::linear(&x[0], &x[1], Some(&x[2])),
        elements: Extent::elements,
        floor: |e| Passes::dense(2.0 * e.elements()),
        ..POINTWISE
    },
    Op {
        name: "dropout",
        about: "x (B, L, d), p = 0.1; elements B L d",
        run: |x| {
            let (p, key, index) = (0.1, [1, 2], 3);
            ops::dropout(&x[0], Dropout { p, key, index })
        },
        floor: |e| Passes::moves(e.channels(), 2.0, 4.0),
        ..POINTWISE
    },
    Op {
        name: "cross_entropy",
        about: "hidden (B L, d), a head of n classes; elements B L n",
        states: true,
        inputs: |s| {
            let rows = s.batch * s.len;
            let head = (vec![s.states, s.width], Fill::Normal(0.02));
            let classes = (vec![rows], Fill::Classes(s.states));
            vec![(vec![rows, s.width], Fill::Normal(1.0)), head, classes]
        },
        run: |x| Ok(ops::cross_entropy(&x[0], &x[1], &x[2])?.loss),
        elements: |e| e.tokens() * e.states,
        floor: |e| Passes::dense(2.0 * e.elements()),
        ..POINTWISE
    },
    Op {
        name: "sigmoid",
        run: |x| ops::sigmoid(&x[0]),
        ..POINTWISE
    },
    Op {
        name: "softplus",
        run: |x| ops::softplus(&x[0]),
        ..POINTWISE
    },
    Op {
        name: "elu1",
        run: |x| ops::elu1(&x[0]),
        ..POINTWISE
    },
    Op {
        name: "gelu",
        run: |x| ops::gelu(&x[0]),
        ..POINTWISE
    },
    Op {
        name: "silu",
        run: |x| ops::silu(&x[0]),
        ..POINTWISE
    },
    Op {
        name: "tanh",
        run: |x| ops::tanh(&x[0]),
        ..POINTWISE
    },
    Op {
        name: "add_layer_norm",
        about: "x, y (B, L, d), their sum and its norm; elements B L d",
        inputs: |s| {
            let x = (s.sequence(s.width), Fill::Normal(1.0));
            let weight = (vec![s.width], Fill::Uniform(0.5, 1.5));
            let bias = (vec![s.width], Fill::Normal(1.0));
            vec![x.clone(), x, weight, bias]
        },
        run: |x| Ok(ops::add_layer_norm(&x[0], &x[1], &x[2], &x[3], 1e-5)?.1),
        floor: |e| Passes::moves(e.channels(), 4.0, 9.0),
        ..POINTWISE
    },
    Op {
        name: "mlp",
        about: "x (B, L, d) through n hidden features; elements B L d n",
        states: true,
        inputs: |s| {
            let [up, down] = [[s.states, s.width], [s.width, s.states]];
            vec![
                (s.sequence(s.width), Fill::Normal(1.0)),
                (up.to_vec(), Fill::Normal(0.1)),
                (vec![s.states], Fill::Normal(1.0)),
                (down.to_vec(), Fill::Normal(0.1)),
                (vec![s.width], Fill::Normal(1.0)),
            ]
        },
        run: |x| ops::mlp(&x[0], [&x[1], &x[2]], [&x[3], &x[4]]),
        elements: Extent::elements,
        floor: |e| Passes::dense(4.0 * e.elements()),
        ..POINTWISE
    },
    Op {
        name: "embedding",
        about: "tokens (B, L), a table of n rows of d; elements B L d",
        states: true,
        inputs: |s| {
            let table = (vec![s.states, s.width], Fill::Normal(0.02));
            vec![(vec![s.batch, s.len], Fill::Classes(s.states)), table]
        },
        run: |x| ops::embedding(&x[0], &x[1], None, None, x[1].dtype()),
        floor: |e| Passes::moves(e.channels(), 2.0, 4.0),
        ..POINTWISE
    },
];
