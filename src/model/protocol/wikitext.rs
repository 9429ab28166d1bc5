//! A run on WikiText: Pythia's body around any mixer, trained as the paper says, with what was asked
//! for instead.
//!
//! | | full | quick | smoke |
//! |---|---|---|---|
//! | corpus, tokenizer | wikitext-103-raw, gpt-neox | sample, bytes | sample, bytes |
//! | d, layers, heads | 512, 6, 8 | 128, 2, 4 | 32, 1, 2 |
//! | hidden width | 4 d | 4 d | 2 d |
//! | L, batch, epochs | 1024, 128, 50 | 256, 8, 10 | 32, 4, 1 |
//! | peak rate | 1e-3 | 3e-3 | 3e-3 |

use super::{mixers, rules, Asked, Preset, Task};
use crate::config::{
    AdamConfig, Decay, InitScheme, LanguageConfig, Layout, ModelConfig, Precision, Protocol,
    Rotary, RunConfig, Schedule, StateMixer, TrainConfig, FORMAT,
};
use crate::error::{Error, Result};
use crate::mixers::Entry;
use crate::tasks::wikitext::{Corpus, Tokenizer, WikitextConfig};

/// Bytes, and the rows of a table for them.
pub const BYTES: (Tokenizer, usize) = (Tokenizer::Bytes, 256);
/// Pythia's tokenizer, and the rows of its tables: the ids in use, rounded up to a multiple of 128.
pub const GPT_NEOX: (Tokenizer, usize) = (Tokenizer::GptNeox, 50_304);
/// Tokens whose activations exist at one time unless told otherwise.
const TOKENS_AT_ONCE: usize = 8_192;
/// Of a head's channels one in so many is turned.
const TURNED: usize = 4;

/// What differs between presets.
struct Row {
    corpus: Corpus,
    tokenizer: (Tokenizer, usize),
    d: usize,
    layers: usize,
    heads: usize,
    mlp: usize,
    seq_len: usize,
    batch: usize,
    epochs: usize,
    lr: f64,
    /// Windows of the training split, and of each of the others.
    examples: [Option<usize>; 2],
}

impl Preset {
    fn of_text(self) -> Row {
        match self {
            Self::Full => Row {
                corpus: Corpus::Wikitext103Raw,
                tokenizer: GPT_NEOX,
                d: 512,
                layers: 6,
                heads: 8,
                mlp: 2048,
                seq_len: 1024,
                batch: 128,
                epochs: 50,
                lr: 1e-3,
                examples: [None, None],
            },
            Self::Quick => Row {
                corpus: Corpus::Sample,
                tokenizer: BYTES,
                d: 128,
                layers: 2,
                heads: 4,
                mlp: 512,
                seq_len: 256,
                batch: 8,
                epochs: 10,
                lr: 3e-3,
                examples: [None, None],
            },
            Self::Smoke => Row {
                d: 32,
                layers: 1,
                heads: 2,
                mlp: 64,
                seq_len: 32,
                batch: 4,
                epochs: 1,
                examples: [Some(16), Some(4)],
                ..Self::Quick.of_text()
            },
        }
    }
}

/// The complete run that was asked for, or the rule that it breaks.
pub(super) fn resolve(asked: &Asked) -> Result<RunConfig> {
    check_protocol(asked)?;
    check_numbers(asked)?;
    let row = asked.preset.unwrap_or_default().of_text();
    let entry = mixers::find(asked.mixer.as_deref().unwrap_or("softmax"))?;
    let task = task(asked, &row);
    crate::tasks::wikitext::check(&task)?;
    let model = model(asked, entry, &row)?;
    entry.check_sizes(&model)?;
    let train = train(asked, &row, task.seq_len);
    Ok(RunConfig {
        format: FORMAT,
        seed: asked.seed.unwrap_or(Task::Wikitext.entry().seed),
        protocol: Protocol::Paper,
        task: task.into(),
        model,
        train,
    })
}

fn task(asked: &Asked, row: &Row) -> WikitextConfig {
    let (tokenizer, rows) = asked.tokenizer.clone().unwrap_or(row.tokenizer.clone());
    WikitextConfig {
        corpus: asked.corpus.unwrap_or(row.corpus),
        tokenizer,
        vocab_size: asked.vocab_size.unwrap_or(rows),
        seq_len: asked.seq_len.unwrap_or(row.seq_len),
        eos_between_articles: asked.eos_between_articles.unwrap_or(false),
        train_examples: asked.train_examples.or(row.examples[0]),
        test_examples: asked.test_examples.or(row.examples[1]),
    }
}

fn model(asked: &Asked, entry: &Entry, row: &Row) -> Result<ModelConfig> {
    let variant = match &asked.variant {
        Some(variant) => variant.as_str(),
        // Biases and a map of the output, as Pythia's own attention has them.
        None => entry.variants[0],
    };
    entry.check_variant(variant)?;
    let given = rules::with_usual(entry, variant, &asked.options, &[rules::SMALL_STEPS]);
    let d_model = asked.d.unwrap_or(row.d);
    let heads = asked.heads.unwrap_or(row.heads);
    // As wide as one of attention's heads, the state has as many numbers as that of linear attention.
    let n = if entry.rotary {
        d_model
    } else {
        d_model / heads
    };
    let d_state = if entry.expands {
        asked.n.unwrap_or(n.max(1))
    } else {
        1
    };
    let usual_heads = if entry.heads { heads } else { 1 };
    let n_heads = asked.heads.unwrap_or(usual_heads);
    let dropout = asked.dropout.unwrap_or(0.0);
    let rotary = asked.rotary.unwrap_or(if entry.rotary {
        Rotary::Pre
    } else {
        Rotary::None
    });
    Ok(ModelConfig {
        mixer: entry.name.to_owned(),
        variant: variant.to_owned(),
        options: rules::options(entry, variant, &given, Protocol::Reference)?,
        d_model,
        d_state,
        n_heads,
        n_layers: asked.layers.unwrap_or(row.layers),
        layout: Layout::Parallel,
        state_mixer: StateMixer::Mlp,
        positions: false,
        embed_dropout: dropout,
        attn_dropout: asked.attn_dropout.unwrap_or(dropout),
        expand: asked.expand,
        classifier: None,
        language: Some(LanguageConfig {
            mlp_width: asked
                .mlp_width
                .or(asked.d.map(|d| 4 * d))
                .unwrap_or(row.mlp),
            rotary,
            rotary_dims: match rotary {
                Rotary::Pre | Rotary::Post => turned(d_state / n_heads),
                Rotary::None => 0,
            },
            init: asked.init.unwrap_or(InitScheme::Pythia),
        }),
    })
}

/// Channels of a head of this width that are turned: a fourth of them, in pairs.
fn turned(width: usize) -> usize {
    (width / TURNED / 2 * 2).max(2)
}

fn train(asked: &Asked, row: &Row, seq_len: usize) -> TrainConfig {
    let batch_size = asked.batch_size.unwrap_or(row.batch);
    let at_once = (TOKENS_AT_ONCE / seq_len).max(1);
    let usual_precision = if asked.gpu {
        Precision::Bf16
    } else {
        Precision::F32
    };
    TrainConfig {
        schedule: asked.schedule.unwrap_or(Schedule::Cosine),
        lr: asked.lr.unwrap_or(row.lr),
        warmup_epochs: 0,
        epochs: asked.epochs.unwrap_or(row.epochs),
        batch_size,
        weight_decay: asked.weight_decay.unwrap_or(0.1),
        precision: asked.precision.unwrap_or(usual_precision),
        micro_batch: Some(asked.micro_batch.unwrap_or(at_once)).filter(|&size| size < batch_size),
        adam: Some(AdamConfig {
            beta1: 0.9,
            beta2: asked.beta2.unwrap_or(0.95),
            eps: 1e-8,
            clip: Some(asked.clip.unwrap_or(1.0)).filter(|&norm| norm > 0.0),
            decay: asked.decay.unwrap_or(Decay::Matrices),
        }),
        stop_above: 1.0,
    }
}

fn check_protocol(asked: &Asked) -> Result<()> {
    match asked.protocol {
        None | Some(Protocol::Paper) => Ok(()),
        Some(other) => Err(Error::usage(format!(
            "--protocol {}: no code of the experiment on WikiText was released; its one protocol is \
             `paper`, so leave --protocol out",
            other.as_str()
        ))),
    }
}

fn check_numbers(asked: &Asked) -> Result<()> {
    rules::check_numbers(asked)?;
    rules::within(&[
        ("--seq-len", asked.seq_len, 1 << 20),
        ("--vocab-size", asked.vocab_size, 1 << 16),
        ("--train-examples", asked.train_examples, 1 << 40),
        ("--test-examples", asked.test_examples, 1 << 40),
    ])?;
    if let Some(norm) = asked
        .clip
        .filter(|norm| !(norm.is_finite() && *norm >= 0.0))
    {
        return Err(Error::usage(format!(
            "--clip must be a norm such as 1, or 0 for none, not {norm}"
        )));
    }
    match asked.beta2.filter(|beta| !(0.0..1.0).contains(beta)) {
        Some(beta) => Err(Error::usage(format!(
            "--beta2 must be in [0, 1), such as 0.95, not {beta}"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
