//! Help of the commands that train one task: only settings of the task, with its defaults, the common ones first.

use crate::config::{Objective, Setting, SETTINGS};
use crate::recipes::Flags;
use crate::recipes::{self, as_typed, Explained, Task};
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};

/// Adapts `command` to `task`: hides flags that the task does not use, adds the defaults of a command without flags,
/// and shows only common flags in `-h`.
pub(super) fn of_task(command: Command) -> Command {
    let Ok(task) = recipes::task(command.get_name()) else {
        return command;
    };
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

/// Flags that `-h` of a sweep shows.
const OF_SWEEPS: [&str; 18] = [
    "experiment",
    "task",
    "preset",
    "seeds",
    "device",
    "jobs",
    "executor",
    "dry_run",
    "reason",
    "folders",
    "mixer",
    "protocol",
    "d",
    "n",
    "seq-len",
    "kv-pairs",
    "lr",
    "epochs",
];

/// Adapts `dsf sweep` or a subcommand of it: `-h` shows only the common flags.
pub(super) fn of_sweep(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let shown = OF_SWEEPS.contains(&arg.get_id().as_str());
        arg.hide_short_help(!shown)
    });
    let inner = command.get_subcommands().map(|inner| inner.get_name().to_owned());
    let inner: Vec<String> = inner.collect();
    inner.into_iter().fold(command, |command, name| command.mut_subcommand(name, of_sweep))
}

/// Returns the flag of a setting with its default in the help.
fn described(arg: Arg, setting: &Setting, task: Task, defaults: &[Explained]) -> Arg {
    let value = defaults.iter().find(|row| row.name == setting.name);
    let value = value.map(|row| &row.value).filter(|value| !value.is_null());
    let default = value.map(|value| format!(" [default: {}]", as_typed(value)));
    let default = default.unwrap_or_default();
    let full = format!("{}{default}", setting.full_help(&[task.objective]));
    let taken = setting.is_of(&task.setting_scope());
    let arg = match setting.names(&[task.objective]).filter(|_| taken) {
        // Values that belong to other tasks are not offered.
        Some(names) => arg.value_parser(PossibleValuesParser::new(names)),
        None => arg,
    };
    arg.help(format!("{}{default}", setting.help))
        .long_help(full)
        .hide(!taken || setting.name == "protocol" && !task.has_protocols())
        .hide_short_help(!setting.common)
}

/// Hides a flag that is no setting if the task does not use it.
fn fitting(arg: Arg, task: Task) -> Arg {
    let objective = task.objective;
    match arg.get_id().as_str() {
        // A single run has one seed.
        "seeds" => arg.hide(true),
        "sizes" => arg.hide(!task.fields.contains(&"kv_pairs")),
        "data_dir" => arg.hide(objective == Objective::PerToken),
        "cuda_graph" => arg.hide(objective != Objective::PerToken),
        _ => arg,
    }
}
