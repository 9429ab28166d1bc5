//! The division of a matrix into tiles, one for each block of a kernel.

use crate::gpu::sizes::walk::TILE as THREADS;
use crate::gpu::{Arg, Buffer, Gpu, Grid, WARP};
use candle_core::{DType, Result};

/// The fewest rows per block: several for each of its warps.
const MIN_ROWS: usize = 64;
/// The maximum of blocks along the rows, and of rows of partial sums.
const MAX_BLOCKS: usize = 1024;

/// A matrix divided into tiles of `each` rows and 32 columns.
#[derive(Clone, Copy)]
pub(crate) struct Tiles {
    rows: usize,
    width: usize,
    each: usize,
}

impl Tiles {
    pub(crate) fn of(rows: usize, width: usize) -> Self {
        let each = rows.div_ceil(MAX_BLOCKS).max(MIN_ROWS);
        Self { rows, width, each }
    }

    /// The trailing arguments of every kernel on tiles.
    pub(crate) fn args(&self) -> [Arg<'static>; 3] {
        [self.rows, self.width, self.each].map(Arg::from)
    }

    /// One block per tile.
    pub(crate) fn grid(&self) -> Grid {
        self.grids(1)
    }

    /// One block per tile of `count` matrices of this size.
    pub(crate) fn grids(&self, count: usize) -> Grid {
        Grid { blocks: [self.rows.div_ceil(self.each), self.width.div_ceil(WARP), count], threads: THREADS, shared: 0 }
    }

    /// Memory for the column sums of every tile.
    pub(crate) fn parts(&self, gpu: &Gpu) -> Result<Buffer> {
        gpu.alloc(DType::F32, self.rows.div_ceil(self.each) * self.width)
    }
}
