//! The first commands of a new user: `dsf` without arguments, `dsf tour`, and `dsf --version`.

use super::recovery::{signal, start, wait_for_an_epoch};
use super::{shows, World};
use serde_json::{json, Value};
use std::fs;
use std::path::Path;

#[test]
fn without_arguments_it_shows_what_to_try_and_the_runs_of_the_folder() {
    let world = World::new();
    shows!("overview-of-an-empty-folder", world.dsf("").ok());
    assert!(!world.path("results").exists(), "it writes nothing");
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/mqar-small.csv");
    fs::create_dir(world.path("results")).unwrap();
    for copy in ["mqar-small.csv", "again.csv"] {
        fs::copy(&published, world.path("results").join(copy)).unwrap();
    }
    shows!("overview", world.dsf("").ok());
    let event = world.dsf("--json").object();
    let runs = super::table(&published).len();
    assert_eq!(event["tasks"], json!([{ "task": "mqar", "runs": runs }]), "each run counts once");
    assert_eq!(event["runs"], runs);
}

#[test]
fn a_results_folder_that_cannot_be_read_is_said_and_is_no_failure() {
    let world = World::new();
    fs::create_dir(world.path("results")).unwrap();
    fs::write(world.path("results/mqar.csv"), "schema,run_id\n1\n").unwrap();
    let said = world.dsf("").ok();
    assert!(said.contains("dsf tour") && said.contains("cannot be read"), "{said}");
    let event = world.dsf("--json").object();
    assert_eq!(event["runs"], Value::Null);
    assert!(event["problem"].as_str().unwrap().contains("mqar.csv"), "{event}");
}

#[test]
fn every_command_to_begin_with_is_taken() {
    let world = World::new();
    let event = world.dsf("--json").object();
    let first = event["first"].as_array().unwrap();
    assert_eq!(first.len(), 4);
    for row in first {
        let command = row["command"].as_str().unwrap();
        let words = command.strip_prefix("dsf ").unwrap();
        let line = if words.starts_with("sweep") { format!("{words} --dry-run") } else { format!("{words} --help") };
        world.dsf(&line).ok();
    }
    let grid = world.dsf("sweep smoke --dry-run --json").object();
    let about = first.iter().find(|row| row["command"] == "dsf sweep smoke").unwrap()["about"].as_str().unwrap();
    assert!(about.contains(&format!("a grid of {} ", grid["runs"])), "{about}");
}

/// Lines that a tour prints itself: the explanations and commands of its steps, and the end.
fn own_lines(out: &str) -> String {
    let (mut own, mut shown) = (Vec::new(), false);
    for line in out.lines() {
        let begins = line.split_once(". ").is_some_and(|(step, _)| step.len() == 1 && step.parse::<u8>().is_ok());
        shown |= begins || line.starts_with("The tour took");
        if shown {
            own.push(line);
        }
        shown &= !line.trim_start().starts_with("$ ");
    }
    own.join("\n")
}

#[test]
fn a_tour_explains_its_steps_and_writes_to_its_own_folder_alone() {
    let world = World::new();
    let said = world.dsf("tour").ok();
    shows!("tour", own_lines(&said));
    let entries: Vec<_> = fs::read_dir(world.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(entries, ["dsf-tour"]);
    for file in ["curves.svg", "system.html"] {
        assert!(fs::metadata(world.path("dsf-tour").join(file)).unwrap().len() > 1000, "{file}");
    }
    let summary = super::table(&world.path("dsf-tour/mqar.csv"));
    assert!(summary[0]["accuracy"].parse::<f64>().unwrap() > 0.9, "the model learns: {summary:?}");
    // The printed command is that of the run, and a second tour trains nothing.
    let command = said.lines().find_map(|line| line.trim().strip_prefix("$ dsf mqar")).unwrap();
    let again = world.dsf(&format!("mqar{command}")).ok();
    assert!(again.contains("It was trained before"), "{again}");
    let events = world.dsf("tour --json").objects();
    let named = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    assert_eq!([named("tour"), named("done"), named("epoch")], [5, 1, 0]);
    world.only_run("dsf-tour");
}

#[test]
fn a_tour_that_is_stopped_ends_as_its_run_does_and_says_how_to_go_on() {
    let world = World::new();
    let mut child = start(&world, "tour --threads 1 --out elsewhere");
    wait_for_an_epoch(&world, "elsewhere");
    signal(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(75));
    assert!(!world.path("elsewhere/curves.svg").exists());
}

#[test]
fn a_tour_without_room_for_its_folder_is_refused() {
    let world = World::new();
    fs::write(world.path("dsf-tour"), "").unwrap();
    world.fails("tour", "refused").of("--out").gives("dsf-tour");
}

#[test]
fn the_version_for_programs_names_the_build_and_the_formats() {
    let world = World::new();
    let event = world.dsf("--version --json").object();
    assert_eq!(world.dsf("--version").ok(), format!("dsf {}\n", event["version"].as_str().unwrap()));
    assert_eq!(event["version"], env!("CARGO_PKG_VERSION"));
    assert!(event["target"].as_str().unwrap().starts_with(std::env::consts::ARCH), "{event}");
    assert_eq!(event["features"], if cfg!(feature = "cuda") { json!(["cuda"]) } else { json!([]) });
    let simd = dsf::ops::Simd::current().name();
    assert_eq!(event["simd"], simd);
    assert_eq!(event["config_format"], dsf::config::FORMAT);
    assert_eq!(event["results_schema"], dsf::store::SCHEMA);
    // A run records the same build.
    world.dsf("mqar --preset smoke --epochs 1 --train-examples 64 -q").ok();
    let run = fs::read_to_string(world.only_run("results").join("env.json")).unwrap();
    let run: Value = serde_json::from_str(&run).unwrap();
    assert_eq!(run["version"], event["version"]);
    assert!(event["commit"].as_str().unwrap().starts_with(run["git_commit"].as_str().unwrap()), "{event}");
    world.dsf_with("avx3", "--version --json").fault().of("DSF_SIMD").gives("avx3");
}
