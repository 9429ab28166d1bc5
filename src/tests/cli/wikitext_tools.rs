//! Commands on a trained language model, as a person types them.

use super::{outline, shows, Said, World};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// A small GPT-NeoX model that `transformers` saved.
fn saved() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/golden/wikitext/hf")
}

fn call(world: &World, line: &str) -> Said {
    let hf = saved().display().to_string();
    let words: Vec<String> = line.split_whitespace().map(|w| w.replace("HF", &hf)).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    world.call(&words, b"")
}

fn events(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// One smoke run, and its id.
fn trained(world: &World, more: &str) -> String {
    world.dsf(&format!("wikitext --preset smoke --device cpu {more}")).ok();
    let run = world.only_run("results");
    run.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn help_names_the_five_subcommands_and_each_has_an_example() {
    let world = World::new();
    let help = world.dsf("wikitext --help").ok();
    for name in ["eval", "generate", "needle", "import", "export"] {
        assert!(help.contains(&format!("\n  {name} ")), "{help}");
        let help = world.dsf(&format!("wikitext {name} --help")).ok();
        assert!(help.contains(&format!("dsf wikitext {name} --")), "{help}");
    }
}

#[test]
fn weights_that_are_not_there_are_named() {
    let world = World::new();
    for command in ["eval", "generate --prompt a", "export --to b"] {
        let line = format!("wikitext {command} --checkpoint nowhere");
        world.refuses(&line, "--checkpoint").gives("nowhere");
    }
    fs::create_dir(world.path("results")).unwrap();
    let none = world.refuses("wikitext eval --checkpoint 0123456789ab", "--checkpoint");
    none.gives("0123456789ab").names(&["results", "--out"]);
    fs::write(world.path("text"), "no weights").unwrap();
    let text = world.fails("wikitext eval --checkpoint text", "data");
    text.at("text", None);
    fs::create_dir(world.path("empty")).unwrap();
    let empty = world.fails("wikitext import --from empty --to a", "refused");
    empty.at("empty", None);
}

#[test]
fn flags_that_make_no_sense_are_refused_before_anything_is_computed() {
    let world = World::new();
    let refused = |line: &str, flag: &str| {
        let line = format!("wikitext {line} --checkpoint HF --json");
        let fault = call(&world, &line).fault();
        assert_eq!(fault.kind, "refused", "{line}: {fault:?}");
        fault.of(flag);
    };
    refused("generate", "--prompt");
    let empty = "wikitext generate --json --checkpoint nowhere --prompt";
    let empty: Vec<&str> = empty.split(' ').chain([""]).collect();
    assert_eq!(world.call(&empty, b"").fault().kind, "refused");
    refused("generate --prompt a --temperature 0", "--temperature");
    refused("generate --prompt a --top-p 2", "--top-p");
    refused("generate --prompt a --greedy --seed 3", "--greedy");
    refused("eval --corpus sample --tokenizer bytes --stride 13", "--stride");
    refused("eval --corpus sample --tokenizer bytes --stride 0", "--stride");
    refused("eval --corpus sample --tokenizer bytes --batch-size 0", "--batch-size");
    // The model that was imported without a tokenizer has 256 rows.
    refused("eval --corpus sample", "--tokenizer");
}

#[test]
fn a_model_of_transformers_is_imported_evaluated_and_exported_again() {
    let world = World::new();
    let said = call(&world, "wikitext import --from HF --to a.safetensors").ok();
    assert!(said.contains("a.safetensors: "), "{said}");
    let again = "wikitext import --from HF --to a.safetensors --json";
    let there = call(&world, again).fault();
    there.of("--to").gives("a.safetensors");
    let eval = |from: &str| {
        let line = format!("wikitext eval --checkpoint {from} --corpus sample --tokenizer bytes --json --quiet");
        let mut events = events(&call(&world, &line).ok());
        for event in &mut events {
            event.as_object_mut().unwrap().remove("path");
        }
        events
    };
    let wanted = eval("HF");
    assert_eq!(wanted.len(), 2);
    assert_eq!(eval("a.safetensors"), wanted);
    world.dsf("wikitext export --checkpoint a.safetensors --to b --quiet").ok();
    assert_eq!(eval("b"), wanted);
    world.dsf("wikitext import --from b --to c.safetensors").ok();
    let bytes = |name: &str| fs::read(world.path(name)).unwrap();
    assert_eq!(bytes("a.safetensors"), bytes("c.safetensors"));
    let again = "wikitext export --checkpoint a.safetensors --to b";
    world.refuses(again, "--to").gives("b/config.json");
}

#[test]
fn what_a_run_says_of_its_best_weights_is_what_evaluating_them_says() {
    let world = World::new();
    // Preset quick tests on all of the text.
    let sizes = "--d 16 --layers 1 --heads 2 --seq-len 32 --train-examples 48 --epochs 1";
    world.dsf(&format!("wikitext --preset quick --device cpu {sizes}")).ok();
    let run = world.only_run("results");
    let result = fs::read_to_string(run.join("result.json")).unwrap();
    let result: Value = serde_json::from_str(&result).unwrap();
    let line = format!("wikitext eval --checkpoint {} --json", run.display());
    for event in events(&world.dsf(&line).ok()) {
        let split = event["split"].as_str().unwrap();
        for (ours, theirs) in [
            ("token_ppl", format!("{split}_ppl")),
            ("word_ppl", format!("{split}_word_ppl")),
            ("bits_per_byte", format!("{split}_bits_per_byte")),
        ] {
            let [found, wanted] = [&event[ours], &result[&theirs]];
            let ratio = found.as_f64().unwrap().ln() / wanted.as_f64().unwrap().ln();
            assert!((ratio - 1.0).abs() < 1e-5, "{theirs}: {found}, {wanted}");
        }
    }
}

#[test]
fn every_token_of_a_run_is_scored_once_whatever_the_windows() {
    let world = World::new();
    let id = trained(&world, "--mixer linear");
    let said = world.dsf(&format!("wikitext eval --checkpoint {id}")).ok();
    for part in ["linear", &id, "sample", "bytes", "val", "test", "bits/byte"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let eval = |flags: &str| {
        let line = format!("wikitext eval --checkpoint results/runs/{id} --json {flags}");
        events(&world.dsf(&line).ok())
    };
    let plain = eval("--split train,val,test");
    let names: Vec<&str> = plain.iter().map(|e| e["split"].as_str().unwrap()).collect();
    assert_eq!(names, ["train", "val", "test"]);
    for event in &plain {
        let number = |key: &str| event[key].as_f64().unwrap();
        let (tokens, bytes) = (number("all_tokens"), number("bytes"));
        assert_eq!(tokens, bytes - 1.0, "bytes are tokens, and the first is not predicted");
        let bits = number("all_nll") / 2f64.ln() / bytes;
        assert!((number("bits_per_byte") - bits).abs() < 1e-9, "{event}");
        let words = number("words") + number("lines");
        let word = (number("all_nll") / words).exp();
        assert!((number("word_ppl") / word - 1.0).abs() < 1e-9, "{event}");
    }
    // Windows of other lengths and distances score the same tokens once.
    for flags in ["--stride 8", "--seq-len 48 --stride 5", "--batch-size 3"] {
        let event = &eval(&format!("--split test {flags}"))[0];
        assert_eq!(event["all_tokens"], plain[2]["all_tokens"], "{flags}");
    }
    let batched = &eval("--split test --batch-size 3")[0];
    let apart = batched["nll"].as_f64().unwrap() / plain[2]["nll"].as_f64().unwrap() - 1.0;
    assert!(apart.abs() < 1e-6, "{apart}");
}

#[test]
fn a_run_writes_text_and_says_what_it_remembers() {
    let world = World::new();
    let id = trained(&world, "--mixer linear");
    let write = |flags: &str| {
        let line = format!("wikitext generate --checkpoint {id} --prompt The_state --tokens 20 {flags}");
        let said = world.dsf(&line);
        (said.err.clone(), said.ok())
    };
    let (talk, text) = write("");
    assert!(text.starts_with("The_state") && text.ends_with('\n'), "{text}");
    assert!(talk.contains("constant") && talk.contains("a second"), "{talk}");
    assert_eq!(write("").1, text, "the seed decides");
    assert_ne!(write("--seed 2").1, text);
    let greedy = write("--greedy").1;
    assert_eq!(write("--top-k 1 --temperature 2").1, greedy);
    let event = &events(&write("--greedy --json --quiet").1)[0];
    let all = format!("The_state{}\n", event["text"].as_str().unwrap());
    assert_eq!(all, greedy);
    assert!(event["state_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn a_prompt_is_read_from_stdin_and_a_cache_is_called_one() {
    let world = World::new();
    let id = trained(&world, "--mixer softmax");
    let line = ["wikitext", "generate", "--checkpoint", &id, "--prompt", "-", "--tokens", "3"];
    let said = world.call(&line, "Größe = ".as_bytes());
    assert!(said.err.contains("cache: ") && said.err.contains("tokens"), "{}", said.err);
    assert!(said.ok().starts_with("Größe = "));
    let line = [&line[..], &["--json"]].concat();
    world.call(&line, b"").fault().of("--prompt");
}

#[test]
fn what_gpt_neox_has_not_is_not_exported() {
    let world = World::new();
    let id = trained(&world, "--mixer normalized");
    let line = format!("wikitext export --checkpoint {id} --to a");
    world.fails(&line, "refused").names(&["normalized"]);
    assert!(!world.path("a").exists());
}

/// A state that was kept goes on as the text did, and belongs to the weights that wrote it.
#[test]
fn a_kept_state_goes_on_where_the_prompt_ended() {
    let world = World::new();
    let id = trained(&world, "--mixer linear");
    let write = |flags: &str| {
        world.dsf(&format!("wikitext generate --checkpoint {id} --greedy --tokens 12 --quiet {flags}")).ok()
    };
    let whole = write("--prompt The_state");
    write("--prompt The_ --save-state kept.safetensors");
    assert_eq!(format!("The_{}", write("--load-state kept.safetensors --prompt state")), whole);
    assert_eq!(write("--load-state kept.safetensors"), write("--prompt The_").trim_start_matches("The_"));
    world.dsf("wikitext --preset smoke --device cpu --mixer linear --seed 5 --out other").ok();
    let other = world.only_run("other");
    let line = format!("wikitext generate --checkpoint {} --load-state kept.safetensors", other.display());
    world.refuses(&line, "--load-state").gives("kept.safetensors").names(&["--checkpoint"]);
    let line =
        format!("wikitext generate --checkpoint {id} --prompt a --save-state results/runs/{id}/best.safetensors");
    world.refuses(&line, "--save-state").gives(&format!("results/runs/{id}/best.safetensors"));
    let again = world.dsf(&format!("wikitext generate --checkpoint {id} --prompt a --save-state kept.safetensors"));
    assert!(again.err.contains("--load-state kept.safetensors"), "{}", again.err);
}

#[test]
fn a_needle_is_asked_for_by_length_and_depth() {
    let world = World::new();
    let id = trained(&world, "");
    let line = format!("wikitext needle --checkpoint {id} --lengths 120,200 --depths 0,100 --keys 3");
    shows!("needle", outline(&world.dsf(&format!("{line} --json")).object()));
    let report = world.dsf(&format!("{line} --json")).object();
    let cells = |panel: usize| report["panels"][panel]["cells"].as_array().unwrap().clone();
    let value = |cell: &Value| cell["value"].as_f64().unwrap();
    assert!(cells(0).iter().all(|cell| (0.0..=1.0).contains(&value(cell))));
    // Six bytes, each about as likely as any other.
    assert!(cells(1).iter().all(|cell| (10.0..60.0).contains(&value(cell))), "{:?}", cells(1));
    assert_eq!(report, world.dsf(&format!("{line} --json")).object(), "the same keys again");
    let other = world.dsf(&format!("{line} --seed 4 --json")).object();
    assert_ne!(report["panels"], other["panels"]);
    world.dsf(&format!("{line} --to a.svg")).ok();
    // Twice the needle and the question, which are longer than the windows of training.
    let usual = world.dsf(&format!("wikitext needle --checkpoint {id} --keys 1 --json")).object();
    assert_eq!(usual["panels"][0]["cells"][0]["length"], 194);
    assert!(world.dsf(&line).ok().contains("trained on windows of 32 tokens"));
    let command = format!("wikitext needle --checkpoint {id}");
    for (more, flag) in [
        ("--lengths 40", "--lengths"),
        ("--lengths 100000000", "--lengths"),
        ("--lengths 120 --needle none", "--needle"),
        ("--lengths 120 --question {key}", "--question"),
        ("--lengths 120 --depths 101", "--depths"),
        ("--lengths 120 --keys 0", "--keys"),
    ] {
        world.refuses(&format!("{command} {more}"), flag);
    }
}
