//! Training by kernels on the emulated GPU, compared with training on the CPU.

use super::{Event, Trainer};
use crate::config::{AdamConfig, Decay, Precision, RunConfig};
use crate::error::Error;
use crate::gpu;
use crate::mixers::{Entry, MIXERS};
use crate::recipes;
use crate::tasks;
use candle_core::{DType, Device, Tensor};
use dsf_emulation::{emulated, launches};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

const STEPS: usize = 3;

/// Recall task of three steps per epoch, with dropout everywhere.
pub(super) fn config(mixer: &str, n_heads: usize, precision: Precision) -> RunConfig {
    let (examples, heads) = ((3 * STEPS).to_string(), n_heads.to_string());
    let precision = precision.as_str();
    let settings = [
        ("mixer", mixer),
        ("d", "12"),
        ("n", "8"),
        ("heads", &heads),
        ("vocab-size", "48"),
        ("seq-len", "12"),
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

/// Losses by kernels, computed once for all tests.
fn by_kernels(mixer: &str, n_heads: usize, precision: Precision) -> Arc<[f64]> {
    type Found = Mutex<BTreeMap<String, Arc<OnceLock<Arc<[f64]>>>>>;
    static FOUND: Found = Mutex::new(BTreeMap::new());
    let config = config(mixer, n_heads, precision);
    let losses = || {
        let before = launches();
        let losses = emulated(|| losses(&config));
        assert!(launches() > before, "no kernels in {mixer}");
        losses.into()
    };
    let found = FOUND.lock().unwrap().entry(config.canonical()).or_default().clone();
    found.get_or_init(losses).clone()
}

fn agree(mixer: &str, n_heads: usize, precision: Precision, tolerance: f64) {
    let expected = losses(&config(mixer, n_heads, Precision::F32));
    let got = by_kernels(mixer, n_heads, precision);
    for (got, expected) in got.iter().zip(&expected) {
        let apart = (got - expected).abs() / expected;
        assert!(apart <= tolerance, "{mixer}, {n_heads} heads, {precision:?}: {got} and {expected}");
    }
}

/// The failure message names every mixer that disagrees, not only the first.
fn all_agree(precision: Precision, tolerance: f64) {
    let fails = |entry: &&Entry| {
        let name = entry.name;
        std::panic::catch_unwind(|| agree(name, 1, precision, tolerance)).is_err()
    };
    let failed: Vec<&str> = MIXERS.iter().filter(fails).map(|entry| entry.name).collect();
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

/// On a CPU, bf16 changes the losses of mixers whose products are matrix products, and tf32 at most by as much as on a
/// GPU.
#[test]
fn every_mixer_trains_on_the_cpu_with_rounded_factors() {
    let apart = |name: &str, precision| {
        let [expected, got] = [Precision::F32, precision].map(|precision| losses(&config(name, 1, precision)));
        let each = got.iter().zip(&expected).map(|(got, expected)| (got - expected).abs() / expected);
        each.fold(0.0, |most, x| if x <= most { most } else { x })
    };
    let fails = |(precision, limit): (Precision, f64)| {
        let names = MIXERS.iter().map(|entry| entry.name);
        names.filter(|name| apart(name, precision) > limit).collect::<Vec<_>>()
    };
    assert_eq!(fails((Precision::Bf16, 2e-2)), Vec::<&str>::new());
    assert_eq!(fails((Precision::Tf32, 2e-2 / 8.0)), Vec::<&str>::new());
    let same = MIXERS.iter().map(|entry| entry.name).filter(|name| apart(name, Precision::Bf16) == 0.0);
    assert_eq!(same.collect::<Vec<_>>(), Vec::<&str>::new());
}

/// Rounding the factors changes the loss by less than three bits of mantissa would, and does change it.
#[test]
fn every_mixer_trains_with_products_in_tf32() {
    all_agree(Precision::Tf32, 2e-2 / 8.0);
    let moved = |entry: &&Entry| {
        let of = |precision| by_kernels(entry.name, 1, precision);
        of(Precision::Tf32) != of(Precision::F32)
    };
    let same: Vec<&str> = MIXERS.iter().filter(|e| !moved(e)).map(|e| e.name).collect();
    assert!(same.is_empty(), "{same:?}");
}

/// Two runs on one GPU, one of which rounds factors, give the results that each gives alone, both in separate threads
/// and interleaved step by step.
#[test]
fn runs_of_both_kinds_of_products_share_a_gpu() {
    let configs = [Precision::F32, Precision::Tf32].map(|of| config("softmax", 1, of));
    let alone = configs.each_ref().map(|c| emulated(|| losses(c)));
    assert_ne!(alone[0], alone[1]);
    let on_cpu = Tensor::zeros(1, DType::F32, &Device::Cpu).unwrap();
    let shared = emulated(|| gpu::of(&on_cpu)).unwrap();
    let in_threads = std::thread::scope(|scope| {
        let run = |config| {
            let gpu = shared.clone();
            scope.spawn(move || gpu::standing_in(gpu, || losses(config)))
        };
        configs.each_ref().map(run).map(|run| run.join().unwrap())
    });
    assert_eq!(in_threads, alone);
    let data = tasks::load(&configs[0].task, None).unwrap();
    let by_turns = emulated(|| {
        let new = |config| Trainer::new(config, &data, &Device::Cpu).unwrap();
        let mut trainers = configs.each_ref().map(new);
        let mut losses = [Vec::new(), Vec::new()];
        for _ in 0..trainers[0].steps_per_epoch() {
            for (trainer, losses) in trainers.iter_mut().zip(&mut losses) {
                losses.push(trainer.step().unwrap());
            }
        }
        losses
    });
    assert_eq!(by_turns, alone);
}

/// Runs of all kinds at once on one GPU give the losses and weights that they give one at a time. Each records while
/// the others launch, draws the dropout masks of its own step, and rounds its own products.
#[test]
fn many_trainers_in_threads_share_a_gpu_and_get_what_each_gets_alone() {
    type Found = (Vec<f64>, Vec<Vec<f32>>);
    let mut runs = Vec::new();
    for (mixer, seed) in [("softmax", "1"), ("softmax", "2"), ("linear", "1"), ("s6", "1")] {
        for precision in [Precision::F32, Precision::Tf32] {
            let mut config = config(mixer, 1, precision);
            config.seed = seed.parse().unwrap();
            config.task.set("train_examples", 5 * 3 + 2);
            // Candle's own ops are not part of an emulated recording.
            runs.push((config, mixer != "s6"));
        }
    }
    let run = |(config, recorded): &(RunConfig, bool)| run_to_the_end(config, *recorded, &[]);
    let alone: Vec<Found> = runs.iter().map(|r| emulated(|| run(r))).collect();
    let on_cpu = Tensor::zeros(1, DType::F32, &Device::Cpu).unwrap();
    let shared = emulated(|| gpu::of(&on_cpu)).unwrap();
    let together: Vec<Found> = std::thread::scope(|scope| {
        let start = |r| {
            let gpu = shared.clone();
            scope.spawn(move || gpu::standing_in(gpu, || run(r)))
        };
        let threads: Vec<_> = runs.iter().map(start).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    for ((run, alone), together) in runs.iter().zip(&alone).zip(&together) {
        assert!(together == alone, "{} {:?}", run.0.model.mixer, run.0.train.precision);
    }
    let distinct = alone.iter().map(|found| format!("{found:?}"));
    let distinct: std::collections::BTreeSet<String> = distinct.collect();
    assert_eq!(distinct.len(), runs.len());
}

/// Three whole batches are replayed; the last batch is short and is launched.
#[test]
fn a_recorded_step_is_the_step_to_the_bit() {
    let clipped = AdamConfig { beta1: 0.9, beta2: 0.95, eps: 1e-8, clip: Some(0.5), decay: Decay::Matrices };
    for (mixer, adam, precision) in [
        ("softmax", None, Precision::F32),
        ("linear", Some(clipped), Precision::F32),
        ("softmax", None, Precision::Tf32),
    ] {
        let mut config = config(mixer, 1, precision);
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

/// Bits of the current weights.
pub(super) fn bits(trainer: &Trainer) -> Vec<Vec<f32>> {
    let flat = |(_, var): (String, candle_core::Var)| var.flatten_all()?.to_vec1();
    let weights = trainer.weights().into_iter().map(flat);
    weights.collect::<Result<_, _>>().unwrap()
}

/// Trains to the end. Whenever the trainer has settled, training continues from a checkpoint, and earlier events stay
/// as they were.
fn run_to_the_end(config: &RunConfig, recorded: bool, stops: &[usize]) -> (Vec<f64>, Vec<Vec<f32>>) {
    let data = tasks::load(&config.task, None).unwrap();
    let fresh = || {
        let mut trainer = Trainer::new(config, &data, &Device::Cpu).unwrap();
        if recorded {
            trainer.record_steps();
        }
        trainer
    };
    let (mut trainer, mut told) = (fresh(), Vec::new());
    let mut stops = stops.to_vec();
    loop {
        let mut saved = Vec::new();
        let ended = trainer.run(&mut |trainer, event| {
            if let Event::Step { loss, .. } = event {
                told.push(loss);
            }
            let step = trainer.progress().step;
            if stops.first().is_none_or(|stop| step < *stop) {
                return Ok(());
            }
            if !trainer.settle() {
                let refused = trainer.write_checkpoint(&mut Vec::new());
                assert!(refused.unwrap_err().to_string().contains("one step ahead"));
                return Ok(());
            }
            stops.remove(0);
            trainer.write_checkpoint(&mut saved).unwrap();
            Err(Error::Stopped)
        });
        match ended {
            Ok(_) => return (told, bits(&trainer)),
            Err(Error::Stopped) => {
                trainer = fresh();
                trainer.restore(&saved, "here").unwrap();
            }
            Err(e) => panic!("{e}"),
        }
    }
}

/// Ten steps per epoch, the last launched because its batch is short. Events and weights equal those of a run that
/// waits for every step, even if it is stopped while a step is under way.
#[test]
fn steps_queued_ahead_equal_steps_made_one_by_one() {
    let mut config = config("softmax", 1, Precision::F32);
    config.task.set("train_examples", 9 * 3 + 2);
    config.train.epochs = 2;
    let waiting = emulated(|| run_to_the_end(&config, false, &[]));
    assert_eq!(waiting.0.len(), 20);
    for stops in [&[][..], &[1, 5, 9, 10, 16]] {
        let ahead = emulated(|| run_to_the_end(&config, true, stops));
        assert_eq!(ahead, waiting, "stopped at {stops:?}");
    }
}

/// No mixer uploads or frees older memory while a step is recorded. Losses are not compared here, because Candle's own
/// ops are not part of an emulated recording.
#[test]
fn a_step_of_every_mixer_can_be_recorded() {
    let refused = |entry: &&Entry| {
        let config = config(entry.name, 1, Precision::F32);
        let data = tasks::load(&config.task, None).unwrap();
        let steps = emulated(|| {
            let mut trainer = Trainer::new(&config, &data, &Device::Cpu).unwrap();
            trainer.record_steps();
            (0..STEPS).try_for_each(|_| trainer.step().map(drop))?;
            // A refused recording is no error: the steps are launched.
            trainer.take_warning().map_or(Ok(()), |warning| Err(Error::usage(warning)))
        });
        steps.is_err_and(|e| {
            eprintln!("{}: {e}", entry.name);
            true
        })
    };
    let refused: Vec<&str> = MIXERS.iter().filter(refused).map(|e| e.name).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn a_nan_loss_moves_no_weight_in_a_recorded_step() {
    let mut config = config("softmax", 1, Precision::F32);
    config.task.set("train_examples", 5 * 3);
    let data = tasks::load(&config.task, None).unwrap();
    emulated(|| {
        let mut trainer = Trainer::new(&config, &data, &Device::Cpu).unwrap();
        trainer.record_steps();
        trainer.step().unwrap();
        trainer.step().unwrap();
        let (_, norm) = trainer.weights().pop().unwrap();
        let broken = (norm.as_tensor() * f64::NAN).unwrap();
        norm.set(&broken).unwrap();
        // Formatted text is compared because NaN is not equal to itself.
        let text = |trainer: &Trainer| format!("{:?}", bits(trainer));
        let before = text(&trainer);
        // The next step is under way already; it must not move the weights either.
        assert!(trainer.step_ahead().unwrap().is_nan());
        assert_eq!((text(&trainer), trainer.progress().step), (before, 2));
        assert!(trainer.settle());
    });
}
