//! Runs that steps are made of.

use crate::bench::ops::{PAIRS, TASKS, VOCABULARY};
use crate::config::RunConfig;
use crate::error::Result;
use crate::recipes;
use candle_core::DType;

/// A step: batch, length, width, states, pairs, vocabulary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Size {
    pub sizes: [usize; 4],
    pairs: usize,
    vocabulary: usize,
}

/// As many tokens as an odd length allows in a blink.
pub(super) const SMALL: Size = Size {
    sizes: [6, 36, 24, 12],
    pairs: 4,
    vocabulary: 96,
};

/// The paper's tasks.
pub(super) fn of_the_paper() -> [Size; 4] {
    std::array::from_fn(|task| Size {
        sizes: TASKS[task],
        pairs: PAIRS[task],
        vocabulary: VOCABULARY,
    })
}

impl Size {
    /// `mixer B,L,d,n`.
    pub fn case(self, mixer: &str) -> String {
        let [b, l, d, n] = self.sizes;
        format!("{mixer} {b},{l},{d},{n}")
    }

    pub fn tokens(self) -> f64 {
        (self.sizes[0] * self.sizes[1]) as f64
    }

    /// A run of `steps` steps under the reference protocol, with its dropout or another.
    pub fn config(
        self,
        mixer: &str,
        steps: usize,
        io: DType,
        dropout: Option<f64>,
    ) -> Result<RunConfig> {
        let [batch, seq_len, d, n] = self.sizes;
        let precision = match io {
            DType::BF16 => "bf16",
            _ => "f32",
        };
        let numbers = [
            ("d", d),
            ("n", n),
            ("vocab-size", self.vocabulary),
            ("seq-len", seq_len),
            ("kv-pairs", self.pairs),
            ("train-examples", steps * batch),
            ("test-examples", 1),
            ("epochs", 1),
            ("batch-size", batch),
        ];
        let numbers = numbers.map(|(name, number)| (name, number.to_string()));
        let dropout = dropout.map(|p| ("dropout", p.to_string()));
        let settings = numbers.iter().chain(&dropout);
        let mut settings: Vec<(&str, &str)> = settings.map(|(k, v)| (*k, v.as_str())).collect();
        settings.extend([("mixer", mixer), ("lr", "1e-3"), ("precision", precision)]);
        recipes::run("mqar", &settings)
    }
}
