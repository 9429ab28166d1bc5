//! `dsf show`, `--config`, and the listing of mixers.

use super::{shows, World};
use serde_json::Value;
use std::fs;

const SMOKE: &str = "mqar --preset smoke --mixer ssd --epochs 2 --train-examples 64 --seed 5";

/// The id of the only run in the results.
fn only_id(world: &World) -> String {
    let folder = world.only_run("results");
    folder.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn a_run_is_shown_with_its_numbers_and_the_command_that_is_it() {
    let world = World::new();
    world.dsf(SMOKE).ok();
    let id = only_id(&world);
    let text = world.dsf(&format!("show {}", &id[..4])).ok();
    let mut settings = super::compared(true);
    for (pattern, shown) in [
        (r" on .* \(.*\), dsf .*", " on [machine], dsf [version]"),
        (r"(best_epoch|peak_memory_bytes)  \d+", "$1  [number]"),
    ] {
        settings.add_filter(pattern, shown);
    }
    settings.bind(|| insta::assert_snapshot!("run", text));
    let event: Value = serde_json::from_str(&world.dsf(&format!("--json show {id}")).ok()).unwrap();
    assert_eq!((&event["run"], event["epochs"].as_array().unwrap().len()), (&Value::from(id), 2));
    let command = event["command"].as_str().unwrap();
    let typed = event["result"]["provenance"]["command"].as_str().unwrap();
    assert!(typed.ends_with(SMOKE), "{typed}");
    let again = world.dsf(command.strip_prefix("dsf ").unwrap()).ok();
    shows!("run-trained-before", trained again);
    let shown = world.dsf(&format!("show {}", world.only_run("results").display())).ok();
    assert_eq!(shown, text);
}

#[test]
fn a_run_that_is_not_there_or_not_the_only_one_is_refused() {
    let world = World::new();
    world.dsf(SMOKE).ok();
    let none = world.fails("show nothing", "refused");
    none.at("results", None).names(&["nothing"]);
    let folder = world.fails("show no/folder", "refused");
    folder.at("no/folder", None).names(&["--out"]);
    let (id, folder) = (only_id(&world), world.only_run("results"));
    world.dsf(&format!("inspect {} --layer 0", &id[..4])).ok();
    let twin = world.path("results/runs").join(format!("{}x", &id[..3]));
    fs::create_dir(&twin).unwrap();
    fs::copy(folder.join("config.json"), twin.join("config.json")).unwrap();
    let two = world.fails(&format!("show {}", &id[..3]), "refused");
    two.at("results", None).names(&["2", &id]);
    world.fails(&format!("inspect {}", &id[..3]), "refused").names(&[&id]);
}

#[test]
fn a_config_is_the_run_and_flags_beside_it_are_all_that_changes() {
    let world = World::new();
    world.dsf(SMOKE).ok();
    let config = world.only_run("results").join("config.json");
    let config = config.display();
    let again = world.dsf(&format!("mqar --config {config} --json"));
    let again = again.objects();
    assert!(again.iter().all(|event| event["event"] != "start"));
    let seed = format!("mqar --config {config} --seed 6 --explain");
    shows!("config-explained", world.dsf(&seed).ok());
    let explained = world.dsf(&format!("{seed} --json")).object();
    let setting = |name: &str| {
        let mut all = explained["settings"].as_array().unwrap().iter();
        let found = all.find(|setting| setting["name"] == name);
        let found = found.unwrap_or_else(|| panic!("{name}: {explained}"));
        let origin = found["origin"].as_str().unwrap().to_owned();
        (found["value"].clone(), origin)
    };
    assert_eq!(setting("seed"), (6.into(), "--seed".to_owned()));
    assert!(setting("lr").1.ends_with("config.json"));
    let other = world.fails(&format!("lra --config {config}"), "refused");
    other.names(&[&format!("`dsf mqar --config {config}`")]);
    let deciding = format!("mqar --config {config} --protocol paper");
    world.refuses(&deciding, "--protocol").names(&["--config"]);
    let missing = world.fails("mqar --config none.json", "refused");
    missing.at("none.json", None);
    fs::write(world.path("broken.json"), "{").unwrap();
    let broken = world.fails("mqar --config broken.json", "corrupt");
    broken.at("broken.json", None);
}

#[test]
fn a_toml_file_of_one_run_is_a_config_as_well() {
    let world = World::new();
    let one = "task = \"mqar\"\n[[grid]]\npreset = \"smoke\"\nmixer = \"ssd\"\nd = 16\n";
    fs::write(world.path("one.toml"), one).unwrap();
    shows!("experiment-explained", world.dsf("mqar --config one.toml --n 8 --explain").ok());
    let many = one.replace("d = 16", "d = [16, 32]");
    fs::write(world.path("many.toml"), many).unwrap();
    let many = world.refuses("mqar --config many.toml", "--d");
    many.at("many.toml", Some(2)).gives("16,32");
    fs::write(world.path("two.toml"), format!("{one}[[grid]]\nmixer = \"s6\"\n")).unwrap();
    let two = world.fails("mqar --config two.toml", "refused");
    two.at("two.toml", None).names(&["`dsf sweep two.toml`"]);
}

#[test]
fn the_long_names_of_settings_are_flags_as_well() {
    let world = World::new();
    let long = world.dsf("mqar --d-model 32 --d-state 8 --learning-rate 1e-3 --explain").ok();
    let short = world.dsf("mqar --d 32 --n 8 --lr 1e-3 --explain").ok();
    assert_eq!(long, short);
    let stop = world.dsf("mqar --stop-at 0.5 --explain --json").object();
    let mut settings = stop["settings"].as_array().unwrap().iter();
    let stop = settings.find(|setting| setting["name"] == "stop-at");
    assert_eq!(stop.unwrap()["origin"], "--stop-at");
}

#[test]
fn mixers_fit_a_terminal_and_each_has_a_page() {
    let world = World::new();
    let listed = world.dsf("mixers").ok();
    let widest = listed.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(80), "{listed}");
    shows!("mixers", listed);
    shows!("mixers-wide", world.dsf("mixers --wide").ok());
    shows!("mixers-s6-and-rg-lru", world.dsf("mixers s6 rg-lru").ok());
    let events = world.dsf("--json mixers").ok();
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), dsf::mixers::MIXERS.len());
    assert!(events.iter().all(|event| event["parameters"].as_u64() > Some(0)));
    assert_eq!(world.dsf("mixers nothing").code, 2);
}

#[test]
fn experiments_are_listed_printed_and_planned_without_a_file() {
    let world = World::new();
    let listed = world.dsf("experiments").ok();
    assert!(listed.lines().all(|line| line.chars().count() <= 80), "{listed}");
    shows!("experiments", listed);
    let file = world.dsf("experiments smoke").ok();
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/smoke.toml");
    assert_eq!(file, fs::read_to_string(shipped).unwrap());
    let events = world.dsf("--json experiments").ok();
    let first: Value = serde_json::from_str(events.lines().next().unwrap()).unwrap();
    assert_eq!((&first["experiment"], &first["runs"]), (&"smoke".into(), &24.into()));
    assert_eq!(world.dsf("experiments smok").code, 2);
    world.refuses("sweep smoke --threads 0", "--threads");
    let none = world.fails("sweep smok", "refused");
    none.at("smok", None).names(&["`dsf experiments`"]);
    // A file of that name is what is meant where there is one.
    fs::write(world.path("smoke"), "task = \"mqar\"\n").unwrap();
    world.fails("sweep smoke", "refused").at("smoke", Some(1));
}
