//! `dsf wikitext eval`: how well trained weights predict a text.

use super::chosen::Chosen;
use crate::cli::{exit, print, Global};
use crate::config::{Corpus, Precision, WikitextConfig};
use crate::error::{Error, Result};
use crate::gpu;
use crate::model::weights::Checkpoint;
use crate::model::Model;
use crate::sweep::estimate::grouped;
use crate::tasks::wikitext::{self, Ids, Splits, Text};
use crate::train::{score, Scored, Scoring};
use candle_core::Device;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  dsf wikitext eval --checkpoint results/runs/0123456789ab\n  \
                  dsf wikitext eval --checkpoint 0123456789ab --split test --stride 512\n  \
                  dsf wikitext eval --checkpoint pythia --corpus wikitext-103-raw --seq-len 1024")]
pub(super) struct Arguments {
    #[command(flatten)]
    chosen: Chosen,
    /// The text [default: what the model was trained on].
    #[arg(long, value_name = "NAME")]
    corpus: Option<Corpus>,
    /// Which parts of it, with commas between them.
    #[arg(long, value_delimiter = ',', value_name = "SPLIT", default_values = ["val", "test"])]
    split: Vec<Split>,
    /// Tokens between the beginnings of windows, 1 to L: fewer than L give each scored token at least
    /// L - N tokens of context, and cost L / N times as much [default: L].
    #[arg(long, value_name = "N")]
    stride: Option<usize>,
    /// Tokens a window, L [default: as the model was trained].
    #[arg(long, value_name = "L")]
    seq_len: Option<usize>,
    /// Windows at one time [default: so many as have 8,192 tokens].
    #[arg(long, value_name = "N")]
    batch_size: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Split {
    Train,
    Val,
    Test,
}

impl Split {
    fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Val => "val",
            Self::Test => "test",
        }
    }

    fn of(self, splits: &Splits) -> &Text {
        match self {
            Self::Train => &splits.train,
            Self::Val => &splits.val,
            Self::Test => &splits.test,
        }
    }
}

/// Tokens of the windows that are computed at one time.
const AT_ONCE: usize = 8192;

pub(super) fn main(arguments: &Arguments, global: &Global) -> Result<u8> {
    let (found, text) = arguments.chosen.open(global)?;
    let text = WikitextConfig {
        corpus: arguments.corpus.unwrap_or(text.corpus),
        seq_len: arguments.seq_len.unwrap_or(text.seq_len),
        train_examples: None,
        test_examples: None,
        ..text
    };
    let how = scoring(arguments, text.seq_len)?;
    let (device, device_name) = arguments.chosen.device(global)?;
    gpu::products_in_tf32(found.config.train.precision == Precision::Tf32);
    let splits = wikitext::load(&text, arguments.chosen.data_dir.as_deref())?;
    for warning in &splits.warnings {
        print::talk(&format!("warning: {warning}"));
    }
    let model = found.model(&device)?;
    if !global.json {
        print::line(&title(&found, &text, &how, &device_name))?;
        print::line(HEAD)?;
    }
    for split in &arguments.split {
        let bar = bar(*split, global.quiet);
        let scores = Scores::of(&model, split.of(&splits), &how, &device, &bar);
        bar.finish_and_clear();
        let scores = scores?;
        print::line(&match global.json {
            true => scores.json(*split, &found, &text, &how).to_string(),
            false => scores.row(*split),
        })?;
    }
    if !(global.json || global.quiet) {
        print::line(FOOT)?;
    }
    Ok(exit::DONE)
}

fn scoring(arguments: &Arguments, seq_len: usize) -> Result<Scoring> {
    if let Some(stride) = arguments.stride.filter(|s| !(1..=seq_len).contains(s)) {
        return Err(Error::usage(format!(
            "--stride must be 1 to {seq_len}, the tokens of a window, not {stride}"
        )));
    }
    if arguments.batch_size == Some(0) {
        return Err(Error::usage("--batch-size must be at least 1"));
    }
    let most = (AT_ONCE / seq_len.max(1)).max(1);
    Ok(Scoring {
        seq_len,
        stride: arguments.stride.filter(|stride| *stride < seq_len),
        batch: arguments.batch_size.unwrap_or(most),
        every_token: false,
    })
}

/// What one split came to.
struct Scores<'a> {
    text: &'a Text,
    /// In whole windows.
    windows: Scored,
    /// Every token but the first, once.
    whole: Scored,
}

impl<'a> Scores<'a> {
    fn of(
        model: &Model,
        text: &'a Text,
        how: &Scoring,
        device: &Device,
        bar: &ProgressBar,
    ) -> Result<Self> {
        let (length, stride) = (how.seq_len, how.stride.unwrap_or(how.seq_len));
        let count = (text.ids().len() - 1 - length) / stride + 1;
        let part = |ids: &[u16], how: &Scoring| -> Result<Scored> {
            let part = Text::new(Ids::Held(ids.into()), text.counts(), length, None);
            Ok(score(model, &part, how, device)?)
        };
        bar.set_length(count as u64);
        let mut windows = Scored::default();
        for first in (0..count).step_by(how.batch) {
            let last = (first + how.batch).min(count) - 1;
            let found = part(&text.ids()[first * stride..last * stride + length + 1], how)?;
            add(&mut windows, found);
            bar.set_position(last as u64 + 1);
        }
        let mut whole = windows;
        for (ids, scored) in ends(text.ids(), count, length, stride) {
            let how = Scoring {
                seq_len: ids.len() - 1,
                stride: Some(scored),
                ..*how
            };
            add(&mut whole, part(ids, &how)?);
        }
        Ok(Self {
            text,
            windows,
            whole,
        })
    }

    /// What words and lines of the text cost, the WikiText convention.
    fn words(&self) -> u64 {
        let counts = self.text.counts();
        counts.words + counts.lines
    }

    fn word_ppl(&self) -> f64 {
        (self.whole.nll / self.words() as f64).exp()
    }

    fn bits_per_byte(&self) -> f64 {
        self.whole.nll / (std::f64::consts::LN_2 * self.text.counts().bytes as f64)
    }

    fn row(&self, split: Split) -> String {
        let Scored { nll, tokens } = self.windows;
        format!(
            "{:5}  {:>11}  {:10.4}  {:9.2}  {:8.2}  {:>11}  {:9.4}",
            split.name(),
            grouped(tokens as u64),
            nll / tokens as f64,
            self.windows.ppl(),
            self.word_ppl(),
            grouped(self.words()),
            self.bits_per_byte()
        )
    }

    fn json(
        &self,
        split: Split,
        found: &Checkpoint,
        text: &WikitextConfig,
        how: &Scoring,
    ) -> serde_json::Value {
        let counts = self.text.counts();
        json!({
            "event": "eval", "schema": 1, "path": found.place(), "run": found.origin.run,
            "epoch": found.origin.epoch, "step": found.origin.step, "mixer": found.config.model.mixer,
            "corpus": text.corpus.name(), "tokenizer": text.tokenizer.to_string(),
            "split": split.name(), "seq_len": how.seq_len, "stride": how.stride.unwrap_or(how.seq_len),
            "tokens": self.windows.tokens, "nll": self.windows.nll, "token_ppl": self.windows.ppl(),
            "all_tokens": self.whole.tokens, "all_nll": self.whole.nll,
            "words": counts.words, "lines": counts.lines, "word_ppl": self.word_ppl(),
            "bytes": counts.bytes, "bits_per_byte": self.bits_per_byte(),
        })
    }
}

fn add(sum: &mut Scored, more: Scored) {
    sum.nll += more.nll;
    sum.tokens += more.tokens;
}

/// What `count` windows, `stride` apart, leave unscored: ids whose last predictions, so many, are missing.
/// The first window's early tokens have less context than the others, and behind the last whole window a
/// shorter one is left.
fn ends(ids: &[u16], count: usize, length: usize, stride: usize) -> Vec<(&[u16], usize)> {
    let targets = ids.len() - 1;
    let over = (count - 1) * stride + length;
    let head = (&ids[..length - stride + 1], length - stride);
    let tail = (&ids[count * stride..], targets - over);
    let missing = [head, tail].into_iter();
    missing.filter(|(_, scored)| *scored > 0).collect()
}

/// Windows scored so far and how long the rest takes; nothing where nobody looks.
fn bar(split: Split, quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} windows, {eta} left");
    let bar = ProgressBar::no_length().with_prefix(split.name());
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn title(found: &Checkpoint, text: &WikitextConfig, how: &Scoring, device: &str) -> String {
    let from = match &found.origin.run {
        Some(run) => format!(
            "run {run} after epoch {}, step {}",
            found.origin.epoch,
            grouped(found.origin.step as u64)
        ),
        None => found.place().display().to_string(),
    };
    let stride = how.stride.map_or(String::new(), |stride| {
        format!(", {} apart, each scoring its last", grouped(stride as u64))
    });
    format!(
        "{} ({from}) on {} ({}), windows of {}{stride}, {device}",
        found.config.model.mixer,
        text.corpus.name(),
        text.tokenizer,
        grouped(how.seq_len as u64),
    )
}

const HEAD: &str = "split       tokens  nats/token  token ppl  word ppl            W  bits/byte";

const FOOT: &str =
    "word ppl and bits per byte count every token once; W is words and lines, WikiText's \
                    convention";
