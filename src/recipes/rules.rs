//! Rules that compute settings from others, and the resulting config.

use super::draft::{check_option, no_run, resolved_options, Draft, Origin};
use super::partial::MergedSettings;
use super::{kernel_length, Explained, Resolved};
use crate::config::{
    BlockConfig, Decay, Hybrid, Layout, MapInit, ModelConfig, Objective, PositionEmbedding, Protocol, Rotary,
    RunConfig, Schedule, Setting, StateMixer, TaskConfig, FORMAT,
};
use crate::error::{refuse, Diagnostic, Error, Result};
use crate::mixers::{self, Entry, Family, SOFTMAX};
use crate::nn::Params;
use crate::tasks::lra::HARD_CONTOUR;
use crate::tasks::wikitext::table_rows;
use crate::tasks::{ExampleSizes, Task};
use candle_core::DType;
use serde_json::{json, Map, Value};
use std::collections::BTreeMap;

/// Prefix of the JSON pointers of the task's own settings.
const TASK: &str = "/task/";

/// Number of doublings of 1 that give [`MOST_N`].
const MOST_DOUBLINGS: u32 = 10;
/// Largest n of [`state_size`].
const MOST_N: usize = 1 << MOST_DOUBLINGS;

/// The reason of settings and options that a block named as a whole stands for.
const NAMED_BLOCK: &str = "the block that --block names";

/// Ratio of two sizes of a state beyond which a note says how far they are apart.
const FAR_OFF: f64 = 1.5;

/// One channel in this many of a head gets rotary positions.
const ROTARY_SHARE: usize = 4;

/// Applies the rules to `draft` and returns the resulting run.
pub(super) fn finish(draft: &mut Draft) -> Result<Resolved> {
    let variants = draft.recipe.mixers_as_in.unwrap_or(draft.protocol);
    let variant = draft.entry.default_variant(variants);
    draft.set.variant.default(variant.to_owned(), "the mixer's default under the protocol");
    let variant = draft.set.variant.get().unwrap_or_default();
    draft.entry.check_variant(&variant)?;
    block_options(draft);
    let options = draft.mixer_options(&variant, variants)?;
    let hybrid = hybrid(draft, variants)?;
    dropouts(&mut draft.set);
    if draft.task.objective.is_language_model() {
        language(draft, hybrid.as_ref());
    }
    named_block(draft, hybrid.as_ref());
    check_classifier(draft)?;
    check_warmup(draft)?;
    state_size(draft, &variant, &options)?;
    mixer_sizes(draft, &variant, hybrid.as_ref());
    data_seed(&mut draft.set);
    val_examples(draft);
    let n = leave_out(draft);
    let task = task_config(draft).read()?;
    task.check()?;
    batches(&mut draft.set, &task.sizes());
    let mut config = config(draft, task.config(), &options)?;
    if let Some((entry, hybrid)) = hybrid {
        let layers = config.model.n_layers;
        let needed = hybrid.needs_layer();
        if layers <= needed {
            refuse!(flag "--hybrid" = hybrid, "it names layer {needed}, counted from 0, and --layers is {layers}; give --layers {} or more", needed + 1);
        }
        if !(draft.entry.expands || entry.expands) {
            config.model.d_state = 1;
        }
        config.model.hybrid = Some(hybrid);
    }
    let one_length = reads_one_length(&*task, &config.model);
    kernel_length::fix(&mut config.model, task.sizes().seq_len, one_length)?;
    let learnt = config.model.position_embedding == PositionEmbedding::Learnt;
    if !config.model.positions && !learnt {
        refuse!(flag "--position-embedding" = "sinusoidal", "this model has no embeddings of positions; add --positions true");
    }
    if config.model.d_state == 1 {
        note_n(draft, n);
    }
    note_without_effect(draft);
    let (sizes, positions) = (task.sizes(), config.model.positions);
    if positions && learnt && sizes.test_seq_len > sizes.seq_len {
        draft.notes.push(format!(
            "--test-seq-len {}: the embeddings of positions after the first {} are never trained and stay at random; \
             --position-embedding sinusoidal has them everywhere, and --positions false leaves all of them out",
            sizes.test_seq_len, sizes.seq_len
        ));
    }
    for (entry, model, _) in mixers::of_model(&config.model)? {
        entry.check_sizes(&*model).map_err(|e| of_hybrid(e, entry, &config.model))?;
        mixers::check_state_norm(entry, &model)?;
    }
    Ok(Resolved {
        explained: explained(draft, &options, &config.model.options),
        notes: std::mem::take(&mut draft.notes),
        config,
    })
}

/// Notes that `n`, as it was set, has no effect.
pub(super) fn note_n(draft: &mut Draft, n: Option<usize>) {
    if draft.set.n.is_given() && n != Some(1) {
        let note = "a mixer without a state expansion takes no --n: it is 1 in its runs";
        draft.notes.push(note.to_owned());
    }
}

/// Notes settings of the user that have no effect beside the others.
fn note_without_effect(draft: &mut Draft) {
    let set = &draft.set;
    let layout = set.layout.get();
    let half = set.state_mixer.get().filter(|_| layout != Some(Layout::Mamba));
    let lookup = set.form.get().is_some_and(|form| form.ends_with("lookup"));
    let rotated = set.rotary.get().is_some_and(|rotary| rotary != Rotary::None);
    let no_half = half.is_none_or(|half| half == StateMixer::None);
    let no_width = half.is_none_or(|half| matches!(half, StateMixer::None | StateMixer::Identity | StateMixer::Glu));
    let named = set.state_mixer.is_given() && set.state_mixer.get() != Some(StateMixer::None);
    let rows = [
        (
            set.form.get().is_some() && set.key_tokens.is_given() && !lookup,
            "key-tokens",
            "only the look-up forms have keys",
        ),
        (no_half && named, "state-mixer", "the layout mamba has no feed-forward half"),
        (no_width && set.mlp_width.is_given(), "mlp-width", "there is no feed-forward half with a hidden width"),
        (!rotated && draft.choice.values.contains_key("rotary-dims"), "rotary-dims", "there are no rotary positions"),
    ];
    let said = rows.into_iter().filter(|(without, ..)| *without);
    draft.notes.extend(said.map(|(_, name, why)| format!("--{name} has no effect: {why}")));
}

/// `e` about the sizes of `entry` as one about `--hybrid`, if the layers of a hybrid set these sizes.
fn of_hybrid(e: Error, entry: &Entry, model: &ModelConfig) -> Error {
    let Some(hybrid) = model.hybrid.as_ref().filter(|hybrid| hybrid.mixer == entry.name) else { return e };
    let Diagnostic { flag, reason, .. } = e.diagnostic();
    let name = flag.as_deref().unwrap_or_default();
    let size = match name {
        "--heads" => hybrid.n_heads,
        "--n" => hybrid.d_state,
        "--rotary-dims" if hybrid.d_state.or(hybrid.n_heads).is_some() => {
            let why =
                "its heads have fewer channels than are rotary in the other layers: set --rotary-dims, or other sizes";
            return Error::flag_value("--hybrid", hybrid, why);
        }
        _ => None,
    };
    match size {
        Some(size) => {
            let name = name.trim_start_matches('-');
            Error::flag_value("--hybrid", hybrid, format!("{name}={size} {reason}"))
        }
        None => e,
    }
}

/// Whether the mixers of `model` read sequences of one length only.
fn reads_one_length(task: &dyn Task, model: &ModelConfig) -> bool {
    let padded = model.classifier.as_ref().is_some_and(|c| c.pad_to_longest && !c.mask);
    padded || task.has_one_length()
}

/// Copy of `config` without the kernel lengths that [`finish`] would set again.
pub(super) fn without_kernel_length(config: &RunConfig) -> Result<RunConfig> {
    let mut config = config.clone();
    let task = config.task.read()?;
    let one_length = reads_one_length(&*task, &config.model);
    kernel_length::reopen(&mut config.model, task.sizes().seq_len, one_length)?;
    Ok(config)
}

/// Hybrid layers with all their settings resolved, and the entry of their mixer.
fn hybrid(draft: &Draft, protocol: Protocol) -> Result<Option<(&'static Entry, Hybrid)>> {
    let Some(mut hybrid) = draft.set.hybrid.get() else { return Ok(None) };
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
pub(super) fn dropouts(set: &mut MergedSettings) {
    if let Some(dropout) = set.dropout.get() {
        set.embed_dropout.default(dropout, "as dropout");
        set.attn_dropout.default(dropout, "as dropout");
    }
}

/// Whether the mixer, or that of hybrid layers, has queries and keys that can be rotated.
fn has_rotary(draft: &Draft, hybrid: Option<&(&'static Entry, Hybrid)>) -> bool {
    draft.entry.rotary || hybrid.is_some_and(|(entry, _)| entry.rotary)
}

/// Sets the options of the mixer that a block named as a whole stands for, except where the user or a layer sets them.
fn block_options(draft: &mut Draft) {
    let Some(block) = draft.set.block.get().and_then(|block| block.named) else { return };
    for &(name, value) in block.options {
        if draft.entry.options.iter().any(|option| option.name == name && (option.accepts)(value)) {
            let set = || (value.to_owned(), Origin::Rule(NAMED_BLOCK));
            draft.options.entry(name.to_owned()).or_insert_with(set);
        }
    }
}

/// Sets what a block that is named as a whole stands for, except where the user sets it.
fn named_block(draft: &mut Draft, hybrid: Option<&(&'static Entry, Hybrid)>) {
    let turns = has_rotary(draft, hybrid);
    let set = &mut draft.set;
    let Some(block) = set.block.get() else { return };
    let Some(named) = block.named else { return };
    let parts = named.parts.parse().expect("the parts of a named block are those of a block");
    set.block.record(Some(block.over(&parts)));
    set.layout.rule(named.layout, NAMED_BLOCK);
    set.state_mixer.rule(named.state_mixer, NAMED_BLOCK);
    set.positions.rule(named.positions, NAMED_BLOCK);
    set.rotary.rule(if named.rotary && turns { Rotary::Pre } else { Rotary::None }, NAMED_BLOCK);
    set.mlp_width.rule(named.mlp_width(set.d.get().unwrap_or(1)), NAMED_BLOCK);
}

/// Fails if a classifier gets a layout that it has not, or the ends of a language model.
fn check_classifier(draft: &Draft) -> Result<()> {
    let layout = draft.set.layout.get().filter(|layout| !layout.is_of_classifiers());
    if let (Objective::Pooled, Some(layout)) = (draft.task.objective, layout) {
        let name = if layout == Layout::Mamba { "mamba" } else { "parallel" };
        let flag = if draft.choice.values.contains_key("layout") { "--layout" } else { "--block" };
        refuse!(
            flag(flag) = name,
            "classifiers here have no layout {name}; give transformer, shared, prenorm, postnorm or hawk to --layout"
        );
    }
    let Some(block) = draft.set.block.get().filter(|_| draft.task.objective == Objective::Pooled) else {
        return Ok(());
    };
    let ends = block.tie.is_some() || block.embed_scale.is_some() || block.embed_norm || block.logit_cap.is_some();
    if ends {
        refuse!(flag "--block" = block, "tie, embed-scale, embed-norm and logit-cap are parts of language models; a classifier has none of them");
    }
    Ok(())
}

/// Sets widths that follow from d, heads and the tokenizer in a language model of text.
fn language(draft: &mut Draft, hybrid: Option<&(&'static Entry, Hybrid)>) {
    let turns = has_rotary(draft, hybrid);
    let set = &mut draft.set;
    let known = set.tokenizer.get().and_then(|tokenizer| table_rows(&tokenizer));
    if let Some(rows) = known.or(draft.choice.tokenizer_rows) {
        set.vocab_size.default(rows, "the rows that the tokenizer needs");
    }
    let d = set.d.get().unwrap_or(1);
    if set.d.is_given() {
        set.mlp_width.rule(4 * d, "4 d");
    }
    let heads = set.heads.get().unwrap_or(1);
    let both = [Some(draft.entry), hybrid.map(|(entry, _)| *entry)];
    if both.into_iter().flatten().any(|entry| entry.family.is_attention()) {
        set.n.default(d, "d, as in attention");
    } else {
        // With n = d / heads, the width of one head, the state is as large as that of linear attention.
        let n = (d / heads.max(1)).max(1);
        set.n.default(n, "d / heads, a state of linear attention's size");
    }
    if turns {
        set.rotary.default(Rotary::Pre, "before the feature map");
    } else {
        set.rotary.default(Rotary::None, "the mixer has nothing that positions could turn");
    }
}

fn check_warmup(draft: &Draft) -> Result<()> {
    let constant = draft.set.schedule.get() == Some(Schedule::WarmupConstant);
    if draft.set.warmup_epochs.is_given() && constant && draft.protocol == Protocol::Paper {
        refuse!(flag "--warmup-epochs", "protocol paper warms up over a tenth of all steps; leave it out");
    }
    Ok(())
}

/// Sets the data seed to the run's seed, unless a layer or the user fixes it.
fn data_seed(set: &mut MergedSettings) {
    if set.data.get().is_some_and(|data| data == "files") {
        set.data_seed.default(0, "no meaning for examples from files");
    } else if let Some(seed) = set.seed.get() {
        set.data_seed.default(seed, "as seed: every seed draws its own examples");
    }
}

/// Sets the size of a generated validation set to that of the test set, unless a layer or the user sets it.
fn val_examples(draft: &mut Draft) {
    if draft.task.objective != Objective::PerToken {
        return;
    }
    if let Some(tested) = draft.set.test_examples.get() {
        draft.set.val_examples.default(tested, "as many as test examples");
    }
}

/// Sets n so that the state of all layers has about as many numbers as wanted, unless it keeps tokens, as that of attention.
///
/// # Errors
///
/// The user sets n as well, or hybrid layers, or no n suits the heads.
fn state_size(draft: &mut Draft, variant: &str, options: &BTreeMap<String, String>) -> Result<()> {
    let set = &draft.set;
    let Some(wanted) = set.state_size.get() else { return Ok(()) };
    let asked = set.state_size.is_given();
    if asked && set.n.is_given() {
        refuse!(flag "--state-size" = wanted, "it determines n, which --n sets: give one of the two");
    }
    if asked && set.hybrid.get().is_some() {
        refuse!(flag "--state-size" = wanted, "the layers of a hybrid have states of several sizes: set --n");
    }
    if set.n.is_fixed() {
        return Ok(());
    }
    let mixer = draft.entry.name;
    if !draft.entry.expands || draft.entry.family == Family::Attention {
        if asked {
            draft
                .notes
                .push(format!("--state-size has no effect on {mixer}: n does not determine the size of its state"));
        }
        return Ok(());
    }
    let (d, layers) = (set.d.get().unwrap_or(1), set.layers.get().unwrap_or(1));
    let (seq_len, heads) = (set.seq_len.get().unwrap_or(1), set.heads.get().unwrap_or(1));
    let state_of = |n: usize| -> Option<usize> {
        let model = ModelConfig {
            options: options.clone(),
            d_state: n,
            n_heads: heads,
            expand: set.expand.get(),
            short_conv: set.short_conv.get().unwrap_or(false),
            ..ModelConfig::bare(mixer, variant, [d, layers])
        };
        draft.entry.check_sizes(&model).ok()?;
        let mixer = draft.entry.build(&model, &Params::without_values(DType::F32)).ok()?;
        let [short, long] = [seq_len, 2 * seq_len].map(|seq_len| mixer.state_size(seq_len));
        (short == long).then_some(layers * long)
    };
    let ratio = |state: usize| state as f64 / wanted as f64;
    let sizes = (0..=MOST_DOUBLINGS).map(|doublings| 1 << doublings);
    let states = sizes.filter_map(|n| Some((n, state_of(n)?)));
    match states.min_by(|(_, a), (_, b)| ratio(*a).ln().abs().total_cmp(&ratio(*b).ln().abs())) {
        Some((n, state)) => {
            if asked && !(1.0 / FAR_OFF..=FAR_OFF).contains(&ratio(state)) {
                draft
                    .notes
                    .push(format!("--state-size {wanted}: {mixer} comes nearest with {state} numbers, at n = {n}"));
            }
            draft.set.n.rule(n, "the power of two whose state is nearest to the setting state-size");
        }
        None if asked => {
            refuse!(flag "--state-size" = wanted, "no n from 1 to {MOST_N} that is a power of two suits --heads {heads}: set --n");
        }
        None => {}
    }
    Ok(())
}

/// Sets sizes that the mixer does not use to 1, or removes them.
fn mixer_sizes(draft: &mut Draft, variant: &str, hybrid: Option<&(&'static Entry, Hybrid)>) {
    let (entry, set) = (draft.entry, &mut draft.set);
    let other = |has: fn(&Entry) -> bool| hybrid.is_some_and(|(entry, _)| has(entry));
    if !(entry.heads || other(|entry| entry.heads)) {
        set.heads.rule(1, "the mixer has no heads");
    }
    if !(entry.widens && variant == entry.variants[0] || other(|entry| entry.widens)) {
        set.expand.unset();
    }
    let expands = entry.expands || other(|entry| entry.expands);
    let width = if expands { set.n.get().unwrap_or(1) / set.heads.get().unwrap_or(1).max(1) } else { 1 };
    let rotated = set.rotary.get().is_some_and(|rotary| rotary != Rotary::None);
    // The channels of a config stay, unless what they follow from is changed beside it.
    let changed = set.rotary.is_given() || set.n.is_given() || set.heads.is_given() || set.d.is_given();
    let keeps = rotated && set.rotary_dims.is_fixed() && !changed;
    match draft.task.objective {
        _ if keeps => {}
        Objective::NextToken => {
            let dims = if rotated { rotary_dims(width) } else { 0 };
            set.rotary_dims.rule(dims, "a fourth of a head, in pairs");
        }
        Objective::PerToken | Objective::Pooled if rotated => {
            set.rotary_dims.rule((width / 2 * 2).max(2), "the whole head, in pairs");
        }
        Objective::PerToken | Objective::Pooled => {
            set.rotary.record(None);
            set.rotary_dims.record(None);
        }
    }
}

/// Leaves out of the config what has no effect there, and returns n as it was set.
pub(super) fn leave_out(draft: &mut Draft) -> Option<usize> {
    let set = &mut draft.set;
    let n = set.n.get();
    // The other mixer of a hybrid may use it.
    if !draft.entry.expands && set.hybrid.get().is_none() {
        set.n.rule(1, "n has no effect on the state of this mixer");
        set.n.record(n.map(|_| 1));
    }
    // Mixers without a rule of their authors start as in the released model, and classifiers have no rule of PyTorch.
    let has_rule = draft.entry.authors_init.is_some() || set.hybrid.get().is_some();
    let has_torch = draft.task.objective != Objective::Pooled;
    set.map_init.record(set.map_init.get().filter(|init| match init {
        MapInit::Released => false,
        MapInit::Authors => has_rule,
        MapInit::Torch => has_torch,
    }));
    // A recipe's kind of position embedding.
    if set.positions.get() == Some(false) {
        set.position_embedding.unset();
    }
    set.short_conv.record(set.short_conv.get().filter(|precedes| *precedes));
    set.state_norm.record(set.state_norm.get().filter(|follows| *follows));
    // Language models always state these two; tables are shared in all others.
    let says_decay = draft.task.objective.is_language_model();
    let block = set.block.get().map(|block| BlockConfig { tie: block.tie.filter(|tie| *tie == says_decay), ..block });
    set.block.record(block.filter(|block| !block.is_default()));
    if draft.task.objective == Objective::PerToken {
        let d = set.d.get().unwrap_or(1);
        set.mlp_width.record(set.mlp_width.get().filter(|width| *width != 4 * d));
    }
    set.decay.record(set.decay.get().filter(|decay| says_decay || *decay != Decay::All));
    // The hard set of Pathfinder is the default.
    set.contour_length.record(set.contour_length.get().filter(|length| *length != HARD_CONTOUR));
    n
}

/// Number of channels with rotary positions in a head of this width, an even number.
pub(super) fn rotary_dims(width: usize) -> usize {
    (width / ROTARY_SHARE / 2 * 2).max(2)
}

/// Sets batch sizes for a fixed number of tokens, and micro-batches that fit into memory.
pub(super) fn batches(set: &mut MergedSettings, task: &ExampleSizes) {
    if let (Some(tokens), Some(most)) = (set.tokens_per_step.get(), set.largest_batch.get()) {
        let batch = (tokens / task.seq_len.max(1)).clamp(1, most.max(1));
        set.batch_size.default(batch, "as many tokens a step at every length");
    }
    if let Some(tokens) = set.tokens_at_once.get() {
        let fitting = (tokens / task.tokens_per_example().max(1)).max(1);
        set.micro_batch.default(fitting, "as many tokens as fit at one time");
    }
    // A whole batch is no micro-batch.
    let batch = set.batch_size.get();
    set.micro_batch.record(set.micro_batch.get().filter(|micro| Some(*micro) < batch));
}

/// Settings of the run, with their JSON pointers and values in the config.
fn settings_in_config<'a>(draft: &'a Draft) -> impl Iterator<Item = (&'static Setting, String, Value)> + use<'a> {
    let (objective, fields) = (draft.task.objective, draft.task.fields);
    draft.choice.settings.iter().filter_map(move |setting| {
        let at = setting.pointer(objective)?;
        let known = |at: &str| at.strip_prefix(TASK).is_none_or(|field| fields.contains(&field));
        let (value, _) = draft.set.get(setting.name)?;
        known(&at).then_some((setting, at, value))
    })
}

pub(super) fn task_config(draft: &Draft) -> TaskConfig {
    let fields = settings_in_config(draft).filter_map(|(_, at, value)| {
        let field = at.strip_prefix(TASK)?.to_owned();
        Some((field, value))
    });
    TaskConfig::new(draft.task.name, &fields.collect::<Map<_, _>>())
}

pub(super) fn config(draft: &Draft, task: TaskConfig, options: &BTreeMap<String, String>) -> Result<RunConfig> {
    let mut document = json!({
        "format": FORMAT,
        "task": task,
        "model": { "options": options },
        "train": {},
    });
    if draft.choice.initial.is_some() {
        document["from"] = json!({});
    }
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
    serde_json::from_value(document).map_err(|e| no_run(draft.task, &e))
}

/// Explains all settings and options. `options` are the mixer's before the task fixed kernel lengths, `decided` those
/// after it.
pub(super) fn explained(
    draft: &Draft,
    options: &BTreeMap<String, String>,
    decided: &BTreeMap<String, String>,
) -> Vec<Explained> {
    let settings = settings_in_config(draft).filter_map(|(setting, _, value)| {
        Some(Explained { name: setting.name.to_owned(), value, origin: draft.set.get(setting.name)?.1.clone() })
    });
    let decided = decided.iter().map(|(name, value)| {
        let by_task = (options.get(name) != Some(value)).then_some(Origin::Rule("the task's --seq-len"));
        let given = draft.choice.options.get(name).map(|(_, place)| Origin::Given(place.clone()));
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
