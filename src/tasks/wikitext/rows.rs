//! Rows of a split of WikiText, the same from plain text as from Parquet files, and their conversion to ids and counts.

use super::end_of_text;
use super::vocabulary::Vocabulary;
use super::WikitextConfig;
use crate::error::{refuse, Error, Position, Result};
use crate::tasks::lines::begins_article;
use crate::tasks::{lines, parquet, IdWidth, TextSize};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Total size in bytes of `files`.
pub(super) fn bytes(files: &[PathBuf]) -> Result<u64> {
    let length = |path: &PathBuf| fs::metadata(path).map(|m| m.len());
    files.iter().map(|p| length(p).map_err(Error::io("read", p))).sum()
}

/// Converts each row by `make` and passes the results to `take`, in order, with the number of bytes of the files read
/// so far.
///
/// A line with its end is a row, and a line of white space is an empty row. Fails with the file, the row and the reason
/// that `make` returned, or with an error of `take`.
pub(super) fn read<T: Send>(
    files: &[PathBuf],
    make: impl Fn(&str) -> Result<T, String> + Sync,
    mut take: impl FnMut(T, u64) -> Result<()>,
) -> Result<()> {
    let mut before = 0;
    for path in files {
        let length = bytes(std::slice::from_ref(path))?;
        if path.extension().is_some_and(|e| e == "parquet") {
            groups(path, &|row| make(text(row)), &mut |made, share| {
                take(made, before + (share * length as f64) as u64)
            })?;
        } else {
            plain(path, &make, &mut |made, read| take(made, before + read))?;
        }
        before += length;
    }
    Ok(())
}

/// Same as [`read`] for one Parquet file, whose rows are used unchanged.
pub(super) fn groups<T: Send>(
    path: &Path,
    make: &(impl Fn(&str) -> Result<T, String> + Sync),
    take: &mut impl FnMut(T, f64) -> Result<()>,
) -> Result<()> {
    let mut number = 0;
    parquet::each_group(path, "text", |rows, share| {
        let made: Vec<_> = rows.par_iter().map(|row| make(utf8(row)?)).collect();
        for made in made {
            let fault = |why: String| Error::data_at(path, Position::Row(number), why);
            take(made.map_err(fault)?, share)?;
            number += 1;
        }
        Ok(())
    })
}

fn plain<T: Send>(
    path: &Path,
    make: &(impl Fn(&str) -> Result<T, String> + Sync),
    take: &mut impl FnMut(T, u64) -> Result<()>,
) -> Result<()> {
    let mut read = 0;
    let row = |line: lines::TextLine| {
        let mut row = text(utf8(line.text)?).to_owned();
        if line.ended && !row.is_empty() {
            row.push('\n');
        }
        Ok((make(&row)?, line.text.len() as u64 + 1))
    };
    let rows = lines::read(path, None, usize::MAX, row, |(made, bytes)| {
        read += bytes;
        take(made, read)
    });
    rows.map(drop)
}

fn utf8(row: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(row).map_err(|e| format!("not UTF-8: {e}"))
}

/// Normalised row: one that contains only white space is empty.
fn text(row: &str) -> &str {
    match row.trim() {
        "" => "",
        _ => row,
    }
}

/// Rows of a text in memory.
pub(super) fn of(whole: &str) -> impl Iterator<Item = &str> {
    whole.split_inclusive('\n').map(text)
}

/// Ids and counts of one row.
pub(super) struct EncodedRow {
    ids: Vec<u32>,
    counts: TextSize,
    begins_article: bool,
}

/// Converter of text to ids.
pub(super) struct Encoder {
    pub(super) vocabulary: Vocabulary,
    /// Id before each article, if there is to be one.
    pub(super) eos: Option<u32>,
}

impl Encoder {
    /// Encoder of `config` with the `vocabulary` of its tokenizer. Fails if articles are to be separated and the
    /// tokenizer has no end-of-text token.
    pub(super) fn new(vocabulary: Vocabulary, config: &WikitextConfig) -> Result<Self> {
        let eos = match (config.eos_between_articles, vocabulary.eos) {
            (true, None) => {
                refuse!(flag "--eos-between-articles", "the tokenizer {} declares no end-of-text token; declare one as `eos_token` in {} beside its tokenizer.json", config.tokenizer, end_of_text::DECLARES)
            }
            (asked, eos) => eos.filter(|_| asked),
        };
        Ok(Self { vocabulary, eos })
    }

    /// Ids of one row, independent of the other rows.
    pub(super) fn row(&self, row: &str) -> Result<EncodedRow, String> {
        let begins_article = begins_article(row);
        let mut ids = self.vocabulary.encode(row).map_err(|e| e.to_string())?;
        if let Some(eos) = self.eos.filter(|_| begins_article) {
            ids.insert(0, eos);
        }
        Ok(EncodedRow {
            ids,
            counts: TextSize {
                bytes: row.len() as u64,
                words: row.split_whitespace().count() as u64,
                lines: 1,
                lines_are_words: true,
            },
            begins_article,
        })
    }
}

/// Writer of ids to `to` with running counts.
pub(super) struct IdWriter<W: Write> {
    to: W,
    width: IdWidth,
    hash: Sha256,
    pub(super) tokens: u64,
    pub(super) counts: TextSize,
    pub(super) articles: u64,
    pub(super) largest: u32,
}

impl<W: Write> IdWriter<W> {
    /// Writer of ids that fit in `width`.
    pub(super) fn new(to: W, width: IdWidth) -> Self {
        Self { to, width, hash: Sha256::new(), tokens: 0, counts: TextSize::default(), articles: 0, largest: 0 }
    }

    pub(super) fn push(&mut self, row: &EncodedRow) -> io::Result<()> {
        self.counts.bytes += row.counts.bytes;
        self.counts.words += row.counts.words;
        self.counts.lines += row.counts.lines;
        self.counts.lines_are_words = row.counts.lines_are_words;
        self.articles += u64::from(row.begins_article);
        self.push_ids(&row.ids)
    }

    /// Writes ids of a text that is counted elsewhere.
    pub(super) fn push_ids(&mut self, ids: &[u32]) -> io::Result<()> {
        let narrow: Vec<u16>;
        let bytes = match self.width {
            IdWidth::Two => {
                narrow = ids.iter().map(|id| *id as u16).collect();
                bytemuck::cast_slice(&narrow)
            }
            IdWidth::Four => bytemuck::cast_slice(ids),
        };
        self.hash.update(bytes);
        self.tokens += ids.len() as u64;
        self.largest = ids.iter().fold(self.largest, |most, id| most.max(*id));
        self.to.write_all(bytes)
    }

    /// Returns the destination and the SHA-256 over all ids as they are stored.
    pub(super) fn end(self) -> (W, String) {
        (self.to, hex::encode(self.hash.finalize()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::testing::Fails;
    use crate::error::Position;

    fn all(files: &[PathBuf]) -> Result<Vec<String>> {
        let mut rows = Vec::new();
        let mut last = 0;
        read(
            files,
            |row| Ok(row.to_owned()),
            |row, at| {
                assert!(at >= last);
                last = at;
                rows.push(row);
                Ok(())
            },
        )?;
        Ok(rows)
    }

    #[test]
    fn lines_keep_their_ends_and_lines_of_blanks_are_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("train.txt");
        fs::write(&path, " \n = A = \n \t \n b\r\n\nc").unwrap();
        let rows = all(std::slice::from_ref(&path)).unwrap();
        assert_eq!(rows, ["", " = A = \n", "", " b\n", "", "c"]);
        let held: Vec<_> = of(" \n = A = \n \t \n b\n\nc").collect();
        assert_eq!(held, rows);
    }

    #[test]
    fn an_invalid_row_is_refused_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("train.txt");
        fs::write(&path, b"a\n\xff\n").unwrap();
        let at = all(&[path]).fails("data");
        at.is_at("train.txt", Position::Line(2)).names(&["UTF-8"]);
        let absent = all(&[dir.path().join("no.txt")]).fails("io");
        absent.is_at("no.txt", None);
    }
}
