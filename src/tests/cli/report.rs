//! `dsf report`.

use super::{shows, World};
use std::fs;

/// A summary that lies with the project.
fn published(name: &str) -> String {
    format!("{}/results/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn swept() -> World {
    let world = World::new();
    world.dsf("sweep --preset smoke --mixer ssd,softmax --d 8,16 --n 4,8 --lr 1e-3,1e-2 -q").ok();
    world
}

#[test]
fn without_results_it_says_how_to_make_some() {
    let world = World::new();
    let none = world.fails("report", "refused");
    none.at("results", None).names(&["--out"]);
    fs::create_dir(world.path("results")).unwrap();
    world.fails("report", "refused").names(&["`dsf mqar`"]);
}

/// A summary of every run beside the folders of the runs, as in a clone of the project, where one row has another
/// accuracy and the value `value` of `column`.
fn publish(world: &World, column: &str, value: &str) {
    let mut reader = csv::Reader::from_path(world.path("results/mqar.csv")).unwrap();
    let header = reader.headers().unwrap().clone();
    let at = |name: &str| header.iter().position(|held| held == name).unwrap();
    let mut writer = csv::Writer::from_path(world.path("results/published.csv")).unwrap();
    let sum = at("checksum");
    let unsummed = |row: &[String]| [&row[..sum], &row[sum + 1..]].concat();
    let names: Vec<String> = header.iter().map(str::to_owned).collect();
    writer.write_record(unsummed(&names)).unwrap();
    for (i, row) in reader.records().enumerate() {
        let mut row: Vec<String> = row.unwrap().iter().map(str::to_owned).collect();
        if i == 0 {
            row[at("accuracy")] = "0.125".into();
        }
        row[at(column)] = value.into();
        writer.write_record(unsummed(&row)).unwrap();
    }
}

#[test]
fn of_a_run_with_results_of_two_builds_or_machines_ones_own_counts() {
    let world = World::new();
    let two = "sweep --preset smoke --mixer ssd,softmax --d 8 -q";
    world.dsf(two).ok();
    let alone = world.dsf("report --format csv").ok();
    for (column, value) in [("git_commit", "3f2c1e0"), ("simd", "neon"), ("cpu", "another")] {
        publish(&world, column, value);
        let said = world.dsf("report --format csv");
        shows!(
            format!("warning-of-another-{column}"),
            trained said.err
        );
        assert_eq!(said.ok(), alone);
        world.dsf("compare results results").ok();
    }
    // One build on one machine has one result.
    publish(&world, "git_commit", "3f2c1e0");
    let published = fs::read_to_string(world.path("results/published.csv")).unwrap();
    let other = published.replace(",0.125,", ",0.5,");
    fs::write(world.path("results/changed.csv"), other).unwrap();
    let fault = world.fails("report", "data");
    assert!(fault.line.is_some(), "{fault:?}");
}

#[test]
fn grids_have_a_panel_a_mixer_and_name_their_axes() {
    let world = swept();
    let text = world.dsf("report").ok();
    shows!("grid", trained & text);
    assert!(!text.contains('\u{1b}'), "no colour into a pipe");
    let coloured = world.dsf("report --color always").ok();
    assert!(coloured.contains('\u{1b}'));
    shows!(
        "grid-turned",
        trained world.dsf("report --orient paper --mixer ssd").ok()
    );
}

#[test]
fn the_arena_is_reported_as_the_third_table() {
    let world = World::new();
    let tiny = "--preset smoke --dataset listops --mixer linear --epochs 1 --seq-len 64 \
                --train-examples 16 --val-examples 4 --test-examples 4";
    world.dsf(&format!("lra {tiny} -q")).ok();
    world.fails("report", "refused").names(&["--table 3"]);
    let text = world.dsf("report --table 3").ok();
    // Part of the data stands alone, without the paper's numbers.
    shows!("table3-of-a-run", trained & text);
    shows!("table3-published", world.dsf(&format!("report {} --table 3", published("lra-small.csv"))).ok());
    assert_eq!(world.dsf("report --table 3 results/lra.csv").ok(), text);
    let csv = world.dsf("report --table 3 --format csv").ok();
    fs::write(world.path("table3.csv"), csv).unwrap();
    let row = &super::table(&world.path("table3.csv"))[0];
    for (column, value) in [
        ("table", "3"),
        ("data", "part"),
        ("protocol", "reference"),
        ("preset", "smoke"),
        ("mixer", "linear"),
        ("task", "listops"),
        ("paper", ""),
    ] {
        assert_eq!(row[column], value, "{column}: {row:?}");
    }
    let second = world.fails("report --table 2", "refused");
    second.names(&["experiments/table2.toml"]);
    for (flag, value) in [("--seq-len", "64"), ("--orient", "paper")] {
        let line = format!("report --table 3 {flag} {value}");
        world.refuses(&line, "--table").names(&[flag]);
    }
    world.refuses("report --dataset image", "--dataset").names(&["--table 3"]);
    world.refuses("report --json --to x.jpg", "--to").gives("x.jpg");
    world.refuses("report --format csv --to x.png", "--to").gives("x.png").names(&[".csv"]);
    world.fails("report --table 3 --dataset image", "refused").names(&["listops"]);
}

#[test]
fn the_first_table_has_perplexities_and_says_how_to_get_some() {
    let world = swept();
    let none = world.fails("report --table 1", "refused");
    none.names(&["experiments/table1.toml"]);
    let other = world.refuses("report --table 1 --metric accuracy", "--metric");
    other.gives("accuracy").names(&["train_ppl"]);
    for table in ["", "--table 2", "--table 3"] {
        let line = format!("report {table} --metric test-word-ppl");
        world.refuses(&line, "--metric").names(&["--table 1"]);
    }
}

#[test]
fn perplexities_of_texts_are_reported_as_the_first_table() {
    let world = World::new();
    world.dsf("sweep --task wikitext --preset smoke --mixer softmax,linear -q").ok();
    world.fails("report", "refused").names(&["--table 1"]);
    let text = world.dsf("report --table 1").ok();
    // A small run stands alone, without the paper's numbers.
    shows!("table1-of-two-runs", trained & text);
    shows!("table1-published", world.dsf(&format!("report {} --table 1", published("wikitext-small.csv"))).ok());
    let file = world.dsf("report --table 1 results/wikitext.csv").ok();
    assert_eq!(file, text);
    let json = world.dsf("report --table 1 --mixer linear --json").ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let cell = &json["tables"][0]["cells"][0];
    assert!(cell["train_ppl"].as_f64().unwrap() > 1.0, "{cell}");
    assert!(cell["val_ppl"].as_f64().unwrap() > 1.0, "{cell}");
}

#[test]
fn the_other_formats_hold_the_same_cells() {
    let world = swept();
    let csv = world.dsf("report --format csv").ok();
    assert_eq!(csv.lines().count(), 1 + 8, "{csv}");
    let json: serde_json::Value = serde_json::from_str(&world.dsf("report --format json").ok()).unwrap();
    assert_eq!(json["schema"], 1);
    assert_eq!(json["panels"].as_array().unwrap().len(), 2);
    for form in ["markdown", "latex"] {
        let line = format!("report {} --format {form}", published("figure2-small.csv"));
        shows!(format!("grid-in-{form}"), world.dsf(&line).ok());
    }
}

#[test]
fn a_summary_file_reports_like_the_folder_it_came_from() {
    let world = swept();
    let folder = world.dsf("report results").ok();
    fs::rename(world.path("results/mqar.csv"), world.path("kept.csv")).unwrap();
    fs::remove_dir_all(world.path("results")).unwrap();
    assert_eq!(world.dsf("report kept.csv").ok(), folder);
}

#[test]
fn an_experiment_shows_what_is_missing() {
    let world = World::new();
    let file = "task = \"mqar\"\n[[grid]]\npreset = \"smoke\"\nmixer = \"ssd\"\nd = [8, 16]\n";
    fs::write(world.path("grid.toml"), file).unwrap();
    world.dsf("mqar --preset smoke --mixer ssd --d 8 -q").ok();
    let report = world.dsf("report --experiment grid.toml --json").object();
    let coverage = &report["coverage"];
    assert_eq!((&coverage["done"], &coverage["planned"]), (&1.into(), &2.into()));
    let cells = report["panels"][0]["cells"].as_array().unwrap().iter();
    let cells = cells.map(|cell| cell["status"].as_str().unwrap());
    assert_eq!(cells.collect::<Vec<_>>(), ["done", "not_run"]);
    shows!(
        "grid-of-an-experiment",
        trained world.dsf("report --experiment grid.toml").ok()
    );
}

#[test]
fn broken_inputs_are_named() {
    let world = swept();
    fs::write(world.path("bad.csv"), "a,b\n1,2\n").unwrap();
    world.fails("report bad.csv", "data").at("bad.csv", Some(1));
    world.fails("report nowhere", "refused").at("nowhere", None);
    let unknown = world.refuses("report --mixer linnear", "--mixer");
    unknown.names(&["`linear`"]);
    let run = world.runs("results").remove(0);
    fs::write(run.join("result.json"), "{").unwrap();
    let said = world.dsf("report");
    assert_eq!(said.code, 0, "one broken folder does not hide the others: {}", said.err);
    shows!("warning-of-a-broken-result", trained said.err);
}

#[test]
fn the_columns_explain_every_field_of_the_header() {
    let world = swept();
    shows!("columns", world.dsf("report --columns").ok());
    let columns = world.dsf("report --columns --json").objects();
    let summary = fs::read_to_string(world.path("results/mqar.csv")).unwrap();
    for name in summary.lines().next().unwrap().split(',') {
        let column = columns.iter().find(|column| column["column"] == name);
        let meaning = column.and_then(|column| column["meaning"].as_str());
        assert!(meaning.is_some_and(|meaning| !meaning.is_empty()), "{name}");
    }
}

#[test]
fn a_picture_goes_to_the_file_whose_name_says_its_format() {
    let world = swept();
    world.dsf("report --to drawn.png").ok();
    let png = fs::read(world.path("drawn.png")).unwrap();
    assert!(png.starts_with(b"\x89PNG"));
    world.dsf("report --to drawn.svg --mixer ssd").ok();
    let svg = fs::read_to_string(world.path("drawn.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    assert_eq!(world.dsf("report --format svg --mixer ssd").ok(), svg);
    world.dsf("report --format latex --to table.any").ok();
    let latex = fs::read_to_string(world.path("table.any")).unwrap();
    assert_eq!(world.dsf("report --format latex").ok(), latex);
    // As JSON it would be written into any file.
    let refused = world.dsf("report --to drawn.jpg");
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("--to drawn.jpg"), "{}", refused.err);
    let nowhere = world.fails("report --to none/drawn.svg", "io");
    nowhere.at("none/drawn.svg", None);
}

#[test]
fn everything_is_drawn_in_every_format_and_what_is_missing_comes_with_its_command() {
    let world = swept();
    let said = world.dsf("report --all --out drawn").ok();
    for name in ["grid", "figure-state", "figure-seconds", "figure-times", "figure-tuning", "figure-frontier", "curves"]
    {
        for extension in ["txt", "md", "csv", "json", "tex", "svg", "png", "html"] {
            let file = format!("drawn/{name}.{extension}");
            assert!(said.lines().any(|line| line == file), "{file}: {said}");
            assert!(fs::metadata(world.path(&file)).unwrap().len() > 100, "{file}");
        }
    }
    let index = fs::read_to_string(world.path("drawn/index.html")).unwrap();
    assert_eq!(index.matches("href=\"grid.svg\"").count(), 1, "{index}");
    assert_eq!(index.matches("<section").count(), 7);
    shows!("all", said);
    world.refuses("report --all", "--all").names(&["--out"]);
    world.dsf("report results/mqar.csv --all --out from-file").ok();
    assert!(world.path("from-file/grid.png").exists());
    assert!(!world.path("from-file/curves.png").exists());
    let none = "report results/mqar.csv --all --out none --mixer s6";
    world.fails(none, "refused").names(&["`dsf mqar`"]);
    assert!(!world.path("none").exists());
}

#[test]
fn curves_are_read_from_run_folders_and_a_summary_has_none() {
    let world = swept();
    shows!(
        "curves",
        trained world.dsf("report --curves --mixer ssd").ok()
    );
    let none = world.fails("report results/mqar.csv --curves", "refused");
    none.at("results/mqar.csv", None).names(&["`runs`"]);
    let both = world.refuses("report --curves --figure 2", "--curves");
    both.names(&["--figure"]);
}

#[test]
fn lines_over_an_axis_put_mixers_into_one_panel() {
    let world = swept();
    let report = world.dsf("report --over d --json").object();
    assert_eq!(report["panels"].as_array().unwrap().len(), 1, "{report}");
    shows!("lines-over-d", world.dsf(&format!("report {} --over d", published("figure2-small.csv"))).ok());
    let both = world.refuses("report --over d --figure 2", "--over");
    both.names(&["--figure"]);
}

#[test]
fn the_report_in_the_guide_is_what_the_program_prints() {
    let page = include_str!("../../guide/sweeps.md");
    let shown = page.split("$ dsf ").nth(1).unwrap();
    let (line, printed) = shown.split_once('\n').unwrap();
    let printed = printed.split("```").next().unwrap();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/results/");
    let line = line.replace("results/", root);
    assert!(line.starts_with("report "), "{line}");
    assert_eq!(World::new().dsf(&line).ok(), printed);
}

/// Runs of a mixer stand among the published ones, marked; those with other settings are left out.
#[test]
fn scores_on_mad_stand_beside_the_published_ones() {
    let world = World::new();
    let second = fs::read_to_string(published("mad-small-seed124.csv")).unwrap();
    let (head, rows) = second.split_once('\n').unwrap();
    // A third seed: other runs, of other names, without the checksums of these.
    let lru = rows.lines().filter(|row| row.contains(",lru,")).map(|row| row.replace(",124,", ",125,"));
    let lru: Vec<String> = lru.map(|row| row.replacen(&row[2..6], "0000", 1)).collect();
    let own = [head].into_iter().chain(lru.iter().map(String::as_str)).map(|row| row.rsplit_once(',').unwrap().0);
    let own: Vec<&str> = own.collect();
    assert_eq!(own.len(), 1 + 12);
    fs::write(world.path("own.csv"), own.join("\n") + "\n").unwrap();
    let ranked = world.dsf("report --mad own.csv");
    assert_eq!(ranked.code, 0, "{}", ranked.err);
    assert!(ranked.err.contains("beside the published runs of two seeds: 12 runs of lru"), "{}", ranked.err);
    let marked: Vec<&str> = ranked.out.lines().filter(|line| line.contains(" * ")).collect();
    assert!(matches!(marked[..], [line] if line.trim_start().starts_with("lru * ")), "{}", ranked.out);
    assert!(ranked.out.contains("*: not among the published runs"), "{}", ranked.out);
    let table = world.dsf("report --mad own.csv --format markdown").ok();
    assert!(table.contains("| lru * | ") && !table.contains("###"), "{table}");
    world.dsf("mad --preset smoke -q").ok();
    let other = world.dsf("report --mad");
    assert!(other.err.contains("left out: 1 run with other settings"), "{}", other.err);
    assert!(!other.out.contains(" * "), "{}", other.out);
}
