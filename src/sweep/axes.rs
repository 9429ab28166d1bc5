//! One axis a flag: its values, and what each of them changes in a run.

use super::flags::Flags;
use super::values::{MixerOption, Rate};
use crate::error::{Error, Result};
use crate::mixers::MIXERS;
use crate::model::protocol::Request;
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

pub(super) type Setting = Box<dyn Fn(&mut Request)>;

/// The flags that were given, slowest first.
pub(super) fn axes(flags: &Flags) -> Result<Vec<Axis>> {
    check_alternatives(flags)?;
    let mut axes = model(flags);
    axes.extend(task(flags));
    axes.extend(training(flags)?);
    axes.retain(|axis| !axis.settings.is_empty());
    Ok(axes)
}

fn model(flags: &Flags) -> Vec<Axis> {
    let mut axes = vec![
        typed("mixer", joined(&flags.mixer), &mixers(flags), |r, v| {
            r.mixer = v
        }),
        axis("variant", &flags.variant, |r, v| r.variant = Some(v)),
        named("protocol", &flags.protocol, |r, v| r.protocol = v),
        axis("d", &flags.d, |r, v| r.d_model = v),
        axis("n", &flags.n, |r, v| r.d_state = v),
        axis("heads", &flags.heads, |r, v| r.n_heads = v),
        axis("layers", &flags.layers, |r, v| r.n_layers = v),
    ];
    axes.extend(options(&flags.option));
    axes
}

fn task(flags: &Flags) -> [Axis; 8] {
    [
        axis("seq-len", &flags.seq_len, |r, v| r.task.seq_len = v),
        axis("kv-pairs", &flags.kv_pairs, |r, v| r.task.kv_pairs = v),
        axis("sizes", &flags.sizes, |r, v| {
            (r.task.seq_len, r.task.kv_pairs) = (v.seq_len, v.kv_pairs)
        }),
        axis("vocab-size", &flags.vocab_size, |r, v| {
            r.task.vocab_size = v
        }),
        axis("train-examples", &flags.train_examples, |r, v| {
            r.task.train_examples = v
        }),
        axis("test-examples", &flags.test_examples, |r, v| {
            r.task.test_examples = v
        }),
        named("data", &flags.data, |r, v| r.task.data = v),
        axis("data-seed", &flags.data_seed, |r, v| r.task.data_seed = v),
    ]
}

fn training(flags: &Flags) -> Result<[Axis; 7]> {
    let rates: Vec<f64> = flags.lr.iter().copied().flat_map(Rate::values).collect();
    Ok([
        typed("lr", joined(&flags.lr), &rates, |r, v| r.lr = v),
        axis("epochs", &flags.epochs, |r, v| r.epochs = v),
        axis("batch-size", &flags.batch_size, |r, v| {
            r.batch_size = Some(v)
        }),
        axis("weight-decay", &flags.weight_decay, |r, v| {
            r.weight_decay = v
        }),
        named("precision", &flags.precision, |r, v| r.precision = v),
        axis("dropout", &flags.dropout, |r, v| r.dropout = Some(v)),
        seeds(flags)?,
    ])
}

fn axis<T: Clone + Display + 'static>(
    flag: &'static str,
    values: &[T],
    set: fn(&mut Request, T),
) -> Axis {
    typed(flag, joined(values), values, set)
}

/// An axis whose values were typed as `text`.
fn typed<T: Clone + 'static>(
    flag: &'static str,
    text: String,
    values: &[T],
    set: fn(&mut Request, T),
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
fn named<T: ValueEnum + 'static>(
    flag: &'static str,
    values: &[T],
    set: fn(&mut Request, T),
) -> Axis {
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
    let set = |r: &mut Request, o: MixerOption| drop(r.options.insert(o.name, o.value));
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

fn seeds(flags: &Flags) -> Result<Axis> {
    let set = |r: &mut Request, v| r.seed = v;
    let Some(count) = flags.seeds else {
        return Ok(axis("seed", &flags.seed, set));
    };
    if !(1..=MOST_RUNS as u64).contains(&count) {
        return Err(Error::usage(format!(
            "--seeds must be 1 to {MOST_RUNS}, not {count}"
        )));
    }
    let default = flags.preset.unwrap_or_default().request().seed;
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
