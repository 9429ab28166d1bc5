//! Copying and looking up (Jelassi et al. 2024, "Repeat After Me: Transformers are Better than State Space Models at
//! Copying"), in four forms. With `_` for blanks, `|` for a marker, k = 3 tokens to copy and a key of n = 2:
//!
//! ```text
//! delayed         a b c _ _ | | |        the copying task of Arjovsky et al. 2016: far back, and answered at once
//! label           - - - - - a b c
//!
//! string          a b c _ _ | a b        the copy is read while it is written
//! label           - - - - - a b c
//!
//! suffix-lookup   d a b c d e f a b c d  the tokens after a key of the string, which is asked for at the end
//! label           - - - - - - - - c d e
//!
//! prefix-lookup   a b d a b c d e f | c d the key is known before the string is read
//! label           - - - - - - - - - c d e
//! ```
//!
//! Tokens are 0 .. V - 3, V - 2 is the blank and V - 1 the marker. Without `--copy-tokens`, strings fill half of the
//! sequence, so that those of a longer test are longer; look-ups ask for one token. The key of a look-up occurs once in
//! the string.

use super::limits::{Length, Rule};
use super::synthetic::{CopyForm, Synthetic, SyntheticSettings, WithoutSkill};
use super::{TaskEntry, NO_COPYING};
use crate::ops::rng::Rng;

pub(super) const ENTRY: TaskEntry = COPYING.entry(
    "copying: a string of tokens, or those after a key",
    &[
        "dsf copying --mixer softmax",
        "dsf copying --form delayed --copy-tokens 8 --seq-len 128 --mixer lru",
        "dsf copying --form suffix-lookup --mixer mamba --test-seq-len 128",
    ],
    include_str!("../recipes/copying.toml"),
    |config| Synthetic::read(&COPYING, config),
);

const COPYING: Synthetic = Synthetic {
    name: "copying",
    title: "copying",
    fields: &[
        "data_seed",
        "form",
        "vocab_size",
        "seq_len",
        "test_seq_len",
        "copy_tokens",
        "key_tokens",
        "train_examples",
        "fresh_examples",
        "val_examples",
        "test_examples",
    ],
    optional: &["copy_tokens", "key_tokens"],
    rules,
    answers,
    without_skill: WithoutSkill::MostShown {
        token: "the most frequent token left in the string",
        label: NO_COPYING,
        vote,
    },
    details,
    draw,
    ..Synthetic::ONE_ANSWER
};

/// Number of tokens that are in no string: blank and marker.
const SPECIAL: usize = 2;

/// Default number of tokens of a key.
const KEY: usize = 3;

/// A random string has this many possible keys at least for each of its positions, so that most keys occur once.
const KEYS_PER_POSITION: usize = 4;

fn form(settings: &SyntheticSettings) -> CopyForm {
    settings.form.unwrap_or(CopyForm::String)
}

/// Number of tokens of a key; 0 in the forms without one.
fn key(settings: &SyntheticSettings) -> usize {
    match form(settings) {
        CopyForm::Delayed | CopyForm::String => 0,
        CopyForm::SuffixLookup | CopyForm::PrefixLookup => settings.key_tokens.unwrap_or(KEY),
    }
}

/// Number of answers in a sequence of a length.
fn answers(settings: &SyntheticSettings, seq_len: usize) -> usize {
    settings.copy_tokens.unwrap_or(match form(settings) {
        CopyForm::Delayed | CopyForm::String => seq_len / 2,
        CopyForm::SuffixLookup | CopyForm::PrefixLookup => 1,
    })
}

/// Number of tokens of the string in a sequence of a length: the whole of it but key, marker and answers that are read.
fn string(settings: &SyntheticSettings, seq_len: usize) -> usize {
    let (k, n) = (answers(settings, seq_len), key(settings));
    match form(settings) {
        CopyForm::Delayed | CopyForm::String => k,
        CopyForm::SuffixLookup => seq_len.saturating_sub(n + k - 1),
        CopyForm::PrefixLookup => seq_len.saturating_sub(n + k),
    }
}

/// A token of the string is an answer to come, and one that is read after the marker of a copy is one no longer.
fn vote(settings: &SyntheticSettings, _token: u32, at: usize, seq_len: usize) -> i32 {
    let first = if form(settings) == CopyForm::PrefixLookup { key(settings) } else { 0 };
    let read = seq_len + 1 - answers(settings, seq_len);
    match form(settings) {
        _ if (first..first + string(settings, seq_len)).contains(&at) => 1,
        CopyForm::String if at >= read => -1,
        _ => 0,
    }
}

fn details(settings: &SyntheticSettings) -> [String; 2] {
    let name = match form(settings) {
        CopyForm::Delayed => "delayed",
        CopyForm::String => "string",
        CopyForm::SuffixLookup => "suffix-lookup",
        CopyForm::PrefixLookup => "prefix-lookup",
    };
    let copied = settings.copy_tokens.map(|k| (format!(" of {k} tokens"), format!("/{k}")));
    let (said, listed) = copied.unwrap_or_default();
    let n = settings.key_tokens.filter(|n| *n == key(settings)).map_or(String::new(), |n| format!(", keys of {n}"));
    [format!(", {name}{said}{n}"), format!("/{name}{listed}")]
}

fn rules(settings: &SyntheticSettings, length: Length) -> Vec<Rule> {
    let (v, seq_len) = (settings.v(), length.tokens);
    let vocabulary = ("--vocab-size", v);
    let (k, n) = (answers(settings, seq_len), key(settings));
    let copied = |holds, why: String| match settings.copy_tokens {
        Some(k) => Rule::new(holds, ("--copy-tokens", k), why),
        None => Rule::new(holds, length.typed(), why),
    };
    let tokens = v.saturating_sub(SPECIAL);
    let mut rules = vec![
        Rule::new(tokens >= 2, vocabulary, "leaves fewer than two tokens besides blank and marker. Give at least 4"),
        copied(k > 0, "leaves nothing to copy. Give a length of at least 2, and at least one token".to_owned()),
    ];
    if n == 0 {
        let why = format!("with {length} there is no room for a string and its copy: give at most {}", seq_len / 2);
        rules.push(copied(k <= seq_len / 2, why));
        return rules;
    }
    // The string holds the key and the answers after it.
    let needed = (n + k) + (n + k);
    let why = format!(
        "with {length} there is no room for a string of a key and the answers: give a length of at least {needed}"
    );
    rules.push(copied(k < seq_len && needed <= seq_len, why));
    if settings.key_tokens.is_some() {
        let why = format!("with {length} there is no room for a string of a key and the answers: give fewer");
        rules.push(Rule::new(needed <= seq_len, ("--key-tokens", n), why));
    }
    let keys = tokens.checked_pow(n as u32).unwrap_or(usize::MAX);
    rules.push(Rule::new(
        keys / KEYS_PER_POSITION >= seq_len,
        vocabulary,
        format!(
            "gives {keys} keys of length {n}, too few for most keys in a string of {length} to occur only once: give more, \
             or a larger --key-tokens"
        ),
    ));
    rules
}

/// Fills the tokens and the answers of one example.
fn draw(rng: &mut Rng, settings: &SyntheticSettings, tokens: &mut [u32], answers: &mut [u32]) {
    let v = settings.v() as u32;
    let (blank, marker) = (v - 2, v - 1);
    let (n, k) = (key(settings), answers.len());
    let length = string(settings, tokens.len());
    let read = tokens.len() - (k - 1);
    match form(settings) {
        CopyForm::Delayed | CopyForm::String => {
            answers.fill_with(|| rng.below(marker - 1));
            tokens.fill(blank);
            tokens[..k].copy_from_slice(answers);
            if form(settings) == CopyForm::Delayed {
                let first = tokens.len() - k;
                tokens[first..].fill(marker);
                return;
            }
            tokens[read - 1] = marker;
        }
        CopyForm::SuffixLookup | CopyForm::PrefixLookup => {
            let first = if form(settings) == CopyForm::PrefixLookup { n } else { 0 };
            let place = unique_key(rng, &mut tokens[first..first + length], marker - 1, [n, k]);
            let found = tokens[first + place..first + place + n + k].to_vec();
            let asked = if first > 0 { 0 } else { length };
            tokens[asked..asked + n].copy_from_slice(&found[..n]);
            if first > 0 {
                tokens[read - 1] = marker;
            }
            answers.copy_from_slice(&found[n..]);
        }
    }
    tokens[read..].copy_from_slice(&answers[..k - 1]);
}

/// Fills `string` with tokens below `bound` and returns the place of a key of n tokens that occurs in it once and has k
/// tokens after it.
fn unique_key(rng: &mut Rng, string: &mut [u32], bound: u32, [n, k]: [usize; 2]) -> usize {
    loop {
        string.fill_with(|| rng.below(bound));
        let places = (string.len() - n - k + 1) as u32;
        let place = rng.below(places) as usize;
        let key = &string[place..place + n];
        if string.windows(n).filter(|window| *window == key).count() == 1 {
            return place;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::testing::{assert_seeded, assert_uniform, paper, per_token, refuses};
    use proptest::prelude::*;

    fn copying(form: CopyForm, vocab_size: usize, seq_len: usize) -> SyntheticSettings {
        SyntheticSettings { form: Some(form), ..paper(vocab_size, seq_len) }
    }

    proptest! {
        #[test]
        fn the_answers_of_a_copy_are_the_first_tokens(
            v in 4..30_u32, k in 1..12_usize, gap in 0..20_usize, data_seed in 0..1_u64 << 40, delayed: bool,
        ) {
            let form = if delayed { CopyForm::Delayed } else { CopyForm::String };
            let settings = SyntheticSettings {
                data_seed, train_examples: 5, test_examples: 3, copy_tokens: Some(k),
                ..copying(form, v as usize, 2 * k + gap)
            };
            let (train, test) = per_token(&*COPYING.of(&settings));
            for (i, data) in (0..5).map(|i| (i, &train)).chain((0..3).map(|i| (i, &test))) {
                let example = data.batch(i..i + 1);
                let (string, rest) = example.tokens.split_at(k);
                prop_assert_eq!(example.answers, string);
                prop_assert!(string.iter().all(|token| *token < v - 2));
                let (blanks, asked) = rest.split_at(gap);
                prop_assert!(blanks.iter().all(|token| *token == v - 2));
                prop_assert_eq!(asked[0], v - 1);
                let read = if delayed { vec![v - 1; k - 1] } else { string[..k - 1].to_vec() };
                prop_assert_eq!(&asked[1..], &read[..]);
                prop_assert_eq!(example.positions[0] as usize, k + gap);
            }
        }

        #[test]
        fn the_answers_of_a_look_up_follow_the_one_place_of_the_key(
            n in 2..5_usize, k in 1..4_usize, spare in 0..40_usize, data_seed in 0..1_u64 << 40, prefix: bool,
        ) {
            let form = if prefix { CopyForm::PrefixLookup } else { CopyForm::SuffixLookup };
            let seq_len = 2 * (n + k) + spare;
            let settings = SyntheticSettings {
                data_seed, train_examples: 5, test_examples: 3, copy_tokens: Some(k), key_tokens: Some(n),
                ..copying(form, 26, seq_len)
            };
            let (train, test) = per_token(&*COPYING.of(&settings));
            for (i, data) in (0..5).map(|i| (i, &train)).chain((0..3).map(|i| (i, &test))) {
                let tokens = data.batch(i..i + 1).tokens;
                let answers = data.batch(i..i + 1).answers;
                let (body, read) = tokens.split_at(seq_len - (k - 1));
                prop_assert_eq!(read, &answers[..k - 1]);
                let (key, string) = match prefix {
                    true => (&body[..n], &body[n..body.len() - 1]),
                    false => (&body[body.len() - n..], &body[..body.len() - n]),
                };
                prop_assert!(!prefix || body.last() == Some(&25));
                let places: Vec<usize> = (0..=string.len() - n).filter(|p| &string[*p..*p + n] == key).collect();
                prop_assert_eq!(places.len(), 1);
                prop_assert_eq!(&string[places[0] + n..places[0] + n + k], answers);
                prop_assert!(string.iter().all(|token| *token < 24));
            }
        }
    }

    /// Without a number of tokens, a longer test copies longer strings.
    #[test]
    fn strings_fill_half_of_the_sequence() {
        let settings = SyntheticSettings { test_seq_len: Some(24), ..copying(CopyForm::String, 16, 10) };
        let task = COPYING.of(&settings);
        let (train, test) = per_token(&*task);
        assert_eq!((train.labels_per_example(), test.labels_per_example()), (5, 12));
        let sizes = task.sizes();
        assert_eq!((sizes.labels_per_example, sizes.labels_per_tested_example), (5, 12));
        assert_eq!(task.title(), "copying (L = 10, tested at 24, string)");
        assert_eq!(task.label(), "L=10->24/string");
    }

    #[test]
    fn an_example_is_a_function_of_seed_split_and_index() {
        assert_seeded(&COPYING, &copying(CopyForm::String, 16, 20));
        assert_seeded(&COPYING, &copying(CopyForm::SuffixLookup, 16, 40));
    }

    #[test]
    fn every_place_of_a_string_holds_the_key() {
        let (train, _) = per_token(&*COPYING.of(&copying(CopyForm::SuffixLookup, 16, 20)));
        let places = (0..train.len()).map(|i| {
            let (string, key) = train.batch(i..i + 1).tokens.split_at(17);
            string.windows(3).position(|window| window == key).unwrap()
        });
        assert_uniform(places, 0..14);
    }

    #[test]
    fn every_token_of_a_string_is_as_likely_as_any_other() {
        for form in [CopyForm::String, CopyForm::Delayed] {
            let (train, _) = per_token(&*COPYING.of(&copying(form, 16, 20)));
            let strings = (0..train.len()).flat_map(|i| train.batch(i..i + 1).answers.to_vec());
            assert_uniform(strings, 0..14);
        }
    }

    #[test]
    fn sizes_without_data_are_refused_by_their_flag() {
        let of = |change: fn(&mut SyntheticSettings)| {
            let mut settings = copying(CopyForm::String, 16, 20);
            change(&mut settings);
            COPYING.of(&settings)
        };
        refuses(&*of(|s| s.copy_tokens = Some(0)), "--copy-tokens").gives("0");
        refuses(&*of(|s| s.copy_tokens = Some(11)), "--copy-tokens").names(&["--seq-len 20", "10"]);
        refuses(&*of(|s| s.vocab_size = Some(3)), "--vocab-size").gives("3");
        refuses(&*of(|s| s.seq_len = 1), "--seq-len").gives("1");
        refuses(&*of(|s| (s.form, s.seq_len) = (Some(CopyForm::SuffixLookup), 7)), "--seq-len").names(&["8"]);
        let keys = |s: &mut SyntheticSettings| {
            (s.form, s.key_tokens) = (Some(CopyForm::PrefixLookup), Some(1));
        };
        refuses(&*of(keys), "--vocab-size").names(&["--key-tokens"]);
    }
}
