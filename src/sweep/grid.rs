//! The cartesian product of lists of settings, resolved run by run before anything is trained.

use super::flags::Flags;
use super::values::{MixerOption, Rate};
use crate::config::RunConfig;
use crate::error::{self, Error, Result};
use crate::mixers::MIXERS;
use crate::model::protocol::Request;
use clap::ValueEnum;
use std::collections::HashSet;
use std::fmt::Display;

/// A plan must fit in memory and in a lifetime.
const MOST_RUNS: usize = 100_000;

/// What a sweep trains when no mixer is named: the five of the paper's figures 2 and 7.
const COMPARED: [&str; 5] = ["softmax", "linear", "normalized", "s6", "ssd"];

/// The tasks that can be swept.
const TASKS: [&str; 1] = ["mqar"];

/// Refuses a task that does not exist.
pub fn check_task(name: &str) -> Result<()> {
    if TASKS.contains(&name) {
        return Ok(());
    }
    Err(error::unknown("task", name, TASKS))
}

/// Runs in the order in which they are started, each of them once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The runs.
    pub runs: Vec<RunConfig>,
    /// Combinations left out because an earlier one describes the same run, such as a qLSTM at
    /// another n.
    pub duplicates: usize,
}

impl Plan {
    /// The grid of `flags`; the paper's five mixers where none is named. The first run that
    /// cannot be trained refuses the whole plan.
    ///
    /// Mixers vary slowest, then variant, options, protocol, L and k, V, examples, generator,
    /// d, n, heads, layers, epochs, batch, decay, dropout, lr; seeds vary fastest.
    pub fn of(flags: &Flags) -> Result<Self> {
        let mut plan = Self::default();
        plan.extend(flags)?;
        Ok(plan)
    }

    /// Adds the grid of `flags` behind what is planned already.
    pub(super) fn extend(&mut self, flags: &Flags) -> Result<()> {
        let mut flags = flags.clone();
        if flags.mixer.is_empty() {
            flags.mixer = COMPARED.map(str::to_owned).into();
        }
        let mut seen: HashSet<String> = self.runs.iter().map(RunConfig::id).collect();
        for request in product(&flags)? {
            let run = request.resolve()?;
            if seen.insert(run.id()) {
                self.runs.push(run);
            } else {
                self.duplicates += 1;
            }
        }
        Ok(())
    }
}

impl Flags {
    /// The one run that these flags describe, on top of their preset.
    pub fn single(&self) -> Result<RunConfig> {
        let axes = axes(self)?;
        if let Some(axis) = axes.iter().find(|axis| axis.settings.len() > 1) {
            let Axis { flag, text, .. } = axis;
            return Err(Error::usage(format!(
                "--{flag} {text}: one run takes one value; \
                 `dsf sweep --task mqar --{flag} {text}` trains them all"
            )));
        }
        let mut request = self.preset.unwrap_or_default().request();
        for setting in axes.iter().flat_map(|axis| &axis.settings) {
            setting(&mut request);
        }
        request.resolve()
    }
}

/// One flag and what each of its values changes.
struct Axis {
    flag: &'static str,
    /// The values as typed.
    text: String,
    settings: Vec<Setting>,
}

type Setting = Box<dyn Fn(&mut Request)>;

/// Every combination, the last axis varying fastest.
fn product(flags: &Flags) -> Result<Vec<Request>> {
    let axes = axes(flags)?;
    let size = axes.iter().try_fold(1usize, |size, axis| {
        size.checked_mul(axis.settings.len())
            .filter(|size| *size <= MOST_RUNS)
    });
    if size.is_none() {
        let axes: Vec<String> = axes
            .iter()
            .map(|a| format!("--{} {}", a.flag, a.text))
            .collect();
        return Err(Error::usage(format!(
            "{}: more than {MOST_RUNS} runs; shorten a list, or make several sweeps of it",
            axes.join(" ")
        )));
    }
    let mut requests = vec![flags.preset.unwrap_or_default().request()];
    for axis in &axes {
        let varied = requests.iter().flat_map(|request| {
            axis.settings.iter().map(|setting| {
                let mut request = request.clone();
                setting(&mut request);
                request
            })
        });
        requests = varied.collect();
    }
    Ok(requests)
}

/// The flags that were given, slowest first.
fn axes(flags: &Flags) -> Result<Vec<Axis>> {
    check_alternatives(flags)?;
    let rates: Vec<f64> = flags.lr.iter().copied().flat_map(Rate::values).collect();
    let mut axes = vec![
        typed("mixer", joined(&flags.mixer), &mixers(flags), |r, v| {
            r.mixer = v
        }),
        axis("variant", &flags.variant, |r, v| r.variant = Some(v)),
    ];
    axes.extend(options(&flags.option));
    axes.extend([
        typed(
            "protocol",
            names(&flags.protocol),
            &flags.protocol,
            |r, v| r.protocol = v,
        ),
        axis("sizes", &flags.sizes, |r, v| {
            r.task.seq_len = v.seq_len;
            r.task.kv_pairs = v.kv_pairs;
        }),
        axis("seq-len", &flags.seq_len, |r, v| r.task.seq_len = v),
        axis("kv-pairs", &flags.kv_pairs, |r, v| r.task.kv_pairs = v),
        axis("vocab-size", &flags.vocab_size, |r, v| {
            r.task.vocab_size = v
        }),
        axis("train-examples", &flags.train_examples, |r, v| {
            r.task.train_examples = v
        }),
        axis("test-examples", &flags.test_examples, |r, v| {
            r.task.test_examples = v
        }),
        typed("data", names(&flags.data), &flags.data, |r, v| {
            r.task.data = v
        }),
        axis("data-seed", &flags.data_seed, |r, v| r.task.data_seed = v),
        axis("d", &flags.d, |r, v| r.d_model = v),
        axis("n", &flags.n, |r, v| r.d_state = v),
        axis("heads", &flags.heads, |r, v| r.n_heads = v),
        axis("layers", &flags.layers, |r, v| r.n_layers = v),
        axis("epochs", &flags.epochs, |r, v| r.epochs = v),
        axis("batch-size", &flags.batch_size, |r, v| {
            r.batch_size = Some(v)
        }),
        axis("weight-decay", &flags.weight_decay, |r, v| {
            r.weight_decay = v
        }),
        axis("dropout", &flags.dropout, |r, v| r.dropout = Some(v)),
        typed("lr", joined(&flags.lr), &rates, |r, v| r.lr = v),
        seed_axis(flags)?,
    ]);
    axes.retain(|axis| !axis.settings.is_empty());
    Ok(axes)
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

fn names<T: ValueEnum>(values: &[T]) -> String {
    let names = values.iter().filter_map(T::to_possible_value);
    joined(&names.map(|v| v.get_name().to_owned()).collect::<Vec<_>>())
}

fn mixers(flags: &Flags) -> Vec<String> {
    let named = |name: &String| match name.as_str() {
        "all" => MIXERS.iter().map(|entry| entry.name.to_owned()).collect(),
        _ => vec![name.clone()],
    };
    flags.mixer.iter().flat_map(named).collect()
}

fn seed_axis(flags: &Flags) -> Result<Axis> {
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
