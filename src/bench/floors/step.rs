//! The least time of a whole training step.

use super::{chunked, linear_scan, selective_scan, softmax, Extent, Passes, Rates, Work};
use crate::config::{ModelConfig, RunConfig, StateMixer};

/// Bytes of a weight.
const F32: f64 = 4.0;

/// Seconds of one training step, with activations of `bytes` bytes; `None` for a mixer whose
/// arithmetic is not listed here.
pub(in crate::bench) fn step(config: &RunConfig, rates: &Rates, bytes: f64) -> Option<f64> {
    let (model, sizes) = (&config.model, config.task.sizes().ok()?);
    let layers = model.n_layers as f64;
    let (core, features) = mixer(model)?;
    let e = Extent {
        batch: config.train.batch_size as f64,
        len: sizes.seq_len as f64,
        width: model.d_model as f64,
        states: model.d_state as f64,
    };
    let mlp = match model.state_mixer {
        StateMixer::Mlp => 8.0 * e.width * e.width,
        _ => 0.0,
    };
    let labelled = e.batch * sizes.labels_per_example as f64;
    let vocabulary = sizes.vocab_size as f64 * e.width;
    // The residual stream, norms and projections in and out, both ways.
    let streams = match model.state_mixer {
        StateMixer::Mlp => 26.0,
        _ => 14.0,
    };
    // A weight multiplies and adds forward, and does both twice on the way back.
    let rows = Work {
        flops: 6.0 * layers * e.tokens() * (features + mlp),
        operands: streams * layers * e.channels(),
        ..Work::default()
    };
    let head = Work {
        flops: 6.0 * labelled * vocabulary,
        ..Work::default()
    };
    // Weight, gradient and two moments, of f32, are read; all but the gradient are written.
    let update = Work::words(7.0 * (vocabulary + layers * 6.0 * e.width * e.width));
    let dense = rates.seconds(rows, bytes) + rates.seconds(head, bytes);
    let mixing = layers * rates.seconds(core(e).both, bytes);
    Some(dense + mixing + rates.seconds(update, F32))
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
    use crate::bench::floors::{CORE, H200};

    #[test]
    fn the_papers_smallest_step_takes_a_tenth_to_a_third_of_a_second_at_least() {
        let floor = |mixer: &str| {
            let mut request = crate::sweep::Preset::Full.request();
            (request.mixer, request.batch_size) = (mixer.to_owned(), Some(512));
            let floor = step(&request.resolve().unwrap(), &CORE, 4.0);
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

    /// With all activations in bf16.
    #[test]
    fn on_an_h200_the_same_step_takes_some_hundred_microseconds() {
        let floor = |mixer: &str| {
            let mut request = crate::sweep::Preset::Full.request();
            (request.mixer, request.batch_size) = (mixer.to_owned(), Some(512));
            let floor = step(&request.resolve().unwrap(), &H200, 2.0);
            floor.map(|seconds| (1e6 * seconds).round())
        };
        for (mixer, expected) in [("softmax", 63.0), ("ssd", 63.0), ("s6", 256.0)] {
            assert_eq!(floor(mixer), Some(expected), "{mixer}");
        }
    }
}
