//! Text that goes on from a prompt: the recurrent form writes what the parallel one would.

use crate::world::{parameters, perturb, pythia};
use candle_core::{Device, Tensor};
use dsf::config::Rotary;
use dsf::mixers;
use dsf::model::generate::{Continuation, Memory, Sampling, SamplingRule};
use dsf::model::{Io, LanguageModel};

const VOCAB: usize = 40;
const WINDOW: usize = 16;

/// A small Pythia around `mixer`.
fn model(mixer: &str) -> LanguageModel {
    let entry = mixers::find(mixer).unwrap();
    let rotary = if entry.rotary { Rotary::Pre } else { Rotary::None };
    let config = pythia(entry, entry.variants[0], rotary);
    let io = Io { vocab_size: VOCAB, seq_len: WINDOW };
    let params = parameters();
    LanguageModel::new(&config, io, &params).unwrap();
    perturb(&params);
    LanguageModel::new(&config, io, &params.detached()).unwrap()
}

fn begin<'a>(model: &'a LanguageModel, prompt: &[u32], choice: SamplingRule, tokens: usize) -> Continuation<'a> {
    Continuation::begin(model, prompt, choice, (tokens, WINDOW), &Device::Cpu).unwrap()
}

fn write(text: &mut Continuation, tokens: usize) -> Vec<u32> {
    (0..tokens).map(|_| text.next_token().unwrap()).collect()
}

/// The likeliest token after `ids`, by the form that reads all of them at once.
fn likeliest(model: &LanguageModel, ids: &[u32]) -> u32 {
    let tokens = Tensor::new(ids, &Device::Cpu).unwrap().unsqueeze(0).unwrap();
    let logits = model.last_logits(&tokens).unwrap().squeeze(0).unwrap();
    logits.argmax(0).unwrap().to_scalar::<u32>().unwrap()
}

#[test]
fn the_likeliest_text_is_that_of_the_parallel_form_token_by_token() {
    for mixer in ["softmax", "linear", "normalized", "s6", "ssd", "qlstm"] {
        let model = model(mixer);
        let prompt = [3, 1, 4, 1, 5];
        let mut text = begin(&model, &prompt, SamplingRule::Greedy, VOCAB);
        let mut wanted = prompt.to_vec();
        for token in write(&mut text, 30) {
            wanted.push(likeliest(&model, &wanted));
            assert_eq!(Some(&token), wanted.last(), "{mixer} after {wanted:?}");
        }
        assert_eq!(text.ids(), wanted);
    }
}

#[test]
fn a_state_stays_as_large_as_it_is_and_a_cache_grows_with_the_text() {
    let held = |text: &Continuation| match text.memory() {
        Memory::Held { bytes, read } => (bytes, read),
        Memory::Reread(_) => panic!("these mixers have recurrent forms"),
    };
    for (mixer, grows) in [("softmax", true), ("normalized", false), ("s6", false)] {
        let model = model(mixer);
        let mut text = begin(&model, &[1, 2], SamplingRule::Greedy, VOCAB);
        let (first, read) = held(&text);
        assert_eq!(read, 2);
        write(&mut text, 300);
        let (last, read) = held(&text);
        // Nobody asked yet what follows the last token.
        assert_eq!(read, 301);
        assert_eq!(last > first, grows, "{mixer}: {first} bytes, then {last}");
    }
}

#[test]
fn what_is_drawn_depends_on_the_seed_alone_and_is_always_a_token() {
    let model = model("linear");
    let drawn = |seed: u64, tokens: usize| {
        let choice = SamplingRule::Sampled(Sampling { temperature: 3.0, top_k: None, top_p: None, seed });
        write(&mut begin(&model, &[7], choice, tokens), 60)
    };
    assert_eq!(drawn(1, VOCAB), drawn(1, VOCAB));
    assert_ne!(drawn(1, VOCAB), drawn(2, VOCAB));
    assert!(drawn(1, VOCAB).iter().any(|id| *id >= 10), "any token may come");
    assert!(drawn(1, 10).iter().all(|id| *id < 10), "rows after the tokens are no tokens");
}

#[test]
fn a_prompt_without_tokens_is_refused() {
    let model = model("linear");
    let begun = Continuation::begin(&model, &[], SamplingRule::Greedy, (VOCAB, WINDOW), &Device::Cpu);
    let message = begun.err().unwrap().to_string();
    assert!(message.contains("no tokens"), "{message}");
}
