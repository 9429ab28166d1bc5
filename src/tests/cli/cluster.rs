//! Sweeps that are watched, stopped, tried again, cut into shards, submitted and joined.

use super::recovery::{start, wait_for_an_epoch};
use super::{Said, World};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const GRID: &str = "sweep --preset smoke --mixer ssd,softmax --d 8,16 --n 4,8";
/// Never over by itself.
const LONG: &str = "sweep --preset smoke --mixer softmax --d 32 --train-examples 4000 --epochs 400000 --lr 1e-4";

/// A line of a sweep as one of another command of `dsf sweep`.
fn of(line: &str, command: &str) -> String {
    line.replacen("sweep", &format!("sweep {command}"), 1)
}

fn status(world: &World, line: &str) -> Value {
    let said = world.dsf(&format!("{} --json", of(line, "status"))).ok();
    serde_json::from_str(&said).unwrap()
}

#[test]
fn the_status_of_a_plan_counts_its_runs_and_that_of_a_folder_all_runs() {
    let world = World::new();
    let none = world.fails("sweep status", "refused");
    none.at("results", None).names(&["--out"]);
    for line in ["--mixer ssd --d 8 --n 4", "--mixer linear"] {
        world.dsf(&format!("mqar --preset smoke {line} -q")).ok();
    }
    let said = world.dsf(&of(GRID, "status")).ok();
    assert!(said.contains("8 runs: 1 done, 0 running, 0 failed, 7 to do"), "{said}");
    assert!(said.contains("left     at most about"), "{said}");
    let all = world.dsf("sweep status").ok();
    assert!(all.contains("2 runs: 2 done"), "{all}");
    let event = status(&world, GRID);
    assert_eq!((&event["done"], &event["to_do"], &event["over"]), (&1.into(), &7.into(), &false.into()));
    assert_eq!(event["each"].as_array().unwrap().len(), 8);
    assert!(event["left_seconds"].is_number());
    assert_eq!(world.runs("results").len(), 2, "a look makes nothing");
}

#[test]
fn a_run_in_work_is_seen_from_outside_and_a_cancelled_sweep_goes_on_later() {
    let world = World::new();
    let mut sweep = start(&world, LONG);
    wait_for_an_epoch(&world, "results");
    let began = Instant::now();
    // A beat of the heart later it is known how far it is.
    let run = loop {
        let event = status(&world, LONG);
        let run = event["each"][0].clone();
        if event["running"] == 1 && run["epoch"].as_u64() > Some(0) {
            break run;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{event}");
        sleep(Duration::from_millis(100));
    };
    assert!(run["pid"].as_u64() > Some(1) && run["host"].is_string(), "{run}");
    assert_eq!(run["epochs"], 400_000);
    let said = world.dsf(&of(LONG, "status")).ok();
    assert!(said.contains("running") && said.contains("/400000, step"), "{said}");
    let said = world.dsf("sweep cancel").ok();
    assert!(said.contains("exit code 75"), "{said}");
    assert_eq!(sweep.wait().unwrap().code(), Some(75));
    let said = world.dsf(&of(LONG, "status")).ok();
    assert!(said.contains("0 running, 0 failed, 1 to do (1 of them begun)"), "{said}");
    // The wish was for those at work then: a sweep that begins later is not stopped by it.
    let mut again = start(&world, LONG);
    wait_for_an_epoch(&world, "results");
    sleep(Duration::from_secs(3));
    assert_eq!(again.try_wait().unwrap(), None);
    world.dsf("sweep cancel -q").ok();
    assert_eq!(again.wait().unwrap().code(), Some(75));
}

#[test]
fn a_run_that_takes_too_long_has_failed_by_a_timeout_and_a_retry_goes_on_from_its_checkpoint() {
    let world = World::new();
    let line = format!("{LONG} --max-minutes 0.05 -q");
    assert_eq!(world.dsf(&line).code, 3);
    let run = world.only_run("results");
    assert!(run.join("checkpoint.safetensors").exists());
    let event = status(&world, LONG);
    assert_eq!((&event["failed"], &event["over"]), (&1.into(), &true.into()));
    assert_eq!(event["each"][0]["reason"], "timeout");
    let said = world.dsf(&of(LONG, "status")).ok();
    assert!(said.contains("timeout: not over after 3.0 s") && said.contains("dsf sweep retry"), "{said}");
    let summary = fs::read_to_string(world.path("results/mqar.csv")).unwrap();
    assert!(summary.contains(",timeout,"), "{summary}");
    let other = world.dsf("sweep retry --reason oom,nan").ok();
    assert!(other.contains("no run failed so"), "{other}");
    let unknown = world.refuses("sweep retry --reason timeot", "--reason");
    unknown.gives("timeot").names(&["timeout"]);
    let epochs = || fs::read_to_string(run.join("metrics.csv")).unwrap();
    let before = epochs();
    let retried = world.dsf("sweep retry --reason timeout --max-minutes 0.05");
    assert_eq!(retried.code, 3, "{}{}", retried.out, retried.err);
    let first = before.lines().nth(1).unwrap();
    assert!(epochs().len() > before.len() && epochs().contains(first));
}

#[test]
fn a_retry_trains_what_failed_and_nothing_else() {
    let world = World::new();
    world.dsf("mqar --preset smoke --mixer ssd --d 8 --n 4 -q").ok();
    let run = world.only_run("results");
    fs::remove_file(run.join("result.json")).unwrap();
    let checkpoint = run.join("checkpoint.safetensors");
    fs::create_dir(&checkpoint).unwrap();
    let line = format!("{GRID} --max-failures 1 --jobs 1");
    let said = world.dsf(&line);
    assert_eq!(said.code, 3);
    assert!(said.out.contains("8 runs: 0 finished, 1 failed, 7 not begun"), "{}", said.out);
    let event = status(&world, GRID);
    assert_eq!(event["each"][0]["reason"], "other");
    fs::remove_dir(checkpoint).unwrap();
    let said = world.dsf("sweep retry --failed").ok();
    assert!(said.contains("1 run: 1 finished."), "{said}");
    assert_eq!(world.runs("results").len(), 1);
}

#[test]
fn shards_are_a_sweep_together_and_each_says_what_the_others_have_left() {
    let world = World::new();
    for (shard, code, left) in [("2/3", 69, "5 not over"), ("1/3", 69, "2 not over"), ("3/3", 0, "0 not over")] {
        let said = world.dsf(&format!("{GRID} --shard {shard}"));
        assert_eq!(said.code, code, "{}{}", said.out, said.err);
        assert!(said.out.contains(left), "{}", said.out);
    }
    let summary = fs::read_to_string(world.path("results/mqar.csv")).unwrap();
    assert_eq!(summary.lines().count(), 1 + 8);
    let refused = world.refuses(&format!("{GRID} --shard 4/3"), "--shard");
    refused.gives("4/3").names(&["1/8"]);
}

#[test]
fn folders_are_joined_and_two_results_of_one_run_are_refused() {
    let world = World::new();
    for (shard, out) in [("1/2", "a"), ("2/2", "b")] {
        world.dsf(&format!("{GRID} --shard {shard} --out {out} -q"));
    }
    let said = world.dsf("sweep merge a b --out c").ok();
    assert!(said.contains("8 runs copied into c"), "{said}");
    let done = world.dsf(&format!("{GRID} --out c")).ok();
    assert!(done.contains("8 runs: 0 finished, 8 done before."), "{done}");
    let said = world.dsf("sweep merge a b --out c").ok();
    assert!(said.contains("0 runs copied"), "{said}");
    let result = world.runs("b")[0].join("result.json");
    let text = fs::read_to_string(&result).unwrap();
    let mut changed: Value = serde_json::from_str(&text).unwrap();
    changed["test_loss"] = 0.125.into();
    fs::write(&result, changed.to_string()).unwrap();
    let said = world.dsf("sweep merge b --out c");
    assert!(said.err.contains("changed since it was written"), "{}", said.err);
    // As if it were another result, not a damaged one.
    for digest in ["seal", "metrics_sha256", "slices_sha256"] {
        changed.as_object_mut().unwrap().remove(digest);
    }
    fs::write(&result, changed.to_string()).unwrap();
    let fault = world.fails("sweep merge b --out c", "corrupt");
    let other = world.runs("c")[0].join("result.json");
    assert_eq!(other.file_name(), result.file_name());
    assert!(fault.path.unwrap().ends_with("result.json"));
    world.fails("sweep merge a nowhere --out c", "refused").names(&["`runs`"]);
}

#[test]
fn a_command_behind_its_flags_is_refused_with_the_right_order() {
    let fault = World::new().fails("sweep --mixer ssd status", "refused");
    fault.names(&["dsf sweep status"]);
}

#[test]
fn watching_ends_when_the_runs_are_over() {
    let world = World::new();
    world.dsf("mqar --preset smoke --mixer ssd -q").ok();
    let said = world.dsf("sweep watch").ok();
    assert!(said.contains("1 run: 1 done"), "{said}");
}

#[test]
fn a_smaller_micro_batch_is_the_same_run_with_nearly_the_same_numbers_and_is_recorded() {
    let world = World::new();
    world.dsf("mqar --preset smoke --mixer ssd -q --out whole").ok();
    let whole = world.only_run("whole");
    let config = fs::read_to_string(whole.join("config.json")).unwrap();
    let config: Value = serde_json::from_str(&config).unwrap();
    let mut worker = Command::new(assert_cmd::cargo::cargo_bin("dsf"))
        .args(["worker", "--micro-batch=4", "--out", "parts"])
        .current_dir(world.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Its end would be the wish that it stop.
    let mut stdin = worker.stdin.take().unwrap();
    writeln!(stdin, "{config}").unwrap();
    assert!(worker.wait().unwrap().success());
    let parts = world.only_run("parts");
    assert_eq!(parts.file_name(), whole.file_name());
    let result = |run: &std::path::Path| -> Value {
        serde_json::from_str(&fs::read_to_string(run.join("result.json")).unwrap()).unwrap()
    };
    let (whole, parts) = (result(&whole), result(&parts));
    assert_eq!(parts["micro_batch_used"], 4);
    assert!(whole.get("micro_batch_used").is_none());
    let [a, b] = [&whole, &parts].map(|r| r["train_loss"].as_f64().unwrap());
    assert!((a - b).abs() < 0.1 * a, "{a} {b}");
    let summary = fs::read_to_string(world.path("parts/mqar.csv")).unwrap();
    assert!(summary.lines().next().unwrap().contains("micro_batch_used"));
}

#[test]
fn job_scripts_are_printed_and_a_shell_understands_them() {
    let world = World::new();
    let line = format!("{GRID} --executor print --shards 3 --time 10 --partition debug");
    let said = world.dsf(&line).ok();
    for part in [
        "#SBATCH --array=0-2",
        "#SBATCH --time=10",
        "#SBATCH --partition=debug",
        "--mixer ssd,softmax --d 8,16 --n 4,8 --shard \"$((SLURM_ARRAY_TASK_ID + 1))/3\"",
        "sweep status --preset smoke",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    fs::write(world.path("job.sh"), &said).unwrap();
    let checked = Command::new("bash").arg("-n").arg(world.path("job.sh")).status();
    assert!(checked.unwrap().success());
    assert!(!world.path("results").exists(), "nothing is made");
    for (more, flag, names) in [
        ("--shard 1/2", "--shard", &["--executor"][..]),
        ("--gpus 1", "--gpus", &["--device cuda"]),
        ("--shards 0", "--shards", &["1"]),
    ] {
        let line = format!("{GRID} --executor print {more}");
        world.refuses(&line, flag).names(names);
    }
}

#[test]
fn without_slurm_its_executor_says_what_it_needs() {
    let world = World::new();
    let dsf = assert_cmd::cargo::cargo_bin("dsf");
    let said = Command::new(dsf)
        .args(format!("{GRID} --executor slurm --json").split_whitespace())
        .current_dir(world.path(""))
        .env("PATH", world.path("no commands"))
        .output()
        .unwrap();
    let said = Said {
        code: said.status.code().unwrap(),
        out: String::from_utf8(said.stdout).unwrap(),
        err: String::from_utf8(said.stderr).unwrap(),
    };
    let fault = said.fault();
    fault.of("--executor").gives("slurm").names(&["scontrol", "--executor print"]);
}

#[test]
fn the_doctor_names_what_is_there_and_what_to_do_about_the_rest() {
    let world = World::new();
    let said = world.dsf("doctor").ok();
    for part in ["dsf 0.", "thread", "simd", "memory", "locks", "create-new"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let lines = world.dsf("doctor --json").ok();
    let findings: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(findings.len() >= 10, "{lines}");
    for finding in findings {
        let told = finding["remedy"] != "";
        assert_eq!(told, finding["state"] != "ok", "{finding}");
    }
    fs::write(world.path("file"), "").unwrap();
    let bad = world.dsf("doctor --out file/below");
    assert_eq!(bad.code, 4, "{}", bad.out);
    assert!(bad.out.contains("file is a file: give --out"), "{}", bad.out);
    let left = fs::read_dir(world.path("")).unwrap().count();
    assert_eq!(left, 1, "nothing is made but the file");
}
