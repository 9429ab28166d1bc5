//! Film reviews (Maas et al. 2011), character by character, from Parquet files or folders.

use super::files::{self, PARQUET};
use super::parts::{TEST, TRAIN};
use super::vocab::{CountedVocabulary, END};
use super::{Documents, LraConfig, LraDataset, LraSplits, Sources};
use crate::error::{Error, Position, Result};
use crate::files::{is_hidden, read_bytes};
use crate::ops::rng::Rng;
use crate::tasks::parquet;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Seed of the order in which reviews are selected if not all of them are used.
const SEED: u64 = 42;

/// Least count of a character in the training examples; rarer ones are mapped to unknown.
const LEAST: u64 = 15;

/// Folders of the two labels.
const LABELS: [(u8, &str); 2] = [(0, "neg"), (1, "pos")];

/// Text and whether it is positive.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Review {
    text: String,
    label: u8,
}

/// Reads the splits from the folder at or below `dir`. The data have no validation split; validation examples are held
/// out of the training reviews.
pub(super) fn load(config: &LraConfig, dir: &Path) -> Result<LraSplits> {
    let folder = files::find(LraDataset::Text, config.contour_length(), dir)?;
    let [train, test] = match files::has(&folder, &PARQUET) {
        true => PARQUET.map(|name| folder.join(name)),
        false => ["train", "test"].map(|name| folder.join(name)),
    };
    let (held, val, used) = (read(&train)?, config.val_examples, config.train_examples);
    if val > 0 && val + used > held.len() && used <= held.len() {
        let holds = held.len();
        let (fewer, rest) = (holds.saturating_sub(val).max(1), holds - used);
        let reason = format!(
            "this folder holds {holds} training examples, of which {val} are held out; give --train-examples {fewer} or --val-examples {rest}"
        );
        return Err(Error::flag_value("--train-examples", used, reason).in_file(&train, None));
    }
    TRAIN.check_count(&train, held.len(), used)?;
    // Training and validation take opposite ends of one order, so that the training reviews do not depend on the number
    // held out.
    let order = stratified(&held, 0);
    let used = pick(&held, &order[order.len() - used..]);
    let held_out = pick(&held, &order[..val]);
    let tests = read(&test)?;
    TEST.check_count(&test, tests.len(), config.test_examples)?;
    let tests = pick(&tests, &stratified(&tests, 1)[..config.test_examples]);
    let vocabulary = vocabulary(&used, config)?;
    let encode = |reviews: &[&Review]| encode(reviews, &vocabulary, config);
    Ok([used, held_out, tests].map(|some| encode(&some)).into())
}

/// Files of all reviews in `folder`: Parquet, or one file per review.
pub(super) fn sources(folder: &Path) -> Result<Sources> {
    if files::has(folder, &PARQUET) {
        return Ok(files::named(folder, &PARQUET));
    }
    let mut sources = Sources::default();
    for split in ["train", "test"] {
        for (label, name) in LABELS {
            for ((number, rating), path) in rated_files(&folder.join(split).join(name), label)? {
                sources.push(format!("{split}/{name}/{number}_{rating}"), path);
            }
        }
    }
    Ok(sources)
}

fn read(path: &Path) -> Result<Vec<Review>> {
    if path.is_dir() {
        return read_folders(path);
    }
    let rows = parquet::rows(path, "text")?.into_iter();
    let review = |(i, (text, label)): (usize, (Vec<u8>, i64))| {
        let fault = |what: String| Error::data_at(path, Position::Row(i as u64), what);
        let label = u8::try_from(label).ok().filter(|label| *label < 2);
        let label = label.ok_or_else(|| fault("the label must be 0 or 1".to_owned()))?;
        let text = String::from_utf8(text).map_err(|e| fault(format!("not UTF-8: {e}")))?;
        Ok(Review { text, label })
    };
    rows.enumerate().map(review).collect()
}

/// Reviews of `dir/neg`, then those of `dir/pos`, each in the order of their numbers.
fn read_folders(dir: &Path) -> Result<Vec<Review>> {
    let mut reviews = Vec::new();
    for (label, name) in LABELS {
        let dir = dir.join(name);
        for (_, path) in rated_files(&dir, label)? {
            let text =
                String::from_utf8(read_bytes(&path)?).map_err(|e| Error::data(&path, format!("not UTF-8: {e}")))?;
            reviews.push(Review { text, label });
        }
    }
    Ok(reviews)
}

/// Files of one label, `<n>_<rating>.txt`, with both numbers.
fn rated_files(dir: &Path, label: u8) -> Result<Vec<((u64, u8), PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(Error::io("read", dir))? {
        let entry = entry.map_err(Error::io("read", dir))?;
        let (path, name) = (entry.path(), entry.file_name());
        if is_hidden(&name) {
            continue;
        }
        let Some((number, rating)) = number_and_rating(&name.to_string_lossy()) else {
            return Err(Error::data(&path, "expected only files named NUMBER_RATING.txt"));
        };
        let fits = if label == 1 { 7..=10 } else { 1..=4 };
        if !fits.contains(&rating) {
            let (least, most) = (fits.start(), fits.end());
            let reason = format!("the rating is {rating}, but ratings in this folder are {least} to {most}");
            return Err(Error::data(&path, reason));
        }
        files.push(((number, rating), path));
    }
    files.sort_unstable();
    Ok(files)
}

fn number_and_rating(name: &str) -> Option<(u64, u8)> {
    let (number, rating) = name.strip_suffix(".txt")?.split_once('_')?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(number) || !digits(rating) {
        return None;
    }
    Some((number.parse().ok()?, rating.parse().ok()?))
}

/// Order of all indices in which every prefix and every suffix has the labels in the proportions of the whole, to
/// within one example. `file` selects the random stream of a file.
fn stratified(reviews: &[Review], file: u64) -> Vec<usize> {
    let mut order = Vec::with_capacity(reviews.len());
    for label in 0..2_u8 {
        let mut own: Vec<usize> = (0..reviews.len()).filter(|i| reviews[*i].label == label).collect();
        let index = 2 * file + u64::from(label);
        Rng::new(SEED, "lra/text/split", index).shuffle(&mut own);
        // The k-th of n reviews of a label gets the relative position (2k + 1) / 2n.
        let n = own.len();
        order.extend(own.into_iter().enumerate().map(|(k, i)| ((2 * k + 1) as f64 / n as f64, label, i)));
    }
    order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    order.into_iter().map(|(_, _, i)| i).collect()
}

/// Reviews at `indices`, in the order of the file.
fn pick<'a>(reviews: &'a [Review], indices: &[usize]) -> Vec<&'a Review> {
    let mut indices = indices.to_vec();
    indices.sort_unstable();
    indices.into_iter().map(|i| &reviews[i]).collect()
}

/// Characters of a review that are used; the last position is reserved for the end token.
fn characters<'a>(review: &'a Review, config: &LraConfig) -> impl Iterator<Item = char> + 'a {
    review.text.chars().take(config.seq_len - 1)
}

fn vocabulary(reviews: &[&Review], config: &LraConfig) -> Result<CountedVocabulary<char>> {
    let mut counts = HashMap::new();
    for review in reviews {
        for character in characters(review, config) {
            *counts.entry(character).or_insert(0) += 1;
        }
    }
    CountedVocabulary::new(counts, LEAST, config)
}

fn encode(reviews: &[&Review], vocabulary: &CountedVocabulary<char>, config: &LraConfig) -> Documents {
    let mut examples = Documents::new(1);
    for review in reviews {
        let document: Vec<u8> = characters(review, config).map(|c| vocabulary.id(c)).chain([END]).collect();
        examples.push(&[&document], review.label);
    }
    examples
}

#[cfg(test)]
mod tests;
