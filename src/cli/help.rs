//! Help of the commands that train one task: only settings of the task, with its defaults, the common ones first.

use crate::config::{Brief, Objective, Setting, ValueKind, SETTINGS};
use crate::recipes::{self, as_typed, Explained, Flags, TaskRow, PRESETS};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, Command};

/// Adapts `command` to `task`: hides flags that the task does not use, adds the defaults of a command without flags,
/// and shows only common flags in `-h`.
pub(super) fn of_task(command: Command) -> Command {
    let Ok(task) = recipes::task(command.get_name()) else { return command };
    let resolved = Flags::default().single(task);
    let defaults = resolved.map_or_else(|_| Vec::new(), |resolved| resolved.explained);
    let command = command.mut_args(|arg| match SETTINGS.find(arg.get_id().as_str()) {
        Some(setting) => described(arg, setting, task, &defaults),
        None => fitting(arg, task),
    });
    let examples: String = task.examples.iter().map(|line| format!("\n  {line}")).collect();
    command.after_help(format!("Examples:{examples}")).after_long_help(format!(
        "Examples:{examples}\n\nDefaults are those of a command without flags. --explain prints every setting of \
             a run and its origin."
    ))
}

/// Adapts `dsf sweep` or a subcommand of it: `-h` shows fewer settings than that of one run.
pub(super) fn of_sweep(command: Command) -> Command {
    let command = command.mut_args(|arg| match SETTINGS.find(arg.get_id().as_str()) {
        Some(setting) => arg.hide_short_help(setting.brief != Brief::OfSweeps),
        None if arg.get_id() == "data_dir" => arg.hide_short_help(true),
        None => arg,
    });
    let inner: Vec<String> = command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    inner.into_iter().fold(command, |command, name| command.mut_subcommand(name, of_sweep))
}

/// Returns the flag of a setting with its default in the help.
fn described(arg: Arg, setting: &Setting, task: TaskRow, defaults: &[Explained]) -> Arg {
    let value = defaults.iter().find(|row| row.name == setting.name);
    let value = value.map(|row| &row.value).filter(|value| !value.is_null());
    let default = value.map(|value| format!(" [default: {}]", as_typed(value))).unwrap_or_default();
    let mut full = setting.full_help(&[task.objective]);
    if !task.has_protocols() {
        full = without_protocols(full);
    }
    let full = format!("{full}{default}");
    let taken = setting.is_of(&task.setting_scope());
    let names = setting.names(&[task.objective]).filter(|_| taken);
    let no_choice = match setting.kind {
        ValueKind::Protocol => !task.has_protocols(),
        // A single run has one seed.
        ValueKind::CountOf(_) => true,
        _ => false,
    };
    let arg = match names {
        // Values that belong to other tasks are not offered.
        Some(names) => arg.value_parser(PossibleValuesParser::new(names)),
        None => arg,
    };
    arg.help(format!("{}{default}", setting.help))
        .long_help(full)
        .hide(!taken || no_choice)
        .hide_short_help(setting.brief == Brief::Never)
}

/// Hides the flag for a number of seeds, of which a single run has one.
pub(super) fn of_one_run(command: Command) -> Command {
    command.mut_args(|arg| match SETTINGS.find(arg.get_id().as_str()).map(|setting| setting.kind) {
        Some(ValueKind::CountOf(_)) => arg.hide(true),
        _ => arg,
    })
}

/// Leaves out what other protocols would do, for a task that has one protocol.
fn without_protocols(mut text: String) -> String {
    for clause in ["; under --protocol", ", unless --protocol", "; the default depends on the protocol"] {
        if let Some(start) = text.find(clause) {
            let end = text[start..].find('.').map_or(text.len(), |end| start + end);
            text.replace_range(start..end, "");
        }
    }
    text
}

/// Returns the flag of the preset with the sizes that each preset has in `task`.
fn with_sizes(arg: Arg, task: TaskRow) -> Arg {
    let values = PRESETS.iter().map(|preset| {
        let sizes = task.sizes_of(preset.name).map_or_else(|| sizes(task, preset.name), str::to_owned);
        PossibleValue::new(preset.name).aliases(preset.aliases).help(preset.described(&sizes))
    });
    let help = format!("Preset sizes, for every setting without a flag [default: {}]", task.preset_rule());
    arg.value_parser(PossibleValuesParser::new(values)).long_help(help)
}

/// Sizes of a run of `task` with `preset`.
fn sizes(task: TaskRow, preset: &'static str) -> String {
    let mut flags = Flags::default();
    flags.preset = Some(preset);
    let rows = flags.single(task).map_or_else(|_| Vec::new(), |resolved| resolved.explained);
    let sizes = [("vocab-size", "V "), ("seq-len", "L "), ("d", "d ")].map(|(name, sign)| (name, sign, ""));
    let counts = [("layers", " layers"), ("train-examples", " examples"), ("epochs", " epochs")];
    let shown = sizes.into_iter().chain(counts.map(|(name, unit)| (name, "", unit)));
    let shown = shown.filter_map(|(name, sign, unit)| {
        let row = rows.iter().find(|row| row.name == name && !row.value.is_null())?;
        let unit = if row.value == 1 { unit.trim_end_matches('s') } else { unit };
        Some(format!("{sign}{}{unit}", as_typed(&row.value)))
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// Hides a flag that is no setting if the task does not use it.
fn fitting(arg: Arg, task: TaskRow) -> Arg {
    let labels = task.objective == Objective::PerToken;
    match arg.get_id().as_str() {
        "preset" => with_sizes(arg, task),
        "data_dir" => arg.hide(labels),
        "no_cuda_graph" => arg.hide(!labels),
        _ => arg,
    }
}
