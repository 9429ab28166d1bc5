//! `dsf wikitext` and sweeps of it, on the pages that are part of the program and on files of our own.

use super::{numbers, World};
use std::fs;

const SMOKE: &str = "wikitext --preset smoke";

/// A folder `mine` with a text of a few articles in each split.
fn corpus(world: &World) {
    let article = " = Moss = \n \n Moss grows on stones , and stones lie still . \n \n";
    fs::create_dir(world.path("mine")).unwrap();
    for (name, articles) in [("train", 40), ("valid", 4), ("test", 4)] {
        let path = world.path("mine").join(format!("{name}.txt"));
        fs::write(path, article.repeat(articles)).unwrap();
    }
}

#[test]
fn help_names_what_text_knows_and_nothing_of_the_other_tasks() {
    let world = World::new();
    let help = world.dsf("wikitext --help").ok();
    for flag in [
        "--corpus",
        "--tokenizer",
        "--eos-between-articles",
        "--rotary",
        "--init",
        "--schedule",
        "--clip",
        "--decay",
        "--beta2",
        "--mlp-width",
        "--checkpoint-every",
        "--data-dir",
        "pythia-70m",
    ] {
        assert!(help.contains(flag), "{flag}");
    }
    for flag in [
        "--kv-pairs",
        "--sizes",
        "--dataset",
        "--val-examples",
        "--warmup-epochs",
        "--data-seed",
        "--no-cuda-graph",
        "--protocol",
    ] {
        assert!(!help.contains(flag), "{flag}");
    }
    for task in ["mqar", "lra"] {
        let help = world.dsf(&format!("{task} --help")).ok();
        assert!(!help.contains("--corpus"), "{task}");
        assert!(help.contains("--mlp-width"), "{task}");
    }
    let sweep = world.dsf("sweep --help").ok();
    assert!(sweep.contains("--rotary") && sweep.contains("--checkpoint-every"));
}

#[test]
fn what_cannot_be_trained_is_refused_in_a_sentence() {
    let world = World::new();
    for (more, flag, name) in [
        ("--corpus wiki", "--corpus", "wikitext-103-raw"),
        ("--tokenizer neox", "--tokenizer", "`gpt-neox`"),
        ("--kv-pairs 4", "--kv-pairs", "wikitext"),
        ("--protocol matched", "--protocol", "paper"),
        ("--lr paper", "--lr", "`dsf sweep --task wikitext --lr paper`"),
        ("--vocab-size 100", "--vocab-size", "256"),
        ("--mixer s6 --rotary pre", "--rotary", "`s6`"),
        ("--precision f16", "--precision", "bf16"),
        ("--clip -1", "--clip", "0"),
        ("--beta2 1", "--beta2", "[0, 1)"),
        ("--checkpoint-every 0", "--checkpoint-every", ""),
        ("--corpus text", "--corpus", "--data-dir"),
        ("--train-examples 100000", "--train-examples", "train"),
    ] {
        let fault = world.fails(&format!("{SMOKE} {more}"), "refused");
        fault.of(flag).names(&[name]);
    }
    let missing = world.fails(&format!("{SMOKE} --corpus wikitext-2"), "missing");
    missing.names(&["`dsf data fetch wikitext --corpus wikitext-2`"]);
    for task in ["mqar", "lra"] {
        let line = format!("{task} --preset smoke --clip 1");
        world.refuses(&line, "--clip").names(&[task]);
    }
}

#[test]
fn a_run_says_perplexities_and_leaves_weights_and_losses() {
    let world = World::new();
    let said = world.dsf(SMOKE).ok();
    assert!(said.contains("perplexity"), "{said}");
    assert!(said.contains("dsf report --table 1"), "{said}");
    let run = world.only_run("results");
    for file in ["weights.safetensors", "best.safetensors", "losses.csv"] {
        assert!(run.join(file).is_file(), "{file}");
    }
    let losses = fs::read_to_string(run.join("losses.csv")).unwrap();
    assert_eq!(losses.lines().count(), 1 + 4);
    let again = world.dsf(SMOKE).ok();
    assert!(again.contains("It was trained before"), "{again}");
}

#[test]
fn the_same_command_gives_the_same_bits_on_one_thread_and_on_two() {
    let world = World::new();
    for (out, threads) in [("a", 1), ("b", 2)] {
        let line = format!("{SMOKE} --micro-batch 3 --epochs 2 --out {out} --threads {threads}");
        world.dsf(&line).ok();
    }
    let losses = |out| fs::read(world.only_run(out).join("losses.csv")).unwrap();
    assert_eq!(losses("a"), losses("b"));
    assert_eq!(numbers(&world.only_run("a")), numbers(&world.only_run("b")));
}

#[test]
fn a_text_of_ones_own_is_made_into_tokens_once() {
    let world = World::new();
    corpus(&world);
    let line = format!("{SMOKE} --corpus text --data-dir mine --eos-between-articles true");
    let first = world.dsf(&line);
    assert!(first.err.contains("tokens of text (bytes, eos), train"), "{}", first.err);
    first.ok();
    let second = world.dsf(&format!("{line} --mixer linear"));
    assert!(!second.err.contains("tokens of"), "{}", second.err);
    second.ok();
    assert_eq!(world.runs("results").len(), 2);
}

#[test]
fn a_sweep_of_text_trains_its_grid_and_a_dry_run_needs_no_data() {
    let world = World::new();
    let plan = world.dsf("sweep --task wikitext --preset smoke --corpus wikitext-2,sample --rotary pre,none --dry-run");
    let plan = plan.ok();
    assert!(plan.contains("12 runs"), "{plan}");
    assert!(plan.contains("dataset       wikitext-2, sample"), "{plan}");
    let file = format!("{}/experiments/wikitext-smoke.toml", env!("CARGO_MANIFEST_DIR"));
    let line = format!("sweep {file} --mixer linear,ssd --epochs 1 --jobs 2 --checkpoint-every 1");
    let said = world.dsf(&line);
    assert!(said.err.contains("train ppl "), "{}", said.err);
    let said = said.ok();
    assert!(said.contains("2 finished"), "{said}");
    assert!(said.contains("dsf report --table 1"), "{said}");
}
