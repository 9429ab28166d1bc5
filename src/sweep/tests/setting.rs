//! Settings are rows of a table: flags, help, grids, explanations and columns all follow from a row.

use crate::config::{
    At, Brief, Decides, HelpGroup, Listed, Objective, Omitted, Setting, Settings, Summary, ValueKind, SETTINGS,
};
use crate::error::testing::Fails;
use crate::error::{Error, Position, Result};
use crate::recipes::Flags;
use crate::recipes::{task, Origin};
use crate::store::{columns, Field};
use crate::sweep::{Experiment, Plan};
use clap::{Command, FromArgMatches};
use serde_json::json;

/// A setting that the program does not have, for a field that only the toy task has.
const MADE_UP: Setting = Setting {
    name: "lag",
    at: At::Task("lag"),
    kind: ValueKind::Whole(0, 3),
    group: HelpGroup::Task,
    help: "Places back to the answer",
    more: &[],
    names_of: &[],
    of: &Objective::ALL,
    brief: Brief::OfOneRun,
    aliases: &[],
    decides: Decides::Nothing,
    omitted: Omitted::Absent,
    listed: Listed::Varied,
    summary: Summary::AsFlag,
};

fn settings() -> Settings {
    SETTINGS.after(MADE_UP)
}

fn flags(line: &str) -> Result<Flags, clap::Error> {
    let command = Command::new("dsf").no_binary_name(true);
    let command = Flags::augment(command, settings());
    let mut flags = Flags::of(settings());
    flags.update_from_arg_matches(&command.try_get_matches_from(line.split_whitespace())?)?;
    Ok(flags)
}

fn lags(plan: &Plan) -> Vec<u64> {
    let lag = |run: &crate::config::RunConfig| run.task.get("lag").unwrap().as_u64().unwrap();
    plan.runs.iter().map(lag).collect()
}

#[test]
fn its_flag_and_help_are_those_of_the_row() {
    assert_eq!(flags("--lag 1,2").unwrap().list("lag"), ["1", "2"]);
    let misuse = Error::misuse(&flags("--lag long").unwrap_err());
    misuse.refuses("--lag").gives("long");
    let help = Flags::augment(Command::new("dsf"), settings()).render_help().to_string();
    let section = help.split(HelpGroup::Task.heading()).nth(1).unwrap();
    let said = section.split_once("--lag <N>").unwrap().1;
    assert!(said.trim_start().starts_with(MADE_UP.help), "{said}");
    let is_of = |name| MADE_UP.is_of(&task(name).unwrap().setting_scope());
    assert_eq!((is_of("toy"), is_of("mqar")), (true, false));
}

#[test]
fn its_list_is_an_axis_of_a_grid_and_a_key_of_an_experiment_file() {
    let toy = task("toy").unwrap();
    let plan = Plan::of(toy, &flags("--mixer s6 --lag 1,3 --seeds 2").unwrap()).unwrap();
    assert_eq!(lags(&plan), [1, 1, 3, 3]);
    let file = "task = \"toy\"\n[[grid]]\nmixer = \"s6\"\nlag = [3, 2]";
    let experiment = Experiment::parse(file, "my.toml", settings()).unwrap();
    let plan = experiment.plan(&Flags::of(settings())).unwrap();
    assert_eq!(lags(&plan), [3, 2]);
    let unknown = Experiment::parse(file, "my.toml", SETTINGS).fails("refused");
    unknown.is_at("my.toml", Position::Line(4)).names(&["`lag`"]);
}

#[test]
fn a_value_out_of_range_and_a_task_without_the_field_are_refused() {
    let refused = |name, line| {
        let flags = flags(line).unwrap();
        flags.single(task(name).unwrap()).refuses("--lag")
    };
    refused("toy", "--lag 4").gives("4").names(&["0 to 3"]);
    refused("mqar", "--lag 2").names(&["mqar"]);
}

#[test]
fn it_is_explained_and_has_a_column_behind_the_others() {
    let run = flags("--lag 2").unwrap().single(task("toy").unwrap()).unwrap();
    let explained = run.explained.iter().find(|row| row.name == "lag").unwrap();
    let given = Origin::Given("--lag".to_owned());
    assert_eq!((&explained.value, &explained.origin), (&json!(2), &given));
    let (old, new) = (columns(SETTINGS), columns(settings()));
    let (place, column) = new.iter().enumerate().find(|(_, c)| c.name == "lag").unwrap();
    assert_eq!(column.meaning, MADE_UP.help);
    let document = serde_json::to_value(&run.config).unwrap();
    assert_eq!(column.of_config(&document), Field::Count(2));
    let names =
        |columns: &[crate::store::ColumnSpec]| -> Vec<&str> { columns.iter().map(|column| column.name).collect() };
    let mut others = names(&new);
    others.remove(place);
    assert_eq!(others, names(&old));
    assert_eq!(place, old.len());
}
