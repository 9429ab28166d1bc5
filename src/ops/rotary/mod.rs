//! Rotary position embeddings (Su et al. 2021): pairs of channels are rotated by angles
//! proportional to the position, so that products of queries and keys depend on their distance
//! alone.

mod cpu;
mod cuda;
mod reference;

use crate::runtime::autograd::{apply_or, Op};
use crate::runtime::float::Float;
use crate::runtime::parallel::InParallel;
use crate::runtime::shape;
use crate::runtime::zeros::zeros;
use candle_core::{bail, DType, Result, Shape, Tensor};

/// Rows per task.
const ROWS: usize = 64;

/// Rotates the first `dims` channels of each head, in pairs (c, c + dims / 2), by the angles of
/// their row's position: pair j of n by p `base`^(-j / n) at position p.
///
/// `x`: (B, R, heads · width); `dims`: an even number of the `width` channels of a head (0 returns
/// `x`); `positions`: (B, R) of u32, or 0 .. R if `None`; result like `x`. Angles are reduced
/// modulo 2π in f64: in f32 they would have lost their digits after a thousand positions.
pub fn rotary(x: &Tensor, heads: usize, dims: usize, base: f64, positions: Option<&Tensor>) -> Result<Tensor> {
    let [batch, rows, channels] = shape::dims(Rotary::NAME, ("x", x))?;
    if heads == 0 || channels % heads != 0 {
        bail!("rotary: x has {channels} channels, which {heads} heads cannot share equally");
    }
    let width = channels / heads;
    if !dims.is_multiple_of(2) || dims > width {
        bail!("rotary: {dims} channels of a head, needed is an even number up to its {width}");
    }
    if !(base.is_finite() && base >= 1.0) {
        bail!("rotary: the base {base} of the angles, needed is a number of at least 1");
    }
    if let Some(positions) = positions {
        if positions.dims() != [batch, rows] || positions.dtype() != DType::U32 {
            bail!(
                "rotary: positions has shape {:?} of {:?}, but x asks for [{batch}, {rows}] of U32",
                positions.dims(),
                positions.dtype()
            );
        }
    }
    if dims == 0 {
        return Ok(x.clone());
    }
    let positions = match positions {
        None => Positions::FromZero(rows),
        Some(positions) => Positions::Given(positions.contiguous()?),
    };
    let op = Rotary {
        shape: x.shape().clone(),
        known: match x.device().is_cpu() {
            true => positions.known()?,
            false => Vec::new(),
        },
        positions,
        channels,
        width,
        dims,
        base,
    };
    apply_or(op, &[x], |op| reference::rotary(x, heads, dims, base, &op.positions))
}

/// The positions of the rows of all sequences.
enum Positions {
    /// 0 .. R in every sequence.
    FromZero(usize),
    /// (B, R) of u32.
    Given(Tensor),
}

impl Positions {
    /// The positions in row-major order, or one list for all sequences. Empty for positions on a
    /// GPU.
    fn known(&self) -> Result<Vec<u32>> {
        match self {
            Self::FromZero(rows) => Ok((0..*rows as u32).collect()),
            Self::Given(positions) => positions.flatten_all()?.to_vec1(),
        }
    }
}

/// For each position, the cosines of its `dims` / 2 angles, then their sines.
fn table<F: Float>(positions: &[u32], dims: usize, base: f64) -> Vec<F> {
    let half = dims / 2;
    let rates: Vec<f64> = (0..half).map(|pair| base.powf(-(pair as f64) / half as f64)).collect();
    let mut table = zeros(positions.len() * dims);
    table.chunks_mut(ROWS * dims).zip(positions.chunks(ROWS)).in_parallel(|(table, positions)| {
        for (row, &position) in table.chunks_exact_mut(dims).zip(positions) {
            let (cos, sin) = row.split_at_mut(half);
            for ((cos, sin), rate) in cos.iter_mut().zip(sin).zip(&rates) {
                let (s, c) = (f64::from(position) * rate).sin_cos();
                (*cos, *sin) = (F::of(c), F::of(s));
            }
        }
    });
    table
}

struct Rotary {
    shape: Shape,
    positions: Positions,
    /// [`Positions::known`], for the CPU.
    known: Vec<u32>,
    /// Channels of a row.
    channels: usize,
    /// Channels of a head.
    width: usize,
    /// Rotated channels of a head.
    dims: usize,
    /// Base of the angles.
    base: f64,
}

impl Op for Rotary {
    const NAME: &'static str = "rotary";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.shape.clone()]
    }
}

#[cfg(test)]
mod tests;
