//! `dsf data tokens`: creates token files before the runs that need them.

use crate::cli::device::use_threads;
use crate::cli::{exit, print, progress, stop_flag, Global};
use crate::error::{ensure, Error, Result};
use crate::tasks::wikitext::{self, Corpus, TokenizerName, WikitextConfig};
use crate::tasks::Task;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use indicatif::DecimalBytes;
use serde_json::json;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(super) struct TokensArguments {
    /// Corpora to tokenize.
    #[arg(long, value_delimiter = ',', value_name = "NAME", required = true, value_parser = corpus())]
    corpus: Vec<Corpus>,
    /// Tokenizer: bytes, gpt-neox, or a tokenizer.json.
    #[arg(long, value_name = "NAME|FILE", default_value = "gpt-neox")]
    tokenizer: TokenizerName,
    /// Put the tokenizer's end-of-text token before each article.
    #[arg(long)]
    eos_between_articles: bool,
    /// Folder of the text [default: the folder of `dsf data fetch`]. Token files are written to dsf/wikitext in
    /// HF_HOME.
    #[arg(long, value_name = "DIR", env = "DSF_DATA", hide_env_values = true)]
    data_dir: Option<PathBuf>,
}

/// Parser of corpora that have token files, which the built-in sample lacks.
fn corpus() -> impl TypedValueParser<Value = Corpus> {
    let of_files = Corpus::value_variants()
        .iter()
        .filter(|corpus| **corpus != Corpus::Sample)
        .filter_map(ValueEnum::to_possible_value);
    let find = |name: String| Corpus::from_str(&name, false).expect("it is one of those listed");
    PossibleValuesParser::new(of_files).map(find)
}

pub(super) fn main(arguments: TokensArguments, global: &Global) -> Result<u8> {
    use_threads(global.threads()?)?;
    let (tokenizer, vocab_size) = arguments.tokenizer.resolve()?;
    let data_dir = arguments.data_dir.as_deref();
    let config = |corpus| WikitextConfig {
        corpus,
        tokenizer: tokenizer.clone(),
        vocab_size,
        seq_len: 1, // unused: no windows are made
        source_digest: None,
        eos_between_articles: arguments.eos_between_articles,
        train_examples: None,
        test_examples: None,
    };
    let configs: Vec<_> = arguments.corpus.into_iter().map(config).collect();
    // Reports missing files before the first text is read.
    for config in &configs {
        wikitext::token_files(config, data_dir)?;
    }
    let stop = stop_flag()?;
    let tasks: Vec<_> = configs.iter().map(Task::config).collect();
    match progress::prepare(&tasks, data_dir, global.silent(), &stop) {
        Err(Error::Stopped) => {
            print::message("stopped by a signal; whole splits are kept, the same command continues");
            return Ok(exit::STOPPED);
        }
        made => made?,
    }
    configs.iter().try_for_each(|c| emit_splits(c, data_dir, global))?;
    Ok(exit::DONE)
}

/// Prints one line per split.
fn emit_splits(config: &WikitextConfig, data_dir: Option<&Path>, global: &Global) -> Result<()> {
    let paths = wikitext::token_files(config, data_dir)?;
    let splits = wikitext::load_of_any_length(config, data_dir)?;
    print::warnings(&splits.warnings);
    let names = ["train", "val", "test"];
    for (split, text) in names.into_iter().zip(splits.each()) {
        let name = config.corpus.name();
        ensure!(
            !text.ids().is_empty(),
            "{name}: the text of the {split} split is empty: a run needs some of each split"
        );
    }
    for ((split, text), path) in names.into_iter().zip(splits.each()).zip(paths) {
        let (name, tokens, counts) = (config.corpus.name(), text.ids().len(), text.counts());
        let (words, lines, bytes) = (counts.words, counts.lines, counts.bytes);
        let event = json!({
            "event": "tokens", "schema": 1, "corpus": name, "tokenizer": config.tokenizer,
            "split": split, "tokens": tokens, "words": words, "lines": lines,
            "ppl_words": counts.ppl_words(), "bytes": bytes, "path": path,
        });
        let (bytes, path) = (DecimalBytes(bytes), path.display());
        let line = format!(
            "{name} {split}: {tokens} tokens, {words} words, {lines} lines (W = {}), {bytes}, {path}",
            counts.ppl_words()
        );
        global.emit(&event, &line)?;
    }
    Ok(())
}
