//! Result and gradients: the arrays, the part of them that each task writes, and sums over the tiles of columns.

use super::division::{RowCut, Task};
use super::{StateSizes, VALUES};
use crate::runtime::float::Float;
use crate::runtime::lanes::{add_chunk, map_chunks, store, sum, Lanes, LANES};
use crate::runtime::strips::StripRows;
use crate::runtime::zeros::zeros;
use std::array;

/// The result, (B, R, s, e). `work` writes the columns of a task at each row.
pub(crate) fn result<F: Float>(
    sizes: &StateSizes,
    ins: &[&[F]],
    work: impl Fn(&Task<F>, StripRows<F>) + Sync,
) -> Vec<F> {
    let row = sizes.heads * sizes.values;
    let mut o = zeros(sizes.batch * sizes.times.rows * row);
    let cut = RowCut { out: &mut o, row, width: sizes.values, tile: sizes.tile() };
    sizes.run(ins, [cut], |task, [o]| work(task, o));
    o
}

/// Computes the gradients of the inputs. `work` writes those of a task into zeros: the columns of v, and for every
/// other input the task's share, of which there is one per tile.
pub(crate) fn gradients<F: Float, const INS: usize>(
    sizes: &StateSizes,
    ins: &[&[F]],
    work: impl Fn(&Task<F>, [StripRows<F>; INS]) + Sync,
) -> Vec<Vec<F>> {
    let tiles = sizes.tiles();
    let shares = |input| if input == VALUES { 1 } else { tiles };
    let zeros = |(input, x): (usize, &&[F])| zeros(x.len() * shares(input));
    let mut grads: Vec<Vec<F>> = ins.iter().enumerate().map(zeros).collect();
    let mut arrays = grads.iter_mut();
    let outs: [RowCut<F>; INS] = array::from_fn(|input| {
        let width = sizes.width(input);
        RowCut {
            out: arrays.next().expect("an array for every input"),
            row: sizes.heads * shares(input) * width,
            width,
            tile: if input == VALUES { sizes.tile() } else { width },
        }
    });
    sizes.run(ins, outs, work);
    let sums = |(input, grads)| sum_shares(grads, shares(input), sizes.width(input));
    grads.into_iter().enumerate().map(sums).collect()
}

/// Adds up shares: (.., count, width) to (.., width).
fn sum_shares<F: Float>(shares: Vec<F>, count: usize, width: usize) -> Vec<F> {
    /// Sums per task.
    const EACH: usize = 1024;
    if count == 1 {
        return shares;
    }
    let chunk = EACH * width;
    map_chunks(&shares, [chunk * count, chunk], |shares, to| {
        let rows = shares.chunks_exact(count * width);
        for (to, shares) in to.chunks_exact_mut(width).zip(rows) {
            for share in shares.chunks_exact(width) {
                add_chunk(to, share);
            }
        }
    })
}

/// Writes a row that is in groups of lanes.
#[inline(always)]
pub(crate) fn write_features<F: Float>(from: &[Lanes<F>], to: &mut [F]) {
    for (to, from) in to.chunks_mut(LANES).zip(from) {
        store(from, to);
    }
}

/// Writes the gradients of a step's decays, given those of each feature: their sum, if all share one.
#[inline(always)]
pub(crate) fn write_decays<F: Float>(from: &[Lanes<F>], to: &mut [F]) {
    match to {
        [shared] => *shared = from.iter().fold(F::zero(), |all, x| all + sum(x)),
        to => write_features(from, to),
    }
}
