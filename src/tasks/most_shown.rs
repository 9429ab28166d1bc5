//! Accuracy of the predictor that answers with the token shown most often: what a model reaches that counts tokens, but
//! compares no keys and knows no order. It is measured on drawn examples.

use super::splits::{Dataset, SequenceForm, NO_ANSWER};
use crate::ops::rng::Rng;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Work of a measurement, in tokens that are counted or compared.
const WORK: usize = 1 << 25;

/// Least and most examples of a measurement.
const EXAMPLES: [usize; 2] = [500, 20_000];

/// Accuracies by task and settings, cached for the process.
static KNOWN: Mutex<BTreeMap<String, f64>> = Mutex::new(BTreeMap::new());

/// Examples whose answers are predicted.
pub(super) struct Questions<'a, D> {
    /// Task and settings, all on which the accuracy depends.
    pub of: String,
    pub form: &'a SequenceForm,
    /// Vocabulary size V.
    pub vocab_size: usize,
    /// Fills tokens and answers of a test example.
    pub draw: D,
}

/// Share of the questions whose answer has the most votes, counted up to the question; an answer that shares the most
/// votes with others counts in part. `vote` returns the vote of a token at a position for itself: 1 if it is shown as a
/// possible answer, -1 if it is one answer less to come.
pub(super) fn accuracy<D>(questions: &Questions<D>, vote: impl Fn(usize, u32) -> i32) -> f64
where
    D: Fn(&mut Rng, &mut [u32], &mut [u32]) + Sync,
{
    let mut known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
    if let Some(accuracy) = known.get(&questions.of) {
        return *accuracy;
    }
    let Questions { form, vocab_size, .. } = *questions;
    let [least, most] = EXAMPLES;
    let examples = (WORK / (form.seq_len + form.labelled.len() * vocab_size)).clamp(least, most);
    let rng = Rng::new(0, "most shown", 0);
    let drawn = Dataset::drawn(&rng, 0..examples, form, &questions.draw);
    let (mut right, mut asked) = (0.0, 0);
    for example in (0..examples).map(|i| drawn.batch(i..i + 1)) {
        let mut votes = vec![0; vocab_size];
        let mut read = 0;
        for (position, answer) in example.positions.iter().zip(example.answers) {
            for at in read..=*position as usize {
                let token = example.tokens[at];
                votes[token as usize] += vote(at, token);
            }
            read = *position as usize + 1;
            if *answer == NO_ANSWER {
                continue;
            }
            asked += 1;
            let top = votes.iter().copied().max().unwrap_or(0);
            if votes[*answer as usize] == top {
                right += 1.0 / votes.iter().filter(|count| **count == top).count() as f64;
            }
        }
    }
    let accuracy = right / f64::from(asked.max(1));
    known.insert(questions.of.clone(), accuracy);
    accuracy
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two letters of two, of which the answer is the first: with counts alone it is known if both are the same.
    #[test]
    fn equal_votes_share_an_answer() {
        let form = SequenceForm::last(2, 1);
        let draw = |rng: &mut Rng, tokens: &mut [u32], answers: &mut [u32]| {
            tokens.fill_with(|| rng.below(2));
            answers[0] = tokens[0];
        };
        let questions = |of: &str| Questions { of: of.to_owned(), form: &form, vocab_size: 2, draw };
        let found = accuracy(&questions("test/shown"), |_, _| 1);
        assert!((found - 0.75).abs() < 0.01, "{found}");
        // A token that is no longer to come leaves the other.
        let found = accuracy(&questions("test/used"), |at, _| if at == 0 { 2 } else { -1 });
        assert!((found - 1.0).abs() < 1e-12, "{found}");
    }

    #[test]
    fn a_position_without_an_answer_is_not_asked() {
        let form = SequenceForm::last(3, 2);
        let draw = |_: &mut Rng, tokens: &mut [u32], answers: &mut [u32]| {
            tokens.copy_from_slice(&[1, 1, 0]);
            answers.copy_from_slice(&[NO_ANSWER, 1]);
        };
        let questions = Questions { of: "test/no answer".to_owned(), form: &form, vocab_size: 3, draw };
        assert_eq!(accuracy(&questions, |_, _| 1), 1.0);
    }
}
