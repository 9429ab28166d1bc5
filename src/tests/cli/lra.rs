//! `dsf lra`, and its data from `dsf data generate` or from a folder.

use super::{numbers, World};
use std::fmt::Write;
use std::fs;

const SMOKE: &str = "lra --preset smoke --dataset listops --seq-len 128 --train-examples 60 \
                     --val-examples 20 --test-examples 20";

#[test]
fn a_run_says_its_accuracies_beside_the_majority_class_baseline() {
    let world = World::new();
    let said = world.dsf(&format!("{SMOKE} --mixer mamba")).ok();
    assert!(said.starts_with("mamba on LRA listops: "), "{said}");
    assert!(said.contains("where validation was best (epoch "), "{said}");
    assert!(said.contains("the majority-class baseline scores"), "{said}");
    assert!(said.contains("next:    dsf report --table 3"), "{said}");
    let summary = fs::read_to_string(world.path("results/lra.csv")).unwrap();
    let mut reader = csv::Reader::from_reader(summary.as_bytes());
    let header = reader.headers().unwrap().clone();
    let row = reader.records().next().unwrap().unwrap();
    let value = |name: &str| row[header.iter().position(|h| h == name).unwrap()].to_owned();
    assert_eq!((value("task"), value("dataset")), ("lra".into(), "listops".into()));
    assert_eq!((value("input"), value("loss")), ("scalar".into(), "double-softmax".into()));
    assert_eq!(value("data_digest").len(), 12);
    for number in ["accuracy", "best_accuracy", "selected_accuracy", "val_accuracy", "majority"] {
        assert!(value(number).parse::<f64>().is_ok(), "{number}");
    }
    let again = world.dsf(&format!("{SMOKE} --mixer mamba")).ok();
    assert!(again.contains("It was trained before"), "{again}");
}

#[test]
fn the_same_command_gives_the_same_bits_on_one_thread_and_on_two() {
    let world = World::new();
    for (out, threads) in [("a", 1), ("b", 2)] {
        let line = format!("{SMOKE} --mixer linear --micro-batch 5 --out {out} --threads {threads}");
        world.dsf(&line).ok();
    }
    assert_eq!(numbers(&world.only_run("a")), numbers(&world.only_run("b")));
}

#[test]
fn a_run_in_both_directions_gives_the_same_bits_on_any_threads_and_is_inspected() {
    let world = World::new();
    let line = format!("{SMOKE} --bidirectional true --mixer s4d --micro-batch 7");
    for (out, threads) in [("a", 1), ("b", 2), ("c", 3)] {
        let said = world.dsf(&format!("{line} --out {out} --threads {threads}")).ok();
        assert!(said.contains("shows the mixers as dynamical systems"), "{said}");
    }
    let [a, b, c] = ["a", "b", "c"].map(|out| world.only_run(out));
    assert_eq!(numbers(&a), numbers(&b));
    assert_eq!(numbers(&a), numbers(&c));
    let id = a.file_name().unwrap().to_str().unwrap();
    world.refuses(&format!("inspect {id} --out a --gradients"), "--gradients");
    let said = world.dsf(&format!("inspect {id} --out a --verify --seq-len 20"));
    assert_eq!(said.code, 0, "{}", said.err);
    for shown in [
        ", forward: Φ without D",
        ", backward: Φ without D",
        ": Φ of both directions without D",
        "layer are equal to 1e-10",
    ] {
        assert!(said.out.contains(shown), "{shown}: {}", said.out);
    }
    let fresh = "inspect --mixer s4d,linear,softmax --bidirectional true --seq-len 20 --verify";
    let shown = world.dsf(fresh).ok();
    for subject in ["s4d, forward", "s4d, backward", "linear, forward", "linear, backward", "softmax: "] {
        assert!(shown.contains(subject), "{subject}: {shown}");
    }
    assert_eq!(shown.matches("layer are equal to 1e-10").count(), 2, "{shown}");
    let softmax = format!("{SMOKE} --bidirectional true --mixer softmax --out d");
    let said = world.dsf(&softmax).ok();
    assert!(said.contains("dynamical systems"), "{said}");
    let id = world.only_run("d");
    let shown = world.dsf(&format!("inspect {}", id.display())).ok();
    assert!(shown.contains("softmax attention of its queries and keys") && shown.contains("Lemma 1"), "{shown}");
    let fault = world.fails(&format!("inspect lemma1 {}", id.display()), "refused");
    assert_eq!(fault.flag.as_deref(), Some("--bidirectional"), "{fault:?}");
}

#[test]
fn a_sweep_trains_datasets_and_mixers() {
    let world = World::new();
    let line = format!("sweep --task {SMOKE} --mixer softmax,s6 --protocol matched --epochs 1");
    let said = world.dsf(&line).ok();
    assert!(said.contains("2 finished"), "{said}");
    assert_eq!(world.runs("results").len(), 2);
    let plan = world.dsf("sweep --task lra --preset smoke --dataset listops,pathfinder --dry-run");
    assert!(plan.ok().contains("10 runs"));
}

#[test]
fn missing_data_is_named_with_the_way_to_it() {
    let world = World::new();
    fs::create_dir(world.path("none")).unwrap();
    for (dataset, file) in [
        ("text", "train-00000-of-00001.parquet"),
        ("retrieval", "new_aan_pairs.train.tsv"),
        ("image", "data_batch_1.bin"),
        ("listops --data files", "basic_train.tsv"),
        ("pathfinder --data files", "curv_contour_length_14"),
    ] {
        let line = format!("lra --preset smoke --dataset {dataset} --data-dir none");
        let fault = world.fails(&line, "missing");
        let name = dataset.split(' ').next().unwrap();
        let remedy = format!("`dsf data fetch lra --dataset {name}`");
        fault.at("none", None).names(&[file, &remedy]);
        assert!(!world.path("results/lra.csv").exists());
    }
}

#[test]
fn the_help_of_a_task_offers_the_values_that_it_takes() {
    let world = World::new();
    // In one line, as it would be on a wide terminal.
    let help = |line: &str| {
        let text = world.dsf(&format!("{line} --help")).ok();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (mqar, lra, sweep) = (help("mqar"), help("lra"), help("sweep"));
    assert!(mqar.contains("bit for bit. [native, numpy]"), "{mqar}");
    assert!(lra.contains("[native, files]"), "{lra}");
    assert!(sweep.contains("[native, numpy, files]"), "{sweep}");
    assert!(mqar.contains("e.g. `64:4,128:8`, in place of --seq-len and --kv-pairs"), "{mqar}");
    assert_eq!(mqar.matches("[default: all cores]").count(), 1, "{mqar}");
    for (line, names) in [("mqar --data files", "native, numpy"), ("lra --data numpy", "native, files")] {
        world.refuses(line, "--data").names(&[names]);
    }
    // A sweep says it of the task.
    let line = "sweep --task mqar --data files --dry-run";
    let fault = world.refuses(line, "--data");
    fault.gives("files").names(&["--data native"]);
}

#[test]
fn each_task_speaks_of_its_own_flags() {
    let world = World::new();
    let (mqar, lra) = (world.dsf("mqar --help").ok(), world.dsf("lra --help").ok());
    assert!(mqar.contains("--kv-pairs") && !mqar.contains("--dataset"), "{mqar}");
    assert!(lra.contains("--dataset") && !lra.contains("--kv-pairs"), "{lra}");
    world.refuses("lra --kv-pairs 4", "--kv-pairs").names(&["lra"]);
    world.refuses("mqar --pool max", "--pool").names(&["mqar"]);
}

#[test]
fn articles_stand_in_for_papers() {
    let world = World::new();
    let mut text = String::new();
    for article in 0..12 {
        write!(text, " = Article {article} = \n\n").unwrap();
        for line in 0..30 {
            writeln!(text, " The {article}th of them says the same {line} times . ").unwrap();
        }
    }
    fs::write(world.path("articles.txt"), text).unwrap();
    let sizes = "--train-examples 24 --val-examples 8 --test-examples 8";
    let line = format!("data generate retrieval --from articles.txt --data-dir d {sizes}");
    let said = world.dsf(&line).ok();
    assert!(said.contains("they stand in for the task's papers"), "{said}");
    world.fails(&line, "refused").names(&["--force"]);
    let train = "lra --preset smoke --dataset retrieval --data-dir d --seq-len 200 --epochs 1";
    for more in ["--mixer softmax", "--mixer mamba --dual features"] {
        world.dsf(&format!("{train} {sizes} {more}")).ok();
    }
    let line = "data generate retrieval --from none.txt --data-dir e";
    world.fails(line, "io").at("none.txt", None);
    assert!(!world.path("e/retrieval/new_aan_pairs.train.tsv").exists());
}

/// Training losses of the first and the last epoch.
fn losses(world: &World) -> [f64; 2] {
    let rows = numbers(&world.only_run("results"));
    let loss = |row: &str| row.split(',').nth(1).unwrap().parse().unwrap();
    [loss(&rows[1]), loss(rows.last().unwrap())]
}

#[test]
fn every_task_learns_something_from_real_files_within_seconds() {
    let Ok(data) = std::env::var("DSF_TEST_DATA") else {
        println!("skipped: DSF_TEST_DATA is not set");
        return;
    };
    for (dataset, folder) in [
        ("listops --data files", "listops-generated"),
        ("text", "imdb"),
        ("image", "cifar-10/jpeg-decoded"),
        ("pathfinder --data files", "pathfinder32-generated"),
    ] {
        let world = World::new();
        let line = format!(
            "lra --preset smoke --dataset {dataset} --data-dir {data}/{folder} --mixer mamba \
             --protocol matched --lr 3e-3"
        );
        world.dsf(&line).ok();
        let [first, last] = losses(&world);
        assert!(last < first, "{dataset}: {first} to {last}");
    }
}

/// A table of weights would take 2 GiB a layer here.
#[test]
fn long_documents_need_no_quadratic_memory() {
    let world = World::new();
    let line = "lra --dataset listops --preset smoke --seq-len 4096 --d 64 --n 64 --heads 8 \
                --batch-size 4 --micro-batch 4 --train-examples 8 --val-examples 0 --test-examples 2 \
                --epochs 1 --mixer softmax --json";
    let said = world.dsf(line).ok();
    let done: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    let peak = done["result"]["peak_memory_bytes"].as_u64().unwrap();
    assert!(peak < 1 << 30, "{peak} bytes");
}
