//! `dsf bench --device`, on the one device that every machine has.

use super::columns;
use crate::cli::{shows, table, World};
use serde_json::Value;

const CHECK: &str = "bench --device cpu --threads 1 --only";

/// Number of cases that a call has measured; it names each when it begins.
fn measured(said: &crate::cli::Said) -> usize {
    let lines = said.err.lines();
    lines.filter(|line| line.contains("  check small ")).count()
}

fn call(world: &World, only: &str, more: &[&str]) -> crate::cli::Said {
    let words: Vec<&str> = CHECK.split(' ').chain([only]).chain(more.iter().copied()).collect();
    world.call(&words, b"")
}

#[test]
fn every_op_is_held_against_its_definition() {
    let world = World::new();
    let said = call(&world, "check small", &[]);
    shows!("checks-talk", said.err);
    shows!("checks", said.ok());
    let rows = table(&world.path("results/bench-gpu.csv"));
    let listed = world.dsf("bench op --help").ok();
    let names = listed.split("Ops:\n").nth(1).unwrap().lines();
    let names = names.filter(|line| !line.starts_with(' ') && !line.is_empty());
    assert_eq!(rows.len(), names.count(), "a row for every op");
    for row in rows {
        assert_eq!((&*row["kind"], &*row["device"]), ("check", "cpu"));
        assert_eq!(&*row["passed"], "true", "{}", row["case"]);
        let [distance, tolerance]: [f64; 2] = ["distance", "tolerance"].map(|name| row[name].parse().unwrap());
        assert!([2e-5, 5e-6].contains(&tolerance), "{}", row["case"]);
        assert!((0.0..=tolerance).contains(&distance), "{}", row["case"]);
        assert!(!row["commit"].is_empty() && !row["note"].is_empty());
    }
}

#[test]
fn models_and_times_are_rows_of_their_own() {
    let world = World::new();
    call(&world, "model s", &["--csv", "models.csv", "-q"]).ok();
    let models = table(&world.path("models.csv"));
    let exact = models.iter().filter(|row| row["distance"] == "0.0").count();
    let rounded = models.iter().filter(|row| row["dtype"] == "bf16").count();
    assert!(models.len() >= 4 && exact + rounded >= models.len());
    assert!(models.iter().all(|row| row["passed"] == "true"));
    let case = "op cross_entropy 512,4,64,8192";
    let times = call(&world, &format!("{case} forward"), &["-q"]).ok();
    shows!("times", columns(&times, 0));
    // The forward row is in bench-gpu.csv now: where the program has no change
    // beside its commit, it would not be measured again.
    let out = call(&world, case, &["--again", "--json"]).ok();
    assert_eq!(out.lines().count(), 2, "forward and both ways: {out}");
    for line in out.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} in {row}"));
        assert_eq!(number("elements_per_second"), 512.0 * 4.0 * 8192.0 / number("seconds"));
        assert_eq!(number("fraction_of_floor"), number("floor_seconds") / number("seconds"));
        assert!(number("seconds_min") <= number("seconds") && number("seconds") <= number("seconds_max"));
        assert_eq!(row["kind"], "op");
    }
}

#[test]
fn when_the_time_is_over_the_rest_is_named() {
    let world = World::new();
    let said = call(&world, "check small", &["--minutes", "0"]);
    shows!("left-out", said.err);
    said.ok();
}

/// Models a measurement that is spread over several sessions on a machine.
#[test]
fn what_a_file_holds_of_this_commit_is_not_measured_again() {
    let world = World::new();
    let file = world.path("results/bench-gpu.csv");
    call(&world, "check small s", &[]).ok();
    let first = table(&file);
    let said = call(&world, "check small", &[]);
    let all = table(&file);
    assert!(first.len() < all.len());
    // Nothing is known of a program that was changed since its commit.
    let known = match first[0]["commit"].ends_with("-dirty") {
        true => 0,
        false => first.len(),
    };
    assert_eq!(measured(&said), all.len() - known, "{}", said.err);
    let again = call(&world, "check small s", &["--again"]);
    assert_eq!(measured(&again), first.len(), "{}", again.err);
    assert_eq!(table(&file).len(), all.len(), "a row for each title");
    std::fs::write(&file, "kind,case\nscale,1\n").unwrap();
    let fault = call(&world, "check small", &["--json"]).fault();
    fault.at("results/bench-gpu.csv", Some(2));
}

#[test]
fn what_cannot_be_measured_is_refused_in_a_sentence() {
    for (line, flag, names) in [
        ("--device cpu", "--device", &["--only"][..]),
        ("--device auto", "--device", &["cuda", "cuda:1", "cpu"]),
        ("--device gpu", "--device", &["cpu"]),
        ("--device cpu --only nothing", "--only", &[]),
        ("--device cpu --only check --minutes=-1", "--minutes", &[]),
        ("--device cpu op tanh", "--device", &[]),
        ("--only check", "--device", &[]),
    ] {
        let world = World::new();
        world.refuses(&format!("bench {line}"), flag).names(names);
    }
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_build_without_cuda_says_so() {
    let fault = World::new().refuses("bench --device cuda", "--device");
    fault.names(&["`make cuda`"]);
}
