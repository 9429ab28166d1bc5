//! What a protocol fills in: from the few things a person names to a complete [`RunConfig`].

use super::mixers;
use crate::config::{
    Layout, ModelConfig, MqarConfig, Protocol, RunConfig, Schedule, StateMixer, TaskConfig,
    TrainConfig, FORMAT,
};
use crate::error::{self, Error, Result};
use crate::mixers::{Entry, Home};
use std::collections::BTreeMap;

/// Tokens a step in every config of the paper: 32,768.
const TOKENS_PER_STEP: usize = 32_768;
/// Largest batch of the paper, reached at L = 64.
const LARGEST_BATCH: usize = 512;

/// What was asked for; `None` is left to the protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Protocol.
    pub protocol: Protocol,
    /// Mixer by name.
    pub mixer: String,
    /// Variant of the mixer.
    pub variant: Option<String>,
    /// `NAME=VALUE` options of the mixer.
    pub options: BTreeMap<String, String>,
    /// d.
    pub d_model: usize,
    /// n.
    pub d_state: usize,
    /// s.
    pub n_heads: usize,
    /// Blocks.
    pub n_layers: usize,
    /// The task.
    pub task: MqarConfig,
    /// Learning rate.
    pub lr: f64,
    /// Epochs at most.
    pub epochs: usize,
    /// Examples a step.
    pub batch_size: Option<usize>,
    /// Weight decay.
    pub weight_decay: f64,
    /// Dropout on embeddings and on attention weights.
    pub dropout: Option<f64>,
    /// Seed of weights and dropout.
    pub seed: u64,
}

impl Request {
    /// The complete run, or the rule that the request breaks.
    pub fn resolve(&self) -> Result<RunConfig> {
        let entry = mixers::find(&self.mixer)?;
        let variant = match &self.variant {
            Some(v) => v.as_str(),
            None => entry.default_variant(self.protocol),
        };
        entry.check_variant(variant)?;
        self.check_numbers()?;
        crate::tasks::mqar::check(&self.task)?;
        let home = self.protocol.home(entry.home);
        let dropout = self.dropout.unwrap_or(self.protocol.dropout());
        let model = ModelConfig {
            mixer: self.mixer.clone(),
            variant: variant.to_owned(),
            options: self.options(entry)?,
            d_model: self.d_model,
            d_state: if entry.expands { self.d_state } else { 1 },
            n_heads: self.n_heads,
            n_layers: self.n_layers,
            layout: home.layout,
            state_mixer: home.state_mixer,
            positions: home.positions,
            embed_dropout: dropout,
            attn_dropout: dropout,
        };
        entry.check_sizes(&model)?;
        Ok(RunConfig {
            format: FORMAT,
            seed: self.seed,
            protocol: self.protocol,
            task: TaskConfig::Mqar(self.task.clone()),
            model,
            train: TrainConfig {
                schedule: self.protocol.schedule(),
                lr: self.lr,
                epochs: self.epochs,
                batch_size: self
                    .batch_size
                    .unwrap_or_else(|| batch_size(self.task.seq_len, home)),
                weight_decay: self.weight_decay,
                stop_above: 0.99,
            },
        })
    }

    fn options(&self, entry: &Entry) -> Result<BTreeMap<String, String>> {
        for (name, value) in &self.options {
            let Some(option) = entry.options.iter().find(|o| o.name == name) else {
                let known: Vec<&str> = entry.options.iter().map(|o| o.name).collect();
                if known.is_empty() {
                    let mixer = entry.name;
                    return Err(Error::usage(format!(
                        "--option {name}={value}: mixer `{mixer}` has no options"
                    )));
                }
                return Err(error::unknown(
                    &format!("option of {}", entry.name),
                    name,
                    known,
                ));
            };
            if !(option.accepts)(value) {
                return Err(Error::usage(format!(
                    "--option {name}={value}: not a value of {name}. {}: {}",
                    option.name, option.help
                )));
            }
        }
        let resolved = entry.options.iter().map(|o| {
            let given = self.options.get(o.name).cloned();
            let value = given.unwrap_or_else(|| (o.default)(self.protocol).to_owned());
            (o.name.to_owned(), value)
        });
        Ok(resolved.collect())
    }

    fn check_numbers(&self) -> Result<()> {
        let sizes = [
            ("--d", self.d_model, 65_536),
            ("--n", self.d_state, 65_536),
            ("--heads", self.n_heads, 65_536),
            ("--layers", self.n_layers, 1_000),
            ("--epochs", self.epochs, 1_000_000),
            ("--batch-size", self.batch_size.unwrap_or(1), 1_000_000),
        ];
        for (flag, size, most) in sizes {
            if !(1..=most).contains(&size) {
                return Err(Error::usage(format!(
                    "{flag} must be 1 to {most}, not {size}"
                )));
            }
        }
        positive("--lr", self.lr)?;
        if !(self.weight_decay.is_finite() && self.weight_decay >= 0.0) {
            let w = self.weight_decay;
            return Err(Error::usage(format!(
                "--weight-decay must be 0 or more, not {w}"
            )));
        }
        let p = self.dropout.unwrap_or(0.0);
        if !(0.0..1.0).contains(&p) {
            return Err(Error::usage(format!(
                "--dropout must be in [0, 1), not {p}"
            )));
        }
        Ok(())
    }
}

fn positive(flag: &str, value: f64) -> Result<()> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(Error::usage(format!(
        "{flag} must be a positive number, such as 2e-3, not {value}"
    )))
}

impl Protocol {
    /// The block around a mixer: the released configs, or one GPT-2 block for every mixer.
    fn home(self, released: Home) -> Home {
        let gpt2 = Home {
            layout: Layout::Transformer,
            state_mixer: StateMixer::Mlp,
            positions: true,
            half_batch: false,
        };
        match self {
            Protocol::Reference => released,
            // The text says "for attention": state space models and RNNs see no positions.
            Protocol::Paper => Home {
                positions: released.positions && !released.half_batch,
                ..gpt2
            },
            Protocol::Matched => gpt2,
        }
    }

    fn schedule(self) -> Schedule {
        match self {
            Protocol::Paper => Schedule::WarmupConstant,
            Protocol::Reference | Protocol::Matched => Schedule::CosinePerEpoch,
        }
    }

    fn dropout(self) -> f64 {
        match self {
            Protocol::Paper => 0.0,
            Protocol::Reference | Protocol::Matched => 0.1,
        }
    }
}

/// The paper's batch: 512, 256, 128, 64 at L = 64, 128, 256, 512, and the same tokens elsewhere.
fn batch_size(seq_len: usize, home: Home) -> usize {
    let batch = (TOKENS_PER_STEP / seq_len).clamp(1, LARGEST_BATCH);
    if home.half_batch {
        (batch / 2).max(1)
    } else {
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Generator;

    fn request(mixer: &str, protocol: Protocol) -> Request {
        Request {
            protocol,
            mixer: mixer.into(),
            variant: None,
            options: BTreeMap::new(),
            d_model: 64,
            d_state: 32,
            n_heads: 1,
            n_layers: 2,
            task: MqarConfig {
                data: Generator::Native,
                data_seed: 0,
                vocab_size: 8192,
                seq_len: 64,
                kv_pairs: 4,
                train_examples: 100,
                test_examples: 10,
            },
            lr: 1e-3,
            epochs: 64,
            batch_size: None,
            weight_decay: 0.1,
            dropout: None,
            seed: 123,
        }
    }

    #[test]
    fn the_reference_protocol_is_the_table_of_the_released_configs() {
        let of = |m: &str| request(m, Protocol::Reference).resolve().unwrap();
        for (mixer, layout, state_mixer, positions, batch) in [
            (
                "softmax",
                Layout::Transformer,
                StateMixer::Identity,
                true,
                512,
            ),
            (
                "linear",
                Layout::Transformer,
                StateMixer::Identity,
                true,
                512,
            ),
            (
                "normalized",
                Layout::Transformer,
                StateMixer::Mlp,
                true,
                512,
            ),
            ("s6", Layout::Mamba, StateMixer::None, false, 512),
            ("ssd", Layout::Mamba, StateMixer::None, false, 512),
            (
                "qlstm",
                Layout::Transformer,
                StateMixer::Identity,
                true,
                256,
            ),
            (
                "qlstm-reversed",
                Layout::Transformer,
                StateMixer::Identity,
                true,
                256,
            ),
        ] {
            let run = of(mixer);
            let m = &run.model;
            assert_eq!(
                (m.layout, m.state_mixer, m.positions),
                (layout, state_mixer, positions),
                "{mixer}"
            );
            assert_eq!(
                (run.train.batch_size, m.variant.as_str()),
                (batch, "reference"),
                "{mixer}"
            );
            assert_eq!((m.embed_dropout, m.attn_dropout), (0.1, 0.1), "{mixer}");
        }
        assert_eq!(of("s6").model.options["dt_init"], "zero");
    }

    #[test]
    fn the_paper_protocol_has_one_block_no_dropout_and_positions_for_attention_only() {
        for (mixer, variant, positions) in [
            ("softmax", "paper", true),
            ("s6", "paper", false),
            ("qlstm", "paper", false),
            ("ssd", "reference", false),
        ] {
            let run = request(mixer, Protocol::Paper).resolve().unwrap();
            assert_eq!(
                (run.model.variant.as_str(), run.model.positions),
                (variant, positions),
                "{mixer}"
            );
            assert_eq!(
                (run.model.layout, run.model.state_mixer),
                (Layout::Transformer, StateMixer::Mlp)
            );
            assert_eq!((run.model.embed_dropout, run.train.batch_size), (0.0, 512));
            assert_eq!(run.train.schedule, Schedule::WarmupConstant);
        }
        assert_eq!(
            request("s6", Protocol::Paper)
                .resolve()
                .unwrap()
                .model
                .options["dt_init"],
            "mamba"
        );
    }

    #[test]
    fn the_matched_protocol_gives_every_mixer_the_same_block() {
        for entry in mixers::MIXERS {
            let run = request(entry.name, Protocol::Matched).resolve().unwrap();
            let m = &run.model;
            assert_eq!(
                (m.layout, m.state_mixer, m.positions),
                (Layout::Transformer, StateMixer::Mlp, true)
            );
            assert_eq!((run.train.batch_size, m.embed_dropout), (512, 0.1));
        }
    }

    #[test]
    fn batches_hold_the_papers_32768_tokens() {
        let home = mixers::find("softmax").unwrap().home;
        let batches = [32, 64, 128, 256, 512, 65_536].map(|l| batch_size(l, home));
        assert_eq!(batches, [512, 512, 256, 128, 64, 1]);
    }

    #[test]
    fn a_state_expansion_that_nothing_reads_does_not_make_another_run() {
        let mut wide = request("qlstm", Protocol::Reference);
        let id = wide.resolve().unwrap().id();
        wide.d_state = 256;
        assert_eq!(wide.resolve().unwrap().id(), id);
    }

    #[test]
    fn every_part_of_the_config_changes_the_id_and_field_order_does_not() {
        let base = request("s6", Protocol::Reference).resolve().unwrap();
        let text = base.canonical();
        assert_eq!(RunConfig::parse(&text, "here").unwrap().id(), base.id());
        let changes: [fn(&mut RunConfig); 6] = [
            |c| c.seed += 1,
            |c| c.train.lr *= 2.0,
            |c| c.model.d_state += 1,
            |c| c.protocol = Protocol::Matched,
            |c| drop(c.model.options.insert("dt_init".into(), "mamba".into())),
            |c| match &mut c.task {
                TaskConfig::Mqar(m) => m.data_seed += 1,
            },
        ];
        for change in changes {
            let mut other = base.clone();
            change(&mut other);
            assert_ne!(other.id(), base.id());
        }
    }

    #[test]
    fn wrong_requests_name_the_flag_and_what_would_be_right() {
        let message = |change: fn(&mut Request)| {
            let mut r = request("softmax", Protocol::Reference);
            change(&mut r);
            r.resolve().unwrap_err().to_string()
        };
        let mixer = message(|r| r.mixer = "linnear".into());
        assert!(
            mixer.contains("unknown mixer `linnear`. Did you mean `linear`?"),
            "{mixer}"
        );
        let variant = message(|r| r.variant = Some("papr".into()));
        assert!(variant.contains("Did you mean `paper`?"), "{variant}");
        assert!(message(|r| r.lr = -1.0).contains("--lr must be a positive number"));
        assert!(message(|r| r.lr = f64::NAN).contains("--lr"));
        assert!(message(|r| r.dropout = Some(1.0)).contains("--dropout"));
        assert!(message(|r| r.n_heads = 3).contains("--heads 3 does not divide --d 64"));
        assert!(message(|r| r.batch_size = Some(0)).contains("--batch-size"));
        assert!(message(|r| r.d_model = 0).contains("--d must be"));
        let option = message(|r| drop(r.options.insert("dt_init".into(), "x".into())));
        assert!(option.contains("has no options"), "{option}");
    }
}
