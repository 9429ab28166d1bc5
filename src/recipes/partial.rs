//! Settings of a run that is not complete yet: those of a layer, and those that are merged so far.

use super::draft::Origin;
use crate::config::{
    BlockConfig, Decay, Dual, HeadKind, Hybrid, InitScheme, InputMap, Layout, Loss, MapInit, Pool, PositionEmbedding,
    Precision, Protocol, Rotary, Schedule, Setting, StateMixer,
};
use crate::tasks::wikitext::Tokenizer;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// Defines [`Partial`] and [`MergedSettings`], with a field for each setting of the table: its name with underscores.
macro_rules! settings {
    ($($field:ident: $type:ty,)*) => {
        /// Settings of a layer, each optional.
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
        pub(super) struct Partial {
            $(pub $field: Option<$type>,)*
        }

        /// Settings that are merged so far, with their origins.
        #[derive(Default)]
        pub(super) struct MergedSettings {
            $(pub $field: Slot<$type>,)*
            /// Settings of tables other than that of the program.
            others: BTreeMap<&'static str, Slot<Value>>,
        }

        #[cfg(test)]
        impl Partial {
            /// Value of the setting called `name`.
            pub fn get(&self, name: &str) -> Option<Value> {
                match name.replace('-', "_").as_str() {
                    $(stringify!($field) => self.$field.as_ref().map(json),)*
                    _ => None,
                }
            }
        }

        impl MergedSettings {
            pub fn merge(&mut self, layer: &Partial, origin: &Origin) {
                $(if let Some(value) = &layer.$field {
                    self.$field.set(value.clone(), origin.clone());
                })*
            }

            pub fn set(&mut self, setting: &Setting, value: &Value, origin: Origin) -> serde_json::Result<()> {
                match setting.name.replace('-', "_").as_str() {
                    $(stringify!($field) => self.$field.read(value, origin)?,)*
                    _ => self.others.entry(setting.name).or_default().read(value, origin)?,
                }
                Ok(())
            }

            /// Removes the value of a setting that layers set.
            pub fn unset(&mut self, setting: &Setting) {
                match setting.name.replace('-', "_").as_str() {
                    $(stringify!($field) => self.$field.unset(),)*
                    _ => drop(self.others.remove(setting.name)),
                }
            }

            /// Value of the setting called `name`, and its origin.
            pub fn get(&self, name: &str) -> Option<(Value, &Origin)> {
                match name.replace('-', "_").as_str() {
                    $(stringify!($field) => self.$field.json(),)*
                    _ => self.others.get(name)?.json(),
                }
            }
        }
    };
}

settings! {
    attn_dropout: f64, auto_encoder: bool, batch_size: usize, beta1: f64, beta2: f64, bidirectional: bool, block: BlockConfig, clip: ClipNorm,
    contour_length: usize, copy_tokens: usize, corpus: String, d: usize, data: String, data_seed: u64,
    dataset: String, decay: Decay, dropout: f64, dual: Dual, embed_dropout: f64, eos_between_articles: bool,
    epochs: usize, eps: f64, expand: f64, form: String, fresh_examples: bool, from: String, from_digest: String, group: String, head: HeadKind, heads: usize, hybrid: Hybrid, init: InitScheme, input: InputMap,
    key_tokens: usize, kv_pairs: usize, lambda_skip: bool, largest_batch: usize, layers: usize, layout: Layout,
    loss: Loss, lr: f64, map_init: MapInit, mask: bool, micro_batch: usize, mixer: String, mlp_width: usize, n: usize, n_positions: usize, noise: f64, overwrites: usize,
    pad_to_longest: bool, passes: usize, permuted: bool, picture: String, pool: Pool, position_embedding: PositionEmbedding, positions: bool,
    precision: Precision, protocol: Protocol, rotary: Rotary, rotary_dims: usize, schedule: Schedule, seed: u64,
    seq_len: usize, short_conv: bool, skill: String, source_digest: String, state_mixer: StateMixer, state_norm: bool, state_size: usize, stop_at: f64, test_examples: usize,
    test_seq_len: usize, tokenizer: Tokenizer, tokens_at_once: usize, tokens_per_step: usize, train_examples: usize,
    val_examples: usize, variant: String, vocab_size: usize, warmup_epochs: usize, weight_decay: f64,
}

/// A setting that is merged so far.
pub(super) struct Slot<T> {
    value: Option<T>,
    origin: Option<Origin>,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self { value: None, origin: None }
    }
}

impl<T: Clone + Serialize + DeserializeOwned> Slot<T> {
    /// Value so far.
    pub fn get(&self) -> Option<T> {
        self.value.clone()
    }

    pub fn is_given(&self) -> bool {
        matches!(self.origin, Some(Origin::Given(_)))
    }

    /// Whether the user or the config of another run sets it.
    pub fn is_fixed(&self) -> bool {
        matches!(self.origin, Some(Origin::Given(_) | Origin::Config(_)))
    }

    /// Sets it to the value of a rule, replacing those of layers but not the user's.
    pub fn rule(&mut self, value: T, why: &'static str) {
        if !self.is_given() {
            self.set(value, Origin::Rule(why));
        }
    }

    /// Same as [`Self::rule`], unless it has a value.
    pub fn default(&mut self, value: T, why: &'static str) {
        if self.value.is_none() {
            self.set(value, Origin::Rule(why));
        }
    }

    /// Removes the value that layers set.
    pub fn unset(&mut self) {
        if !self.is_given() {
            (self.value, self.origin) = (None, None);
        }
    }

    /// Records another value than the one set, or none; the origin stays.
    pub fn record(&mut self, value: Option<T>) {
        self.value = value;
    }

    fn set(&mut self, value: T, origin: Origin) {
        (self.value, self.origin) = (Some(value), Some(origin));
    }

    fn read(&mut self, value: &Value, origin: Origin) -> serde_json::Result<()> {
        self.set(T::deserialize(value)?, origin);
        Ok(())
    }

    fn json(&self) -> Option<(Value, &Origin)> {
        Some((json(self.value.as_ref()?), self.origin.as_ref()?))
    }
}

/// A norm; 0 means that there is none, which a config records as null.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct ClipNorm(f64);

impl Serialize for ClipNorm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Some(self.0).filter(|norm| *norm != 0.0).serialize(serializer)
    }
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("a setting is plain data")
}
