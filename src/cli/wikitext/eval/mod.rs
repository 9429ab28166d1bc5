//! `dsf wikitext eval`: perplexity of trained weights on a text.

mod scores;

use super::chosen::Chosen;
use crate::cli::{check_stop, exit, print, progress, stop_flag, Global};
use crate::error::{ensure, refuse, Result};
use crate::gpu;
use crate::model::weights::Checkpoint;
use crate::sweep::estimate::grouped;
use crate::tasks::wikitext::{self, Corpus, Vocabulary, WikitextConfig};
use crate::tasks::Task;
use crate::train::Scoring;
use clap::{Args, ValueEnum};
use scores::Scores;

#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  dsf wikitext eval --checkpoint results/runs/0123456789ab\n  \
                  dsf wikitext eval --checkpoint 0123456789ab --split test --stride 512\n  \
                  dsf wikitext eval --checkpoint pythia --corpus wikitext-103-raw --seq-len 1024")]
pub(super) struct EvalArguments {
    #[command(flatten)]
    chosen: Chosen,
    /// Corpus [default: the corpus of training].
    #[arg(long, value_name = "NAME")]
    corpus: Option<Corpus>,
    /// Splits to evaluate.
    #[arg(long, value_delimiter = ',', value_name = "SPLIT", default_value = "val,test")]
    split: Vec<Split>,
    /// Tokens from the start of one window to the next [default: L].
    ///
    /// N is 1 to L. Below L, every scored token has at least L - N tokens of context, at L / N times the cost.
    #[arg(long, value_name = "N")]
    stride: Option<usize>,
    /// Window length L, in tokens [default: the training length].
    #[arg(long, value_name = "L")]
    seq_len: Option<usize>,
    /// Windows per batch [default: 8,192 tokens].
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
    const ALL: [Self; 3] = [Self::Train, Self::Val, Self::Test];

    fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Val => "val",
            Self::Test => "test",
        }
    }
}

/// Number of tokens in a batch of windows.
const AT_ONCE: usize = 8192;

pub(super) fn main(arguments: &EvalArguments, global: &Global) -> Result<u8> {
    let (found, text) = arguments.chosen.open(global)?;
    let text = WikitextConfig {
        corpus: arguments.corpus.unwrap_or(text.corpus),
        seq_len: arguments.seq_len.unwrap_or(text.seq_len),
        train_examples: None,
        test_examples: None,
        // Any text may be scored, not only the training text.
        source_digest: None,
        ..text
    };
    let how = scoring(arguments, text.seq_len)?;
    let stop = stop_flag()?;
    let (device, device_name) = arguments.chosen.device(global)?;
    let data_dir = arguments.chosen.data_dir.as_deref();
    wikitext::check_fits(&text)?;
    let wanted = Split::ALL.map(|split| arguments.split.contains(&split));
    let name = text.prepared().unwrap_or_default();
    progress::show(&name, global.silent(), &stop, |watch| wikitext::prepare(&text, data_dir, wanted, watch))?;
    // The model cannot have more rows: if ids of the text are beyond them, the tokenizer is at fault.
    let loaded = wikitext::load_some(&text, data_dir, wanted);
    let (splits, warnings) = loaded.or_else(|e| match e.diagnostic().flag.as_deref() {
        Some("--vocab-size") => Vocabulary::of(&text, data_dir).and(Err(e)),
        _ => Err(e),
    })?;
    print::warnings(&warnings);
    let model = found.model(&device)?;
    if !global.json {
        print::line(title(&found, &text, &how, &device_name))?;
        print::line(HEAD)?;
    }
    for split in &arguments.split {
        let Some(of_split) = &splits[*split as usize] else { continue };
        let template = "{prefix} {wide_bar} {pos}/{len} windows, {eta} left";
        let bar = print::bar_unless(global.quiet, template, None).with_prefix(split.name());
        let mut on = |done, count| {
            bar.set_length(count as u64);
            bar.set_position(done as u64);
            check_stop(&stop)
        };
        let scores = gpu::with_factors(found.config.train.precision.factors(), || {
            Scores::of(&model, of_split, &how, &device, &mut on)
        });
        bar.finish_and_clear();
        let scores = scores?;
        print::line(if global.json {
            scores.json(*split, &found, &text, &how).to_string()
        } else {
            scores.row(*split)
        })?;
    }
    if !global.silent() {
        print::line(foot(&text))?;
    }
    Ok(exit::DONE)
}

fn scoring(arguments: &EvalArguments, seq_len: usize) -> Result<Scoring> {
    if let Some(stride) = arguments.stride.filter(|s| !(1..=seq_len).contains(s)) {
        refuse!(flag "--stride" = stride, "must be 1 to {seq_len}, the tokens of a window");
    }
    ensure!(
        arguments.batch_size != Some(0),
        flag "--batch-size" = 0, "must be at least 1");
    let most = (AT_ONCE / seq_len.max(1)).max(1);
    Ok(Scoring {
        seq_len,
        stride: arguments.stride.filter(|stride| *stride < seq_len),
        batch: arguments.batch_size.unwrap_or(most),
        every_token: false,
    })
}

fn title(found: &Checkpoint, text: &WikitextConfig, how: &Scoring, device: &str) -> String {
    let from = match &found.origin.run {
        Some(run) => {
            format!("run {run} after epoch {}, step {}", found.origin.epoch, grouped(found.origin.step as u64))
        }
        None => found.place.display().to_string(),
    };
    let stride = how.stride.map_or(String::new(), |stride| {
        let (apart, context) = (grouped(stride as u64), grouped((how.seq_len - stride) as u64));
        format!(", {apart} apart, where {context} or more tokens come before")
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

fn foot(text: &WikitextConfig) -> &'static str {
    if text.corpus.lines_are_words() {
        "word ppl and bits per byte count every token once; W is words and lines, WikiText's convention"
    } else {
        "word ppl and bits per byte count every token once; W is words, runs of anything but white space"
    }
}
