//! The training loop on a task that takes milliseconds, for every mixer.

use crate::world::{checkpoint, perturb, run};
use candle_core::{safetensors, DType, Device, Tensor, D};
use dsf::config::{Protocol, RunConfig};
use dsf::error::{Error, Result};
use dsf::mixers::MIXERS;
use dsf::model::{Io, LanguageModel};
use dsf::nn::{Cx, Params};
use dsf::store::{EpochRow, Outcome};
use dsf::tasks::{self, Dataset, Splits, IGNORED};
use dsf::train::{Event, Trainer};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Results of a run without times; equal only bit for bit.
#[derive(Debug, Default, PartialEq)]
pub struct Trace {
    pub outcome: Option<Outcome>,
    /// Loss of every step.
    pub losses: Vec<u64>,
    /// Train loss, test loss, accuracy and rate of every epoch.
    pub epochs: Vec<[u64; 4]>,
    /// Digests of weights and moments, by name.
    pub weights: BTreeMap<String, u64>,
}

/// The run of a mixer under the reference protocol, and its data.
pub fn world(mixer: &str) -> (RunConfig, Splits) {
    let config = run(mixer, Protocol::Reference, &[]);
    let data = tasks::load(&config.task, None).unwrap();
    (config, data)
}

pub fn trainer<'a>(config: &'a RunConfig, data: &'a Splits) -> Trainer<'a> {
    Trainer::new(config, data, &Device::Cpu).unwrap()
}

/// Digests of the bits of weights and moments, as a checkpoint holds them.
pub fn weights(trainer: &Trainer) -> BTreeMap<String, u64> {
    let saved = checkpoint(trainer);
    let tensors = safetensors::load_buffer(&saved, &Device::Cpu).unwrap();
    let digest = |t: &Tensor| {
        let mut hasher = DefaultHasher::new();
        for value in t.flatten_all().unwrap().to_vec1::<f32>().unwrap() {
            value.to_bits().hash(&mut hasher);
        }
        hasher.finish()
    };
    tensors.iter().map(|(n, t)| (n.clone(), digest(t))).collect()
}

/// Trains on, at most `events` steps and epochs, adding to `trace`.
pub fn follow(trainer: &mut Trainer, events: usize, trace: &mut Trace) {
    let mut left = events;
    let outcome: Result<Outcome> = trainer.run(&mut |_, event| {
        if let Event::Step { loss, .. } = event {
            trace.losses.push(loss.to_bits());
        }
        left -= 1;
        match left {
            0 => Err(Error::Stopped),
            _ => Ok(()),
        }
    });
    trace.outcome = match outcome {
        Ok(outcome) => Some(outcome),
        Err(Error::Stopped) => None,
        Err(e) => panic!("{e}"),
    };
    let row = |e: &EpochRow| [e.train_loss, e.test_loss, e.accuracy, e.lr].map(f64::to_bits);
    trace.epochs = trainer.progress().epochs.iter().map(row).collect();
    trace.weights = weights(trainer);
}

/// A whole run without interruption.
pub fn trace(config: &RunConfig, data: &Splits) -> Trace {
    let mut trace = Trace::default();
    follow(&mut trainer(config, data), usize::MAX, &mut trace);
    trace
}

#[test]
fn a_run_is_its_steps_and_epochs_and_learns() {
    for entry in MIXERS {
        let (config, data) = world(entry.name);
        let start = weights(&trainer(&config, &data));
        let run = trace(&config, &data);
        assert_eq!(run.outcome, Some(Outcome::Finished), "{}", entry.name);
        assert_eq!((run.losses.len(), run.epochs.len()), (6, 2), "{}", entry.name);
        let [first, second] = [0, 1].map(|e: usize| f64::from_bits(run.epochs[e][0]));
        assert!(second < first, "{}: {first} {second}", entry.name);
        for (name, after) in &run.weights {
            // No gradient, hence neither moments nor decay.
            let idle = match entry.name {
                "qlstm" => name.ends_with("mixer.alpha"),
                // A sequence of one block has none to mix.
                "sinkhorn" => name.ends_with("mixer.wsq") || name.ends_with("mixer.wsk"),
                _ => false,
            };
            let moved = *after != start[name];
            assert_eq!(moved, !idle, "{} {name}", entry.name);
        }
    }
}

#[test]
fn the_same_run_twice_gives_the_same_bits() {
    for entry in MIXERS {
        let (config, data) = world(entry.name);
        assert_eq!(trace(&config, &data), trace(&config, &data), "{}", entry.name);
        let mut other = config.clone();
        other.seed += 1;
        assert_ne!(trace(&config, &data).losses, trace(&other, &data).losses);
    }
}

#[test]
fn an_absurd_learning_rate_is_an_outcome_and_no_error() {
    for entry in MIXERS {
        for lr in [1e6, 1e30, f64::MAX] {
            let (mut config, data) = world(entry.name);
            config.train.lr = lr;
            let outcome = trace(&config, &data).outcome;
            let known = [Outcome::Diverged, Outcome::Finished].map(Some);
            assert!(known.contains(&outcome), "{} {lr}: {outcome:?}", entry.name);
        }
    }
}

#[test]
fn a_loss_that_is_no_number_ends_the_run_at_that_step() {
    let (mut config, data) = world("softmax");
    config.train.lr = f64::MAX;
    let run = trace(&config, &data);
    assert_eq!(run.outcome, Some(Outcome::Diverged));
    assert!(run.losses.iter().all(|l| f64::from_bits(*l).is_finite()));
    assert!(run.losses.len() < 6);
}

#[test]
fn training_ends_after_the_epoch_that_passes_the_threshold() {
    for entry in MIXERS {
        let (mut config, data) = world(entry.name);
        config.train.stop_above = -1.0;
        let run = trace(&config, &data);
        assert_eq!(run.outcome, Some(Outcome::Converged), "{}", entry.name);
        assert_eq!((run.losses.len(), run.epochs.len()), (3, 1), "{}", entry.name);
    }
}

/// The rate 0 in f32: nothing is learnt, so that every epoch tests the same weights.
fn standing_still(mixer: &str, dropout: f64) -> Trace {
    let (mut config, data) = world(mixer);
    config.train.lr = 1e-300;
    (config.model.embed_dropout, config.model.attn_dropout) = (dropout, dropout);
    trace(&config, &data)
}

#[test]
fn evaluation_repeats_itself_and_drops_nothing() {
    for entry in MIXERS {
        let tests = |t: &Trace| -> Vec<[u64; 2]> { t.epochs.iter().map(|[_, loss, acc, _]| [*loss, *acc]).collect() };
        let (plain, dropped) = (standing_still(entry.name, 0.0), standing_still(entry.name, 0.5));
        assert_ne!(plain.losses, dropped.losses, "{}: training drops", entry.name);
        assert_ne!(dropped.losses[..3], dropped.losses[3..], "{}: new masks", entry.name);
        assert_eq!(plain.losses[..3], plain.losses[3..], "{}: same batches", entry.name);
        assert_eq!(tests(&plain), tests(&dropped), "{}", entry.name);
        assert_eq!(tests(&plain)[0], tests(&plain)[1], "{}", entry.name);
    }
}

#[test]
fn test_loss_and_accuracy_are_those_of_the_full_model_over_all_labels() {
    for entry in MIXERS {
        let (mut config, data) = world(entry.name);
        (config.train.lr, config.train.epochs) = (0.02, 1);
        let mut trained = trainer(&config, &data);
        follow(&mut trained, usize::MAX, &mut Trace::default());
        let saved = safetensors::load_buffer(&checkpoint(&trained), &Device::Cpu);
        let params = Params::given(saved.unwrap(), DType::F64, &Device::Cpu);
        let model = LanguageModel::new(&config.model, Io::of(&config.task).unwrap(), &params).unwrap();
        let (loss, accuracy) = by_hand(&model, tested(&data));
        let row = trained.progress().epochs[0];
        assert!((row.test_loss - loss).abs() < 1e-5, "{}: {loss}", entry.name);
        assert!((row.accuracy - accuracy).abs() < 1e-12, "{}: {accuracy}", entry.name);
        perturb(&params);
        let (other, _) = by_hand(&model, tested(&data));
        assert!((row.test_loss - other).abs() > 1e-2, "{}: {other}", entry.name);
    }
}

/// Mean loss and accuracy, position by position from dense labels.
fn tested(data: &Splits) -> &Dataset {
    match data {
        Splits::PerToken { test, .. } => test,
        _ => panic!("not MQAR"),
    }
}

fn by_hand(model: &LanguageModel, data: &Dataset) -> (f64, f64) {
    let shape = (data.len(), data.seq_len());
    let tokens = Tensor::from_slice(data.tokens(), shape, &Device::Cpu).unwrap();
    let hidden = model.hidden(&tokens, None, &Cx::eval()).unwrap();
    let logits = model.logits(&hidden).unwrap();
    let surprise = candle_nn::ops::log_softmax(&logits, D::Minus1).unwrap();
    let rows = surprise.flatten(0, 1).unwrap().to_vec2::<f64>().unwrap();
    let (mut loss, mut right, mut labels) = (0.0, 0.0, 0.0);
    for (row, label) in rows.iter().zip(data.dense_labels()) {
        if label == IGNORED {
            continue;
        }
        let answer = row[label as usize];
        loss -= answer;
        right += f64::from(u8::from(row.iter().all(|other| *other <= answer)));
        labels += 1.0;
    }
    (loss / labels, right / labels)
}

/// Validation examples of their own end the training and choose the epoch; the test is left as it was.
#[test]
fn validation_examples_end_the_training_in_place_of_test_examples() {
    let (mut config, data) = world("softmax");
    config.train.epochs = 2;
    let Splits::PerToken { train, test, .. } = data else { panic!("not MQAR") };
    let split = |val: &Dataset| Splits::PerToken { train: train.clone(), val: val.clone(), test: test.clone() };
    let plain = split(&train);
    let mut trained = trainer(&config, &plain);
    follow(&mut trained, usize::MAX, &mut Trace::default());
    let rows = trained.progress().epochs.clone();
    assert!(rows.iter().all(|row| row.val_loss != Some(row.test_loss)));
    let val = rows[0].val_accuracy.unwrap();
    let best = trained.selected().unwrap().val_accuracy.unwrap();
    assert!(rows.iter().all(|row| row.val_accuracy.unwrap() <= best));
    // Just below what is reached on validation examples after an epoch.
    let mut lower = config.clone();
    lower.train.stop_above = val - 1e-9;
    let mut stopped = trainer(&lower, &plain);
    let mut trace = Trace::default();
    follow(&mut stopped, usize::MAX, &mut trace);
    assert_eq!(trace.outcome, Some(Outcome::Converged));
    assert_eq!(stopped.progress().epochs.len(), 1);
    let row = stopped.progress().epochs[0];
    assert_eq!((row.test_loss, row.accuracy), (rows[0].test_loss, rows[0].accuracy));
}
