//! Recipes as tables, values derived from mixer and flags, and refusals.

mod flags;
mod of_lra;
mod of_mqar;
mod of_wikitext;
mod presets_of_rows;
pub(crate) mod testing;

use super::*;
use crate::config::{
    AdamConfig, Decay, Dual, InitScheme, InputMap, LanguageConfig, Layout, Loss, Pool, Precision, Protocol, Rotary,
    Schedule, StateMixer, TrainConfig, NAMED_BLOCKS,
};
use crate::error::testing::Fails;
use crate::error::Diagnostic;
use crate::mixers::{of_layer, of_model, MIXERS};
use crate::model::Classifier;
use crate::nn::Params;
use crate::tasks::lra::{LraConfig, LraDataset};
use crate::tasks::mqar::MqarConfig;
use crate::tasks::wikitext::{Corpus, Tokenizer, WikitextConfig};
use candle_core::{DType, Device};

type Settings<'a> = &'a [(&'a str, &'a str)];

fn refuses(task: &str, settings: Settings, flag: &str) -> Diagnostic {
    run(task, settings).refuses(flag)
}

fn mqar(settings: Settings) -> RunConfig {
    run("mqar", settings).unwrap()
}

fn recall(run: &RunConfig) -> MqarConfig {
    run.task.typed().unwrap()
}

fn arena(run: &RunConfig) -> LraConfig {
    run.task.typed().unwrap()
}

fn text(run: &RunConfig) -> WikitextConfig {
    run.task.typed().unwrap()
}

fn language(run: &RunConfig) -> &LanguageConfig {
    run.model.language.as_ref().unwrap()
}

/// The run holds all settings of the second mixer, and each mixer's layers omit the settings that it does not use.
#[test]
fn a_hybrid_has_layers_of_two_mixers_with_all_their_settings() {
    let run = |settings| mqar(settings).model;
    let model = run(&[("mixer", "mamba"), ("layers", "6"), ("hybrid", "attention:every=3,offset=1")]);
    let hybrid = model.hybrid.clone().unwrap();
    assert_eq!(hybrid.to_string(), "softmax:every=3,offset=1,variant=reference");
    let layers: Vec<(&str, Option<f64>, usize)> = (0..6)
        .map(|layer| {
            let (entry, model) = of_layer(&model, layer).unwrap();
            assert_eq!((&model.mixer[..], &model.hybrid), (entry.name, &None));
            (entry.name, model.expand, model.n_heads)
        })
        .collect();
    let [s, m] = [("softmax", None, 1), ("mamba", model.expand, 1)];
    assert_eq!(layers, [m, s, m, m, s, m]);
    let counts: Vec<_> = of_model(&model).unwrap().iter().map(|(e, _, count)| (e.name, *count)).collect();
    assert_eq!(counts, [("mamba", 4), ("softmax", 2)]);
    // Heads are used by one mixer, state expansion by the other.
    let model = run(&[
        ("mixer", "rwkv4"),
        ("hybrid", "sliding-window:every=2,offset=1,window=9"),
        ("heads", "2"),
        ("n", "32"),
        ("d", "64"),
    ]);
    assert_eq!(model.hybrid.clone().unwrap().options["window"], "9");
    let sizes = |layer| {
        let (_, model) = of_layer(&model, layer).unwrap();
        (model.d_state, model.n_heads)
    };
    assert_eq!([sizes(0), sizes(1)], [(1, 1), (32, 2)]);
    // Neither mixer has a state expansion, so that 1 is recorded.
    let model = run(&[("mixer", "rwkv4"), ("hybrid", "gru:every=2"), ("n", "32")]);
    assert_eq!(model.d_state, 1);
}

#[test]
fn a_hybrid_that_makes_no_model_is_refused_by_its_flag() {
    for (hybrid, names) in [
        ("atention:every=2", &["`retention`"][..]),
        ("softmax:every=8,offset=4", &["--layers 5"]),
        ("softmax:every=2,variant=x", &["softmax", "paper"]),
        ("softmax:every=2,window=9", &["softmax", "kv_heads"]),
        ("softmax:offset=1", &["NAME:every=K,offset=J"]),
    ] {
        refuses("mqar", &[("hybrid", hybrid)], "--hybrid").names(names);
    }
    let heads = [("hybrid", "softmax:every=2"), ("heads", "3"), ("d", "64")];
    refuses("mqar", &heads, "--heads").gives("3");
    let own = [("mixer", "linear"), ("hybrid", "softmax:every=2,heads=3"), ("d", "64")];
    refuses("mqar", &own, "--hybrid").names(&["heads=3", "--d 64"]);
}

#[test]
fn the_published_accuracy_is_that_of_the_same_run_under_any_seed() {
    let plain = mqar(&[("mixer", "s6"), ("seed", "9")]);
    assert_eq!(published_accuracy(&plain), Some((0.2725, "avx512".to_owned())));
    for other in [("lr", "1e-3"), ("preset", "smoke"), ("epochs", "64")] {
        assert_eq!(published_accuracy(&mqar(&[("mixer", "s6"), other])), None);
    }
}

#[test]
fn recipes_set_nothing_that_the_settings_do_not_know() {
    for task in TASKS {
        let recipe = task.layers();
        for layer in &recipe.layer {
            for setting in SETTINGS.iter() {
                if let Some(value) = layer.set.get(setting.name) {
                    setting.check(&value).unwrap_or_else(|e| panic!("{}: {}: {e}", task.name, layer.of));
                }
            }
            let facts = [
                "preset",
                "protocol",
                "mixer",
                "family",
                "attention",
                "half-batch",
                "multi-head",
                "gpu",
                "pretrained",
                "row",
            ];
            for name in layer.when.keys() {
                let known = facts.contains(&name.as_str()) || SETTINGS.find(name).is_some();
                assert!(known, "{}: {}: {name}", task.name, layer.of);
            }
        }
        let named = recipe.sweep.keys().chain(&recipe.compare.keep).chain(&recipe.compare.open);
        assert!(named.into_iter().all(|name| SETTINGS.find(name).is_some()), "{}", task.name);
        assert!(preset(&recipe.presets.default).is_ok());
    }
}

#[test]
fn every_mixer_has_a_run_of_every_task_preset_and_protocol_that_its_text_describes() {
    for task in TASKS {
        let all = [Protocol::Reference, Protocol::Paper, Protocol::Matched];
        let protocols = match &task.layers().protocols[..] {
            [] => &all,
            some => some,
        };
        for entry in MIXERS {
            for protocol in protocols {
                for preset in ["paper", "quick", "smoke"] {
                    let named = [("mixer", entry.name), ("protocol", protocol.as_str()), ("preset", preset)];
                    let run = run(task.name, &named).unwrap();
                    assert_eq!(RunConfig::parse(&run.canonical(), "here").unwrap(), run);
                }
            }
        }
    }
}

#[test]
fn presets_have_the_names_that_help_lists_and_their_aliases() {
    for (alias, name) in [("full", "paper"), ("pythia-70m", "paper"), ("tiny", "quick")] {
        assert_eq!(preset(alias).unwrap(), name);
    }
    preset("pape").refuses("--preset").gives("pape").names(&["`paper`"]);
}

#[test]
fn the_rates_of_mqar_are_equal_steps_of_the_exponent() {
    for (i, rate) in task("mqar").unwrap().paper_rates().unwrap().iter().enumerate() {
        let exact = 10f64.powf(-4.0 + 2.0 * i as f64 / 3.0);
        assert!((rate / exact - 1.0).abs() < 1e-15, "{rate} is not {exact}");
    }
    let rates = task("wikitext").unwrap().paper_rates().unwrap();
    assert_eq!(rates, [3e-4, 1e-3, 3e-3, 1e-2]);
}

/// The origin of a setting or an option, in words.
fn origin(resolved: &Resolved, name: &str) -> String {
    let found = resolved.explained.iter().find(|row| row.name == name);
    found.unwrap_or_else(|| panic!("no {name}")).origin.to_string()
}

#[test]
fn what_a_named_block_sets_says_so() {
    let mut choice = Choice::of(Some("paper"), false);
    choice.set("mixer", "softmax", "--mixer").unwrap();
    choice.set("block", "transformer++", "--block").unwrap();
    let resolved = resolve(task("mqar").unwrap(), &choice).unwrap();
    for name in ["layout", "rotary", "option bias"] {
        assert_eq!(origin(&resolved, name), "the block that --block names", "{name}");
    }
    choice.set("option", "bias=qkv", "--option").unwrap();
    assert_eq!(origin(&resolve(task("mqar").unwrap(), &choice).unwrap(), "option bias"), "--option");
}

#[test]
fn every_value_says_where_it_came_from() {
    let mut choice = Choice::of(Some("paper"), false);
    choice.set("d", "32", "--d").unwrap();
    choice.set("option", "dt_init=mamba", "my.toml, line 3, option").unwrap();
    choice.set("mixer", "s6", "my.toml, line 3, mixer").unwrap();
    let resolved = resolve(task("mqar").unwrap(), &choice).unwrap();
    let origin = |name: &str| origin(&resolved, name);
    assert_eq!(origin("d"), "--d");
    assert_eq!(origin("mixer"), "my.toml, line 3, mixer");
    assert_eq!(origin("option dt_init"), "my.toml, line 3, option");
    assert_eq!(origin("option dt_rank"), "the mixer's default under the protocol");
    assert_eq!(origin("layout"), "released block of s6");
    assert_eq!(origin("epochs"), "recipes/mqar.toml, preset paper");
    assert_eq!(origin("batch-size"), "as many tokens a step at every length");
    assert_eq!(origin("attn-dropout"), "as dropout");
    let config = serde_json::to_value(&resolved.config).unwrap();
    let scope = task("mqar").unwrap().setting_scope();
    for row in &resolved.explained {
        let Some(setting) = SETTINGS.find(&row.name) else {
            continue;
        };
        let pointer = setting.pointer(scope.objective).unwrap();
        let found = config.pointer(&pointer).unwrap_or(&Value::Null);
        // Without a validation set, the config omits its size.
        let unsaid = row.name == "val-examples" && row.value == 0;
        assert!(unsaid || found.as_f64() == row.value.as_f64(), "{}", row.name);
    }
}

/// J.1, J.2 and J.3 contain "linear warmup with duration of 10%", and none of them names a decay.
#[test]
fn the_paper_protocol_has_one_schedule_on_every_task_of_the_paper() {
    for (name, appendix) in [("mqar", "J.1"), ("lra", "J.2"), ("wikitext", "J.3")] {
        for preset in ["paper", "quick", "smoke"] {
            let mut choice = Choice::of(Some(preset), false);
            choice.set("protocol", "paper", "--protocol").unwrap();
            let resolved = resolve(task(name).unwrap(), &choice).unwrap();
            assert_eq!(resolved.config.train.schedule, Schedule::WarmupConstant);
            let mut rows = resolved.explained.iter();
            let schedule = rows.find(|row| row.name == "schedule").unwrap();
            assert_eq!(
                schedule.origin.to_string(),
                format!(
                    "recipes/{name}.toml, protocol paper: linear warm-up over a tenth of the steps, then constant \
                     ({appendix} names no decay)"
                )
            );
        }
    }
    for (text, schedule) in [("cosine", Schedule::Cosine), ("linear", Schedule::Linear)] {
        let run = run("wikitext", &[("schedule", text)]).unwrap();
        assert_eq!(run.train.schedule, schedule);
    }
}

/// Existing results keep the ids of their commands once the data seed of earlier versions is added to them.
#[test]
fn runs_of_the_paper_protocol_on_generated_examples_keep_their_ids() {
    for (task, settings, id) in [
        ("mqar", &[("preset", "paper"), ("mixer", "linear")][..], "2ae12dc118cb"),
        ("mqar", &[("preset", "quick"), ("mixer", "s6")], "0f56c5829ca1"),
        ("lra", &[("dataset", "listops"), ("mixer", "mamba")], "cc7c388a2811"),
        ("lra", &[("dataset", "pathfinder"), ("mixer", "softmax")], "bdcd172d8d94"),
    ] {
        let paper = [("protocol", "paper"), ("data-seed", "0")];
        let run = run(task, &[&paper, settings].concat()).unwrap();
        assert_eq!(run.id(), id, "{task} {settings:?}");
    }
}

#[test]
fn a_mixer_without_released_hyperparameters_is_told_whose_stand_in() {
    let notes = |mixer: &str, protocol: &str| {
        let mut choice = Choice::of(Some("smoke"), false);
        choice.set("mixer", mixer, "").unwrap();
        choice.set("protocol", protocol, "").unwrap();
        resolve(task("lra").unwrap(), &choice).unwrap().notes
    };
    for mixer in ["softmax", "linear", "normalized-softplus", "s6", "mamba", "ssd", "rg-lru"] {
        assert!(notes(mixer, "reference").is_empty(), "{mixer}");
    }
    let said = notes("qlstm", "reference").join("");
    assert!(said.contains("`qlstm`") && said.contains("of Mamba stand in"), "{said}");
    assert!(notes("qlstm", "matched").is_empty(), "one body for every mixer is a choice");
}

#[test]
fn a_config_chosen_again_is_the_same_run() {
    for task in TASKS {
        for protocol in ["reference", "paper", "matched"] {
            for entry in MIXERS {
                let named = [("mixer", entry.name), ("protocol", protocol)];
                let Ok(run) = super::run(task.name, &named) else {
                    continue; // a task without this protocol, or without this mixer
                };
                let again = resolve(task, &Choice::again(&run, "config.json").unwrap()).unwrap();
                assert_eq!(again.config, run, "{} {} {protocol}", task.name, entry.name);
            }
        }
    }
}

/// A command is found for each, which is the run itself.
#[test]
fn a_run_of_every_preset_is_chosen_again_and_so_are_rotary_channels() {
    let again = |run: &RunConfig| {
        let task = self::task(run.task.name()).unwrap();
        let again = resolve(task, &Choice::again(run, "config.json").unwrap()).unwrap();
        assert_eq!(&again.config, run, "{}", task.name);
    };
    for task in TASKS {
        PRESETS.iter().for_each(|preset| again(&super::run(task.name, &[("preset", preset.name)]).unwrap()));
    }
    for task in ["mqar", "mad", "wikitext"] {
        let rotated = [("preset", "smoke"), ("rotary", "pre"), ("rotary-dims", "2")];
        again(&super::run(task, &rotated).unwrap());
    }
}

#[test]
fn a_run_of_another_block_is_chosen_again_and_has_a_command() {
    for block in NAMED_BLOCKS.each_ref().map(|block| block.name) {
        for (task, mixer) in [("mad", "softmax"), ("mad", "mamba"), ("copying", "linear"), ("mqar", "softmax")] {
            let run = super::run(task, &[("preset", "smoke"), ("mixer", mixer), ("block", block)]).unwrap();
            let again = resolve(self::task(task).unwrap(), &Choice::again(&run, "config.json").unwrap()).unwrap();
            assert_eq!(again.config, run, "{task} {mixer} {block}");
            // No longer than the command that made it; the task's own block may be the same.
            let typed = command(&run).unwrap();
            assert_eq!(described(&typed), run);
            assert!(typed.split(' ').count() <= 8, "{task} {mixer} {block}: {typed}");
        }
    }
}

#[test]
fn the_command_of_a_run_is_the_one_that_made_it() {
    for typed in [
        "dsf mqar --block parallel",
        "dsf mqar --block griffin,tie=false --seed 3",
        "dsf mad --preset smoke --block gpt",
        "dsf copying --block tie=false",
        "dsf mqar --preset smoke --seq-len 40 --key-tokens 2 --overwrites 1 --passes 2 --vocab-size 60",
        "dsf state-tracking --test-seq-len 64",
        "dsf lra --mixer linear --block griffin",
    ] {
        assert_eq!(command(&described(typed)).as_deref(), Some(typed));
    }
    // The layers of a hybrid are recorded with variant and options.
    for typed in
        ["dsf wikitext --hybrid sliding-window:every=2", "dsf wikitext --mixer linear --hybrid softmax:every=2"]
    {
        let found = command(&described(typed)).unwrap();
        assert!(found.starts_with(typed) && found.split(' ').count() == typed.split(' ').count(), "{found}");
    }
}

#[test]
fn a_config_keeps_neutral_settings_where_a_recipe_has_others() {
    let left_out = [("fresh-examples", "false"), ("map-init", "released"), ("decay", "all"), ("short-conv", "false")];
    for task in TASKS {
        for (name, value) in left_out {
            let Ok(run) = super::run(task.name, &[("preset", "smoke"), (name, value)]) else { continue };
            let again = resolve(task, &Choice::again(&run, "config.json").unwrap()).unwrap();
            assert_eq!(again.config, run, "{} --{name} {value}", task.name);
            assert_eq!(described(&command(&run).unwrap()), run, "{} --{name} {value}", task.name);
        }
    }
}

#[test]
fn a_config_chosen_again_keeps_what_it_leaves_out() {
    let settings = [("preset", "smoke"), ("warmup-epochs", "0"), ("precision", "f32")];
    for (task, settings) in [("lra", &settings[..]), ("wikitext", &settings[..1])] {
        let run = run(task, settings).unwrap();
        let mut again = Choice::again(&run, "config.json").unwrap();
        again.gpu = true;
        let again = resolve(self::task(task).unwrap(), &again).unwrap().config;
        assert_eq!(again, run, "{task}");
    }
}

#[test]
fn what_is_set_beside_a_config_is_all_that_changes() {
    let run = mqar(&[("preset", "paper"), ("mixer", "s6"), ("option", "dt_init=mamba")]);
    let with = |name: &str, text: &str| {
        let mut other = Choice::default();
        other.set(name, text, "--flag").unwrap();
        let chosen = Choice::again(&run, "config.json").unwrap().with(other)?;
        resolve(task("mqar").unwrap(), &chosen).map(|resolved| resolved.config)
    };
    let mut expected = run.clone();
    expected.seed = 7;
    assert_eq!(with("seed", "7").unwrap(), expected);
    let dropped = with("dropout", "0.3").unwrap();
    assert_eq!((dropped.model.embed_dropout, dropped.model.attn_dropout), (0.3, 0.3));
    for (name, text) in [("protocol", "paper"), ("mixer", "ssd"), ("preset", "quick")] {
        with(name, text).refuses(&format!("--{name}")).names(&["--config"]);
    }
}

/// Run described by a command's words.
fn described(command: &str) -> RunConfig {
    let mut words = command.split(' ').skip(1);
    let task = task(words.next().unwrap()).unwrap();
    let mut choice = Choice::default();
    while let Some(flag) = words.next() {
        let name = flag.strip_prefix("--").unwrap();
        choice.set(name, words.next().unwrap(), flag).unwrap();
    }
    resolve(task, &choice).unwrap().config
}

#[test]
fn the_command_of_a_run_makes_the_run_again() {
    let (presets, protocols) = (["paper", "quick", "smoke"], ["reference", "paper", "matched"]);
    for task in TASKS {
        for (i, entry) in MIXERS.iter().enumerate() {
            let named = [
                ("preset", presets[i % 3]),
                ("protocol", protocols[i / 3 % 3]),
                ("mixer", entry.name),
                ("seed", "9"),
                ("lr", "0.004"),
            ];
            let Ok(run) = super::run(task.name, &named) else {
                continue; // a task without this protocol, or without this mixer
            };
            let command = command(&run).unwrap();
            assert_eq!(described(&command), run, "{command}");
        }
    }
    let plain = |task| command(&super::run(task, &[]).unwrap()).unwrap();
    assert_eq!(plain("mqar"), "dsf mqar");
    assert_eq!(plain("lra"), "dsf lra");
    let s6 =
        [("preset", "paper"), ("mixer", "s6"), ("option", "dt_init=mamba"), ("d", "128"), ("n", "32"), ("lr", "1e-3")];
    assert_eq!(
        command(&mqar(&s6)).unwrap(),
        "dsf mqar --preset paper --mixer s6 --d 128 --n 32 --lr 0.001 --option dt_init=mamba"
    );
}

/// Notes on a run of `task` with `settings`.
fn notes(task: &str, settings: &[(&str, &str)]) -> Vec<String> {
    let mut choice = Choice::default();
    for (name, text) in settings {
        choice.set(name, text, name).unwrap();
    }
    resolve(self::task(task).unwrap(), &choice).unwrap().notes
}

#[test]
fn a_state_expansion_that_the_mixer_does_not_have_is_said_to_be_none() {
    let notes = |mixer, n| notes("mqar", &[("mixer", mixer), ("n", n)]);
    let said = "a mixer without a state expansion takes no --n: it is 1 in its runs";
    assert_eq!(notes("gru", "32"), [said]);
    assert_eq!((notes("gru", "1").len(), notes("ssd", "32").len()), (0, 0));
}

#[test]
fn a_setting_without_effect_beside_the_others_is_noted() {
    for (task, without, with) in [
        ("copying", &[("key-tokens", "2")][..], &[("key-tokens", "2"), ("form", "suffix-lookup")][..]),
        ("mqar", &[("layout", "mamba"), ("state-mixer", "mlp")], &[("state-mixer", "mlp")]),
        ("copying", &[("block", "mamba"), ("mlp-width", "32")], &[("mlp-width", "32")]),
        ("mqar", &[("rotary-dims", "4")], &[("rotary-dims", "4"), ("rotary", "pre")]),
    ] {
        let flag = without.iter().map(|(name, _)| *name).find(|name| !["layout", "block"].contains(name)).unwrap();
        let said = notes(task, without);
        assert!(said.len() == 1 && said[0].starts_with(&format!("--{flag} has no effect")), "{task}: {said:?}");
        assert_eq!(notes(task, with), [""; 0], "{task} {flag}");
    }
}

/// Runs older than the setting keep their ids.
#[test]
fn positions_are_learnt_unless_said_and_sinusoidal_ones_ask_for_embeddings() {
    let learnt = mqar(&[("position-embedding", "learnt")]);
    assert_eq!(learnt, mqar(&[]));
    assert!(!serde_json::to_string(&learnt).unwrap().contains("position_embedding"));
    let sinusoidal = mqar(&[("position-embedding", "sinusoidal")]);
    assert_ne!(sinusoidal.id(), learnt.id());
    let none = [("mixer", "s6"), ("position-embedding", "sinusoidal")];
    refuses("mqar", &none, "--position-embedding").names(&["--positions true"]);
    // A recipe's kind of embedding asks for none.
    let without = run("copying", &[("positions", "false")]).unwrap();
    assert!(!serde_json::to_string(&without).unwrap().contains("position_embedding"));
    refuses("copying", &[("positions", "false"), ("position-embedding", "sinusoidal")], "--position-embedding");
    let notes = |kind| {
        let mut choice = Choice::default();
        let longer = [("seq-len", "64"), ("kv-pairs", "4"), ("test-seq-len", "128")];
        for (name, text) in longer.into_iter().chain([("position-embedding", kind)]) {
            choice.set(name, text, name).unwrap();
        }
        resolve(task("mqar").unwrap(), &choice).unwrap().notes
    };
    let never = |kind| {
        let mut notes = notes(kind).into_iter();
        notes.any(|note| note.contains("never trained"))
    };
    assert!(never("learnt") && !never("sinusoidal"));
}

/// Kernel length of hyena and DSS, from their options.
fn kernel_length(run: &RunConfig) -> Option<&str> {
    run.model.options.get("l_max").map(String::as_str)
}

#[test]
fn a_kernel_has_the_length_of_the_task_where_inputs_differ_in_length() {
    let of = |task, settings: &[(&str, &str)]| run(task, settings).unwrap();
    for mixer in ["hyena", "dss"] {
        let smoke = [("preset", "smoke"), ("mixer", mixer)];
        let lra = |dataset| of("lra", &[&smoke[..], &[("dataset", dataset)]].concat());
        for dataset in ["listops", "text", "retrieval"] {
            let run = lra(dataset);
            let seq_len = arena(&run).seq_len.to_string();
            assert_eq!(kernel_length(&run), Some(&*seq_len), "{mixer} {dataset}");
        }
        let longer = of("mqar", &[&smoke[..], &[("test-seq-len", "32")]].concat());
        assert_eq!(kernel_length(&longer), Some("16"), "as it was trained");
        let text = of("wikitext", &smoke);
        let seq_len = self::text(&text).seq_len.to_string();
        assert_eq!(kernel_length(&text), Some(&*seq_len), "{mixer}");
        let given = [("dataset", "listops"), ("option", "l_max=99")];
        let given = of("lra", &[&smoke[..], &given].concat());
        assert_eq!(kernel_length(&given), Some("99"));
    }
    let hybrid = [("preset", "smoke"), ("dataset", "listops"), ("layers", "2"), ("hybrid", "hyena:every=2")];
    let hybrid = of("lra", &hybrid);
    let seq_len = arena(&hybrid).seq_len.to_string();
    let other = hybrid.model.hybrid.as_ref().unwrap();
    assert_eq!(other.options["l_max"], seq_len);
}

/// The ids are those from before kernels had the length of the task.
#[test]
fn runs_whose_inputs_have_one_length_keep_their_names() {
    for (task, settings, hyena, dss) in [
        ("mqar", ("preset", "smoke"), "2bdfa0218a3f", "be434c283ca4"),
        ("lra", ("dataset", "image"), "35b3c1347295", "a6056aaff352"),
    ] {
        for (mixer, id) in [("hyena", hyena), ("dss", dss)] {
            let run = run(task, &[settings, ("mixer", mixer)]).unwrap();
            assert_eq!(run.id(), id, "{task} {mixer}: {}", run.canonical());
        }
    }
}

#[test]
fn a_kernel_of_the_task_follows_another_length_and_a_given_one_stays() {
    let with = |option: &[(&str, &str)]| {
        let listops = [("preset", "smoke"), ("mixer", "hyena"), ("dataset", "listops")];
        run("lra", &[&listops, option].concat()).unwrap()
    };
    for (config, wanted) in [(with(&[]), "64"), (with(&[("option", "l_max=99")]), "99")] {
        let command = command(&config).unwrap();
        assert_eq!(command.contains("l_max"), wanted == "99", "{command}");
        let task = config.task.entry().unwrap();
        let again = Choice::again(&config, "here").unwrap();
        let same = resolve(task, &again).unwrap().config;
        assert_eq!(same, config);
        let mut other = Choice::default();
        other.set("seq-len", "64", "--seq-len").unwrap();
        let shorter = Choice::again(&config, "here").unwrap().with(other).unwrap();
        let shorter = resolve(task, &shorter).unwrap().config;
        assert_eq!(kernel_length(&shorter), Some(wanted));
    }
    let mut choice = Choice::default();
    choice.set("mixer", "hyena", "--mixer").unwrap();
    choice.set("dataset", "listops", "--dataset").unwrap();
    let explained = resolve(task("lra").unwrap(), &choice).unwrap().explained;
    let length = explained.iter().find(|row| row.name == "option l_max").unwrap();
    assert_eq!(length.origin.to_string(), "the task's --seq-len");
}

/// A state of both layers: linear attention keeps n·d numbers and a sum of n keys in each, Mamba-2 with one state per
/// channel more than 512, and LSTM and attention have no n to choose. A short convolution keeps 192 numbers a layer.
#[test]
fn the_size_of_the_state_sets_n() {
    let n = |mixer: &str, size: &str| mqar(&[("mixer", mixer), ("state-size", size)]).model.d_state;
    assert_eq!([512, 1024, 2048, 4096].map(|size| n("linear", &size.to_string())), [4, 8, 16, 32]);
    assert_eq!(n("mamba2", "512"), 1);
    assert_eq!(n("lstm", "512"), 1);
    assert_eq!(n("softmax", "512"), mqar(&[("mixer", "softmax")]).model.d_state);
    let convolved = mqar(&[("mixer", "ssd"), ("short-conv", "true"), ("state-size", "512")]);
    assert_eq!(convolved.model.d_state, 1);
    refuses("mqar", &[("n", "8"), ("state-size", "512")], "--state-size").names(&["--n"]);
    refuses("mqar", &[("state-size", "0")], "--state-size");
    let hybrid = [("mixer", "linear"), ("hybrid", "lstm:every=2"), ("state-size", "512")];
    refuses("mqar", &hybrid, "--state-size").names(&["--n"]);
    let odd = [("mixer", "linear"), ("d", "48"), ("heads", "3"), ("state-size", "512")];
    refuses("mqar", &odd, "--state-size").names(&["--heads 3"]);
}

/// A run with an n of its own is trained again as it was, although its recipe sets the size of the state.
#[test]
fn the_config_of_a_run_fixes_n() {
    let typed = run("mad", &[("mixer", "gla"), ("n", "8")]).unwrap();
    assert_eq!(typed.model.d_state, 8);
    let again = Choice::again(&typed, "config.json").unwrap();
    let task = crate::recipes::task("mad").unwrap();
    assert_eq!(resolve(task, &again).unwrap().config, typed);
}
