//! `dsf mqar`, `dsf lra`, `dsf wikitext` and the other tasks: trains one run and reports its result.

use super::device::DeviceChoice;
use super::perplexity;
use super::print::{self, columns, Align};
use super::run::{execute, KeptWeights, RunContext, RunEvent};
use super::screen::{without_skill, RunScreen};
use super::worker::{code, done, emit, JsonEvents};
use super::{check_stop, exit, initial, progress, stop_flag, Global};
use crate::config::{whole, RunConfig};
use crate::error::{ensure, Error, Result};
use crate::files;
use crate::model::initial_values;
use crate::nn::InitialValues;
use crate::recipes::{self, as_typed, Explained, Flags, Resolved, TaskRow};
use crate::report::Figure;
use crate::store::{Column, Metrics, Outcome, Record, RunResult, RunStatus, Status, Store, Weights};
use crate::sweep::estimate::{self, counted, duration};
use crate::sweep::{Experiment, Training};
use crate::tasks;
use clap::{Args, Command, FromArgMatches};
use serde_json::{json, Value};
use std::path::PathBuf;

#[derive(Args)]
pub(super) struct SingleArguments {
    #[command(flatten)]
    pub(super) flags: Flags,
    /// Device: auto, cpu, cuda or cuda:1.
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    device: DeviceChoice,
    /// Repeat the run of a config.json or an experiment file; flags override it.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    config: Option<PathBuf>,
    #[command(flatten)]
    training: Training,
    /// Keep the weights at initialisation and after every EPOCHS epochs.
    ///
    /// `dsf inspect RUN --over-training` shows how they change. This changes neither the id nor the numbers of the run.
    #[arg(long, value_name = "EPOCHS", hide_short_help = true, value_parser = whole::<u32>(1..=u64::MAX))]
    snapshot_every: Option<u32>,
    /// Print every setting and its origin; train nothing.
    #[arg(long)]
    explain: bool,
}

impl SingleArguments {
    /// Resolves the requested run, after the weights that it starts from are opened.
    fn resolve(&mut self, task: TaskRow, global: &Global) -> Result<Resolved> {
        let path = self.config.as_ref();
        let file = path.map(|path| if path.is_dir() { path.join("config.json") } else { path.clone() });
        let is_experiment = |file: &&PathBuf| file.extension().is_some_and(|ending| ending == "toml");
        let experiment = file.as_ref().filter(is_experiment).map(|file| Experiment::read(file)).transpose()?;
        initial::open_all(&mut self.flags, experiment.as_slice(), global)?;
        if let Some(experiment) = experiment {
            return experiment.single(task, &self.flags);
        }
        let Some(file) = file else { return self.flags.single(task) };
        let place = file.display().to_string();
        let text = files::read_text(&file).map_err(Error::into_refusal)?;
        let config = RunConfig::parse(&text, &place)?;
        let name = config.task.name();
        ensure!(
            name == task.name,
            flag "--config" = place, "is a run of {name}: `dsf {name} --config {place}` trains it");
        self.flags.again(task, &config, &place)
    }
}

/// Returns the run that a command line trains; `words` are its task and flags.
pub(super) fn named_by(words: &[String], global: &Global) -> Result<RunConfig> {
    let command = SingleArguments::augment_args(Command::new("dsf"));
    let parsed = command.try_get_matches_from(words).and_then(|found| SingleArguments::from_arg_matches(&found));
    let mut arguments = parsed.map_err(|e| Error::misuse(&e))?;
    arguments.flags.gpu = arguments.device.is_gpu();
    let task = recipes::task(words.first().map_or("", String::as_str))?;
    Ok(arguments.resolve(task, global)?.config)
}

pub(super) fn main(mut arguments: SingleArguments, task: TaskRow, global: &Global) -> Result<u8> {
    arguments.flags.gpu = arguments.device.is_gpu();
    let mut resolved = arguments.resolve(task, global)?;
    let data_dir = arguments.training.data_dir.as_deref();
    let identified = resolved.identify(data_dir);
    if arguments.explain {
        print::result(&explanation(&mut resolved, identified, global)?)?;
        return Ok(exit::DONE);
    }
    identified?;
    arguments.training.check_data_dir([&resolved.config.task])?;
    let Resolved { config, notes, .. } = resolved;
    arguments.device.serves(&arguments.training)?;
    let stop = stop_flag()?;
    let context = RunContext {
        kept: KeptWeights { last: true, every: arguments.snapshot_every.map(|epochs| epochs as usize) },
        ..RunContext::open(arguments.device, &arguments.training, &stop, global)?
    };
    let known = context.store.status(&config.id())? == Status::Done;
    let (entry, task) = (config.task.entry()?, config.task.read()?);
    let mut sizes = task.sizes();
    if !known {
        progress::prepare([&config.task], data_dir, global.silent(), &stop)?;
        sizes = task.counted(data_dir)?;
        // Before the screen, which computes the accuracy without the skill: minutes, for very long sequences.
        if context.device.is_cpu() && !arguments.training.allow_swap {
            estimate::check_room(std::slice::from_ref(&config), Some("--allow-swap"))?;
        }
    }
    let examples = config.train.batch_size.min(sizes.examples[0]);
    let tokens_per_step = examples * sizes.tokens_per_example();
    let mut screen = RunScreen::new(&config, entry, tokens_per_step, global);
    if !known {
        screen.say(&title(&config, &*task));
        notes.iter().for_each(|note| screen.say(&format!("note: {note}")));
        screen.say(&estimate::sentence(&config, &sizes, &context.device)?);
    }
    check_stop(&stop)?;
    let mut events = JsonEvents::new(&config)?;
    let result = execute(&config, &context, &mut |event: RunEvent| {
        if global.json {
            events.write(&event)?;
        }
        screen.show(&event)
    });
    screen.finish();
    let result = result?;
    if global.json {
        emit(&done(&config, &result))?;
    } else {
        print::line(conclusion(&config, &result, known, &context.store, global)?)?;
    }
    Ok(code(&result))
}

/// Returns the settings of a run and the initial values of its parameters as columns, or as one JSON object. Settings
/// can be explained even if data files are missing; a run on files then has no id.
fn explanation(resolved: &mut Resolved, identified: Result<()>, global: &Global) -> Result<String> {
    let id = identified.as_ref().ok().map(|()| resolved.config.id());
    let unknown = identified.err().map(|e| format!("the id of a run on files depends on their content: {e}"));
    resolved.notes.extend(unknown);
    let Resolved { explained, notes, config, .. } = resolved;
    let mut initial = initial_values(&config.model, &config.task.sizes()?)?;
    if let Some(from) = &config.from {
        initial.iter_mut().for_each(|(_, values)| values.replace_by(&from.name));
    }
    if global.json {
        let settings = explained.iter().map(|row| {
            let (name, value, origin) = (&row.name, &row.value, row.origin.to_string());
            json!({ "name": name, "value": value, "origin": origin })
        });
        let settings: Vec<Value> = settings.collect();
        let initial = initial.iter().map(|(name, initial)| {
            json!({ "name": name, "shape": initial.shape, "values": initial.law, "origin": initial.origin })
        });
        let initial: Vec<Value> = initial.collect();
        let event = json!({
            "event": "settings", "schema": 1, "run": id, "notes": notes, "settings": settings, "initial_values": initial,
        });
        return Ok(format!("{event}\n"));
    }
    let row = |row: &Explained| vec![row.name.to_string(), as_typed(&row.value), row.origin.to_string()];
    let rows: Vec<Vec<String>> = explained.iter().map(row).collect();
    let notes: String = notes.iter().map(|note| format!("note: {note}\n")).collect();
    let id = id.as_deref().unwrap_or("-");
    let row = |(name, initial): &(String, InitialValues)| {
        let shape = initial.shape.iter().map(usize::to_string).collect::<Vec<_>>().join(" x ");
        vec![name.clone(), shape, initial.law.clone(), initial.origin.to_string()]
    };
    let initial: Vec<Vec<String>> = initial.iter().map(row).collect();
    let (settings, initial) = (columns(&rows, Align::Left), columns(&initial, Align::Left));
    Ok(format!("run {id}\n{settings}\ninitial values of parameters\n{initial}{notes}"))
}

fn title(config: &RunConfig, task: &dyn tasks::Task) -> String {
    let (m, t) = (&config.model, &config.train);
    let from = config.from.as_ref().map(|from| format!(" from {}", from.name));
    let title = task.title();
    let vocabulary = match task.sizes().vocab_size {
        0 => String::new(),
        _ if title.contains("V = ") => String::new(),
        v => format!("V = {v}, "),
    };
    let block = Some(&m.block).filter(|block| !block.is_default()).map(|block| format!(" ({block})"));
    format!(
        "{} ({}){}{} on {}: {}d = {}, n = {}, {}{}, lr {}, batch {}, protocol {}, seed {}",
        m.mixer,
        m.variant,
        m.hybrid_layers(),
        from.unwrap_or_default(),
        title,
        vocabulary,
        m.d_model,
        m.d_state,
        counted(m.n_layers, "layer"),
        block.unwrap_or_default(),
        t.lr,
        t.batch_size,
        config.protocol.as_str(),
        config.seed
    )
}

/// Returns the sentence about the result, its location, and the next command.
fn conclusion(config: &RunConfig, result: &RunResult, known: bool, store: &Store, global: &Global) -> Result<String> {
    let (entry, task) = (config.task.entry()?, config.task.read()?);
    let mut lines = vec![sentence(config, &task.title(), result)];
    let folder = store.run_folder(&config.id());
    let place = folder.display();
    if known {
        lines.push(format!("It was trained before; delete {place} to train it again."));
    }
    let summary = store.summary_path(entry.name);
    lines.push(format!("results: {place} and {}", summary.display()));
    match entry.objective.is_language_model() {
        true => lines.extend(perplexity::weights(&folder)),
        false if folder.join(Weights::Last.file()).exists() => {
            let (file, id, out) = (Weights::Last.file(), config.id(), global.out_flag());
            lines.push(format!("weights: {file} there; dsf inspect {id}{out} shows the mixers as dynamical systems"));
        }
        false => {}
    }
    let (figure, out) = (Figure::showing(&Record::planned(config)).flag(), global.out_flag());
    let sweep = recipes::sweep_of_rates(config).map_or(String::new(), |sweep| format!("    or    {sweep}{out}"));
    lines.push(format!("next:    dsf report{figure}{out}{sweep}"));
    if global.quiet {
        lines.truncate(1);
    }
    Ok(lines.join("\n"))
}

fn sentence(config: &RunConfig, task: &str, result: &RunResult) -> String {
    let mixer = config.model.mixers();
    let metrics = &result.metrics;
    if result.status == RunStatus::Failed {
        return format!("{mixer} on {task} failed: {}.", result.reason);
    }
    let after = format!(
        "after {} ({})",
        counted(metrics.count(Column::EPOCHS_RUN).unwrap_or(0), "epoch"),
        duration(metrics.get(Column::SECONDS).unwrap_or(0.0))
    );
    let accuracy = 100.0 * metrics.get(Column::ACCURACY).unwrap_or(0.0);
    let diverged = result.outcome == Some(Outcome::Diverged);
    if !diverged && metrics.get(Column::TRAIN_TOKENS).is_some() {
        return perplexity::sentence(config, task, metrics);
    }
    if let Some(majority) = metrics.get(Column::MAJORITY).filter(|_| !diverged) {
        let chosen = chosen(metrics);
        return format!(
            "{mixer} on {task}: {accuracy:.1} % of the test answers right {after}{chosen}; the majority-class \
             baseline scores {:.1} %.",
            100.0 * majority
        );
    }
    match result.outcome {
        Some(Outcome::Converged) => {
            format!("{mixer} learnt {task}: {accuracy:.1} % of the test answers right {after}.")
        }
        Some(Outcome::Diverged) => {
            format!("{mixer} diverged on {task} {after}: the loss is no longer a number; try a smaller --lr.")
        }
        _ => {
            let expected = expected(config, accuracy);
            format!("{mixer} on {task}: {accuracy:.1} % of the test answers right {after}.{expected}")
        }
    }
}

/// Test accuracy in percent from which a task counts as learnt, so that no explanation is needed.
const LEARNT: f64 = 90.0;

/// The accuracy without the skill and the published accuracy of the same run, for a run that did not learn its task; else
/// empty.
fn expected(config: &RunConfig, accuracy: f64) -> String {
    if accuracy >= LEARNT {
        return String::new();
    }
    let without = without_skill(config).map_or(String::new(), |without| {
        let ceiling = 100.0 * without.accuracy;
        let (skill, label) = (without.skill(), without.label);
        let shown = if accuracy <= ceiling { format!(": {label} shown") } else { String::new() };
        format!(" Without {skill}, {ceiling:.1} % are right by {}{shown}.", without.predictor)
    });
    let published = recipes::published_accuracy(config).map_or(String::new(), |(accuracy, simd)| {
        // A mixer that learnt elsewhere lost the lookup to another rounding.
        let rounding = if 100.0 * accuracy >= LEARNT {
            "; another processor or build rounds differently, and another --seed shows whether this run is an exception"
        } else {
            ""
        };
        format!(" Published for these defaults (results/mqar-quick.csv, {simd}): {:.1} %{rounding}.", 100.0 * accuracy)
    });
    without + &published
}

/// Returns the other accuracies: that of the epoch chosen by validation, and the highest.
fn chosen(metrics: &Metrics) -> String {
    let percent = |accuracy: Column| 100.0 * metrics.get(accuracy).unwrap_or(0.0);
    let selected = metrics.count(Column::SELECTED_EPOCH).map_or(String::new(), |epoch| {
        format!(", {:.1} % where validation was best (epoch {epoch})", percent(Column::SELECTED_ACCURACY))
    });
    let best = metrics
        .count(Column::BEST_EPOCH)
        .map_or(String::new(), |epoch| format!(", {:.1} % at best (epoch {epoch})", percent(Column::BEST_ACCURACY)));
    selected + &best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_did_not_learn_says_what_is_reached_without_recall_and_what_was_to_be_expected() {
        let run = |settings: &[(&str, &str)]| {
            let config = recipes::run("mqar", settings).unwrap();
            expected(&config, 28.0)
        };
        let plain = run(&[("mixer", "s6"), ("seed", "4")]);
        assert!(plain.contains("30.7 %") && plain.ends_with("27.3 %."), "{plain}");
        let unlucky = run(&[("mixer", "normalized")]);
        assert!(unlucky.contains("99.0 %") && unlucky.contains("--seed"), "{unlucky}");
        let other = run(&[("mixer", "s6"), ("kv-pairs", "2")]);
        assert!(other.contains(" % are right by position alone"), "{other}");
        let config = recipes::run("mqar", &[("mixer", "s6")]).unwrap();
        assert_eq!(expected(&config, 93.0), "");
        let config = recipes::run("induction", &[]).unwrap();
        let said = expected(&config, 28.0);
        assert!(said.contains("% are right by the token shown most often.") && !said.contains("no recall"), "{said}");
    }
}
