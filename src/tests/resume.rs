//! Checkpoints: an interrupted run goes on as if nothing had happened, and what is not a checkpoint
//! of the run is refused.

use crate::training::{follow, trace, trainer, weights, world, Trace};
use crate::world::{checkpoint, distance};
use candle_core::safetensors::Load;
use candle_core::Device;
use dsf::config::{AdamConfig, Decay, RunConfig};
use dsf::error::Error;
use dsf::mixers::MIXERS;
use dsf::ops::rng::Rng;
use dsf::recipes;
use dsf::store::Outcome;
use dsf::tasks::{self, Splits};
use safetensors::SafeTensors;
use std::path::Path;

/// Trains a run that is interrupted after every step and epoch, each time by a new trainer.
fn piecewise(config: &RunConfig, data: &Splits) -> Trace {
    let (mut parts, mut saved): (_, Option<Vec<u8>>) = (Trace::default(), None);
    while parts.outcome.is_none() {
        let mut trainer = trainer(config, data);
        if let Some(saved) = &saved {
            trainer.restore(saved, "checkpoint").unwrap();
        }
        follow(&mut trainer, 1, &mut parts);
        saved = Some(checkpoint(&trainer));
    }
    parts
}

#[test]
fn a_run_interrupted_after_any_step_or_epoch_ends_with_the_same_bits() {
    for (index, entry) in MIXERS.iter().enumerate() {
        let (config, data) = world(entry.name);
        let whole = trace(&config, &data);
        // Each mixer at every second event, so that two neighbours of the table see all.
        for events in (1..=whole.losses.len() + whole.epochs.len()).skip(index % 2).step_by(2) {
            let mut parts = Trace::default();
            let mut first = trainer(&config, &data);
            follow(&mut first, events, &mut parts);
            assert_eq!(parts.outcome, None);
            let saved = checkpoint(&first);
            let mut second = trainer(&config, &data);
            second.restore(&saved, "checkpoint").unwrap();
            assert_eq!(second.progress(), first.progress());
            assert_eq!(weights(&second), parts.weights);
            follow(&mut second, usize::MAX, &mut parts);
            assert_eq!(parts, whole, "{} after event {events}", entry.name);
        }
    }
}

#[test]
fn a_run_interrupted_at_every_step_and_epoch_ends_with_the_same_bits() {
    let (mut config, data) = world("softmax");
    config.train.adam =
        Some(AdamConfig { beta1: 0.9, beta2: 0.95, eps: 1e-8, clip: Some(0.5), decay: Decay::Matrices });
    let whole = trace(&config, &data);
    assert_eq!(piecewise(&config, &data), whole);
}

#[test]
fn a_run_with_fresh_examples_interrupted_at_every_step_and_epoch_ends_with_the_same_bits() {
    let run = |settings: &[(&str, &str)]| {
        let smoke = [("preset", "smoke"), ("train-examples", "24"), ("batch-size", "8"), ("epochs", "3")];
        let config = recipes::run("mqar", &[&smoke, settings].concat()).unwrap();
        let data = tasks::load(&config.task, None).unwrap();
        (config, data)
    };
    let (config, data) = run(&[("fresh-examples", "true")]);
    let whole = trace(&config, &data);
    let (fixed, same) = run(&[]);
    let fixed = trace(&fixed, &same);
    assert_eq!(whole.losses[..3], fixed.losses[..3], "the first epoch has the same examples");
    assert_ne!(whole.losses[3..], fixed.losses[3..]);
    assert_eq!(piecewise(&config, &data), whole);
}

/// A run on text of two epochs of three steps, the last one short.
fn on_text(mixer: &str) -> (RunConfig, Splits) {
    let settings = [
        ("preset", "smoke"),
        ("mixer", mixer),
        ("seq-len", "16"),
        ("train-examples", "7"),
        ("batch-size", "3"),
        ("micro-batch", "2"),
        ("epochs", "2"),
    ];
    let config = recipes::run("wikitext", &settings).unwrap();
    let data = tasks::load(&config.task, None).unwrap();
    (config, data)
}

#[test]
fn a_run_on_text_interrupted_at_every_step_and_epoch_ends_with_the_same_bits() {
    for mixer in ["softmax", "linear", "normalized", "s6"] {
        let (config, data) = on_text(mixer);
        let whole = trace(&config, &data);
        assert_eq!((whole.losses.len(), whole.epochs.len()), (6, 2));
        assert_eq!(piecewise(&config, &data), whole, "{mixer}");
    }
}

#[test]
fn weights_say_what_they_are_of_and_are_those_of_the_run() {
    let (config, data) = on_text("linear");
    let mut trained = trainer(&config, &data);
    follow(&mut trained, 5, &mut Trace::default());
    let mut bytes = Vec::new();
    trained.write_weights(&mut bytes).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let metadata = header.metadata().clone().unwrap();
    assert_eq!(metadata["config"], config.canonical());
    assert_eq!(metadata["run"], config.id());
    assert_eq!((&metadata["epoch"][..], &metadata["step"][..]), ("1", "4"));
    let saved = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(saved.len(), trained.weights().len());
    for (name, var) in trained.weights() {
        let found = saved.tensor(&name).unwrap().load(&Device::Cpu).unwrap();
        assert_eq!(distance(&found, &var), 0.0, "{name}");
    }
}

#[test]
fn a_run_interrupted_after_it_has_passed_the_threshold_trains_no_further() {
    let (mut config, data) = world("softmax");
    config.train.stop_above = -1.0;
    let (whole, mut parts) = (trace(&config, &data), Trace::default());
    let mut first = trainer(&config, &data);
    follow(&mut first, whole.losses.len() + 1, &mut parts);
    let mut second = trainer(&config, &data);
    second.restore(&checkpoint(&first), "checkpoint").unwrap();
    follow(&mut second, usize::MAX, &mut parts);
    assert_eq!(parts.outcome, Some(Outcome::Converged));
    assert_eq!(parts, whole);
}

/// A checkpoint of the run two steps in.
fn saved(mixer: &str) -> Vec<u8> {
    let (config, data) = world(mixer);
    let mut trainer = trainer(&config, &data);
    follow(&mut trainer, 2, &mut Trace::default());
    checkpoint(&trainer)
}

/// Asserts that a run of softmax attention takes `bytes` for a damaged checkpoint.
fn refuses(bytes: &[u8]) {
    let (config, data) = world("softmax");
    let refused = trainer(&config, &data).restore(bytes, "runs/a/checkpoint");
    match refused {
        Err(Error::Corrupt(at)) => {
            assert_eq!(at.path.as_deref(), Some(Path::new("runs/a/checkpoint")));
        }
        other => panic!("{} bytes: {other:?}", bytes.len()),
    }
}

#[test]
fn a_checkpoint_of_another_run_is_refused() {
    refuses(&saved("linear"));
}

#[test]
fn a_truncated_checkpoint_is_refused() {
    let whole = saved("softmax");
    let inside = [0, 1, 7, 8, 9, 100, whole.len() / 2, whole.len() - 1];
    for length in inside {
        refuses(&whole[..length]);
    }
    refuses(&[&whole[..], &[0]].concat());
}

#[test]
fn random_bytes_are_refused() {
    for length in [1, 8, 9, 64, 5000] {
        let mut rng = Rng::new(1, "bytes", length);
        let bytes: Vec<u8> = (0..length).map(|_| rng.next_u32() as u8).collect();
        refuses(&bytes);
        // A header length that fits, and nonsense where the header should be.
        let fitting = [&length.to_le_bytes()[..], &bytes].concat();
        refuses(&fitting);
    }
    refuses(&u64::MAX.to_le_bytes());
}

/// `text` in the header of a checkpoint replaced by as many other bytes.
fn with_header(saved: &[u8], text: &str, other: &str) -> Vec<u8> {
    assert_eq!(text.len(), other.len());
    let at = saved.windows(text.len()).position(|w| w == text.as_bytes());
    let at = at.unwrap_or_else(|| panic!("no {text} in the header"));
    [&saved[..at], other.as_bytes(), &saved[at + text.len()..]].concat()
}

#[test]
fn progress_that_no_run_can_have_made_is_refused() {
    let saved = saved("softmax");
    for (text, other) in [
        (r#"\"step\":2"#, r#"\"step\":9"#),
        (r#"\"step\":2"#, r#"\"stop\":2"#),
        (r#"\"epochs\":[]"#, r#"\"epochs\":{}"#),
    ] {
        refuses(&with_header(&saved, text, other));
    }
}

fn named_digest(bytes: &[u8]) -> bool {
    bytes.windows(6).any(|w| w == b"sha256")
}

#[test]
fn a_changed_byte_of_a_tensor_is_refused() {
    let mut saved = saved("softmax");
    let last = saved.len() - 1;
    for at in [last, last / 2 + saved.len() / 4] {
        saved[at] ^= 1;
        refuses(&saved);
        saved[at] ^= 1;
    }
}

#[test]
fn a_damaged_header_is_refused_or_harmless_and_never_a_panic() {
    let whole = saved("softmax");
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let (config, data) = world("softmax");
    let mut target = trainer(&config, &data);
    for at in (0..header).step_by(3) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        // Blanks after the header mean nothing, and a name of the digest changed is a file without one.
        match target.restore(&damaged, "checkpoint") {
            Err(e) => assert_eq!(e.diagnostic().path.unwrap(), Path::new("checkpoint"), "byte {at}"),
            Ok(()) => assert!(whole[at] == b' ' || !named_digest(&damaged), "byte {at}"),
        }
    }
    target.restore(&whole, "checkpoint").unwrap();
}
