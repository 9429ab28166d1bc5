//! How far the initial weights of a language model spread. Classifiers start by schemes of their own.

use crate::config::{InitScheme, ModelConfig};

/// Of the released language model.
const STD: f64 = 0.02;

/// Standard deviation of the initial embeddings, and of weights that read the residual stream.
pub(crate) fn input_std(model: &ModelConfig) -> f64 {
    match scheme(model) {
        Some(InitScheme::Pythia) => (2.0 / (5.0 * model.d_model as f64)).sqrt(),
        Some(InitScheme::Hf) | None => STD,
    }
}

/// Standard deviation of the initial maps back to the residual stream.
pub(crate) fn output_std(model: &ModelConfig) -> f64 {
    match scheme(model) {
        Some(InitScheme::Pythia) => 2.0 / (model.n_layers as f64 * (model.d_model as f64).sqrt()),
        Some(InitScheme::Hf) => STD,
        // Shrunk with depth: GPT-2's rule.
        None => STD / ((2 * model.n_layers) as f64).sqrt(),
    }
}

fn scheme(model: &ModelConfig) -> Option<InitScheme> {
    model.language.as_ref().map(|language| language.init)
}
