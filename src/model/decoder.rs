//! Text token by token: each costs one step of every mixer, whatever came before.

use super::block::Stream;
use super::Model;
use crate::mixers::State;
use crate::ops;
use candle_core::{bail, Result, Tensor};

/// What a model remembers of the tokens it has read.
#[derive(Clone, Debug)]
pub struct Decoder {
    /// One a block.
    states: Vec<State>,
    read: usize,
}

impl Decoder {
    /// Tokens read so far.
    pub fn read(&self) -> usize {
        self.read
    }

    /// Bytes that it holds, over all sequences: as many after each token, or more with each where the mixer
    /// is softmax.
    pub fn bytes(&self) -> usize {
        let tensors = self.states.iter().flat_map(|state| &state.0);
        tensors
            .map(|t| t.elem_count() * t.dtype().size_in_bytes())
            .sum()
    }
}

impl Model {
    /// What is remembered before the first token of `batch` sequences; `None` where the mixer has no form that
    /// goes token by token.
    pub fn begin(&self, batch: usize) -> Result<Option<Decoder>> {
        let states = self.blocks.iter().map(|block| {
            let recurrent = block.mixer.recurrent();
            recurrent.map(|mixer| mixer.init(batch)).transpose()
        });
        let states: Option<Vec<State>> = states.collect::<Result<_>>()?;
        Ok(states.map(|states| Decoder { states, read: 0 }))
    }

    /// Reads the next token of each sequence, `tokens` `(batch)` u32; gives the logits `(batch, vocab_size)` of
    /// what follows it. Where positions are learnt, there is an end to them.
    pub fn step(&self, tokens: &Tensor, decoder: &mut Decoder) -> Result<Tensor> {
        let at = decoder.read;
        let mut stream = Stream {
            residual: self.embedded(tokens, at)?,
            branch: None,
        };
        for (block, state) in self.blocks.iter().zip(&mut decoder.states) {
            let Some(mixer) = block.mixer.recurrent() else {
                bail!("the decoder belongs to another model");
            };
            stream = block.step(stream, mixer, at, state)?;
        }
        decoder.read += 1;
        self.logits(&stream.normed(&self.norm_f)?.1)
    }

    /// The vectors `(batch, d)` of tokens that stand at `at`.
    fn embedded(&self, tokens: &Tensor, at: usize) -> Result<Tensor> {
        let tokens = tokens.unsqueeze(1)?;
        let place = |positions: &Tensor| positions.narrow(0, at, 1);
        let place = self.positions.as_ref().map(place).transpose()?;
        ops::embedding(
            &tokens,
            &self.tokens,
            place.as_ref(),
            None,
            self.activations,
        )?
        .squeeze(1)
    }
}
