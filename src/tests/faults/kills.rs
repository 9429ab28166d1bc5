//! Sweeps that are killed at random.

use super::{all_or, look_at, no_leftovers, worth};
use crate::cli::World;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SWEEP: &str = "sweep --preset smoke --mixer softmax,ssd,linear --d 16,32 --train-examples 800 --epochs 3 \
    --lr 1e-4,1e-3 --threads 1 --jobs 2 --retry-failed -q";

fn start(world: &World) -> Child {
    Command::new(assert_cmd::cargo::cargo_bin("dsf"))
        .args(SWEEP.split_whitespace())
        .current_dir(world.path(""))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Result files of finished runs, with their contents.
fn results(world: &World) -> BTreeMap<PathBuf, String> {
    let runs = fs::read_dir(world.path("results/runs")).into_iter().flatten();
    let files = runs.map(|run| run.unwrap().path().join("result.json"));
    let done = files.filter_map(|file| Some((file.clone(), fs::read_to_string(file).ok()?)));
    // A failed run is trained again, which replaces its result.
    done.filter(|(_, text)| text.contains("\"done\"")).collect()
}

#[test]
fn a_sweep_that_is_killed_again_and_again_trains_every_run_once_and_to_the_same_bits() {
    let whole = World::new();
    whole.dsf(SWEEP).ok();
    let wanted: Vec<_> = whole.runs("results").iter().map(|run| worth(run)).collect();
    let mut random = fastrand::Rng::with_seed(16);
    let (mut kills, most) = (0, all_or(200, 12));
    while kills < most {
        let world = World::new();
        let mut known = BTreeMap::new();
        loop {
            let mut sweep = start(&world);
            std::thread::sleep(Duration::from_millis(random.u64(30..600)));
            let ended = sweep.try_wait().unwrap().is_some();
            if !ended {
                kills += 1;
                let parent = sweep.id().to_string();
                let kill_workers = |which: &[&str]| {
                    let mut pkill = Command::new("pkill");
                    pkill.args(["-KILL", "-P", &parent]).args(which);
                    pkill.status().unwrap();
                };
                match random.u8(0..4) {
                    // Kills one worker, as the system does when memory runs out: the sweep continues, and the run
                    // counts as failed.
                    0 => kill_workers(&["-n"]),
                    // Kills the sweep and its workers, as a power cut does.
                    1 => {
                        kill_workers(&[]);
                        sweep.kill().unwrap();
                    }
                    // Kills only the sweep; its workers notice that and stop.
                    _ => sweep.kill().unwrap(),
                }
            }
            let code = sweep.wait().unwrap().code();
            let now = results(&world);
            for (file, text) in &known {
                assert_eq!(now.get(file), Some(text), "a run that was done was trained again");
            }
            known = now;
            if code == Some(0) {
                break;
            }
            look_at(&world, "results");
        }
        world.dsf(SWEEP).ok(); // removes what the last kill left of runs that were done
        let runs = world.runs("results");
        let found: Vec<_> = runs.iter().map(|run| worth(run)).collect();
        assert_eq!(found, wanted, "after {kills} kills");
        runs.iter().for_each(|run| no_leftovers(run));
        let rows = fs::read_to_string(world.path("results/mqar.csv")).unwrap();
        assert_eq!(rows.lines().count(), 1 + wanted.len());
    }
}
