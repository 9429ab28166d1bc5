//! Runs that steps are made of.

use crate::bench::ops::{PAIRS, TASKS, VOCABULARY};
use crate::config::{Precision, Protocol, RunConfig};
use crate::error::Result;
use crate::model::protocol::Request;
use crate::tasks::mqar::MqarConfig;
use crate::tasks::Generator;
use candle_core::DType;
use std::collections::BTreeMap;

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
        let [batch, seq_len, d_model, d_state] = self.sizes;
        let request = Request {
            protocol: Protocol::Reference,
            mixer: mixer.to_owned(),
            variant: None,
            options: BTreeMap::new(),
            d_model,
            d_state,
            n_heads: 1,
            n_layers: 2,
            task: MqarConfig {
                data: Generator::Native,
                data_seed: 0,
                vocab_size: self.vocabulary,
                seq_len,
                kv_pairs: self.pairs,
                train_examples: steps * batch,
                test_examples: 1,
            },
            lr: 1e-3,
            epochs: 1,
            batch_size: Some(batch),
            micro_batch: None,
            weight_decay: 0.1,
            precision: match io {
                DType::BF16 => Precision::Bf16,
                _ => Precision::F32,
            },
            dropout,
            attn_dropout: None,
            expand: None,
            seed: 123,
        };
        request.resolve()
    }
}
