//! `dsf sweep`.

use super::World;
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
    let missing = world.dsf("sweep a.toml c.toml").refused();
    assert!(
        missing.contains("cannot read the experiment file c.toml"),
        "{missing}"
    );
}
