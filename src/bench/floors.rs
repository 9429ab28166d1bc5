//! What one core could do at most: the time below which no program of these shapes gets.
//!
//! A floor is arithmetic over three rates. They describe a Zen-4-class core at 3.3 GHz that runs
//! AVX-512 over two 256-bit pipes; on another processor the fraction of the floor still compares
//! one op with another, but is no statement about that processor.
//!
//! | work | rate of one core | why |
//! |---|---|---|
//! | multiply-add in a matrix product | 105.6 GFLOP/s | 32 f32 operations a cycle |
//! | vector instruction | 52.8 G lanes/s | 16 f32 lanes a cycle |
//! | memory | 20 GB/s | what two cores share, and one may have alone |
//!
//! An op needs as long as the slowest of its three kinds of work; a step is the sum of its parts,
//! with the vocabulary's projection at the labelled rows and all else at every row. Memory is counted
//! as if nothing stayed in a cache: tensors that fit into one may get below such a floor.

use crate::config::{ModelConfig, RunConfig, StateMixer, TaskConfig};

const CYCLES: f64 = 3.3e9;
const FLOPS: f64 = 32.0 * CYCLES;
const LANES: f64 = 16.0 * CYCLES;
const BYTES: f64 = 20e9;

/// Bytes of the f32 that the rates are stated for.
const F32: f64 = 4.0;

/// Longest piece of a sequence that is treated as one matrix.
const CHUNK: f64 = 64.0;

/// Work of one op.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    /// Multiplies and adds inside matrix products.
    pub flops: f64,
    /// Vector instructions, times the lanes they fill.
    pub lanes: f64,
    /// Numbers read from and written to memory.
    pub words: f64,
}

impl Work {
    /// CPU seconds with numbers of `bytes` bytes each.
    pub fn seconds(self, bytes: f64) -> f64 {
        let wider = bytes / F32;
        let compute = (self.flops / FLOPS).max(self.lanes / LANES);
        wider * compute.max(F32 * self.words / BYTES)
    }

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

    /// A linear map of `flops`: the way back has two products for its one.
    pub fn dense(flops: f64) -> Self {
        let work = |times: f64| Work {
            flops: times * flops,
            ..Work::default()
        };
        Self {
            forward: work(1.0),
            both: work(3.0),
        }
    }

    /// Matrix products between sequences: the way back has two for each and makes the scores, half of them, again.
    fn products(flops: f64) -> Self {
        let work = |times: f64| Work {
            flops: times * flops,
            ..Work::default()
        };
        Self {
            forward: work(1.0),
            both: work(3.5),
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

    /// B L d n.
    pub fn elements(self) -> f64 {
        self.channels() * self.states
    }
}

/// A decay for each state. An exponential is 8 instructions and the recurrence 4: 12 forward. The
/// way back replays it and walks in reverse with another 12 for the gradients: 36 both ways.
pub(super) fn selective_scan(e: Extent) -> Passes {
    let forward = e.tokens() * (3.0 * e.width + 2.0 * e.states);
    let backward = e.tokens() * (5.0 * e.width + 4.0 * e.states);
    let work = |instructions: f64, words: f64| Work {
        lanes: instructions * e.elements(),
        words,
        ..Work::default()
    };
    Passes {
        forward: work(12.0, forward),
        both: work(36.0, forward + backward),
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
    Passes::products(e.tokens() * flops)
}

/// Scores with every past token; their exponentials are not counted.
pub(super) fn softmax(e: Extent) -> Passes {
    Passes::products(e.tokens() * e.len * (e.states + e.width))
}

/// One number a channel: read decay and input, write the state; back, read three and write two.
pub(super) fn linear_scan(e: Extent) -> Passes {
    Passes::moves(e.channels(), 3.0, 8.0)
}

/// CPU seconds of one training step in f32; `None` for a mixer whose arithmetic is not listed here.
pub(super) fn step(config: &RunConfig) -> Option<f64> {
    let (model, TaskConfig::Mqar(task)) = (&config.model, &config.task);
    let layers = model.n_layers as f64;
    let (core, features) = mixer(model)?;
    let e = Extent {
        batch: config.train.batch_size as f64,
        len: task.seq_len as f64,
        width: model.d_model as f64,
        states: model.d_state as f64,
    };
    let mlp = match model.state_mixer {
        StateMixer::Mlp => 8.0 * e.width * e.width,
        StateMixer::None | StateMixer::Identity => 0.0,
    };
    let labelled = e.batch * task.kv_pairs as f64;
    let vocabulary = task.vocab_size as f64 * e.width;
    // A weight multiplies and adds forward, and does both twice on the way back.
    let weights = layers * e.tokens() * (features + mlp) + labelled * vocabulary;
    let products = Work {
        flops: 6.0 * weights,
        ..Work::default()
    };
    // Weight, gradient and two moments are read; all but the gradient are written.
    let update = Work::words(7.0 * (vocabulary + layers * 6.0 * e.width * e.width));
    let parts = [products, update].map(|part| part.seconds(F32));
    Some(parts.iter().sum::<f64>() + layers * core(e).both.seconds(F32))
}

type Core = fn(Extent) -> Passes;

/// What moves along the sequence, and the weights of the projections around it.
fn mixer(model: &ModelConfig) -> Option<(Core, f64)> {
    let [d, n] = [model.d_model, model.d_state].map(|x| x as f64);
    let attention = d * (2.0 * n + 2.0 * d);
    let rank = (d / 16.0).ceil();
    let doubled: Core = |e| {
        linear_scan(Extent {
            width: 2.0 * e.width,
            ..e
        })
    };
    Some(match model.mixer.as_str() {
        "softmax" => (softmax as Core, attention),
        "linear" | "generalized-linear" => (chunked as Core, attention),
        "normalized" | "normalized-softplus" | "normalized-sigmoid" => (chunked as Core, attention),
        "s6" => (selective_scan as Core, d * (2.0 * rank + 2.0 * n + d)),
        "ssd" => (chunked as Core, d * (1.0 + 2.0 * n + d)),
        "qlstm" | "qlstm-reversed" if model.variant == "reference" => (doubled, 18.0 * d * d),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: Extent = Extent {
        batch: 512.0,
        len: 64.0,
        width: 64.0,
        states: 64.0,
    };

    #[test]
    fn a_scan_takes_twelve_instructions_an_element_and_thirty_six_both_ways() {
        let Passes { forward, both } = selective_scan(CELL);
        let rate = |work: Work| CELL.elements() / work.seconds(4.0) / 1e9;
        assert!((rate(forward) - 4.4).abs() < 1e-9);
        assert!((rate(both) - 4.4 / 3.0).abs() < 1e-9);
    }

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

    #[test]
    fn the_papers_smallest_step_takes_a_tenth_to_a_third_of_a_second_at_least() {
        let floor = |mixer: &str| {
            let mut request = crate::sweep::Preset::Full.request();
            (request.mixer, request.batch_size) = (mixer.to_owned(), Some(512));
            let floor = step(&request.resolve().unwrap());
            floor.map(|seconds| (1e4 * seconds).round() / 1e4)
        };
        for (mixer, expected) in [
            ("softmax", 0.1406),
            ("linear", 0.1406),
            ("normalized", 0.2626),
            ("s6", 0.2925),
            ("ssd", 0.1256),
            ("qlstm", 0.3498),
        ] {
            assert_eq!(floor(mixer), Some(expected), "{mixer}");
        }
        assert_eq!(floor("lstm"), None);
    }

    #[test]
    fn wider_numbers_take_longer() {
        let work = linear_scan(CELL).forward;
        assert_eq!(work.seconds(8.0), 2.0 * work.seconds(4.0));
    }
}
