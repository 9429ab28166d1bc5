//! Sample text: a few pages in the form of WikiText, for first steps without a download.

use super::rows::{self, Encoder, IdWriter};
use super::vocabulary::Vocabulary;
use super::{check_ids, cut, WikitextConfig};
use crate::error::{Error, Result};
use crate::tasks::{Ids, TokenizedText};
use std::path::Path;

const PAGES: [&str; 3] = [include_str!("train.txt"), include_str!("valid.txt"), include_str!("test.txt")];

/// Splits of the sample. The tokenizer's file is looked up as for any other corpus.
pub(super) fn load(config: &WikitextConfig, data_dir: Option<&Path>) -> Result<[TokenizedText; 3]> {
    let vocabulary = Vocabulary::open(&config.tokenizer, data_dir)?;
    let width = vocabulary.width();
    let encoder = Encoder::new(vocabulary, config)?;
    let text = |split: usize| -> Result<TokenizedText> {
        let mut tally = IdWriter::new(Vec::new(), width);
        for row in rows::of(PAGES[split]) {
            let row = encoder.row(row).map_err(Error::usage)?;
            tally.push(&row).expect("memory takes every row");
        }
        check_ids(config, split, tally.largest)?;
        let counts = tally.counts;
        let (bytes, digest) = tally.end();
        let id = |bytes: &[u8]| bytes.iter().rev().fold(0, |id, byte| id << 8 | u32::from(*byte));
        let ids = bytes.chunks_exact(width.bytes()).map(id);
        Ok(cut(Ids::held(ids, width), counts, config, split).with_digest(digest))
    };
    Ok([text(0)?, text(1)?, text(2)?])
}
