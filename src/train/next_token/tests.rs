//! Training on windows of the sample text that is built into the program.

use super::*;
use crate::ops;
use crate::recipes;
use crate::store::{Column, Outcome};
use crate::tasks::wikitext::WikitextConfig;
use crate::tasks::{self, Splits, Task};
use crate::train::{Event, Trainer};
use candle_core::{DType, D};

/// Seven windows in batches of three.
fn config(mixer: &str, micro_batch: Option<usize>) -> RunConfig {
    let micro_batch = micro_batch.map(|size| size.to_string());
    let mut settings = vec![
        ("preset", "smoke"),
        ("mixer", mixer),
        ("seq-len", "16"),
        ("train-examples", "7"),
        ("batch-size", "3"),
        ("epochs", "2"),
    ];
    settings.extend(micro_batch.as_deref().map(|size| ("micro-batch", size)));
    recipes::run("wikitext", &settings).unwrap()
}

/// Same config, tested on whole splits.
fn whole(mixer: &str) -> RunConfig {
    let mut config = config(mixer, None);
    let mut text: WikitextConfig = config.task.typed().unwrap();
    text.test_examples = None;
    config.task = text.config();
    config
}

fn data(config: &RunConfig) -> Splits {
    tasks::load(&config.task, None).unwrap()
}

fn splits(data: &Splits) -> &TrainValTest<TokenizedText> {
    match data {
        Splits::NextToken(splits) => splits,
        _ => panic!("not a text"),
    }
}

fn next_token<'a>(config: &'a RunConfig, splits: &'a TrainValTest<TokenizedText>, params: &Params) -> NextToken<'a> {
    let sizes = config.task.sizes().unwrap();
    NextToken::new(config, &sizes, splits, params, &Device::Cpu).unwrap()
}

fn exactly() -> Params {
    Params::seeded(1, DType::F64, &Device::Cpu)
}

/// Loss of a step and the gradient of every parameter.
fn step(config: &RunConfig, data: &Splits) -> (f64, Vec<f64>) {
    let params = exactly();
    let objective = next_token(config, splits(data), &params);
    let examples = StepExamples { epoch: 0, range: 0..3 };
    let mut sum = (0.0, vec![0.0; params.count()]);
    let batches = objective.micro_batches(&examples);
    let weights: f64 = batches.iter().map(|batch| batch.weight).sum();
    assert!((weights - 1.0).abs() < 1e-12);
    for batch in batches {
        let loss = objective.loss(&batch, &Cx::train(0, 0)).unwrap();
        let loss = (loss * batch.weight).unwrap();
        sum.0 += loss.to_scalar::<f64>().unwrap();
        let grads = ops::backward(&loss).unwrap();
        let grads = params.vars().into_iter().flat_map(|(name, var)| {
            let grad = grads.get(&var).unwrap_or_else(|| panic!("none of {name}"));
            grad.flatten_all().unwrap().to_vec1::<f64>().unwrap()
        });
        sum.1.iter_mut().zip(grads).for_each(|(sum, g)| *sum += g);
    }
    sum
}

#[test]
fn a_step_in_micro_batches_is_the_step_in_one() {
    for mixer in ["softmax", "linear", "normalized"] {
        let one = config(mixer, None);
        let data = data(&one);
        let (loss, grads) = step(&one, &data);
        assert!((loss - 256f64.ln()).abs() < 0.5, "{mixer}: {loss}");
        for micro in [1, 2] {
            let (of_cut, grads_of_cut) = step(&config(mixer, Some(micro)), &data);
            assert!((of_cut - loss).abs() < 1e-12, "{mixer}: {of_cut} {loss}");
            for (a, b) in grads.iter().zip(grads_of_cut) {
                assert!((a - b).abs() < 1e-12, "{mixer} in {micro}: {a} {b}");
            }
        }
    }
}

#[test]
fn every_epoch_shows_every_window_once_in_an_order_of_its_own() {
    let config = config("linear", None);
    let data = data(&config);
    let objective = next_token(&config, splits(&data), &exactly());
    let epoch = |epoch: usize| -> Vec<usize> {
        let steps = [0..3, 3..6, 6..7].map(|range| objective.order.examples(&StepExamples { epoch, range }));
        steps.concat()
    };
    let (first, second) = (epoch(0), epoch(1));
    assert_ne!(first, second);
    assert_eq!(first, epoch(0));
    for mut order in [first, second] {
        order.sort_unstable();
        assert!(order.into_iter().eq(0..7));
    }
}

/// Mean loss and accuracy, computed from the logits of one window after the other.
fn by_hand(model: &LanguageModel, text: &TokenizedText) -> LabelMeans {
    let (mut loss, mut right) = (0.0, 0.0);
    for window in 0..text.windows() {
        let ids: Vec<u32> = text.window(window).iter().collect();
        let inputs = Tensor::from_slice(&ids[..16], (1, 16), &Device::Cpu).unwrap();
        let hidden = model.hidden(&inputs, None, &Cx::eval()).unwrap();
        let logits = model.logits(&hidden).unwrap().squeeze(0).unwrap();
        let log = candle_nn::ops::log_softmax(&logits, D::Minus1).unwrap();
        for (row, &target) in log.to_vec2::<f64>().unwrap().iter().zip(&ids[1..]) {
            let found = row[target as usize];
            loss -= found;
            right += f64::from(u8::from(row.iter().all(|other| *other <= found)));
        }
    }
    let targets = (text.windows() * 16) as f64;
    LabelMeans { loss: loss / targets, accuracy: right / targets }
}

#[test]
fn validation_and_test_are_means_over_all_their_targets() {
    let config = config("softmax", Some(2));
    let data = data(&config);
    let splits = splits(&data);
    let objective = next_token(&config, splits, &Params::seeded(1, DType::F32, &Device::Cpu));
    let exact = next_token(&config, splits, &exactly()).tested;
    let tested = objective.evaluate().unwrap();
    let wanted = [&splits.val, &splits.test].map(|text| by_hand(&exact, text));
    for (found, wanted) in [tested.val.unwrap(), tested.test].iter().zip(wanted) {
        assert!((found.loss - wanted.loss).abs() < 1e-5, "{found:?} {wanted:?}");
        assert!((found.accuracy - wanted.accuracy).abs() < 1e-12);
    }
}

/// Trains to the end and returns the trainer, the losses of its steps, and the outcome.
fn train<'a>(config: &'a RunConfig, data: &'a Splits) -> (Trainer<'a>, Vec<f64>, Outcome) {
    let mut trainer = Trainer::new(config, data, &Device::Cpu).unwrap();
    let mut losses = Vec::new();
    let outcome = trainer.run(&mut |_, event| {
        if let Event::Step { loss, .. } = event {
            losses.push(loss);
        }
        Ok(())
    });
    let outcome = outcome.unwrap();
    (trainer, losses, outcome)
}

#[test]
fn the_loss_of_an_epoch_weighs_every_window_alike() {
    let config = config("linear", None);
    let data = data(&config);
    let (trainer, losses, _) = train(&config, &data);
    assert_eq!(losses.len(), 6);
    for (epoch, row) in losses.chunks(3).zip(&trainer.progress().epochs) {
        let mean = (3.0 * epoch[0] + 3.0 * epoch[1] + epoch[2]) / 7.0;
        assert!((row.train_loss - mean).abs() < 1e-12, "{}", row.train_loss);
        let of_steps = epoch.iter().sum::<f64>() / 3.0;
        assert!((row.train_loss - of_steps).abs() > 1e-6);
    }
}

#[test]
fn a_run_ends_with_the_perplexities_of_its_last_weights() {
    let config = whole("softmax");
    let data = data(&config);
    let TrainValTest { val, test, .. } = splits(&data);
    let (trainer, _, outcome) = train(&config, &data);
    let scores = trainer.language_scores(outcome).unwrap();
    let rows = &trainer.progress().epochs;
    let last = rows.last().unwrap();
    assert_eq!(scores.get(Column::TRAIN_PPL), Some(last.train_loss.exp()));
    assert_eq!(scores.get(Column::VAL_PPL), last.val_loss.map(f64::exp));
    assert_eq!(scores.get(Column::TEST_PPL), Some(last.test_loss.exp()));
    assert_eq!(scores.get(Column::BEST_VAL_PPL), scores.get(Column::VAL_PPL), "it still learns");
    assert_eq!(scores.get(Column::SELECTED_TEST_PPL), scores.get(Column::TEST_PPL));
    assert_eq!(scores.count(Column::TRAIN_TOKENS), Some(7 * 16));
    assert!(scores.get(Column::TRAIN_PPL_EVAL).is_some_and(|ppl| ppl > 1.0 && ppl < 256.0));
    assert!(scores.get(Column::UNIGRAM_PPL).is_some_and(|ppl| ppl > 1.0 && ppl < 256.0));
    let words = [scores.get(Column::VAL_WORD_PPL), scores.get(Column::TEST_WORD_PPL)];
    let bits = [scores.get(Column::VAL_BITS_PER_BYTE), scores.get(Column::TEST_BITS_PER_BYTE)];
    for ((text, words), bits) in [val, test].into_iter().zip(words).zip(bits) {
        let counts = text.counts();
        // Two expressions for the same sum of nats.
        let nats = words.unwrap().ln() * counts.ppl_words() as f64;
        let same = bits.unwrap() * 2f64.ln() * counts.bytes as f64;
        assert!((nats - same).abs() < 1e-6 * nats);
        let each = nats / (text.ids().len() - 1) as f64;
        let usual = scores.get(Column::VAL_PPL).unwrap().ln();
        assert!((each - usual).abs() < 0.5, "{each} {usual}");
    }
}

#[test]
fn a_limited_test_has_no_scores_of_whole_splits_and_a_diverged_run_none_of_its_weights() {
    let config = config("softmax", None);
    let data = data(&config);
    let (trainer, _, outcome) = train(&config, &data);
    let scores = trainer.language_scores(outcome).unwrap();
    assert!(scores.get(Column::TEST_PPL).is_some());
    assert_eq!((scores.get(Column::VAL_WORD_PPL), scores.get(Column::TEST_BITS_PER_BYTE)), (None, None));
    let mut wild = config.clone();
    wild.train.lr = f64::MAX;
    let (trainer, _, outcome) = train(&wild, &data);
    assert_eq!(outcome, Outcome::Diverged);
    let scores = trainer.language_scores(outcome).unwrap();
    assert_eq!((scores.get(Column::TRAIN_PPL), scores.get(Column::VAL_PPL)), (None, None));
    assert!(scores.get(Column::UNIGRAM_PPL).is_some());
}

#[test]
fn one_training_window_of_a_hundred_is_scored_at_the_end() {
    let config = config("softmax", None);
    let data = data(&config);
    let mut splits = splits(&data).clone();
    let mut places = |windows: usize| {
        let ids = tasks::Ids::Held(vec![1; windows * 16 + 1].into());
        splits.train = TokenizedText::new(ids, Default::default(), 16, None);
        windows_of(&config, &splits)
    };
    assert_eq!(places(1), [0]);
    assert_eq!(places(100), [0]);
    assert_eq!(places(301), [0, 75, 150, 225]);
}

fn windows_of(config: &RunConfig, splits: &TrainValTest<TokenizedText>) -> Vec<usize> {
    next_token(config, splits, &exactly()).some_training_windows()
}

fn epochs(losses: &[f64]) -> Vec<EpochRow> {
    let row = |(i, &loss): (usize, &f64)| EpochRow {
        epoch: i + 1,
        train_loss: 1.0,
        test_loss: 1.0,
        accuracy: 0.5,
        lr: 0.1,
        seconds: 1.0,
        tokens_per_s: 1.0,
        val_loss: Some(loss),
        // Accuracy rises with the loss here, so that the two select different epochs.
        val_accuracy: Some(loss / 10.0),
        macro_accuracy: None,
    };
    losses.iter().enumerate().map(row).collect()
}

#[test]
fn validation_chooses_the_earliest_epoch_of_the_lowest_loss() {
    let config = config("linear", None);
    let data = data(&config);
    let objective = next_token(&config, splits(&data), &exactly());
    for (losses, chosen) in [
        (vec![], None),
        (vec![3.0, 2.0, 2.5], Some(2)),
        (vec![2.0, 2.0], Some(1)),
        (vec![f64::NAN, 5.0, f64::INFINITY], Some(2)),
        (vec![f64::NAN], None),
    ] {
        let epochs = epochs(&losses);
        let found = selected(&objective, &epochs).map(|epoch| epoch.epoch);
        assert_eq!(found, chosen, "{losses:?}");
    }
}
