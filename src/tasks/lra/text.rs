//! Film reviews (Maas et al. 2011), character by character: the Parquet files or the folders.

mod folders;
mod order;

use super::part::Part;
use super::vocab::{Vocabulary, END};
use super::{place, Documents, LraConfig, LraDataset, Splits};
use crate::error::{Error, Position, Result};
use crate::tasks::parquet;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const FILES: [&str; 2] = [
    "train-00000-of-00001.parquet",
    "test-00000-of-00001.parquet",
];

/// Characters that occur less often in the training examples are unknown.
const LEAST: u64 = 15;

/// A text and whether it is good.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Review {
    text: String,
    label: u8,
}

/// The splits in the folder at or below `dir`. The data has no validation split: what chooses the
/// epoch is held out of the training reviews.
pub(super) fn load(config: &LraConfig, dir: &Path) -> Result<Splits> {
    let [train, test] = find(dir)?;
    let (held, val, used) = (read(&train)?, config.val_examples, config.train_examples);
    if val > 0 && val + used > held.len() && used <= held.len() {
        return Err(Error::usage(format!(
            "{} holds {} training examples, not {used} and {val} held out of them: give \
             --train-examples {} or --val-examples {}",
            train.display(),
            held.len(),
            held.len().saturating_sub(val).max(1),
            held.len() - used,
        )));
    }
    Part::Train.enough(&train, held.len(), used)?;
    // From both ends of one order: what is trained on does not depend on how much is held out.
    let order = order::stratified(&held, 0);
    let used = pick(&held, &order[order.len() - used..]);
    let held_out = pick(&held, &order[..val]);
    let tests = read(&test)?;
    Part::Test.enough(&test, tests.len(), config.test_examples)?;
    let tests = pick(
        &tests,
        &order::stratified(&tests, 1)[..config.test_examples],
    );
    let vocabulary = vocabulary(&used, config)?;
    let encode = |reviews: &[&Review]| encode(reviews, &vocabulary, config);
    Ok(Splits {
        train: encode(&used),
        val: encode(&held_out),
        test: encode(&tests),
        warnings: Vec::new(),
    })
}

/// The reviews for training and for testing at or below `dir`, a file or a folder each.
pub(super) fn find(dir: &Path) -> Result<[PathBuf; 2]> {
    let folders = ["train/neg", "train/pos", "test/neg", "test/pos"];
    if let Some(dir) = place::look(dir, LraDataset::Text, &FILES) {
        return Ok(FILES.map(|name| dir.join(name)));
    }
    if let Some(dir) = place::look(dir, LraDataset::Text, &folders) {
        return Ok(["train", "test"].map(|name| dir.join(name)));
    }
    Err(Error::Missing(format!(
        "{}; the folder form, aclImdb/{{train,test}}/{{neg,pos}}/*.txt, serves as well",
        place::missing(dir, LraDataset::Text, &FILES)
    )))
}

fn read(path: &Path) -> Result<Vec<Review>> {
    if path.is_dir() {
        return folders::read(path);
    }
    let rows = parquet::rows(path, "text", usize::MAX)?.into_iter();
    let review = |(i, (text, label)): (usize, (Vec<u8>, i64))| {
        let fault = |what: String| Error::data_at(path, Position::Row(i as u64), what);
        let label = u8::try_from(label).ok().filter(|label| *label < 2);
        let label = label.ok_or_else(|| fault("the label must be 0 or 1".to_owned()))?;
        let text = String::from_utf8(text).map_err(|e| fault(format!("not UTF-8: {e}")))?;
        Ok(Review { text, label })
    };
    rows.enumerate().map(review).collect()
}

/// The reviews at `indices`, in the order of the file.
fn pick<'a>(reviews: &'a [Review], indices: &[usize]) -> Vec<&'a Review> {
    let mut indices = indices.to_vec();
    indices.sort_unstable();
    indices.into_iter().map(|i| &reviews[i]).collect()
}

/// The characters of a review that are used: the last position is the end's.
fn characters<'a>(review: &'a Review, config: &LraConfig) -> impl Iterator<Item = char> + 'a {
    review.text.chars().take(config.seq_len - 1)
}

fn vocabulary(reviews: &[&Review], config: &LraConfig) -> Result<Vocabulary<char>> {
    let mut counts = HashMap::new();
    for review in reviews {
        for character in characters(review, config) {
            *counts.entry(character).or_insert(0) += 1;
        }
    }
    Vocabulary::new(counts, LEAST, config)
}

fn encode(reviews: &[&Review], vocabulary: &Vocabulary<char>, config: &LraConfig) -> Documents {
    let mut examples = Documents::new(1);
    for review in reviews {
        let ids = characters(review, config).map(|c| vocabulary.id(c));
        let document: Vec<u8> = ids.chain([END]).collect();
        examples.push(&[&document], review.label);
    }
    examples
}

#[cfg(test)]
mod tests;
