//! Prediction targets of models.

/// Prediction target of a model. It determines which settings a run has, how its model is scored, and which parts of it
/// are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// Labels at some positions of sequences of one length.
    PerToken,
    /// One class for each document, or for each pair of documents.
    Pooled,
    /// Next token at every position of a window of text.
    NextToken,
}

impl Objective {
    /// All objectives.
    pub const ALL: [Self; 3] = [Self::PerToken, Self::Pooled, Self::NextToken];

    /// Whether runs are language models: scored by perplexity, validated by their loss, and stored with their weights
    /// and the loss of every step.
    pub fn is_language_model(self) -> bool {
        self == Self::NextToken
    }
}
