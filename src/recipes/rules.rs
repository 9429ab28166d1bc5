//! Rules that compute settings from others, and the resulting config.

use super::draft::{check_option, resolved_options, Draft, Origin};
use super::{kernel_length, Explained, Resolved};
use crate::config::{
    Hybrid, ModelConfig, Objective, PositionEmbedding, Protocol, RunConfig, Setting, TaskConfig, FORMAT,
};
use crate::error::{refuse, Error, Result};
use crate::mixers::{self, Entry, SOFTMAX};
use crate::tasks::lra::HARD_CONTOUR;
use crate::tasks::wikitext::table_rows;
use crate::tasks::{Sizes, Task};
use serde_json::{json, Map, Value};
use std::collections::BTreeMap;

/// Prefix of the JSON pointers of the task's own settings.
const TASK: &str = "/task/";

/// One channel in this many of a head gets rotary positions.
const ROTARY_SHARE: usize = 4;

/// Applies the rules to `draft` and returns the resulting run.
pub(super) fn finish(draft: &mut Draft) -> Result<Resolved> {
    let variants = draft.recipe.mixers_as_in.unwrap_or(draft.protocol);
    let variant = draft.entry.default_variant(variants);
    draft.default("variant", variant, "the mixer's default under the protocol");
    let variant: String = draft.get("variant").unwrap_or_default();
    draft.entry.check_variant(&variant)?;
    let options = draft.mixer_options(&variant, variants)?;
    let hybrid = hybrid(draft, variants)?;
    dropouts(draft);
    if draft.task.objective.is_language_model() {
        language(draft, hybrid.as_ref());
    }
    check_warmup(draft)?;
    mixer_sizes(draft, &variant, hybrid.as_ref());
    data_seed(draft);
    val_examples(draft);
    let task = task_config(draft).read()?;
    task.check()?;
    batches(draft, &task.sizes());
    let mut config = config(draft, task.config(), &options)?;
    if let Some((entry, hybrid)) = hybrid {
        let layers = config.model.n_layers;
        if layers <= hybrid.offset {
            refuse!(flag "--hybrid" = hybrid, "its first layer is number {} from 0, and --layers is {layers}; give --layers {} or more", hybrid.offset, hybrid.offset + 1);
        }
        if !(draft.entry.expands || entry.expands) {
            config.model.d_state = 1;
        }
        config.model.hybrid = Some(hybrid);
    }
    if !reads_one_length(&*task, &config.model) {
        kernel_length::fix(&mut config.model, task.sizes().seq_len)?;
    }
    let learnt = config.model.position_embedding == PositionEmbedding::Learnt;
    if !config.model.positions && !learnt {
        refuse!(flag "--position-embedding" = "sinusoidal", "this model has no embeddings of positions; add --positions true");
    }
    if draft.is_given("n") && config.model.d_state == 1 && draft.get("n") != Some(1) {
        let note = "a mixer without a state expansion takes no --n: it is 1 in its runs";
        draft.notes.push(note.to_owned());
    }
    let (sizes, positions) = (task.sizes(), config.model.positions);
    if positions && learnt && sizes.test_seq_len > sizes.seq_len {
        draft.notes.push(format!(
            "--test-seq-len {}: the embeddings of positions behind the first {} are never trained and stay at random; \
             --position-embedding sinusoidal has them everywhere, and --positions false leaves all of them out",
            sizes.test_seq_len, sizes.seq_len
        ));
    }
    for (entry, model, _) in mixers::of_model(&config.model)? {
        entry.check_sizes(&*model)?;
    }
    Ok(Resolved {
        explained: explained(draft, &options, &config.model.options),
        notes: std::mem::take(&mut draft.notes),
        config,
    })
}

/// Whether the mixers of `model` read sequences of one length only.
fn reads_one_length(task: &dyn Task, model: &ModelConfig) -> bool {
    let classifier = model.classifier.as_ref();
    let padded = classifier.is_some_and(|c| c.pad_to_longest && !c.mask);
    padded || task.has_one_length()
}

/// Copy of `config` without the kernel lengths that [`finish`] would set again.
pub(super) fn without_kernel_length(config: &RunConfig) -> Result<RunConfig> {
    let mut config = config.clone();
    let task = config.task.read()?;
    if !reads_one_length(&*task, &config.model) {
        kernel_length::reopen(&mut config.model, task.sizes().seq_len)?;
    }
    Ok(config)
}

/// Hybrid layers with all their settings resolved, and the entry of their mixer.
fn hybrid(draft: &Draft, protocol: Protocol) -> Result<Option<(&'static Entry, Hybrid)>> {
    let Some(mut hybrid) = draft.get::<Hybrid>("hybrid") else {
        return Ok(None);
    };
    if hybrid.mixer == "attention" {
        hybrid.mixer = SOFTMAX.to_owned();
    }
    let typed = hybrid.to_string();
    let with_flag = |e: Error| Error::flag_value("--hybrid", &typed, e.diagnostic().reason);
    let entry = mixers::find(&hybrid.mixer).map_err(with_flag)?;
    if hybrid.variant.is_empty() {
        hybrid.variant = entry.default_variant(protocol).to_owned();
    }
    entry.check_variant(&hybrid.variant).map_err(with_flag)?;
    let given = |name: &str| hybrid.options.get(name).map(String::as_str);
    for (name, value) in &hybrid.options {
        check_option(entry, &hybrid.variant, name, value).map_err(with_flag)?;
    }
    hybrid.options = resolved_options(entry, &hybrid.variant, protocol, given);
    Ok(Some((entry, hybrid)))
}

/// Uses `dropout` for embeddings and attention unless they are set separately.
fn dropouts(draft: &mut Draft) {
    if let Some(dropout) = draft.value("dropout").cloned() {
        draft.default("embed-dropout", dropout.clone(), "as dropout");
        draft.default("attn-dropout", dropout, "as dropout");
    }
}

/// Sets widths that follow from d, heads and the tokenizer in a language model of text.
fn language(draft: &mut Draft, hybrid: Option<&(&'static Entry, Hybrid)>) {
    let known = draft.get("tokenizer").and_then(|tokenizer| table_rows(&tokenizer));
    if let Some(rows) = known.or(draft.choice.tokenizer_rows) {
        draft.default("vocab-size", rows, "the rows that the tokenizer needs");
    }
    let d: usize = draft.get("d").unwrap_or(1);
    if draft.is_given("d") {
        draft.rule("mlp-width", 4 * d, "4 d");
    }
    let heads: usize = draft.get("heads").unwrap_or(1);
    let both = || [Some(draft.entry), hybrid.map(|(entry, _)| *entry)].into_iter().flatten();
    let (attends, turns) = (both().any(|entry| entry.family.is_attention()), both().any(|entry| entry.rotary));
    if attends {
        draft.default("n", d, "d, as in attention");
    } else {
        // With n = d / heads, the width of one head, the state is as large as that of linear attention.
        let n = (d / heads.max(1)).max(1);
        draft.default("n", n, "d / heads, a state of linear attention's size");
    }
    if turns {
        draft.default("rotary", "pre", "before the feature map");
    } else {
        draft.default("rotary", "none", "the mixer has nothing that positions could turn");
    }
}

fn check_warmup(draft: &Draft) -> Result<()> {
    let constant = draft.value("schedule") == Some(&json!("warmup-constant"));
    if draft.is_given("warmup-epochs") && constant && draft.protocol == Protocol::Paper {
        refuse!(flag "--warmup-epochs", "protocol paper warms up over a tenth of all steps; leave it out");
    }
    Ok(())
}

/// Sets the data seed to the run's seed, unless a layer or the user fixes it.
fn data_seed(draft: &mut Draft) {
    if draft.value("data") == Some(&json!("files")) {
        draft.default("data-seed", 0, "no meaning for examples from files");
    } else if let Some(seed) = draft.value("seed").cloned() {
        draft.default("data-seed", seed, "as seed: every seed draws its own examples");
    }
}

/// Sets the size of a generated validation set to that of the test set, unless a layer or the user sets it.
fn val_examples(draft: &mut Draft) {
    if draft.task.objective != Objective::PerToken {
        return;
    }
    if let Some(tested) = draft.value("test-examples").cloned() {
        draft.default("val-examples", tested, "as many as test examples");
    }
}

/// Sets sizes that the mixer does not use to 1, or removes them.
fn mixer_sizes(draft: &mut Draft, variant: &str, hybrid: Option<&(&'static Entry, Hybrid)>) {
    let entry = draft.entry;
    let other = |has: fn(&Entry) -> bool| hybrid.is_some_and(|(entry, _)| has(entry));
    if !(entry.heads || draft.is_given("heads") || other(|entry| entry.heads)) {
        draft.rule("heads", 1, "the mixer has no heads");
    }
    if !(entry.widens && variant == entry.variants[0] || other(|entry| entry.widens)) {
        draft.unset("expand");
    }
    if draft.task.objective.is_language_model() {
        let n: usize = draft.get("n").unwrap_or(1);
        let heads: usize = draft.get("heads").unwrap_or(1);
        let expands = entry.expands || other(|entry| entry.expands);
        let n = if expands { n } else { 1 };
        let dims = match draft.value("rotary").and_then(Value::as_str) {
            Some("none") | None => 0,
            _ => rotary_dims(n / heads.max(1)),
        };
        draft.rule("rotary-dims", dims, "a fourth of a head, in pairs");
    }
}

/// Number of channels with rotary positions in a head of this width, an even number.
pub(super) fn rotary_dims(width: usize) -> usize {
    (width / ROTARY_SHARE / 2 * 2).max(2)
}

/// Sets batch sizes for a fixed number of tokens, and micro-batches that fit into memory.
fn batches(draft: &mut Draft, task: &Sizes) {
    let get = |draft: &Draft, name: &str| draft.get::<usize>(name);
    if let (Some(tokens), Some(most)) = (get(draft, "tokens-per-step"), get(draft, "largest-batch")) {
        let batch = (tokens / task.seq_len.max(1)).clamp(1, most.max(1));
        draft.default("batch-size", batch, "as many tokens a step at every length");
    }
    if let Some(tokens) = get(draft, "tokens-at-once") {
        let fitting = (tokens / task.tokens_per_example().max(1)).max(1);
        draft.default("micro-batch", fitting, "as many tokens as fit at one time");
    }
}

/// Settings of the run, with their JSON pointers and values in the config.
fn settings_in_config<'a>(draft: &'a Draft) -> impl Iterator<Item = (&'static Setting, String, Value)> + use<'a> {
    let (objective, fields) = (draft.task.objective, draft.task.fields);
    draft.choice.settings.iter().filter_map(move |setting| {
        let at = setting.pointer(objective)?;
        let known = |at: &str| at.strip_prefix(TASK).is_none_or(|field| fields.contains(&field));
        let value = config_value(draft, setting.name)?;
        known(&at).then_some((setting, at, value))
    })
}

fn task_config(draft: &Draft) -> TaskConfig {
    let fields = settings_in_config(draft).filter_map(|(_, at, value)| {
        let field = at.strip_prefix(TASK)?.to_owned();
        Some((field, value))
    });
    TaskConfig::new(draft.task.name, &fields.collect::<Map<_, _>>())
}

fn config(draft: &Draft, task: TaskConfig, options: &BTreeMap<String, String>) -> Result<RunConfig> {
    let mut document = json!({
        "format": FORMAT,
        "task": task,
        "model": { "options": options },
        "train": {},
    });
    match draft.task.objective {
        Objective::PerToken => {}
        Objective::Pooled => document["model"]["classifier"] = json!({}),
        Objective::NextToken => {
            document["model"]["language"] = json!({});
            document["train"]["adam"] = json!({});
        }
    }
    for (_, at, value) in settings_in_config(draft).filter(|(_, at, _)| !at.starts_with(TASK)) {
        let (parent, field) = at.rsplit_once('/').unwrap_or(("", &at));
        if let Some(parent) = document.pointer_mut(parent) {
            parent[field] = value;
        }
    }
    // An error here is a fault of the recipe, or a value that only the task itself can check.
    serde_json::from_value(document).map_err(|e| {
        let task = draft.task.name;
        Error::usage(format!("the settings of {task} make no run: {e}"))
    })
}

/// Value of a setting in the config; `None` if the config leaves it out.
fn config_value(draft: &Draft, name: &str) -> Option<Value> {
    let value = draft.value(name)?;
    match name {
        // The other mixer of a hybrid may use it.
        "n" if !draft.entry.expands && draft.value("hybrid").is_none() => Some(json!(1)),
        "decay" if !draft.task.objective.is_language_model() && *value == json!("all") => None,
        // Mixers without a rule of their authors start as in the released model.
        "init"
            if *value == json!("released")
                || *value == json!("authors")
                    && draft.value("hybrid").is_none()
                    && draft.entry.authors_init.is_none() =>
        {
            None
        }
        "short-conv" if *value == json!(false) => None,
        "clip" if value.as_f64() == Some(0.0) => Some(Value::Null),
        // The hard set of Pathfinder is the default and left out.
        "contour-length" if *value == json!(HARD_CONTOUR) => None,
        "micro-batch" => {
            let batch: Option<u64> = draft.get("batch-size");
            (value.as_u64() < batch).then(|| value.clone())
        }
        _ => Some(value.clone()),
    }
}

/// Explains all settings and options. `options` are the mixer's before the task fixed kernel lengths, `decided` those
/// after it.
fn explained(draft: &Draft, options: &BTreeMap<String, String>, decided: &BTreeMap<String, String>) -> Vec<Explained> {
    let settings = settings_in_config(draft).filter_map(|(setting, _, value)| {
        Some(Explained { name: setting.name.to_owned(), value, origin: draft.origin(setting.name)? })
    });
    let decided = decided.iter().map(|(name, value)| {
        let by_task = options.get(name) != Some(value);
        let by_task = by_task.then_some(Origin::Rule("the task's --seq-len"));
        let given = draft.choice.options.get(name);
        let given = given.map(|(_, place)| Origin::Given(place.clone()));
        let layered = || draft.options.get(name).map(|(_, origin)| origin.clone());
        Explained {
            name: format!("option {name}"),
            value: json!(value),
            origin: by_task
                .or(given)
                .or_else(layered)
                .unwrap_or(Origin::Rule("the mixer's default under the protocol")),
        }
    });
    settings.chain(decided).collect()
}
