//! Steps over documents: invariance to padding, micro-batches and order, and its limits.

use super::*;
use crate::config::Protocol;
use crate::mixers::{Family, MIXERS};
use crate::ops;
use crate::ops::rng::Rng;
use crate::recipes;
use crate::tasks::lra::LraDataset;
use crate::tasks::Splits;
use crate::train::tests::bits;
use crate::train::Trainer;
use candle_core::DType;
use dsf_emulation::{emulated, launches};

type Settings = Vec<(&'static str, &'static str)>;

fn settings(dataset: LraDataset, mixer: &'static str, protocol: Protocol) -> Settings {
    let mut settings = vec![
        ("preset", "smoke"),
        ("dataset", dataset.name()),
        ("mixer", mixer),
        ("protocol", protocol.as_str()),
        ("d", "8"),
        ("n", "4"),
        ("batch-size", "6"),
        ("epochs", "2"),
        ("dropout", "0"),
        ("attn-dropout", "0"),
        ("heads", "1"),
    ];
    settings.extend((!dataset.is_picture()).then_some(("seq-len", "32")));
    settings
}

/// Run of `settings`; the later value of a repeated setting wins.
fn run(settings: &[Settings]) -> RunConfig {
    recipes::run("lra", &settings.concat()).unwrap()
}

/// Documents of 3 to 20 tokens.
fn splits(documents: usize) -> TrainValTest<Documents> {
    splits_of(documents, 20)
}

/// Same splits with `train` training examples.
fn splits_of(documents: usize, train: usize) -> TrainValTest<Documents> {
    let mut rng = Rng::new(5, "documents", 0);
    let mut split = |count: usize| {
        let mut examples = Documents::new(documents);
        for _ in 0..count {
            let drawn: Vec<Vec<u8>> = (0..documents)
                .map(|_| {
                    let len = 3 + rng.below(18) as usize;
                    (0..len).map(|_| 3 + rng.below(15) as u8).collect()
                })
                .collect();
            let documents: Vec<&[u8]> = drawn.iter().map(Vec::as_slice).collect();
            examples.push(&documents, rng.below(2) as u8);
        }
        examples
    };
    TrainValTest { train: split(train), val: split(7), test: split(9), ..TrainValTest::default() }
}

fn pooled<'a>(run: &'a RunConfig, splits: &'a TrainValTest<Documents>, params: &Params) -> Pooled<'a> {
    let sizes = run.task.sizes().unwrap();
    Pooled::new(run, &sizes, splits, params, &Device::Cpu).unwrap()
}

fn examples(epoch: usize, range: Range<usize>) -> StepExamples {
    StepExamples { epoch, range }
}

/// Loss of a step and the gradient of every parameter.
fn step(run: &RunConfig, splits: &TrainValTest<Documents>) -> (f64, Vec<Vec<f64>>) {
    let params = Params::seeded(1, DType::F64, &Device::Cpu);
    let objective = pooled(run, splits, &params);
    let cx = Cx::train(0, 0);
    let mut sum = (0.0, vec![Vec::new(); params.vars().len()]);
    for batch in objective.micro_batches(&examples(0, 0..6)) {
        let loss = (objective.loss(&batch, &cx).unwrap() * batch.weight).unwrap();
        sum.0 += loss.to_scalar::<f64>().unwrap();
        let grads = ops::backward(&loss).unwrap();
        for ((name, var), sum) in params.vars().iter().zip(&mut sum.1) {
            let Some(grad) = grads.get(var) else {
                panic!("no gradient reaches {name}");
            };
            let grad: Vec<f64> = grad.flatten_all().unwrap().to_vec1().unwrap();
            sum.resize(grad.len(), 0.0);
            sum.iter_mut().zip(grad).for_each(|(sum, grad)| *sum += grad);
        }
    }
    sum
}

#[test]
fn a_step_in_micro_batches_is_the_step_in_one() {
    use LraDataset::{Listops, Retrieval};
    for (dataset, mixer, protocol) in [
        (Listops, "linear", Protocol::Reference),
        (Listops, "mamba", Protocol::Matched),
        (Listops, "s6", Protocol::Reference),
        (Listops, "rg-lru", Protocol::Reference),
        (Retrieval, "softmax", Protocol::Matched),
        (Retrieval, "normalized", Protocol::Reference),
    ] {
        let splits = splits(dataset.documents());
        let whole = settings(dataset, mixer, protocol);
        let (loss, grads) = step(&run(std::slice::from_ref(&whole)), &splits);
        for micro in ["1", "4"] {
            let cut = run(&[whole.clone(), vec![("micro-batch", micro)]]);
            let (of_cut, grads_of_cut) = step(&cut, &splits);
            assert!((of_cut - loss).abs() < 1e-12, "{mixer}: {of_cut} {loss}");
            for (a, b) in grads.concat().iter().zip(grads_of_cut.concat()) {
                assert!((a - b).abs() < 1e-11, "{mixer} in {micro}: {a} {b}");
            }
        }
    }
}

/// Loss, gradients and test score, all rounded to f32.
fn step_and_test(run: &RunConfig, splits: &TrainValTest<Documents>) -> (f64, Vec<f64>, f64) {
    let params = Params::seeded(1, DType::F32, &Device::Cpu);
    let objective = pooled(run, splits, &params);
    let (mut loss, mut grads) = (0.0, Vec::new());
    for batch in objective.micro_batches(&examples(0, 0..run.train.batch_size)) {
        let of_batch = objective.loss(&batch, &Cx::train(0, 0)).unwrap();
        loss += f64::from(of_batch.to_scalar::<f32>().unwrap()) * batch.weight;
        let found = ops::backward(&of_batch).unwrap();
        let vars = params.vars().into_iter();
        let flat = vars.flat_map(|(_, var)| {
            // A parameter has no gradient if the variant does not use it.
            let none = || var.zeros_like().unwrap();
            let grad = found.get(&var).cloned().unwrap_or_else(none);
            grad.flatten_all().unwrap().to_vec1::<f32>().unwrap()
        });
        let flat: Vec<f64> = flat.map(|g| f64::from(g) * batch.weight).collect();
        grads.resize(flat.len(), 0.0);
        grads.iter_mut().zip(flat).for_each(|(sum, g)| *sum += g);
    }
    (loss, grads, objective.evaluate().unwrap().test.loss)
}

/// Asserts that the output for a document depends neither on the other documents of its batch nor on the length of the
/// padding.
fn assert_independent_of_batches(whole: &Settings, splits: &TrainValTest<Documents>) {
    let batch = |size| vec![("batch-size", size)];
    let (loss, grads, tested) = step_and_test(&run(&[whole.clone(), batch("24")]), splits);
    let largest = grads.iter().fold(1.0, |most: f64, g| most.max(g.abs()));
    for micro in ["5", "1"] {
        let cut = [whole.clone(), batch("24"), vec![("micro-batch", micro)]];
        let (of_cut, grads_of_cut, tested_cut) = step_and_test(&run(&cut), splits);
        let place = format!("{whole:?} in {micro}");
        assert!((of_cut - loss).abs() <= 1e-6, "{place}: {of_cut} {loss}");
        let tests = (tested_cut - tested).abs();
        assert!(tests <= 1e-6, "{place}: {tested_cut} {tested}");
        let apart = grads.iter().zip(&grads_of_cut).map(|(a, b)| (a - b).abs());
        // `f64::max` would ignore NaN.
        let close = apart.clone().all(|apart| apart <= 1e-6 * largest);
        let worst = apart.fold(0.0, f64::max);
        assert!(close, "{place}: a gradient is {worst:e} off, of {largest}");
    }
}

#[test]
fn every_mixer_trains_on_documents_of_unequal_length_whatever_their_batch() {
    let splits = splits_of(1, 24);
    for entry in MIXERS {
        let matched = settings(LraDataset::Listops, entry.name, Protocol::Matched);
        assert_independent_of_batches(&matched, &splits);
        if entry.bidirectional || entry.family != Family::Attention {
            let seeing = [matched, vec![("bidirectional", "true")]].concat();
            assert_independent_of_batches(&seeing, &splits);
        }
    }
}

#[test]
fn pooling_and_heads_look_at_no_padding_either() {
    let splits = splits_of(2, 24);
    for (dual, pool) in [("logits", "max"), ("features", "last"), ("features", "mean")] {
        let matched = settings(LraDataset::Retrieval, "hyena", Protocol::Matched);
        let set = vec![("dual", dual), ("pool", pool), ("lambda-skip", "true")];
        assert_independent_of_batches(&[matched, set].concat(), &splits);
    }
}

#[test]
fn padding_is_seen_unless_it_is_masked() {
    let splits = splits(1);
    for (protocol, pool, seen) in [
        (Protocol::Reference, "mean", true),
        (Protocol::Matched, "mean", false),
        (Protocol::Matched, "last", false),
        (Protocol::Matched, "max", false),
    ] {
        let listops = settings(LraDataset::Listops, "s6", protocol);
        let run = run(&[listops, vec![("pool", pool)]]);
        let params = Params::seeded(1, DType::F64, &Device::Cpu);
        let objective = pooled(&run, &splits, &params);
        let loss = |len: usize| {
            let batch = MicroBatch { examples: vec![0, 1, 2], seq_len: len, weight: 1.0 };
            let cx = Cx::eval();
            let found = objective.classify(&objective.tested, &splits.train, &batch, &cx);
            found.unwrap().loss.to_scalar::<f64>().unwrap()
        };
        let apart = (loss(20) - loss(30)).abs();
        assert_eq!(apart > 1e-9, seen, "{protocol:?} {pool:?}: {apart}");
        assert!(seen || apart < 1e-12);
    }
}

#[test]
fn every_epoch_shows_every_example_once_in_an_order_of_its_own() {
    let (run, splits) = (run(&[settings(LraDataset::Listops, "s6", Protocol::Matched)]), splits(1));
    let params = Params::seeded(1, DType::F32, &Device::Cpu);
    let objective = pooled(&run, &splits, &params);
    let epoch = |epoch: usize| -> Vec<usize> {
        let steps = [0..6, 6..12, 12..18, 18..20];
        let drawn = steps.map(|range| objective.order.examples(&examples(epoch, range)));
        drawn.concat()
    };
    let (first, second) = (epoch(0), epoch(1));
    assert_ne!(first, second);
    assert_eq!(first, epoch(0));
    for mut order in [first, second] {
        order.sort_unstable();
        assert!(order.into_iter().eq(0..20));
    }
}

#[test]
fn micro_batches_have_similar_lengths_if_padding_is_masked_and_one_length_otherwise() {
    let splits = splits(1);
    let of = |protocol: Protocol| {
        let listops = settings(LraDataset::Listops, "s6", protocol);
        let run = run(&[listops, vec![("micro-batch", "2")]]);
        let params = Params::seeded(1, DType::F32, &Device::Cpu);
        let objective = pooled(&run, &splits, &params);
        let batches = objective.cut(&splits.train, (0..6).collect());
        batches.iter().map(|batch| batch.seq_len).collect::<Vec<_>>()
    };
    let longest = (0..6).map(|i| splits.train.longest(i)).max().unwrap();
    assert_eq!(of(Protocol::Reference), [longest; 3]);
    let masked = of(Protocol::Matched);
    assert!(masked.is_sorted_by(|a, b| a >= b) && masked[0] == longest && masked[2] < longest);
}

#[test]
fn a_stopped_run_resumes_bit_for_bit() {
    let listops = settings(LraDataset::Listops, "linear", Protocol::Matched);
    let run = run(&[listops, vec![("dropout", "0.1"), ("micro-batch", "4")]]);
    let data = Splits::Pooled(splits(1));
    let mut whole = Trainer::new(&run, &data, &Device::Cpu).unwrap();
    let mut losses = Vec::new();
    let outcome = whole.run(&mut |trainer, _| {
        losses.push((trainer.progress().step, trainer.mean_loss()));
        Ok(())
    });
    outcome.unwrap();
    for stop in [1, 3, 5] {
        let mut first = Trainer::new(&run, &data, &Device::Cpu).unwrap();
        let stopped = first.run(&mut |trainer, _| match trainer.progress().step {
            step if step == stop => Err(crate::error::Error::Stopped),
            _ => Ok(()),
        });
        assert!(stopped.is_err());
        let mut saved = Vec::new();
        first.write_checkpoint(&mut saved).unwrap();
        let mut second = Trainer::new(&run, &data, &Device::Cpu).unwrap();
        second.restore(&saved, "here").unwrap();
        second.run(&mut |_, _| Ok(())).unwrap();
        assert_eq!(bits(&second), bits(&whole), "stopped after step {stop}");
        let rows = |trainer: &Trainer| -> Vec<_> {
            let epochs = trainer.progress().epochs.iter();
            epochs.map(|e| (e.train_loss, e.accuracy, e.val_accuracy)).collect()
        };
        assert_eq!(rows(&second), rows(&whole));
    }
    assert!(whole.progress().epochs[0].val_accuracy.is_some());
}

/// Losses of two steps and the score of the test after them.
fn trained(run: &RunConfig, data: &Splits) -> Vec<f64> {
    let mut trainer = Trainer::new(run, data, &Device::Cpu).unwrap();
    let mut losses: Vec<f64> = (0..2).map(|_| trainer.step().unwrap()).collect();
    losses.push(trainer.objective.evaluate().unwrap().test.loss);
    losses
}

#[test]
fn classifiers_train_by_kernels_as_on_the_cpu() {
    use LraDataset::{Listops, Retrieval};
    for (dataset, mixer, protocol, loss) in [
        (Listops, "linear", Protocol::Reference, None),
        (Listops, "mamba", Protocol::Reference, None),
        (Listops, "rg-lru", Protocol::Reference, Some("ce")),
        (Listops, "softmax", Protocol::Matched, None),
        (Retrieval, "s6", Protocol::Matched, None),
    ] {
        let mut more = vec![("dropout", "0.1"), ("micro-batch", "4"), ("lambda-skip", "true")];
        more.extend(loss.map(|loss| ("loss", loss)));
        let run = run(&[settings(dataset, mixer, protocol), more]);
        let data = Splits::Pooled(splits(dataset.documents()));
        let expected = trained(&run, &data);
        let before = launches();
        let found = emulated(|| trained(&run, &data));
        assert!(launches() > before, "no kernels in {mixer}");
        for (a, b) in found.iter().zip(&expected) {
            assert!((a / b - 1.0).abs() < 2e-5, "{mixer}: {found:?} {expected:?}");
        }
    }
}
