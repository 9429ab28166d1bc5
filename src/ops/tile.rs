//! Rows and columns shared out among the blocks of a kernel.

use crate::gpu::{Arg, Buffer, Gpu, Grid, WARP};
use candle_core::{DType, Result};

/// Threads a block, as `cuda/walk.cuh` has them.
const THREADS: usize = 256;
/// The least rows of a block: several for each of its warps.
const LEAST: usize = 64;
/// The most blocks above each other, and rows of partial sums.
const BLOCKS: usize = 1024;

/// A matrix in tiles of some rows and 32 columns.
#[derive(Clone, Copy)]
pub(super) struct Tiles {
    rows: usize,
    width: usize,
    each: usize,
}

impl Tiles {
    pub(super) fn of(rows: usize, width: usize) -> Self {
        let each = rows.div_ceil(BLOCKS).max(LEAST);
        Self { rows, width, each }
    }

    /// The last arguments of every kernel on tiles.
    pub(super) fn args(&self) -> [Arg<'static>; 3] {
        [self.rows, self.width, self.each].map(Arg::from)
    }

    /// A block for each tile.
    pub(super) fn grid(&self) -> Grid {
        self.grids(1)
    }

    /// Blocks for `count` matrices of this size.
    pub(super) fn grids(&self, count: usize) -> Grid {
        Grid {
            blocks: [
                self.rows.div_ceil(self.each),
                self.width.div_ceil(WARP),
                count,
            ],
            threads: THREADS,
            shared: 0,
        }
    }

    /// Memory for the sums of each tile's columns.
    pub(super) fn parts(&self, gpu: &Gpu) -> Result<Buffer> {
        gpu.alloc(DType::F32, self.rows.div_ceil(self.each) * self.width)
    }
}
