//! Pretrained models: `dsf model`, and the commands that read them.

use super::{shows, World};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folder of the tiny model `name`.
pub fn golden_model(name: &str) -> PathBuf {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/golden");
    let folders = ["pretrained", "fla"].map(|library| golden.join(library).join(name));
    folders.into_iter().find(|folder| folder.is_dir()).unwrap()
}

/// Tiny models, one of each architecture.
pub const ALL: [&str; 16] = [
    "bamba",
    "falcon_mamba",
    "gpt2",
    "gpt_neox",
    "llama",
    "mamba",
    "mamba2",
    "recurrent_gemma",
    "rwkv",
    "xlstm",
    "delta_net",
    "gated_deltanet",
    "gla",
    "hgrn2",
    "retnet",
    "rwkv7",
];

#[test]
fn every_model_is_shown_with_its_mixers() {
    let world = World::new();
    let shown = ALL.map(|name| (name, world.dsf(&format!("model show {}", golden_model(name).display())).ok()));
    shows!("model-show", super::sections(shown));
    let event = world.dsf(&format!("model show {} --json", golden_model("bamba").display())).object();
    assert_eq!((&event["architecture"], &event["layers"]), (&"BambaForCausalLM".into(), &4.into()));
    assert_eq!(event["mixers"].as_array().unwrap().len(), 2);
}

#[test]
fn a_run_is_shown_too() {
    let world = World::new();
    world.dsf("wikitext --preset smoke --block norm=rms,eps=1e-6,tie=true,activation=silu").ok();
    let run = world.only_run("results");
    let event = world.dsf(&format!("model show {} --json", run.display())).object();
    assert_eq!(event["block"], "norm=rms,eps=0.000001,activation=silu,tie=true");
    assert!(event["architecture"].is_null() && event["run"].is_string(), "{event}");
    let table = super::table(&world.path("results/wikitext.csv"));
    assert_eq!(table[0]["block"], "norm=rms,eps=0.000001,activation=silu,tie=true");
}

#[test]
fn a_model_is_checked_by_its_exit_code() {
    let world = World::new();
    let verdict = world.dsf(&format!("model check {} --json", golden_model("xlstm").display())).object();
    assert_eq!((&verdict["event"], &verdict["verdict"]), (&"golden".into(), &"pass".into()));
    let copy = world.path("copy");
    fs::create_dir(&copy).unwrap();
    for file in ["config.json", "expected.safetensors", "model.safetensors"] {
        fs::copy(golden_model("xlstm").join(file), copy.join(file)).unwrap();
    }
    let config = fs::read_to_string(copy.join("config.json")).unwrap();
    fs::write(copy.join("config.json"), config.replace("\"gate_soft_cap\": 4.0", "\"gate_soft_cap\": 5.0")).unwrap();
    let said = world.dsf("model check copy --json");
    assert_eq!(said.object()["verdict"], "fail");
    assert_eq!(said.code, 4);
    fs::remove_file(copy.join("expected.safetensors")).unwrap();
    let said = world.dsf("model check copy --json");
    assert_eq!((said.object()["verdict"].as_str(), said.code), (Some("fail"), 4));
}

#[test]
fn layers_are_inspected_and_verified() {
    let world = World::new();
    for name in ALL {
        let line = format!("inspect {} --verify --seq-len 16 --json", golden_model(name).display());
        let report = world.dsf(&line).object();
        let panels = report["panels"].as_array().unwrap();
        let cells = panels.iter().flat_map(|panel| panel["cells"].as_array().unwrap());
        let systems =
            cells.filter(|cell| cell["quantity"] == "recurrence (11) - forward pass" && !cell["value"].is_null());
        let systems = systems.count();
        let expected = match name {
            "gpt2" | "gpt_neox" | "llama" | "rwkv" | "rwkv7" => 0,
            "delta_net" | "gated_deltanet" | "hgrn2" => 3,
            _ => 2,
        };
        assert_eq!(systems, expected, "{name}");
    }
    let line = format!("inspect {} --layer 1,0 --input tokens --seq-len 8 --json", golden_model("mamba").display());
    let report = world.dsf(&line).object();
    let subjects: BTreeSet<&str> =
        report["panels"][0]["cells"].as_array().unwrap().iter().map(|cell| cell["subject"].as_str().unwrap()).collect();
    assert_eq!(subjects, BTreeSet::from(["mamba mamba, layer 0", "mamba mamba, layer 1"]));
    world.refuses(&format!("inspect {} --layer 1,2", golden_model("mamba").display()), "--layer").gives("2");
}

#[test]
fn models_are_compared_with_each_other_and_with_fresh_mixers() {
    let world = World::new();
    let subjects = |names: &str| {
        let report = world.dsf(&format!("inspect --compare {names} --seq-len 8 --json")).object();
        let cells = report["panels"][0]["cells"].as_array().unwrap();
        cells.iter().map(|cell| cell["subject"].as_str().unwrap().to_owned()).collect::<BTreeSet<String>>()
    };
    let [gla, retnet] = ["gla", "retnet"].map(|name| golden_model(name).display().to_string());
    let both = subjects(&format!("{gla},{retnet}"));
    let named = ["gla gla, layer 0", "gla gla, layer 1", "retnet retnet, layer 0", "retnet retnet, layer 1"];
    assert_eq!(both, BTreeSet::from(named.map(str::to_owned)));
    assert!(subjects(&format!("{gla},s6")).iter().any(|subject| subject.starts_with("s6")));
    world.refuses("inspect --compare gla,s66", "--mixer").gives("s66");
    assert_eq!(world.dsf("inspect --compare gla,elsewhere/folder/file").code, 2);
}

#[test]
fn inputs_that_cannot_be_are_refused() {
    let world = World::new();
    let hgrn2 = golden_model("hgrn2").display().to_string();
    world.refuses(&format!("inspect {hgrn2} --seq-len 0"), "--seq-len").gives("0");
    world.refuses(&format!("inspect {hgrn2} --over-training"), "--over-training");
    let heading = world.dsf(&format!("inspect --compare {hgrn2},s6 --seq-len 8")).ok();
    assert!(heading.lines().next().unwrap().ends_with("the usual input of each, L = 8"), "{heading}");
}

/// Tokens of the file that a model was read from are those of the file that is written.
#[test]
fn a_written_model_keeps_its_special_tokens() {
    let world = World::new();
    world.dsf(&format!("wikitext export --checkpoint {} --to copy", golden_model("gla").display())).ok();
    let config = |place: PathBuf| -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(place.join("config.json")).unwrap()).unwrap()
    };
    let (before, after) = (config(golden_model("gla")), config(world.path("copy")));
    for key in ["bos_token_id", "eos_token_id", "pad_token_id"] {
        assert_eq!(after[key], before[key], "{key}");
    }
    assert_eq!(after["eos_token_id"], 2);
}

/// Heads of a state each have a horizon of their own.
#[test]
fn horizons_are_drawn_by_head() {
    let world = World::new();
    let report = world.dsf(&format!("inspect {} --seq-len 16 --json", golden_model("gla").display())).object();
    let panels = report["panels"].as_array().unwrap();
    let cells = panels.iter().flat_map(|panel| panel["cells"].as_array().unwrap());
    let of = |head: usize| cells.clone().filter(|cell| cell["quantity"] == format!("horizon of head {head}")).count();
    assert_eq!([of(0), of(2), of(3)], [2, 2, 0]);
}

#[test]
fn a_model_is_written_back_and_turned_into_a_file() {
    let world = World::new();
    for name in ALL {
        let from = golden_model(name);
        world.dsf(&format!("wikitext export --checkpoint {} --to {name}", from.display())).ok();
        let same = |file: &str| fs::read(from.join(file)).unwrap().len() > 100 && world.path(name).join(file).is_file();
        assert!(same("config.json") && same("model.safetensors"), "{name}");
        world.dsf(&format!("wikitext import --from {} --to {name}.safetensors", from.display())).ok();
        let shown = [from.display().to_string(), format!("{name}.safetensors")]
            .map(|path| world.dsf(&format!("model show {path} --json")).object());
        for key in ["parameters", "mixers", "block", "state", "vocab_size"] {
            assert_eq!(shown[0][key], shown[1][key], "{name}, {key}");
        }
    }
}

#[test]
fn a_model_that_is_not_in_the_cache_is_not_downloaded_offline() {
    let world = World::new();
    let offline = ("HF_HUB_OFFLINE", "1");
    let said = world.dsf_in(offline, "model show state-spaces/mamba-130m-hf --json").fault();
    assert_eq!(said.kind, "missing");
    said.names(&["state-spaces/mamba-130m-hf"]);
    // A model in the cache is found by its name.
    let snapshot = world.path("home/hub/models--someone--tiny/snapshots/0123");
    fs::create_dir_all(&snapshot).unwrap();
    fs::create_dir_all(world.path("home/hub/models--someone--tiny/refs")).unwrap();
    fs::write(world.path("home/hub/models--someone--tiny/refs/main"), "0123").unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(golden_model("gpt2").join(file), snapshot.join(file)).unwrap();
    }
    let shown = world.dsf_in(offline, "model show someone/tiny --json").object();
    assert_eq!(shown["architecture"], "GPT2LMHeadModel");
    world.dsf_in(offline, "model show someone/tiny@other --json").fault();
}

#[test]
fn parts_of_a_block_are_checked() {
    let world = World::new();
    for (value, names) in [("norm=batch", "norm=batch"), ("size=3", "size=3"), ("tie=maybe", "tie=maybe")] {
        world.fault(&format!("wikitext --preset smoke --block {value}")).names(&[names]);
    }
    world.refuses("lra --preset smoke --block tie=true", "--block").names(&["tie"]);
    world.refuses("wikitext --preset smoke --hybrid linear:layers=0+4", "--hybrid").names(&["layer 4"]);
}
