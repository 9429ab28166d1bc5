//! Text generation from a prompt, token by token: by the recurrent form where the mixer has one, by another
//! pass over the last window where it has none.

mod sampling;

pub use sampling::{Choice, Sampling};

use super::{Decoder, Model};
use crate::error::{ensure, Result};
use candle_core::{DType, Device, Tensor};

/// A prompt and the tokens generated after it.
pub struct Continuation<'a> {
    model: &'a Model,
    device: Device,
    choice: Choice,
    /// Ids that may be generated: the head may have more rows than the tokenizer has tokens.
    tokens: usize,
    written: Vec<u16>,
    /// The last ids that the model has not read yet.
    unread: usize,
    form: Form,
    /// Of the next token, one per id.
    logits: Vec<f32>,
}

enum Form {
    Recurrent(Decoder),
    /// A pass over the last tokens, at most so many, for each new one.
    Window(usize),
}

/// The memory of a continuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The states of the mixers, or the cache of keys and values of softmax attention.
    Held {
        /// Its size in bytes.
        bytes: usize,
        /// Tokens read into it.
        read: usize,
    },
    /// Nothing: each new token takes a pass over so many tokens at most.
    Reread(usize),
}

impl<'a> Continuation<'a> {
    /// Reads `prompt`. `tokens` is the number of ids of the tokenizer; a mixer without a recurrent form reads
    /// the last `window` tokens.
    ///
    /// # Errors
    /// A prompt without tokens, or a choice that [`Choice::check`] refuses.
    pub fn begin(
        model: &'a Model,
        prompt: &[u16],
        choice: Choice,
        (tokens, window): (usize, usize),
        device: &Device,
    ) -> Result<Self> {
        choice.check()?;
        ensure!(
            !prompt.is_empty(),
            "a prompt needs at least one token to go on from"
        );
        let form = match model.begin(1)? {
            Some(decoder) => Form::Recurrent(decoder),
            None => Form::Window(window.max(1)),
        };
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

    /// Generates the next token.
    ///
    /// # Errors
    /// Where the logits are not numbers.
    pub fn next_token(&mut self) -> Result<u16> {
        self.read()?;
        let known = self.tokens.min(self.logits.len());
        // Ids are two bytes: no tokenizer has more.
        let id = self.choice.of(&self.logits[..known], self.written.len())? as u16;
        self.written.push(id);
        self.unread = 1;
        Ok(id)
    }

    /// The prompt and the tokens generated after it.
    pub fn ids(&self) -> &[u16] {
        &self.written
    }

    /// The memory held now.
    pub fn memory(&self) -> Memory {
        match &self.form {
            Form::Recurrent(decoder) => Memory::Held {
                bytes: decoder.bytes(),
                read: decoder.read(),
            },
            Form::Window(tokens) => Memory::Reread(*tokens),
        }
    }

    /// Lets the model read all tokens that it has not read. The last token of a text is never read.
    fn read(&mut self) -> Result<()> {
        let tensor = |ids: &[u16]| {
            let ids: Vec<u32> = ids.iter().map(|id| u32::from(*id)).collect();
            Tensor::new(ids, &self.device)
        };
        let (written, unread) = (&self.written, std::mem::take(&mut self.unread));
        let mut logits = None;
        match &mut self.form {
            Form::Recurrent(decoder) => {
                for id in &written[written.len() - unread..] {
                    logits = Some(self.model.step(&tensor(&[*id])?, decoder)?);
                }
            }
            Form::Window(tokens) if unread > 0 => {
                let seen = &written[written.len().saturating_sub(*tokens)..];
                logits = Some(self.model.last_logits(&tensor(seen)?.unsqueeze(0)?)?);
            }
            Form::Window(_) => {}
        }
        if let Some(logits) = logits {
            self.logits = logits.squeeze(0)?.to_dtype(DType::F32)?.to_vec1()?;
        }
        Ok(())
    }
}
