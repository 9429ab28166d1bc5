//! Output for other programs: the objects of `--json`, the exports, the summary in pandas. The guide says what they
//! hold.

use super::recovery::{signal, start, wait_for_an_epoch};
use super::{shows, World};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const PAGE: &str = include_str!("../../guide/programs.md");

/// The fields of an event, as the guide lists them.
#[derive(Debug, Default)]
struct Listed {
    always: BTreeSet<String>,
    sometimes: BTreeSet<String>,
    /// Whether there are others, which the guide tells in words.
    open: bool,
}

/// The events of the guide by name. A field in parentheses is there under a condition.
fn listed() -> BTreeMap<String, Listed> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| `"));
    let event = |row: &str| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let mut listed = Listed { open: cells[3].contains("and more"), ..Listed::default() };
        let parts: Vec<&str> = cells[3].split('`').collect();
        for pair in parts[1..].chunks(2) {
            let (name, behind) = (pair[0], pair.get(1).copied().unwrap_or_default());
            if name.starts_with("--") {
                continue; // a flag
            }
            match behind.trim_start().starts_with('(') && !behind.contains("before") {
                true => listed.sometimes.insert(name.to_owned()),
                false => listed.always.insert(name.to_owned()),
            };
        }
        (cells[1].trim_matches('`').to_owned(), listed)
    };
    rows.map(event).collect()
}

/// The fault of an object, if it has one.
fn fault(object: &Value, listed: &BTreeMap<String, Listed>) -> Option<String> {
    let name = object["event"].as_str()?;
    let Some(known) = listed.get(name) else {
        return Some(format!("the guide knows no event `{name}`"));
    };
    let fields: BTreeSet<String> = object.as_object()?.keys().cloned().collect();
    let mut extra: BTreeSet<String> = fields.difference(&known.always).cloned().collect();
    let missing: Vec<&String> = known.always.difference(&fields).collect();
    for field in known.sometimes.iter().map(String::as_str).chain(["event", "schema"]) {
        extra.remove(field);
    }
    let wrong = !missing.is_empty() || (!extra.is_empty() && !known.open) || object["schema"] != 1;
    wrong.then(|| format!("`{name}` lacks {missing:?}, has {extra:?}: {object}"))
}

/// A string that stands for a number which is not finite, where null is promised.
fn number_in_words(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => {
            let words = ["inf", "-inf", "infinity", "nan", "∞"];
            let found = words.contains(&text.to_lowercase().as_str());
            found.then_some(text)
        }
        Value::Array(values) => values.iter().find_map(number_in_words),
        Value::Object(fields) => fields.values().find_map(number_in_words),
        _ => None,
    }
}

/// Events that no command here tells: what damages a checkpoint is tested where it is met, and signals below.
const ELSEWHERE: [&str; 2] = ["warning", "stopped"];

const SMOKE: &str = "--preset smoke --mixer ssd --epochs 1 --train-examples 64";
/// A command that ends in an error.
const REFUSED: &str = "mqar --d 0";

#[test]
fn every_command_prints_the_objects_that_the_guide_lists() {
    let world = World::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::create_dir_all(world.path("golden")).unwrap();
    let golden = root.join("src/tests/golden/lemma1.safetensors");
    fs::copy(golden, world.path("golden/lemma1.safetensors")).unwrap();
    for name in ["mqar-small.csv", "lra-small.csv", "wikitext-small.csv"] {
        let text = fs::read(root.join("results").join(name)).unwrap();
        fs::write(world.path(name), text).unwrap();
    }
    fs::create_dir_all(world.path("words")).unwrap();
    for name in ["train.txt", "valid.txt", "test.txt"] {
        fs::write(world.path("words").join(name), "a few words of some text \n".repeat(40)).unwrap();
    }
    let listed = listed();
    let (mut seen, mut faults) = (BTreeSet::new(), Vec::new());
    let mut call = |line: &str| {
        let said = world.dsf(&format!("{line} --json"));
        let ended = matches!(said.code, 0 | 4) || line == REFUSED;
        assert!(ended, "{line}: {}", said.err);
        assert!(!said.out.is_empty(), "{line} prints nothing");
        for text in said.out.lines() {
            match serde_json::from_str::<Value>(text) {
                Ok(object) if object["event"].is_string() => {
                    let word = number_in_words(&object);
                    faults.extend(word.map(|word| format!("{line}: a number is `{word}`")));
                    seen.insert(object["event"].as_str().unwrap().to_owned());
                    faults.extend(fault(&object, &listed).map(|why| format!("{line}: {why}")));
                }
                _ => faults.push(format!("{line}: no event: {text}")),
            }
        }
    };
    let sweep = format!("sweep {SMOKE} --seeds 2");
    call(REFUSED);
    call(&format!("mqar {SMOKE}"));
    call(&format!("lra --dataset pathfinder --val-examples 8 --test-examples 8 {SMOKE}"));
    call(&format!("mqar {SMOKE} --explain"));
    call(&format!("{sweep} --dry-run"));
    call(&format!("{sweep} --executor print"));
    call(&sweep);
    call(&format!("{sweep} --executor print"));
    for line in [
        "",
        "--version",
        "tour",
        "sweep status",
        "sweep watch",
        "sweep retry",
        "sweep cancel",
        "sweep merge results --out all",
        "export --format parquet --to tables",
        "export --format tensorboard --to board",
        "export --format jsonl",
        "report",
        "report --columns",
        "report --claims",
        "report --curves",
        "report --figure state",
        "report mqar-small.csv --over n",
        "report lra-small.csv --table 3 --check 2",
        "report wikitext-small.csv --table 1",
        "report results --all --out pictures",
        "compare results all",
        "mixers",
        "mixers s6 linear",
        "experiments",
        "experiments smoke",
        "doctor",
        "man --to pages",
        "data list",
        "data fetch lra",
        "data generate listops --train-examples 4 --val-examples 2 --test-examples 2 --data-dir files",
        "data tokens --corpus text --tokenizer bytes --data-dir words",
        "inspect --mixer linear,normalized,delta-net,softmax --d 6",
        "inspect --mixer s6,linear,delta-net --seq-len 1 --verify",
        "inspect --mixer ssd --d 4 --engines",
        "inspect lemma1 --m 2 --order 3 --seq-len 40",
        "inspect identity",
        "inspect eta --eta one,exp --seq-len 6",
        "check golden golden",
        "bench step --preset smoke --mixer ssd --steps 1",
        "wikitext --preset smoke --out texts",
    ] {
        call(line);
    }
    let run = world.only_run("texts");
    let run = run.display();
    call(&format!("wikitext eval --checkpoint {run}"));
    call(&format!("wikitext generate --checkpoint {run} --prompt The --tokens 3"));
    call(&format!("wikitext export --checkpoint {run} --to hf"));
    call("model show hf");
    let id = world.runs("results")[0].file_name().unwrap().to_owned();
    call(&format!("show {}", id.to_string_lossy()));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    seen.extend(ELSEWHERE.map(str::to_owned));
    let known: BTreeSet<String> = listed.into_keys().collect();
    assert_eq!(seen, known, "the guide lists events that no command told");
}

#[test]
fn the_guide_is_read_field_by_field() {
    let listed = listed();
    let epoch = &listed["epoch"];
    assert!(epoch.always.contains("loss") && epoch.sometimes.contains("test_ppl"));
    assert!(listed["run"].always.contains("status") && listed["report"].open);
    let object = serde_json::json!({ "event": "retry", "schema": 1, "runs": 0, "more": 1 });
    assert!(fault(&object, &listed).unwrap().contains("more"));
    let object = serde_json::json!({ "event": "retry", "schema": 1 });
    assert!(fault(&object, &listed).unwrap().contains("lacks [\"runs\"]"));
}

#[test]
fn a_sweep_tells_the_start_the_epochs_and_the_end_of_each_run_as_a_run_does() {
    let world = World::new();
    let events = |line: &str| -> Vec<Value> {
        let said = world.dsf(&format!("{line} --json --threads 1"));
        assert_eq!(said.err, "");
        let objects = said.out.lines().map(|line| serde_json::from_str(line).unwrap());
        objects.collect()
    };
    let alone = events(&format!("mqar {SMOKE} --out a"));
    let swept = events(&format!("sweep {SMOKE} --out b"));
    let ended = swept.last().unwrap();
    assert_eq!((&ended["event"], &ended["finished"]), (&"sweep".into(), &1.into()));
    let find = |events: &[Value], name: &str| -> Value {
        let found = events.iter().find(|event| event["event"] == name);
        found.unwrap_or_else(|| panic!("no {name}: {events:?}")).clone()
    };
    for (name, fields) in [
        ("start", &["run", "config", "parameters"][..]),
        ("epoch", &["run", "loss", "accuracy"]),
        ("done", &["run", "config"]),
    ] {
        let (one, other) = (find(&alone, name), find(&swept, name));
        if name == "done" {
            let typed = other["result"]["provenance"]["command"].as_str().unwrap();
            let words = typed.split_once(' ').unwrap().1;
            assert!(words.starts_with(&format!("sweep {SMOKE}")), "{typed}");
        }
        for field in fields {
            assert_eq!(one[field], other[field], "{name}: {field}");
        }
    }
    let plan = find(&swept, "plan");
    assert_eq!(plan["to_do"][0], find(&swept, "done")["run"]);
    assert_eq!(ended["best"][0]["value"], find(&alone, "done")["result"]["accuracy"]);
}

#[test]
fn a_stop_says_which_command_goes_on() {
    let world = World::new();
    let line = "mqar --preset smoke --d 32 --train-examples 4000 --epochs 6 --lr 1e-4 --json";
    let child = Command::new(assert_cmd::cargo::cargo_bin("dsf"))
        .args(line.split_whitespace())
        .args(["--out", "my results"])
        .current_dir(world.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_an_epoch(&world, "my results");
    signal(&child, "-INT");
    let said = child.wait_with_output().unwrap();
    assert_eq!(said.status.code(), Some(75));
    let (out, err) = (String::from_utf8(said.stdout).unwrap(), String::from_utf8(said.stderr).unwrap());
    let command = format!("{line} --out 'my results'");
    assert!(err.contains("the same command continues from there:\n"), "{err}");
    assert!(err.trim_end().ends_with(&command), "{err}");
    let last: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!(fault(&last, &listed()), None);
    assert!(last["command"].as_str().unwrap().ends_with(&command), "{last}");
    // A sweep says the same.
    let sweep = "sweep --preset smoke --d 32 --mixer ssd --train-examples 4000 --epochs 6 --lr 1e-4";
    let mut child = start(&world, &format!("{sweep} --out b"));
    wait_for_an_epoch(&world, "b");
    signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(75));
}

/// A Python with a module, or a word on stderr that the test is skipped.
fn python_with(module: &str) -> Option<String> {
    let python = std::env::var("DSF_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let import = Command::new(&python).args(["-c", &format!("import {module}")]).stderr(Stdio::null()).status();
    let has = import.is_ok_and(|status| status.success());
    if !has {
        eprintln!("skipped: {python} has no {module}; DSF_TEST_PYTHON names another Python");
    }
    has.then_some(python)
}

fn python(program: &str, script: &str, world: &World) -> String {
    let said = Command::new(program).args(["-c", script]).current_dir(world.path("")).output().unwrap();
    let err = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{err}");
    String::from_utf8(said.stdout).unwrap()
}

/// A folder with two runs of each of two mixers, of two epochs each.
fn trained() -> World {
    let world = World::new();
    let line = "sweep --preset smoke --mixer softmax,ssd --seeds 2 --epochs 2 --train-examples 64 -q";
    world.dsf(line).ok();
    world
}

#[test]
fn the_recipe_of_the_guide_runs_in_pandas() {
    let block = PAGE.split("```python\n").nth(1).unwrap();
    let recipe = block.split("```").next().unwrap();
    let lines = recipe.lines().filter(|line| !line.is_empty() && !line.starts_with("import"));
    assert!(lines.count() <= 10, "a recipe of ten lines");
    let Some(program) = python_with("pandas") else {
        return;
    };
    let world = World::new();
    // A step an epoch: at the last rate the first loss is a number, and the accuracy after it is one.
    let line =
        "sweep --preset smoke --mixer softmax,ssd --seeds 2 --epochs 2 --train-examples 32 --lr 2e-3,1e-2,1e30 -q";
    world.dsf(line).ok();
    let summary = world.path("results/mqar.csv");
    let table = fs::read_to_string(&summary).unwrap();
    let rows = super::table(&summary);
    let kept = |outcome: &str| rows.iter().filter(|row| row["outcome"] == outcome).count();
    assert_eq!((kept("diverged"), kept("finished")), (4, 8), "{table}");
    let kept = |row: &BTreeMap<String, String>| row["outcome"] == "diverged" && !row["accuracy"].is_empty();
    assert!(rows.iter().any(kept), "none kept an accuracy: {table}");
    // Of the middle rate one seed is by far the best, and the other diverged.
    fs::write(&summary, unstable(&table)).unwrap();
    let script = format!(
        "{recipe}\nprint(best[['mixer', 'lr', 'mean', 'std', 'count']].to_json(orient='records', double_precision=15))"
    );
    let said = python(&program, &script, &world);
    let rows: Vec<Value> = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    let report = world.dsf("report results/mqar.csv --json").ok();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(rows.len(), 2, "{said}");
    for panel in report["panels"].as_array().unwrap() {
        let cell = &panel["cells"][0];
        let own = |row: &&Value| row["mixer"] == panel["settings"]["mixer"];
        let row = rows.iter().find(own).unwrap();
        assert_eq!((&row["lr"], &row["count"]), (&cell["lr"], &cell["seeds"]), "{said}");
        for name in ["mean", "std"] {
            let [found, wanted] = [row, cell].map(|of| of[name].as_f64().unwrap());
            assert!((found - wanted).abs() < 1e-12, "{name}: {said}{report}");
        }
    }
    assert_eq!(rows[1]["mixer"], "ssd");
    assert_ne!(rows[1]["lr"], 1e-2, "{said}");
}

/// A summary in which, of two runs of ssd at the rate 1e-2, one is right in 90 % and the other has diverged.
fn unstable(table: &str) -> Vec<u8> {
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    let header = reader.headers().unwrap().clone();
    let at = |name: &str| header.iter().position(|found| found == name).unwrap();
    let mut writer = csv::Writer::from_writer(Vec::new());
    let without = |row: &[String]| -> Vec<String> {
        let cells = row.iter().enumerate();
        let cells = cells.filter(|(i, _)| *i != at("checksum"));
        cells.map(|(_, cell)| cell.clone()).collect()
    };
    let header_cells: Vec<String> = header.iter().map(str::to_owned).collect();
    writer.write_record(without(&header_cells)).unwrap();
    for row in reader.records() {
        let mut row: Vec<String> = row.unwrap().iter().map(str::to_owned).collect();
        if (row[at("mixer")].as_str(), row[at("lr")].as_str()) == ("ssd", "0.01") {
            match row[at("seed")].as_str() {
                "123" => row[at("accuracy")] = "0.9".to_owned(),
                _ => row[at("outcome")] = "diverged".to_owned(),
            }
        }
        writer.write_record(without(&row)).unwrap();
    }
    writer.into_inner().unwrap()
}

#[test]
fn a_summary_that_went_through_pandas_is_read_as_it_was() {
    let Some(program) = python_with("pandas") else {
        return;
    };
    let world = trained();
    let script = r#"
import pandas as pd
text = {name: str for name in ["run_id", "data_digest", "git_commit", "checksum"]}
runs = pd.read_csv("results/mqar.csv", dtype=text, engine="python")
runs.to_csv("checked.csv")
rows = runs.drop(columns="checksum")
rows.to_csv("plain.csv", index=False)
rows.astype({name: float for name in rows.select_dtypes("int")}).to_csv("floats.csv", na_rep="NA")
rows.convert_dtypes().to_csv("nullable.csv", na_rep="<NA>")
rows.to_csv("semicolons.csv", index=False, sep=";", decimal=",", encoding="utf-8-sig", lineterminator="\r\n")
rows.assign(run_id=[123456789012, "1234e5678901", 0, 1]).to_csv("ids.csv", index=False)
pd.read_csv("ids.csv", dtype={"run_id": float}).to_csv("lost.csv", index=False)
"#;
    python(&program, script, &world);
    let report = |file: &str| world.dsf(&format!("report {file} --over d --format csv")).ok();
    let whole = report("results/mqar.csv");
    fs::write(world.path("whole.csv"), &whole).unwrap();
    let mixers = super::table(&world.path("whole.csv")).into_iter();
    let mixers: BTreeSet<String> = mixers.map(|mut row| row.remove("mixer").unwrap()).collect();
    assert_eq!(mixers, ["softmax", "ssd"].map(str::to_owned).into());
    for name in ["checked", "plain", "floats", "nullable", "semicolons"] {
        let text = fs::read_to_string(world.path(&format!("{name}.csv"))).unwrap();
        assert!(name == "floats" || text.contains("True"), "{text}");
        assert_eq!(report(&format!("{name}.csv")), whole, "{name}");
    }
    let lost = world.fails("report lost.csv", "data");
    lost.at("lost.csv", Some(2)).names(&["`run_id`", "`123456789012.0`", "dtype={\"run_id\": str}"]);
}

#[test]
fn tensorboard_reads_what_is_exported_for_it() {
    let Some(program) = python_with("tensorboard") else {
        return;
    };
    let world = trained();
    world.dsf("export --format tensorboard --to board").ok();
    let script = r#"
import glob
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.plugins.hparams.metadata import parse_session_start_info_plugin_data
for folder in sorted(glob.glob("board/*")):
    events = EventAccumulator(folder)
    events.Reload()
    curve = [(e.step, round(e.value, 4)) for e in events.Tensors("epoch/lr")] if "epoch/lr" in events.Tags()["tensors"] \
        else [(e.step, round(e.value, 4)) for e in events.Scalars("epoch/lr")]
    tags = events.Tags()
    data = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    hparams = parse_session_start_info_plugin_data(data).hparams
    end = events.SummaryMetadata("_hparams_/session_end_info").plugin_data.content
    print(folder, len(curve), curve[0][0], hparams["mixer"].string_value, hparams["d"].number_value,
          "result/accuracy" in tags["scalars"] + tags["tensors"], len(end) > 0)
"#;
    let said = python(&program, script, &world);
    assert_eq!(said.lines().count(), 4, "{said}");
    let each = said.lines().map(|line| line.split_once(' ').unwrap().1);
    let each: BTreeSet<&str> = each.collect();
    let wanted = ["2 1 softmax 16.0 True True", "2 1 ssd 16.0 True True"];
    assert_eq!(each, wanted.into());
}

#[test]
fn parquet_and_lines_of_json_hold_every_run() {
    let world = trained();
    let said = world.dsf("export --format parquet --to tables").ok();
    shows!("exported", said);
    for name in ["runs", "epochs"] {
        assert!(world.path("tables").join(format!("{name}.parquet")).is_file());
    }
    world.dsf("export --format jsonl --to runs.jsonl").ok();
    let lines = fs::read_to_string(world.path("runs.jsonl")).unwrap();
    let each: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(each.len(), 4);
    let id = each[0]["run"].as_str().unwrap();
    let one = world.dsf(&format!("export {} --format jsonl", &id[..6])).ok();
    assert_eq!(one, world.dsf(&format!("show {id} --json")).ok());
    if let Some(program) = python_with("pyarrow") {
        let script = "import pandas as pd\nruns = pd.read_parquet('tables/runs.parquet')\n\
                      epochs = pd.read_parquet('tables/epochs.parquet')\n\
                      print(len(runs), len(epochs), runs.accuracy.dtype, runs.seed.max(), epochs.epoch.max())";
        assert_eq!(python(&program, script, &world).trim(), "4 8 float64 124 2");
    }
}

#[test]
fn an_export_that_cannot_be_written_is_refused_in_a_sentence() {
    let world = World::new();
    let none = world.fails("export --format jsonl", "refused");
    none.at("results", None).names(&["--out"]);
    fs::create_dir_all(world.path("results/runs")).unwrap();
    let none = world.fails("export --format jsonl", "refused");
    none.at("results", None).names(&["`dsf mqar`"]);
    world.dsf(&format!("mqar {SMOKE} -q")).ok();
    let nowhere = world.refuses("export --format parquet", "--format");
    nowhere.gives("parquet").names(&["--to FOLDER"]);
    fs::write(world.path("file"), "").unwrap();
    world.refuses("export --format tensorboard --to file", "--to").gives("file");
    let none = world.fails("export nothing --format jsonl", "refused");
    none.at("results", None).names(&["nothing"]);
}
