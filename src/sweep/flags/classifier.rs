//! Settings of the classifiers of the Long Range Arena.

use super::super::values::whole;
use super::given;
use crate::config::{Dual, Input, Loss, Pool};
use crate::tasks::lra::LraDataset;

/// Heading of these flags in `--help`.
pub const CLASSIFIERS: &str = "Long Range Arena (lists make a grid in `dsf sweep`)";

/// What [`super::Flags`] are, for classifiers.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub struct ClassifierFlags {
    /// Task of the Long Range Arena [default: listops; all five in `dsf sweep`].
    #[arg(long, value_delimiter = ',', value_name = "NAME", help_heading = CLASSIFIERS)]
    pub dataset: Vec<LraDataset>,
    /// Paddles of Pathfinder's long paths: 6, 9 or 14 in its released levels, 3 to 14 in ours [default: 14].
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = whole::<usize>, help_heading = CLASSIFIERS, allow_negative_numbers = true)]
    pub contour_length: Vec<usize>,
    /// Validation examples, which choose the epoch; 0 is none [default: the official split's].
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = whole::<usize>, help_heading = CLASSIFIERS, allow_negative_numbers = true)]
    pub val_examples: Vec<usize>,
    /// Epochs over which the rate rises [default: by dataset and mixer].
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = whole::<usize>, help_heading = CLASSIFIERS, allow_negative_numbers = true)]
    pub warmup_epochs: Vec<usize>,
    /// A table of tokens, or one number each [default: by protocol and mixer].
    #[arg(long, value_delimiter = ',', value_name = "NAME", help_heading = CLASSIFIERS)]
    pub input: Vec<Input>,
    /// From positions to one vector [default: mean].
    #[arg(long, value_delimiter = ',', value_name = "NAME", help_heading = CLASSIFIERS)]
    pub pool: Vec<Pool>,
    /// Whether pooling leaves out padding [default: false; true in protocol matched].
    #[arg(long, value_delimiter = ',', value_name = "BOOL", help_heading = CLASSIFIERS)]
    pub mask: Vec<bool>,
    /// What of two documents meets [default: logits].
    #[arg(long, value_delimiter = ',', value_name = "NAME", help_heading = CLASSIFIERS)]
    pub dual: Vec<Dual>,
    /// Cross-entropy, or that of a softmax taken for logits [default: by protocol].
    #[arg(long, value_delimiter = ',', value_name = "NAME", help_heading = CLASSIFIERS)]
    pub loss: Vec<Loss>,
    /// Whether a learnt number scales the residual beside each mixer [default: false].
    #[arg(long, value_delimiter = ',', value_name = "BOOL", help_heading = CLASSIFIERS)]
    pub lambda_skip: Vec<bool>,
}

impl ClassifierFlags {
    /// These flags on top of `base`.
    #[must_use]
    pub(super) fn over(&self, base: &Self) -> Self {
        let base = base.clone();
        Self {
            dataset: given(&self.dataset, base.dataset),
            contour_length: given(&self.contour_length, base.contour_length),
            val_examples: given(&self.val_examples, base.val_examples),
            warmup_epochs: given(&self.warmup_epochs, base.warmup_epochs),
            input: given(&self.input, base.input),
            pool: given(&self.pool, base.pool),
            mask: given(&self.mask, base.mask),
            dual: given(&self.dual, base.dual),
            loss: given(&self.loss, base.loss),
            lambda_skip: given(&self.lambda_skip, base.lambda_skip),
        }
    }
}
