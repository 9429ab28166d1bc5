//! The pass that computes the gradients through time of a network on an example.

use super::gradients::{StateGradients, StateProbes};
use super::measures::evenly;
use super::room::NUMBER;
use super::subject::{Answers, Example, Network, SubjectModel};
use crate::error::{ensure, refuse, Result};
use crate::model::{Classifier, Io, LanguageModel};
use crate::store::check_memory;
use candle_core::{Device, Tensor};

/// Largest number of answers whose losses are followed one by one.
const ANSWERS: usize = 8;
/// Numbers that a step keeps for the backward pass, for each number of the state and each channel of a layer.
const KEPT: f64 = 24.0;

impl Network {
    /// Gradients through time of each layer on an example. Fails without an answer, for a mixer that cannot be read token
    /// by token, and if the memory does not suffice.
    pub(super) fn state_gradients(&self, example: &Example) -> Result<Vec<StateGradients>> {
        if self.config.model.is_bidirectional() {
            refuse!(flag "--gradients", "{} reads its tokens in both directions, so that it has no state h_t that all later tokens follow from", self.name);
        }
        let tokens = &example.tokens[..];
        match (&self.body, &example.answers) {
            (SubjectModel::Language(model), Answers::Tokens(answers)) => self.of_answers(model, tokens, answers),
            (SubjectModel::Mapped(_), Answers::Tokens(answers)) => {
                let io = Io::of(&self.config.task)?;
                let model = LanguageModel::new(&self.config.model, io, &self.params())?;
                self.of_answers(&model, tokens, answers)
            }
            (SubjectModel::Classifier(model), Answers::Document { second, label }) => {
                self.of_document(model, tokens, second.as_deref(), *label)
            }
            _ => refuse!(flag "--gradients", "random tokens have no label for {}; use --input task", self.name),
        }
    }

    /// Refuses a model with a mixer that cannot be stepped through time.
    fn not_by_tokens<T>(&self) -> Result<T> {
        refuse!(flag "--gradients", "{} cannot be read token by token, so that it has no state h_t", self.name)
    }

    fn check_room(&self, sequences: usize, seq_len: usize, state: usize) -> Result<()> {
        let model = &self.config.model;
        let of_token = KEPT * (state + model.n_layers * model.d_model) as f64;
        let bytes = NUMBER * sequences as f64 * seq_len as f64 * of_token;
        check_memory(bytes, &format!("--gradients at --seq-len {seq_len}"), "take a smaller --seq-len")?;
        Ok(())
    }

    /// Gradients of a model with `answers` at some `tokens`: one copy of the sequence for the loss of all of them, and one
    /// each for the losses of a few.
    fn of_answers(
        &self,
        model: &LanguageModel,
        tokens: &[u32],
        answers: &[(usize, u32)],
    ) -> Result<Vec<StateGradients>> {
        let seq_len = tokens.len();
        ensure!(
            !answers.is_empty(),
            flag "--gradients", "the {seq_len} tokens of the input have no answer; use --input task, or a larger --seq-len");
        let chosen: Vec<(usize, u32)> = evenly(answers.len(), ANSWERS).into_iter().map(|i| answers[i]).collect();
        let sequences = 1 + chosen.len();
        self.check_room(sequences, seq_len, model.state_size(seq_len))?;
        let mut probes = StateProbes::new(self.config.model.n_layers);
        let tokens = Tensor::from_slice(&tokens.repeat(sequences), (sequences, seq_len), &Device::Cpu)?;
        let Some(hidden) = model.hidden_by_steps(&tokens, &mut |layer, state| probes.add(layer, state))? else {
            return self.not_by_tokens();
        };
        let hidden = hidden.flatten_to(1)?;
        let loss = |rows: Vec<usize>, labels: Vec<u32>| -> Result<Tensor> {
            let rows: Vec<u32> = rows.into_iter().map(|row| row as u32).collect();
            let count = rows.len();
            let hidden = hidden.index_select(&Tensor::from_vec(rows, count, &Device::Cpu)?, 0)?;
            let mean = model.classify(&hidden, &Tensor::from_vec(labels, count, &Device::Cpu)?)?.loss;
            Ok(mean)
        };
        let (places, labels) = answers.iter().copied().unzip();
        let of_all = loss(places, labels)?;
        let rows = chosen.iter().enumerate().map(|(copy, (at, _))| (copy + 1) * seq_len + at).collect();
        let of_each = (loss(rows, chosen.iter().map(|(_, label)| *label).collect())? * chosen.len() as f64)?;
        let norms = probes.norms(&(of_all + of_each)?, sequences)?;
        // The decoder of an auto-encoder reads the state after the last token.
        let read_at = |at: usize| if model.is_auto_encoder() { seq_len - 1 } else { at };
        let of_layer = |tokens: Vec<Vec<f64>>| {
            let lags = 1..=chosen.iter().map(|(at, _)| read_at(*at)).max().unwrap_or(0);
            let share = |lag: usize| {
                let ends = chosen.iter().enumerate().map(|(copy, (at, _))| (copy + 1, read_at(*at)));
                let sums = ends.filter(|(_, at)| *at >= lag).fold([0.0; 2], |[part, whole], (copy, at)| {
                    [part + tokens[at - lag][copy], whole + tokens[at - 1][copy]]
                });
                sums[0] / sums[1]
            };
            StateGradients {
                by_token: tokens[..seq_len - 1].iter().map(|of_copies| of_copies[0]).collect(),
                by_lag: lags.map(share).collect(),
            }
        };
        Ok(norms.into_iter().map(of_layer).collect())
    }

    /// Gradients of a classifier with respect to its states in a document, the first of two if there is a second one.
    fn of_document(
        &self,
        model: &Classifier,
        first: &[u32],
        second: Option<&[u32]>,
        label: u32,
    ) -> Result<Vec<StateGradients>> {
        let documents: Vec<&[u32]> = [Some(first), second].into_iter().flatten().collect();
        let seq_len = documents.iter().map(|tokens| tokens.len()).max().unwrap_or(0);
        self.check_room(documents.len(), seq_len, model.state_size(seq_len))?;
        let padded = documents.iter().flat_map(|tokens| (0..seq_len).map(|i| tokens.get(i).copied().unwrap_or(0)));
        let tokens = Tensor::from_vec(padded.collect::<Vec<u32>>(), (documents.len(), seq_len), &Device::Cpu)?;
        let lengths: Vec<u32> = documents.iter().map(|tokens| tokens.len() as u32).collect();
        let lengths = Tensor::new(lengths, &Device::Cpu)?;
        let mut probes = StateProbes::new(self.config.model.n_layers);
        let Some(hidden) = model.hidden_by_steps(&tokens, &mut |layer, state| probes.add(layer, state))? else {
            return self.not_by_tokens();
        };
        let loss = model.classify_hidden(&hidden, &lengths, &Tensor::new(&[label], &Device::Cpu)?)?.loss;
        let norms = probes.norms(&loss, documents.len())?;
        let of_layer = |tokens: Vec<Vec<f64>>| {
            let read = first.len().min(seq_len - 1); // nothing reads the last state
            let own = tokens[..read].iter().map(|of_documents| of_documents[0]);
            StateGradients { by_token: own.collect(), by_lag: Vec::new() }
        };
        Ok(norms.into_iter().map(of_layer).collect())
    }
}
