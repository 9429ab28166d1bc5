//! Experiment files: what they mean, what is refused, and those that are shipped.

use super::flags;
use crate::config::SETTINGS;
use crate::mixers::MIXERS;
use crate::recipes::task;
use crate::sweep::{Experiment, Flags, Plan};
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

fn refusal(text: &str) -> String {
    let message = Experiment::parse(text, "my.toml", SETTINGS)
        .unwrap_err()
        .to_string();
    assert!(message.starts_with("my.toml: line "), "{message}");
    message
}

fn refusal_in_grid(line: &str) -> String {
    refusal(&format!(
        "task = \"mqar\"\n[[grid]]\nmixer = \"ssd\"\n{line}\n"
    ))
}

fn plan(text: &str, line: &str) -> Plan {
    Experiment::parse(text, "my.toml", SETTINGS)
        .unwrap()
        .plan(&flags(line))
        .unwrap()
}

#[test]
fn a_file_plans_what_the_same_flags_plan() {
    let mut same = Plan::of(
        task("mqar").unwrap(),
        &flags("--preset smoke --mixer ssd,s6 --d 16,32"),
    )
    .unwrap();
    let second =
        flags("--preset smoke --mixer softmax --d 32 --lr 1e-3,paper --train-examples 100");
    same.runs
        .extend(Plan::of(task("mqar").unwrap(), &second).unwrap().runs);
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
    let plan = plan(
        &format!("{SMALL}[[grid]]\nmixer = [\"s6\", \"linear\"]"),
        "",
    );
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
        let message = refusal_in_grid(wrong);
        assert!(message.contains("line 4: unknown task"), "{message}");
    }
    let message = refusal("task = \"mqar\"\n[defaults]\ntask = \"lra\"\n");
    assert!(message.contains("line 3: unknown key `task`"), "{message}");
}

#[test]
fn an_unknown_key_is_refused_with_its_line_and_the_nearest_known_one() {
    let message = refusal_in_grid("seqlen = 64");
    assert!(
        message.contains("line 4: unknown key `seqlen`. Did you mean `seq-len`?"),
        "{message}"
    );
    let message = refusal("task = \"mqar\"\n[default]\n");
    assert!(
        message.contains("line 2: unknown key `default`. Did you mean `defaults`?"),
        "{message}"
    );
}

#[test]
fn a_wrong_value_is_refused_with_its_line_and_key() {
    for (line, what) in [
        ("d = [64, \"x\"]", "--d <N>': not a whole number"),
        ("d = []", "an empty list"),
        ("d = [[64]]", "array where a number"),
        ("d = true", "--d <N>': not a whole number"),
        ("d = 1979-05-27", "datetime where a number"),
        ("d = { a = 1 }", "table where a number"),
        ("n = -1", "--n <N>': not a whole number"),
        ("sizes = \"64:\"", "L:k"),
        (
            "protocol = \"papr\"",
            "possible values: paper, reference, matched",
        ),
        ("seeds = [1, 2]", "seeds"),
        ("d = 64 64", "line 4"),
    ] {
        let message = refusal_in_grid(line);
        assert!(
            message.contains("line 4: ") && message.contains(what),
            "{line}: {message}"
        );
        assert!(!message.contains('\n'), "{line}: {message}");
    }
}

#[test]
fn alternatives_in_one_grid_are_refused() {
    let message = refusal_in_grid("sizes = \"64:4\"\nseq-len = 64");
    assert!(
        message.contains("line 2: ") && message.contains("--sizes"),
        "{message}"
    );
}

#[test]
fn a_file_without_task_or_grid_is_refused_with_an_example() {
    assert!(refusal("[[grid]]\nd = 64").contains("task = \"mqar\""));
    assert!(refusal("task = \"lrb\"\n[[grid]]\nd = 64").contains("unknown task `lrb`"));
    assert!(refusal("task = 1\n[[grid]]\nd = 64").contains("unknown task"));
    assert!(refusal("task = \"mqar\"").contains("[[grid]]"));
    assert!(refusal("task = \"mqar\"\n[grid]\nd = 64").contains("line 2: a grid is a section"));
    assert!(refusal("task = \"mqar\"\ngrid = []").contains("line 2: a grid is a section"));
    assert!(refusal("task = \"mqar\"\ngrid = [1]").contains("line 2: not a section"));
}

#[test]
fn a_run_that_cannot_be_trained_names_the_file_and_the_grid() {
    let text = "task = \"mqar\"\n\n[[grid]]\nseq-len = 63\n";
    let experiment = Experiment::parse(text, "my.toml", SETTINGS).unwrap();
    let message = experiment.plan(&Flags::default()).unwrap_err().to_string();
    assert!(
        message.starts_with("my.toml: grid of line 3: "),
        "{message}"
    );
    assert!(message.contains("--seq-len 63"), "{message}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let message = Experiment::read(Path::new("no/such.toml"))
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("experiment file no/such.toml: "),
        "{message}"
    );
}

/// What the comment of a shipped file promises: the number behind `before`.
fn promised(text: &str, before: &str) -> u64 {
    let rest = text
        .split(before)
        .nth(1)
        .unwrap_or_else(|| panic!("no `{before}`"));
    let digits = rest
        .trim_start()
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == ',');
    digits
        .filter(char::is_ascii_digit)
        .collect::<String>()
        .parse()
        .unwrap()
}

#[test]
fn every_shipped_file_plans_what_its_comment_promises() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let plan = Experiment::read(&path)
            .unwrap()
            .plan(&Flags::default())
            .unwrap();
        let planned = [
            plan.runs.len() as u64,
            plan.steps().unwrap(),
            plan.tokens().unwrap(),
        ];
        let before = ["# Runs:", "# Cost:   at most", "steps and"];
        let promised = before.map(|before| promised(&text, before));
        // A file of all mixers says what each costs, so that a new one leaves it as it is.
        let times = match text.contains("mixer = \"all\"") {
            true => planned[0] / promised[0],
            false => 1,
        };
        assert!(times == 1 || times >= MIXERS.len() as u64);
        assert_eq!(
            planned,
            promised.map(|each| each * times),
            "{}",
            path.display()
        );
        files += 1;
    }
    assert_eq!(files, 19);
}

#[test]
fn figures_1_and_2_are_parts_of_figure_7() {
    let plan = |name: &str| {
        let path = format!("{}/experiments/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        Experiment::read(Path::new(&path))
            .unwrap()
            .plan(&Flags::default())
            .unwrap()
    };
    let whole = plan("figure7");
    for part in ["figure1", "figure2"] {
        assert!(
            plan(part).runs.iter().all(|run| whole.runs.contains(run)),
            "{part}"
        );
    }
}
