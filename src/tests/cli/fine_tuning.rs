//! Runs that start from trained weights: `dsf wikitext --from` and `dsf sweep --task wikitext --from`.

use super::pretrained::{golden_model, ALL};
use super::recovery::{signal, start, wait_for_epochs};
use super::{numbers, World};
use candle_core::{safetensors, DType, Device};
use serde_json::{json, Map, Value};
use std::fs;
use std::path::Path;

/// Words of the tokenizer, of which each text repeats the first few in one order.
const WORDS: usize = 50;

/// Text of its own, in windows of 16.
const TEXT: &str = "--corpus text --data-dir mine --seq-len 16 --device cpu";

/// Writes `name`, a folder of the tiny model `model` with a tokenizer of words.
fn pretrained(world: &World, model: &str, name: &str) {
    fs::create_dir_all(world.path(name)).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(golden_model(model).join(file), world.path(name).join(file)).unwrap();
    }
    let mut vocabulary: Map<String, Value> = (0..WORDS).map(|i| (format!("w{i}"), json!(i))).collect();
    vocabulary.insert("?".to_owned(), json!(WORDS));
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "?"},
    });
    fs::write(world.path(name).join("tokenizer.json"), file.to_string()).unwrap();
}

/// World with a text in the folder `mine`, and the tiny model `model` in a folder of that name.
fn world(model: &str) -> World {
    let world = World::new();
    fs::create_dir_all(world.path("mine")).unwrap();
    for (file, lines) in [("train.txt", 80), ("valid.txt", 20), ("test.txt", 20)] {
        let line = |number: usize| (0..12).map(|i| format!("w{}", (5 * i + number % 3) % WORDS)).collect::<Vec<_>>();
        let lines: Vec<String> = (0..lines).map(|number| line(number).join(" ")).collect();
        fs::write(world.path("mine").join(file), lines.join("\n")).unwrap();
    }
    pretrained(&world, model, model);
    world
}

/// Test perplexity of `checkpoint` by `dsf wikitext eval`, and its perplexity per word.
fn score(world: &World, checkpoint: impl AsRef<Path>) -> [f64; 2] {
    let checkpoint = checkpoint.as_ref().display();
    let event = world.dsf(&format!("wikitext eval --checkpoint {checkpoint} {TEXT} --split test --json")).object();
    ["token_ppl", "word_ppl"].map(|key| event[key].as_f64().unwrap())
}

/// Metrics of the run that `line` trains.
fn metrics(world: &World, line: &str) -> Value {
    let said = world.dsf(&format!("{line} --json"));
    assert_eq!(said.code, 0, "{line}: {}", said.err);
    let event = said.object();
    assert_eq!(event["event"], "done", "{event}");
    event["result"].clone()
}

/// Id of the run that `line` would train.
fn id(world: &World, line: &str) -> String {
    world.dsf(&format!("{line} --explain --json")).object()["run"].as_str().unwrap().to_owned()
}

fn assert_near(found: &Value, wanted: f64, what: &str) {
    let found = found.as_f64().unwrap_or_else(|| panic!("{what}: {found}"));
    assert!((found / wanted - 1.0).abs() < 1e-6, "{what}: {found} for {wanted}");
}

#[test]
fn every_architecture_starts_at_the_perplexity_of_its_weights_and_can_be_trained() {
    for model in ALL {
        let world = world(model);
        let [token_ppl, word_ppl] = score(&world, model);
        let line = format!("wikitext --from {model} {TEXT} --epochs 1");
        let still = metrics(&world, &format!("{line} --lr 1e-30"));
        assert_near(&still["test_ppl"], token_ppl, model);
        assert_near(&still["test_word_ppl"], word_ppl, model);
        let trained = metrics(&world, &format!("{line} --lr 1e-2 --batch-size 2"));
        let ppl = trained["test_ppl"].as_f64().unwrap();
        assert!(ppl < 0.9 * token_ppl, "{model}: {ppl} after {token_ppl}");
    }
}

#[test]
fn a_trained_model_is_written_back_in_the_layout_that_it_came_from() {
    for model in ["llama", "mamba", "gpt2"] {
        let world = world(model);
        let line = format!("wikitext --from {model} {TEXT} --lr 1e-2 --epochs 2");
        world.dsf(&line).ok();
        let run = world.only_run("results");
        world.dsf(&format!("wikitext export --checkpoint {} --to tuned", run.display())).ok();
        assert_eq!(score(&world, "tuned"), score(&world, &run), "{model}");
        let read = |folder: &str, file: &str| -> Value {
            serde_json::from_str(&fs::read_to_string(world.path(folder).join(file)).unwrap()).unwrap()
        };
        assert_eq!(read("tuned", "tokenizer.json"), read(model, "tokenizer.json"));
        let (before, after) = (read(model, "config.json"), read("tuned", "config.json"));
        let keys = [
            "model_type",
            "architectures",
            "hidden_size",
            "vocab_size",
            "max_position_embeddings",
            "num_key_value_heads",
            "n_positions",
            "state_size",
            "time_step_rank",
            "tie_word_embeddings",
        ];
        for key in keys.iter().filter(|key| !before[**key].is_null()) {
            assert_eq!(after[*key], before[*key], "{model}, {key}");
        }
        world.dsf(&format!("inspect {} --verify --data-dir mine --seq-len 8", run.display())).ok();
        let written = format!("wikitext generate --checkpoint {} --prompt w0 --greedy --tokens 4", run.display());
        world.dsf(&written).ok();
        // A fine-tuned run is a start for another.
        let again =
            format!("wikitext --from {} {TEXT} --epochs 1 --lr 1e-30", run.file_name().unwrap().to_str().unwrap());
        assert_near(&metrics(&world, &again)["test_ppl"], score(&world, &run)[0], model);
    }
}

#[test]
fn the_content_of_the_weights_is_a_part_of_the_id_and_their_name_is_not() {
    let world = world("mamba");
    pretrained(&world, "mamba", "copy");
    let line = |from: &str| format!("wikitext --from {from} {TEXT}");
    let first = id(&world, &line("mamba"));
    assert_eq!(id(&world, &line("copy")), first);
    assert_eq!(id(&world, &line("./copy/model.safetensors")), first);
    let file = world.path("copy/model.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    // The lowest byte of the last weight.
    let at = bytes.len() - 4;
    bytes[at] ^= 1;
    fs::write(&file, bytes).unwrap();
    assert_ne!(id(&world, &line("copy")), first);
    assert_ne!(id(&world, &format!("{} --lr 1e-3", line("mamba"))), first);
}

#[test]
fn a_run_goes_on_from_weights_that_were_moved() {
    let world = world("rwkv7");
    world.dsf(&format!("wikitext --from rwkv7 {TEXT} --epochs 1")).ok();
    let run = world.only_run("results");
    fs::rename(world.path("rwkv7"), world.path("moved folder")).unwrap();
    let moved = |epochs: &str| {
        let words = ["wikitext", "--from", "moved folder", "--epochs", epochs];
        world.call(&words.into_iter().chain(TEXT.split_whitespace()).collect::<Vec<_>>(), b"").ok()
    };
    moved("1");
    assert_eq!(world.only_run("results"), run);
    moved("2");
    let runs = fs::read_dir(world.path("results/runs")).unwrap();
    let commands = runs.map(|run| {
        let id = run.unwrap().file_name().into_string().unwrap();
        world.dsf(&format!("show {id} --json")).object()["command"].as_str().unwrap().to_owned()
    });
    assert!(commands.into_iter().any(|command| command.contains("--from 'moved folder'")));
}

#[test]
fn settings_of_the_model_come_from_the_weights_and_are_refused_if_they_differ() {
    let world = world("llama");
    let line = format!("wikitext --from llama {TEXT}");
    let explained = world.dsf(&format!("{line} --explain --dropout 0.1 --json")).object();
    let value = |name: &str| {
        let rows = explained["settings"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}"));
        (row["value"].clone(), row["origin"].as_str().unwrap().to_owned())
    };
    assert_eq!(value("d"), (json!(24), "weights of llama".to_owned()));
    assert_eq!(value("option kv_heads"), (json!("2"), "weights of llama".to_owned()));
    assert_eq!(value("from"), (json!("llama"), "--from".to_owned()));
    assert_eq!(value("attn-dropout").0, json!(0.1));
    assert_eq!(value("n-positions").0, json!(40));
    let initial = explained["initial_values"].as_array().unwrap();
    assert!(!initial.is_empty() && initial.iter().all(|row| row["origin"] == "weights of llama"), "{initial:?}");
    for (flag, value, found) in [
        ("--d", "64", "24"),
        ("--mixer", "mamba", "softmax"),
        ("--layers", "3", "2"),
        ("--heads", "2", "6"),
        ("--block", "norm=layer", "norm=rms"),
        ("--rotary", "none", "pre"),
        ("--hybrid", "gru:every=2", "none"),
        ("--option", "kv_heads=1", "kv_heads=2"),
        ("--vocab-size", "64", "61"),
        ("--short-conv", "true", "false"),
    ] {
        world.refuses(&format!("{line} {flag} {value}"), flag).names(&["llama", found]);
    }
    let same = format!("{line} --d 24 --mixer softmax --heads 6 --option kv_heads=2 --short-conv false");
    assert_eq!(id(&world, &same), id(&world, &line));
    world.refuses("bench step --task wikitext --from llama", "--from");
    world.refuses("mqar --preset smoke --from llama", "--from");
}

#[test]
fn windows_are_no_longer_than_the_positions_of_the_weights() {
    let world = world("gpt2");
    let line = "wikitext --from gpt2 --corpus text --data-dir mine";
    let explained = world.dsf(&format!("{line} --explain --json")).object();
    let rows = explained["settings"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["name"] == "seq-len" && row["value"] == 40), "{explained}");
    world.refuses(&format!("{line} --seq-len 41"), "--seq-len").gives("41").names(&["40"]);
}

#[test]
fn weights_of_half_the_width_are_read_to_f32() {
    for dtype in [DType::F16, DType::BF16] {
        let world = world("llama");
        let file = world.path("llama/model.safetensors");
        let tensors = safetensors::load(&file, &Device::Cpu).unwrap();
        let narrow = tensors.into_iter().map(|(name, tensor)| (name, tensor.to_dtype(dtype).unwrap()));
        safetensors::save(&narrow.collect(), &file).unwrap();
        let [token_ppl, _] = score(&world, "llama");
        let line = format!("wikitext --from llama {TEXT} --epochs 1 --lr 1e-30");
        assert_near(&metrics(&world, &line)["test_ppl"], token_ppl, dtype.as_str());
    }
}

#[test]
fn a_run_stopped_and_killed_in_turn_ends_as_an_unbroken_one() {
    let world = world("llama");
    let line = format!("wikitext --from llama {TEXT} --epochs 12 --lr 1e-3 --batch-size 1");
    world.dsf(&format!("{line} --out whole -q")).ok();
    for (epochs, name) in [(1, "-KILL"), (2, "-TERM"), (4, "-KILL"), (5, "-TERM")] {
        let mut child = start(&world, &format!("{line} --out cut"));
        wait_for_epochs(&world, "cut", epochs);
        signal(&child, name);
        assert!(!child.wait().unwrap().success(), "the run was over before the signal");
    }
    // A checkpoint has all weights.
    fs::remove_dir_all(world.path("llama")).unwrap();
    let cut = world.only_run("cut");
    let said = world.dsf(&format!("wikitext --config {} --data-dir mine --out cut", cut.display()));
    assert!(said.err.contains("continuing"), "{}", said.err);
    said.ok();
    let whole = world.only_run("whole");
    assert_eq!(cut.file_name(), whole.file_name());
    assert_eq!(numbers(&cut), numbers(&whole));
    for file in ["losses.csv", "best.safetensors", "weights.safetensors"] {
        let read = |run: &Path| fs::read(run.join(file)).unwrap();
        assert!(read(&cut) == read(&whole), "{file}");
    }
}

#[test]
fn a_sweep_tunes_models_at_several_rates_and_its_runs_tell_their_weights() {
    let world = world("mamba");
    pretrained(&world, "llama", "llama");
    let line = format!("sweep --task wikitext --from mamba,llama {TEXT} --epochs 1 --lr 1e-3,1e-2");
    let plan = world.dsf(&format!("{line} --dry-run --json")).object();
    assert_eq!(plan["runs"], 4, "{plan}");
    let end = world.dsf(&format!("{line} --json")).object();
    assert_eq!((&end["finished"], &end["failed"]), (&json!(4), &json!(0)), "{end}");
    let rows = super::table(&world.path("results/wikitext.csv"));
    let column = |name: &str| rows.iter().map(|row| row[name].as_str()).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(column("from"), ["llama", "mamba"].into());
    assert_eq!((column("from_digest").len(), column("lr").len()), (2, 2));
    let run = world.runs("results").remove(0);
    let shown = world.dsf(&format!("show {} --json", run.display())).object();
    let command = shown["command"].as_str().unwrap();
    let own = run.file_name().unwrap().to_str().unwrap();
    assert!(command.starts_with("dsf wikitext --from "), "{command}");
    assert_eq!(id(&world, &format!("{} --data-dir mine", command.strip_prefix("dsf ").unwrap())), own);
    world.refuses(&format!("{line} --mixer linear"), "--mixer");
    let experiment = "task = \"wikitext\"\n[[grid]]\nfrom = [\"mamba\", \"llama\"]\ncorpus = \"text\"\nseq-len = 16\n\
                      epochs = 1\nlr = [1e-3, 1e-2]\n";
    fs::write(world.path("tuning.toml"), experiment).unwrap();
    let again = world.dsf("sweep tuning.toml --data-dir mine --device cpu --json").object();
    assert_eq!((&again["runs"], &again["done_before"]), (&json!(4), &json!(4)), "{again}");
    assert_eq!(world.dsf("report --table 1 --experiment tuning.toml --json").object()["coverage"]["done"], 4);
}

#[test]
fn weights_that_cannot_be_trained_from_are_refused_in_one_sentence() {
    let world = world("llama");
    let tune = |from: &str| format!("wikitext --from {from} {TEXT}");
    world.refuses(&tune("nowhere"), "--from").gives("nowhere");
    let offline = world.dsf_in(("HF_HUB_OFFLINE", "1"), &format!("{} --json", tune("someone/tiny"))).fault();
    assert_eq!(offline.kind, "missing");
    offline.names(&["someone/tiny"]);
    world.dsf("mqar --preset smoke -q").ok();
    let other = world.only_run("results");
    world.refuses(&tune("0123456789ab"), "--from").names(&["--out"]);
    world.fails(&tune(&other.display().to_string()), "data").names(&["dsf mqar"]);
    // Without a file of its own, the tokenizer is that of GPT-NeoX.
    fs::rename(world.path("llama/tokenizer.json"), world.path("tokenizer.json")).unwrap();
    world.refuses(&tune("llama"), "--tokenizer").gives("gpt-neox").names(&["50277", "61"]);
    let line = format!("{} --tokenizer tokenizer.json --epochs 1", tune("llama"));
    let run = id(&world, &line);
    world.dsf(&line).ok();
    // The same name, and other weights.
    let folder = world.path("results/runs").join(run);
    fs::remove_file(folder.join("result.json")).unwrap();
    pretrained(&world, "gpt_neox", "llama");
    let again = format!("wikitext --config {} --data-dir mine --out other", folder.display());
    world.fails(&again, "missing").at("llama", None);
    fs::remove_dir_all(world.path("llama")).unwrap();
    world.fails(&again, "missing").at("llama", None);
}
