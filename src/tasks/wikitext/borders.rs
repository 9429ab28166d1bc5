//! Places in a text at which it can be cut in two without a change of its tokens.

use tokenizers::{NormalizerWrapper, PreTokenizerWrapper, Tokenizer};

/// The places that are known to be such borders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Borders {
    /// Between any two characters.
    Anywhere,
    /// Before a space or a line end that follows anything but white space, see [`Borders::of`].
    BeforeBlanks,
    /// None: the text is encoded whole.
    Nowhere,
}

impl Borders {
    /// Those of a tokenizer's file: before blanks where that is proven, and nowhere otherwise.
    ///
    /// Let a text be A B, where A ends with a character x that is no white space and B begins with a blank, a space or
    /// a line end. Then the tokens of A B are those of A and those of B, since each stage of the tokenizer ends
    /// something between them and sees nothing of the other side:
    ///
    /// - Added tokens are found by their content, the leftmost and longest first. [`plain`] admits none with a blank
    ///   behind something else, so none lies across; and none that takes white space beside it, or looks at the
    ///   characters around it.
    /// - The normal forms of Unicode compose and reorder nothing with a blank, which is a starter without
    ///   compositions, and only white space has a normal form that ends with white space. So the normal form of A B
    ///   is that of A and that of B, and the border is still one.
    /// - Digits that are split off are no white space. In the regular expression of GPT-2,
    ///   `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`, a match that holds x has no
    ///   white space behind it, and so ends at the border at the latest; none looks further ahead than the first
    ///   character behind its white space, which for white space before x is x or one before it; and none looks back.
    ///   The others split at all white space.
    /// - The model sees each piece of these by itself.
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

    /// The first border of `text` at byte `from` or behind it; its end is none.
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

/// Whether a pre-tokenizer splits the text at every border, whatever stands around it.
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

/// Whether an added token is found by its content alone, which has no border in it.
fn plain(token: &tokenizers::AddedToken) -> bool {
    let alone = !token.single_word && !token.lstrip && !token.rstrip;
    alone && Borders::BeforeBlanks.next(&token.content, 0).is_none()
}

#[cfg(test)]
mod tests;
