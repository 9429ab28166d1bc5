//! Runs on files: what is read is part of what a run is.

use super::World;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

const TEXT: &str =
    "wikitext --corpus text --tokenizer bytes --d 8 --n 8 --heads 1 --layers 1 --mlp-width 8 --seq-len 8 \
                    --epochs 1 --threads 1";

/// Splits of text in `folder`, of digits or of as many letters.
fn text(world: &World, folder: &str, letters: bool) {
    fs::create_dir_all(world.path(folder)).unwrap();
    for (name, last) in [("train", 300), ("valid", 60), ("test", 60)] {
        let digits: Vec<String> = (1..=last).map(|n: u32| n.to_string()).collect();
        let shifted = |c: char| c.to_digit(10).map_or(c, |d| (b'k' + d as u8) as char);
        let plain = digits.join(" ") + "\n";
        let text = match letters {
            true => plain.chars().map(shifted).collect(),
            false => plain,
        };
        fs::write(world.path(folder).join(format!("{name}.txt")), text).unwrap();
    }
}

/// The id of the run that `line` describes; none where its files are refused.
fn id(world: &World, line: &str) -> Option<String> {
    let said = world.dsf(&format!("{line} --explain --json"));
    if said.code != 0 {
        return None;
    }
    let event: Value = serde_json::from_str(&said.out).unwrap();
    event["run"].as_str().map(str::to_owned)
}

/// The last event of a run.
fn done(world: &World, line: &str) -> Value {
    let said = world.dsf(&format!("{line} --json")).ok();
    serde_json::from_str(said.lines().last().unwrap()).unwrap()
}

#[test]
fn a_run_on_other_files_is_another_run() {
    let world = World::new();
    text(&world, "a", false);
    text(&world, "b", true);
    let on = |folder: &str, out: &str| done(&world, &format!("{TEXT} --data-dir {folder} -o {out}"));
    let (first, second) = (on("a", "o"), on("b", "o"));
    assert_ne!(first["run"], second["run"]);
    assert_eq!(on("b", "fresh")["result"]["metrics"], second["result"]["metrics"]);
    assert_ne!(first["result"]["test_loss"], second["result"]["test_loss"]);
    // The same text elsewhere is the same run, and a file that is changed in place makes another one.
    fs::rename(world.path("a"), world.path("moved")).unwrap();
    let again = world.dsf(&format!("{TEXT} --data-dir moved -o o"));
    assert!(again.ok().contains("It was trained before"));
    let path = world.path("moved/valid.txt");
    let changed = fs::read_to_string(&path).unwrap().replacen('7', "8", 1);
    fs::write(&path, changed).unwrap();
    assert_ne!(on("moved", "o")["run"], first["run"]);
    assert_eq!(world.runs("o").len(), 3);
}

#[test]
fn a_config_and_a_worker_refuse_files_that_are_not_those_of_the_run() {
    let world = World::new();
    text(&world, "a", false);
    text(&world, "b", true);
    let id = done(&world, &format!("{TEXT} --data-dir a -o o"))["run"].clone();
    let id = id.as_str().unwrap();
    let config = world.path("o/runs").join(id).join("config.json");
    let line = format!("wikitext --config {} --data-dir b --seed 7", config.display());
    let other = world.fails(&line, "missing");
    other.at("b", None).names(&["--data-dir", "--config"]);
    let line = format!("wikitext --config {} --data-dir a --seed 7", config.display());
    assert_eq!(done(&world, &line)["config"]["seed"], 7);
    let canonical: Value = serde_json::from_str(&fs::read_to_string(&config).unwrap()).unwrap();
    let worker = "worker --data-dir b -o p --device cpu";
    let words: Vec<&str> = worker.split(' ').collect();
    let said = world.call(&words, format!("{canonical}\n").as_bytes());
    assert_eq!(said.code, 66, "{}", said.err);
    assert!(!world.path("p/runs").join(id).join("result.json").exists());
}

#[test]
fn a_sweep_trains_on_the_files_that_are_there_now() {
    let world = World::new();
    text(&world, "a", false);
    text(&world, "b", true);
    let sweep = |folder: &str| {
        world.dsf(&format!("sweep --task {TEXT} --mixer softmax --data-dir {folder} --seeds 2 -o o")).ok()
    };
    assert!(sweep("a").contains("2 finished"));
    assert!(sweep("a").contains("2 done before"));
    assert!(sweep("b").contains("2 finished"));
    assert_eq!(world.runs("o").len(), 4);
    let report = world.dsf("report o --table 1").ok();
    assert_eq!(report.matches("over 2 seeds").count(), 2, "{report}");
    assert!(report.contains("source_digest="), "{report}");
    let missing = format!("sweep --task {TEXT} --data-dir none --dry-run");
    let plan = world.dsf(&missing);
    assert!(plan.err.contains("runs on files that are not here"), "{}", plan.err);
    plan.ok();
}

#[test]
fn results_on_different_files_are_different_cells_of_a_comparison() {
    let world = World::new();
    text(&world, "a", false);
    text(&world, "b", true);
    for (folder, out) in [("a", "one"), ("b", "two")] {
        world.dsf(&format!("{TEXT} --data-dir {folder} -o {out}")).ok();
    }
    let said = world.dsf("compare one two").ok();
    assert!(said.contains("1 only in A, 1 only in B"), "{said}");
    world.dsf("sweep merge one two -o both").ok();
    assert_eq!(world.runs("both").len(), 2);
}

/// Every file below `folder`.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

/// Reviews by the character, a file each.
fn reviews(world: &World, folder: &str) {
    for split in ["train", "test"] {
        for (label, rating) in [("neg", 2), ("pos", 9)] {
            let folder = world.path(folder).join(split).join(label);
            fs::create_dir_all(&folder).unwrap();
            for number in 0..2 {
                let text = format!("a {label} film, number {number} of {split}");
                fs::write(folder.join(format!("{number}_{rating}.txt")), text).unwrap();
            }
        }
    }
}

/// Pictures of CIFAR-10's binary form, two a batch.
fn pictures(world: &World, folder: &str) {
    fs::create_dir_all(world.path(folder)).unwrap();
    let names = (1..=5).map(|i| format!("data_batch_{i}.bin"));
    for (i, name) in names.chain(["test_batch.bin".to_owned()]).enumerate() {
        let picture = |label: u8| [vec![label], vec![i as u8 + label; 3072]].concat();
        let batch = [picture(0), picture(1)].concat();
        fs::write(world.path(folder).join(name), batch).unwrap();
    }
}

#[test]
fn one_changed_byte_in_any_file_that_is_read_is_another_run_or_is_refused() {
    let world = World::new();
    text(&world, "text", false);
    let small = "--train-examples 6 --val-examples 2 --test-examples 2";
    for (dataset, sizes) in [("listops", small), ("pathfinder", "--examples 10")] {
        let line = format!("data generate {dataset} --data-dir {dataset} {sizes}");
        world.dsf(&line).ok();
    }
    reviews(&world, "reviews");
    pictures(&world, "pictures");
    fs::create_dir(world.path("pairs")).unwrap();
    for split in ["train", "eval", "test"] {
        let line = "1.0\t1\t2\tb'one'\tb'two'\n0.0\t1\t2\tb'three'\tb'four'\n";
        fs::write(world.path("pairs").join(format!("new_aan_pairs.{split}.tsv")), line).unwrap();
    }
    let lra = |dataset: &str| format!("lra --preset smoke --dataset {dataset}");
    for (folder, line) in [
        ("text", TEXT.to_owned()),
        ("listops", lra("listops --data files")),
        ("pathfinder", lra("pathfinder --data files")),
        ("reviews", lra("text")),
        ("pairs", lra("retrieval")),
        ("pictures", lra("image")),
    ] {
        let line = format!("{line} --data-dir {folder}");
        let before = id(&world, &line);
        assert!(before.is_some(), "{folder}");
        let mut all = files(&world.path(folder));
        // A lock of the generator is empty, and no data.
        all.retain(|path| fs::metadata(path).unwrap().len() > 0);
        // Many of one kind are alike.
        let step = (all.len() / 4).max(1);
        for path in all.iter().step_by(step).chain(all.last()) {
            let whole = fs::read(path).unwrap();
            for at in [0, whole.len() / 2, whole.len() - 1] {
                let mut changed = whole.clone();
                changed[at] ^= 1;
                fs::write(path, &changed).unwrap();
                assert_ne!(id(&world, &line), before, "{}, byte {at}", path.display());
            }
            fs::write(path, &whole).unwrap();
        }
        assert_eq!(id(&world, &line), before, "{folder}");
    }
}

/// Rows that an earlier version wrote: without the column, and with or without the digest of the examples.
#[test]
fn earlier_results_are_told_apart_by_their_examples_or_stand_alone() {
    let world = World::new();
    text(&world, "a", false);
    let seeds = format!("sweep --task {TEXT} --mixer softmax --data-dir a --seeds 2 -o o");
    world.dsf(&seeds).ok();
    let summary = fs::read_to_string(world.path("o/wikitext.csv")).unwrap();
    let mut reader = csv::Reader::from_reader(summary.as_bytes());
    let header = reader.headers().unwrap().clone();
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let earlier = |name: &str, digests: [&str; 2]| {
        let kept = |i: &usize| !["source_digest", "checksum"].contains(&&header[*i]);
        let mut writer = csv::Writer::from_path(world.path(name)).unwrap();
        let places: Vec<usize> = (0..header.len()).filter(kept).collect();
        writer.write_record(places.iter().map(|i| &header[*i])).unwrap();
        for (row, digest) in rows.iter().zip(digests) {
            let value = |i: &usize| match &header[*i] {
                "data_digest" => digest.to_owned(),
                _ => row[*i].to_owned(),
            };
            writer.write_record(places.iter().map(value)).unwrap();
        }
        writer.flush().unwrap();
        world.dsf(&format!("report {name} --table 1")).ok()
    };
    let same = earlier("same.csv", ["0123456789ab"; 2]);
    assert!(same.contains("over 2 seeds") && !same.contains("without a digest"), "{same}");
    let other = earlier("other.csv", ["0123456789ab", "ba9876543210"]);
    assert!(!other.contains("over 2 seeds"), "{other}");
    assert!(other.contains("source_digest=examples:ba9876543210"), "{other}");
    let unknown = earlier("unknown.csv", ["", ""]);
    assert!(!unknown.contains("over 2 seeds"), "{unknown}");
    assert!(unknown.contains("note: 2 runs on files without a digest of the data"), "{unknown}");
}

#[test]
fn runs_of_generated_data_keep_their_ids_and_name_no_files() {
    let world = World::new();
    // As before runs knew their files.
    for (line, known) in [
        ("mqar --preset smoke", "0b42a4ba8402"),
        ("lra --preset smoke --dataset listops", "a094e6157cea"),
        ("lra --preset smoke --dataset pathfinder", "5d37008e6b25"),
        ("wikitext --preset smoke --schedule cosine", "2915af91835f"),
    ] {
        assert_eq!(id(&world, line).as_deref(), Some(known), "{line}");
    }
}

/// A folder that a command names and does not read would leave its user with results on other data than meant.
#[test]
fn a_folder_of_data_that_no_run_reads_is_refused() {
    let world = World::new();
    for line in [
        "wikitext --preset smoke --data-dir mine",
        "lra --preset smoke --dataset listops --data-dir mine",
        "mqar --preset smoke --data-dir mine",
        "sweep --task mqar --preset smoke --mixer softmax --data-dir mine",
    ] {
        world.refuses(line, "--data-dir").gives("mine");
    }
    // A variable of the environment is for all commands.
    world.dsf_in(("DSF_DATA", "mine"), "mqar --preset smoke").ok();
}
