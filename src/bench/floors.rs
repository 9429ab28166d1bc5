//! What a machine could do at most: the time below which no program of these shapes gets.
//!
//! A floor is arithmetic over a few [rates](Rates), of which there are two sets. An op needs as long as
//! the slowest of its kinds of work; a step is the sum of its parts, with the vocabulary's projection
//! at the labelled rows and all else at every row. Memory is counted as if nothing stayed in a cache:
//! tensors that fit into one may get below such a floor.

mod rates;
mod step;

pub(super) use rates::{Rates, CORE, H200};
pub(super) use step::step;

/// Longest piece of a sequence that is treated as one matrix.
const CHUNK: f64 = 64.0;

/// Work of one op.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    /// Multiplies and adds inside matrix products.
    pub flops: f64,
    /// Vector instructions, times the lanes they fill.
    pub lanes: f64,
    /// Exponentials.
    pub exps: f64,
    /// Numbers read from and written to memory.
    pub words: f64,
    /// The same around matrix products. A core takes longer to multiply them, so that they count on a
    /// GPU alone.
    pub operands: f64,
}

impl Work {
    /// Memory alone.
    pub fn words(words: f64) -> Self {
        Self {
            words,
            ..Self::default()
        }
    }
}

/// Forward alone, and forward with backward.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passes {
    pub forward: Work,
    pub both: Work,
}

impl Passes {
    /// An op that only moves numbers: `forward` and `both` words for each of `count`.
    pub fn moves(count: f64, forward: f64, both: f64) -> Self {
        Self {
            forward: Work::words(count * forward),
            both: Work::words(count * both),
        }
    }

    /// A linear map of `flops`: the way back has two products for its one. `operands` go in and out.
    pub fn dense(flops: f64, operands: f64) -> Self {
        Self::multiply(flops, operands, 3.0)
    }

    /// Matrix products between sequences: the way back has two for each and makes the scores, half of
    /// them, again. `operands` go in and out.
    pub fn products(flops: f64, operands: f64) -> Self {
        Self::multiply(flops, operands, 3.5)
    }

    /// On the way back the operands pass again, and then their gradients.
    fn multiply(flops: f64, operands: f64, times: f64) -> Self {
        let work = |times: f64, passes: f64| Work {
            flops: times * flops,
            operands: passes * operands,
            ..Work::default()
        };
        Self {
            forward: work(1.0, 1.0),
            both: work(times, 3.0),
        }
    }
}

/// Sizes of an op: batch, length, width, states a channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Extent {
    pub batch: f64,
    pub len: f64,
    pub width: f64,
    pub states: f64,
}

impl Extent {
    /// B L.
    pub fn tokens(self) -> f64 {
        self.batch * self.len
    }

    /// B L d.
    pub fn channels(self) -> f64 {
        self.tokens() * self.width
    }

    /// Queries, keys, values and results.
    fn rows_between(self) -> f64 {
        2.0 * self.tokens() * (self.states + self.width)
    }

    /// B L d n.
    pub fn elements(self) -> f64 {
        self.channels() * self.states
    }
}

/// A decay for each state: an exponential and 4 instructions of the recurrence. The way back replays
/// that and walks in reverse with as much again for the gradients.
pub(super) fn selective_scan(e: Extent) -> Passes {
    let forward = e.tokens() * (3.0 * e.width + 2.0 * e.states);
    let backward = e.tokens() * (5.0 * e.width + 4.0 * e.states);
    let work = |walks: f64, words: f64| Work {
        lanes: 4.0 * walks * e.elements(),
        exps: walks * e.elements(),
        words,
        ..Work::default()
    };
    Passes {
        forward: work(1.0, forward),
        both: work(3.0, forward + backward),
    }
}

/// States of a channel share a decay, or there is none: products inside chunks of Q tokens, half
/// of whose scores the mask removes if there is only one chunk, and a state between chunks.
pub(super) fn chunked(e: Extent) -> Passes {
    let q = CHUNK.min(e.len);
    let inside = 2.0 * q * (e.states + e.width);
    let flops = if e.len > q {
        inside + 4.0 * e.states * e.width
    } else {
        inside / 2.0
    };
    Passes::products(e.tokens() * flops, e.rows_between())
}

/// Scores with every past token; their exponentials are not counted.
pub(super) fn softmax(e: Extent) -> Passes {
    Passes::products(e.tokens() * e.len * (e.states + e.width), e.rows_between())
}

/// One number a channel: read decay and input, write the state; back, read three and write two.
pub(super) fn linear_scan(e: Extent) -> Passes {
    Passes::moves(e.channels(), 3.0, 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const CELL: Extent = Extent {
        batch: 512.0,
        len: 64.0,
        width: 64.0,
        states: 64.0,
    };

    #[test]
    fn one_chunk_has_no_state_and_half_the_scores() {
        let flops = |len: f64| {
            let e = Extent { len, ..CELL };
            chunked(e).forward.flops / e.tokens()
        };
        assert_eq!(flops(64.0), 64.0 * 128.0);
        assert_eq!(flops(128.0), 2.0 * 64.0 * 128.0 + 4.0 * 64.0 * 64.0);
        assert_eq!(softmax(CELL).forward.flops, chunked(CELL).forward.flops);
    }
}
