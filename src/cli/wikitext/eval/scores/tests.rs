use super::*;
use crate::config::samples::pythia;
use crate::config::Rotary;
use crate::error::Error;
use crate::model::Io;
use crate::nn::Params;
use crate::tasks::{Ids, TextSize};
use candle_core::DType;

fn model() -> LanguageModel {
    let config = pythia("softmax", Rotary::Pre);
    let io = Io { vocab_size: 30, seq_len: 6 };
    let params = Params::seeded(5, DType::F32, &Device::Cpu);
    LanguageModel::new(&config, io, &params).unwrap();
    // Larger weights make predictions depend on the context.
    for (_, var) in params.vars() {
        var.set(&(var.as_tensor() * 3.0).unwrap()).unwrap();
    }
    LanguageModel::new(&config, io, &params.detached()).unwrap()
}

#[test]
fn windows_and_what_they_leave_are_every_token_once() {
    let (model, length) = (model(), 6);
    for tokens in [7, 8, 12, 13, 20, 31] {
        let ids: Vec<u16> = (0..tokens).map(|i| (i * i + 3) % 30).collect();
        let text = TokenizedText::new(Ids::Held(ids.into()), TextSize::default(), length, None);
        for stride in [None, Some(1), Some(2), Some(4), Some(5)] {
            let how = Scoring { seq_len: length, stride, batch: 2, every_token: false };
            let of = |how: &Scoring| score(&model, &text, how, &Device::Cpu).unwrap();
            let mut heard = (0, 0);
            let found = Scores::of(&model, &text, &how, &Device::Cpu, &mut |done, of| {
                heard = (done, of);
                Ok(())
            });
            let found = found.unwrap();
            assert_eq!(heard.0, heard.1);
            let every = Scoring { every_token: true, ..how };
            for (found, wanted) in [(found.windows, of(&how)), (found.whole, of(&every))] {
                assert_eq!(found.tokens, wanted.tokens, "{tokens} tokens, {stride:?}");
                let apart = (found.nll - wanted.nll).abs();
                assert!(apart < 1e-4, "{tokens} tokens, {stride:?}: {apart}");
            }
            assert_eq!(found.whole.tokens, usize::from(tokens) - 1);
        }
    }
}

#[test]
fn who_watches_may_give_up() {
    let ids: Vec<u16> = (0..30).collect();
    let text = TokenizedText::new(Ids::Held(ids.into()), TextSize::default(), 6, None);
    let how = Scoring { seq_len: 6, stride: None, batch: 1, every_token: false };
    let mut windows = 0;
    let found = Scores::of(&model(), &text, &how, &Device::Cpu, &mut |done, _| {
        windows = done;
        Err(Error::Stopped)
    });
    assert!(matches!(found.err(), Some(Error::Stopped)));
    assert_eq!(windows, 1);
}

#[test]
fn large_perplexities_are_written_short() {
    assert_eq!(perplexity(20.0345), "20.03");
    assert_eq!(perplexity(66_735_087_688.0), "6.67e10");
}
