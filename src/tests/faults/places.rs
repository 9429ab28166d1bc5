//! A run is killed before each of its calls that change a file, and refused from each of them on.

use super::traced::{permitted, run, End, Fault};
use super::{all_or, look_at, no_leftovers, worth};
use crate::cli::World;
use nix::errno::Errno;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Three epochs, some hundredths of a second.
const RUN: &str = "mqar --preset smoke --train-examples 96 --test-examples 32 --epochs 3 --threads 1 -q";
const SWEEP: &str = "sweep --preset smoke --mixer softmax,ssd --train-examples 96 --test-examples 32 --epochs 2 \
    --threads 1 --jobs 1 -q";

fn dsf(world: &World, line: &str) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("dsf"));
    command.args(line.split_whitespace()).current_dir(world.path(""));
    command
}

/// Calls `test` with every place up to the first that is not reached, or a sample of them.
fn at_every_place(mut test: impl FnMut(usize) -> bool) -> usize {
    let mut places = (0..).step_by(all_or(1, 8));
    places.find(|at| !test(*at)).unwrap()
}

/// Words and an exit code, whatever failed.
fn ended_well(end: &End, fault: Fault) {
    let told = end.code.is_some_and(|code| code < 100) && !end.said.contains("panicked");
    assert!(told, "{fault:?}: {end:?}");
    assert!(end.code == Some(0) || end.said.contains("error: "), "{fault:?}: {end:?}");
}

#[test]
fn a_run_that_is_killed_before_any_of_its_calls_goes_on_to_the_same_bits() {
    if !permitted() {
        return;
    }
    let whole = World::new();
    whole.dsf(RUN).ok();
    let wanted = worth(&whole.only_run("results"));
    let places = at_every_place(|at| {
        let mut reached = false;
        for fault in [Fault::Kill(at), Fault::Tear(at)] {
            let world = World::new();
            let end = run(dsf(&world, RUN), fault);
            reached |= end.reached;
            assert_eq!(end.code, (!end.reached).then_some(0), "{end:?}");
            look_at(&world, "results");
            world.dsf(RUN).ok();
            let run = world.only_run("results");
            assert_eq!(worth(&run), wanted, "killed at {at}");
            no_leftovers(&run);
            assert!(world.path("results/mqar.csv").exists());
        }
        reached
    });
    assert!(places > 30, "a run has but {places} calls that change a file");
}

/// The second checkpoint, in place of the first.
#[test]
fn a_run_that_is_killed_in_any_call_of_a_checkpoint_goes_on_from_the_one_before() {
    if !permitted() {
        return;
    }
    let whole = World::new();
    whole.dsf(RUN).ok();
    let wanted = worth(&whole.only_run("results"));
    // Ended once, after its first checkpoint.
    let once = World::new();
    let end = run(dsf(&once, RUN), Fault::EndAndKill(25, usize::MAX));
    assert_eq!(end.code, Some(75), "{end:?}");
    let folder = once.only_run("results");
    assert!(folder.join("metrics.csv").exists(), "no epoch is over: {end:?}");
    assert!(folder.join("checkpoint.safetensors").exists());
    at_every_place(|at| {
        let world = World::new();
        copy(&folder, &world.path("results/runs").join(folder.file_name().unwrap()));
        let end = run(dsf(&world, RUN), Fault::EndAndKill(4, 4 + at));
        look_at(&world, "results");
        let said = world.dsf(&RUN.replace(" -q", ""));
        assert!(said.err.contains("continuing") || at > 0 && said.code == 0, "{}", said.err);
        said.ok();
        assert_eq!(worth(&world.only_run("results")), wanted, "killed at {at}");
        end.reached
    });
}

#[test]
fn a_sweep_that_is_killed_with_its_worker_before_any_call_goes_on_to_the_same_bits() {
    if !permitted() {
        return;
    }
    let whole = World::new();
    whole.dsf(SWEEP).ok();
    let wanted: Vec<_> = whole.runs("results").iter().map(|run| worth(run)).collect();
    let mut places = (0..).step_by(all_or(1, 17));
    places.find(|at| {
        let world = World::new();
        let end = run(dsf(&world, SWEEP), Fault::Kill(*at));
        look_at(&world, "results");
        world.dsf(SWEEP).ok();
        let found: Vec<_> = world.runs("results").iter().map(|run| worth(run)).collect();
        assert_eq!(found, wanted, "killed at {at}");
        let rows = fs::read_to_string(world.path("results/mqar.csv")).unwrap();
        assert_eq!(rows.lines().count(), 3, "{rows}");
        !end.reached
    });
}

/// A full disk, one that went read-only, one that breaks.
#[test]
fn a_run_whose_disk_fails_from_any_call_on_says_so_and_goes_on_when_it_is_mended() {
    if !permitted() {
        return;
    }
    let whole = World::new();
    whole.dsf(RUN).ok();
    let wanted = worth(&whole.only_run("results"));
    for error in [Errno::ENOSPC, Errno::EROFS, Errno::EIO] {
        at_every_place(|at| {
            let world = World::new();
            let fault = Fault::Fail(at, error);
            let end = run(dsf(&world, RUN), fault);
            ended_well(&end, fault);
            let done = |run: &Path| run.join("result.json").exists();
            let before = end.code == Some(0) && end.reached;
            if before {
                // What failed then was of no weight: the run is done, and all of it is there.
                assert!(done(&world.only_run("results")), "{fault:?}: {end:?}");
                assert_eq!(worth(&world.only_run("results")), wanted);
            }
            look_at(&world, "results");
            world.dsf(RUN).ok();
            assert_eq!(worth(&world.only_run("results")), wanted, "{fault:?}");
            end.reached
        });
    }
}

#[test]
fn a_run_whose_files_are_of_the_future_goes_on_to_the_same_bits() {
    if !permitted() {
        return;
    }
    let whole = World::new();
    whole.dsf(RUN).ok();
    let wanted = worth(&whole.only_run("results"));
    for locks in [true, false] {
        let world = World::new();
        let end = run(dsf(&world, RUN), Fault::EndAndKill(12, 30));
        assert!(end.reached);
        // The clock jumps back by a year.
        let later = SystemTime::now() + Duration::from_secs(365 * 24 * 3600);
        for entry in fs::read_dir(world.only_run("results")).unwrap() {
            let file = fs::File::options().write(true).open(entry.unwrap().path());
            file.unwrap().set_modified(later).unwrap();
        }
        look_at(&world, "results");
        let again = match locks {
            true => Fault::None,
            false => Fault::NoLocks,
        };
        let end = run(dsf(&world, RUN), again);
        assert_eq!(end.code, Some(0), "{end:?}");
        assert_eq!(worth(&world.only_run("results")), wanted);
    }
}

#[test]
fn eight_processes_train_every_run_of_a_folder_once_with_and_without_locks() {
    if !permitted() {
        return;
    }
    let seeds = all_or(200, 24);
    let line = format!(
        "sweep --preset smoke --mixer softmax --d 8 --train-examples 32 --test-examples 16 --seeds {seeds} \
         --threads 1 --jobs 1"
    );
    for fault in [Fault::None, Fault::NoLocks] {
        let world = World::new();
        let ends: Vec<End> = std::thread::scope(|scope| {
            let sweep = || run(dsf(&world, &line), fault);
            let sweeps: Vec<_> = (0..8).map(|_| scope.spawn(sweep)).collect();
            let ends = sweeps.into_iter().map(|sweep| sweep.join().unwrap());
            ends.collect()
        });
        // Some end while the last runs are still with others.
        let ended = |end: &End| [Some(0), Some(69)].contains(&end.code);
        assert!(ends.iter().all(ended), "{ends:?}");
        let finished = |end: &End| -> usize {
            let (_, counts) = end.out.split_once(" runs: ").unwrap();
            counts.split_once(" finished").unwrap().0.parse().unwrap()
        };
        let each: Vec<usize> = ends.iter().map(finished).collect();
        assert_eq!(each.iter().sum::<usize>(), seeds, "{fault:?}: {each:?}");
        // What a sweep cannot see as done while another one has it in hand is told by the next.
        let again = world.dsf(&line).ok();
        let wanted = format!("{seeds} runs: 0 finished, {seeds} done before.");
        assert!(again.contains(&wanted), "{again}");
        let runs = world.runs("results");
        assert_eq!(runs.len(), seeds);
        runs.iter().for_each(|run| no_leftovers(run));
        let rows = fs::read_to_string(world.path("results/mqar.csv")).unwrap();
        assert_eq!(rows.lines().count(), 1 + seeds);
    }
}

/// Not more than it was measured to be: on a network file system each is a journey.
#[test]
fn a_run_costs_so_many_calls_that_change_files() {
    if !permitted() {
        return;
    }
    let world = World::new();
    let end = run(dsf(&world, RUN), Fault::None);
    assert_eq!(end.code, Some(0));
    println!("a run of three epochs: {} calls that change files: {:?}", end.count(), end.changes);
    assert!(end.count() <= 90, "{:?}", end.changes);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}
