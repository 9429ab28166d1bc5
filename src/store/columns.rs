//! The columns of a summary that hold settings: where each stands in a config, and what it means to leave it out.

use super::column::Absent::{Empty, Is, Required, Where};
use super::column::Kind::{Count, Flag, Real, Word};
use super::column::Role::{Cell, Rate, Seed, Setting};
use super::column::{Absent, Column, Kind, Role};

/// A setting that every summary has had since the first.
const fn first(
    name: &'static str,
    role: Role,
    kind: Kind,
    at: &'static [&'static str],
    meaning: &'static str,
) -> Column {
    later(name, role, kind, at, Required, meaning)
}

/// A setting that files or configs may lack.
const fn later(
    name: &'static str,
    role: Role,
    kind: Kind,
    at: &'static [&'static str],
    absent: Absent,
    meaning: &'static str,
) -> Column {
    let unit = "";
    Column {
        name,
        unit,
        role,
        kind,
        at,
        absent,
        meaning,
    }
}

/// Every setting of a run, in the order of a summary. `at` holds JSON pointers into the serialised
/// [`RunConfig`](crate::config::RunConfig), of which the first that is there counts.
#[rustfmt::skip]
pub(super) static SETTINGS: &[Column] = &[
    first("format", Setting, Count, &["/format"], "version of the meaning of a config"),
    first("task", Setting, Word, &["/task/name"], "task name"),
    first("protocol", Setting, Word, &["/protocol"], "paper, reference or matched"),
    first("mixer", Setting, Word, &["/model/mixer"], "sequence mixer"),
    first("variant", Setting, Word, &["/model/variant"], "variant of the mixer"),
    first("options", Setting, Word, &["/model/options"], "options of the mixer, name=value;name=value"),
    first("d", Cell, Count, &["/model/d_model"], "embedding width"),
    first("n", Cell, Count, &["/model/d_state"], "state expansion; query and key width of attention"),
    first("heads", Setting, Count, &["/model/n_heads"], "heads"),
    first("layers", Setting, Count, &["/model/n_layers"], "blocks"),
    first("layout", Setting, Word, &["/model/layout"], "residual layout of a block"),
    first("state_mixer", Setting, Word, &["/model/state_mixer"], "what follows the mixer in a block"),
    first("positions", Setting, Flag, &["/model/positions"], "whether position embeddings are learnt"),
    Column { unit: "tokens", ..first("seq_len", Setting, Count, &["/task/seq_len"], "tokens an example, L") },
    later("kv_pairs", Setting, Count, &["/task/kv_pairs"], Is("0"), "key-value pairs an example, k"),
    later("vocab_size", Setting, Count, &["/task/vocab_size"], Is("0"), "vocabulary size, V"),
    later("train_examples", Setting, Count, &["/task/train_examples"], Is("0"), "training examples; of a text, windows, and 0 is all"),
    later("test_examples", Setting, Count, &["/task/test_examples"], Is("0"), "test examples; of a text as train_examples, validation alike"),
    later("data", Setting, Word, &["/task/data"], Empty, "generator of the examples"),
    later("data_seed", Setting, Count, &["/task/data_seed"], Is("0"), "seed of the data"),
    first("lr", Rate, Real, &["/train/lr"], "peak learning rate"),
    first("weight_decay", Setting, Real, &["/train/weight_decay"], "decoupled weight decay"),
    later("precision", Setting, Word, &["/train/precision"], Is("f32"), "number format of the computation: f32, tf32 or bf16"),
    first("embed_dropout", Setting, Real, &["/model/embed_dropout"], "dropout on the embeddings"),
    first("attn_dropout", Setting, Real, &["/model/attn_dropout"], "dropout on attention weights"),
    first("schedule", Setting, Word, &["/train/schedule"], "learning rate schedule"),
    first("batch_size", Setting, Count, &["/train/batch_size"], "examples a step"),
    first("epochs_max", Setting, Count, &["/train/epochs"], "epochs at most"),
    first("stop_above", Setting, Real, &["/train/stop_above"], "test accuracy above which training ends"),
    first("seed", Seed, Count, &["/seed"], "seed of initial weights and dropout"),
    later("dataset", Setting, Word, &["/task/dataset", "/task/corpus"], Empty, "task of the Long Range Arena, or corpus of a text"),
    later("contour_length", Setting, Count, &["/task/contour_length"], Where("dataset", "pathfinder", "14"), "paddles of Pathfinder's long paths, 14 in the hard set"),
    later("val_examples", Setting, Count, &["/task/val_examples"], Empty, "validation examples, which choose an epoch"),
    later("expand", Setting, Real, &["/model/expand"], Empty, "inner width over d, of mixers that widen"),
    later("micro_batch", Setting, Count, &["/train/micro_batch"], Empty, "examples of a step whose activations are held at one time (gradient accumulation)"),
    later("warmup_epochs", Setting, Count, &["/train/warmup_epochs"], Where("input", "", "0"), "epochs of linear learning rate warm-up"),
    later("input", Setting, Word, &["/model/classifier/input"], Empty, "how a token enters: embedding, or scalar (one number)"),
    later("mlp_width", Setting, Count, &["/model/classifier/mlp_width", "/model/language/mlp_width"], Empty, "hidden width of feed-forward halves and heads"),
    later("dropout", Setting, Real, &["/model/classifier/dropout"], Empty, "dropout after mixers and feed-forward halves"),
    later("lambda_skip", Setting, Flag, &["/model/classifier/lambda_skip"], Empty, "whether a learnt scalar scales the residual of mixers"),
    later("pool", Setting, Word, &["/model/classifier/pool"], Empty, "pooling over positions: mean, last or max"),
    later("mask", Setting, Flag, &["/model/classifier/mask"], Empty, "whether pooling leaves out padding"),
    later("dual", Setting, Word, &["/model/classifier/dual"], Empty, "what is combined of two documents: logits or features"),
    later("loss", Setting, Word, &["/model/classifier/loss"], Empty, "ce (cross-entropy), or double-softmax as in the released classifiers"),
    later("tokenizer", Setting, Word, &["/task/tokenizer"], Empty, "bytes, gpt-neox, or the digest of another tokenizer's file"),
    later("eos_between_articles", Setting, Flag, &["/task/eos_between_articles"], Where("tokenizer", "", "false"), "whether the end-of-text token, id 0, stands before each article"),
    later("rotary", Setting, Word, &["/model/language/rotary"], Empty, "rotary positions: pre or post the feature map, or none"),
    later("rotary_dims", Setting, Count, &["/model/language/rotary_dims"], Empty, "channels of each head that rotary positions turn"),
    later("init", Setting, Word, &["/model/language/init"], Empty, "initialisation scheme: pythia or hf"),
    later("beta1", Setting, Real, &["/train/adam/beta1"], Empty, "first-moment decay of AdamW, where it may be chosen"),
    later("beta2", Setting, Real, &["/train/adam/beta2"], Empty, "second-moment decay of AdamW"),
    later("eps", Setting, Real, &["/train/adam/eps"], Empty, "epsilon of AdamW, added to the root of the second moment"),
    later("clip", Setting, Real, &["/train/adam/clip"], Where("beta1", "", "0"), "gradient clipping norm; 0 is none"),
    later("decay", Setting, Word, &["/train/adam/decay"], Empty, "what weight decay applies to: all, or matrices alone"),
];
