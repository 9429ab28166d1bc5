//! The gated scan of qLSTM, reversed qLSTM and RG-LRU, whose decay and input scale are gates: from
//! the output of the linear map to the state in one pass forward and one backward.

mod cpu;
mod cuda;
mod reference;
mod rules;

use crate::linear_scan::cuda::Extent;
use crate::runtime::autograd::{apply_one, runs_on, Op};
use crate::runtime::shape;
use candle_core::{Result, Shape, Tensor};
use rules::{Gated, Reversed, RgLru, Rule};

/// The rule from pre-activations to the decay f and the input scale s of a step; s = σ(z_i) unless
/// stated.
pub enum Gates {
    /// f = σ(z_f): equation (8).
    Sigmoid,
    /// f = σ(-z_f)^α = e^{-α softplus(z_f)}: equation (23).
    Reversed {
        /// α `(1)`.
        alpha: Tensor,
    },
    /// f = e^{-8 softplus(λ) σ(z_f)}, s = √(1 - f² + eps) σ(z_i): equations (9), (10).
    RgLru {
        /// λ `(N)`.
        lambda: Tensor,
        /// Added under the root.
        eps: f64,
    },
}

impl Gates {
    /// f and s, `(.., N)`, for z `(.., 2N)`: the pre-activations z_f, then z_i.
    pub fn values(&self, z: &Tensor) -> Result<(Tensor, Tensor)> {
        reference::gates(self, z)
    }
}

/// h_t = f_t h_{t-1} + s_t x_t elementwise, h_{-1} = 0, with f and s from `gates`.
///
/// `z`: (B, L, 2N), z_f before z_i; `x`: (B, L, N). `rows`: (B, R) of u32, times below L that
/// ascend within each sequence. The result is (B, R, N), the states at those times, or (B, L, N)
/// without `rows`. Other shapes and times are errors.
pub fn gated_scan(z: &Tensor, x: &Tensor, gates: &Gates, rows: Option<&Tensor>) -> Result<Tensor> {
    let sizes = ScanSizes::check(z, x, rows)?;
    let by = ("x", x);
    match gates {
        Gates::Reversed { alpha } => shape::parameter(OP, ("alpha", alpha), by, &[1])?,
        Gates::RgLru { lambda, .. } => {
            shape::parameter(OP, ("lambda", lambda), by, &[sizes.extent.width])?;
        }
        Gates::Sigmoid => {}
    }
    if runs_on(x) {
        scan(sizes, z, x, gates)
    } else {
        reference::gated_scan(z, x, gates, rows)
    }
}

fn scan(sizes: ScanSizes, z: &Tensor, x: &Tensor, gates: &Gates) -> Result<Tensor> {
    match gates {
        Gates::Sigmoid => apply_one(Scan { sizes, rule: Gated }, &[z, x]),
        Gates::Reversed { alpha } => {
            let rule = Reversed;
            apply_one(Scan { sizes, rule }, &[z, x, alpha])
        }
        Gates::RgLru { lambda, eps } => {
            let rule = RgLru { eps: *eps };
            apply_one(Scan { sizes, rule }, &[z, x, lambda])
        }
    }
}

const OP: &str = "gated_scan";

/// The sizes of a scan, and the times whose states are returned; `None` for all.
struct ScanSizes {
    extent: Extent,
    selected: Option<Selected>,
}

/// The times whose states are returned, `rows` of each sequence.
struct Selected {
    rows: usize,
    /// The times on the CPU in row-major order.
    known: Vec<usize>,
    /// (B, rows), on the device of x.
    times: Tensor,
}

impl ScanSizes {
    fn check(z: &Tensor, x: &Tensor, rows: Option<&Tensor>) -> Result<Self> {
        let [batch, len, width] = shape::dims(OP, ("x", x))?;
        shape::expect(OP, ("z", z), ("x", x), &[batch, len, 2 * width])?;
        let selected = match rows {
            Some(times) => {
                let [_, rows] = shape::dims(OP, ("rows", times))?;
                let needed = ("x", [batch, rows]);
                Some(Selected {
                    rows,
                    known: shape::ascending(OP, times, needed, ("x", len), 0)?,
                    times: times.contiguous()?,
                })
            }
            None => None,
        };
        let extent = Extent::of(batch, len, width);
        Ok(Self { extent, selected })
    }

    /// The number of states returned per sequence.
    fn rows(&self) -> usize {
        self.selected.as_ref().map_or(self.extent.len, |selected| selected.rows)
    }
}

struct Scan<R> {
    sizes: ScanSizes,
    rule: R,
}

impl<R: Rule> Op for Scan<R> {
    const NAME: &'static str = OP;

    fn out_shapes(&self) -> Vec<Shape> {
        let sizes = &self.sizes;
        vec![(sizes.extent.batch, sizes.rows(), sizes.extent.width).into()]
    }
}

#[cfg(test)]
mod tests;
