//! The ops that can be timed. Adding one is an entry of [`OPS`].

use super::floors::{self, Extent, Passes};
use crate::error::{self, Result};
use crate::ops::{self, Dropout, Weights};
use candle_core::Tensor;

/// Sizes that an op is timed at. Ops without states read no `states`, ops without heads no `heads`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shape {
    pub batch: usize,
    pub len: usize,
    pub width: usize,
    pub states: usize,
    pub heads: usize,
}

impl Shape {
    fn extent(&self) -> Extent {
        Extent {
            batch: self.batch as f64,
            len: self.len as f64,
            width: self.width as f64,
            states: self.states as f64,
        }
    }

    /// (B, L, `last`).
    fn sequence(&self, last: usize) -> Vec<usize> {
        vec![self.batch, self.len, last]
    }

    /// (B, s, L, `last` / s).
    fn split(&self, last: usize) -> Vec<usize> {
        vec![self.batch, self.heads, self.len, last / self.heads]
    }
}

/// What an input is filled with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fill {
    /// Normal numbers of this standard deviation.
    Normal(f64),
    /// Uniform numbers between two bounds.
    Uniform(f64, f64),
    /// -1, -2, .. along the last axis, the decays of S6.
    Harmonics,
    /// Class numbers below this, which no gradient reaches.
    Classes(usize),
}

/// An input's shape and what is in it.
pub(super) type Input = (Vec<usize>, Fill);

/// An op, the inputs it is given, and what it can be held against.
pub(super) struct Op {
    /// As typed.
    pub name: &'static str,
    /// What it is given, and what an element is.
    pub about: &'static str,
    /// Whether n matters.
    pub states: bool,
    /// Whether heads matter.
    pub heads: bool,
    pub inputs: fn(&Shape) -> Vec<Input>,
    pub run: fn(&[Tensor]) -> candle_core::Result<Tensor>,
    pub elements: fn(Extent) -> f64,
    pub floor: fn(Extent) -> Passes,
}

impl Op {
    /// The op called `name`, or the sentence that says which there are.
    pub fn find(name: &str) -> Result<&'static Self> {
        let found = OPS.iter().find(|op| op.name == name);
        found.ok_or_else(|| error::unknown("op", name, OPS.iter().map(|op| op.name)))
    }

    pub fn elements(&self, shape: &Shape) -> f64 {
        (self.elements)(shape.extent())
    }

    pub fn floor(&self, shape: &Shape) -> Passes {
        (self.floor)(shape.extent())
    }
}

/// Every op, in the order of the listing.
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
        about: "the same, a (d); elements B L d n",
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
];

/// One input, read and written; on the way back read with the gradient, whose result is written.
const POINTWISE: Op = Op {
    name: "",
    about: "x (B, L, d); elements B L d",
    states: false,
    heads: false,
    inputs: |s| vec![(s.sequence(s.width), Fill::Normal(1.0))],
    run: |x| Ok(x[0].clone()),
    elements: Extent::channels,
    floor: |e| Passes::moves(e.channels(), 2.0, 5.0),
};

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
