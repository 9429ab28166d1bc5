//! `dsf bench`.

use super::World;
use serde_json::Value;

const STEP: &str = "bench step --preset smoke --steps 2 --threads 1";

/// The one JSON object that `line` prints.
fn report(line: &str) -> Value {
    let out = World::new().dsf(&format!("{line} --json")).ok();
    assert_eq!(out.lines().count(), 1, "{out}");
    serde_json::from_str(&out).unwrap()
}

/// A positive number of a report.
fn positive(report: &Value, key: &str) -> f64 {
    let value = report[key].as_f64();
    let value = value.unwrap_or_else(|| panic!("no number {key} in {report}"));
    assert!(value > 0.0 && value.is_finite(), "{key} is {value}");
    value
}

#[test]
fn a_step_is_told_with_its_time_its_memory_and_its_loss() {
    for mixer in ["softmax", "ssd", "qlstm"] {
        let r = report(&format!("{STEP} --mixer {mixer}"));
        assert_eq!(
            (r["bench"].as_str(), r["mixer"].as_str()),
            (Some("step"), Some(mixer))
        );
        assert_eq!(
            (r["steps"].as_u64(), r["threads"].as_u64()),
            (Some(2), Some(1))
        );
        let cpu = positive(&r, "cpu_seconds");
        assert!(positive(&r, "cpu_seconds_min") <= cpu && cpu <= positive(&r, "cpu_seconds_max"));
        assert!(positive(&r, "wall_seconds") >= positive(&r, "wall_seconds_min"));
        let tokens = 32.0 * 16.0 / cpu;
        assert!((positive(&r, "tokens_per_cpu_second") / tokens - 1.0).abs() < 1e-9);
        assert!(positive(&r, "peak_memory_bytes") > 1e6);
        assert_eq!(r["route"], "fused");
        for text in ["cpu", "instruction_set", "commit"] {
            assert!(!r[text].as_str().unwrap().is_empty(), "{text}");
        }
        let chance = 32f64.ln();
        assert!((positive(&r, "first_loss") - chance).abs() < 0.1);
        assert!((positive(&r, "loss") - chance).abs() < 0.1);
        let states = &r["state_elements_per_cpu_second"];
        assert_eq!(states.is_null(), mixer == "softmax", "its state grows");
    }
}

#[test]
fn the_first_loss_is_that_of_the_run_itself() {
    let world = World::new();
    let line = "--preset smoke --mixer ssd --batch-size 200 --threads 1 --json";
    let run = world.dsf(&format!("mqar {line}")).ok();
    let epoch = run
        .lines()
        .find(|l| l.contains("\"epoch\"") && l.contains("test_loss"));
    let epoch: Value = serde_json::from_str(epoch.unwrap()).unwrap();
    let step = report(&format!("bench step {line} --steps 1").replace(" --json", ""));
    assert_eq!(
        epoch["loss"], step["first_loss"],
        "one step is an epoch there"
    );
}

#[test]
fn every_op_that_is_listed_can_be_timed() {
    let help = World::new().dsf("bench op --help").ok();
    let listed = help.split("Ops:\n").nth(1).unwrap();
    let names = listed.lines().filter(|line| !line.starts_with(' '));
    let names: Vec<&str> = names.filter_map(|line| line.split(' ').next()).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        let r = report(&format!(
            "bench op {name} --shape 2,16,8,4 --repeats 2 --threads 1"
        ));
        assert_eq!(
            (r["bench"].as_str(), r["op"].as_str()),
            (Some("op"), Some(name))
        );
        let elements = positive(&r, "elements");
        let rate = elements / positive(&r, "cpu_seconds");
        assert!((positive(&r, "elements_per_cpu_second") / rate - 1.0).abs() < 1e-9);
        let fraction = positive(&r, "floor_seconds") / positive(&r, "cpu_seconds");
        assert!((positive(&r, "fraction_of_floor") / fraction - 1.0).abs() < 1e-9);
        positive(&r["forward"], "cpu_seconds");
        positive(&r["forward"], "floor_seconds");
        assert!(r["checksum"].as_f64().unwrap() != 0.0);
        assert!(r["gradient_checksum"].is_f64());
    }
}

#[test]
fn an_op_gives_the_same_sums_on_one_thread_and_on_two() {
    let sums = |threads: usize| {
        let line =
            format!("bench op selective_scan --shape 3,33,20,8 --repeats 1 --threads {threads}");
        let r = report(&line);
        [r["checksum"].clone(), r["gradient_checksum"].clone()]
    };
    assert_eq!(sums(1), sums(2));
}

#[test]
fn wider_numbers_and_heads_reach_the_op() {
    let line = "bench op causal_attention --shape 2,8,8,4 --repeats 1 --threads 1";
    let of = |more: &str| report(&format!("{line} {more}"));
    let (plain, wide, split) = (of(""), of("--dtype f64"), of("--heads 2"));
    let sum = |r: &Value| r["checksum"].as_f64().unwrap();
    assert!((sum(&plain) - sum(&wide)).abs() < 1e-4 && wide["dtype"] == "f64");
    assert!((sum(&plain) - sum(&split)).abs() > 1e-4 && split["heads"] == 2);
}

#[test]
fn a_table_is_for_people() {
    let out = World::new().dsf(STEP).ok();
    for needle in [
        "softmax", "L = 16", "CPU", "tokens", "memory", "loss", "route",
    ] {
        assert!(out.contains(needle), "{needle}: {out}");
    }
}

#[test]
fn what_cannot_be_timed_is_refused_in_a_sentence() {
    for (line, needle) in [
        ("bench step --steps 0", "--steps must be 1 to 1000"),
        ("bench step --mixer linnear", "Did you mean `linear`?"),
        (
            "bench step --batch-size 1000000 --seq-len 4096 --d 8192 --vocab-size 8192",
            "GB of memory",
        ),
        (
            "bench step --attn-dropout 1",
            "--attn-dropout must be in [0, 1)",
        ),
        ("bench step --d 64,128", "--d 64,128"),
        ("bench op selectve_scan", "Did you mean `selective_scan`?"),
        (
            "bench op ssd --shape 2,3,4",
            "--shape must be B,L,d,n for ssd",
        ),
        (
            "bench op tanh --shape 2,3",
            "--shape must be B,L,d for tanh",
        ),
        ("bench op tanh --shape 0,2,3", "from 1 to"),
        ("bench op tanh --shape 1000000,1000000,10", "GB of memory"),
        ("bench op tanh --heads 2", "tanh has no heads"),
        (
            "bench op causal_attention --heads 3",
            "--heads 3 does not divide",
        ),
        ("bench op tanh --repeats 0", "--repeats must be"),
    ] {
        let message = World::new().dsf(line).refused();
        assert!(message.contains(needle), "{line}: {message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}
