//! Words to a GPU and a number back, while the host goes on.

use super::View;
use candle_core::{bail, DType, Result};

/// How a machine moves what a [`Mailbox`] holds, whose sizes and types have been checked.
pub trait Carrier {
    /// Copies the words of all parts to `to` after what was launched before, once the last copies are over.
    fn send(&mut self, parts: &[&[u32]], to: View) -> Result<()>;
    /// Copies a number to the host, after what was launched before.
    fn fetch(&mut self, from: View) -> Result<()>;
    /// The number that was fetched last, once it has arrived.
    fn wait(&self) -> Result<f32>;
}

/// Page-locked memory of the host: the GPU reads and writes it in the order of launches, and the host does not wait for it.
pub struct Mailbox {
    words: usize,
    carrier: Box<dyn Carrier>,
}

impl Mailbox {
    pub(super) fn new(words: usize, carrier: Box<dyn Carrier>) -> Self {
        Self { words, carrier }
    }

    /// Copies as many words as it holds, part after part, to `to`. Waits for what it copied before, and for nothing else.
    pub fn send(&mut self, parts: &[&[u32]], to: View) -> Result<()> {
        let count = parts.iter().map(|part| part.len()).sum();
        if [count, to.len()] != [self.words; 2] || to.dtype() != DType::U32 {
            bail!(
                "{count} words to {} of {:?} by a mailbox of {}",
                to.len(),
                to.dtype(),
                self.words
            );
        }
        self.carrier.send(parts, to)
    }

    /// Copies a number of f32 to the host, after what was launched before.
    pub fn fetch(&mut self, from: View) -> Result<()> {
        if from.dtype() != DType::F32 || from.len() != 1 {
            bail!("a mailbox brings back one number of f32");
        }
        self.carrier.fetch(from)
    }

    /// The number that was fetched last, once it has arrived.
    pub fn wait(&self) -> Result<f32> {
        self.carrier.wait()
    }
}
