//! `dsf sweep`.

use super::{sections, shows, Said, World};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const GRID: &str = "sweep --task mqar --preset smoke --mixer ssd,softmax --d 8,16 --n 4,8";

/// Counts of a sweep: its runs, and those that it trained, found done, failed at and found failed.
fn tally(said: &Said) -> [u64; 5] {
    let end = said.object();
    assert_eq!(end["event"], "sweep", "{end}");
    let counts = ["runs", "finished", "done_before", "failed", "failed_before"];
    counts.map(|count| end[count].as_u64().unwrap())
}

/// The plan of a sweep.
fn planned(world: &World, line: &str) -> serde_json::Value {
    world.dsf(&format!("{line} --dry-run --json")).object()
}

#[test]
fn a_grid_is_trained_once() {
    let world = World::new();
    // Two jobs would end in any order.
    let said = world.dsf(&format!("{GRID} --jobs 1"));
    shows!("sweep", trained said.out);
    shows!("sweep-talk", trained said.err);
    said.ok();
    assert_eq!(world.runs("results").len(), 8);
    shows!("sweep-again", trained world.dsf(GRID).ok());
    let again = world.dsf(&format!("{GRID} --json"));
    assert_eq!(tally(&again), [8, 0, 8, 0, 0]);
    let wider = world.dsf(&format!("{} --json", GRID.replace("--d 8,16", "--d 8,16,32")));
    assert_eq!(tally(&wider), [12, 4, 8, 0, 0]);
    let summary = fs::read_to_string(world.path("results/mqar.csv")).unwrap();
    assert_eq!(summary.lines().count(), 1 + 12);
}

#[test]
fn what_a_summary_holds_is_not_trained_again() {
    let world = World::new();
    let some = "sweep --preset smoke --mixer ssd,softmax --d 8";
    world.dsf(&format!("{some} --out a -q")).ok();
    fs::rename(world.path("a/mqar.csv"), world.path("kept.csv")).unwrap();
    let more = some.replace("--d 8", "--d 8,16 --done-in kept.csv");
    let shard = world.dsf(&format!("{more} --shard 1/2 --dry-run"));
    shows!("done-in-dry-run", sections([("stdout", shard.out), ("stderr", shard.err)]));
    assert_eq!(tally(&world.dsf(&format!("{more} --json"))), [2, 2, 0, 0, 0]);
    let all = world.dsf("report kept.csv results --json").object();
    assert_eq!(all["coverage"]["done"], 4);
    shows!("done-in-all", world.dsf(&format!("{some} --done-in kept.csv")).ok());
    // A run that failed there is no run that is done.
    let failed = fs::read_to_string(world.path("kept.csv")).unwrap();
    let failed = failed.replace(",done,", ",failed,");
    let unsummed: Vec<&str> = failed.lines().map(|line| &line[..=line.rfind(',').unwrap()]).collect();
    fs::write(world.path("failed.csv"), unsummed.join("\n")).unwrap();
    assert_eq!(planned(&world, &more.replace("kept", "failed"))["runs"], 4);
    let none = world.refuses(&more.replace("kept", "none"), "--done-in");
    none.gives("none.csv");
    fs::write(world.path("notes.csv"), "a,b\n1,2\n").unwrap();
    let notes = world.fails(&more.replace("kept", "notes"), "data");
    notes.at("notes.csv", Some(1)).names(&["`schema`"]);
}

#[test]
fn halving_trains_one_rate_of_a_cell_whole_and_keeps_the_short_runs_apart() {
    let world = World::new();
    let line = "sweep --preset smoke --mixer ssd,softmax --lr 1e-4,1e-3,2e-3,4e-3 --seeds 2 --epochs 8 --halving";
    shows!("halving-dry-run", world.dsf(&format!("{line} --dry-run")).err);
    assert_eq!(tally(&world.dsf(&format!("{line} --json"))), [4, 4, 0, 0, 0]);
    let rows = |path: &str| fs::read_to_string(world.path(path)).unwrap().lines().count() - 1;
    // Four rates of a seed for each mixer, then two of two seeds.
    assert_eq!(rows("results/halving/mqar.csv"), 8 + 8);
    assert_eq!(rows("results/mqar.csv"), 2 * 2);
    let report = world.dsf("report --json").object();
    assert_eq!(report["coverage"]["done"], 4, "short runs are not reported");
    assert_eq!(tally(&world.dsf(&format!("{line} --json"))), [4, 0, 4, 0, 0]);
    // The rate that stays is the best of the last round.
    let table = |path: &str| -> Vec<(String, u64, f64, f64)> {
        let mut reader = csv::Reader::from_path(world.path(path)).unwrap();
        let header = reader.headers().unwrap().clone();
        let at = |name: &str| header.iter().position(|held| held == name).unwrap();
        let [mixer, epochs, lr, accuracy] = ["mixer", "epochs_max", "lr", "accuracy"].map(at);
        let rows = reader.records().map(Result::unwrap);
        let row = |row: csv::StringRecord| {
            let number = |at: usize| row[at].parse().unwrap();
            (row[mixer].to_owned(), row[epochs].parse().unwrap(), number(lr), number(accuracy))
        };
        rows.map(row).collect()
    };
    let short = table("results/halving/mqar.csv");
    for (mixer, _, lr, _) in table("results/mqar.csv") {
        let mean = |lr: f64| {
            let own = short.iter().filter(|row| row.0 == mixer && row.1 == 4 && row.2 == lr);
            let all: Vec<f64> = own.map(|row| row.3).collect();
            (all.len() == 2).then(|| all.iter().sum::<f64>() / 2.0)
        };
        let means = [1e-4, 1e-3, 2e-3, 4e-3].map(mean);
        let best = means.into_iter().flatten().fold(f64::MIN, f64::max);
        assert_eq!(means.iter().flatten().count(), 2);
        assert_eq!(mean(lr), Some(best), "{mixer}");
    }
}

#[test]
fn halving_is_for_whole_plans_of_this_machine() {
    let world = World::new();
    for (more, name) in [(" --executor print", "--executor local"), (" --shard 1/2", "--shard"), ("=1", "")] {
        let refused = world.refuses(&format!("sweep --halving{more}"), "--halving");
        refused.names(&[name]);
    }
}

#[test]
fn workers_side_by_side_give_the_numbers_of_one() {
    let world = World::new();
    world.dsf(&format!("{GRID} --out a -q")).ok();
    world.dsf(&format!("{GRID} --out b -q --jobs 2")).ok();
    for (a, b) in world.runs("a").iter().zip(world.runs("b")) {
        assert_eq!(a.file_name(), b.file_name());
        assert_eq!(super::numbers(a), super::numbers(&b));
    }
}

#[test]
fn a_dry_run_counts_and_trains_nothing() {
    let world = World::new();
    world.dsf("mqar --preset smoke --mixer ssd --d 8 --n 4 -q").ok();
    shows!("dry-run", world.dsf(&format!("{GRID} --dry-run")).ok());
    let plan = planned(&world, GRID);
    assert_eq!((&plan["runs"], &plan["done"]), (&8.into(), &1.into()));
    assert_eq!(world.runs("results").len(), 1);
}

#[test]
fn a_shipped_experiment_is_planned_and_trained() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/smoke.toml");
    let world = World::new();
    let line = format!("sweep {} -q", file.display());
    world.dsf(&line).ok();
    assert_eq!(world.runs("results").len(), 24);
    let narrowed = world.dsf(&format!("sweep {} --mixer ssd --json", file.display()));
    assert_eq!(tally(&narrowed), [4, 0, 4, 0, 0]);
}

#[test]
fn seeds_become_a_mean_and_a_spread() {
    let world = World::new();
    world.dsf("sweep --preset smoke --mixer ssd --seeds 3 -q").ok();
    assert_eq!(world.runs("results").len(), 3);
    let report = world.dsf("report --json").object();
    let cell = &report["panels"][0]["cells"][0];
    assert_eq!(cell["seeds"], 3);
    assert!(cell["mean"].is_number() && cell["std"].is_number(), "{cell}");
}

#[test]
fn a_run_that_breaks_is_a_row_with_a_reason_and_the_rest_goes_on() {
    let world = World::new();
    // A folder where its checkpoint should be breaks exactly one run.
    world.dsf("mqar --preset smoke --mixer ssd --d 8 --n 4 -q").ok();
    let run = world.only_run("results");
    fs::remove_file(run.join("result.json")).unwrap();
    let checkpoint = run.join("checkpoint.safetensors");
    fs::create_dir(&checkpoint).unwrap();
    let said = world.dsf(&format!("{GRID} --json"));
    assert_eq!(said.code, 3, "{}{}", said.out, said.err);
    assert_eq!(tally(&said), [8, 7, 0, 1, 0]);
    let summary = super::table(&world.path("results/mqar.csv"));
    let failed: Vec<_> = { summary.iter() }.filter(|row| row["status"] == "failed").collect();
    assert_eq!(failed.len(), 1, "{summary:?}");
    let reason = &failed[0]["reason"];
    assert!(reason.contains("checkpoint.safetensors"), "{reason}");
    let again = world.dsf(GRID);
    assert_eq!(again.code, 3, "what failed before is not done");
    shows!("sweep-failed-before", trained again.out);
    fs::remove_dir(checkpoint).unwrap();
    let retried = world.dsf(&format!("{GRID} --retry-failed --json"));
    assert_eq!(tally(&retried), [8, 1, 7, 0, 0]);
}

#[test]
fn a_sweep_without_flags_says_what_it_trains() {
    shows!("dry-run-of-no-flags", World::new().dsf("sweep --dry-run").ok());
}

#[test]
fn a_folder_of_results_may_have_a_name_that_begins_with_a_hyphen() {
    let world = World::new();
    world.dsf("sweep --preset smoke --mixer ssd --out=-x -q").ok();
    assert_eq!(world.runs("-x").len(), 1);
}

#[test]
fn what_cannot_fit_is_refused_before_anything_is_allocated() {
    let world = World::new();
    for line in ["mqar --preset smoke --d 65536", "sweep --preset smoke --mixer s6 --d 16,65536 --dry-run"] {
        world.fails(line, "refused").names(&["--d 65536", "--allow-swap"]);
    }
}

#[test]
fn several_experiments_are_one_sweep_that_trains_every_run_once() {
    let world = World::new();
    let file = |name: &str, mixers: &str| {
        let text = format!(
            "task = \"mqar\"\n[defaults]\npreset = \"smoke\"\ntrain-examples = 32\n[[grid]]\nmixer = [{mixers}]\n"
        );
        fs::write(world.path(name), text).unwrap();
    };
    file("a.toml", "\"softmax\", \"ssd\"");
    file("b.toml", "\"ssd\", \"linear\"");
    shows!("dry-run-of-two-experiments", world.dsf("sweep a.toml b.toml --dry-run").ok());
    // Its end draws the grids and names the best run of each mixer.
    shows!(
        "sweep-of-two-experiments",
        trained world.dsf("sweep a.toml b.toml").ok()
    );
    let end = world.dsf("sweep a.toml b.toml --json");
    assert_eq!(tally(&end), [3, 0, 3, 0, 0]);
    assert_eq!(end.object()["best"].as_array().unwrap().len(), 3);
    let report = world.dsf("report --experiment a.toml --experiment b.toml --json");
    let coverage = &report.object()["coverage"];
    assert_eq!((&coverage["done"], &coverage["planned"]), (&3.into(), &3.into()));
    shows!("status", world.dsf("sweep status a.toml b.toml").ok());
    let status = world.dsf("sweep status a.toml b.toml --json").object();
    assert_eq!((&status["runs"], &status["done"]), (&3.into(), &3.into()));
    world.dsf("sweep a.toml --task mqar --dry-run").ok();
    let other = world.refuses("sweep a.toml --task recall --dry-run", "--task");
    other.gives("recall").names(&["mqar"]);
    let missing = world.fails("sweep a.toml c.toml", "refused");
    missing.at("c.toml", None);
}

#[test]
fn seeds_draw_data_of_their_own_and_are_reported_as_one_cell() {
    let world = World::new();
    world.dsf("sweep --preset smoke --protocol matched --mixer ssd --seeds 2 -q").ok();
    let data_seeds: BTreeSet<u64> = { world.runs("results") }
        .iter()
        .map(|run| {
            let config = fs::read(run.join("config.json")).unwrap();
            let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
            assert_eq!(config["seed"], config["task"]["data_seed"]);
            config["seed"].as_u64().unwrap()
        })
        .collect();
    assert_eq!(data_seeds, BTreeSet::from([123, 124]));
    let report = world.dsf("report --json").object();
    assert_eq!(report["panels"][0]["cells"][0]["seeds"], 2, "{report}");
}
