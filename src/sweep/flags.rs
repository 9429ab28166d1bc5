//! Every setting of a model and its training, as flags and as keys of an experiment file.

use super::values::{number, whole, MixerOption, Rate, Size};
use crate::config::{Precision, Protocol};
use crate::model::protocol::Preset;
use crate::tasks::Generator;

mod classifier;
mod language;

pub use classifier::{ClassifierFlags, CLASSIFIERS};
pub use language::{LanguageFlags, LANGUAGE};

const MODEL: &str = "Model (lists make a grid in `dsf sweep`)";
const TASK: &str = "Task (lists make a grid in `dsf sweep`)";
const TRAINING: &str = "Training (lists make a grid in `dsf sweep`)";

/// What was asked for. An empty list is left to the preset, and the preset's `None`s to the
/// protocol.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub struct Flags {
    /// Where everything comes from that no flag names [default: quick; full in LRA where a dataset is named].
    #[arg(long, value_enum, value_name = "NAME")]
    pub preset: Option<Preset>,

    /// Sequence mixer; `all` is every one of `dsf mixers` [default: softmax; those that the paper
    /// compares in `dsf sweep`].
    #[arg(long, value_delimiter = ',', value_name = "NAME", help_heading = MODEL)]
    pub mixer: Vec<String>,
    /// Variant of the mixer, e.g. `paper` or `reference` [default: by protocol].
    #[arg(long, value_delimiter = ',', value_name = "NAME", help_heading = MODEL)]
    pub variant: Vec<String>,
    /// What fills the choices that the paper leaves open [default: reference; paper in WikiText].
    #[arg(long, value_delimiter = ',', value_name = "NAME", help_heading = MODEL)]
    pub protocol: Vec<Protocol>,
    /// Embedding width d, in numbers a token.
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = whole::<usize>, help_heading = MODEL, allow_negative_numbers = true)]
    pub d: Vec<usize>,
    /// State expansion n: states a channel; query and key width of attention.
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = whole::<usize>, help_heading = MODEL, allow_negative_numbers = true)]
    pub n: Vec<usize>,
    /// Heads s, which share d and n evenly [default: 1; in LRA by dataset and mixer; 4 in
    /// WikiText, 8 in preset full].
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = whole::<usize>, help_heading = MODEL, allow_negative_numbers = true)]
    pub heads: Vec<usize>,
    /// Blocks, one mixer each [default: 2; in LRA by dataset and mixer; 6 in WikiText's preset full].
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = whole::<usize>, help_heading = MODEL, allow_negative_numbers = true)]
    pub layers: Vec<usize>,
    /// Hidden width of feed-forward halves and, in LRA, of heads [default: 4 d in WikiText; in LRA by
    /// dataset and mixer].
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = whole::<usize>, help_heading = MODEL, allow_negative_numbers = true)]
    pub mlp_width: Vec<usize>,
    /// Inner width over d, of mixers that widen: mamba, rg-lru [default: by task].
    #[arg(long, value_delimiter = ',', value_name = "X", value_parser = number, help_heading = MODEL, allow_hyphen_values = true)]
    pub expand: Vec<f64>,
    /// An option of one mixer, e.g. `dt_init=zero`; see `dsf mixers`.
    #[arg(long, value_delimiter = ',', value_name = "NAME=VALUE", help_heading = MODEL)]
    pub option: Vec<MixerOption>,

    /// Sequence length L, in tokens an example; in LRA the longest, with the end token.
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = whole::<usize>, help_heading = TASK, allow_negative_numbers = true)]
    pub seq_len: Vec<usize>,
    /// Key-value pairs k, a fourth of L at most.
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = whole::<usize>, help_heading = TASK, allow_negative_numbers = true)]
    pub kv_pairs: Vec<usize>,
    /// L and k together, e.g. `64:4,128:8`; instead of the two above.
    #[arg(long, value_delimiter = ',', value_name = "L:k", help_heading = TASK, conflicts_with_all = ["seq_len", "kv_pairs"])]
    pub sizes: Vec<Size>,
    /// Vocabulary V, in tokens [default: in WikiText by tokenizer].
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = whole::<usize>, help_heading = TASK, allow_negative_numbers = true)]
    pub vocab_size: Vec<usize>,
    /// Training examples, the same every epoch; in WikiText the first windows [default there: all].
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = whole::<usize>, help_heading = TASK, allow_negative_numbers = true)]
    pub train_examples: Vec<usize>,
    /// Test examples; in WikiText also those of validation [default there: all].
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = whole::<usize>, help_heading = TASK, allow_negative_numbers = true)]
    pub test_examples: Vec<usize>,
    /// Our generator (MQAR, listops, pathfinder), numpy's bit for bit (MQAR), or files of the released
    /// data (LRA) [default: native where there is one].
    #[arg(long, value_delimiter = ',', value_name = "NAME", help_heading = TASK)]
    pub data: Vec<Generator>,
    /// Seed of the examples [default: 0].
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = whole::<u64>, help_heading = TASK, allow_negative_numbers = true)]
    pub data_seed: Vec<u64>,

    /// Peak learning rate; `paper` is the four of the paper, 1e-4 to 1e-2, in WikiText 3e-4, 1e-3, 3e-3
    /// and 1e-2.
    #[arg(long, value_delimiter = ',', value_name = "X", help_heading = TRAINING, allow_hyphen_values = true)]
    pub lr: Vec<Rate>,
    /// Epochs at most; MQAR stops once test accuracy exceeds 0.99.
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = whole::<usize>, help_heading = TRAINING, allow_negative_numbers = true)]
    pub epochs: Vec<usize>,
    /// Examples a step [default: by preset or protocol].
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = whole::<usize>, help_heading = TRAINING, allow_negative_numbers = true)]
    pub batch_size: Vec<usize>,
    /// Examples of a step whose activations exist at one time; the step is the same [default: by task].
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = whole::<usize>, help_heading = TRAINING, allow_negative_numbers = true)]
    pub micro_batch: Vec<usize>,
    /// Decoupled weight decay of AdamW [default: 0.1; in LRA by dataset and mixer].
    #[arg(long, value_delimiter = ',', value_name = "X", value_parser = number, help_heading = TRAINING, allow_hyphen_values = true)]
    pub weight_decay: Vec<f64>,
    /// Numbers to compute with; tf32 and bf16 need a GPU [default: f32; bf16 for WikiText on a
    /// GPU].
    #[arg(long, value_delimiter = ',', value_name = "NAME", help_heading = TRAINING)]
    pub precision: Vec<Precision>,
    /// Dropout on embeddings and attention weights; in LRA behind embeddings, mixers and feed-forward
    /// halves [default: by protocol].
    #[arg(long, value_delimiter = ',', value_name = "P", value_parser = number, help_heading = TRAINING, allow_hyphen_values = true)]
    pub dropout: Vec<f64>,
    /// Dropout of attention where it differs: on its weights; in LRA's linear and normalized attention on
    /// what they give.
    #[arg(long, value_delimiter = ',', value_name = "P", value_parser = number, help_heading = TRAINING, allow_hyphen_values = true)]
    pub attn_dropout: Vec<f64>,
    /// Seed of initial weights, dropout and, but for MQAR, the order of examples [default: 123; 1919 in LRA, 1234
    /// in WikiText].
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = whole::<u64>, help_heading = TRAINING, allow_negative_numbers = true)]
    pub seed: Vec<u64>,
    /// Replicates: this many seeds, from the first on.
    #[arg(long, value_name = "N", value_parser = whole::<u64>, help_heading = TRAINING, allow_negative_numbers = true)]
    pub seeds: Option<u64>,

    /// What only classifiers know.
    #[command(flatten)]
    pub classifier: ClassifierFlags,
    /// What only text knows.
    #[command(flatten)]
    pub language: LanguageFlags,

    /// No flag: whether a GPU computes, on which text is trained in bf16 unless told otherwise.
    #[arg(skip)]
    pub gpu: bool,
}

impl Flags {
    /// These flags on top of `base`: what is given here wins, the rest stays.
    ///
    /// Where two flags speak of the same thing the upper one silences the lower: lengths or pairs
    /// replace sizes and the reverse; seeds replace a count of seeds, and a count goes on from
    /// the first of the seeds.
    #[must_use]
    pub fn over(&self, base: &Self) -> Self {
        let mut base = base.clone();
        if !self.sizes.is_empty() {
            base.seq_len.clear();
            base.kv_pairs.clear();
        }
        if !self.seq_len.is_empty() || !self.kv_pairs.is_empty() {
            base.sizes.clear();
        }
        if !self.seed.is_empty() {
            base.seeds = None;
        }
        if self.seeds.is_some() {
            base.seed.truncate(1);
        }
        Self {
            preset: self.preset.or(base.preset),
            mixer: given(&self.mixer, base.mixer),
            variant: given(&self.variant, base.variant),
            protocol: given(&self.protocol, base.protocol),
            d: given(&self.d, base.d),
            n: given(&self.n, base.n),
            heads: given(&self.heads, base.heads),
            layers: given(&self.layers, base.layers),
            mlp_width: given(&self.mlp_width, base.mlp_width),
            expand: given(&self.expand, base.expand),
            option: given(&self.option, base.option),
            seq_len: given(&self.seq_len, base.seq_len),
            kv_pairs: given(&self.kv_pairs, base.kv_pairs),
            sizes: given(&self.sizes, base.sizes),
            vocab_size: given(&self.vocab_size, base.vocab_size),
            train_examples: given(&self.train_examples, base.train_examples),
            test_examples: given(&self.test_examples, base.test_examples),
            data: given(&self.data, base.data),
            data_seed: given(&self.data_seed, base.data_seed),
            lr: given(&self.lr, base.lr),
            epochs: given(&self.epochs, base.epochs),
            batch_size: given(&self.batch_size, base.batch_size),
            micro_batch: given(&self.micro_batch, base.micro_batch),
            weight_decay: given(&self.weight_decay, base.weight_decay),
            precision: given(&self.precision, base.precision),
            dropout: given(&self.dropout, base.dropout),
            attn_dropout: given(&self.attn_dropout, base.attn_dropout),
            classifier: self.classifier.over(&base.classifier),
            language: self.language.over(&base.language),
            gpu: self.gpu || base.gpu,
            seed: given(&self.seed, base.seed),
            seeds: self.seeds.or(base.seeds),
        }
    }
}

fn given<T: Clone>(upper: &[T], lower: Vec<T>) -> Vec<T> {
    if upper.is_empty() {
        lower
    } else {
        upper.to_vec()
    }
}
