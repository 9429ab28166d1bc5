//! Rotary position embeddings (Su et al. 2021): pairs of channels are rotated by angles
//! proportional to the position, so that products of queries and keys depend on their distance
//! alone.

use crate::gpu::Buffer;
use crate::runtime::autograd::{apply_one, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use crate::runtime::float::Float;
use crate::runtime::parallel::InParallel;
use crate::runtime::shape;
use crate::runtime::zeros::zeros;
use candle_core::{bail, DType, Result, Shape, Tensor, D};
use dsf_simd::simd;

mod launch;

/// Pair j of n is rotated by the angle p BASE^(-j / n) at position p.
const BASE: f64 = 10_000.0;
/// Rows per task.
const ROWS: usize = 64;

/// Rotates the first `dims` channels of each head, in pairs (c, c + dims / 2), by the angles of
/// their row's position.
///
/// `x`: (B, R, heads · width); `dims`: an even number of the `width` channels of a head (0 returns
/// `x`); `positions`: (B, R) of u32, or 0 .. R if `None`; result like `x`. Angles are reduced
/// modulo 2π in f64: in f32 they would have lost their digits after a thousand positions.
pub fn rotary(x: &Tensor, heads: usize, dims: usize, positions: Option<&Tensor>) -> Result<Tensor> {
    let [batch, rows, channels] = shape::dims(Rotary::NAME, ("x", x))?;
    if heads == 0 || channels % heads != 0 {
        bail!("rotary: x has {channels} channels, which {heads} heads cannot share equally");
    }
    let width = channels / heads;
    if !dims.is_multiple_of(2) || dims > width {
        bail!("rotary: {dims} channels of a head, needed is an even number up to its {width}");
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
    if !runs_on(x) {
        return reference(x, heads, dims, &positions);
    }
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
    };
    apply_one(op, &[x])
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
fn table<F: Float>(positions: &[u32], dims: usize) -> Vec<F> {
    let half = dims / 2;
    let rates: Vec<f64> = (0..half).map(|pair| BASE.powf(-(pair as f64) / half as f64)).collect();
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

fn reference(x: &Tensor, heads: usize, dims: usize, positions: &Positions) -> Result<Tensor> {
    let (batch, rows, channels) = x.dims3()?;
    let positions = positions.known()?;
    let angles = Tensor::from_vec(table::<f64>(&positions, dims), ((), rows, 1, dims), x.device())?;
    let angles = angles.to_dtype(x.dtype())?;
    let half = dims / 2;
    let (cos, sin) = (angles.narrow(3, 0, half)?, angles.narrow(3, half, half)?);
    let x = x.reshape((batch, rows, heads, channels / heads))?;
    let (a, b) = (x.narrow(3, 0, half)?, x.narrow(3, half, half)?);
    let rotated_a = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
    let rotated_b = (b.broadcast_mul(&cos)? + a.broadcast_mul(&sin)?)?;
    let mut parts = vec![rotated_a, rotated_b];
    if dims < channels / heads {
        parts.push(x.narrow(3, dims, channels / heads - dims)?);
    }
    Tensor::cat(&parts, D::Minus1)?.reshape((batch, rows, channels))
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
}

impl Rotary {
    /// Rotates every row of `x`, by the negative angles if `back`.
    fn rotate_rows<F: Float>(&self, x: &[F], table: &[F], back: bool) -> Vec<F> {
        let sign = if back { -F::one() } else { F::one() };
        let count = self.known.len();
        let mut y = zeros(x.len());
        y.chunks_mut(ROWS * self.channels).zip(x.chunks(ROWS * self.channels)).enumerate().in_parallel(
            |(task, (y, x))| {
                let rows = y.chunks_exact_mut(self.channels);
                for (row, (y, x)) in rows.zip(x.chunks_exact(self.channels)).enumerate() {
                    let position = (task * ROWS + row) % count;
                    let angles = &table[position * self.dims..][..self.dims];
                    rotate(x, angles, sign, self.width, y);
                }
            },
        );
        y
    }
}

impl FusedOp for Rotary {
    const NAME: &'static str = "rotary";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.shape.clone()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let table = table(&self.known, self.dims);
        let y = self.rotate_rows(ins[0], &table, false);
        vec![y, table]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        vec![self.rotate_rows(call.only().grad, call.saved[0], true)]
    }

    fn launch(&self, call: Launch) -> Result<Vec<Buffer>> {
        self.launch_forward(call)
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        self.launch_back(call)
    }
}

/// Rotates the heads of a row by `angles`, given as cosines and then sines; the sines are
/// multiplied by `sign`.
#[simd]
fn rotate<F: Float>(x: &[F], angles: &[F], sign: F, width: usize, y: &mut [F]) {
    let (cos, sin) = angles.split_at(angles.len() / 2);
    for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
        let ((a, x), (rotated_a, y)) = (x.split_at(cos.len()), y.split_at_mut(cos.len()));
        let ((b, x), (rotated_b, y)) = (x.split_at(cos.len()), y.split_at_mut(cos.len()));
        let angles = cos.iter().zip(sin);
        let rotated = rotated_a.iter_mut().zip(rotated_b);
        for (((rotated_a, rotated_b), (&a, &b)), (&cos, &sin)) in rotated.zip(a.iter().zip(b)).zip(angles) {
            let sin = sign * sin;
            *rotated_a = a.fma(cos, -b * sin);
            *rotated_b = b.fma(cos, a * sin);
        }
        y.copy_from_slice(x);
    }
}

#[cfg(test)]
mod tests;
