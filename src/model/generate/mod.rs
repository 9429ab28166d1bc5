//! Text generation from a prompt, token by token. Mixers with a recurrent form advance their states; for others each
//! token takes a forward pass over the last window.

mod sampling;
mod saved;

pub use sampling::{Sampling, SamplingRule};
pub use saved::check_place;

use super::{Decoder, LanguageModel};
use crate::error::{ensure, Result};
use candle_core::{DType, Device, Tensor};

/// Prompt and the tokens generated after it.
pub struct Continuation<'a> {
    model: &'a LanguageModel,
    device: Device,
    choice: SamplingRule,
    /// Number of ids that may be generated. The head may have more rows than the tokenizer has tokens.
    tokens: usize,
    written: Vec<u32>,
    /// Number of ids at the end of `written` that the model has not read yet.
    unread: usize,
    form: DecodingForm,
    /// Logits of the next token, one per id.
    logits: Vec<f32>,
}

enum DecodingForm {
    Recurrent(Decoder),
    /// A forward pass over at most this many last tokens for each new one.
    Window(usize),
}

/// Memory held by a continuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// States of the mixers, or the cache of keys and values of softmax attention.
    Held {
        /// Size in bytes.
        bytes: usize,
        /// Number of tokens read into it.
        read: usize,
    },
    /// No memory is held; each new token takes a forward pass over at most this many tokens.
    Reread(usize),
}

impl<'a> Continuation<'a> {
    /// Starts a continuation and reads `prompt`. `tokens` is the number of ids of the tokenizer; a mixer without a
    /// recurrent form reads the last `window` tokens. Fails if the prompt is empty or [`SamplingRule::check`] refuses
    /// `choice`.
    pub fn begin(
        model: &'a LanguageModel,
        prompt: &[u32],
        choice: SamplingRule,
        (tokens, window): (usize, usize),
        device: &Device,
    ) -> Result<Self> {
        choice.check()?;
        ensure!(!prompt.is_empty(), "the prompt has no tokens; give at least one");
        let form = model.begin(1)?.map_or(DecodingForm::Window(window.max(1)), DecodingForm::Recurrent);
        let mut text = Self {
            model,
            device: device.clone(),
            choice,
            tokens,
            written: prompt.to_vec(),
            unread: prompt.len(),
            form,
            logits: Vec::new(),
        };
        text.read()?;
        Ok(text)
    }

    /// Generates the next token. Fails if a logit is NaN.
    pub fn next_token(&mut self) -> Result<u32> {
        self.read()?;
        let known = self.tokens.min(self.logits.len());
        let id = self.choice.pick(&self.logits[..known], self.written.len())? as u32;
        self.written.push(id);
        self.unread = 1;
        Ok(id)
    }

    /// Prompt and generated tokens.
    pub fn ids(&self) -> &[u32] {
        &self.written
    }

    /// Memory held now.
    pub fn memory(&self) -> Memory {
        match &self.form {
            DecodingForm::Recurrent(decoder) => Memory::Held { bytes: decoder.bytes(), read: decoder.read },
            DecodingForm::Window(tokens) => Memory::Reread(*tokens),
        }
    }

    /// Feeds the model all tokens that it has not read. The last token of a text is never read.
    fn read(&mut self) -> Result<()> {
        let tensor = |ids: &[u32]| Tensor::new(ids, &self.device);
        let (written, unread) = (&self.written, std::mem::take(&mut self.unread));
        let mut logits = None;
        match &mut self.form {
            DecodingForm::Recurrent(decoder) => {
                let new = &written[written.len() - unread..];
                if decoder.read == 0 && unread > 1 {
                    logits = Some(self.model.read(&tensor(new)?.unsqueeze(0)?, decoder)?);
                } else {
                    for id in new {
                        logits = Some(self.model.step(&tensor(&[*id])?, decoder)?);
                    }
                }
            }
            DecodingForm::Window(tokens) if unread > 0 => {
                let seen = &written[written.len().saturating_sub(*tokens)..];
                logits = Some(self.model.last_logits(&tensor(seen)?.unsqueeze(0)?)?);
            }
            DecodingForm::Window(_) => {}
        }
        if let Some(logits) = logits {
            self.logits = logits.squeeze(0)?.to_dtype(DType::F32)?.to_vec1()?;
        }
        Ok(())
    }
}
