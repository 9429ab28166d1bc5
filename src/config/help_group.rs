//! Headings under which help lists settings.

/// Headings of help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelpGroup {
    /// Network.
    Model,
    /// Data.
    Task,
    /// Optimisation.
    Training,
    /// Settings specific to classifiers.
    Classifier,
    /// Settings specific to language models of text.
    Language,
    /// Settings that only recipes set; they have no flag.
    Recipe,
}

impl HelpGroup {
    /// Heading as printed in help.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Model => "Model",
            Self::Task => "Task",
            Self::Training => "Training",
            Self::Classifier => "Long Range Arena",
            Self::Language => "WikiText",
            Self::Recipe => "Set by recipes",
        }
    }
}
