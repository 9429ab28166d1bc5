//! `dsf sweep`.

use super::World;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const GRID: &str = "sweep --task mqar --preset smoke --mixer ssd,softmax --d 8,16 --n 4,8";

#[test]
fn a_grid_is_trained_once() {
    let world = World::new();
    let said = world.dsf(GRID).ok();
    assert!(said.contains("8 runs: 8 finished."), "{said}");
    assert_eq!(world.runs("results").len(), 8);
    let again = world.dsf(GRID).ok();
    assert!(
        again.contains("8 runs: 0 finished, 8 done before."),
        "{again}"
    );
    let wider = world.dsf(&GRID.replace("--d 8,16", "--d 8,16,32")).ok();
    assert!(
        wider.contains("12 runs: 4 finished, 8 done before."),
        "{wider}"
    );
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
    let planned = world.dsf(&format!("{more} --shard 1/2 --dry-run"));
    assert!(
        planned
            .err
            .contains("--done-in: 2 of 4 runs are done in kept.csv, and left out"),
        "{}",
        planned.err
    );
    assert!(planned.out.contains("1 run: "), "{}", planned.out);
    let said = world.dsf(&more).ok();
    assert!(said.contains("2 runs: 2 finished."), "{said}");
    let all = world.dsf("report kept.csv results").ok();
    assert!(all.contains("4 runs done"), "{all}");
    let none = world.dsf(&format!("{some} --done-in kept.csv")).ok();
    assert!(none.contains("nothing is left to do"), "{none}");
    assert!(!none.contains("results:"), "{none}");
    // A run that failed there is no run that is done.
    let failed = fs::read_to_string(world.path("kept.csv")).unwrap();
    let failed = failed.replace(",done,", ",failed,");
    let unsummed: Vec<&str> = failed
        .lines()
        .map(|line| &line[..=line.rfind(',').unwrap()])
        .collect();
    fs::write(world.path("failed.csv"), unsummed.join("\n")).unwrap();
    let planned = world.dsf(&more.replace("kept", "failed")).err;
    assert!(planned.contains("0 of 4 runs"), "{planned}");
    let message = world.dsf(&more.replace("kept", "none")).refused();
    assert!(
        message.contains("--done-in: there is no file none.csv"),
        "{message}"
    );
    fs::write(world.path("notes.csv"), "a,b\n1,2\n").unwrap();
    let message = world.dsf(&more.replace("kept", "notes")).ends(65);
    assert!(
        message.contains("notes.csv, line 1: no column `schema`"),
        "{message}"
    );
}

#[test]
fn halving_trains_one_rate_of_a_cell_whole_and_keeps_the_short_runs_apart() {
    let world = World::new();
    let line = "sweep --preset smoke --mixer ssd,softmax --lr 1e-4,1e-3,2e-3,4e-3 --seeds 2 --epochs 8 --halving";
    let planned = world.dsf(&format!("{line} --dry-run"));
    for said in [
        "first round 1, 8 runs of 2 epochs",
        "first round 2, 8 runs of 4 epochs",
    ] {
        assert!(planned.err.contains(said), "{}", planned.err);
    }
    let said = world.dsf(line).ok();
    assert!(said.contains("4 runs: 4 finished."), "{said}");
    let rows = |path: &str| {
        fs::read_to_string(world.path(path))
            .unwrap()
            .lines()
            .count()
            - 1
    };
    // Four rates of a seed for each mixer, then two of two seeds.
    assert_eq!(rows("results/halving/mqar.csv"), 8 + 8);
    assert_eq!(rows("results/mqar.csv"), 2 * 2);
    assert!(
        world.dsf("report").ok().contains("4 runs done"),
        "short runs are not reported"
    );
    let again = world.dsf(line).ok();
    assert!(
        again.contains("4 runs: 0 finished, 4 done before."),
        "{again}"
    );
    // The rate that stays is the best of the last round.
    let table = |path: &str| -> Vec<(String, u64, f64, f64)> {
        let mut reader = csv::Reader::from_path(world.path(path)).unwrap();
        let header = reader.headers().unwrap().clone();
        let at = |name: &str| header.iter().position(|held| held == name).unwrap();
        let [mixer, epochs, lr, accuracy] = ["mixer", "epochs_max", "lr", "accuracy"].map(at);
        let rows = reader.records().map(Result::unwrap);
        let row = |row: csv::StringRecord| {
            let number = |at: usize| row[at].parse().unwrap();
            (
                row[mixer].to_owned(),
                row[epochs].parse().unwrap(),
                number(lr),
                number(accuracy),
            )
        };
        rows.map(row).collect()
    };
    let short = table("results/halving/mqar.csv");
    for (mixer, _, lr, _) in table("results/mqar.csv") {
        let mean = |lr: f64| {
            let own = short
                .iter()
                .filter(|row| row.0 == mixer && row.1 == 4 && row.2 == lr);
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
    let message = world.dsf("sweep --halving --executor print").refused();
    assert!(
        message.contains("--halving") && message.contains("--executor local"),
        "{message}"
    );
    let message = world.dsf("sweep --halving --shard 1/2").refused();
    assert!(
        message.contains("--halving") && message.contains("--shard"),
        "{message}"
    );
    let message = world.dsf("sweep --halving=1").refused();
    assert!(message.contains("--halving"), "{message}");
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
    world
        .dsf("mqar --preset smoke --mixer ssd --d 8 --n 4 -q")
        .ok();
    let said = world.dsf(&format!("{GRID} --dry-run")).ok();
    assert!(said.contains("8 runs") && said.contains("1 done"), "{said}");
    assert_eq!(world.runs("results").len(), 1);
}

#[test]
fn a_shipped_experiment_is_planned_and_trained() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/smoke.toml");
    let world = World::new();
    let line = format!("sweep {} -q", file.display());
    world.dsf(&line).ok();
    assert_eq!(world.runs("results").len(), 24);
    let narrowed = world
        .dsf(&format!("sweep {} --mixer ssd", file.display()))
        .ok();
    assert!(
        narrowed.contains("4 runs: 0 finished, 4 done before."),
        "{narrowed}"
    );
}

#[test]
fn seeds_become_a_mean_and_a_spread() {
    let world = World::new();
    world
        .dsf("sweep --preset smoke --mixer ssd --seeds 3 -q")
        .ok();
    assert_eq!(world.runs("results").len(), 3);
    let text = world.dsf("report").ok();
    assert!(text.contains('±'), "{text}");
}

#[test]
fn a_run_that_breaks_is_a_row_with_a_reason_and_the_rest_goes_on() {
    let world = World::new();
    // A folder where its checkpoint should be breaks exactly one run.
    world
        .dsf("mqar --preset smoke --mixer ssd --d 8 --n 4 -q")
        .ok();
    let run = world.only_run("results");
    fs::remove_file(run.join("result.json")).unwrap();
    let checkpoint = run.join("checkpoint.safetensors");
    fs::create_dir(&checkpoint).unwrap();
    let said = world.dsf(GRID);
    assert_eq!(said.code, 3, "{}{}", said.out, said.err);
    assert!(
        said.out.contains("8 runs: 7 finished, 1 failed."),
        "{}",
        said.out
    );
    let summary = fs::read_to_string(world.path("results/mqar.csv")).unwrap();
    assert_eq!(
        summary.lines().filter(|l| l.contains(",failed,")).count(),
        1,
        "{summary}"
    );
    assert!(summary.contains("checkpoint.safetensors"), "{summary}");
    let again = world.dsf(GRID);
    assert_eq!(again.code, 3, "what failed before is not done");
    assert!(again.out.contains("1 failed before"), "{}", again.out);
    fs::remove_dir(checkpoint).unwrap();
    let retried = world.dsf(&format!("{GRID} --retry-failed")).ok();
    assert!(retried.contains("1 finished, 7 done before"), "{retried}");
}

#[test]
fn a_sweep_without_flags_says_what_it_trains() {
    let said = World::new().dsf("sweep --dry-run").ok();
    for mixer in ["softmax", "linear", "normalized", "s6", "ssd"] {
        assert!(said.contains(mixer), "{said}");
    }
    assert!(said.contains("5 runs"), "{said}");
}

#[test]
fn a_folder_of_results_may_have_a_name_that_begins_with_a_hyphen() {
    let world = World::new();
    world
        .dsf("sweep --preset smoke --mixer ssd --out=-x -q")
        .ok();
    assert_eq!(world.runs("-x").len(), 1);
}

#[test]
fn what_cannot_fit_is_refused_before_anything_is_allocated() {
    let world = World::new();
    for line in [
        "mqar --preset smoke --d 65536",
        "sweep --preset smoke --mixer s6 --d 16,65536 --dry-run",
    ] {
        let said = world.dsf(line).refused();
        assert!(
            said.contains("--d 65536") && said.contains("--allow-swap"),
            "{said}"
        );
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
    let dry = world.dsf("sweep a.toml b.toml --dry-run").ok();
    assert!(
        dry.starts_with("plan    3 runs: 0 done, 0 failed, 3 to do; 1 duplicate left out"),
        "{dry}"
    );
    let said = world.dsf("sweep a.toml b.toml").ok();
    assert!(said.starts_with("3 runs: 3 finished.\n"), "{said}");
    // Its end draws the grids and names the best run of each mixer.
    assert!(
        said.contains("ssd, reference, L=16 k=2 V=32, 32 examples"),
        "{said}"
    );
    let best = said.lines().find(|line| line.starts_with("best on mqar: "));
    assert_eq!(best.unwrap().matches(" %").count(), 3, "{said}");
    let report = world
        .dsf("report --experiment a.toml --experiment b.toml")
        .ok();
    assert!(report.contains("3 of 3 runs done"), "{report}");
    let status = world.dsf("sweep status a.toml b.toml").ok();
    assert!(status.starts_with("3 runs: 3 done"), "{status}");
    world.dsf("sweep a.toml --task mqar --dry-run").ok();
    let other = world.dsf("sweep a.toml --task recall --dry-run").refused();
    assert!(
        other.contains("--task recall: the experiment has runs of mqar"),
        "{other}"
    );
    let missing = world.dsf("sweep a.toml c.toml").refused();
    assert!(
        missing.contains("cannot read the experiment file c.toml"),
        "{missing}"
    );
}

#[test]
fn seeds_draw_data_of_their_own_and_are_reported_as_one_cell() {
    let world = World::new();
    world
        .dsf("sweep --preset smoke --protocol matched --mixer ssd --seeds 2 -q")
        .ok();
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
    let text = world.dsf("report").ok();
    assert!(text.contains("over 2 seeds"), "{text}");
}
