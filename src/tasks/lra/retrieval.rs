//! Pairs of papers of the ACL Anthology (Radev et al. 2013), character by character: whether one
//! cites the other.

mod stand_in;

pub use stand_in::write_stand_in;

use super::part::{self, Part};
use super::vocab::RAW_END;
use super::{place, Documents, Splits};
use crate::error::Result;
use crate::tasks::lines::{self, excerpt, Line};
use crate::tasks::lra::{LraConfig, LraDataset};
use std::path::{Path, PathBuf};

const FILES: [&str; 3] = [
    "new_aan_pairs.train.tsv",
    "new_aan_pairs.eval.tsv",
    "new_aan_pairs.test.tsv",
];

/// The splits in the folder at or below `dir`: the first examples of each file. Texts stay as they
/// are printed, with the escapes of a byte string. The files are gigabytes, so only the bytes that
/// become tokens are kept, and they become tokens in their place.
pub(super) fn load(config: &LraConfig, dir: &Path) -> Result<Splits> {
    let dir = find(dir)?;
    part::of_files(&dir, FILES, config, |path, part, wanted| {
        split(path, part, wanted, config.seq_len)
    })
}

/// The folder at or below `dir` in which the files lie.
pub(super) fn find(dir: &Path) -> Result<PathBuf> {
    place::find(dir, LraDataset::Retrieval, &FILES)
}

fn split(path: &Path, part: Part, wanted: usize, seq_len: usize) -> Result<Documents> {
    let mut examples = Documents::new(2);
    let held = lines::read(
        path,
        None,
        wanted,
        |line| parse(line, seq_len),
        |([first, second], label): ([Vec<u8>; 2], u8)| {
            examples.push(&[&first, &second], label);
            Ok(())
        },
    )?;
    part.enough(path, held, wanted)?;
    Ok(examples)
}

/// Both texts, cut and with their end, and whether one paper cites the other.
fn parse(line: Line, seq_len: usize) -> Result<([Vec<u8>; 2], u8), String> {
    let fields: Vec<&[u8]> = line.text.split(|byte| *byte == b'\t').take(6).collect();
    let &[label, _, _, first, second] = fields.as_slice() else {
        return Err(format!(
            "expected are five fields with tabs between them (label, two ids, two texts), not `{}`",
            excerpt(line.text)
        ));
    };
    if let Some(at) = line.text.iter().position(|byte| !byte.is_ascii()) {
        return Err(format!(
            "byte {} is not ASCII, as all of the data is",
            at + 1
        ));
    }
    let value = std::str::from_utf8(label).ok();
    let value = value.and_then(|label| label.parse::<f64>().ok());
    let label = match value {
        Some(0.0) => 0,
        Some(1.0) => 1,
        _ => {
            return Err(format!(
                "the label must be 0.0 or 1.0, not `{}`",
                excerpt(label)
            ))
        }
    };
    // A byte string ends in the quote that follows its b.
    if !line.ended && second.get(1) != second.last() {
        return Err("the second text has no end".to_owned());
    }
    let document = |text: &[u8]| {
        let mut document = Vec::with_capacity(text.len().min(seq_len - 1) + 1);
        document.extend_from_slice(&text[..text.len().min(seq_len - 1)]);
        document.push(RAW_END);
        document
    };
    Ok(([first, second].map(document), label))
}

#[cfg(test)]
mod tests;
