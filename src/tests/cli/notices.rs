//! Signals that say "soon over": of schedulers, of limits, of a terminal that is closed.

use super::recovery::{signal, start, wait_for_an_epoch};
use super::{numbers, World};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Too long to end by itself.
const LONG: &str = "mqar --preset smoke --d 32 --train-examples 4000 --epochs 4000 --lr 1e-4 --threads 1";
/// Over in a second.
const SHORT: &str = "mqar --preset smoke --d 32 --train-examples 4000 --epochs 3 --lr 1e-4 --threads 1";
const SWEEP: &str = "sweep --preset smoke --d 32 --mixer ssd,softmax --train-examples 4000 --epochs 4000 --lr 1e-4 \
                     --jobs 2 --threads 2";

/// `dsf` with `line` after what a shell does first, its last words in the file `said`.
fn behind(world: &World, first: &str, line: &str) -> Child {
    let program = assert_cmd::cargo::cargo_bin("dsf");
    Command::new("sh")
        .args(["-c", &format!("{first}; exec {} {line}", program.display())])
        .current_dir(world.path(""))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(world.path("said")).unwrap())
        .spawn()
        .unwrap()
}

fn said(world: &World) -> String {
    fs::read_to_string(world.path("said")).unwrap()
}

/// A run that was left behind a checkpoint, for whoever takes it up next.
fn assert_let_go(run: &Path) {
    for (file, there) in
        [("checkpoint.safetensors", true), ("claim.json", false), ("beat.json", false), ("result.json", false)]
    {
        assert_eq!(run.join(file).exists(), there, "{}: {file}", run.display());
    }
}

#[test]
fn every_signal_that_asks_for_a_stop_leaves_a_run_behind_a_checkpoint() {
    for name in ["-HUP", "-USR1", "-USR2", "-XCPU"] {
        let world = World::new();
        let mut child = behind(&world, ":", LONG);
        wait_for_an_epoch(&world, "results");
        signal(&child, name);
        assert_eq!(child.wait().unwrap().code(), Some(75), "{name}");
        assert_let_go(&world.only_run("results"));
        let said = said(&world);
        assert!(said.contains("stopped by a signal; the same command continues from there:\n"), "{name}: {said}");
        assert!(said.trim_end().ends_with(LONG), "{name}: {said}");
    }
}

#[test]
fn every_signal_that_asks_for_a_stop_leaves_all_runs_of_a_sweep_behind_checkpoints() {
    // Schedulers signal the sweep alone, or its workers as well.
    for (name, workers) in [("-HUP", false), ("-USR2", true), ("-XCPU", false)] {
        let world = World::new();
        let mut child = start(&world, SWEEP);
        let began = Instant::now();
        let in_work = |world: &World| {
            let runs = world.path("results/runs");
            let has_epoch = |run: &std::path::PathBuf| run.join("metrics.csv").exists();
            runs.exists() && world.runs("results").iter().filter(|run| has_epoch(run)).count() == 2
        };
        while !in_work(&world) {
            assert!(began.elapsed() < Duration::from_secs(60), "no epoch of two runs");
            sleep(Duration::from_millis(5));
        }
        if workers {
            let told = Command::new("pkill").args([name, "-P", &child.id().to_string()]).status();
            assert!(told.unwrap().success());
        }
        signal(&child, name);
        assert_eq!(child.wait().unwrap().code(), Some(75), "{name}");
        world.runs("results").iter().for_each(|run| assert_let_go(run));
    }
}

#[test]
fn a_limit_on_processor_time_leaves_a_run_behind_a_checkpoint() {
    let world = World::new();
    let mut child = behind(&world, "ulimit -S -t 1", LONG);
    assert_eq!(child.wait().unwrap().code(), Some(75), "{}", said(&world));
    assert_let_go(&world.only_run("results"));
}

#[test]
fn a_hang_up_that_is_ignored_stays_ignored() {
    let world = World::new();
    let mut child = behind(&world, "trap '' HUP", SHORT);
    wait_for_an_epoch(&world, "results");
    signal(&child, "-HUP");
    assert_eq!(child.wait().unwrap().code(), Some(0), "{}", said(&world));
    assert!(world.only_run("results").join("result.json").exists());
}

#[test]
fn a_limit_on_the_size_of_files_is_told_like_a_full_disk() {
    let world = World::new();
    // In blocks of 512 or 1024 bytes; a checkpoint has more.
    let mut child = behind(&world, "ulimit -f 16", &format!("{SHORT} --checkpoint-every 0.017"));
    assert_eq!(child.wait().unwrap().code(), Some(1), "{}", said(&world));
    let said = said(&world);
    let error = said.lines().last().unwrap();
    assert!(error.starts_with("error: cannot write ") && error.contains("File too large"), "{said}");
    let run = world.only_run("results");
    assert!(!run.join("result.json").exists());
    assert!(!run.join("claim.json").exists() && !run.join("beat.json").exists());
    // Without the limit it is trained to its end.
    world.dsf(SHORT).ok();
}

/// A terminal whose other end is gone, as a closed window or a lost connection leaves it.
#[cfg(target_os = "linux")]
mod terminal {
    use super::*;
    use std::os::fd::{FromRawFd, OwnedFd};

    /// `dsf` with `line` in a terminal, and the end of that terminal at which a person sits.
    fn start_in_terminal(world: &World, line: &str) -> (Child, OwnedFd) {
        let (mut person, mut program) = (-1, -1);
        let (name, mode, size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
        // SAFETY: two new descriptors are written to where they are asked for, and belong to nobody else.
        #[allow(unsafe_code)] // openpty fills what it is pointed to
        let (person, program) = unsafe {
            let opened = libc::openpty(&mut person, &mut program, name, mode, size);
            assert_eq!(opened, 0, "no terminal");
            // Or the program would keep its own terminal open.
            libc::fcntl(person, libc::F_SETFD, libc::FD_CLOEXEC);
            (OwnedFd::from_raw_fd(person), OwnedFd::from_raw_fd(program))
        };
        let child = Command::new(assert_cmd::cargo::cargo_bin("dsf"))
            .args(line.split_whitespace())
            .current_dir(world.path(""))
            .stdin(Stdio::null())
            .stderr(program.try_clone().unwrap())
            .stdout(program)
            .spawn()
            .unwrap();
        (child, person)
    }

    #[test]
    fn a_run_whose_terminal_is_closed_stops_behind_a_checkpoint() {
        for line in [LONG.to_owned(), format!("{LONG} --json")] {
            let world = World::new();
            let (mut child, person) = start_in_terminal(&world, &line);
            wait_for_an_epoch(&world, "results");
            drop(person);
            signal(&child, "-HUP");
            assert_eq!(child.wait().unwrap().code(), Some(75), "{line}");
            assert_let_go(&world.only_run("results"));
        }
    }

    /// Every word meets the terminal that is gone.
    #[test]
    fn a_run_that_outlives_its_terminal_ends_as_it_would_have() {
        let world = World::new();
        world.dsf(&format!("{SHORT} --out whole -q")).ok();
        for (out, more) in [("plain", ""), ("json", " --json"), ("quiet", " -q")] {
            let (mut child, person) = start_in_terminal(&world, &format!("{SHORT} --out {out}{more}"));
            drop(person);
            assert_eq!(child.wait().unwrap().code(), Some(0), "{out}");
            assert_eq!(numbers(&world.only_run(out)), numbers(&world.only_run("whole")));
        }
    }
}
