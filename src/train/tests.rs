//! Training by kernels, emulated, beside training on the CPU.

use super::Trainer;
use crate::config::{AdamConfig, Decay, Precision, RunConfig};
use crate::mixers::{Entry, MIXERS};
use crate::recipes;
use crate::tasks;
use candle_core::Device;
use dsf_emulation::{emulated, launches};

const STEPS: usize = 3;

/// A recall task of three steps, with dropout everywhere.
pub(super) fn config(mixer: &str, n_heads: usize, precision: Precision) -> RunConfig {
    let (examples, heads) = ((3 * STEPS).to_string(), n_heads.to_string());
    let precision = match precision {
        Precision::F32 => "f32",
        Precision::Tf32 => "tf32",
        Precision::Bf16 => "bf16",
    };
    let settings = [
        ("mixer", mixer),
        ("d", "12"),
        ("n", "8"),
        ("heads", &heads),
        ("vocab-size", "48"),
        ("seq-len", "20"),
        ("kv-pairs", "3"),
        ("train-examples", &examples),
        ("test-examples", "3"),
        ("lr", "3e-3"),
        ("epochs", "1"),
        ("batch-size", "3"),
        ("precision", precision),
    ];
    recipes::run("mqar", &settings).unwrap()
}

fn losses(config: &RunConfig) -> Vec<f64> {
    train(config, |_| ())
}

fn train(config: &RunConfig, prepare: impl Fn(&mut Trainer)) -> Vec<f64> {
    let data = tasks::load(&config.task, None).unwrap();
    let mut trainer = Trainer::new(config, &data, &Device::Cpu).unwrap();
    prepare(&mut trainer);
    let steps = trainer.steps_per_epoch();
    (0..steps).map(|_| trainer.step().unwrap()).collect()
}

fn agree(mixer: &str, n_heads: usize, precision: Precision, tolerance: f64) {
    let expected = losses(&config(mixer, n_heads, Precision::F32));
    let before = launches();
    let got = emulated(|| losses(&config(mixer, n_heads, precision)));
    assert!(launches() > before, "no kernels in {mixer}");
    for (got, expected) in got.iter().zip(&expected) {
        let apart = (got - expected).abs() / expected;
        assert!(
            apart <= tolerance,
            "{mixer}, {n_heads} heads, {precision:?}: {got} and {expected}"
        );
    }
}

/// All mixers that do not agree are named, and not only the first.
fn all_agree(precision: Precision, tolerance: f64) {
    let fails = |entry: &&Entry| {
        let name = entry.name;
        std::panic::catch_unwind(|| agree(name, 1, precision, tolerance)).is_err()
    };
    let failed: Vec<&str> = MIXERS
        .iter()
        .filter(fails)
        .map(|entry| entry.name)
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn every_mixer_trains_by_kernels_as_on_the_cpu() {
    all_agree(Precision::F32, 1e-5);
    agree("softmax", 2, Precision::F32, 1e-5);
}

#[test]
fn every_mixer_trains_in_16_bits() {
    all_agree(Precision::Bf16, 2e-2);
}

/// Three whole batches are replayed, and a last one that is not whole is launched.
#[test]
fn a_recorded_step_is_the_step_to_the_bit() {
    let clipped = AdamConfig {
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        clip: Some(0.5),
        decay: Decay::Matrices,
    };
    for (mixer, adam) in [("softmax", None), ("linear", Some(clipped))] {
        let mut config = config(mixer, 1, Precision::F32);
        config.train.adam = adam;
        config.task.set("train_examples", 5 * 3 + 2);
        let launched = emulated(|| train(&config, |_| ()));
        let before = launches();
        let recorded = emulated(|| train(&config, |trainer| trainer.record_steps()));
        assert_eq!(recorded, launched, "{mixer}");
        let each = (launches() - before) / launched.len();
        assert!(each > 0 && launched.len() == 6);
    }
}

#[test]
fn a_loss_that_is_no_number_moves_nothing_in_a_recorded_step() {
    let config = config("softmax", 1, Precision::F32);
    let data = tasks::load(&config.task, None).unwrap();
    emulated(|| {
        let mut trainer = Trainer::new(&config, &data, &Device::Cpu).unwrap();
        trainer.record_steps();
        trainer.step().unwrap();
        trainer.step().unwrap();
        let (name, norm) = trainer.weights().pop().unwrap();
        let broken = (norm.as_tensor() * f64::NAN).unwrap();
        norm.set(&broken).unwrap();
        let weights = |trainer: &Trainer| -> Vec<Vec<f32>> {
            let vars = trainer.weights().into_iter().filter(|(n, _)| *n != name);
            let flat = |(_, var): (String, candle_core::Var)| var.flatten_all()?.to_vec1();
            vars.map(flat).collect::<Result<_, _>>().unwrap()
        };
        let before = weights(&trainer);
        assert!(trainer.step().unwrap().is_nan());
        assert_eq!((weights(&trainer), trainer.progress().step), (before, 2));
    });
}
