//! Asynchronous copies: words to a GPU and a number back, without blocking the host.

use super::View;
use candle_core::{bail, DType, Result};

/// Implementation of a [`Mailbox`] on a machine; sizes and types have been checked by the caller.
pub trait Carrier {
    /// Copies the words of all parts to `to`, after all earlier launches. Waits until the previous copies are complete.
    fn send(&mut self, parts: &[&[u32]], to: View) -> Result<()>;
    /// Copies a number to the host, after all earlier launches.
    fn fetch(&mut self, from: View) -> Result<()>;
    /// Waits for the last number that was fetched, and returns it.
    fn wait(&self) -> Result<f32>;
}

/// Page-locked memory of the host. The GPU reads and writes it in the order of launches, and the host does not wait for
/// it.
pub struct Mailbox {
    words: usize,
    carrier: Box<dyn Carrier>,
}

impl Mailbox {
    pub(super) fn new(words: usize, carrier: Box<dyn Carrier>) -> Self {
        Self { words, carrier }
    }

    /// Copies all its words, part after part, to `to`. Waits only for its own previous copy.
    pub fn send(&mut self, parts: &[&[u32]], to: View) -> Result<()> {
        let count = parts.iter().map(|part| part.len()).sum();
        if [count, to.len()] != [self.words; 2] || to.dtype() != DType::U32 {
            bail!("{count} words to {} of {:?} by a mailbox of {}", to.len(), to.dtype(), self.words);
        }
        self.carrier.send(parts, to)
    }

    /// Copies an f32 to the host, after all earlier launches.
    pub fn fetch(&mut self, from: View) -> Result<()> {
        if from.dtype() != DType::F32 || from.len() != 1 {
            bail!("a mailbox brings back one number of f32");
        }
        self.carrier.fetch(from)
    }

    /// Waits for the last number that was fetched, and returns it.
    pub fn wait(&self) -> Result<f32> {
        self.carrier.wait()
    }
}
