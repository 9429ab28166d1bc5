//! `dsf inspect`.

use super::{numbers, outline, sections, shows, World};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const FORMS: [&str; 6] = ["text", "csv", "json", "svg", "html", "markdown"];

/// The output of `line` without its numbers.
fn told(world: &World, line: &str) -> String {
    outline(&world.dsf(&format!("{line} --json")).object())
}

/// The sizes N of the systems that `line` measures.
fn states(world: &World, line: &str) -> Vec<(String, f64)> {
    let cells = cells(world, line).into_iter();
    let states = cells.filter(|cell| cell["quantity"] == "state N of (11)");
    let state = |cell: serde_json::Value| {
        let subject = cell["subject"].as_str().unwrap().to_owned();
        Some((subject, cell["value"].as_f64()?))
    };
    states.filter_map(state).collect()
}

/// Subjects of the cells of a report.
fn subjects(report: &serde_json::Value) -> BTreeSet<&str> {
    let panels = report["panels"].as_array().unwrap().iter();
    let cells = panels.flat_map(|panel| panel["cells"].as_array().unwrap());
    cells.map(|cell| cell["subject"].as_str().unwrap()).collect()
}

#[test]
fn fresh_mixers_are_measured_and_verified_in_every_form() {
    let world = World::new();
    let line = "inspect --mixer s6 --d 16 --n 8 --verify";
    shows!("inspect-s6", told(&world, line));
    assert_eq!(states(&world, line), [("s6".to_owned(), 128.0)]);
    let compare = "inspect --compare linear,normalized,s6,ssd,softmax --d 8 --n 4 --seq-len 10 --verify";
    shows!("inspect-compare", told(&world, compare));
    for form in FORMS {
        assert!(!world.dsf(&format!("{compare} --format {form}")).ok().is_empty(), "{form}");
    }
    assert_eq!(states(&world, compare)[0], ("linear".to_owned(), 32.0));
    world.dsf(&format!("{compare} --to a.png")).ok();
    assert_eq!(fs::read(world.path("a.png")).unwrap()[1..4], *b"PNG");
    shows!("inspect-in-f32", told(&world, "inspect --mixer ssd --heads 1 --precision f32 --verify"));
}

#[test]
fn a_trained_run_is_seen_layer_by_layer_and_beside_its_start() {
    let world = World::new();
    world.dsf("mqar --preset smoke --mixer normalized").ok();
    let run = world.only_run("results");
    let id = run.file_name().unwrap().to_str().unwrap().to_owned();
    shows!("inspect-run", told(&world, &format!("inspect {id} --verify")));
    let one = format!("inspect results/runs/{id} --layer 1 --fresh --seq-len 8 --json");
    let one = world.dsf(&one).object();
    let trained = format!("normalized {id}, layer 1");
    assert_eq!(subjects(&one), BTreeSet::from([&*trained, "normalized, fresh, layer 1"]));
    let random = world.dsf(&format!("inspect {id}/ --input random --out results --layer 0"));
    assert_eq!(random.code, 0, "{}", random.err);
    let lemmas = ["lemma1 ID --order 4", "lemma2 ID --to-n 12"];
    let lemmas = lemmas.map(|lemma| {
        let line = format!("inspect {}", lemma.replace("ID", &id));
        (lemma, told(&world, &line))
    });
    shows!("inspect-lemmas-of-a-run", trained sections(lemmas));
}

#[test]
fn what_training_does_is_shown_by_epoch_of_a_run_that_kept_its_weights() {
    let world = World::new();
    let train = "mqar --preset smoke --mixer normalized --epochs 3";
    world.dsf(&format!("{train} --out plain")).ok();
    world.dsf(&format!("{train} --snapshot-every 2")).ok();
    let (plain, run) = (world.only_run("plain"), world.only_run("results"));
    assert_eq!(plain.file_name(), run.file_name(), "the same run");
    assert_eq!(numbers(&plain), numbers(&run), "to the bit");
    let bytes = |run: &Path| fs::read(run.join("weights.safetensors")).unwrap();
    assert_eq!(bytes(&plain), bytes(&run));
    for (file, kept) in [("0000", true), ("0001", false), ("0002", true)] {
        let file = run.join(format!("epoch-{file}.safetensors"));
        assert_eq!(file.exists(), kept, "{}", file.display());
    }
    let id = run.file_name().unwrap().to_str().unwrap().to_owned();
    let line = format!("inspect {id} --over-training --verify");
    let mut report = world.dsf(&format!("{line} --json")).object();
    // When the accuracy rose most, if it did.
    report["notes"] = serde_json::json!([]);
    shows!("inspect-over-training", outline(&report));
    let softmax = "mqar --preset smoke --mixer softmax --snapshot-every 1 --out softmax";
    world.dsf(softmax).ok();
    let softmax = world.only_run("softmax");
    let both = format!("inspect {id} {} --over-training --layer 0", softmax.display());
    for form in FORMS {
        let said = world.dsf(&format!("{both} --format {form}")).ok();
        assert!(!said.is_empty(), "{form}");
    }
    let json = world.dsf(&format!("{both} --json")).ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json.get("coverage").is_none(), "it rests on no table");
    let cells = json["panels"][0]["cells"].as_array().unwrap();
    let epochs = cells.iter().filter(|c| c["quantity"] == "effective rank of Φ").map(|c| c["of"].as_u64().unwrap());
    assert_eq!(epochs.collect::<Vec<_>>(), [0, 2, 3]);
    world.dsf(&format!("{both} --to a.png")).ok();
    assert_eq!(fs::read(world.path("a.png")).unwrap()[1..4], *b"PNG");
    let gradients = world.dsf(&format!("inspect {id} --over-training --gradients --layer 0 --json")).object();
    shows!("inspect-gradients-over-training", outline(&gradients));
    let weights = run.join("weights.safetensors");
    let plain = format!("plain/runs/{id}");
    let none = world.fails(&format!("inspect {plain} --over-training"), "refused");
    let again = format!("`dsf mqar --config {plain} --snapshot-every 1 --out again`");
    none.at(&plain, None).names(&[&again]);
    world.dsf(again.trim_matches('`').strip_prefix("dsf ").unwrap()).ok();
    world.dsf(&format!("inspect again/runs/{id} --over-training --layer 0")).ok();
    let file = format!("inspect {} --over-training", weights.display());
    for (line, flag) in [
        (&*file, "--over-training"),
        ("inspect --mixer s6 --over-training", "--mixer"),
        ("mqar --snapshot-every 0", "--snapshot-every"),
    ] {
        world.refuses(line, flag);
    }
}

#[test]
fn recurrences_with_several_states_a_channel_stand_beside_the_others() {
    let world = World::new();
    let line = "inspect --compare qlstm/dsf,qlstm-reversed/dsf,rg-lru/paper,s6 --option states=4 --d 8 --n 4 --verify";
    shows!("inspect-states-of-a-channel", told(&world, line));
    let widths = states(&world, line);
    assert_eq!(widths.len(), 4);
    for width in widths {
        assert_eq!(width.1, 32.0, "{width:?}");
    }
    let none = world.refuses("inspect --compare s6,linear --option states=4", "--option");
    none.names(&["s6, linear"]);
    let none = world.refuses("inspect --mixer qlstm --option states=4", "--option");
    none.names(&["`reference`", "qlstm"]);
    let plain = world.dsf("mqar --mixer qlstm --variant dsf --option states=1 --explain");
    let again = world.dsf("mqar --mixer qlstm --variant dsf --explain");
    assert_eq!(plain.ok().lines().next(), again.ok().lines().next(), "one run");
}

#[test]
fn engines_are_run_timed_and_held_against_each_other() {
    let world = World::new();
    let line = "inspect --mixer linear,ssd,s6,qlstm,softmax,lstm --d 8 --n 4 --seq-len 40 --engines";
    shows!("inspect-engines", told(&world, line));
    let engines: BTreeSet<String> = { cells(&world, line).iter() }
        .map(|cell| format!("{}: {}", cell["subject"], cell["of"]).replace('"', ""))
        .collect();
    shows!("inspect-names-of-engines", engines.into_iter().collect::<Vec<_>>().join("\n"));
    for form in FORMS {
        let said = world.dsf(&format!("{line} --format {form}")).ok();
        assert!(!said.is_empty(), "{form}");
    }
    world.dsf("mqar --preset smoke --mixer normalized").ok();
    let run = world.only_run("results");
    let run = run.display();
    let of_run = format!("inspect {run} --engines --layer 1 --precision f32");
    let rates = cells(&world, &of_run).into_iter();
    let rates = rates.filter(|cell| cell["quantity"] == "tokens/s");
    assert_eq!(rates.count(), 3);
    let both = world.refuses(&format!("{line} --verify"), "--engines");
    both.names(&["--verify"]);
}

/// The numbers of a tensor in f64, and its shape.
fn tensor(file: &safetensors::SafeTensors, name: &str) -> (Vec<f64>, Vec<usize>) {
    let found = file.tensor(name).unwrap();
    let numbers = found.data().chunks_exact(8).map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap()));
    (numbers.collect(), found.shape().to_vec())
}

#[test]
fn matrices_are_written_as_arrays_that_give_the_outputs() {
    let world = World::new();
    let line = "inspect --mixer s6/paper,softmax,delta-net,lru --d 6 --n 4 --seq-len 5 --matrices m.safetensors";
    world.dsf(line).ok();
    let bytes = fs::read(world.path("m.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let subjects = &header.metadata().as_ref().unwrap()["subjects"];
    let subjects: Vec<serde_json::Value> = serde_json::from_str(subjects).unwrap();
    let names: Vec<_> = subjects.iter().map(|subject| subject["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["s6/paper", "softmax", "delta-net", "lru"]);
    assert!(subjects[1]["without_system"].is_string() && file.tensor("1.lambda").is_err());
    assert!(subjects[2]["around"].is_string() && file.tensor("2.rank_one_a").is_ok());
    assert!(file.tensor("3.lambda_im").is_ok());
    // o = Σ_k c[k] h[k] + skip v, h = λ h + b v of S6, whose values are its inputs.
    let [u, y, lambda, b, c, skip] =
        ["u", "y", "lambda", "b", "c", "skip"].map(|name| tensor(&file, &format!("0.{name}")));
    assert_eq!(lambda.1, [5, 6, 4]);
    let mut h = [0.0; 24];
    for i in 0..5 {
        for e in 0..6 {
            let v = u.0[6 * i + e];
            let mut o = skip.0[6 * i + e] * v;
            for k in 0..4 {
                let at = 24 * i + 4 * e + k;
                h[4 * e + k] = lambda.0[at] * h[4 * e + k] + b.0[at] * v;
                o += c.0[at] * h[4 * e + k];
            }
            assert!((o - y.0[6 * i + e]).abs() < 1e-14, "token {i}, channel {e}: {o}");
        }
    }
    world.fails("inspect --mixer s6 --engines --matrices m.safetensors", "refused");
}

#[test]
fn lemmas_and_identity_are_computed() {
    let world = World::new();
    for (name, line) in [
        ("lemma1", "inspect lemma1 --order 6 --m 3"),
        ("identity", "inspect identity --a 1.7"),
        ("eta", "inspect eta --heads 2"),
    ] {
        shows!(name, trained told(&world, line));
    }
    let embedded = cells(&world, "inspect lemma2 --n 4 --to-n 9").into_iter();
    let how = embedded.map(|cell| format!("{}: {}", cell["subject"], cell["quantity"]));
    let how: Vec<String> = how.map(|how| how.replace('"', "")).collect();
    shows!("lemma2", how.join("\n"));
    let features = cells(&world, "inspect lemma1 --order 6 --m 3").into_iter();
    let mut monomials = features.filter(|cell| cell["quantity"] == "features (monomials)");
    assert!(monomials.any(|cell| cell["of"] == 6 && cell["value"] == 84.0));
    for form in FORMS {
        let said = world.dsf(&format!("inspect eta --eta exp,sum --format {form}"));
        assert!(!said.ok().is_empty(), "{form}");
    }
    world.dsf("mqar --preset smoke --mixer normalized").ok();
    let run = world.only_run("results");
    let line = format!("inspect eta {} --eta exp,norm --layer 1", run.display());
    shows!("eta-of-a-run", told(&world, &line));
}

/// The cells of the report of `line` as JSON, by system and quantity.
fn cells(world: &World, line: &str) -> Vec<serde_json::Value> {
    let json = world.dsf(&format!("{line} --json")).ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let panels = json["panels"].as_array().unwrap();
    let cells = panels.iter().flat_map(|panel| panel["cells"].as_array().unwrap());
    cells.cloned().collect()
}

#[test]
fn a_single_token_has_a_dash_for_what_transitions_have() {
    let world = World::new();
    let line = "inspect --mixer s6,linear --d 8 --seq-len 1";
    shows!("inspect-a-single-token", told(&world, line));
    let cells = cells(&world, line);
    for name in [
        "distinct numbers in Λ_i",
        "smallest |λ|",
        "median |λ|",
        "largest |λ|",
        "share of |λ| > 1 (%)",
        "largest product of Λs",
        "std of ln g over tokens",
        "std of ln ΠΛ g over tokens",
        "median half-life of ΠΛ g (tokens)",
    ] {
        let named = || cells.iter().filter(|cell| cell["quantity"] == name);
        assert_eq!(named().count(), 2, "{name}");
        assert!(named().all(|cell| cell["value"].is_null()), "{name}");
    }
}

#[test]
fn a_horizon_stands_beside_a_uniform_one_and_a_rank_beside_the_most_that_it_can_be() {
    let world = World::new();
    let cells = cells(&world, "inspect --mixer linear --d 8 --n 4 --seq-len 100");
    let value = |name: &str| {
        let found = cells.iter().find(|cell| cell["quantity"] == name);
        found.unwrap_or_else(|| panic!("{name}"))["value"].as_f64()
    };
    let uniform = value("effective horizon of a uniform average (tokens)").unwrap();
    assert!(uniform > 40.0 && uniform < 50.0, "{uniform}");
    let share = value("effective horizon (% of the row)").unwrap();
    assert!(share > 50.0 && share <= 100.0, "{share}");
    assert_eq!(value("rows of Φ, the largest possible rank"), Some(64.0));
    let life = value("median half-life of ΠΛ g (tokens)");
    assert_eq!(life, None, "never, since the product cancels η");
    let never = cells.iter().find(|cell| cell["of"] == "never").unwrap();
    assert_eq!((&never["quantity"], &never["value"]), (&"half-lives of ΠΛ g".into(), &1.0.into()));
}

#[test]
fn a_long_input_is_paired_by_tiles() {
    let world = World::new();
    let line = "inspect --mixer ssd,linear --d 2 --n 2 --seq-len 6000 --precision f32";
    let rows = |more: &str| {
        let text = world.dsf_within(300_000, &format!("{line} --threads 1{more}"));
        let text = text.ok();
        let names = text.lines().map(|line| line.trim().split("  ").next());
        names.map(|name| name.unwrap().to_owned()).collect()
    };
    let engines: BTreeSet<String> = rows(" --engines");
    assert!(engines.contains("all pairs, the dual form"), "{engines:?}");
    let measured: BTreeSet<String> = rows("");
    assert!(measured.contains("effective rank of Φ"), "{measured:?}");
}

#[test]
fn an_engine_that_does_not_fit_into_memory_is_left_out_with_a_sentence() {
    let world = World::new();
    let line = "inspect --mixer ssd --d 2 --n 2048 --seq-len 3000 --engines --precision f32";
    let said = world.dsf_within(750_000, &format!("{line} --threads 1 --json"));
    assert_eq!(said.code, 0, "{}", said.err);
    let report = said.object();
    shows!("inspect-an-engine-left-out", outline(&report));
    let cells = report["panels"][0]["cells"].as_array().unwrap().iter();
    let engines: BTreeSet<&str> = cells.map(|cell| cell["of"].as_str().unwrap()).collect();
    assert_eq!(engines, BTreeSet::from(["in chunks", "step by step"]));
}

#[test]
fn what_cannot_be_inspected_is_refused_in_a_sentence() {
    let world = World::new();
    for (line, flag, names) in [
        ("", Some("--mixer"), &["--mixer NAME"][..]),
        ("--mixer sd6", Some("--mixer"), &["`s6`"]),
        ("--mixer s6 --layer 3", Some("--layer"), &[]),
        ("--mixer alibi --bidirectional true", Some("--bidirectional"), &["`alibi`"]),
        ("--mixer s4d --bidirectional true --gradients", Some("--gradients"), &[]),
        ("--mixer s4d --bidirectional true --task mqar", Some("--bidirectional"), &[]),
        ("--mixer s6 --seq-len 0", Some("--seq-len"), &[]),
        ("--mixer s6 --seq-len 400000000", None, &["GB"]),
        ("--mixer s6 --d 65536", None, &["GB"]),
        ("--mixer s4 --n 65536", None, &["GB", "--d", "--n"]),
        ("--mixer performer --n 65536", None, &["GB"]),
        ("--mixer lmu --n 65536", None, &["GB"]),
        ("--mixer s6 --precision bf16", Some("--precision"), &["f64, f32"]),
        ("eta --d 60000", None, &["GB"]),
        ("lemma2 --to-n 9999999999", Some("--to-n"), &[]),
        ("lemma2 --to-n 65536", Some("--to-n"), &["--heads 1"]),
        ("--mixer s6 --input task --seq-len 6", Some("--kv-pairs"), &["--seq-len 6"]),
        ("--mixer s6 --task mqar --text abc", Some("--text"), &[]),
        ("--mixer s6 --heads 2", Some("--heads"), &["`s6`"]),
        ("--mixer s6 --variant none", Some("--variant"), &["s6"]),
        ("0123456789ab", None, &["--out", "`runs`"]),
        ("lemma1 --order 0", Some("--order"), &[]),
        ("lemma2 --to-n 3", Some("--to-n"), &[]),
        ("identity --a 0", Some("--a"), &[]),
        ("eta --eta exq", Some("--eta"), &["`exp`"]),
        ("eta --heads 3", Some("--heads"), &["--d"]),
    ] {
        let fault = world.fails(&format!("inspect {line}"), "refused");
        assert_eq!(fault.flag.as_deref(), flag, "{line}: {fault:?}");
        fault.names(names);
    }
    // As JSON it would be written into any file.
    let said = world.dsf("inspect --mixer s6 --to a.xyz");
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("--to a.xyz"), "{}", said.err);
    fs::create_dir(world.path("empty")).unwrap();
    world.fails("inspect empty", "refused").at("empty", None);
    world.dsf("sweep --preset smoke --mixer ssd -q").ok();
    let run = world.only_run("results");
    let id = run.file_name().unwrap().to_str().unwrap().to_owned();
    let line = format!("inspect {id}");
    let none = world.fails(&line, "refused");
    none.at(format!("results/runs/{id}"), None);
    let config = fs::read_to_string(run.join("config.json")).unwrap();
    let config = config.replace("\"format\": 1", "\"format\": 9");
    fs::write(run.join("config.json"), config).unwrap();
    let file = |name: &str| format!("results/runs/{id}/{name}");
    let other = world.fails(&line, "corrupt");
    other.at(file("config.json"), None).names(&["9", "1"]);
    fs::write(run.join("weights.safetensors"), "no weights").unwrap();
    let weights = world.fails(&line, "data");
    weights.at(file("weights.safetensors"), None);
}

#[test]
fn gradients_through_time_are_shown_of_every_kind_of_model() {
    let world = World::new();
    assert_eq!(
        world.dsf("inspect --mixer s6 --gradients --seq-len 100").code,
        0,
        "more tokens than the smoke preset has"
    );
    shows!("inspect-gradients", told(&world, "inspect --compare s6,lstm --d 8 --n 4 --seq-len 16 --gradients"));
    world.dsf("mqar --preset smoke --mixer gla").ok();
    let id = world.only_run("results").file_name().unwrap().to_str().unwrap().to_owned();
    for form in FORMS {
        let said = world.dsf(&format!("inspect {id} --gradients --fresh --format {form}")).ok();
        assert!(said.contains("half-life of the gradient") || form == "svg", "{form}: {said}");
    }
    for (line, flag) in [
        ("inspect --mixer s6 --gradients --input random", "--gradients"),
        ("inspect --mixer s6 --gradients --input tokens", "--gradients"),
        ("inspect --mixer hyena --gradients", "--gradients"),
        ("inspect --mixer s6 --gradients --engines", "--gradients"),
    ] {
        world.refuses(line, flag);
    }
}
