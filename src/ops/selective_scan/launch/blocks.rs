//! How the kernels cut a scan up. It follows from shapes alone.

use super::super::SelectiveScan;
use crate::gpu::{Arg, Grid, WARP};

/// Steps from one kept state to the next, as the kernels have it.
const SPAN: usize = 16;
/// Channels of a block.
const WIDTH: usize = 64;
/// States of a warp of the forward pass, and most warps of its blocks.
const TILE: usize = 8;
const MOST_TILES: usize = 16;
/// States of a warp of the backward pass, most of its warps along the states of a block, and all of
/// them along the channels.
const SIDE: usize = 16;
const MOST_SIDES: usize = 2;
const ACROSS: usize = 4;

/// When time is cut: with fewer warps than `few`, into so many chunks that warps are `ENOUGH`.
struct Cut {
    few: usize,
}

/// The schedulers of an H200.
const SCHEDULERS: usize = 4 * 132;
/// Eight warps a scheduler, or two rounds of the four that fit in the backward pass.
const ENOUGH: usize = 8 * SCHEDULERS;
/// Steps of the shortest chunk: its ends are 16 bytes a state written and read, a fifth of the time
/// that its exponentials take.
const SHORTEST: usize = 64;
/// Two warps a scheduler, with 16 independent elements a thread, come near to filling the exponential
/// unit; chunks cost twice the exponentials. So they pay where less than about half of it were used.
const FORWARD: Cut = Cut {
    few: SCHEDULERS * 5 / 4,
};
/// Four warps fit a scheduler, and chunks cost a quarter more.
const BACKWARD: Cut = Cut {
    few: SCHEDULERS * 3,
};

/// Blocks of a pass.
pub(super) struct Blocks {
    pub(super) along_channels: usize,
    pub(super) along_states: usize,
    threads: usize,
    /// Bytes of shared memory.
    shared: usize,
    /// Steps of a chunk, a multiple of [`SPAN`].
    pub(super) chunk: usize,
    pub(super) chunks: usize,
}

impl Blocks {
    pub(super) fn forward(scan: &SelectiveScan) -> Self {
        let tiles = scan.states.div_ceil(TILE);
        let along_states = tiles.div_ceil(MOST_TILES);
        let warps = tiles.div_ceil(along_states);
        Self {
            // the sums of 8 steps a warp, or as many rates and a row
            shared: (warps * 8 + 1) * WIDTH * size_of::<f32>(),
            ..Self::new(scan, &FORWARD, along_states, warps)
        }
    }

    pub(super) fn backward(scan: &SelectiveScan) -> Self {
        let sides = scan.states.div_ceil(SIDE);
        let along_states = sides.div_ceil(MOST_SIDES);
        Self::new(
            scan,
            &BACKWARD,
            along_states,
            ACROSS * sides.min(MOST_SIDES),
        )
    }

    fn new(scan: &SelectiveScan, cut: &Cut, along_states: usize, warps: usize) -> Self {
        let along_channels = scan.channels.div_ceil(WIDTH);
        let all = scan.batch * along_channels * along_states * warps;
        let wanted = if all < cut.few {
            ENOUGH.div_ceil(all)
        } else {
            1
        };
        let by_shape = scan.len.div_ceil(wanted).max(SHORTEST);
        let chunk = scan.chunk.unwrap_or(by_shape).next_multiple_of(SPAN);
        Self {
            along_channels,
            along_states,
            threads: warps * WARP,
            shared: 0,
            chunk,
            chunks: scan.len.div_ceil(chunk),
        }
    }

    /// These blocks with the chunks of others.
    pub(super) fn cut_as(self, other: &Self) -> Self {
        Self {
            chunk: other.chunk,
            chunks: other.chunks,
            ..self
        }
    }

    pub(super) fn grid(&self, scan: &SelectiveScan) -> Grid {
        Grid {
            blocks: [
                scan.batch * self.chunks,
                self.along_channels,
                self.along_states,
            ],
            threads: self.threads,
            shared: self.shared,
        }
    }

    /// The last arguments of kernels that walk.
    pub(super) fn sizes<'a>(&self, scan: &SelectiveScan) -> [Arg<'a>; 6] {
        let sizes = [scan.len, scan.channels, scan.states, scan.rows];
        let [len, channels, states, rows] = sizes.map(Arg::from);
        [
            len,
            channels,
            states,
            rows,
            self.chunk.into(),
            self.chunks.into(),
        ]
    }
}

impl SelectiveScan {
    /// Numbers in the states that the forward pass keeps.
    pub(super) fn kept(&self) -> usize {
        self.batch * self.len.div_ceil(SPAN) * self.states * self.channels
    }
}
