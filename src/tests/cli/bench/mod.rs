//! `dsf bench`.

mod device;

use super::{shows, World};
use safetensors::SafeTensors;
use serde_json::Value;
use std::path::Path;

const STEP: &str = "bench step --preset smoke --steps 2 --threads 1";

/// The one JSON object that `line` prints.
fn report(line: &str) -> Value {
    let out = World::new().dsf(&format!("{line} --json")).ok();
    assert_eq!(out.lines().count(), 1, "{out}");
    serde_json::from_str(&out).unwrap()
}

/// The names of the rows of a table.
fn rows(table: &str) -> String {
    let names = table.lines().map(|line| line.split("  ").next().unwrap());
    names.collect::<Vec<_>>().join("\n")
}

/// The names of the columns of a table, which are in its line `at`.
fn columns(table: &str, at: usize) -> String {
    let line = table.lines().nth(at).unwrap();
    let names = line.split("  ").map(str::trim);
    let names = names.filter(|name| !name.is_empty());
    names.collect::<Vec<_>>().join("\n")
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
        assert_eq!((r["kind"].as_str(), r["mixer"].as_str()), (Some("step"), Some(mixer)));
        assert_eq!((r["steps"].as_u64(), r["threads"].as_u64()), (Some(2), Some(1)));
        assert_eq!(r["clock"], "cpu");
        let cpu = positive(&r, "seconds");
        assert!(positive(&r, "seconds_min") <= cpu && cpu <= positive(&r, "seconds_max"));
        assert!(positive(&r, "wall_seconds") >= positive(&r, "wall_seconds_min"));
        let tokens = 32.0 * 16.0 / cpu;
        assert!((positive(&r, "tokens_per_second") / tokens - 1.0).abs() < 1e-9);
        assert!(positive(&r, "peak_memory_bytes") > 1e6);
        assert_eq!(r["route"], "fused");
        for text in ["processor", "instruction_set", "commit"] {
            assert!(!r[text].as_str().unwrap().is_empty(), "{text}");
        }
        let chance = 32f64.ln();
        assert!((positive(&r, "first_loss") - chance).abs() < 0.1);
        assert!((positive(&r, "loss") - chance).abs() < 0.1);
        let states = &r["elements_per_second"];
        assert_eq!(states.is_null(), mixer == "softmax", "its state grows");
    }
}

/// The shapes of the tensors in an exported file that `prefix` begins, and the run in its header.
fn exported(path: &Path, prefix: &str) -> (Vec<(String, Vec<usize>)>, Value) {
    let bytes = std::fs::read(path).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let named = tensors.iter().filter(|(name, _)| name.starts_with(prefix));
    let shapes = named.map(|(name, x)| (name.to_owned(), x.shape().to_vec()));
    let mut shapes: Vec<_> = shapes.collect();
    shapes.sort();
    let config = &metadata.metadata().as_ref().unwrap()["config"];
    (shapes, serde_json::from_str(config).unwrap())
}

/// No file of the Arena or of WikiText is there.
#[test]
fn steps_of_classifiers_and_of_language_models_need_no_data() {
    let world = World::new();
    for (flags, classes, data) in [
        (
            "lra --dataset image --preset smoke --mixer mamba",
            10,
            [("labels", vec![4, 2]), ("lengths", vec![4, 2]), ("tokens", vec![4, 2, 1024])],
        ),
        (
            "lra --dataset retrieval --preset smoke --mixer softmax --protocol matched --seq-len 96",
            2,
            [("labels", vec![4, 2]), ("lengths", vec![4, 4]), ("tokens", vec![4, 4, 96])],
        ),
        (
            "wikitext --preset smoke --mixer linear",
            259,
            [("labels", vec![4, 2, 32]), ("tokens", vec![4, 2, 32]), ("", vec![])],
        ),
    ] {
        let line = format!("bench step --task {flags} --batch-size 2 --steps 2 --threads 1 --export step.st --json");
        let r: Value = serde_json::from_str(&world.dsf(&line).ok()).unwrap();
        let chance = f64::from(classes).ln();
        let first = positive(&r, "first_loss");
        assert!((first - chance).abs() < 0.5 * chance, "{flags}: {first} by chance {chance}");
        for key in ["seconds", "floor_seconds", "tokens_per_second"] {
            positive(&r, key);
        }
        let wanted = data.into_iter().filter(|(name, _)| !name.is_empty());
        let wanted = wanted.map(|(name, shape)| (format!("data.{name}"), shape));
        let (found, run) = exported(&world.path("step.st"), "data.");
        assert_eq!(found, wanted.collect::<Vec<_>>(), "{flags}");
        assert_eq!(run["model"]["mixer"], r["mixer"]);
        let weights = exported(&world.path("step.st"), "layers.0.mixer.").0;
        assert!(weights.len() > 3, "{weights:?}");
    }
}

#[test]
fn the_first_loss_is_that_of_the_run_itself() {
    let world = World::new();
    let line = "--preset smoke --mixer ssd --batch-size 200 --threads 1 --json";
    let run = world.dsf(&format!("mqar {line}")).ok();
    let mut events = run.lines().map(|line| serde_json::from_str(line).unwrap());
    let epoch: Value = events.find(|event: &Value| event["event"] == "epoch").unwrap();
    let step = report(&format!("bench step {line} --steps 1").replace(" --json", ""));
    assert_eq!(epoch["loss"], step["first_loss"], "one step is an epoch there");
}

#[test]
fn every_op_that_is_listed_can_be_timed() {
    let help = World::new().dsf("bench op --help").ok();
    let listed = help.split("Ops:\n").nth(1).unwrap();
    let names = listed.lines().filter(|line| !line.starts_with(' '));
    let names: Vec<&str> = names.filter_map(|line| line.split(' ').next()).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        let r = report(&format!("bench op {name} --shape 2,16,8,4 --repeats 2 --threads 1"));
        assert_eq!((r["kind"].as_str(), r["op"].as_str()), (Some("op"), Some(name)));
        let elements = positive(&r, "elements");
        let rate = elements / positive(&r, "seconds");
        assert!((positive(&r, "elements_per_second") / rate - 1.0).abs() < 1e-9);
        let fraction = positive(&r, "floor_seconds") / positive(&r, "seconds");
        assert!((positive(&r, "fraction_of_floor") / fraction - 1.0).abs() < 1e-9);
        let reason = r["below"].as_str().unwrap();
        assert_eq!(fraction < 0.5, !reason.is_empty(), "{name}: {reason}");
        positive(&r["forward"], "seconds");
        positive(&r["forward"], "floor_seconds");
        assert!(r["checksum"].as_f64().unwrap() != 0.0);
        assert!(r["gradient_checksum"].is_f64());
    }
}

#[test]
fn an_op_gives_the_same_sums_on_one_thread_and_on_two() {
    let sums = |threads: usize| {
        let line = format!("bench op selective_scan --shape 3,33,20,8 --repeats 1 --threads {threads}");
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
    shows!("bench-step", rows(&World::new().dsf(STEP).ok()));
}

#[test]
fn what_cannot_be_timed_is_refused_in_a_sentence() {
    for (line, flag, names) in [
        ("step --steps 0", Some("--steps"), &["1 to 1000"][..]),
        ("step --precision f16", Some("--precision"), &["bf16"]),
        ("compare -q --peer true -- step --precision f16", None, &["--precision", "f16"]),
        ("step --mixer s4 --n 65536", None, &["--n", "GB"]),
        ("op ssd --shape 8,10000000,128,64", None, &["GB"]),
        ("step --mixer linnear", Some("--mixer"), &["`linear`"]),
        ("step --task wikitxt", Some("--task"), &["`wikitext`"]),
        ("step --task lra --kv-pairs 4", Some("--kv-pairs"), &["lra"]),
        ("step --batch-size 1000000 --seq-len 4096 --d 8192 --vocab-size 8192", None, &["--d", "GB"]),
        ("step --attn-dropout 1", Some("--attn-dropout"), &["[0, 1)"]),
        ("step --d 64,128", Some("--d"), &["--d 64,128"]),
        ("op selectve_scan", None, &["`selective_scan`"]),
        ("op ssd --shape 2,3,4", Some("--shape"), &["B,L,d,n", "ssd"]),
        ("op tanh --shape 2,3", Some("--shape"), &["B,L,d", "tanh"]),
        ("op tanh --shape 0,2,3", Some("--shape"), &["1 to"]),
        ("op tanh --shape 1000000,1000000,10", None, &["GB"]),
        ("op tanh --heads 2", Some("--heads"), &["tanh"]),
        ("op causal_attention --heads 3", Some("--heads"), &["128"]),
        ("all --only nothing", Some("--only"), &[]),
        ("all --rounds 0", Some("--rounds"), &["1 to 1000"]),
        ("lengths --seq-len 64,100", Some("--seq-len"), &["--tokens 32768"]),
        ("lengths --mixer linnear", Some("--mixer"), &["`linear`"]),
        ("op tanh --repeats 0", Some("--repeats"), &["1 to"]),
    ] {
        let fault = World::new().fails(&format!("bench {line}"), "refused");
        assert_eq!(fault.flag.as_deref(), flag, "{line}: {fault:?}");
        fault.names(names);
    }
}

/// A peer that prints `report`, whatever it is asked.
fn compare(world: &World, report: &str, more: &str) -> super::Said {
    std::fs::write(world.path("peer.sh"), format!("echo '{report}'\n")).unwrap();
    let line =
        format!("bench compare --peer sh|peer.sh --rounds 2 --threads 1 {more} -- step --preset smoke --steps 1");
    let words: Vec<String> = line.split(' ').map(|w| w.replace('|', " ")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).filter(|w| !w.is_empty()).collect();
    world.call(&words, b"")
}

#[test]
fn a_peer_is_timed_by_turns_once_its_losses_agree() {
    let world = World::new();
    let losses = report("bench step --preset smoke --steps 1 --threads 1 --dropout 0")["losses"].clone();
    let said = format!("{{\"cpu_s_per_step\": 1.5, \"losses\": {losses}, \"peak_bytes\": 5e9}}");
    let row: Value = serde_json::from_str(&compare(&world, &said, "--json").ok()).unwrap();
    assert_eq!((row["rounds"].as_u64(), row["distance"].as_f64()), (Some(2), Some(0.0)));
    let ratio = 1.5 / positive(&row, "seconds");
    assert!((positive(&row, "ratio") / ratio - 1.0).abs() < 1e-9);
    assert!(positive(&row, "ratio_min") <= positive(&row, "ratio_max"));
    shows!("bench-compare", columns(&compare(&world, &said, "--quiet").ok(), 0));
}

#[test]
fn a_peer_that_computes_something_else_fails_the_check() {
    let world = World::new();
    for losses in ["[3.4]", "[null]"] {
        let said = format!("{{\"cpu_s_per_step\": 1, \"losses\": {losses}}}");
        let said = compare(&world, &said, "--quiet");
        assert_eq!(said.code, 4, "{}{}", said.out, said.err);
        assert!(said.err.contains("results differ by"), "{}", said.err);
    }
    let own = compare(&world, "{\"cpu_s_per_step\": 1}", "--quiet --own-data --json");
    positive(&own.object(), "ratio");
}

#[test]
fn a_peer_that_cannot_be_used_is_named() {
    let world = World::new();
    for (report, name) in [("nothing", "JSON"), ("{}", "`losses`"), ("{\"losses\": [1]}", "`cpu_s_per_step`")] {
        let fault = compare(&world, report, "--json").fault();
        assert_eq!(fault.kind, "refused", "{report}: {fault:?}");
        fault.names(&[name]);
    }
    let twice = "bench compare --peer x -q -- op tanh --repeats 0";
    world.fails(twice, "refused").names(&["--repeats"]);
    let neither = "bench compare --peer x -q -- all";
    world.fails(neither, "refused").names(&["`all`"]);
    let missing = "bench compare --peer ./nobody -q -- op tanh --shape 1,2,3";
    world.fails(missing, "io").at("./nobody", None);
}

#[test]
fn what_is_exported_holds_the_weights_and_the_batches() {
    let world = World::new();
    world.dsf(&format!("{STEP} --mixer s6 --export step.safetensors")).ok();
    let read = |name: &str| candle_core::safetensors::load(world.path(name), &candle_core::Device::Cpu);
    let step = read("step.safetensors").unwrap();
    assert_eq!(step["data.tokens"].dims(), [4, 32, 16]);
    assert_eq!(step["data.labels"].dims(), [4, 32, 16]);
    assert_eq!(step["embed.tok"].dims(), [32, 16]);
    assert!(step.contains_key("layers.1.mixer.a_log"));
    world.dsf("bench op tanh --shape 2,3,4 --export op.safetensors").ok();
    assert_eq!(read("op.safetensors").unwrap()["input.0"].dims(), [2, 3, 4]);
    let nowhere = "bench op tanh --shape 2,3,4 --export no/where.safetensors";
    world.fails(nowhere, "io").at("no/where.safetensors", None);
}

#[test]
fn tables_of_many_cases_are_printed_and_written() {
    let world = World::new();
    let all = world.dsf("bench all --only elu1 --rounds 1 --threads 1 --csv all.csv -q").ok();
    shows!("bench-all", columns(&all, 0));
    let rows = super::table(&world.path("all.csv"));
    assert_eq!((rows.len(), &*rows[0]["kind"]), (1, "op"));
    let lengths = "bench lengths --mixer ssd,qlstm --seq-len 16,64 --tokens 128 --steps 1 --threads 1 -q";
    shows!("bench-lengths", columns(&world.dsf(lengths).ok(), 2));
    let rows = world.dsf(&format!("{lengths} --json")).ok();
    assert_eq!(rows.lines().count(), 4, "{rows}");
}

#[test]
fn a_peer_that_cannot_be_called_costs_its_own_row_alone() {
    let world = World::new();
    let only = "32,64,64,64 f32 beside scan.py";
    let words = "bench all --rounds 1 --threads 1 --csv all.csv --python ./nobody --only";
    let words: Vec<&str> = words.split(' ').chain([only]).collect();
    let said = world.call(&words, b"");
    assert_eq!(said.code, 4, "{}", said.err);
    let rows = std::fs::read_to_string(world.path("all.csv")).unwrap();
    let rows = rows.lines().count() - 1;
    let failed = said.err.lines().filter(|line| line.starts_with("error: "));
    let failed: Vec<&str> = failed.filter(|line| line.contains("./nobody")).collect();
    assert!(rows > 1 && failed.len() == rows, "{}", said.err);
}

/// Rows of every mixer, context and batch, or two panels for each batch.
#[test]
fn decoding_is_told_by_context_and_drawn() {
    let world = World::new();
    let line = "bench decode --mixer softmax,gla --context 8,16 --batch 1,2 --d 16 --layers 1 --heads 2 --threads 1";
    let rows = world.dsf(&format!("{line} --json")).ok();
    let rows: Vec<Value> = rows.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    assert_eq!(rows.len(), 8);
    let bytes = |mixer: &str, context: u64, batch: u64| {
        let row = rows.iter().find(|row| {
            (row["mixer"].as_str(), row["context"].as_u64(), row["batch_size"].as_u64())
                == (Some(mixer), Some(context), Some(batch))
        });
        let row = row.unwrap();
        assert_eq!((row["kind"].as_str(), row["tokens"].as_f64()), (Some("decode"), Some(batch as f64)));
        positive(row, "tokens_per_second");
        row["state_bytes"].as_u64().unwrap()
    };
    assert_eq!(bytes("softmax", 16, 2), 4 * bytes("softmax", 8, 1));
    assert_eq!(bytes("gla", 16, 2), 2 * bytes("gla", 8, 1));
    let csv = world.dsf(&format!("{line} --format csv")).ok();
    assert!(csv.starts_with("mixer,batch,context,metric,value\nsoftmax,1,8,tokens_per_second,"), "{csv}");
    assert!(csv.contains(&format!("\ngla,2,16,state_bytes,{:.1}\n", bytes("gla", 16, 2) as f64)), "{csv}");
    let events = world.dsf(&format!("{line} --json --to decode.svg --csv tables/decode.csv")).ok();
    let table = std::fs::read_to_string(world.path("tables/decode.csv")).unwrap();
    assert_eq!(table.lines().count(), 9);
    assert!(table.starts_with("kind,case,") && table.contains("\ndecode,\"gla 2,16,16,8\","), "{table}");
    assert!(events.lines().all(|line| line.starts_with('{')), "{events}");
    let drawn = std::fs::read_to_string(world.path("decode.svg")).unwrap();
    for word in ["bytes of state", "tokens a second", "2 sequences at once", "gla"] {
        assert!(drawn.contains(word), "{word}");
    }
    world.refuses("bench decode --context 0", "--context").gives("0");
    let every =
        "bench decode --mixer softmax,recurrent,lstm --context 8 --batch 1 --d 16 --layers 1 --heads 2 --threads 1 --format csv";
    let csv = world.dsf(every).ok();
    let times = |mixer: &str| csv.lines().filter(|line| line.starts_with(&format!("{mixer},"))).count();
    assert_eq!(
        ["softmax", "mamba", "sliding-window", "lstm", "alibi", "hyena", "dss"].map(times),
        [2, 2, 2, 2, 0, 0, 0]
    );
}
