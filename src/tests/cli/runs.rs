//! `dsf mqar`, `dsf mixers`.

use super::{numbers, shows, table, World};
use dsf::ops::Simd;
use std::collections::BTreeMap;
use std::fs;

const SMOKE: &str = "mqar --preset smoke --epochs 2";
const SMOKE_OF_HYBRIDS: &str = "copying --preset smoke --epochs 1 --train-examples 64 --test-examples 32 --layers 2";

#[test]
fn a_run_leaves_its_config_its_epochs_its_result_and_a_row() {
    let world = World::new();
    shows!("run-trained", trained world.dsf(SMOKE).ok());
    let run = world.only_run("results");
    for file in ["config.json", "env.json", "metrics.csv", "result.json"] {
        assert!(run.join(file).is_file(), "{file}");
    }
    assert!(!run.join("checkpoint.safetensors").exists(), "a finished run needs none");
    assert_eq!(numbers(&run).len(), 3);
    let summary = table(&world.path("results/mqar.csv"));
    assert_eq!(summary.len(), 1);
    assert_eq!(*summary[0]["run_id"], *run.file_name().unwrap());
}

#[test]
fn the_next_command_is_a_sweep_of_the_same_run_at_other_rates() {
    let world = World::new();
    let runs = [
        "mqar --preset smoke --epochs 1 --lr 4e-3".to_owned(),
        format!("{SMOKE_OF_HYBRIDS} --mixer ssd --hybrid softmax:every=2,offset=1 --block transformer++"),
    ];
    for line in runs {
        let said = world.dsf(&line).ok();
        let sweep = said.rsplit_once("or    dsf ").unwrap().1.trim().replace('\'', "");
        let plan = world.dsf(&format!("{sweep} --dry-run --json")).object();
        assert_eq!((&plan["runs"], &plan["done"]), (&3.into(), &1.into()), "{sweep}");
    }
}

#[test]
fn the_same_command_gives_the_same_bits_on_one_thread_and_on_two() {
    let world = World::new();
    for (out, threads) in [("a", 1), ("b", 1), ("c", 2)] {
        world.dsf(&format!("{SMOKE} --out {out} --threads {threads}")).ok();
    }
    let a = world.only_run("a");
    assert_eq!(numbers(&a), numbers(&world.only_run("b")));
    assert_eq!(numbers(&a), numbers(&world.only_run("c")));
    world.dsf(&format!("{SMOKE} --out d --seed 9")).ok();
    assert_ne!(numbers(&a), numbers(&world.only_run("d")));
}

#[test]
fn an_instruction_set_is_forced_by_name_recorded_and_repeats_its_bits() {
    let world = World::new();
    for (simd, precision) in Simd::available().flat_map(|simd| [(simd, "f32"), (simd, "bf16")]) {
        // In f32 the units for bf16 are not used.
        let recorded = if precision == "f32" { simd.min(Simd::Avx512) } else { simd };
        let [a, b] = ["a", "b"].map(|again| format!("{simd}-{precision}-{again}"));
        for (out, threads) in [(&a, 1), (&b, 2)] {
            let line = format!("{SMOKE} --precision {precision} --out {out} --threads {threads}");
            world.dsf_with(simd.name(), &line).ok();
        }
        let run = world.only_run(&a);
        assert_eq!(numbers(&run), numbers(&world.only_run(&b)), "{simd} {precision}");
        let origin = fs::read(run.join("env.json")).unwrap();
        let origin: serde_json::Value = serde_json::from_slice(&origin).unwrap();
        assert_eq!(origin["simd"], recorded.name());
    }
    let fault = world.dsf_with("avx3", &format!("{SMOKE} --json")).fault();
    fault.of("DSF_SIMD").gives("avx3").names(&["baseline"]);
}

#[test]
fn a_finished_run_is_told_again_and_not_trained_again() {
    let world = World::new();
    let first = world.dsf(SMOKE).ok();
    let result = world.only_run("results").join("result.json");
    let before = fs::read(&result).unwrap();
    let second = world.dsf(SMOKE).ok();
    assert_eq!(first.lines().next(), second.lines().next());
    shows!("run-told-again", trained second);
    assert_eq!(fs::read(&result).unwrap(), before);
}

#[test]
fn every_mixer_trains_under_every_protocol() {
    let world = World::new();
    let listed = world.dsf("mixers --json").objects();
    let names = listed.iter().map(|event| event["mixer"].as_str().unwrap());
    let names: Vec<&str> = names.collect();
    assert_eq!(names.len(), dsf::mixers::MIXERS.len());
    let mixers = names.join(",");
    let line = format!(
        "sweep --preset smoke --epochs 1 --train-examples 64 --mixer {mixers} \
         --protocol paper,reference,matched -q"
    );
    world.dsf(&line).ok();
    assert_eq!(world.runs("results").len(), 3 * names.len());
}

#[test]
fn json_is_one_object_a_line_and_ends_with_the_result() {
    let world = World::new();
    let said = world.dsf(&format!("{SMOKE} --json"));
    assert_eq!(said.err, "");
    let events: Vec<serde_json::Value> = said.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let names: Vec<&str> = events.iter().map(|e| e["event"].as_str().unwrap()).collect();
    assert_eq!((names[0], *names.last().unwrap()), ("start", "done"));
    assert_eq!(names.iter().filter(|n| **n == "epoch").count(), 2);
    assert_eq!(events.last().unwrap()["result"]["status"], "done");
}

#[test]
fn quiet_says_one_sentence_and_off_a_terminal_epochs_are_plain_lines() {
    let world = World::new();
    let quiet = world.dsf(&format!("{SMOKE} --quiet --out a"));
    assert_eq!((quiet.err.as_str(), quiet.out.lines().count()), ("", 1));
    let plain = world.dsf(&format!("{SMOKE} --out b"));
    let epochs: Vec<&str> = plain.err.lines().filter(|l| l.starts_with("epoch")).collect();
    assert_eq!(epochs.len(), 2, "{}", plain.err);
    shows!("run-epoch-by-epoch", trained & plain.err);
    assert!(!plain.err.contains('\u{1b}'), "no escapes off a terminal");
}

#[test]
fn a_diverging_run_is_a_recorded_outcome() {
    let world = World::new();
    let said = world.dsf("mqar --preset smoke --mixer normalized --lr 1e30 --epochs 30").ok();
    shows!("run-diverged", trained said);
    let summary = table(&world.path("results/mqar.csv"));
    assert_eq!(summary[0]["outcome"], "diverged");
}

#[test]
fn numpy_data_trains_other_numbers_than_native_data() {
    let world = World::new();
    world.dsf(&format!("{SMOKE} --out a")).ok();
    world.dsf(&format!("{SMOKE} --out b --data numpy")).ok();
    assert_ne!(numbers(&world.only_run("a")), numbers(&world.only_run("b")));
}

#[test]
fn options_of_a_mixer_reach_it() {
    let world = World::new();
    for (out, init) in [("a", "zero"), ("b", "mamba")] {
        world.dsf(&format!("{SMOKE} --mixer s6 --option dt_init={init} --out {out}")).ok();
    }
    assert_ne!(numbers(&world.only_run("a")), numbers(&world.only_run("b")));
}

#[test]
fn completions_name_the_subcommands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = World::new().dsf(&format!("completions {shell}")).ok();
        let named = ["mqar", "sweep"].map(|command| script.contains(command));
        assert_eq!(named, [true; 2], "{shell}");
    }
}

#[test]
fn a_test_of_another_length_is_said_in_every_place() {
    let world = World::new();
    let line = "selective-copying --preset smoke --test-seq-len 24";
    let said = world.dsf(line);
    shows!("run-tested-longer-talk", trained said.err);
    shows!("run-tested-longer", trained said.ok());
    let summary = table(&world.path("results/selective-copying.csv"));
    let column = |name: &str| summary[0][name].clone();
    assert_eq!(["seq_len", "test_seq_len", "copy_tokens"].map(column), ["16", "24", "3"]);
    // Keys and values of softmax attention, for every token of a test.
    let kept = ["layers", "n", "d"].map(|name| column(name).parse::<usize>().unwrap());
    let [layers, n, d] = kept;
    assert_eq!(column("state_size"), (24 * layers * (n + d)).to_string());
    // Without the embeddings nothing is at random, and nothing said of it.
    let quiet = world.dsf(&format!("{line} --positions false --out b"));
    let notes = quiet.err.lines().filter(|line| line.starts_with("note:"));
    assert_eq!(notes.count(), 0, "{}", quiet.err);
    quiet.ok();
    // The same length is the same run.
    let same = "--preset smoke --test-seq-len 16 --out c";
    world.dsf(&format!("selective-copying {same}")).ok();
    world.dsf("selective-copying --preset smoke --out d").ok();
    let [c, d] = ["c", "d"].map(|out| world.only_run(out).file_name().unwrap().to_owned());
    assert_eq!(c, d);
}

#[test]
fn every_mixer_is_tested_at_shorter_and_longer_sequences_than_it_was_trained_at() {
    let world = World::new();
    let line = "sweep --task selective-copying --preset smoke --mixer all --train-examples 32 --test-examples 16 \
                --test-seq-len 7,70 --positions false -q";
    world.dsf(line).ok();
    let runs = world.runs("results").len();
    assert_eq!(runs, 2 * dsf::mixers::MIXERS.len());
}

#[test]
fn variants_of_recall_are_runs_of_their_own_and_the_released_generator_has_none() {
    let world = World::new();
    let variants = "--preset smoke --seq-len 40 --vocab-size 60 --key-tokens 2 --overwrites 1 --passes 2";
    let said = world.dsf(&format!("mqar {variants}"));
    shows!("run-of-a-variant", trained said.ok());
    let id = world.only_run("results").file_name().unwrap().to_string_lossy().into_owned();
    let shown = world.dsf(&format!("show {id} --json")).object();
    assert_eq!(shown["config"]["task"]["key_tokens"], 2);
    let command = shown["command"].as_str().unwrap();
    let words: Vec<&str> = command.split_whitespace().collect();
    assert!(words.windows(2).any(|pair| pair == ["--key-tokens", "2"]));
    let refused = world.refuses(&format!("mqar {variants} --data numpy"), "--key-tokens");
    refused.gives("2").names(&["--data native"]);
    for (task, flag) in [("recall", "--passes 2"), ("lra", "--positions false")] {
        let name = flag.split(' ').next().unwrap();
        let refused = world.refuses(&format!("sweep --task {task} {flag}"), name);
        refused.names(&[task]);
    }
}

/// Accuracies by pair and by distance are kept, shown, and those of the whole test set taken apart.
#[test]
fn a_run_of_mqar_tells_its_answers_apart() {
    let world = World::new();
    world.dsf("mqar --preset smoke --epochs 2 --seed 3 -q").ok();
    world.dsf("mqar --preset smoke --epochs 2 --seed 4 -q").ok();
    for run in world.runs("results") {
        let read = |file: &str| {
            let mut table = csv::Reader::from_path(run.join(file)).unwrap();
            let rows = table.deserialize::<BTreeMap<String, String>>();
            rows.map(Result::unwrap).collect::<Vec<_>>()
        };
        let (slices, epochs) = (read("slices.csv"), read("metrics.csv"));
        let number = |row: &BTreeMap<String, String>, name: &str| row[name].parse::<f64>().unwrap();
        for epoch in &epochs {
            for by in ["pair", "distance"] {
                let of = slices.iter();
                let of = of.filter(|row| row["epoch"] == epoch["epoch"] && row["by"] == by);
                let right: f64 = of.clone().map(|row| number(row, "answers") * number(row, "accuracy")).sum();
                let answers: f64 = of.map(|row| number(row, "answers")).sum();
                assert_eq!(answers, 200.0);
                assert!((right / answers - number(epoch, "accuracy")).abs() < 1e-6);
            }
        }
    }
    shows!("pairs", trained world.dsf("report --by pair").ok());
    let distances = world.dsf("report --by distance --format csv").ok();
    fs::write(world.path("distances.csv"), distances).unwrap();
    let distances = table(&world.path("distances.csv")).into_iter();
    let mut distances = distances.filter(|row| row["by"] == "distance");
    let near = distances.find(|row| (&*row["from"], &*row["to"]) == ("2", "3")).unwrap();
    assert!((0.0..=1.0).contains(&near["without_skill"].parse::<f64>().unwrap()), "{near:?}");
    let shown = world.dsf(&format!("show {}", world.runs("results")[0].display())).ok();
    assert!(shown.contains("accuracy without recall: ") && shown.matches("without recall").count() > 4, "{shown}");
    let run = world.runs("results").remove(0);
    fs::write(run.join("slices.csv"), "epoch,by,from,to,answers,accuracy\n").unwrap();
    let changed = world.dsf("report --by pair");
    assert!(changed.err.contains("slices.csv"), "{}", changed.err);
    let summary = world.fails("report results/mqar.csv --by pair", "refused");
    summary.at("results/mqar.csv", None).names(&["`runs`"]);
}
