//! The ops that can be timed: adding one is an entry of a table.

mod rows;
mod sequences;

use super::floors::{Extent, Passes};
use crate::error::{self, Result};
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
        let found = all().find(|op| op.name == name);
        found.ok_or_else(|| error::unknown("op", name, all().map(|op| op.name)))
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
    inputs: |s| vec![(s.sequence(s.width), Fill::Normal(1.0))],
    run: |x| Ok(x[0].clone()),
    elements: Extent::channels,
    floor: |e| Passes::moves(e.channels(), 2.0, 5.0),
};
