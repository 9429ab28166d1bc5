//! `dsf wikitext needle`: keys that trained weights recall from long contexts.

use super::chosen::Chosen;
use crate::cli::results::ReportOutput;
use crate::cli::{check_stop, exit, print, progress, stop_flag, Global};
use crate::config::whole;
use crate::error::{ensure, Result};
use crate::gpu;
use crate::model::LanguageModel;
use crate::report::{Cell, Content, Coverage, Grid, GridLine, PanelForm, Report, Style, Tick};
use crate::sweep::estimate::grouped;
use crate::tasks::wikitext::{self, Corpus, HiddenKey, NeedleForm, Vocabulary, WikitextConfig};
use crate::tasks::Task;
use crate::train::{score_keys, KeyScore};
use candle_core::Device;
use clap::Args;
use serde_json::json;

#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  dsf wikitext needle --checkpoint results/runs/0123456789ab\n  \
                  dsf wikitext needle --checkpoint state-spaces/mamba-130m-hf --lengths 512,2048,8192 --to needle.png\n  \
                  dsf wikitext needle --checkpoint 0123456789ab --needle \" Her number is {key}.\" --question \" Her number is\"")]
pub(super) struct NeedleArguments {
    #[command(flatten)]
    chosen: Chosen,
    /// Lengths of the contexts, in tokens [default: an eighth, a quarter, half and all of the training length].
    ///
    /// By default, lengths below twice that of the needle and its question are left out.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    lengths: Vec<usize>,
    /// Depths of the needle, in percent of the text before it.
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "0,25,50,75,100",
          value_parser = whole::<u8>(0..=100))]
    depths: Vec<u8>,
    /// Keys per length and depth.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = whole::<u32>(1..=100_000))]
    keys: u32,
    /// Sentence to hide; {key} stands for five random digits.
    #[arg(long, value_name = "TEXT", default_value = " The pass key is {key}. Remember it. {key} is the pass key.")]
    needle: String,
    /// Words at the end of the context, which the key follows.
    #[arg(long, value_name = "TEXT", default_value = " What is the pass key? The pass key is")]
    question: String,
    /// Corpus whose test split is the haystack [default: the corpus of training].
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    corpus: Option<Corpus>,
    /// Seed of the keys and of their places in the text.
    #[arg(long, default_value_t = 0, hide_short_help = true)]
    seed: u64,
    #[command(flatten)]
    form: ReportOutput,
}

/// Number of tokens in a batch of contexts.
const AT_ONCE: usize = 8192;

/// Mean scores of the keys of one length and depth.
#[derive(Clone, Copy)]
struct KeyMeans {
    found: f64,
    nll: f64,
}

/// Mean scores of one length: at each depth, and without the needle.
struct LengthMeans {
    depths: Vec<KeyMeans>,
    without: KeyMeans,
}

impl KeyMeans {
    fn of(scores: &[KeyScore]) -> Self {
        let mean = |of: &dyn Fn(&KeyScore) -> f64| scores.iter().map(of).sum::<f64>() / scores.len() as f64;
        Self { found: mean(&|score| f64::from(u8::from(score.found))), nll: mean(&|score| score.nll) }
    }
}

pub(super) fn main(arguments: &NeedleArguments, global: &Global) -> Result<u8> {
    arguments.form.format(global)?;
    let form = NeedleForm { needle: arguments.needle.clone(), question: arguments.question.clone() };
    form.check()?;
    let (found, text) = arguments.chosen.open(global)?;
    ensure!(!arguments.depths.is_empty(), flag "--depths", "give at least one");
    let haystack = WikitextConfig {
        corpus: arguments.corpus.unwrap_or(text.corpus),
        train_examples: None,
        test_examples: None,
        source_digest: None,
        ..text.clone()
    };
    let stop = stop_flag()?;
    let data_dir = arguments.chosen.data_dir.as_deref();
    let (device, device_name) = arguments.chosen.device(global)?;
    wikitext::check_fits(&haystack)?;
    let vocabulary = Vocabulary::of(&text, data_dir)?;
    let wanted = [false, false, true];
    let lengths = match &arguments.lengths[..] {
        [] => {
            let least = 2 * form.tokens(&vocabulary)?;
            let parts = [8, 4, 2].map(|part| text.seq_len / part).into_iter().filter(|length| *length >= least);
            parts.chain([text.seq_len.max(least)]).collect()
        }
        given => given.to_vec(),
    };
    let name = haystack.prepared().unwrap_or_default();
    progress::show(&name, global.silent(), &stop, |watch| wikitext::prepare(&haystack, data_dir, wanted, watch))?;
    let (splits, warnings) = wikitext::load_some(&haystack, data_dir, wanted)?;
    print::warnings(&warnings);
    let [.., Some(test)] = &splits else { unreachable!("the test split is wanted") };
    let hide = |len: usize, depth: Option<u8>| -> Result<Vec<HiddenKey>> {
        let depth = depth.map(|percent| f64::from(percent) / 100.0);
        let hide = |key| form.hide(&vocabulary, test.ids(), (len, depth), (arguments.seed, key));
        (0..arguments.keys as usize).map(hide).collect()
    };
    // Every context is made before the first is scored, so that none of them fails late.
    let mut cells = Vec::new();
    for len in &lengths {
        let depths = arguments.depths.iter().map(|depth| hide(*len, Some(*depth)));
        cells.push((depths.collect::<Result<Vec<_>>>()?, hide(*len, None)?));
    }
    let model = found.model(&device)?;
    let template = "{prefix} {wide_bar} {pos}/{len} cells, {eta} left";
    let bar = print::bar_unless(global.silent(), template, Some((lengths.len() * (arguments.depths.len() + 1)) as u64));
    let score = |keys: &Vec<HiddenKey>| -> Result<KeyMeans> {
        check_stop(&stop)?;
        let means = scored(&model, keys, &device)?;
        bar.inc(1);
        Ok(means)
    };
    let means = gpu::with_factors(found.config.train.precision.factors(), || {
        let of_length = |(depths, without): &(Vec<Vec<HiddenKey>>, Vec<HiddenKey>)| -> Result<LengthMeans> {
            Ok(LengthMeans { depths: depths.iter().map(score).collect::<Result<_>>()?, without: score(without)? })
        };
        cells.iter().map(of_length).collect::<Result<Vec<_>>>()
    });
    bar.finish_and_clear();
    let who = match &found.origin.run {
        Some(run) => format!("{} (run {run})", found.config.model.mixer),
        None => format!("{} ({})", found.config.model.mixer, found.place.display()),
    };
    let heading = format!(
        "Needle in a haystack: {who}, {} keys per cell, haystack {} ({}), {device_name}",
        grouped(u64::from(arguments.keys)),
        haystack.corpus.name(),
        haystack.tokenizer,
    );
    arguments.form.write(&report(heading, (&lengths, &arguments.depths), &means?, text.seq_len), global)?;
    Ok(exit::DONE)
}

fn scored(model: &LanguageModel, keys: &[HiddenKey], device: &Device) -> Result<KeyMeans> {
    let longest = keys.iter().map(|hidden| hidden.context.len() + hidden.key.len()).max().unwrap_or(1);
    Ok(KeyMeans::of(&score_keys(model, keys, (AT_ONCE / longest).max(1), device)?))
}

/// Report of `means` by length and depth.
fn report(heading: String, (lengths, depths): (&[usize], &[u8]), means: &[LengthMeans], trained: usize) -> Report {
    let record = |quantity: &str, length: usize, depth: Option<u8>, value: f64| {
        let fields = [
            ("quantity", json!(quantity)),
            ("length", json!(length)),
            ("depth", json!(depth)),
            ("value", json!(value)),
        ];
        fields.map(|(name, value)| (name.to_owned(), value)).to_vec()
    };
    let grid = |title: &str, style: Style, form: PanelForm, of: fn(&KeyMeans) -> f64| {
        let line = |(i, depth): (usize, &u8)| {
            let cells = means.iter().map(|of_length| Cell::from(Content::Value(of(&of_length.depths[i]))));
            GridLine::new(Tick { title: format!("{depth} %"), at: Some(f64::from(*depth)) }, cells.collect())
        };
        let each = |(length, of_length): (&usize, &LengthMeans)| {
            let (length, depths) = (*length, depths.iter().zip(&of_length.depths));
            depths.map(|(depth, means)| record(title, length, Some(*depth), of(means))).collect::<Vec<_>>()
        };
        Grid {
            axes: ["depth", "tokens"].map(str::to_owned),
            form,
            records: lengths.iter().zip(means).flat_map(each).collect(),
            ..Grid::new(
                title,
                lengths.iter().copied().map(Tick::whole),
                depths.iter().enumerate().map(line).collect(),
                style,
            )
        }
    };
    let mut nats = grid("nats of a key", Style::Measured("nats"), PanelForm::Table, |means| means.nll);
    let cells = means.iter().map(|of_length| Cell::from(Content::Value(of_length.without.nll)));
    nats.lines.push(GridLine::of_baseline("no needle", cells.collect()));
    let baselines = lengths.iter().zip(means);
    nats.records.extend(
        baselines.map(|(length, of)| record("nats of a key without the needle", *length, None, of.without.nll)),
    );
    let found = grid("keys found", Style::Share("keys found (%)"), PanelForm::Heatmap, |means| means.found);
    let mut notes =
        vec!["a key is found if each of its tokens is the most likely one; nats are summed over its tokens".to_owned()];
    if lengths.iter().any(|length| *length > trained) {
        notes.push(format!("the model was trained on windows of {trained} tokens: some contexts are longer"));
    }
    Report {
        heading,
        facts: vec![("needle".to_owned(), json!(1))],
        list: "panels",
        grids: vec![found, nats],
        printed: Vec::new(),
        notes,
        coverage: Coverage::default(),
    }
}
