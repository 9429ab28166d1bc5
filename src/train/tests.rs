//! Training by kernels, emulated, beside training on the CPU.

use super::Trainer;
use crate::config::{AdamConfig, Decay, Precision, Protocol, RunConfig};
use crate::gpu::emulated::{emulated, launches};
use crate::mixers::MIXERS;
use crate::model::protocol::Request;
use crate::tasks;
use crate::tasks::mqar::MqarConfig;
use crate::tasks::Generator;
use candle_core::Device;
use std::collections::BTreeMap;

const STEPS: usize = 3;

/// A recall task of three steps, with dropout everywhere.
pub(super) fn config(mixer: &str, n_heads: usize, precision: Precision) -> RunConfig {
    let request = Request {
        protocol: Protocol::Reference,
        mixer: mixer.to_owned(),
        variant: None,
        options: BTreeMap::new(),
        d_model: 12,
        d_state: 8,
        n_heads,
        n_layers: 2,
        task: MqarConfig {
            data: Generator::Native,
            data_seed: 0,
            vocab_size: 48,
            seq_len: 20,
            kv_pairs: 3,
            train_examples: 3 * STEPS,
            test_examples: 3,
        },
        lr: 3e-3,
        epochs: 1,
        batch_size: Some(3),
        weight_decay: 0.1,
        precision,
        dropout: Some(0.1),
        attn_dropout: None,
        expand: None,
        micro_batch: None,
        seed: 123,
    };
    request.resolve().unwrap()
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

#[test]
fn every_mixer_trains_by_kernels_as_on_the_cpu() {
    for entry in MIXERS {
        agree(entry.name, 1, Precision::F32, 1e-5);
    }
    agree("softmax", 2, Precision::F32, 1e-5);
}

#[test]
fn every_mixer_trains_in_16_bits() {
    for entry in MIXERS {
        agree(entry.name, 1, Precision::Bf16, 2e-2);
    }
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
