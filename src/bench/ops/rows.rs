//! Ops on each row of d numbers alone: linear maps, norms, the head, elementwise functions.

use super::op::{input, parameter, Fill, Op, POINTWISE};
use super::sizes::Sizes;
use crate::bench::floors::{Extent, Passes};
use crate::ops::{self, Dropout, Glu};

pub(super) static OPS: &[Op] = &[
    Op {
        name: "layer_norm",
        sizes: Sizes::Rows,
        about: "x (B, L, d), over d; elements B L d",
        inputs: |s| {
            let weight = parameter([s.width], Fill::Uniform(0.5, 1.5));
            let bias = parameter([s.width], Fill::Normal(1.0));
            vec![input(s.sequence(s.width), Fill::Normal(1.0)), weight, bias]
        },
        run: |x, _| ops::layer_norm(&x[0], &x[1], &x[2], 1e-5),
        ..POINTWISE
    },
    Op {
        name: "linear",
        sizes: Sizes::Square,
        about: "x (B, L, d), to n features with a bias; elements B L d n",
        states: true,
        inputs: |s| {
            let weight = parameter([s.states, s.width], Fill::Normal(0.02));
            let bias = parameter([s.states], Fill::Normal(1.0));
            vec![input(s.sequence(s.width), Fill::Normal(1.0)), weight, bias]
        },
        run: |x, _| ops::linear(&x[0], &x[1], Some(&x[2])),
        elements: Extent::elements,
        floor: |e| Passes::dense(2.0 * e.elements(), e.tokens() * (e.width + e.states)),
        ..POINTWISE
    },
    Op {
        name: "dropout",
        sizes: Sizes::Rows,
        about: "x (B, L, d), p = 0.1; elements B L d",
        run: |x, _| ops::dropout(&x[0], DROPPED),
        floor: |e| Passes::moves(e.channels(), 2.0, 4.0),
        ..POINTWISE
    },
    Op {
        name: "cross_entropy",
        sizes: Sizes::Labels,
        about: "hidden (B L, d), a head of n classes; elements B L n",
        states: true,
        inputs: |s| {
            let rows = s.batch * s.len;
            let head = parameter([s.states, s.width], Fill::Normal(0.02));
            let classes = input([rows], Fill::Classes(s.states));
            vec![input([rows, s.width], Fill::Normal(1.0)), head, classes]
        },
        run: |x, _| Ok(ops::cross_entropy(&x[0], &x[1], &x[2])?.loss),
        elements: |e| e.tokens() * e.states,
        floor: |e| Passes::dense(2.0 * e.elements(), e.channels() + e.states * e.width),
        ..POINTWISE
    },
    Op {
        name: "sigmoid",
        run: |x, _| ops::sigmoid(&x[0]),
        ..POINTWISE
    },
    Op {
        name: "softplus",
        run: |x, _| ops::softplus(&x[0]),
        ..POINTWISE
    },
    Op {
        name: "elu1",
        run: |x, _| ops::elu1(&x[0]),
        ..POINTWISE
    },
    Op {
        name: "gelu",
        run: |x, _| ops::gelu(&x[0]),
        ..POINTWISE
    },
    Op {
        name: "silu",
        run: |x, _| ops::silu(&x[0]),
        ..POINTWISE
    },
    Op {
        name: "tanh",
        run: |x, _| ops::tanh(&x[0]),
        ..POINTWISE
    },
    Op {
        name: "add_layer_norm",
        sizes: Sizes::Rows,
        about: "x, y (B, L, d), their sum and its norm; elements B L d",
        inputs: |s| {
            let x = input(s.sequence(s.width), Fill::Normal(1.0));
            let weight = parameter([s.width], Fill::Uniform(0.5, 1.5));
            let bias = parameter([s.width], Fill::Normal(1.0));
            vec![x.clone(), x, weight, bias]
        },
        run: |x, _| Ok(ops::add_layer_norm(&x[0], &x[1], &x[2], &x[3], 1e-5)?.1),
        floor: |e| Passes::moves(e.channels(), 4.0, 9.0),
        ..POINTWISE
    },
    Op {
        name: "mlp",
        run: |x, _| ops::mlp(&x[0], [&x[1], &x[2]], [&x[3], &x[4]], [None; 2]),
        ..MLP
    },
    Op {
        name: "mlp_dropped",
        about: "mlp with dropout, p = 0.1, of hidden features and output; elements B L d n",
        run: |x, _| {
            let mask = |index| Dropout { index, ..DROPPED };
            let masks = [Some(mask(3)), Some(mask(4))];
            ops::mlp(&x[0], [&x[1], &x[2]], [&x[3], &x[4]], masks)
        },
        ..MLP
    },
    Op {
        name: "embedding",
        sizes: Sizes::Tokens,
        about: "tokens (B, L), a table of n rows of d; elements B L d",
        states: true,
        inputs: |s| {
            let table = parameter([s.states, s.width], Fill::Normal(0.02));
            vec![input([s.batch, s.len], Fill::Classes(s.states)), table]
        },
        run: |x, io| ops::embedding(&x[0], &x[1], None, None, io),
        floor: |e| Passes::moves(e.channels(), 2.0, 4.0),
        ..POINTWISE
    },
    Op {
        name: "softplus_biased",
        about: "x (B, L, 1), a bias a channel; elements B L d",
        sizes: Sizes::Rows,
        inputs: |s| {
            let bias = parameter([s.width], Fill::Normal(1.0));
            vec![input(s.sequence(1), Fill::Normal(1.0)), bias]
        },
        run: |x, _| ops::softplus_biased(&x[0], &x[1]),
        floor: |e| Passes::moves(e.channels(), 1.0, 2.0),
        ..POINTWISE
    },
    Op {
        name: "add_scaled",
        about: "x, y (B, L, d), a scale a channel; elements B L d",
        sizes: Sizes::Rows,
        inputs: |s| {
            let x = input(s.sequence(s.width), Fill::Normal(1.0));
            vec![x.clone(), x, parameter([s.width], Fill::Normal(1.0))]
        },
        run: |x, _| ops::add_scaled(&x[0], &x[1], &x[2]),
        floor: |e| Passes::moves(e.channels(), 3.0, 6.0),
        ..POINTWISE
    },
    Op {
        name: "scale_heads",
        about: "x (B, L, d), a scale for each head of it; elements B L d",
        heads: true,
        sizes: Sizes::Rows,
        inputs: |s| {
            let scale = input(s.sequence(s.heads), Fill::Uniform(0.5, 1.5));
            vec![input(s.sequence(s.width), Fill::Normal(1.0)), scale]
        },
        run: |x, _| ops::scale_heads(&x[0], &x[1]),
        ..POINTWISE
    },
    Op {
        name: "rotary",
        about: "x (B, L, d), rotary embedding of a quarter of each 64 channels; elements B L d",
        sizes: Sizes::Rows,
        run: |x, _| {
            let width = x[0].dim(2)?;
            let heads = if width % 64 == 0 { width / 64 } else { 1 };
            ops::rotary(&x[0], heads, (width / heads / 8).max(1) * 2, None)
        },
        ..POINTWISE
    },
    Op {
        name: "gated_readout",
        about: "h, g and an output gate (B, L, d); elements B L d",
        sizes: Sizes::Rows,
        inputs: |s| vec![input(s.sequence(s.width), Fill::Normal(1.0)); 3],
        run: |x, _| ops::gated_readout(&x[0], &x[1], Some(&x[2])),
        floor: |e| Passes::moves(e.channels(), 4.0, 11.0),
        ..POINTWISE
    },
    Op {
        name: "rms_norm",
        sizes: Sizes::Rows,
        about: "x (B, L, d), over d; elements B L d",
        inputs: |s| {
            let gamma = parameter([s.width], Fill::Uniform(0.5, 1.5));
            vec![input(s.sequence(s.width), Fill::Normal(1.0)), gamma]
        },
        run: |x, _| ops::rms_norm(&x[0], &x[1]),
        ..POINTWISE
    },
    Op {
        name: "glu_sigmoid",
        run: |x, _| ops::glu(&x[0], Glu::Sigmoid),
        ..GLU
    },
    Op {
        name: "glu_gelu",
        run: |x, _| ops::glu(&x[0], Glu::Gelu),
        ..GLU
    },
    Op {
        name: "residual",
        sizes: Sizes::Rows,
        about: "scale x + branch, all (B, L, d), p = 0.1; elements B L d",
        inputs: |s| {
            let x = input(s.sequence(s.width), Fill::Normal(1.0));
            vec![x.clone(), x, parameter([1], Fill::Uniform(0.5, 1.5))]
        },
        run: |x, _| ops::residual(&x[0], &x[1], Some(DROPPED), Some(&x[2])),
        floor: |e| Passes::moves(e.channels(), 3.0, 7.0),
        ..POINTWISE
    },
];

/// Dropout of a tenth of the elements.
const DROPPED: Dropout = Dropout {
    p: 0.1,
    key: [1, 2],
    index: 3,
};

/// Two linear maps with an activation function between them.
const MLP: Op = Op {
    sizes: Sizes::Wide,
    about: "x (B, L, d) through n hidden features; elements B L d n",
    states: true,
    inputs: |s| {
        let [up, down] = [[s.states, s.width], [s.width, s.states]];
        vec![
            input(s.sequence(s.width), Fill::Normal(1.0)),
            parameter(up, Fill::Normal(0.1)),
            parameter([s.states], Fill::Normal(1.0)),
            parameter(down, Fill::Normal(0.1)),
            parameter([s.width], Fill::Normal(1.0)),
        ]
    },
    elements: Extent::elements,
    floor: |e| Passes::dense(4.0 * e.elements(), 2.0 * e.channels()),
    ..POINTWISE
};

/// Forward reads two numbers for each that it writes; backward reads three and writes two.
const GLU: Op = Op {
    sizes: Sizes::Rows,
    about: "x (B, L, 2 d), a function of one half times the other; elements B L d",
    inputs: |s| vec![input(s.sequence(2 * s.width), Fill::Normal(1.0))],
    floor: |e| Passes::moves(e.channels(), 3.0, 8.0),
    ..POINTWISE
};
