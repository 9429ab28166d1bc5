//! Columns of a summary, and the values of their cells.

use crate::config;
pub use crate::config::{Absent, Role};
use serde_json::Value;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A column of summaries. Its constants are the columns of this version, so that a misspelt one does not compile;
/// [`Column::find`] finds the column that a text names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Column(pub(super) usize);

/// Defines the constants of [`Column`], in the order of files, and the names in [`NAMES`].
macro_rules! columns {
    ($($constant:ident $name:literal,)*) => {
        /// Names of the columns, in the order of files.
        pub(super) const NAMES: &[&str] = &[$($name),*];

        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Place { $($constant),* }

        impl Column {
            $(
                #[doc = concat!("`", $name, "`.")]
                pub const $constant: Self = Self(Place::$constant as usize);
            )*
        }
    };
}

columns! {
    // Ids.
    SCHEMA "schema", RUN_ID "run_id",
    // Settings, in the order in which versions introduced them.
    FORMAT "format", TASK "task", PROTOCOL "protocol", MIXER "mixer", VARIANT "variant", OPTIONS "options", D "d",
    N "n", HEADS "heads", LAYERS "layers", LAYOUT "layout", STATE_MIXER "state_mixer", POSITIONS "positions",
    SEQ_LEN "seq_len", KV_PAIRS "kv_pairs", VOCAB_SIZE "vocab_size", TRAIN_EXAMPLES "train_examples",
    TEST_EXAMPLES "test_examples", DATA "data", DATA_SEED "data_seed", LR "lr", WEIGHT_DECAY "weight_decay",
    PRECISION "precision", EMBED_DROPOUT "embed_dropout", ATTN_DROPOUT "attn_dropout", SCHEDULE "schedule",
    BATCH_SIZE "batch_size", EPOCHS_MAX "epochs_max", STOP_ABOVE "stop_above", SEED "seed", DATASET "dataset",
    CONTOUR_LENGTH "contour_length", VAL_EXAMPLES "val_examples", EXPAND "expand", MICRO_BATCH "micro_batch",
    WARMUP_EPOCHS "warmup_epochs", INPUT "input", MLP_WIDTH "mlp_width", DROPOUT "dropout", LAMBDA_SKIP "lambda_skip",
    POOL "pool", MASK "mask", DUAL "dual", LOSS "loss", TOKENIZER "tokenizer",
    EOS_BETWEEN_ARTICLES "eos_between_articles", ROTARY "rotary", ROTARY_DIMS "rotary_dims", INIT "init",
    BETA1 "beta1", BETA2 "beta2", EPS "eps", CLIP "clip", DECAY "decay", HYBRID "hybrid", TEST_SEQ_LEN "test_seq_len",
    COPY_TOKENS "copy_tokens", KEY_TOKENS "key_tokens", OVERWRITES "overwrites", PASSES "passes",
    POSITION_EMBEDDING "position_embedding", BIDIRECTIONAL "bidirectional", SOURCE_DIGEST "source_digest",
    SHORT_CONV "short_conv", MAP_INIT "map_init", STATE_NORM "state_norm", FRESH_EXAMPLES "fresh_examples",
    BLOCK "block", FROM_DIGEST "from_digest", N_POSITIONS "n_positions", GROUP "group", FORM "form", NOISE "noise",
    AUTO_ENCODER "auto_encoder", PERMUTED "permuted",
    // End of the run.
    STATUS "status", OUTCOME "outcome", REASON "reason", CAUSE "cause",
    // Metrics.
    ACCURACY "accuracy", BEST_ACCURACY "best_accuracy", BEST_EPOCH "best_epoch", EPOCHS_RUN "epochs_run",
    TRAIN_LOSS "train_loss", TEST_LOSS "test_loss", PARAMS "params", STATE_SIZE "state_size", STEPS "steps",
    SECONDS "seconds", TOKENS_PER_S "tokens_per_s", PEAK_MEMORY_BYTES "peak_memory_bytes",
    VAL_ACCURACY "val_accuracy", SELECTED_EPOCH "selected_epoch", SELECTED_ACCURACY "selected_accuracy",
    MAJORITY "majority", TRAIN_PPL "train_ppl", TRAIN_PPL_EVAL "train_ppl_eval", VAL_PPL "val_ppl",
    BEST_VAL_PPL "best_val_ppl", TEST_PPL "test_ppl", SELECTED_TEST_PPL "selected_test_ppl",
    VAL_WORD_PPL "val_word_ppl", TEST_WORD_PPL "test_word_ppl", VAL_BITS_PER_BYTE "val_bits_per_byte",
    TEST_BITS_PER_BYTE "test_bits_per_byte", UNIGRAM_PPL "unigram_ppl", TRAIN_TOKENS "train_tokens",
    MACRO_ACCURACY "macro_accuracy",
    // Provenance.
    DEVICE "device", THREADS "threads", HOST "host", CPU "cpu", VERSION "version", GIT_COMMIT "git_commit",
    STARTED "started", ENDED "ended", OPS "ops", DATA_DIGEST "data_digest", SIMD "simd",
    MICRO_BATCH_USED "micro_batch_used", FROM "from", CHECKSUM "checksum",
}

impl Column {
    /// Name in the header.
    pub const fn name(self) -> &'static str {
        NAMES[self.0]
    }

    /// Index in [`COLUMNS`](super::schema::COLUMNS).
    pub const fn place(self) -> usize {
        self.0
    }
}

/// Definition of one column of a summary.
#[derive(Clone, Debug)]
pub struct ColumnSpec {
    /// Name in the header.
    pub name: &'static str,
    /// Unit; empty for counts, names and ratios.
    pub unit: &'static str,
    /// Use of the column in reports.
    pub role: Role,
    /// Type of the values.
    pub kind: ColumnKind,
    /// JSON pointers into the serialised config; the first that exists gives the value. Empty for results.
    pub at: Vec<String>,
    /// Meaning of a missing column, of an empty cell and of a config without the field.
    pub absent: Absent,
    /// Description, one line.
    pub meaning: &'static str,
}

/// Type of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// A non-negative integer.
    Count,
    /// Any number, including NaN.
    Real,
    /// A non-negative number.
    AtLeastZero,
    /// A number from 0 to 1.
    Share,
    /// `true` or `false`.
    Flag,
    /// Any text.
    Word,
    /// One of the listed names.
    OneOf(&'static [&'static str]),
}

/// Value of one column in one run.
#[derive(Clone, Debug, Default)]
pub enum Field {
    /// No value: not applicable, or unknown. Empty text counts as no value.
    #[default]
    Absent,
    /// A boolean.
    Flag(bool),
    /// A non-negative integer.
    Count(u64),
    /// A number; may be NaN.
    Real(f64),
    /// A text. Shared, because most rows of a summary repeat a few texts.
    Text(Arc<str>),
}

impl ColumnSpec {
    /// Returns the value of the column in a serialised config.
    pub(crate) fn of_config(&self, document: &Value) -> Field {
        let mut found = self.at.iter().filter_map(|at| document.pointer(at));
        let value = self.kind.of_json(found.next().unwrap_or(&Value::Null));
        value.unwrap_or_else(|why| unreachable!("{}: {why}", self.name))
    }
}

impl From<config::ValueKind> for ColumnKind {
    fn from(kind: config::ValueKind) -> Self {
        match kind {
            config::ValueKind::Whole(..) => Self::Count,
            config::ValueKind::Bool => Self::Flag,
            kind if kind.is_real() => Self::Real,
            _ => Self::Word,
        }
    }
}

impl ColumnKind {
    /// Parses a cell of a CSV.
    pub(super) fn parse(self, text: &str) -> Result<Field, String> {
        if text.is_empty() {
            return Ok(Field::Absent);
        }
        let wrong = || format!("`{text}` is not {self}");
        let found = match self {
            Self::Count => text.parse().ok().map(Field::Count),
            Self::Real | Self::AtLeastZero | Self::Share => text.parse().ok().map(Field::Real),
            Self::Flag => text.parse().ok().map(Field::Flag),
            Self::Word | Self::OneOf(_) => Some(Field::from(text)),
        };
        found.filter(|found| self.holds(found)).ok_or_else(wrong)
    }

    /// Converts a JSON value. An object becomes a list of names and values, as in `a=1;b=2`.
    pub(super) fn of_json(self, value: &Value) -> Result<Field, String> {
        let found = match (self, value) {
            (_, Value::Null) => Some(Field::Absent),
            (Self::Count, Value::Number(n)) => n.as_u64().map(Field::Count),
            (Self::Real | Self::AtLeastZero | Self::Share, Value::Number(n)) => n.as_f64().map(Field::Real),
            (Self::Flag, Value::Bool(flag)) => Some(Field::Flag(*flag)),
            (Self::Word | Self::OneOf(_), Value::String(text)) => Some(Field::from(text.as_str())),
            (Self::Word, Value::Object(pairs)) => {
                let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
                let pairs = pairs.iter().map(|(k, v)| format!("{k}={}", text(v)));
                Some(pairs.collect::<Vec<_>>().join(";").as_str().into())
            }
            _ => None,
        };
        let found = found.filter(|found| self.holds(found));
        found.ok_or_else(|| format!("{value} is not {self}"))
    }

    fn holds(self, field: &Field) -> bool {
        match (self, field) {
            (Self::Share, Field::Real(x)) => !(*x < 0.0 || *x > 1.0),
            (Self::AtLeastZero, Field::Real(x)) => x.is_nan() || *x >= 0.0,
            (Self::OneOf(names), Field::Text(text)) => names.contains(&&**text),
            _ => true,
        }
    }
}

impl fmt::Display for ColumnKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count => f.write_str("a whole number"),
            Self::Real => f.write_str("a number"),
            Self::AtLeastZero => f.write_str("a number from 0"),
            Self::Share => f.write_str("a number from 0 to 1"),
            Self::Flag => f.write_str("true or false"),
            Self::Word => f.write_str("a name"),
            Self::OneOf(names) => f.write_str(&names.join(" or ")),
        }
    }
}

impl Field {
    /// Returns the number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Count(count) => Some(*count as f64),
            Self::Real(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the text; empty for any other value.
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            _ => "",
        }
    }

    /// Whether the value is absent, zero or `false`.
    pub fn is_nothing(&self) -> bool {
        match self {
            Self::Absent => true,
            Self::Flag(flag) => !flag,
            _ => self.number() == Some(0.0),
        }
    }

    /// Converts to JSON; NaN becomes null.
    pub fn json(&self) -> Value {
        match self {
            Self::Absent => Value::Null,
            Self::Flag(flag) => (*flag).into(),
            Self::Count(count) => (*count).into(),
            Self::Real(number) => (*number).into(),
            Self::Text(text) => (**text).into(),
        }
    }

    /// Sort key: first the kind of the value, then the value. Numbers are ordered by [`f64::total_cmp`].
    fn key(&self) -> (u8, i128, &str) {
        match self {
            Self::Absent => (0, 0, ""),
            Self::Flag(flag) => (1, (*flag).into(), ""),
            Self::Count(count) => (2, (*count).into(), ""),
            Self::Real(number) => {
                let bits = number.to_bits() as i64;
                (3, (bits ^ (((bits >> 63) as u64) >> 1) as i64).into(), "")
            }
            Self::Text(text) => (4, 0, text),
        }
    }
}

/// Formats the value as a CSV cell.
impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => Ok(()),
            Self::Flag(flag) => flag.fmt(f),
            Self::Count(count) => count.fmt(f),
            Self::Real(number) => match serde_json::Number::from_f64(*number) {
                Some(shortest) => shortest.fmt(f),
                None => number.fmt(f),
            },
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl Ord for Field {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Field {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Agrees with [`Field::key`]. Texts of a summary are shared, so equal pointers avoid most comparisons.
impl PartialEq for Field {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Absent, Self::Absent) => true,
            (Self::Flag(a), Self::Flag(b)) => a == b,
            (Self::Count(a), Self::Count(b)) => a == b,
            (Self::Real(a), Self::Real(b)) => a.to_bits() == b.to_bits(),
            (Self::Text(a), Self::Text(b)) => Arc::ptr_eq(a, b) || a == b,
            _ => false,
        }
    }
}

impl Eq for Field {}

/// Grouping runs hashes every setting of every run, so a value is hashed without [`Field::key`], which is wider.
impl Hash for Field {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Absent => 0u8.hash(state),
            Self::Flag(flag) => flag.hash(state),
            Self::Count(count) => count.hash(state),
            Self::Real(number) => number.to_bits().hash(state),
            Self::Text(text) => text.hash(state),
        }
    }
}

impl From<&str> for Field {
    fn from(text: &str) -> Self {
        match text {
            "" => Self::Absent,
            text => Self::Text(text.into()),
        }
    }
}

impl From<f64> for Field {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl From<u64> for Field {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for Field {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl<T: Into<Self>> From<Option<T>> for Field {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let fields = [
            (ColumnKind::Real, Field::Real(0.1 + 0.2)),
            (ColumnKind::Real, Field::Real(1e-12)),
            (ColumnKind::Real, Field::Real(f64::NAN)),
            (ColumnKind::Count, Field::Count(u64::MAX)),
            (ColumnKind::Flag, Field::Flag(true)),
            (ColumnKind::Word, Field::from("a,\"b\"")),
            (ColumnKind::Share, Field::Absent),
        ];
        for (kind, field) in fields {
            assert_eq!(kind.parse(&field.to_string()).unwrap(), field);
        }
    }
}
