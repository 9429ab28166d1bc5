//! One split of a text as ids, in memory or in a mapped file.

use super::sha256;
use memmap2::Mmap;
use std::fmt;
use std::ops::Range;
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

/// Size of an id where many are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdWidth {
    /// Two bytes.
    Two,
    /// Four bytes.
    Four,
}

impl IdWidth {
    /// Smallest width for ids below `size`.
    pub fn of(size: usize) -> Self {
        if size <= 1 << 16 {
            Self::Two
        } else {
            Self::Four
        }
    }

    /// Number of bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::Two => 2,
            Self::Four => 4,
        }
    }
}

/// Token ids, all of one width.
#[derive(Clone)]
pub enum Ids {
    /// Ids of two bytes in memory.
    Held(Arc<[u16]>),
    /// Ids of four bytes in memory.
    HeldWide(Arc<[u32]>),
    /// Ids in a file, little-endian, from this byte on. The offset and the length of the file must be multiples of the
    /// width.
    Mapped(Arc<Mmap>, usize, IdWidth),
}

impl Ids {
    /// Holds `ids`, which must fit in `width`.
    pub fn held(ids: impl Iterator<Item = u32>, width: IdWidth) -> Self {
        match width {
            IdWidth::Two => Self::Held(ids.map(|id| id as u16).collect()),
            IdWidth::Four => Self::HeldWide(ids.collect()),
        }
    }

    /// All ids.
    fn all(&self) -> IdSlice<'_> {
        match self {
            Self::Held(ids) => IdSlice::Two(ids),
            Self::HeldWide(ids) => IdSlice::Four(ids),
            // A map begins at a page boundary, so that the casts are aligned.
            Self::Mapped(map, start, IdWidth::Two) => IdSlice::Two(bytemuck::cast_slice(&map[*start..])),
            Self::Mapped(map, start, IdWidth::Four) => IdSlice::Four(bytemuck::cast_slice(&map[*start..])),
        }
    }
}

/// Borrowed part of a tokenized text. Like a slice, it panics past the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdSlice<'a> {
    /// Ids of two bytes.
    Two(&'a [u16]),
    /// Ids of four bytes.
    Four(&'a [u32]),
}

impl<'a> IdSlice<'a> {
    /// Number of ids.
    pub fn len(self) -> usize {
        match self {
            Self::Two(ids) => ids.len(),
            Self::Four(ids) => ids.len(),
        }
    }

    /// Whether there are no ids.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The id at index `i`.
    pub fn at(self, i: usize) -> u32 {
        match self {
            Self::Two(ids) => ids[i].into(),
            Self::Four(ids) => ids[i],
        }
    }

    /// The ids at the indices `range`.
    pub fn slice(self, range: Range<usize>) -> Self {
        match self {
            Self::Two(ids) => Self::Two(&ids[range]),
            Self::Four(ids) => Self::Four(&ids[range]),
        }
    }

    /// All ids, one by one.
    pub fn iter(self) -> impl ExactSizeIterator<Item = u32> + Clone + 'a {
        (0..self.len()).map(move |i| self.at(i))
    }

    /// A copy that is held, of the same width.
    pub fn to_held(self) -> Ids {
        match self {
            Self::Two(ids) => Ids::Held(ids.into()),
            Self::Four(ids) => Ids::HeldWide(ids.into()),
        }
    }

    fn bytes(self) -> &'a [u8] {
        match self {
            Self::Two(ids) => bytemuck::cast_slice(ids),
            Self::Four(ids) => bytemuck::cast_slice(ids),
        }
    }
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
        self.digest.clone().unwrap_or_else(|| sha256(self.ids().bytes()))
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
    pub fn window(&self, i: usize) -> IdSlice<'_> {
        let start = i * self.seq_len;
        self.ids().slice(start..start + self.seq_len + 1)
    }

    /// All ids of the text, including those beyond the limit on windows.
    pub fn ids(&self) -> IdSlice<'_> {
        self.ids.all()
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
        let place = if matches!(self, Self::Mapped(..)) { " in a file" } else { "" };
        write!(f, "{} ids{place}", self.all().len())
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
        assert_eq!(text.window(0), IdSlice::Two(&[0, 1, 2, 3, 4]));
        assert_eq!(text.window(1), IdSlice::Two(&[4, 5, 6, 7, 8]));
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
