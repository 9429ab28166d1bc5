//! Pairs of papers of the ACL Anthology (Radev et al. 2013), character by character; the label is whether one cites the
//! other.

use super::files::{self, PAIRS};
use super::vocab::RAW_END;
use super::{parts, LraConfig, LraDataset, LraSplits};
use crate::error::Result;
use crate::tasks::lines::{excerpt, TextLine};
use std::path::Path;

/// Reads the splits from the folder at or below `dir`: the first examples of each file. Texts are kept as printed, with
/// the escapes of a byte string. The files are gigabytes, so only the bytes that become tokens are kept, and they are
/// converted in place.
pub(super) fn load(config: &LraConfig, dir: &Path) -> Result<LraSplits> {
    let dir = files::find(LraDataset::Retrieval, config.contour_length(), dir)?;
    let parse = |line: TextLine| parse(line, config.seq_len);
    parts::of_lines(&dir, PAIRS, None, config, parse)
}

/// Both texts, truncated and with their end token, and whether one paper cites the other.
fn parse(line: TextLine, seq_len: usize) -> Result<([Vec<u8>; 2], u8), String> {
    let text = line.unmarked();
    let fields: Vec<&[u8]> = text.split(|byte| *byte == b'\t').take(6).collect();
    let &[label, _, _, first, second] = fields.as_slice() else {
        return Err(format!(
            "expected five fields separated by tabs (label, two ids, two texts), found `{}`",
            excerpt(text)
        ));
    };
    if let Some(at) = text.iter().position(|byte| !byte.is_ascii()) {
        return Err(format!("byte {} is not ASCII", at + 1));
    }
    let value = std::str::from_utf8(label).ok().and_then(|label| label.parse::<f64>().ok());
    let label = match value {
        Some(0.0) => 0,
        Some(1.0) => 1,
        _ => return Err(format!("the label must be 0.0 or 1.0, not `{}`", excerpt(label))),
    };
    // A printed byte string ends with the quote that follows its b.
    if !line.ended && second.get(1) != second.last() {
        return Err("the second text has no closing quote".to_owned());
    }
    let document = |text: &[u8]| {
        let cut = &text[..text.len().min(seq_len - 1)];
        [cut, &[RAW_END]].concat()
    };
    Ok(([first, second].map(document), label))
}

#[cfg(test)]
mod tests;
