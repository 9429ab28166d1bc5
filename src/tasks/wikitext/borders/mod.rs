//! Positions at which a text can be cut without changing its tokens.

use tokenizers::{NormalizerWrapper, PreTokenizerWrapper, Tokenizer};

/// Set of such positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Borders {
    /// All positions between two characters.
    Anywhere,
    /// Positions before a space or a line end that follow a character other than white space, see [`Borders::of`].
    BeforeBlanks,
    /// No position: the text must be encoded whole.
    Nowhere,
}

impl Borders {
    /// Borders of a tokenizer's file: before blanks if that is proven correct, otherwise nowhere.
    ///
    /// Let a text be A B, where A ends with a character x that is not white space and B begins with a blank: a space or
    /// a line end. Then the tokens of A B are those of A followed by those of B, since each stage of the tokenizer ends
    /// an element at the border and does not depend on the other side:
    ///
    /// - Added tokens are found by their content, leftmost and longest first. [`plain`] admits none with a blank after
    ///   another character, so none spans the border; and none that absorbs adjacent white space or depends on the
    ///   adjacent characters.
    /// - The Unicode normal forms neither compose nor reorder across a blank, which is a starter without
    ///   compositions, and only white space has a normal form that ends with white space. So the normal form of A B
    ///   is that of A followed by that of B, and the border is still one.
    /// - Digits that are split off are not white space. In the regular expression of GPT-2,
    ///   `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`, a match that contains x has no
    ///   white space after it, and so ends at the border at the latest; none looks further ahead than the first
    ///   character after its white space, which for white space before x is x or an earlier character; and none looks
    ///   back. The other pre-tokenizers split at all white space.
    /// - The model encodes each of the resulting pieces separately.
    pub fn of(file: &Tokenizer) -> Self {
        let normalizer = match file.get_normalizer() {
            None => true,
            Some(kind) => matches!(
                kind,
                NormalizerWrapper::NFC(_)
                    | NormalizerWrapper::NFD(_)
                    | NormalizerWrapper::NFKC(_)
                    | NormalizerWrapper::NFKD(_)
            ),
        };
        let splits = file.get_pre_tokenizer().is_some_and(splits_before_blanks);
        let mut added = file.get_added_tokens_decoder().into_values();
        match normalizer && splits && added.all(|token| plain(&token)) {
            true => Self::BeforeBlanks,
            false => Self::Nowhere,
        }
    }

    /// First border of `text` at or after byte `from`; the end of the text is not a border.
    pub fn next(self, text: &str, from: usize) -> Option<usize> {
        if self == Self::Nowhere {
            return None;
        }
        let bytes = text.as_bytes();
        let is_border = |at: &usize| match self {
            Self::BeforeBlanks => {
                let before = || text[..*at].chars().next_back();
                is_blank(bytes[*at]) && before().is_some_and(|x| !x.is_whitespace())
            }
            _ => text.is_char_boundary(*at),
        };
        (from.max(1)..bytes.len()).find(is_border)
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n')
}

/// Whether a pre-tokenizer splits the text at every border, regardless of the context.
fn splits_before_blanks(kind: &PreTokenizerWrapper) -> bool {
    match kind {
        PreTokenizerWrapper::ByteLevel(bytes) => bytes.use_regex && !bytes.add_prefix_space,
        PreTokenizerWrapper::Whitespace(_)
        | PreTokenizerWrapper::WhitespaceSplit(_)
        | PreTokenizerWrapper::BertPreTokenizer(_) => true,
        PreTokenizerWrapper::Sequence(all) => match all.as_ref().split_last() {
            Some((last, before)) => {
                let digits = |kind| matches!(kind, &PreTokenizerWrapper::Digits(_));
                splits_before_blanks(last) && before.iter().all(digits)
            }
            None => false,
        },
        _ => false,
    }
}

/// Whether an added token is found by its content alone, and its content contains no border.
fn plain(token: &tokenizers::AddedToken) -> bool {
    let alone = !token.single_word && !token.lstrip && !token.rstrip;
    alone && Borders::BeforeBlanks.next(&token.content, 0).is_none()
}

#[cfg(test)]
mod tests;
