//! Documents of different lengths, concatenated in memory.

use std::borrow::Cow;

/// One split of labelled documents, or of labelled pairs of them, with tokens below 256.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Documents {
    documents: usize,
    tokens: Vec<u8>,
    /// End of each document in `tokens`.
    ends: Vec<usize>,
    labels: Vec<u8>,
}

impl Documents {
    /// Creates a split without examples, for `documents` documents per example.
    pub fn new(documents: usize) -> Self {
        Self { documents, ..Self::default() }
    }

    /// Adds an example; `documents` must be as many as in [`Self::new`].
    pub fn push(&mut self, documents: &[&[u8]], label: u8) {
        debug_assert_eq!(documents.len(), self.documents);
        for document in documents {
            self.tokens.extend_from_slice(document);
            self.ends.push(self.tokens.len());
        }
        self.labels.push(label);
    }

    /// Number of examples, N.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are no examples.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Number of documents per example.
    pub fn documents(&self) -> usize {
        self.documents
    }

    /// Tokens of document `which` of example `example`. Like a slice, it panics past the end.
    pub fn document(&self, example: usize, which: usize) -> &[u8] {
        let i = example * self.documents + which;
        let first = i.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.tokens[first..self.ends[i]]
    }

    /// Label of `example`.
    pub fn label(&self, example: usize) -> u8 {
        self.labels[example]
    }

    /// Length in tokens of the longest document of `example`.
    pub fn longest(&self, example: usize) -> usize {
        (0..self.documents).map(|which| self.document(example, which).len()).max().unwrap_or(0)
    }

    /// Number of tokens in all documents.
    pub fn tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Tokens of all documents, concatenated.
    pub(super) fn all(&self) -> &[u8] {
        &self.tokens
    }

    /// Bytes that identify the examples: tokens, ends of documents and labels.
    pub(super) fn bytes(&self) -> [Cow<'_, [u8]>; 3] {
        let ends: Vec<u8> = self.ends.iter().flat_map(|end| end.to_le_bytes()).collect();
        [(&self.tokens).into(), ends.into(), (&self.labels).into()]
    }

    /// Replaces every token by `table[token]`.
    pub(super) fn replace(&mut self, table: &[u8; 256]) {
        self.tokens.iter_mut().for_each(|token| *token = table[usize::from(*token)]);
    }

    /// Copies the examples at `indices`, in that order.
    #[must_use]
    pub fn select(&self, indices: impl IntoIterator<Item = usize>) -> Self {
        let mut selected = Self::new(self.documents);
        for example in indices {
            let documents: Vec<&[u8]> = (0..self.documents).map(|which| self.document(example, which)).collect();
            selected.push(&documents, self.label(example));
        }
        selected
    }

    /// Share of the most frequent label: the accuracy of the majority-class baseline.
    pub fn majority(&self) -> f64 {
        let mut counts = [0_usize; 256];
        for &label in &self.labels {
            counts[usize::from(label)] += 1;
        }
        let most = counts.iter().max().copied().unwrap_or(0);
        most as f64 / self.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_pairs() -> Documents {
        let mut examples = Documents::new(2);
        examples.push(&[&[1, 2], &[3]], 1);
        examples.push(&[&[], &[4, 5, 6]], 0);
        examples
    }

    #[test]
    fn documents_come_back_as_they_were_pushed() {
        let examples = two_pairs();
        assert_eq!(examples.document(0, 0), [1, 2]);
        assert_eq!(examples.document(0, 1), [3]);
        assert!(examples.document(1, 0).is_empty());
        assert_eq!(examples.document(1, 1), [4, 5, 6]);
        assert_eq!((examples.longest(0), examples.longest(1)), (2, 3));
        assert_eq!((examples.len(), examples.tokens()), (2, 6));
    }

    #[test]
    fn a_selection_holds_its_examples_in_its_order() {
        let both = two_pairs();
        let turned = both.select([1, 0]);
        assert_eq!(turned.document(1, 0), [1, 2]);
        assert_eq!((turned.label(0), turned.label(1)), (0, 1));
        assert_eq!(turned.select([1, 0]), both);
    }

    #[test]
    fn the_majority_is_the_share_of_the_most_frequent_label() {
        assert_eq!(two_pairs().select([0, 0, 1]).majority(), 2.0 / 3.0);
    }
}
