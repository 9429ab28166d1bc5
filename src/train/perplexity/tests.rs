//! Sums over windows, compared with a loop over tokens that gives each its own context.

use super::*;
use crate::config::Precision;
use crate::model::Io;
use crate::nn::Params;
use crate::ops::rng::Rng;
use crate::tasks::{IdWidth, Ids, TextSize};
use crate::train::tests::config;
use candle_core::{IndexOp, Tensor, D};

const L: usize = 5;
const V: usize = 9;

fn text(ids: usize, windows: Option<usize>) -> TokenizedText {
    let mut rng = Rng::new(3, "ids", 0);
    let ids: Vec<u16> = (0..ids).map(|_| rng.below(V as u32) as u16).collect();
    TokenizedText::new(Ids::Held(ids.into()), TextSize::default(), L, windows)
}

fn model() -> LanguageModel {
    let mut config = config("softmax", 1, Precision::F32).model;
    config.positions = false;
    let io = Io { vocab_size: V, seq_len: L };
    let params = Params::seeded(3, DType::F64, &Device::Cpu);
    LanguageModel::new(&config, io, &params.detached()).unwrap()
}

/// Negative log-likelihood of `id` after `context`.
fn surprise(model: &LanguageModel, context: &[u32], id: u32) -> f64 {
    let tokens = Tensor::from_slice(context, (1, context.len()), &Device::Cpu).unwrap();
    let hidden = model.hidden(&tokens, None, &Cx::eval()).unwrap();
    let last = hidden.i((0, context.len() - 1)).unwrap();
    let logits = model.logits(&last.unsqueeze(0).unwrap()).unwrap();
    let log = candle_nn::ops::log_softmax(&logits, D::Minus1).unwrap();
    -log.i((0, id as usize)).unwrap().to_scalar::<f64>().unwrap()
}

/// Token-by-token score: the context of a token begins with the earliest window that contains it.
fn by_hand(model: &LanguageModel, ids: &[u32], how: &Scoring) -> Scored {
    let stride = how.stride.unwrap_or(L);
    let targets = ids.len().saturating_sub(1);
    let mut sum = Scored::default();
    for target in 1..=targets {
        let start = target.saturating_sub(L).div_ceil(stride) * stride;
        let in_a_whole_window = start + L <= targets;
        let context_enough = target > start + L - stride;
        if how.every_token || in_a_whole_window && context_enough {
            sum.nll += surprise(model, &ids[start..target], ids[target]);
            sum.tokens += 1;
        }
    }
    sum
}

#[test]
fn every_way_of_scoring_is_the_loop_over_tokens() {
    let model = model();
    for count in [0, 1, 2, L, L + 1, 2 * L, 23] {
        let text = text(count, None);
        for stride in [None].into_iter().chain((1..=L).map(Some)) {
            for (every_token, batch) in [(false, 1), (false, 3), (true, 1), (true, 100)] {
                let how = Scoring { seq_len: L, stride, batch, every_token };
                let found = score(&model, &text, &how, &Device::Cpu).unwrap();
                let wanted = by_hand(&model, &text.ids().iter().collect::<Vec<_>>(), &how);
                assert_eq!(found.tokens, wanted.tokens, "{count} {how:?}");
                let apart = (found.nll - wanted.nll).abs();
                assert!(apart < 1e-9, "{count} {how:?}: {apart}");
                if every_token {
                    assert_eq!(found.tokens, count.saturating_sub(1));
                }
            }
        }
    }
}

#[test]
fn ids_of_four_bytes_have_the_scores_of_two() {
    let (model, two) = (model(), text(23, None));
    let ids = Ids::held(two.ids().iter(), IdWidth::Four);
    let four = TokenizedText::new(ids, TextSize::default(), L, None);
    let how = Scoring { seq_len: L, stride: Some(2), batch: 3, every_token: true };
    let [narrow, wide] = [&two, &four].map(|text| score(&model, text, &how, &Device::Cpu).unwrap());
    assert_eq!(narrow, wide);
    assert_eq!(unigram_ppl(&two, &two, V), unigram_ppl(&four, &four, V));
}

#[test]
fn windows_end_to_end_are_those_of_the_text() {
    let text = text(23, None);
    let how = Scoring { seq_len: L, stride: None, batch: 2, every_token: false };
    let found = score(&model(), &text, &how, &Device::Cpu).unwrap();
    assert_eq!(found.tokens, text.windows() * L);
    assert!((found.ppl().ln() * found.tokens as f64 - found.nll).abs() < 1e-9);
}

#[test]
fn a_unigram_model_counts_the_targets_of_training_windows() {
    let of = |ids: &[u16], windows: Option<usize>| {
        let held = Ids::Held(ids.to_vec().into());
        TokenizedText::new(held, TextSize::default(), 2, windows)
    };
    // The targets are 1 1 1 2; with add-one smoothing the counts are 4, 2 and 1 of 7.
    let train = of(&[0, 1, 1, 1, 2], None);
    let test = of(&[2, 1, 0, 2, 1, 1], None);
    let surprise = -((4.0 / 7.0f64).ln() + (1.0 / 7.0f64).ln() + (2.0 / 7.0f64).ln()) - (4.0 / 7.0f64).ln();
    let found = unigram_ppl(&train, &test, 3);
    assert!((found - (surprise / 4.0).exp()).abs() < 1e-12, "{found}");
    // A limit leaves windows out on both sides.
    let (train, test) = (of(&[0, 1, 1, 0, 0], Some(1)), of(&[2, 1, 1, 0, 0], Some(1)));
    let found = unigram_ppl(&train, &test, 3);
    assert!((found - 5.0 / 3.0).abs() < 1e-12, "{found}");
}
