//! Needle in a haystack: a random key is hidden in a text of the corpus and asked for at its end (the pass key of
//! Mohtashami & Jaggi 2023).

use super::Vocabulary;
use crate::error::{ensure, refuse, Result};
use crate::ops::rng::Rng;
use crate::tasks::IdSlice;
use std::ops::Range;

/// Place of the key in the texts of [`NeedleForm`].
pub const KEY: &str = "{key}";
/// Digits of a key.
const DIGITS: usize = 5;

/// Texts around a key.
#[derive(Clone, Debug)]
pub struct NeedleForm {
    /// Sentence that is hidden, with [`KEY`] in place of the key.
    pub needle: String,
    /// Question at the end, which the key answers.
    pub question: String,
}

/// One key in a context.
#[derive(Clone, Debug, PartialEq)]
pub struct HiddenKey {
    /// The haystack, with the needle in it unless it was left out, and the question.
    pub context: Vec<u32>,
    /// The tokens of the answer, a space and the key.
    pub key: Vec<u32>,
}

impl NeedleForm {
    /// Checks that the needle holds the key.
    pub fn check(&self) -> Result<()> {
        ensure!(
            self.needle.contains(KEY),
            flag "--needle" = self.needle, "does not contain {KEY}, the place of the key");
        if self.question.contains(KEY) {
            refuse!(flag "--question" = self.question, "contains {KEY}: the key is what the question asks for");
        }
        ensure!(!self.question.is_empty(), flag "--question", "empty: give the words that the key follows");
        Ok(())
    }

    /// Tokens of needle and question.
    pub fn tokens(&self, vocabulary: &Vocabulary) -> Result<usize> {
        let digits = "0".repeat(DIGITS);
        Ok(vocabulary.encode(&self.needle.replace(KEY, &digits))?.len() + vocabulary.encode(&self.question)?.len())
    }

    /// Context of `len` tokens in which a key lies after the share `depth`, from 0 to 1, of the haystack; without a depth
    /// the needle is left out, and further tokens of the haystack take its place. `trial` chooses the key and the part of
    /// `text` that hides it. Fails if the text or the context is too short.
    pub fn hide(
        &self,
        vocabulary: &Vocabulary,
        text: IdSlice,
        (len, depth): (usize, Option<f64>),
        (seed, trial): (u64, usize),
    ) -> Result<HiddenKey> {
        let mut rng = Rng::new(seed, "needle", trial as u64);
        let digits: String = (0..DIGITS).map(|_| char::from(b'0' + rng.below(10) as u8)).collect();
        let needle = vocabulary.encode(&self.needle.replace(KEY, &digits))?;
        let question = vocabulary.encode(&self.question)?;
        let key = vocabulary.encode(&format!(" {digits}"))?;
        let Some(hay) = len.checked_sub(needle.len() + question.len()).filter(|hay| *hay > 0) else {
            refuse!(
                flag "--lengths" = len,
                "is too short: needle and question alone take {} tokens", needle.len() + question.len()
            );
        };
        let longest = hay + needle.len();
        ensure!(
            text.len() >= longest,
            flag "--lengths" = len, "is too long: the text has {} tokens only", text.len());
        let start = rng.below((text.len() - longest + 1).min(u32::MAX as usize) as u32) as usize;
        let part = |range: Range<usize>| text.slice(range).iter().collect::<Vec<u32>>();
        let context = match depth {
            Some(depth) => {
                let cut = start + (depth * hay as f64).round() as usize;
                [part(start..cut), needle, part(cut..start + hay), question].concat()
            }
            None => [part(start..start + longest), question].concat(),
        };
        Ok(HiddenKey { context, key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::wikitext::Tokenizer;

    fn form() -> NeedleForm {
        NeedleForm { needle: " The key is {key}.".into(), question: " The key is".into() }
    }

    #[test]
    fn a_key_lies_at_its_depth_and_is_asked_for_at_the_end() {
        let bytes = Vocabulary::open(&Tokenizer::Bytes, None).unwrap();
        let text: Vec<u16> = (0..500).map(|i| 97 + i % 26).collect();
        for (depth, hay_before) in [(0.0, 0), (0.5, 36), (1.0, 71)] {
            let [hidden, without] = [Some(depth), None]
                .map(|depth| form().hide(&bytes, IdSlice::Two(&text), (100, depth), (1, 3)).unwrap());
            assert_eq!((hidden.context.len(), without.context.len()), (100, 100));
            assert_eq!(hidden.key, without.key);
            let said = bytes.decode(&hidden.context);
            let key = bytes.decode(&hidden.key);
            assert!(key.starts_with(' ') && key.len() == 6, "{key}");
            let needle = format!(" The key is{key}.");
            assert_eq!(said.find(&needle), Some(hay_before), "{said}");
            assert!(said.ends_with(" The key is"));
            let without = bytes.decode(&without.context);
            assert!(!without.contains(&key) && without.ends_with(" The key is"));
            let hay = said.replacen(&needle, "", 1);
            assert_eq!(without[..hay_before], hay[..hay_before], "the same part of the text");
        }
        let keys: Vec<_> = (0..20)
            .map(|trial| form().hide(&bytes, IdSlice::Two(&text), (100, Some(0.5)), (1, trial)).unwrap().key)
            .collect();
        assert!(keys.iter().any(|key| *key != keys[0]));
        let again = form().hide(&bytes, IdSlice::Two(&text), (100, Some(0.5)), (1, 7)).unwrap();
        assert_eq!(again.key, keys[7]);
        assert_eq!(form().tokens(&bytes).unwrap(), 29);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let bytes = Vocabulary::open(&Tokenizer::Bytes, None).unwrap();
        let text = [97; 50];
        for (len, part) in [(20, "is too short"), (100, "is too long")] {
            let error = form().hide(&bytes, IdSlice::Two(&text), (len, Some(0.5)), (1, 0)).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        let without = NeedleForm { needle: "no place".into(), ..form() };
        assert!(without.check().unwrap_err().to_string().contains("{key}"));
        let told = NeedleForm { question: "is it {key}".into(), ..form() };
        assert!(told.check().is_err());
    }
}
