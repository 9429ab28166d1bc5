//! The ops that can be timed: adding one is an entry of a table.

mod fill;
mod rows;
mod sequences;
mod sizes;

pub(super) use fill::{filled, Fill};
pub(super) use sizes::{Sizes, PAIRS, TASKS, VOCABULARY};

use super::floors::{Extent, Passes};
use crate::error::{self, Result};
use candle_core::{DType, Tensor};

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

/// An input's shape and what is in it.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub dims: Vec<usize>,
    pub fill: Fill,
    /// A parameter of a model: f32 beside activations of 16 bits.
    pub parameter: bool,
}

/// An activation, which has the type of the numbers that were asked for.
fn input(dims: impl Into<Vec<usize>>, fill: Fill) -> Input {
    Input {
        dims: dims.into(),
        fill,
        parameter: false,
    }
}

/// A parameter of a model.
fn parameter(dims: impl Into<Vec<usize>>, fill: Fill) -> Input {
    Input {
        parameter: true,
        ..input(dims, fill)
    }
}

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
    pub sizes: Sizes,
    /// Also told the type of activations, which inputs that are all parameters do not show.
    pub run: fn(&[Tensor], DType) -> candle_core::Result<Tensor>,
    pub elements: fn(Extent) -> f64,
    pub floor: fn(Extent) -> Passes,
}

impl Op {
    /// The op called `name`, or the sentence that says which there are.
    pub fn find(name: &str) -> Result<&'static Self> {
        let found = all().find(|op| op.name == name);
        found.ok_or_else(|| error::unknown("op", name, all().map(|op| op.name)))
    }

    /// `shape` with heads only where the op has them.
    pub fn heads_of(&self, shape: Shape) -> Shape {
        let heads = if self.heads { shape.heads } else { 1 };
        Shape { heads, ..shape }
    }

    /// B,L,d and, where it matters, n.
    pub fn sizes_of(&self, shape: &Shape) -> String {
        let Shape {
            batch, len, width, ..
        } = shape;
        match self.states {
            true => format!("{batch},{len},{width},{}", shape.states),
            false => format!("{batch},{len},{width}"),
        }
    }

    pub fn elements(&self, shape: &Shape) -> f64 {
        (self.elements)(shape.extent())
    }

    pub fn floor(&self, shape: &Shape) -> Passes {
        (self.floor)(shape.extent())
    }
}

/// Every op, in the order of the listing.
pub(super) fn all() -> impl Iterator<Item = &'static Op> {
    sequences::OPS.iter().chain(rows::OPS)
}

/// One input, read and written; on the way back read with the gradient, whose result is written.
const POINTWISE: Op = Op {
    name: "",
    about: "x (B, L, d); elements B L d",
    states: false,
    heads: false,
    inputs: |s| vec![input(s.sequence(s.width), Fill::Normal(1.0))],
    sizes: Sizes::Numbers,
    run: |x, _| Ok(x[0].clone()),
    elements: Extent::channels,
    floor: |e| Passes::moves(e.channels(), 2.0, 5.0),
};
