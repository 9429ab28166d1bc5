//! Experiment files: their meaning, refusals, and the shipped files.

use super::flags;
use crate::config::SETTINGS;
use crate::error::testing::Fails;
use crate::error::{Diagnostic, Position};
use crate::mixers::MIXERS;
use crate::recipes::task;
use crate::recipes::Flags;
use crate::sweep::{Experiment, Plan};
use std::path::Path;

const SMALL: &str = "\
task = \"mqar\"
[defaults]
preset = \"smoke\"
d = 32
[[grid]]
mixer = [\"ssd\", \"s6\"]
d = [16, 32]
[[grid]]
mixer = \"softmax\"
lr = [1e-3, \"paper\"]
train-examples = 1_00
";

fn refuses(text: &str, line: u64) -> Diagnostic {
    let at = Experiment::parse(text, "my.toml", SETTINGS).fails("refused");
    at.is_at("my.toml", Position::Line(line));
    at
}

/// The refusal of a line of a grid, the fourth of its file.
fn refuses_in_grid(line: &str) -> Diagnostic {
    let text = format!("task = \"mqar\"\n[[grid]]\nmixer = \"ssd\"\n{line}\n");
    refuses(&text, 4)
}

fn plan(text: &str, line: &str) -> Plan {
    Experiment::parse(text, "my.toml", SETTINGS).unwrap().plan(&flags(line)).unwrap()
}

#[test]
fn a_file_plans_what_the_same_flags_plan() {
    let mut same = Plan::of(task("mqar").unwrap(), &flags("--preset smoke --mixer ssd,s6 --d 16,32")).unwrap();
    let second = flags("--preset smoke --mixer softmax --d 32 --lr 1e-3,paper --train-examples 100");
    same.runs.extend(Plan::of(task("mqar").unwrap(), &second).unwrap().runs);
    assert_eq!(plan(SMALL, ""), same);
}

#[test]
fn the_command_line_outweighs_a_grid_and_a_grid_the_defaults() {
    let plan = plan(SMALL, "--lr 2e-3 --seeds 2");
    let d: Vec<usize> = plan.runs.iter().map(|run| run.model.d_model).collect();
    assert_eq!(d, [16, 16, 32, 32, 16, 16, 32, 32, 32, 32]);
    assert!(plan.runs.iter().all(|run| run.train.lr == 2e-3));
}

#[test]
fn runs_that_two_grids_share_are_planned_once() {
    let plan = plan(&format!("{SMALL}[[grid]]\nmixer = [\"s6\", \"linear\"]"), "");
    assert_eq!((plan.runs.len(), plan.duplicates), (10, 1));
}

#[test]
fn a_grid_may_have_a_task_of_its_own() {
    let text = "task = \"mqar\"\n[[grid]]\nmixer = \"ssd\"\n\
                [[grid]]\ntask = \"lra\"\nmixer = \"ssd\"\ndataset = \"image\"\n";
    let planned = plan(text, "");
    let tasks: Vec<&str> = planned.runs.iter().map(|run| run.task.name()).collect();
    assert_eq!(tasks, ["mqar", "lra"]);
    for wrong in ["task = \"chess\"", "task = 1"] {
        refuses_in_grid(wrong).names(&["mqar", "lra"]);
    }
    refuses("task = \"mqar\"\n[defaults]\ntask = \"lra\"\n", 3).names(&["`task`"]);
}

#[test]
fn an_unknown_key_is_refused_with_its_line_and_the_nearest_known_one() {
    refuses_in_grid("seqlen = 64").names(&["`seqlen`", "`seq-len`"]);
    refuses("task = \"mqar\"\n[default]\n", 2).names(&["`default`", "`defaults`"]);
}

#[test]
fn a_wrong_value_is_refused_with_its_line_and_key() {
    for (line, flag, value, names) in [
        ("d = [64, \"x\"]", Some("--d"), Some("x"), &[][..]),
        ("d = []", None, None, &[]),
        ("d = [[64]]", None, None, &["array"]),
        ("d = true", Some("--d"), Some("true"), &[]),
        ("d = 1979-05-27", None, None, &["datetime"]),
        ("d = { a = 1 }", None, None, &["table"]),
        ("n = -1", Some("--n"), Some("-1"), &[]),
        ("sizes = \"64:\"", Some("--sizes"), Some("64:"), &["L:k"]),
        ("protocol = \"papr\"", Some("--protocol"), Some("papr"), &["paper, reference, matched"]),
        ("seeds = [1, 2]", Some("--seeds"), Some("1,2"), &[]),
        ("d = 64 64", None, None, &[]),
    ] {
        let at = refuses_in_grid(line);
        let found = (at.flag.as_deref(), at.value.as_deref());
        assert_eq!(found, (flag, value), "{line}: {at:?}");
        assert!(!at.names(names).reason.contains('\n'), "{at:?}");
    }
}

#[test]
fn alternatives_in_one_grid_are_refused() {
    let text = "task = \"mqar\"\n[[grid]]\nsizes = \"64:4\"\nseq-len = 64\n";
    refuses(text, 2).names(&["--sizes"]);
}

#[test]
fn a_file_without_task_or_grid_is_refused_with_an_example() {
    let example = "[[grid]]";
    refuses("[[grid]]\nd = 64", 1).names(&["task = \"mqar\""]);
    let unknown = refuses("task = \"lrb\"\n[[grid]]\nd = 64", 1);
    assert_eq!(unknown.value.as_deref(), Some("lrb"));
    refuses("task = 1\n[[grid]]\nd = 64", 1).names(&["mqar", "lra"]);
    refuses("task = \"mqar\"", 1).names(&[example]);
    refuses("task = \"mqar\"\n[grid]\nd = 64", 2).names(&[example]);
    refuses("task = \"mqar\"\ngrid = []", 2).names(&[example]);
    refuses("task = \"mqar\"\ngrid = [1]", 2).names(&["`key = value`"]);
}

#[test]
fn a_run_that_cannot_be_trained_names_the_file_and_the_grid() {
    let text = "task = \"mqar\"\n\n[[grid]]\nseq-len = 63\n";
    let experiment = Experiment::parse(text, "my.toml", SETTINGS).unwrap();
    let at = experiment.plan(&Flags::default()).refuses("--seq-len");
    at.gives("63").is_at("my.toml", Position::Line(3));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let at = Experiment::read(Path::new("no/such.toml")).fails("refused");
    at.is_at("no/such.toml", None).names(&["`dsf experiments`"]);
}

/// Returns the number after `before` in the comment of a shipped file.
fn promised(text: &str, before: &str) -> u64 {
    let rest = text.split(before).nth(1).unwrap_or_else(|| panic!("no `{before}`"));
    let digits = rest.trim_start().chars().take_while(|c| c.is_ascii_digit() || *c == ',');
    digits.filter(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

#[test]
fn every_shipped_file_plans_what_its_comment_promises() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let plan = Experiment::read(&path).unwrap().plan(&Flags::default()).unwrap();
        let planned = [plan.runs.len() as u64, plan.steps().unwrap(), plan.tokens().unwrap()];
        let before = ["# Runs:", "# Cost:   at most", "steps and"];
        let promised = before.map(|before| promised(&text, before));
        // A file of all mixers states the cost of each, so that a new mixer does not change it.
        let times = if text.contains("mixer = \"all\"") { planned[0] / promised[0] } else { 1 };
        assert!(times == 1 || times >= MIXERS.len() as u64);
        assert_eq!(planned, promised.map(|each| each * times), "{}", path.display());
        files += 1;
    }
    assert_eq!(files, 31);
}

#[test]
fn figures_1_and_2_are_parts_of_figure_7() {
    let plan = |name: &str| {
        let path = format!("{}/experiments/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        Experiment::read(Path::new(&path)).unwrap().plan(&Flags::default()).unwrap()
    };
    let whole = plan("figure7");
    for part in ["figure1", "figure2"] {
        assert!(plan(part).runs.iter().all(|run| whole.runs.contains(run)), "{part}");
    }
}
