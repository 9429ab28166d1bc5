//! Rows to ids, and what is counted on the way.

use super::rows::begins_article;
use super::vocabulary::Vocabulary;
use crate::tasks::Counts;
use sha2::{Digest, Sha256};
use std::io::{self, Write};

/// One row as ids.
pub(super) struct Row {
    ids: Vec<u16>,
    counts: Counts,
    begins_article: bool,
}

/// What makes ids of a text.
pub(super) struct Encoder {
    pub(super) vocabulary: Vocabulary,
    /// Whether an id stands before each article.
    pub(super) eos: bool,
}

impl Encoder {
    /// The ids of one row, whatever stands around it.
    pub(super) fn row(&self, row: &str) -> Result<Row, String> {
        let begins_article = begins_article(row);
        let mut ids = self.vocabulary.encode(row).map_err(|e| e.to_string())?;
        if begins_article && self.eos {
            ids.insert(0, self.vocabulary.eos());
        }
        Ok(Row {
            ids,
            counts: Counts {
                bytes: row.len() as u64,
                words: row.split_whitespace().count() as u64,
                lines: 1,
            },
            begins_article,
        })
    }
}

/// Rows on their way into `to`.
pub(super) struct Tally<W: Write> {
    to: W,
    hash: Sha256,
    pub(super) tokens: u64,
    pub(super) counts: Counts,
    pub(super) articles: u64,
    pub(super) largest: u16,
}

impl<W: Write> Tally<W> {
    pub(super) fn new(to: W) -> Self {
        Self {
            to,
            hash: Sha256::new(),
            tokens: 0,
            counts: Counts::default(),
            articles: 0,
            largest: 0,
        }
    }

    pub(super) fn push(&mut self, row: &Row) -> io::Result<()> {
        let bytes = bytemuck::cast_slice(&row.ids);
        self.hash.update(bytes);
        self.tokens += row.ids.len() as u64;
        self.counts.bytes += row.counts.bytes;
        self.counts.words += row.counts.words;
        self.counts.lines += row.counts.lines;
        self.articles += u64::from(row.begins_article);
        self.largest = row.ids.iter().fold(self.largest, |most, id| most.max(*id));
        self.to.write_all(bytes)
    }

    /// What it was written to, and the SHA-256 over all ids as they are stored.
    pub(super) fn end(self) -> (W, String) {
        (self.to, hex::encode(self.hash.finalize()))
    }
}
