//! One split of a text as ids, in memory or in a mapped file.

use super::sha256;
use memmap2::Mmap;
use std::fmt;
use std::sync::Arc;

/// Sizes of a text before tokenization. Words and bytes make perplexities of different tokenizers comparable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TextSize {
    /// Number of bytes of UTF-8.
    pub bytes: u64,
    /// Number of words, separated by white space.
    pub words: u64,
    /// Number of lines; the last one may lack its end.
    pub lines: u64,
    /// Whether each line counts as one more word of a perplexity per word, as in WikiText, whose lines end with
    /// `<eos>`.
    pub lines_are_words: bool,
}

impl TextSize {
    /// Number of words for a perplexity per word, W.
    pub fn ppl_words(&self) -> u64 {
        match self.lines_are_words {
            true => self.words + self.lines,
            false => self.words,
        }
    }
}

/// Token ids of two bytes each.
#[derive(Clone)]
pub enum Ids {
    /// Ids in memory.
    Held(Arc<[u16]>),
    /// Ids in a file, little-endian, from this byte on. The offset and the length of the file must be even.
    Mapped(Arc<Mmap>, usize),
}

/// One split of a corpus.
#[derive(Clone, Debug)]
pub struct TokenizedText {
    ids: Ids,
    counts: TextSize,
    /// Number of inputs of a window, L.
    seq_len: usize,
    /// Largest number of windows.
    most: usize,
    /// Hexadecimal digits over all ids, if they are known already.
    digest: Option<String>,
}

impl TokenizedText {
    /// Text of `ids` in windows of `seq_len` inputs, of which only the first `most` are used.
    pub fn new(ids: Ids, counts: TextSize, seq_len: usize, most: Option<usize>) -> Self {
        Self { ids, counts, seq_len, most: most.unwrap_or(usize::MAX), digest: None }
    }

    /// Sets the result of [`Self::digest`], so that it need not read all ids.
    pub(super) fn with_digest(self, digest: String) -> Self {
        Self { digest: Some(digest), ..self }
    }

    /// SHA-256 over all ids as they lie in memory, in hexadecimal digits.
    pub fn digest(&self) -> String {
        self.digest.clone().unwrap_or_else(|| sha256(bytemuck::cast_slice(self.ids())))
    }

    /// Number of windows. The last target of a window is the first input of the next; the remainder of the text belongs
    /// to none.
    pub fn windows(&self) -> usize {
        let whole = self.ids().len().saturating_sub(1) / self.seq_len;
        whole.min(self.most)
    }

    /// Whether only some first windows of the text are used.
    pub fn is_limited(&self) -> bool {
        self.most != usize::MAX
    }

    /// Number of inputs of a window, L.
    pub fn seq_len(&self) -> usize {
        self.seq_len
    }

    /// L + 1 ids of window `i`: all but the last are inputs, all but the first are targets. Like a slice, it panics
    /// past the end.
    pub fn window(&self, i: usize) -> &[u16] {
        &self.ids()[i * self.seq_len..][..self.seq_len + 1]
    }

    /// All ids of the text, including those beyond the limit on windows.
    pub fn ids(&self) -> &[u16] {
        match &self.ids {
            Ids::Held(ids) => ids,
            // A map begins at a page boundary, so that the cast of an even offset is aligned.
            Ids::Mapped(map, start) => bytemuck::cast_slice(&map[*start..]),
        }
    }

    /// Sizes of the whole text before tokenization.
    pub fn counts(&self) -> TextSize {
        self.counts
    }
}

#[cfg(target_endian = "big")]
compile_error!("token files are read as they lie in memory, which must be little-endian");

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(ids) => write!(f, "{} ids", ids.len()),
            Self::Mapped(map, start) => write!(f, "{} ids in a file", (map.len() - start) / 2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_overlap_by_one_id_and_leave_the_tail_out() {
        let ids: Vec<u16> = (0..12).collect();
        let text = TokenizedText::new(Ids::Held(ids.into()), TextSize::default(), 4, None);
        assert_eq!(text.windows(), 2);
        assert_eq!(text.window(0), [0, 1, 2, 3, 4]);
        assert_eq!(text.window(1), [4, 5, 6, 7, 8]);
        let limited = TokenizedText { most: 1, ..text };
        assert_eq!(limited.windows(), 1);
    }

    #[test]
    fn a_text_shorter_than_a_window_has_none() {
        for length in 0..5 {
            let ids: Vec<u16> = (0..length).collect();
            let text = TokenizedText::new(Ids::Held(ids.into()), TextSize::default(), 4, None);
            assert_eq!(text.windows(), usize::from(length > 4), "{length}");
        }
    }
}
