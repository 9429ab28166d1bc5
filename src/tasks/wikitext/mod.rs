//! Language modelling: a text as ids, cut into windows whose targets are their inputs shifted by one.
//!
//! The data root holds `<config of the hub>/*.parquet` from downloads, `tokenizers/<name>.json` from [`adopt`], and
//! `tokens/<corpus>-<tokenizer>-<digest>/{train,val,test}.tokens` from [`Task::prepare`].

mod borders;
mod config;
mod end_of_text;
mod folders;
mod needle;
mod plain;
mod rows;
mod sample;
mod tokens;
mod vocabulary;

pub use config::{Corpus, Tokenizer, WikitextConfig};
pub use folders::GPT_NEOX_FOLDER;
pub use needle::{HiddenKey, NeedleForm};
pub use vocabulary::{
    adopt, check_fits, ids_for, known_eos, table_rows, tokenizer_file, TokenizerFile, TokenizerName, Vocabulary,
};

use super::{
    ExampleSizes, ExamplesMade, Files, Ids, Objective, Sources, Task, TaskEntry, TextSize, TokenizedText, TrainValTest,
    Watch,
};
use crate::cache;
use crate::config::TaskConfig;
use crate::error::{refuse, Result};
use folders::{Folders, SPLITS};
use rows::Encoder;
use std::path::{Path, PathBuf};
use tokens::Tokens;
use vocabulary::FoundTokenizer;

pub(super) const ENTRY: TaskEntry = TaskEntry {
    name: "wikitext",
    about: "the text of WikiText, or a text of your own",
    examples: &["dsf wikitext --mixer ssd", "dsf wikitext --from MODEL --corpus text --data-dir DIR"],
    recipe: include_str!("../../recipes/wikitext.toml"),
    fields: &[
        "corpus",
        "source_digest",
        "tokenizer",
        "vocab_size",
        "seq_len",
        "eos_between_articles",
        "train_examples",
        "test_examples",
    ],
    objective: Objective::NextToken,
    headline: "train_ppl",
    files: Some(Files {
        root: cache::wikitext,
        about: "the text of WikiText, and GPT-NeoX's tokenizer",
        flags: "--corpus NAME[,NAME] and --tokenizer",
    }),
    read: |config| Ok(Box::new(config.typed::<WikitextConfig>()?)),
};

impl Task for WikitextConfig {
    fn config(&self) -> TaskConfig {
        TaskConfig::new(ENTRY.name, self)
    }

    fn sizes(&self) -> ExampleSizes {
        let lengths = [self.seq_len; 2];
        ExampleSizes::of_tokens(self.vocab_size, lengths, [self.seq_len; 2], self.windows())
    }

    /// Always false: the last window of a text is shorter, prompts have any length, and `eval` may use other windows.
    fn has_one_length(&self) -> bool {
        false
    }

    fn check(&self) -> Result<()> {
        vocabulary::check_size(&self.tokenizer, self.vocab_size)?;
        let sizes = [
            ("--seq-len", Some(self.seq_len), 65_536),
            ("--train-examples", self.train_examples, usize::MAX),
            ("--test-examples", self.test_examples, usize::MAX),
        ];
        for (flag, size, most) in sizes {
            if size.is_some_and(|size| !(1..=most).contains(&size)) {
                let range = match most {
                    usize::MAX => "1 or more windows".to_owned(),
                    most => format!("1 to {most}"),
                };
                let size = size.unwrap_or(0);
                refuse!(flag(flag) = size, "must be {range}");
            }
        }
        Ok(())
    }

    fn load(&self, data_dir: Option<&Path>, _made: ExamplesMade) -> Result<super::Splits> {
        load(self, data_dir).map(super::Splits::NextToken)
    }

    fn title(&self) -> String {
        let (corpus, length) = (self.corpus.name(), self.seq_len);
        format!("{corpus} (L = {length}, {})", self.tokenizer)
    }

    fn label(&self) -> String {
        self.corpus.name().to_owned()
    }

    fn sources(&self, data_dir: Option<&Path>) -> Result<Option<Sources>> {
        // The tokenizer is only checked here; its digest is part of the config already.
        if self.tokenizer != Tokenizer::Bytes {
            let found = FoundTokenizer::find(&self.tokenizer, &Folders::new(data_dir)?)?;
            if self.eos_between_articles {
                Encoder::new(found.vocabulary()?, self)?;
            }
        }
        match self.corpus {
            Corpus::Sample => Ok(None),
            corpus => Folders::new(data_dir)?.sources(corpus, ALL).map(|files| Some(sources_of(&files))),
        }
    }

    fn prepared(&self) -> Option<String> {
        let eos = if self.eos_between_articles { ", eos" } else { "" };
        Some(format!("{} ({}{eos})", self.corpus.name(), self.tokenizer))
    }

    fn prepare(&self, data_dir: Option<&Path>, watch: Watch) -> Result<()> {
        prepare(self, data_dir, ALL, watch)
    }

    fn counted(&self, data_dir: Option<&Path>) -> Result<ExampleSizes> {
        let examples = load(self, data_dir)?.each().map(TokenizedText::windows);
        Ok(ExampleSizes { examples, ..self.sizes() })
    }
}

/// Splits of a corpus.
pub type CorpusSplits = TrainValTest<TokenizedText>;

/// Selection of all splits.
pub const ALL: [bool; 3] = [true; 3];

/// Same as [`Task::prepare`] for the splits `wanted`: training, validation, test. Fails as [`load`] does, if writing
/// fails, or if `watch` fails.
pub fn prepare(config: &WikitextConfig, data_dir: Option<&Path>, wanted: [bool; 3], watch: Watch) -> Result<()> {
    config.check()?;
    match config.corpus {
        Corpus::Sample => Ok(()),
        _ => Tokens::of(config, &Folders::new(data_dir)?, wanted)?.make(watch),
    }
}

/// Loads the splits of `config` from files under `data_dir`; `None` is the folder of `dsf data fetch`. Token files that
/// [`Task::prepare`] has not made are made first. Fails if the corpus or the tokenizer is missing, a file is not text,
/// a token file is damaged, or there are fewer windows than requested.
pub fn load(config: &WikitextConfig, data_dir: Option<&Path>) -> Result<CorpusSplits> {
    let (texts, warnings) = load_some(config, data_dir, ALL)?;
    Ok(splits(texts, warnings))
}

/// Same as [`load`] for the splits `wanted` (training, validation and test); also returns warnings. The files of other
/// splits may be missing.
pub fn load_some(
    config: &WikitextConfig,
    data_dir: Option<&Path>,
    wanted: [bool; 3],
) -> Result<([Option<TokenizedText>; 3], Vec<String>)> {
    let (texts, warnings) = texts(config, data_dir, wanted)?;
    for (split, text) in texts.iter().enumerate() {
        let check = |text| check_windows(config, split, text);
        text.as_ref().map_or(Ok(()), check)?;
    }
    Ok((texts, warnings))
}

/// Same as [`load`] without a minimum number of tokens. Fails as [`load`] does, except for the number of windows.
pub fn load_of_any_length(config: &WikitextConfig, data_dir: Option<&Path>) -> Result<CorpusSplits> {
    let (texts, warnings) = texts(config, data_dir, ALL)?;
    Ok(splits(texts, warnings))
}

fn splits(texts: [Option<TokenizedText>; 3], warnings: Vec<String>) -> CorpusSplits {
    let all = texts.map(|text| text.expect("every split was wanted"));
    CorpusSplits { warnings, ..all.into() }
}

fn texts(
    config: &WikitextConfig,
    data_dir: Option<&Path>,
    wanted: [bool; 3],
) -> Result<([Option<TokenizedText>; 3], Vec<String>)> {
    config.check()?;
    match config.corpus {
        Corpus::Sample => {
            let mut texts = sample::load(config, data_dir)?.map(Some);
            texts.iter_mut().zip(wanted).filter(|(_, wanted)| !wanted).for_each(|(text, _)| *text = None);
            Ok((texts, Vec::new()))
        }
        _ => texts_from(config, &Folders::new(data_dir)?, wanted),
    }
}

fn texts_from(
    config: &WikitextConfig,
    place: &Folders,
    wanted: [bool; 3],
) -> Result<([Option<TokenizedText>; 3], Vec<String>)> {
    let tokens = Tokens::of(config, place, wanted)?;
    tokens.make(&mut |_| Ok(()))?;
    let (texts, mut warnings) = tokens.load()?;
    warnings.extend(incomplete(config.corpus, &texts));
    Ok((texts, warnings))
}

/// Paths of the token file of each split, which may not exist yet. Fails as [`Task::sources`] does, and for
/// [`Corpus::Sample`], which has no token files.
pub fn token_files(config: &WikitextConfig, data_dir: Option<&Path>) -> Result<[PathBuf; 3]> {
    if config.corpus == Corpus::Sample {
        refuse!(flag "--corpus" = "sample", "is built into the program and has no token files");
    }
    Ok(Tokens::of(config, &Folders::new(data_dir)?, ALL)?.paths())
}

/// Returns the folder below `dir` that holds files of `corpus`, in any form that [`load`] reads. Files in `dir` itself
/// could belong to any corpus and are not considered.
pub fn found(corpus: Corpus, dir: &Path) -> Option<PathBuf> {
    let files = folders::below(corpus, dir)?;
    files[0].first()?.parent().map(Path::to_owned)
}

/// Returns the file of GPT-NeoX's tokenizer, if `dir` or a cache has it.
pub fn found_tokenizer(dir: &Path) -> Option<PathBuf> {
    let place = Folders::new(Some(dir)).ok()?;
    Some(FoundTokenizer::find(&Tokenizer::GptNeox, &place).ok()?.path)
}

/// Source files of all splits, named by split and index.
fn sources_of(files: &[Vec<PathBuf>; 3]) -> Sources {
    let mut sources = Sources::default();
    for (split, files) in SPLITS.iter().zip(files) {
        for (i, path) in files.iter().enumerate() {
            sources.push(format!("{split} {i}"), path.clone());
        }
    }
    sources
}

/// Fails if the token table has no row for `largest`, the largest id of a split.
fn check_ids(config: &WikitextConfig, split: usize, largest: u32) -> Result<()> {
    let (rows, needed) = (config.vocab_size, largest as usize + 1);
    if needed <= rows {
        return Ok(());
    }
    refuse!(flag "--vocab-size" = rows, "too small: ids of the {} split need {needed}", SPLITS[split])
}

/// Windows of one split.
fn cut(ids: Ids, counts: TextSize, config: &WikitextConfig, split: usize) -> TokenizedText {
    TokenizedText::new(ids, counts, config.seq_len, config.limits()[split])
}

/// Fails if a split has no window, or fewer than requested.
fn check_windows(config: &WikitextConfig, split: usize, text: &TokenizedText) -> Result<()> {
    let (name, tokens, length) = (SPLITS[split], text.ids().len(), config.seq_len);
    let windows = tokens.saturating_sub(1) / length;
    if windows == 0 {
        let advice = match tokens {
            0 | 1 => "it needs more text".to_owned(),
            _ => format!("give --seq-len {} or less", tokens - 1),
        };
        refuse!(flag "--seq-len" = length, "the {name} split has {tokens} tokens, and a window takes {}: {advice}", length + 1);
    }
    let flag = ["--train-examples", "--test-examples"][split.min(1)];
    match config.limits()[split].filter(|asked| *asked > windows) {
        None => Ok(()),
        Some(asked) => refuse!(flag(flag) = asked, "the {name} split has only {windows} windows of {length} tokens"),
    }
}

/// Warning if splits do not have the number of words of the complete corpus.
fn incomplete(corpus: Corpus, texts: &[Option<TokenizedText>; 3]) -> Option<String> {
    let train = match corpus {
        Corpus::Wikitext103Raw | Corpus::Wikitext103 => 101_425_671,
        Corpus::Wikitext2Raw | Corpus::Wikitext2 => 2_051_910,
        Corpus::Text | Corpus::Sample => return None,
    };
    let whole = [train, 213_886, 241_211];
    let parts: Vec<String> = (0..3)
        .filter_map(|split| Some((SPLITS[split], texts[split].as_ref()?.counts().words, whole[split])))
        .filter(|(_, words, whole)| words != whole)
        .map(|(split, words, whole)| format!("{split} has {words} words of {whole}"))
        .collect();
    (!parts.is_empty()).then(|| {
        format!(
            "the files of {} are incomplete or of another edition, so that perplexities are not comparable: {}",
            corpus.name(),
            parts.join(", ")
        )
    })
}

#[cfg(test)]
mod tests;
#[cfg(test)]
use tests::testing;
