//! Common code of ops with a matrix state for each sequence and head, written by keys and values, decayed row by row
//! and read by queries: sizes, the division of the work, the inputs of a span of steps, and the outputs.

mod block;
mod cuda;
mod division;
mod outputs;
mod steps;

use crate::runtime::chunked::Times;
use crate::runtime::shape;
use candle_core::{bail, Result, Tensor};

pub(crate) use block::{
    blocks, each_group, product, weighted, without_trace, without_traces, StateBlock, BLOCK, IN_GROUP,
};
pub(crate) use division::Task;
pub(crate) use outputs::{gradients, result, write_decays, write_features};
pub(crate) use steps::{SpanSteps, SPAN};

/// Indices of the inputs that every such op has, and of the vectors of a rank-one part, which have the shape of k.
pub(crate) const QUERIES: usize = 0;
pub(crate) const KEYS: usize = 1;
pub(crate) const VALUES: usize = 2;
pub(crate) const DECAYS: usize = 3;
pub(crate) const A: usize = 4;
pub(crate) const B: usize = 5;

/// The sizes of an op, and the times of the queries.
pub(crate) struct StateSizes {
    pub(crate) batch: usize,
    pub(crate) len: usize,
    pub(crate) heads: usize,
    /// m, the number of features of a key.
    pub(crate) keys: usize,
    /// e, the number of features of a value.
    pub(crate) values: usize,
    /// Number of decays per head and step: m or 1.
    pub(crate) decays: usize,
    pub(crate) times: Times,
    /// (B, R), for kernels; `None` for a query at every step.
    pub(crate) rows: Option<Tensor>,
}

impl StateSizes {
    /// The sizes of the op `name` with inputs q (B, R, s, m), k (B, L, s, m), v (B, L, s, e) and g
    /// (B, L, s, m or 1), and queries at the times `rows` (B, R).
    pub(crate) fn check(name: &str, [q, k, v, g]: [&Tensor; 4], rows: Option<&Tensor>) -> Result<Self> {
        let by = ("k", k);
        let [batch, len, heads, keys] = shape::dims(name, by)?;
        let [_, _, _, values] = shape::dims(name, ("v", v))?;
        let [_, _, _, decays] = shape::dims(name, ("g", g))?;
        if decays != 1 && decays != keys {
            let given = g.dims();
            bail!("{name}: g has shape {given:?}, but needed are {keys} decays a head, as k has, or 1");
        }
        let times = match rows {
            Some(rows) => {
                let [_, count] = shape::dims(name, ("rows", rows))?;
                let (by, of) = (("k", [batch, count]), ("k", len));
                Times::lists(shape::ascending(name, rows, by, of, 0)?, count, 1)
            }
            None => Times::all(len),
        };
        shape::expect(name, ("q", q), by, &[batch, times.rows, heads, keys])?;
        shape::expect(name, ("v", v), by, &[batch, len, heads, values])?;
        shape::expect(name, ("g", g), by, &[batch, len, heads, decays])?;
        Ok(Self { batch, len, heads, keys, values, decays, times, rows: rows.map(Tensor::contiguous).transpose()? })
    }

    /// Numbers per head and step of an input.
    fn width(&self, input: usize) -> usize {
        match input {
            VALUES => self.values,
            DECAYS => self.decays,
            _ => self.keys,
        }
    }
}
