//! Text that goes on from a prompt, token by token: by the recurrent form where the mixer has one, by
//! reading the last window again where it has none.

mod choice;

pub use choice::{Choice, Sampling};

use super::{Decoder, Model};
use crate::error::{Error, Result};
use candle_core::{DType, Device, Tensor};

/// A text that grows.
pub struct Continuation<'a> {
    model: &'a Model,
    device: Device,
    choice: Choice,
    /// Ids that may be written: the head has more rows than the tokenizer has tokens.
    tokens: usize,
    written: Vec<u16>,
    /// How many of the last ids the model has not read yet.
    unread: usize,
    form: Form,
    /// Of the token that comes next, one for each id.
    logits: Vec<f32>,
}

enum Form {
    Recurrent(Decoder),
    /// The last so many tokens are read again for each new one.
    Window(usize),
}

/// What a continuation remembers of the text so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// A state or a cache.
    Held {
        /// Its size.
        bytes: usize,
        /// Tokens it has read.
        read: usize,
    },
    /// Nothing: so many tokens at most are read again for each new one.
    Reread(usize),
}

impl<'a> Continuation<'a> {
    /// Behind `prompt`, which is read at once. `tokens` is how many ids the tokenizer has; a mixer without a
    /// recurrent form sees `window` tokens.
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
        if prompt.is_empty() {
            return Err(Error::usage(
                "a prompt needs at least one token to go on from",
            ));
        }
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

    /// The next token, which the text then ends with.
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

    /// Prompt and what followed it.
    pub fn ids(&self) -> &[u16] {
        &self.written
    }

    /// What is remembered now.
    pub fn memory(&self) -> Memory {
        match &self.form {
            Form::Recurrent(decoder) => Memory::Held {
                bytes: decoder.bytes(),
                read: decoder.read(),
            },
            Form::Window(tokens) => Memory::Reread(*tokens),
        }
    }

    /// Has the model read all that is written. The last token of a text is never read.
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
