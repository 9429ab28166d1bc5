//! A run of the Long Range Arena: the row of its dataset and mixer, under a protocol, with what was
//! asked for instead.
//!
//! | | reference | paper | matched |
//! |---|---|---|---|
//! | row | of the released config | linear attention's for attention, else as released | linear attention's |
//! | block | released | GPT-2 | GPT-2 |
//! | loss | softmax twice | cross-entropy | cross-entropy |
//! | padding | seen | seen | masked |
//! | schedule | released cosine | 10 % warm-up, then constant | released cosine |
//! | text of S6 | one number | embedded | embedded |

mod sizes;

use super::rows::{row, Kind, Row};
use super::{mixers, rules, Asked, Preset, Task};
use crate::config::{
    ClassifierConfig, Dual, Head, Input, Layout, Loss, ModelConfig, Protocol, RunConfig, Schedule,
    StateMixer, TrainConfig, FORMAT,
};
use crate::error::{Error, Result};
use crate::mixers::Entry;
use crate::tasks::lra::{LraConfig, LraDataset, HARD_CONTOUR};
use crate::tasks::Generator;
use std::collections::BTreeMap;

/// Tokens whose activations exist at one time unless told otherwise.
const TOKENS_AT_ONCE: usize = 32_768;

/// The complete run that was asked for, or the rule that it breaks.
pub(super) fn resolve(asked: &Asked) -> Result<RunConfig> {
    let protocol = asked.protocol.unwrap_or(Protocol::Reference);
    let preset = asked.preset.unwrap_or(match asked.dataset {
        Some(_) => Preset::Full,
        None => Preset::Quick,
    });
    let dataset = asked.dataset.unwrap_or(LraDataset::Listops);
    let entry = mixers::find(asked.mixer.as_deref().unwrap_or("softmax"))?;
    let chosen = Chosen::new(entry, protocol, dataset, preset);
    chosen.check_numbers(asked)?;
    let task = chosen.task(asked);
    crate::tasks::lra::check(&task)?;
    let model = chosen.model(asked)?;
    entry.check_sizes(&model)?;
    let train = chosen.train(asked, &task);
    Ok(RunConfig {
        format: FORMAT,
        seed: asked.seed.unwrap_or(Task::Lra.entry().seed),
        protocol,
        task: task.into(),
        model,
        train,
    })
}

/// What follows from mixer, protocol, dataset and preset.
struct Chosen {
    entry: &'static Entry,
    protocol: Protocol,
    dataset: LraDataset,
    preset: Preset,
    attention: bool,
    kind: Kind,
    row: Row,
}

impl Chosen {
    fn new(entry: &'static Entry, protocol: Protocol, dataset: LraDataset, preset: Preset) -> Self {
        let attention = entry.family.is_attention();
        let kind = match entry.name {
            _ if protocol == Protocol::Matched => Kind::Linear,
            _ if attention && protocol == Protocol::Paper => Kind::Linear,
            "softmax" => Kind::Softmax,
            name if name.starts_with("normalized") => Kind::Normalized,
            _ if attention => Kind::Linear,
            name if name.starts_with("ssd") => Kind::Ssd,
            "rg-lru" => Kind::Hawk,
            // The other RNNs have no released classifier; they take the place of S6.
            _ => Kind::StateSpace,
        };
        Self {
            entry,
            protocol,
            dataset,
            preset,
            attention,
            kind,
            row: preset.shrunk(row(dataset, kind), dataset),
        }
    }

    fn task(&self, asked: &Asked) -> LraConfig {
        let generated = self.dataset.can_be_generated();
        let data = asked.data.unwrap_or(if generated {
            Generator::Native
        } else {
            Generator::Files
        });
        let selects = self.protocol != Protocol::Reference;
        let [train, val, test] = self.preset.examples(self.dataset, selects);
        let seq_len = self.preset.seq_len(self.dataset, data);
        LraConfig {
            dataset: self.dataset,
            data,
            contour_length: asked
                .contour_length
                .or(self.preset.contour_length(self.dataset, data))
                .filter(|&length| length != HARD_CONTOUR),
            data_seed: asked.data_seed.unwrap_or(0),
            vocab_size: asked.vocab_size.unwrap_or(self.dataset.vocab_size()),
            seq_len: asked.seq_len.unwrap_or(seq_len),
            train_examples: asked.train_examples.unwrap_or(train),
            val_examples: asked.val_examples.unwrap_or(val),
            test_examples: asked.test_examples.unwrap_or(test),
        }
    }

    fn model(&self, asked: &Asked) -> Result<ModelConfig> {
        let (entry, row) = (self.entry, self.row);
        let variant = match &asked.variant {
            Some(variant) => variant.as_str(),
            None => entry.default_variant(self.protocol),
        };
        entry.check_variant(variant)?;
        let (layout, state_mixer) = self.block();
        let d_model = asked.d.unwrap_or(row.d);
        let heads = if entry.heads && self.attention {
            row.heads
        } else {
            1
        };
        let dropout = asked.dropout.unwrap_or(row.dropout);
        let widens = entry.widens && variant == entry.variants[0];
        let expand = widens.then_some(row.expand);
        Ok(ModelConfig {
            mixer: entry.name.to_owned(),
            variant: variant.to_owned(),
            options: rules::options(entry, variant, &self.options(asked, variant), self.protocol)?,
            d_model,
            d_state: if entry.expands {
                asked.n.unwrap_or(row.n)
            } else {
                1
            },
            n_heads: asked.heads.unwrap_or(heads),
            n_layers: asked.layers.unwrap_or(row.layers),
            layout,
            state_mixer,
            positions: self.attention,
            embed_dropout: dropout,
            attn_dropout: asked.attn_dropout.unwrap_or(row.attn_dropout),
            expand: asked.expand.or(expand),
            classifier: Some(self.classifier(asked, dropout)),
            language: None,
        })
    }

    /// Options of the mixer; what the released classifiers start from where it is not MQAR's.
    fn options(&self, asked: &Asked, variant: &str) -> BTreeMap<String, String> {
        let uniform = matches!(self.dataset, LraDataset::Listops | LraDataset::Image);
        let usual: &[_] = if uniform && self.kind == Kind::Hawk {
            &[rules::SMALL_STEPS, ("lambda_init", "uniform")]
        } else {
            &[rules::SMALL_STEPS]
        };
        rules::with_usual(self.entry, variant, &asked.options, usual)
    }

    fn block(&self) -> (Layout, StateMixer) {
        if self.protocol != Protocol::Reference {
            return (Layout::Transformer, StateMixer::Mlp);
        }
        match self.kind {
            Kind::Softmax | Kind::Linear | Kind::Normalized => (Layout::Shared, StateMixer::Mlp),
            Kind::Hawk => (Layout::Hawk, StateMixer::GatedMlp),
            Kind::StateSpace | Kind::Ssd if self.row.prenorm => (Layout::Prenorm, StateMixer::Glu),
            Kind::StateSpace | Kind::Ssd => (Layout::Postnorm, StateMixer::Glu),
        }
    }

    fn classifier(&self, asked: &Asked, dropout: f64) -> ClassifierConfig {
        let reference = self.protocol == Protocol::Reference;
        // Attention has a table even of grays; others read grays as numbers where the protocol does
        // not give every mixer one body.
        let scalar = !self.attention
            && (reference || self.protocol == Protocol::Paper && self.dataset.is_picture());
        let hawk = reference && self.kind == Kind::Hawk;
        let mlp_head = self.attention || !reference;
        ClassifierConfig {
            input: asked
                .input
                .or(self.preset.input(self.dataset))
                .unwrap_or(if scalar {
                    Input::Scalar
                } else {
                    Input::Embedding
                }),
            mlp_width: asked.mlp_width.unwrap_or(self.row.mlp),
            dropout,
            lambda_skip: asked.lambda_skip.unwrap_or(false),
            pool: asked.pool.unwrap_or(self.preset.pool(self.dataset)),
            mask: asked.mask.unwrap_or(self.protocol == Protocol::Matched),
            pad_to_longest: hawk && !self.dataset.is_picture(),
            head: if mlp_head { Head::Mlp } else { Head::Linear },
            dual: asked.dual.unwrap_or(Dual::Logits),
            loss: asked.loss.unwrap_or(if reference {
                Loss::DoubleSoftmax
            } else {
                Loss::Ce
            }),
        }
    }

    fn train(&self, asked: &Asked, task: &LraConfig) -> TrainConfig {
        let row = self.row;
        let batch_size = asked.batch_size.unwrap_or(row.batch);
        let at_once = TOKENS_AT_ONCE / (task.seq_len * self.dataset.documents());
        let fitting = (at_once.max(1) < batch_size).then_some(at_once.max(1));
        let constant = self.protocol == Protocol::Paper;
        TrainConfig {
            schedule: if constant {
                Schedule::WarmupConstant
            } else {
                Schedule::WarmupCosine
            },
            lr: asked.lr.unwrap_or(row.lr),
            warmup_epochs: asked
                .warmup_epochs
                .unwrap_or(if constant { 0 } else { row.warmup }),
            epochs: asked.epochs.unwrap_or(row.epochs),
            batch_size,
            weight_decay: asked.weight_decay.unwrap_or(row.weight_decay),
            precision: asked.precision.unwrap_or_default(),
            micro_batch: asked
                .micro_batch
                .map_or(fitting, |size| (size < batch_size).then_some(size)),
            adam: None,
            stop_above: 1.0,
        }
    }

    fn check_numbers(&self, asked: &Asked) -> Result<()> {
        rules::check_numbers(asked)?;
        if asked.warmup_epochs.is_some() && self.protocol == Protocol::Paper {
            return Err(Error::usage(
                "--warmup-epochs: protocol paper warms up over a tenth of all steps; leave it out",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
