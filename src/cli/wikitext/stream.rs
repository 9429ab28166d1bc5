//! Incremental decoding of token ids: incomplete characters are held back until they are complete.

/// Replacement character for a byte that is not part of a character.
const BROKEN: char = '\u{FFFD}';

/// Maximum length of a character in bytes; that many broken bytes at the end may still become one.
const LONGEST: usize = 4;

/// Decoder of ids that arrive one by one.
pub(super) struct Streamed<'a> {
    decode: &'a dyn Fn(&[u32]) -> String,
    ids: Vec<u32>,
    /// First id that is decoded again: some tokenizers decode a token depending on the previous ones.
    from: usize,
    /// Number of ids whose text has been returned completely.
    whole: usize,
    /// Bytes of the text from `from` on that have been returned.
    out: usize,
}

impl<'a> Streamed<'a> {
    /// Begins after the ids `before`, whose text has been returned already.
    pub fn new(before: &[u32], decode: &'a dyn Fn(&[u32]) -> String) -> Self {
        let from = before.len().saturating_sub(LONGEST);
        Self { ids: before.to_vec(), from, whole: before.len(), out: decode(&before[from..]).len(), decode }
    }

    /// Adds `id` and returns the text that has become certain.
    pub fn push(&mut self, id: u32) -> String {
        self.ids.push(id);
        let text = (self.decode)(&self.ids[self.from..]);
        let broken = text.chars().rev().take_while(|c| *c == BROKEN).count();
        let certain = text.len() - broken.min(LONGEST) * BROKEN.len_utf8();
        let new = text[..certain].get(self.out..).unwrap_or("").to_owned();
        self.out += new.len();
        if broken == 0 {
            self.from = self.whole;
            self.whole = self.ids.len();
            self.out = (self.decode)(&self.ids[self.from..]).len();
        }
        new
    }

    /// Returns the remaining text, when no more ids follow.
    pub fn finish(self) -> String {
        (self.decode)(&self.ids[self.from..]).get(self.out..).unwrap_or("").to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids.iter().map(|id| *id as u8).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn ids(text: &str) -> Vec<u32> {
        text.bytes().map(u32::from).collect()
    }

    #[test]
    fn no_character_comes_before_it_is_whole() {
        let mut stream = Streamed::new(&ids("naï"), &bytes);
        let said: Vec<String> = ids("vé😀!").into_iter().map(|id| stream.push(id)).collect();
        assert_eq!(said, ["v", "", "é", "", "", "", "😀", "!"]);
        assert_eq!(stream.finish(), "");
    }

    #[test]
    fn half_a_character_at_the_end_is_shown_as_broken() {
        let mut stream = Streamed::new(&[], &bytes);
        let first = ids("é")[0];
        assert_eq!(stream.push(first), "");
        assert_eq!(stream.finish(), "\u{FFFD}");
    }

    #[test]
    fn a_tokenizer_that_writes_a_word_by_the_one_before_is_heard_out() {
        // The first word has no leading space.
        let words = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        let mut stream = Streamed::new(&[1, 2], &words);
        let said: Vec<String> = [3, 4, 5].map(|id| stream.push(id)).into();
        assert_eq!(said, [" 3", " 4", " 5"]);
    }

    proptest! {
        #[test]
        fn all_that_comes_is_the_text_of_all_ids(text in ".{0,12}", noise in proptest::collection::vec(0u32..256, 0..24), more in ".{0,6}") {
            let before = ids(&text);
            let after = [noise, ids(&more)].concat();
            let mut stream = Streamed::new(&before, &bytes);
            let mut said = text;
            for id in &after {
                said += &stream.push(*id);
            }
            said += &stream.finish();
            prop_assert_eq!(said, bytes(&[before, after].concat()));
        }
    }
}
