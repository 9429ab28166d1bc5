//! User-supplied text, encoded byte for byte in pieces that are cut where this does not change the tokens.

use super::rows::{self, Encoder};
use crate::error::{Error, Position, Result};
use crate::files;
use crate::tasks::lines::begins_article;
use crate::tasks::TextSize;
use rayon::prelude::*;
use std::io::Read;
use std::mem::take;
use std::path::{Path, PathBuf};

/// Sizes in bytes of the parts of a text that are in memory at once.
#[derive(Clone, Copy)]
struct BufferSizes {
    /// Size of one read, and of the pieces encoded at once by all threads.
    block: usize,
    /// Size of a piece, if the text has enough borders.
    piece: usize,
    /// Largest line that is held to check whether it is a heading; longer lines are not headings.
    heading: usize,
    /// Largest text without a border; encoding takes about a hundred times as much memory.
    most: usize,
}

const SIZES: BufferSizes = BufferSizes { block: 4 << 20, piece: 64 << 10, heading: 1 << 20, most: 256 << 20 };

/// Counts of a text, once it is encoded to its end.
pub(super) struct TextCounts {
    pub(super) counts: TextSize,
    /// Number of headings of the first level.
    pub(super) articles: u64,
    /// Whether a byte-order mark was removed.
    pub(super) byte_order_mark: bool,
}

/// Encodes the concatenation of `files` as one text. Passes its ids to `take`, in order, with the number of bytes of
/// the files read so far. Without `eos` the tokenizer encodes the text as one; with it, each article separately, and
/// the ids of an article begin with `eos`.
///
/// Rows of a Parquet file are concatenated without separators.
pub(super) fn encode(
    files: &[PathBuf],
    encoder: &Encoder,
    take: impl FnMut(&[u32], u64) -> Result<()>,
) -> Result<TextCounts> {
    encode_by(files, encoder, SIZES, take)
}

fn encode_by(
    files: &[PathBuf],
    encoder: &Encoder,
    sizes: BufferSizes,
    take: impl FnMut(&[u32], u64) -> Result<()>,
) -> Result<TextCounts> {
    let mut text = TextEncoder::new(encoder, sizes, take);
    let mut before = 0;
    for path in files {
        let length = rows::bytes(std::slice::from_ref(path))?;
        if path.extension().is_some_and(|e| e == "parquet") {
            let check = |row: &str| encoder.vocabulary.check(row).map(|()| row.to_owned());
            rows::groups(path, &check, &mut |row, share| {
                text.push(&row, path, None, before + (share * length as f64) as u64)
            })?;
        } else {
            read(path, before, &mut text)?;
        }
        before += length;
    }
    text.end(files.last().map_or(Path::new(""), PathBuf::as_path), before)
}

/// Reads the file at `path` into `text`, block by block, without a byte-order mark.
fn read<F: FnMut(&[u32], u64) -> Result<()>>(path: &Path, before: u64, text: &mut TextEncoder<F>) -> Result<()> {
    let mut file = files::open(path)?;
    let (mut block, mut done, mut lines) = (Vec::new(), 0, 1);
    loop {
        let read = file.by_ref().take(text.sizes.block as u64).read_to_end(&mut block);
        let read = read.map_err(Error::io("read", path))?;
        if done == 0 && files::is_utf16(&block) {
            return Err(Error::data(path, files::UTF16));
        }
        if done == 0 && block.starts_with(files::BOM) {
            block.drain(..files::BOM.len());
            text.byte_order_mark = true;
        }
        done += read as u64;
        let ended = read < text.sizes.block;
        let valid = match std::str::from_utf8(&block) {
            // The rest of an incomplete last character is in the next block.
            Err(e) if e.error_len().is_none() && !ended => e.valid_up_to(),
            Err(e) => {
                let valid = e.valid_up_to();
                let line = lines + line_ends(&block[..valid]);
                let byte = done as usize - block.len() + valid;
                let reason = format!("not UTF-8 from byte {byte} of the file on");
                return Err(Error::data_at(path, Position::Line(line), reason));
            }
            Ok(_) => block.len(),
        };
        let whole = std::str::from_utf8(&block[..valid]).unwrap_or_default();
        text.push(whole, path, Some(lines), before + done)?;
        lines += line_ends(whole.as_bytes());
        block.drain(..valid);
        if ended {
            return Ok(());
        }
    }
}

fn line_ends(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// State of an encoding: text is read, then cut into pieces, then encoded.
struct TextEncoder<'a, F> {
    encoder: &'a Encoder,
    sizes: BufferSizes,
    take: F,
    counts: TextSize,
    /// Last character that was counted.
    last: Option<char>,
    articles: u64,
    byte_order_mark: bool,
    /// Last line, which is incomplete.
    line: String,
    /// Whether the beginning of that line has been passed on already.
    cut: bool,
    /// Text that is in no piece yet; only of the last article if articles are separated.
    rest: String,
    /// Line of its file on which `rest` begins.
    rest_line: u64,
    /// Number of bytes of `rest` that are known to contain no usable border.
    searched: usize,
    /// Whether the next piece begins an article.
    begins: bool,
    pieces: Vec<TextPiece>,
    /// Total size of the pieces in bytes.
    ready: usize,
}

/// Part of the text that is encoded separately.
struct TextPiece {
    text: String,
    /// Line of its file on which the piece begins.
    line: u64,
    begins_article: bool,
}

impl<'a, F: FnMut(&[u32], u64) -> Result<()>> TextEncoder<'a, F> {
    fn new(encoder: &'a Encoder, sizes: BufferSizes, take: F) -> Self {
        Self {
            encoder,
            sizes,
            take,
            counts: TextSize::default(),
            last: None,
            articles: 0,
            byte_order_mark: false,
            line: String::new(),
            cut: false,
            rest: String::new(),
            rest_line: 1,
            searched: 0,
            begins: false,
            pieces: Vec::new(),
            ready: 0,
        }
    }

    /// Appends text of the file at `path`, of which `done` bytes have been read. `line` is the line on which it begins;
    /// `None` for a file without lines.
    fn push(&mut self, more: &str, path: &Path, line: Option<u64>, done: u64) -> Result<()> {
        self.count(more);
        self.line += more;
        let whole = self.line.rfind('\n').map_or(0, |end| end + 1);
        let mut lines = take(&mut self.line);
        self.line = lines.split_off(whole);
        for line in lines.split_inclusive('\n') {
            self.pass(line);
            self.cut = false;
        }
        if self.line.len() > self.sizes.heading {
            let begun = take(&mut self.line);
            self.cut = true;
            self.pass(&begun);
        }
        if self.rest.len() >= self.sizes.block {
            self.cut_at_borders(false);
        }
        if self.rest.len() > self.sizes.most {
            return Err(Error::data(path, self.too_long()));
        }
        match self.ready >= self.sizes.block {
            true => self.flush(path, line.is_some(), done),
            false => Ok(()),
        }
    }

    fn end(mut self, path: &Path, done: u64) -> Result<TextCounts> {
        let line = take(&mut self.line);
        self.pass(&line);
        self.cut_at_borders(true);
        let lines = path.extension().is_none_or(|e| e != "parquet");
        self.flush(path, lines, done)?;
        if self.last.is_some_and(|last| last != '\n') {
            self.counts.lines += 1;
        }
        Ok(TextCounts { counts: self.counts, articles: self.articles, byte_order_mark: self.byte_order_mark })
    }

    fn count(&mut self, more: &str) {
        let inside = |c: char| !c.is_whitespace();
        let goes_on = self.last.is_some_and(inside) && more.starts_with(inside);
        let words = more.split_whitespace().count() - usize::from(goes_on);
        self.counts.words += words as u64;
        self.counts.bytes += more.len() as u64;
        self.counts.lines += line_ends(more.as_bytes());
        self.last = more.chars().next_back().or(self.last);
    }

    /// Appends a line, or part of a long one, to `rest`.
    fn pass(&mut self, line: &str) {
        let may_begin = !self.cut && line.len() <= self.sizes.heading;
        if may_begin && begins_article(line) {
            self.articles += 1;
            if self.encoder.eos.is_some() {
                self.cut_at_borders(true);
                self.begins = true;
            }
        }
        self.rest += line;
    }

    /// Cuts `rest` into pieces up to its last border, or all of it.
    fn cut_at_borders(&mut self, all: bool) {
        let mut rest = take(&mut self.rest);
        let (mut from, borders) = (0, self.encoder.vocabulary.borders);
        let mut searched = take(&mut self.searched);
        while let Some(at) = borders.next(&rest, searched.max(from + self.sizes.piece)) {
            self.piece(&rest[from..at]);
            from = at;
            searched = 0;
        }
        if all {
            self.piece(&rest[from..]);
            return;
        }
        rest.drain(..from);
        (self.searched, self.rest) = (rest.len(), rest);
    }

    fn piece(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.pieces.push(TextPiece {
            text: text.to_owned(),
            line: self.rest_line,
            begins_article: take(&mut self.begins),
        });
        self.rest_line += line_ends(text.as_bytes());
        self.ready += text.len();
    }

    /// Encodes the pieces and passes their ids to `take`.
    fn flush(&mut self, path: &Path, lines: bool, done: u64) -> Result<()> {
        let pieces = take(&mut self.pieces);
        self.ready = 0;
        let vocabulary = &self.encoder.vocabulary;
        let encoded: Vec<_> = pieces.par_iter().map(|piece| vocabulary.encode(&piece.text)).collect();
        for (piece, ids) in pieces.iter().zip(encoded) {
            let ids =
                ids.map_err(|e| if lines { self.fault(path, piece) } else { Error::data(path, e.to_string()) })?;
            let eos = self.encoder.eos.filter(|_| piece.begins_article);
            (self.take)(eos.as_slice(), done)?;
            (self.take)(&ids, done)?;
        }
        Ok(())
    }

    /// Error for the first line of a piece that cannot be encoded.
    fn fault(&self, path: &Path, piece: &TextPiece) -> Error {
        let refused = |line: &str| self.encoder.vocabulary.encode(line).err();
        let mut lines = (piece.line..).zip(piece.text.split_inclusive('\n'));
        let found = lines.find_map(|(number, line)| Some((number, refused(line)?)));
        let (number, why) = match found {
            Some((number, error)) => (number, error.to_string()),
            None => (piece.line, "the tokenizer fails on the text from here on".to_owned()),
        };
        Error::data_at(path, Position::Line(number), why)
    }

    /// Message about a text without borders.
    fn too_long(&self) -> String {
        let most = self.sizes.most >> 20;
        match self.encoder.eos {
            Some(_) => format!(
                "an article of more than {most} MiB, which this tokenizer must see as a whole: make articles shorter, or use \
                 a tokenizer that splits at spaces, as that of GPT-2 does"
            ),
            None => format!(
                "more than {most} MiB, which this tokenizer must see as a whole: use one that splits at spaces, as that of \
                 GPT-2 does, or separate articles with --eos-between-articles"
            ),
        }
    }
}

#[cfg(test)]
mod tests;
