//! Generators of the tasks of MAD.

use super::fuzzy;
use crate::ops::rng::Rng;
use crate::tasks::limits::{Length, Rule};
use crate::tasks::most_shown::{self, Questions};
use crate::tasks::selective_copying::scatter;
use crate::tasks::splits::{SequenceForm, NO_ANSWER};
use crate::tasks::{NoSkill, NO_COPYING, NO_RECALL};
use serde::{Deserialize, Serialize};

/// Skill that a task tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Skill {
    Recall,
    NoisyRecall,
    FuzzyRecall,
    Copying,
    Compression,
    Memorization,
}

/// Sizes of the examples of a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct SkillSizes {
    pub data_seed: u64,
    /// Vocabulary size V.
    pub vocab_size: usize,
    /// Length of a test example.
    pub tested: usize,
    /// Number of tokens to copy; 0 in other tasks.
    pub copied: usize,
    /// Probability of a pair of noise; 0 in other tasks.
    pub noise: f64,
}

/// Function that fills the tokens and the answers of one example; its last argument says whether it is for training.
pub(super) type Generate = Box<dyn Fn(&mut Rng, &mut [u32], &mut [u32], bool) + Sync>;

/// Number of tokens of noise, after keys and values.
const NOISE_TOKENS: usize = 16;

impl Skill {
    #[cfg(test)]
    pub const ALL: [Self; 6] =
        [Self::Recall, Self::NoisyRecall, Self::FuzzyRecall, Self::Copying, Self::Compression, Self::Memorization];

    /// Name as typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recall => "recall",
            Self::NoisyRecall => "noisy-recall",
            Self::FuzzyRecall => "fuzzy-recall",
            Self::Copying => "copying",
            Self::Compression => "compression",
            Self::Memorization => "memorization",
        }
    }

    /// Name for a sentence.
    pub fn title(self) -> &'static str {
        match self {
            Self::Recall => "in-context recall",
            Self::NoisyRecall => "noisy recall",
            Self::FuzzyRecall => "fuzzy recall",
            Self::Copying => "selective copying",
            Self::Compression => "compression",
            Self::Memorization => "memorization",
        }
    }

    /// Form of the sequences of an example of length `seq_len`.
    pub fn form(self, settings: &SkillSizes, seq_len: usize) -> SequenceForm {
        let copied = settings.copied.min(seq_len);
        match self {
            Self::Recall | Self::NoisyRecall => {
                let read = seq_len.saturating_sub(1);
                SequenceForm::last(read, read)
            }
            Self::FuzzyRecall | Self::Compression => SequenceForm::last(seq_len, seq_len),
            Self::Copying => SequenceForm::last(seq_len, copied),
            Self::Memorization => SequenceForm { seq_len, labelled: (1..seq_len as u32).step_by(2).collect() },
        }
    }

    /// Rules for examples of one length.
    pub fn rules(self, settings: &SkillSizes, length: Length) -> Vec<Rule> {
        let (v, seq_len) = (settings.vocab_size, length.tokens);
        let vocabulary = |holds, why: &str| Rule::new(holds, ("--vocab-size", v), why);
        let long = |holds, why: &str| Rule::new(holds, length.typed(), why);
        match self {
            Self::Recall | Self::NoisyRecall => {
                let noise = if self == Self::NoisyRecall { NOISE_TOKENS } else { 0 };
                let enough = format!(
                    "leaves fewer than two keys and two values{}. Give at least {}",
                    if noise > 0 { " beside 16 tokens of noise" } else { "" },
                    noise + 4
                );
                vec![
                    long(seq_len >= 4, "has no room for a pair and its repetition. Give at least 4"),
                    long(seq_len.is_multiple_of(2), "is odd, but examples consist of pairs. Give an even length"),
                    vocabulary(v >= noise + 4, &enough),
                    vocabulary(
                        v.is_multiple_of(2),
                        "is odd, but keys and values have equal parts of it. Give an even size",
                    ),
                ]
            }
            Self::FuzzyRecall => vec![
                vocabulary(
                    v >= fuzzy::LEAST_TOKENS,
                    "leaves fewer than the three tokens of a key or a value, beside padding. Give at least 7",
                ),
                long(
                    seq_len >= fuzzy::LEAST_LENGTH,
                    "has no room for a key and a value of three tokens, shown and asked for. Give at least 13",
                ),
            ],
            Self::Copying => {
                let copied = settings.copied;
                let needed = copied.saturating_mul(2).saturating_add(1);
                let room = format!("with {length} there is no room for the tokens, a marker and the copy: give a length of at least {needed}");
                let copied = |holds, why: &str| Rule::new(holds, ("--copy-tokens", copied), why);
                vec![
                    copied(settings.copied > 0, "leaves nothing to copy. Give at least 1"),
                    copied(needed <= seq_len, &room),
                    vocabulary(v >= 4, "leaves fewer than two tokens besides blank and marker. Give at least 4"),
                ]
            }
            Self::Compression => vec![
                long(seq_len >= 2, "leaves nothing to compress. Give at least 2"),
                vocabulary(v >= 3, "leaves fewer than two tokens besides that of compression. Give at least 3"),
            ],
            Self::Memorization => vec![
                long(seq_len >= 2, "has no room for a key and its question. Give at least 2"),
                long(seq_len.is_multiple_of(2), "is odd, but every key is followed by a question. Give an even length"),
                vocabulary(v >= 5, "leaves fewer than two keys and two values. Give at least 5"),
            ],
        }
    }

    /// Prediction without the skill, over all answers, for sizes that the rules allow.
    pub fn without_skill(self, settings: &SkillSizes) -> NoSkill {
        let v = settings.vocab_size;
        let of = |answers: usize, called: &str, label| NoSkill { label, ..NoSkill::guess(answers.max(1), called) };
        match self {
            Self::Recall | Self::NoisyRecall => self.most_shown(settings, "the value shown most often", NO_RECALL),
            Self::FuzzyRecall => self.most_shown(settings, "the token shown most often in values", NO_RECALL),
            Self::Copying => self.most_shown(settings, "the token shown most often", NO_COPYING),
            Self::Compression => {
                let (seq_len, guess) = (settings.tested as f64, 1.0 / v.saturating_sub(1).max(1) as f64);
                NoSkill {
                    accuracy: (1.0 + (seq_len - 1.0) * guess) / seq_len,
                    predictor: "the last token and a guess of the others".to_owned(),
                    label: "no compression",
                }
            }
            Self::Memorization => of(memorized(v).len() / 2, "values", "no memorization"),
        }
    }

    /// Prediction by the token that is shown most often of those that may be an answer.
    fn most_shown(self, settings: &SkillSizes, token: &str, label: &'static str) -> NoSkill {
        let draw = self.generator(settings);
        let questions = Questions {
            of: format!("{self:?} {:?}", SkillSizes { data_seed: 0, ..*settings }),
            form: &self.form(settings, settings.tested),
            vocab_size: settings.vocab_size,
            draw: |rng: &mut Rng, tokens: &mut [u32], answers: &mut [u32]| draw(rng, tokens, answers, false),
        };
        let v = settings.vocab_size as u32;
        let answers = match self {
            Self::NoisyRecall => (v - NOISE_TOKENS as u32) / 2..v - NOISE_TOKENS as u32,
            Self::FuzzyRecall => (v - 1) / 2..v - 1,
            Self::Copying => 0..v - 2,
            _ => v / 2..v,
        };
        let accuracy = most_shown::accuracy(&questions, |_, token| i32::from(answers.contains(&token)));
        NoSkill { accuracy, predictor: token.to_owned(), label }
    }

    /// Function that draws the examples of a task.
    pub fn generator(self, settings: &SkillSizes) -> Generate {
        let v = settings.vocab_size as u32;
        match self {
            Self::Recall => {
                Box::new(move |rng, tokens, answers, training| recall(rng, [v, 0], 0.0, tokens, answers, training))
            }
            Self::NoisyRecall => {
                let (noise, p) = (NOISE_TOKENS as u32, settings.noise);
                Box::new(move |rng, tokens, answers, training| {
                    recall(rng, [v - noise, noise], p, tokens, answers, training)
                })
            }
            Self::FuzzyRecall => {
                Box::new(move |rng, tokens, answers, training| fuzzy::draw(rng, v, tokens, answers, training))
            }
            Self::Copying => Box::new(move |rng, tokens, answers, _| copying(rng, v, tokens, answers)),
            Self::Compression => Box::new(move |rng, tokens, answers, _| compression(rng, v, tokens, answers)),
            Self::Memorization => {
                let map = memory(settings.data_seed, settings.vocab_size);
                Box::new(move |rng, tokens, answers, _| memorization(rng, &map, v - 1, tokens, answers))
            }
        }
    }
}

/// Pairs of a key of the lower and a value of the upper half of the first `ids` tokens, with pairs of the `noise` tokens
/// after them among them with probability p. The last pair repeats a key that was shown; its value is not read.
fn recall(rng: &mut Rng, [ids, noise]: [u32; 2], p: f64, tokens: &mut [u32], answers: &mut [u32], training: bool) {
    let (half, pairs) = (ids / 2, tokens.len().div_ceil(2));
    let mut values: Vec<Option<u32>> = vec![None; half as usize];
    let mut shown: Vec<u32> = Vec::new();
    let mut sequence: Vec<u32> = Vec::with_capacity(2 * pairs);
    let mut known = vec![NO_ANSWER; 2 * pairs];
    let clear = rng.below(pairs as u32 - 1) as usize;
    for pair in 0..pairs - 1 {
        if noise > 0 && pair != clear && rng.uniform() < p {
            sequence.extend([ids + rng.below(noise), ids + rng.below(noise)]);
            continue;
        }
        let key = rng.below(half);
        let value = match values[key as usize] {
            Some(value) => {
                known[2 * pair + 1] = value;
                value
            }
            None => {
                shown.push(key);
                half + rng.below(half)
            }
        };
        values[key as usize] = Some(value);
        sequence.extend([key, value]);
    }
    let key = shown[rng.below(shown.len() as u32) as usize];
    let value = values[key as usize].unwrap_or_default();
    sequence.extend([key, value]);
    known[2 * pairs - 1] = value;
    tokens.copy_from_slice(&sequence[..tokens.len()]);
    let labels = if training { &sequence } else { &known };
    answers.copy_from_slice(&labels[1..]);
}

/// Tokens to copy at random places among blanks, a marker, and as many blanks, at which they are the answers.
fn copying(rng: &mut Rng, v: u32, tokens: &mut [u32], answers: &mut [u32]) {
    let (blank, marker) = (v - 2, v - 1);
    answers.fill_with(|| rng.below(blank));
    tokens.fill(blank);
    let shown = tokens.len() - answers.len() - 1;
    tokens[shown] = marker;
    scatter(rng, answers, &mut tokens[..shown], blank);
}

/// Random tokens and that of compression, all of which are answers.
fn compression(rng: &mut Rng, v: u32, tokens: &mut [u32], answers: &mut [u32]) {
    tokens.fill_with(|| rng.below(v - 1));
    if let Some(last) = tokens.last_mut() {
        *last = v - 1;
    }
    answers.copy_from_slice(tokens);
}

/// Keys and values of memorization: all tokens but the last.
fn memorized(v: usize) -> std::ops::Range<usize> {
    0..v.saturating_sub(1)
}

/// Map of memorization: the value of each key of the lower half. Two keys have different values.
fn memory(seed: u64, v: usize) -> Vec<u32> {
    let ids = memorized(v).len() as u32;
    let mut values: Vec<u32> = (ids / 2..ids).collect();
    Rng::new(seed, "mad/memory", 0).shuffle(&mut values);
    values.truncate(ids as usize / 2);
    values
}

/// Keys, each followed by the token of a question, at which its value is the answer.
fn memorization(rng: &mut Rng, map: &[u32], question: u32, tokens: &mut [u32], answers: &mut [u32]) {
    for (pair, answer) in tokens.chunks_exact_mut(2).zip(answers) {
        let key = rng.below(map.len() as u32);
        pair.copy_from_slice(&[key, question]);
        *answer = map[key as usize];
    }
}
