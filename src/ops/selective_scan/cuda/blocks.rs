//! The division of a scan into blocks of the kernels: a function of the shapes alone.

use super::super::{SelectiveScan, StepRule};
use crate::gpu::sizes::selective_scan::SPAN;
use crate::gpu::{Arg, Grid, WARP};

/// Channels per block.
const WIDTH: usize = 64;
/// States per warp of the forward pass, and the maximum of warps per block.
const TILE: usize = 8;
const MAX_TILES: usize = 16;
/// States per warp of the backward pass, the maximum of its warps along the states of a block, and
/// its warps along the channels.
const SIDE: usize = 16;
const MAX_SIDES: usize = 2;
const ACROSS: usize = 4;

/// The rule for cutting time: with fewer than `few` warps, into as many chunks as make [`ENOUGH`]
/// warps.
struct TimeCut {
    few: usize,
}

/// The schedulers of an H200.
const SCHEDULERS: usize = 4 * 132;
/// Eight warps per scheduler: two waves of the four that fit in the backward pass.
const ENOUGH: usize = 8 * SCHEDULERS;
/// The fewest steps per chunk: writing and reading its final state takes 16 bytes per state, a
/// fifth of the time of its exponentials.
const SHORTEST: usize = 64;
/// Two warps per scheduler, with 16 independent elements per thread, nearly saturate the
/// exponential unit, and chunks double the exponentials. So chunks pay if less than about half of
/// the unit would be used.
const FORWARD: TimeCut = TimeCut { few: SCHEDULERS * 5 / 4 };
/// Four warps fit on a scheduler, and chunks cost a quarter more.
const BACKWARD: TimeCut = TimeCut { few: SCHEDULERS * 3 };

/// The grid of a pass.
pub(super) struct Blocks {
    pub(super) along_channels: usize,
    pub(super) along_states: usize,
    threads: usize,
    /// Bytes of dynamic shared memory.
    shared: usize,
    /// Steps of a chunk, a multiple of [`SPAN`].
    pub(super) chunk: usize,
    pub(super) chunks: usize,
}

impl Blocks {
    pub(super) fn forward(scan: &SelectiveScan) -> Self {
        let tiles = scan.states.div_ceil(TILE);
        let along_states = tiles.div_ceil(MAX_TILES);
        let warps = tiles.div_ceil(along_states);
        Self {
            // the sums of 8 steps a warp, or as many rates and a row
            shared: (warps * 8 + 1) * WIDTH * size_of::<f32>(),
            ..Self::new(scan, &FORWARD, along_states, warps)
        }
    }

    pub(super) fn backward(scan: &SelectiveScan) -> Self {
        let sides = scan.states.div_ceil(SIDE);
        let along_states = sides.div_ceil(MAX_SIDES);
        Self::new(scan, &BACKWARD, along_states, ACROSS * sides.min(MAX_SIDES))
    }

    fn new(scan: &SelectiveScan, cut: &TimeCut, along_states: usize, warps: usize) -> Self {
        let along_channels = scan.channels.div_ceil(WIDTH);
        let all = scan.batch * along_channels * along_states * warps;
        let wanted = if all < cut.few { ENOUGH.div_ceil(all) } else { 1 };
        let by_shape = scan.len.div_ceil(wanted).max(SHORTEST);
        let chunk = match scan.rule {
            // The product of its decays over a chunk is no power of one of them.
            StepRule::Bilinear => scan.len,
            StepRule::Euler | StepRule::Hold => scan.chunk.unwrap_or(by_shape),
        };
        let chunk = chunk.next_multiple_of(SPAN);
        Self { along_channels, along_states, threads: warps * WARP, shared: 0, chunk, chunks: scan.len.div_ceil(chunk) }
    }

    /// This grid with the chunks of another.
    pub(super) fn cut_as(self, other: &Self) -> Self {
        Self { chunk: other.chunk, chunks: other.chunks, ..self }
    }

    pub(super) fn grid(&self, scan: &SelectiveScan) -> Grid {
        Grid {
            blocks: [scan.batch * self.chunks, self.along_channels, self.along_states],
            threads: self.threads,
            shared: self.shared,
        }
    }

    /// The trailing arguments of the scan kernels.
    pub(super) fn sizes<'a>(&self, scan: &SelectiveScan) -> [Arg<'a>; 6] {
        let sizes = [scan.len, scan.channels, scan.states, scan.rows];
        let [len, channels, states, rows] = sizes.map(Arg::from);
        [len, channels, states, rows, self.chunk.into(), self.chunks.into()]
    }
}

impl SelectiveScan {
    /// The number of elements of the states that the forward pass saves.
    pub(super) fn kept(&self) -> usize {
        self.batch * self.len.div_ceil(SPAN) * self.states * self.channels
    }
}
