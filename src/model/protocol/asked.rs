//! What one run was asked to be, whatever its task; `None` is left to preset and protocol.

use super::{lra, wikitext, Preset, Request};
use crate::config::{
    Decay, Dual, InitScheme, Input, Loss, Pool, Precision, Protocol, Rotary, RunConfig, Schedule,
};
use crate::error::{self, Error, Result};
use crate::tasks::lra::LraDataset;
use crate::tasks::wikitext::{Corpus, Tokenizer};
use crate::tasks::Generator;
use crate::tasks::{self, TaskEntry};
use std::collections::BTreeMap;

/// A task by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Multi-query associative recall.
    Mqar,
    /// The Long Range Arena.
    Lra,
    /// Language modelling on WikiText.
    Wikitext,
}

impl Task {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Mqar, Self::Lra, Self::Wikitext];

    /// As typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mqar => "mqar",
            Self::Lra => "lra",
            Self::Wikitext => "wikitext",
        }
    }

    /// The task called `name`, or the sentence that says which there are.
    pub fn find(name: &str) -> Result<Self> {
        let known = Self::ALL.map(Self::name);
        let found = Self::ALL.into_iter().find(|task| task.name() == name);
        found.ok_or_else(|| error::unknown("task", name, known))
    }

    /// Its row in the table of tasks.
    pub fn entry(self) -> &'static TaskEntry {
        tasks::find(self.name()).expect("every task has a row")
    }
}

/// One value a flag, or none.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)] // each is the flag of its name
pub struct Asked {
    pub preset: Option<Preset>,
    pub mixer: Option<String>,
    pub variant: Option<String>,
    pub protocol: Option<Protocol>,
    pub options: BTreeMap<String, String>,
    pub d: Option<usize>,
    pub n: Option<usize>,
    pub heads: Option<usize>,
    pub layers: Option<usize>,
    pub dataset: Option<LraDataset>,
    pub contour_length: Option<usize>,
    pub seq_len: Option<usize>,
    pub kv_pairs: Option<usize>,
    pub vocab_size: Option<usize>,
    pub train_examples: Option<usize>,
    pub val_examples: Option<usize>,
    pub test_examples: Option<usize>,
    pub data: Option<Generator>,
    pub data_seed: Option<u64>,
    pub lr: Option<f64>,
    pub epochs: Option<usize>,
    pub warmup_epochs: Option<usize>,
    pub batch_size: Option<usize>,
    pub micro_batch: Option<usize>,
    pub weight_decay: Option<f64>,
    pub precision: Option<Precision>,
    pub dropout: Option<f64>,
    pub attn_dropout: Option<f64>,
    pub seed: Option<u64>,
    pub expand: Option<f64>,
    pub mlp_width: Option<usize>,
    pub input: Option<Input>,
    pub pool: Option<Pool>,
    pub mask: Option<bool>,
    pub dual: Option<Dual>,
    pub loss: Option<Loss>,
    pub lambda_skip: Option<bool>,
    pub corpus: Option<Corpus>,
    /// With the rows that a table of tokens needs for it.
    pub tokenizer: Option<(Tokenizer, usize)>,
    pub eos_between_articles: Option<bool>,
    pub rotary: Option<Rotary>,
    pub init: Option<InitScheme>,
    pub schedule: Option<Schedule>,
    pub beta2: Option<f64>,
    pub clip: Option<f64>,
    pub decay: Option<Decay>,
    /// No flag: whether a GPU computes, on which text is trained in bf16 unless told otherwise.
    pub gpu: bool,
}

/// `to` becomes what was asked for, if anything was.
fn set<T: Clone>(to: &mut T, asked: &Option<T>) {
    if let Some(value) = asked {
        *to = value.clone();
    }
}

impl Asked {
    /// The complete run of a task, or the rule that it breaks.
    pub fn resolve(&self, task: Task) -> Result<RunConfig> {
        self.refuse(task)?;
        match task {
            Task::Lra => lra::resolve(self),
            Task::Wikitext => wikitext::resolve(self),
            Task::Mqar => self
                .over(self.preset.unwrap_or_default().request())
                .resolve(),
        }
    }

    /// What only recall knows.
    fn of_recall(&self) -> [(&'static str, bool); 1] {
        [("--kv-pairs", self.kv_pairs.is_some())]
    }

    /// What only generated data have, or files of examples.
    fn of_examples(&self) -> [(&'static str, bool); 2] {
        [
            ("--data", self.data.is_some()),
            ("--data-seed", self.data_seed.is_some()),
        ]
    }

    /// What only classifiers know.
    fn of_classifiers(&self) -> [(&'static str, bool); 10] {
        [
            ("--dataset", self.dataset.is_some()),
            ("--contour-length", self.contour_length.is_some()),
            ("--val-examples", self.val_examples.is_some()),
            ("--warmup-epochs", self.warmup_epochs.is_some()),
            ("--input", self.input.is_some()),
            ("--pool", self.pool.is_some()),
            ("--mask", self.mask.is_some()),
            ("--dual", self.dual.is_some()),
            ("--loss", self.loss.is_some()),
            ("--lambda-skip", self.lambda_skip.is_some()),
        ]
    }

    /// What only text knows.
    fn of_text(&self) -> [(&'static str, bool); 9] {
        [
            ("--corpus", self.corpus.is_some()),
            ("--tokenizer", self.tokenizer.is_some()),
            (
                "--eos-between-articles",
                self.eos_between_articles.is_some(),
            ),
            ("--rotary", self.rotary.is_some()),
            ("--init", self.init.is_some()),
            ("--schedule", self.schedule.is_some()),
            ("--beta2", self.beta2.is_some()),
            ("--clip", self.clip.is_some()),
            ("--decay", self.decay.is_some()),
        ]
    }

    /// Refuses what means nothing to `task`.
    fn refuse(&self, task: Task) -> Result<()> {
        let width = ("--mlp-width", self.mlp_width.is_some());
        let strange = match task {
            Task::Mqar => [&self.of_classifiers()[..], &self.of_text(), &[width]].concat(),
            Task::Lra => [&self.of_recall()[..], &self.of_text()].concat(),
            Task::Wikitext => [
                &self.of_recall()[..],
                &self.of_examples(),
                &self.of_classifiers(),
            ]
            .concat(),
        };
        match strange.iter().find(|(_, given)| *given) {
            Some((flag, _)) => Err(Error::usage(format!(
                "{flag} means nothing to the task {}: leave it out",
                task.name()
            ))),
            None => Ok(()),
        }
    }

    /// `request` with everything that was asked for.
    fn over(&self, mut request: Request) -> Request {
        let r = &mut request;
        set(&mut r.mixer, &self.mixer);
        set(&mut r.protocol, &self.protocol);
        set(&mut r.d_model, &self.d);
        set(&mut r.d_state, &self.n);
        set(&mut r.n_heads, &self.heads);
        set(&mut r.n_layers, &self.layers);
        set(&mut r.task.seq_len, &self.seq_len);
        set(&mut r.task.kv_pairs, &self.kv_pairs);
        set(&mut r.task.vocab_size, &self.vocab_size);
        set(&mut r.task.train_examples, &self.train_examples);
        set(&mut r.task.test_examples, &self.test_examples);
        set(&mut r.task.data, &self.data);
        set(&mut r.task.data_seed, &self.data_seed);
        set(&mut r.lr, &self.lr);
        set(&mut r.epochs, &self.epochs);
        set(&mut r.weight_decay, &self.weight_decay);
        set(&mut r.precision, &self.precision);
        set(&mut r.seed, &self.seed);
        request.variant = self.variant.clone().or(request.variant);
        request.options.extend(self.options.clone());
        Request {
            batch_size: self.batch_size.or(request.batch_size),
            micro_batch: self.micro_batch,
            dropout: self.dropout.or(request.dropout),
            attn_dropout: self.attn_dropout,
            expand: self.expand,
            ..request
        }
    }
}
