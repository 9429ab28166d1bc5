//! One axis a flag: its values, and what each of them changes in a run.

use super::flags::{ClassifierFlags, Flags, LanguageFlags};
use super::values::{MixerOption, TokenizerName};
use crate::error::{Error, Result};
use crate::mixers::MIXERS;
use crate::model::protocol::{Asked, Task};
use clap::ValueEnum;
use std::fmt::Display;

/// More runs than this are a mistake: they fit neither in memory nor in a lifetime.
pub(super) const MOST_RUNS: usize = 100_000;

/// One flag and what each of its values changes.
pub(super) struct Axis {
    pub flag: &'static str,
    /// The values as typed.
    pub text: String,
    pub settings: Vec<Setting>,
}

pub(super) type Setting = Box<dyn Fn(&mut Asked)>;

/// The flags that were given, slowest first.
pub(super) fn axes(flags: &Flags, task: Task) -> Result<Vec<Axis>> {
    check_alternatives(flags)?;
    let mut axes = model(flags);
    axes.extend(text(&flags.language)?);
    axes.extend(data(flags));
    axes.extend(training(flags, task));
    axes.extend(classifier(&flags.classifier));
    axes.extend(language(&flags.language));
    axes.push(seeds(flags, task)?);
    axes.retain(|axis| !axis.settings.is_empty());
    Ok(axes)
}

fn model(flags: &Flags) -> Vec<Axis> {
    let mut axes = vec![
        named("dataset", &flags.classifier.dataset, |a, v| {
            a.dataset = Some(v)
        }),
        typed("mixer", joined(&flags.mixer), &mixers(flags), |a, v| {
            a.mixer = Some(v)
        }),
        axis("variant", &flags.variant, |a, v| a.variant = Some(v)),
        named("protocol", &flags.protocol, |a, v| a.protocol = Some(v)),
        axis("d", &flags.d, |a, v| a.d = Some(v)),
        axis("n", &flags.n, |a, v| a.n = Some(v)),
        axis("heads", &flags.heads, |a, v| a.heads = Some(v)),
        axis("layers", &flags.layers, |a, v| a.layers = Some(v)),
        axis("mlp-width", &flags.mlp_width, |a, v| a.mlp_width = Some(v)),
        axis("expand", &flags.expand, |a, v| a.expand = Some(v)),
    ];
    axes.extend(options(&flags.option));
    axes
}

fn data(flags: &Flags) -> [Axis; 8] {
    [
        axis("seq-len", &flags.seq_len, |a, v| a.seq_len = Some(v)),
        axis("kv-pairs", &flags.kv_pairs, |a, v| a.kv_pairs = Some(v)),
        axis("sizes", &flags.sizes, |a, v| {
            (a.seq_len, a.kv_pairs) = (Some(v.seq_len), Some(v.kv_pairs))
        }),
        axis("vocab-size", &flags.vocab_size, |a, v| {
            a.vocab_size = Some(v)
        }),
        axis("train-examples", &flags.train_examples, |a, v| {
            a.train_examples = Some(v)
        }),
        axis("test-examples", &flags.test_examples, |a, v| {
            a.test_examples = Some(v)
        }),
        named("data", &flags.data, |a, v| a.data = Some(v)),
        axis("data-seed", &flags.data_seed, |a, v| a.data_seed = Some(v)),
    ]
}

fn training(flags: &Flags, task: Task) -> [Axis; 8] {
    let rates = flags.lr.iter().flat_map(|rate| rate.values(task));
    let rates: Vec<f64> = rates.collect();
    [
        typed("lr", joined(&flags.lr), &rates, |a, v| a.lr = Some(v)),
        axis("epochs", &flags.epochs, |a, v| a.epochs = Some(v)),
        axis("batch-size", &flags.batch_size, |a, v| {
            a.batch_size = Some(v)
        }),
        axis("micro-batch", &flags.micro_batch, |a, v| {
            a.micro_batch = Some(v)
        }),
        axis("weight-decay", &flags.weight_decay, |a, v| {
            a.weight_decay = Some(v)
        }),
        named("precision", &flags.precision, |a, v| a.precision = Some(v)),
        axis("dropout", &flags.dropout, |a, v| a.dropout = Some(v)),
        axis("attn-dropout", &flags.attn_dropout, |a, v| {
            a.attn_dropout = Some(v)
        }),
    ]
}

fn classifier(flags: &ClassifierFlags) -> [Axis; 9] {
    [
        axis("contour-length", &flags.contour_length, |a, v| {
            a.contour_length = Some(v)
        }),
        axis("val-examples", &flags.val_examples, |a, v| {
            a.val_examples = Some(v)
        }),
        axis("warmup-epochs", &flags.warmup_epochs, |a, v| {
            a.warmup_epochs = Some(v)
        }),
        named("input", &flags.input, |a, v| a.input = Some(v)),
        named("pool", &flags.pool, |a, v| a.pool = Some(v)),
        axis("mask", &flags.mask, |a, v| a.mask = Some(v)),
        named("dual", &flags.dual, |a, v| a.dual = Some(v)),
        named("loss", &flags.loss, |a, v| a.loss = Some(v)),
        axis("lambda-skip", &flags.lambda_skip, |a, v| {
            a.lambda_skip = Some(v)
        }),
    ]
}

/// What is read; a tokenizer's file is looked into.
fn text(flags: &LanguageFlags) -> Result<[Axis; 3]> {
    let tokenizers = flags.tokenizer.iter().map(TokenizerName::resolve);
    let tokenizers: Vec<_> = tokenizers.collect::<Result<_>>()?;
    let names = joined(&flags.tokenizer);
    Ok([
        named("corpus", &flags.corpus, |a, v| a.corpus = Some(v)),
        typed("tokenizer", names, &tokenizers, |a, v| {
            a.tokenizer = Some(v)
        }),
        axis(
            "eos-between-articles",
            &flags.eos_between_articles,
            |a, v| a.eos_between_articles = Some(v),
        ),
    ])
}

fn language(flags: &LanguageFlags) -> [Axis; 6] {
    [
        named("rotary", &flags.rotary, |a, v| a.rotary = Some(v)),
        named("init", &flags.init, |a, v| a.init = Some(v)),
        named("schedule", &flags.schedule, |a, v| a.schedule = Some(v)),
        axis("clip", &flags.clip, |a, v| a.clip = Some(v)),
        named("decay", &flags.decay, |a, v| a.decay = Some(v)),
        axis("beta2", &flags.beta2, |a, v| a.beta2 = Some(v)),
    ]
}

fn axis<T: Clone + Display + 'static>(
    flag: &'static str,
    values: &[T],
    set: fn(&mut Asked, T),
) -> Axis {
    typed(flag, joined(values), values, set)
}

/// An axis whose values were typed as `text`.
fn typed<T: Clone + 'static>(
    flag: &'static str,
    text: String,
    values: &[T],
    set: fn(&mut Asked, T),
) -> Axis {
    let setting = |value: &T| -> Setting {
        let value = value.clone();
        Box::new(move |request| set(request, value.clone()))
    };
    Axis {
        flag,
        text,
        settings: values.iter().map(setting).collect(),
    }
}

/// An axis of an enum's values.
fn named<T: ValueEnum + 'static>(flag: &'static str, values: &[T], set: fn(&mut Asked, T)) -> Axis {
    let names = values.iter().filter_map(T::to_possible_value);
    let names: Vec<String> = names.map(|v| v.get_name().to_owned()).collect();
    typed(flag, joined(&names), values, set)
}

fn joined<T: Display>(values: &[T]) -> String {
    let texts: Vec<String> = values.iter().map(T::to_string).collect();
    texts.join(",")
}

/// Values of one option are alternatives; different options go together.
fn options(given: &[MixerOption]) -> Vec<Axis> {
    let mut names: Vec<&str> = Vec::new();
    for option in given {
        if !names.contains(&option.name.as_str()) {
            names.push(&option.name);
        }
    }
    let of = |name: &&str| -> Vec<MixerOption> {
        given.iter().filter(|o| o.name == *name).cloned().collect()
    };
    let set = |a: &mut Asked, o: MixerOption| drop(a.options.insert(o.name, o.value));
    names
        .iter()
        .map(|name| axis("option", &of(name), set))
        .collect()
}

fn mixers(flags: &Flags) -> Vec<String> {
    let named = |name: &String| match name.as_str() {
        "all" => MIXERS.iter().map(|entry| entry.name.to_owned()).collect(),
        _ => vec![name.clone()],
    };
    flags.mixer.iter().flat_map(named).collect()
}

fn seeds(flags: &Flags, task: Task) -> Result<Axis> {
    let set = |a: &mut Asked, v| a.seed = Some(v);
    let Some(count) = flags.seeds else {
        return Ok(axis("seed", &flags.seed, set));
    };
    if !(1..=MOST_RUNS as u64).contains(&count) {
        return Err(Error::usage(format!(
            "--seeds must be 1 to {MOST_RUNS}, not {count}"
        )));
    }
    let default = task.entry().seed;
    let first = flags.seed.first().copied().unwrap_or(default);
    let Some(end) = first.checked_add(count) else {
        return Err(Error::usage(format!(
            "--seeds {count} from --seed {first}: beyond the largest seed; start lower"
        )));
    };
    let seeds: Vec<u64> = (first..end).collect();
    Ok(typed("seeds", count.to_string(), &seeds, set))
}

fn check_alternatives(flags: &Flags) -> Result<()> {
    let sizes = &flags.sizes;
    if !(sizes.is_empty() || flags.seq_len.is_empty() && flags.kv_pairs.is_empty()) {
        return Err(Error::usage(format!(
            "--sizes {} gives lengths and pairs: leave out --seq-len and --kv-pairs",
            joined(sizes)
        )));
    }
    if flags.seeds.is_some() && flags.seed.len() > 1 {
        return Err(Error::usage(format!(
            "--seed {} lists the seeds and --seeds counts them: give a list, or a first seed and a count",
            joined(&flags.seed)
        )));
    }
    Ok(())
}
