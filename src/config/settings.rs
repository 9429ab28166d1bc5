//! Table of all settings of a run, one row per setting.
//!
//! [`SETTINGS`] is the single source of the flags of `dsf mqar`, `dsf lra`, `dsf wikitext` and `dsf sweep` with their
//! help and completions, the axes of a grid, the keys of experiment files and recipes, the rejection of flags that do
//! not apply to a task, `--explain` and the columns of a summary.

use super::column::{Absent, Role, SettingColumn, Summary};
use super::help_group::HelpGroup;
use super::objective::Objective;
use super::value_kind::ValueKind;
use super::Protocol;
use crate::error::{refuse, Result};
use serde_json::Value;
use std::collections::BTreeSet;

/// One setting of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Long name of the flag and key of an experiment file, e.g. `seq-len`.
    pub name: &'static str,
    /// Field of the run's config that the setting fills.
    pub at: At,
    /// Values that the setting accepts.
    pub kind: ValueKind,
    /// Heading under which help lists the setting.
    pub group: HelpGroup,
    /// Meaning, in half a line of help. Empty for settings that only recipes set.
    pub help: &'static str,
    /// Further sentences of `--help`, each for tasks of some objectives.
    pub more: &'static [(&'static [Objective], &'static str)],
    /// Names accepted by tasks of some objectives, if these are not all names of the kind.
    pub names_of: &'static [(&'static [Objective], &'static [&'static str])],
    /// Objectives of the tasks for which users set it; recipes may set any field that the config has.
    pub of: &'static [Objective],
    /// Commands whose `-h` lists the setting.
    pub brief: Brief,
    /// Other names of the flag.
    pub aliases: &'static [&'static str],
    /// Other settings that follow from this one.
    pub decides: Decides,
    /// Meaning of a config that leaves the setting out.
    pub omitted: Omitted,
    /// Appearance in the list of a sweep's settings.
    pub listed: Listed,
    /// Placement in summaries.
    pub summary: Summary,
}

/// Commands whose `-h` lists a setting; `--help` lists all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brief {
    /// No command.
    Never,
    /// Commands that train one run.
    OfOneRun,
    /// Commands that train one run, and `dsf sweep`.
    OfSweeps,
}

/// Other settings that follow from a setting, in the order in which a run's command is made: those that decide the
/// most come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decides {
    /// The default preset of the task, and the files that are read.
    Data,
    /// Defaults of other settings, all of which a config has fixed.
    Defaults,
    /// The seed of the data.
    Seeds,
    /// The files that are read, whose digest a config holds.
    Files,
    /// Both settings, unless they are set themselves.
    Both([&'static str; 2]),
    /// None.
    Nothing,
}

impl Decides {
    /// Settings of a config that no longer hold once the setting is chosen beside it.
    pub fn replaced(&self) -> &[&'static str] {
        match self {
            Self::Data | Self::Files => &["source-digest"],
            Self::Both(names) => names,
            Self::Defaults | Self::Seeds | Self::Nothing => &[],
        }
    }
}

/// Meaning of a config that leaves a setting out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omitted {
    /// The setting does not apply to the run.
    Absent,
    /// The setting has this value, which stays fixed if the config is trained again.
    Is(&'static str),
    /// The setting has the value of this one.
    As(&'static str),
    /// The setting has its neutral value, which lists of settings call this.
    Neutral(&'static str),
}

/// Appearance of a setting in the list of a sweep's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// By its flag, if runs differ in it.
    Varied,
    /// By this short name, even if all runs have one value.
    Always(&'static str),
    /// Always, by a short name; the second text stands for zero.
    AlwaysOr(&'static str, &'static str),
    /// Always, by a short name; with the second setting, if runs have it, as one value under the third name.
    AlwaysWith(&'static str, &'static str, &'static str),
    /// In the value of another setting.
    Within,
    /// If runs of one task, data set, protocol and mixer differ in it; else it follows from these.
    Chosen,
    /// By the value of this setting.
    As(&'static str),
}

/// Place of a setting in a run's config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Field at the top level, such as `seed`.
    Run(&'static str),
    /// Field of the task, if the task has it.
    Task(&'static str),
    /// Field of the model.
    Model(&'static str),
    /// Field of the classifier around pooled outputs.
    Classifier(&'static str),
    /// Field of a language model of text.
    Language(&'static str),
    /// Field of the classifier, of the language model of text, or of the model itself.
    Body(&'static str),
    /// Field of the training.
    Train(&'static str),
    /// Field of AdamW, for objectives that do not use the released optimiser.
    Adam(&'static str),
    /// Field of the weights that a language model of text starts from.
    From(&'static str),
    /// One field of language models of text, and another of all other models.
    TextOr(&'static At, &'static At),
    /// No field: rules compute other settings from it.
    Rule,
    /// No field: the flag gives values to other settings.
    Others,
}

/// Properties of a task that determine which settings apply to it.
#[derive(Clone, Copy, Debug)]
pub struct SettingScope<'a> {
    /// Name of the task.
    pub task: &'a str,
    /// Objective of the task.
    pub objective: Objective,
    /// Fields of the task's config.
    pub fields: &'a [&'a str],
}

/// Rows of settings, in the order of help.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings(&'static [Setting]);

/// The settings of the program.
impl Default for Settings {
    fn default() -> Self {
        SETTINGS
    }
}

impl Settings {
    /// Returns the setting called `name`.
    pub fn find(self, name: &str) -> Option<&'static Setting> {
        self.iter().find(|setting| setting.name == name)
    }

    /// All settings, in the order of help.
    pub fn iter(self) -> impl Iterator<Item = &'static Setting> {
        self.0.iter()
    }

    /// Settings that have a flag.
    pub fn typed(self) -> impl Iterator<Item = &'static Setting> {
        self.iter().filter(|setting| setting.is_typed())
    }

    /// These settings with `setting` before them, for tests of the effect of a row.
    #[cfg(test)]
    pub(crate) fn after(self, setting: Setting) -> Self {
        Self([&[setting], self.0].concat().leak())
    }
}

/// Any whole number that JSON numbers of a config hold.
const ANY: ValueKind = ValueKind::Whole(0, u64::MAX);
const SIZE: ValueKind = ValueKind::Whole(1, 65_536);
const LAYERS: ValueKind = ValueKind::Whole(1, 1_000);
const EPOCHS: ValueKind = ValueKind::Whole(1, 1_000_000);
const LAYOUTS: ValueKind =
    ValueKind::OneOf(&["transformer", "mamba", "shared", "prenorm", "postnorm", "hawk", "parallel"]);
const STATE_MIXERS: ValueKind =
    ValueKind::OneOf(&["none", "identity", "mlp", "glu", "gated-mlp", "channel-mix", "shifted-mlp"]);
const SKILLS: ValueKind =
    ValueKind::OneOf(&["recall", "noisy-recall", "fuzzy-recall", "copying", "compression", "memorization"]);
const GROUPS: ValueKind = ValueKind::OneOf(&["z2", "z3", "z5", "z60", "s3", "a4xz5", "s4", "a5", "s5"]);
const EVERY: &[Objective] = &Objective::ALL;
const LABELS: &[Objective] = &[Objective::PerToken];
const POOLED: &[Objective] = &[Objective::Pooled];
const TEXT: &[Objective] = &[Objective::NextToken];
const SCORED: &[Objective] = &[Objective::PerToken, Objective::Pooled];

const fn row(name: &'static str, at: At, kind: ValueKind, group: HelpGroup, help: &'static str) -> Setting {
    let of = match at {
        At::Classifier(_) => POOLED,
        At::Language(_) | At::Adam(_) | At::From(_) => TEXT,
        At::Body(_)
        | At::Run(_)
        | At::Task(_)
        | At::Model(_)
        | At::Train(_)
        | At::TextOr(..)
        | At::Rule
        | At::Others => EVERY,
    };
    Setting {
        name,
        at,
        kind,
        group,
        help,
        more: &[],
        names_of: &[],
        of,
        brief: Brief::Never,
        aliases: &[],
        decides: Decides::Nothing,
        omitted: Omitted::Absent,
        listed: Listed::Varied,
        summary: Summary::AsFlag,
    }
}

const fn column(absent: Absent, meaning: &'static str) -> SettingColumn {
    SettingColumn::new(absent, meaning)
}

impl Setting {
    const fn common(self) -> Self {
        Self { brief: Brief::OfOneRun, ..self }
    }

    const fn of_sweeps(self) -> Self {
        Self { brief: Brief::OfSweeps, ..self }
    }

    const fn of(self, of: &'static [Objective]) -> Self {
        Self { of, ..self }
    }

    const fn decides(self, decides: Decides) -> Self {
        Self { decides, ..self }
    }

    const fn omitted(self, omitted: Omitted) -> Self {
        Self { omitted, ..self }
    }

    const fn listed(self, listed: Listed) -> Self {
        Self { listed, ..self }
    }

    const fn also(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    const fn more(self, more: &'static [(&'static [Objective], &'static str)]) -> Self {
        Self { more, ..self }
    }

    const fn accepting(self, names_of: &'static [(&'static [Objective], &'static [&'static str])]) -> Self {
        Self { names_of, ..self }
    }

    const fn shown(self, column: SettingColumn) -> Self {
        Self { summary: Summary::Column(column), ..self }
    }

    const fn shown_in(self, column: &'static str) -> Self {
        Self { summary: Summary::In(column), ..self }
    }
}

/// All settings, in the order of help. A grid varies the first slowest.
#[rustfmt::skip]
pub static SETTINGS: Settings = {
    use Absent::{Empty, Is, Required, Where};
    use Decides::{Both, Data, Defaults, Files, Seeds};
    use HelpGroup::{Classifier, Language, Model, Recipe, Task, Training};
    use ValueKind::{Accuracy, Bool, CountOf, Decay, MixerOption, Name, Norm, NotNegative, Number, OneOf, Pair, Positive, Share, Tokenizer, Weights, Whole};
    use Listed::{Always, AlwaysOr, AlwaysWith, Chosen, Within};
    use Omitted::Neutral;
    use Role::{Cell, Rate, Seed};
    Settings(&[
        row("dataset", At::Task("dataset"), OneOf(&["listops", "text", "retrieval", "image", "pathfinder", "path-x", "path-x-256"]), Task,
            "Task of the Long Range Arena").common()
            .decides(Data).listed(Always("dataset"))
            .shown(column(Empty, "task of the Long Range Arena, or corpus of a text")),
        row("skill", At::Task("skill"), SKILLS, Task,
            "Skill that the task of MAD tests").common()
            .decides(Data).listed(Within)
            .shown_in("dataset"),
        row("picture", At::Task("picture"), OneOf(&["mnist", "cifar"]), Task,
            "Pictures that are read pixel by pixel").common()
            .decides(Data).listed(Within)
            .shown_in("dataset"),
        row("permuted", At::Task("permuted"), Bool, Task,
            "Read the pixels in a fixed random order")
            .omitted(Neutral("false"))
            .shown(column(Empty, "pixels in a fixed random order: true")),
        row("group", At::Task("group"), GROUPS, Task,
            "Group whose products are tracked")
            .more(&[(LABELS, "`z2` is parity, `z3`, `z5` and `z60` are sums, and s3, s4, a4xz5, a5 and s5 do not commute.")])
            .common()
            .listed(Always("group"))
            .shown(column(Empty, "group whose products are tracked")),
        row("form", At::Task("form"), OneOf(&["delayed", "string", "suffix-lookup", "prefix-lookup"]), Task,
            "Form of the copying task")
            .more(&[(LABELS, "`delayed` answers at markers, `string` reads the copy while it is written, the look-ups ask for the tokens \
                after a key that comes last or first.")])
            .common()
            .listed(Always("form"))
            .shown(column(Empty, "form of the copying task")),
        row("mixer", At::Model("mixer"), ValueKind::Mixer, Model,
            "Sequence mixer, one of `dsf mixers`").of_sweeps()
            .decides(Defaults).listed(Always("mixer"))
            .shown(column(Required, "sequence mixer")),
        row("from-digest", At::From("digest"), Name, Recipe, "")
            .shown(column(Empty, "digest of the weights that the run starts from: twelve hex digits; empty for random weights")),
        row("from", At::From("name"), Weights, Model,
            "Fine-tune the weights of MODEL")
            .more(&[(TEXT, "A file of weights, a run's folder or id, the folder of a Hugging Face model, or its name on the hub, OWNER/NAME or \
                OWNER/NAME@REVISION. Model and tokenizer are those of MODEL.")])
            .decides(Defaults)
            .shown(column(Empty, "name of the weights that the run starts from, as typed").role(Role::Origin)),
        row("variant", At::Model("variant"), Name, Model,
            "Variant of the mixer")
            .more(&[(EVERY, "`dsf mixers` lists the variants; the default depends on the protocol.")])
            .decides(Defaults)
            .shown(column(Required, "variant of the mixer")),
        row("protocol", At::Run("protocol"), ValueKind::Protocol, Model,
            "Block and training around the mixer")
            .more(&[(EVERY, "`reference` follows the released configs, `paper` appendix J of the paper, `matched` uses one block for every mixer.")])
            .of_sweeps()
            .decides(Defaults).listed(Always("protocol"))
            .shown(column(Required, "paper, reference or matched")),
        row("d", At::Model("d_model"), SIZE, Model,
            "Model width d").of_sweeps().also(&["d-model"])
            .listed(Always("d"))
            .shown(column(Required, "embedding width").role(Cell)),
        row("n", At::Model("d_state"), SIZE, Model,
            "State expansion n")
            .more(&[(EVERY, "States per channel; query and key width of attention.")])
            .of_sweeps().also(&["d-state"])
            .listed(Always("n"))
            .shown(column(Required, "state expansion; query and key width of attention").role(Cell)),
        row("state-size", At::Rule, Whole(1, 1 << 30), Model,
            "Set n so that the model keeps about this many numbers of a sequence")
            .more(&[(EVERY, "Takes the power of two up to 1,024 whose state, over all layers and with short convolutions, is nearest, in place of \
                --n. Mixers without a state expansion keep theirs, and so does attention, whose state grows with every token.")])
            .decides(Defaults).listed(Within),
        row("heads", At::Model("n_heads"), SIZE, Model,
            "Number of heads s, which divides d and n")
            .shown(column(Required, "number of heads")),
        row("layers", At::Model("n_layers"), LAYERS, Model,
            "Number of blocks, each with one mixer")
            .shown(column(Required, "number of blocks")),
        row("mlp-width", At::Body("mlp_width"), Whole(1, 1 << 20), Model,
            "Hidden width of feed-forward layers")
            .more(&[(POOLED, "The classification head has the same width.")])
            .shown(column(Empty, "hidden width of feed-forward layers and heads")),
        row("expand", At::Model("expand"), Number, Model,
            "Expansion factor, inner width over d")
            .more(&[(EVERY, "For mixers with an inner width, such as mamba and rg-lru.")])
            .shown(column(Empty, "expansion factor: inner width over d, for mixers with an inner width")),
        row("option", At::Others, MixerOption, Model,
            "An option of one mixer, e.g. `dt_init=zero`; see `dsf mixers`"),
        row("hybrid", At::Model("hybrid"), ValueKind::Layers, Model,
            "Layers of another mixer, NAME:every=K,offset=J")
            .more(&[(EVERY, "Replaces layers J, J+K and so on, counted from 0; J defaults to K/2, and `attention` means softmax; `layers=I+J` \
                lists layers instead. `heads`, `n` and further NAME=VALUE set sizes, variant and options of that mixer.")])
            .shown(column(Empty, "layers of another mixer, counted from 0")),
        row("block", At::Model("block"), ValueKind::Block, Model,
            "Block around the mixer, e.g. `transformer++`, and parts of it")
            .more(&[(EVERY, "gpt, transformer++, mamba, griffin, transnormer or parallel; after it, or alone, NAME=VALUE,.. of norm (layer, \
                rms, rms-offset, simple-rms), eps, activation (gelu, gelu-tanh, silu, identity), bias, tie, embed-scale, embed-norm, logit-cap, rotary-base, \
                rescale-every. What is left out stays as in the layout.")])
            .omitted(Neutral("as in the layout"))
            .shown(column(Empty, "parts of the block that differ from those of its layout")),
        row("short-conv", At::Model("short_conv"), Bool, Model,
            "Put a short convolution before the mixer")
            .more(&[(EVERY, "A causal convolution over four tokens of each channel, then SiLU, as inside Mamba. A mixer that has one inside \
                then has two.")])
            .omitted(Neutral("false"))
            .shown(column(Empty, "true if a short convolution precedes the mixer")),
        row("map-init", At::Model("map_init"), OneOf(&["released", "authors", "torch"]), Model,
            "Initial values of linear maps")
            .more(&[(EVERY, "`released`: those of the model around it; `authors`: those of the mixer's authors, if they have a rule of their \
                own (mamba, mamba2, ssd-mamba2, mlstm-block, slstm-block); `torch`: PyTorch's default, in the maps of blocks and head.")])
            .omitted(Neutral("released"))
            .shown(column(Empty, "authors or torch if linear maps start by the rule of the mixer's authors, or by PyTorch's default")),
        row("state-norm", At::Model("state_norm"), Bool, Model,
            "Put an RMS norm of each head after the mixer's state")
            .more(&[(EVERY, "In front of the output gate and the output map, with a trained gain. Mixers that have a norm there are \
                refused, as are those whose state no output map reads alone.")])
            .omitted(Neutral("false"))
            .shown(column(Empty, "true if an RMS norm of each head follows the mixer's state")),
        row("layout", At::Model("layout"), LAYOUTS, Model,
            "Arrangement of mixer, norms and feed-forward half")
            .more(&[(EVERY, "`transformer`: norm, mixer, add, norm, feed-forward, add; `mamba`: norm, mixer, add; `parallel`: mixer and \
                feed-forward side by side; `shared`, `prenorm`, `postnorm` and `hawk` are those of the released classifiers.")])
            .listed(Chosen)
            .shown(column(Required, "residual layout of a block")),
        row("state-mixer", At::Model("state_mixer"), STATE_MIXERS, Model,
            "Feed-forward half of the block, after the mixer")
            .more(&[(EVERY, "`gated-mlp` is SwiGLU with --block activation=silu, `channel-mix` that of RWKV-4, `shifted-mlp` that of \
                RWKV-7; the layout `mamba` has none.")])
            .listed(Chosen)
            .shown(column(Required, "feed-forward half of a block, after the mixer")),
        row("positions", At::Model("positions"), Bool, Model,
            "Add position embeddings")
            .more(&[(LABELS, "Learnt embeddings do not extend beyond the positions seen in training.")])
            .of(LABELS).listed(Chosen)
            .shown(column(Required, "whether the model has position embeddings")),
        row("n-positions", At::Model("n_positions"), ANY, Recipe, "")
            .shown(column(Empty, "positions of the weights that the run starts from, if they are more than tokens per example")),
        row("position-embedding", At::Model("position_embedding"), OneOf(&["learnt", "sinusoidal"]), Model,
            "Kind of position embedding")
            .more(&[(LABELS, "Sinusoidal embeddings (Vaswani et al. 2017) have no parameters and exist at every position.")])
            .of(LABELS).omitted(Neutral("learnt"))
            .shown(column(Empty, "kind of position embeddings, if they are not learnt: sinusoidal")),

        row("corpus", At::Task("corpus"),
            OneOf(&["wikitext-103-raw", "wikitext-103", "wikitext-2-raw", "wikitext-2", "text", "sample"]), Task,
            "Corpus of text")
            .more(&[(TEXT, "One of the WikiTexts, `text` for train.txt, valid.txt and test.txt in --data-dir, or the built-in `sample`.")])
            .common()
            .decides(Data).listed(Within)
            .shown_in("dataset"),
        row("source-digest", At::Task("source_digest"), Name, Recipe, "")
            .shown(column(Empty, "digest of the files that the task reads: twelve hex digits; empty for generated data")),
        row("tokenizer", At::Task("tokenizer"), Tokenizer, Task,
            "bytes, gpt-neox or a tokenizer.json").common()
            .shown(column(Empty, "tokenizer: bytes, gpt-neox, or the digest of another tokenizer's file")),
        row("eos-between-articles", At::Task("eos_between_articles"), Bool, Language,
            "Put the tokenizer's end-of-text token before each article")
            .shown(column(Where("tokenizer", &[], "false"), "whether the end-of-text token precedes each article")),
        row("seq-len", At::Task("seq_len"), ANY, Task,
            "Sequence length L, in tokens")
            .more(&[(POOLED, "Length of the longest document, including its end token.")])
            .of_sweeps()
            .listed(AlwaysWith("L", "kv-pairs", "L:k"))
            .shown(column(Required, "tokens per example, L").unit("tokens")),
        row("test-seq-len", At::Task("test_seq_len"), ANY, Task,
            "Sequence length of the test, in tokens")
            .more(&[(LABELS, "Default: the training length.")])
            .omitted(Neutral("as L"))
            .shown(column(Empty, "tokens per test example, if different from training").unit("tokens")),
        row("copy-tokens", At::Task("copy_tokens"), ANY, Task,
            "Tokens to copy, at most L / 2").common()
            .omitted(Neutral("by L")).listed(Chosen)
            .shown(column(Empty, "tokens to copy per example of a copying task")),
        row("noise", At::Task("noise"), Share, Task,
            "Share of the pairs that are noise, in noisy recall")
            .listed(Chosen)
            .shown(column(Empty, "share of the pairs that are noise, in noisy recall")),
        row("kv-pairs", At::Task("kv_pairs"), ANY, Task,
            "Key-value pairs k, at most L / 4").of_sweeps()
            .listed(Within)
            .shown(column(Is("0"), "key-value pairs per example, k")),
        row("sizes", At::Others, Pair(["seq-len", "kv-pairs"]), Task,
            "L and k together, e.g. `64:4,128:8`, in place of --seq-len and --kv-pairs"),
        row("key-tokens", At::Task("key_tokens"), Whole(1, 8), Task,
            "Tokens of a key")
            .more(&[(LABELS, "Default: 1; in the look-ups of `dsf copying` 3.")])
            .omitted(Neutral("default"))
            .shown(column(Empty, "tokens per key, if several")),
        row("overwrites", At::Task("overwrites"), ANY, Task,
            "Number of pairs that are shown again with a new value, which is the answer")
            .omitted(Neutral("0"))
            .shown(column(Empty, "pairs per example that are shown again with another value")),
        row("passes", At::Task("passes"), ANY, Task,
            "Number of times that all pairs are shown, each time in a new order")
            .omitted(Neutral("1"))
            .shown(column(Empty, "number of times that all pairs of an example are shown, if several")),
        row("vocab-size", At::Task("vocab_size"), ANY, Task,
            "Vocabulary size V, in tokens")
            .more(&[(TEXT, "Default: the size of the tokenizer.")])
            .listed(AlwaysOr("V", ""))
            .shown(column(Is("0"), "vocabulary size, V")),
        row("train-examples", At::Task("train_examples"), ANY, Task,
            "Training examples")
            .more(&[(LABELS, "Every epoch uses the same examples, unless --fresh-examples is true."), (POOLED, "Every epoch uses the same examples."), (TEXT, "The first windows of the text; 0 takes all.")])
            .common()
            .listed(AlwaysOr("examples", "all"))
            .shown(column(Is("0"), "training examples, or windows of a text; 0 for all windows")),
        row("fresh-examples", At::Task("fresh_examples"), Bool, Task,
            "Draw new training examples in every epoch")
            .more(&[(LABELS, "No example is seen twice, and nothing can be learnt by heart. Needs the generator of dsf.")])
            .omitted(Neutral("false"))
            .shown(column(Empty, "true if every epoch has new training examples")),
        row("test-examples", At::Task("test_examples"), ANY, Task,
            "Test examples")
            .more(&[(TEXT, "The validation text is cut to the same number; 0 takes all.")])
            .shown(column(Is("0"), "test examples, or windows of the test text and of the validation text; 0 for all windows")),
        row("val-examples", At::Task("val_examples"), ANY, Task,
            "Validation examples, which select the epoch")
            .more(&[(LABELS, "They also stop training (--stop-at) and select the learning rate in reports, so that the test examples \
                select nothing; 0 for none. Default: the number of test examples; under --protocol reference and paper 0, so that the \
                test examples stop training, as in the released code."), (POOLED, "0 for none. Default: the official split.")])
            .omitted(Omitted::Is("0"))
            .shown(column(Empty, "validation examples, which select the epoch")),
        row("data", At::Task("data"), OneOf(&["native", "numpy", "files"]), Task,
            "Source of the examples")
            .more(&[(LABELS, "`native` is the generator of dsf, `numpy` the released one, bit for bit."),
                (POOLED, "`files` reads the released data, `native` generates listops, pathfinder, path-x and path-x-256, \
                    and draws digits and shapes in place of the pictures of MNIST and CIFAR.")])
            .accepting(&[(LABELS, &["native", "numpy"]), (POOLED, &["native", "files"])])
            .decides(Files)
            .shown(column(Empty, "generator of the examples")),
        row("data-seed", At::Task("data_seed"), ANY, Task,
            "Seed of the examples")
            .more(&[(EVERY, "Default: --seed, so that every seed draws its own examples; under --protocol reference 0, the same \
                examples for all seeds, as released.")])
            .shown(column(Is("0"), "seed of the examples")),
        row("contour-length", At::Task("contour_length"), ANY, Classifier,
            "Number of paddles in the long paths of Pathfinder")
            .more(&[(POOLED, "6, 9 or 14 in the released levels, 3 to 14 if generated.")])
            .decides(Files)
            .shown(column(Where("dataset", &["pathfinder", "path-x", "path-x-256"], "14"), "paddles of the long paths of Pathfinder, 14 in the hard set")),

        row("lr", At::Train("lr"), ValueKind::LearningRate, Training,
            "Peak learning rate")
            .more(&[(EVERY, "In `dsf sweep` also `paper`: the rates that the paper tried, if it tried several.")])
            .of_sweeps().also(&["learning-rate"])
            .listed(Always("lr"))
            .shown(column(Required, "peak learning rate").role(Rate)),
        row("epochs", At::Train("epochs"), EPOCHS, Training,
            "Maximum number of epochs").of_sweeps()
            .listed(Always("epochs"))
            .shown(column(Required, "maximum number of epochs").named("epochs_max")),
        row("batch-size", At::Train("batch_size"), EPOCHS, Training,
            "Examples per optimizer step")
            .listed(Always("batch"))
            .shown(column(Required, "examples per step")),
        row("micro-batch", At::Train("micro_batch"), EPOCHS, Training,
            "Examples per forward pass (gradient accumulation)")
            .more(&[(EVERY, "The optimizer step stays the same.")])
            .omitted(Omitted::As("batch-size"))
            .shown(column(Empty, "examples per forward pass (gradient accumulation)")),
        row("weight-decay", At::Train("weight_decay"), NotNegative, Training,
            "Decoupled weight decay of AdamW")
            .shown(column(Required, "decoupled weight decay")),
        row("decay", At::TextOr(&At::Adam("decay"), &At::Train("decay")), OneOf(&["all", "matrices", "maps"]), Training,
            "Parameters with weight decay: all, matrices or maps")
            .more(&[(EVERY, "`matrices`: parameters with two axes or more, as in Pythia; `maps`: linear maps and embeddings, and neither \
                decays, step sizes and kernels of a mixer, nor norms and biases.")])
            .omitted(Neutral("all"))
            .shown(column(Empty, "parameters with weight decay: all (also if empty), matrices or maps")),
        row("precision", At::Train("precision"), OneOf(&["f32", "tf32", "bf16"]), Training,
            "Precision of matrix products: f32, tf32 or bf16")
            .more(&[(EVERY, "Weights and sums are f32 in all of them. bf16 is fastest with AVX512-BF16, AMX or a GPU; on other \
                processors it rounds alike at the speed of f32. tf32 differs from f32 on a GPU and with AMX alone."), 
                (TEXT, "Default on a GPU: bf16.")])
            .omitted(Omitted::Is("f32"))
            .shown(column(Is("f32"), "number format of the computation: f32, tf32 or bf16")),
        row("dropout", At::Classifier("dropout"), Share, Training,
            "Dropout probability")
            .more(&[(LABELS, "Applied to embeddings and attention weights."), (TEXT, "Applied to embeddings and attention weights."), (POOLED, "Applied after embeddings, mixers and feed-forward layers.")])
            .of(EVERY).decides(Both(["embed-dropout", "attn-dropout"])).listed(Listed::As("embed-dropout"))
            .shown(column(Empty, "dropout after mixers and feed-forward layers")),
        row("attn-dropout", At::Model("attn_dropout"), Share, Training,
            "Dropout of attention, if different from --dropout")
            .more(&[(EVERY, "Applied to attention weights."), (POOLED, "Linear and normalized attention apply it to their outputs.")])
            .shown(column(Required, "dropout on attention weights")),
        row("embed-dropout", At::Model("embed_dropout"), Share, Recipe, "")
            .shown(column(Required, "dropout on the embeddings")),
        row("stop-at", At::Train("stop_above"), Accuracy, Training, "Stop above this accuracy, a number from 0 to 1; 1 disables early stopping")
            .more(&[(EVERY, "Measured on the validation examples if there are any, else on the test examples.")])
            .of(SCORED)
            .shown(column(Required, "accuracy above which training stops: on validation examples if there are any, else on test examples").named("stop_above")),

        row("warmup-epochs", At::Train("warmup_epochs"), Whole(0, 1_000_000), Classifier,
            "Epochs of linear learning rate warm-up")
            .of(POOLED).omitted(Omitted::Is("0"))
            .shown(column(Where("input", &[], "0"), "epochs of linear learning rate warm-up")),
        row("input", At::Classifier("input"), OneOf(&["embedding", "scalar"]), Classifier,
            "Tokens as embeddings, or each as one number")
            .shown(column(Empty, "input of tokens: embedding, or scalar (one number)")),
        row("pool", At::Classifier("pool"), OneOf(&["mean", "last", "max"]), Classifier,
            "Pooling over positions")
            .shown(column(Empty, "pooling over positions: mean, last or max")),
        row("mask", At::Classifier("mask"), Bool, Classifier,
            "Exclude padding from pooling")
            .shown(column(Empty, "whether pooling excludes padding")),
        row("dual", At::Classifier("dual"), OneOf(&["logits", "features"]), Classifier,
            "Comparison of two documents")
            .more(&[(POOLED, "By the logits of each, or by their pooled features.")])
            .shown(column(Empty, "comparison of two documents: by logits or features")),
        row("loss", At::Classifier("loss"), OneOf(&["ce", "double-softmax"]), Classifier,
            "Cross-entropy, or cross-entropy of a double softmax")
            .more(&[(POOLED, "The released classifiers apply softmax twice.")])
            .shown(column(Empty, "ce (cross-entropy), or double-softmax as in the released classifiers")),
        row("lambda-skip", At::Classifier("lambda_skip"), Bool, Classifier,
            "Scale skip connections by a learnt scalar")
            .more(&[(POOLED, "One scalar per mixer, as in one released transformer.")])
            .shown(column(Empty, "whether a learnt scalar scales the residual of mixers")),
        row("bidirectional", At::Classifier("bidirectional"), Bool, Classifier,
            "Read documents in both directions")
            .more(&[(POOLED, "Softmax, linear and normalized attention, taylor and performer attend to all tokens of the document and to no padding. Mixers that read in order make a second pass from the last token to the first, with parameters of its own, and the outputs of both passes are summed.")])
            .omitted(Neutral("false"))
            .shown(column(Empty, "true if mixers read the document in both directions")),
        row("head", At::Classifier("head"), OneOf(&["mlp", "linear"]), Recipe, ""),
        row("pad-to-longest", At::Classifier("pad_to_longest"), Bool, Recipe, ""),

        row("rotary", At::TextOr(&At::Language("rotary"), &At::Model("rotary")), OneOf(&["pre", "post", "none"]), Model,
            "Rotary positions before or after the feature map")
            .more(&[(EVERY, "Mixers without queries and keys take `none`.")])
            .omitted(Omitted::Is("none"))
            .shown(column(Empty, "rotary positions: pre (before the feature map), post (after it) or none")),
        row("rotary-dims", At::TextOr(&At::Language("rotary_dims"), &At::Model("rotary_dims")), ANY, Model,
            "Channels of each head with rotary positions")
            .more(&[(TEXT, "Default: a fourth of a head, as in Pythia."), (SCORED, "Default: the whole head.")])
            .shown(column(Empty, "channels of each head with rotary positions")),
        row("init", At::Language("init"), OneOf(&["pythia", "hf"]), Language,
            "Standard deviations of initial weights")
            .more(&[(TEXT, "`pythia`: those of Pythia's training; `hf`: 0.02, as in `transformers`.")])
            .shown(column(Empty, "initialisation scheme: pythia or hf")),
        row("schedule", At::Train("schedule"),
            OneOf(&["constant", "cosine", "linear", "warmup-constant", "cosine-per-epoch", "warmup-cosine"]), Language,
            "Learning rate after the warm-up")
            .more(&[(TEXT, "The warm-up takes a tenth of the steps.")])
            // The schedule of a classifier follows from its protocol.
            .accepting(&[(TEXT, &["constant", "cosine", "linear"])])
            .of(TEXT)
            .shown(column(Required, "learning rate schedule")),
        row("clip", At::Adam("clip"), Norm, Language,
            "Gradient clipping norm; 0 disables it")
            .omitted(Omitted::Is("0"))
            .shown(column(Where("beta1", &[], "0"), "gradient clipping norm; 0 for none")),
        row("beta1", At::Adam("beta1"), Decay, Recipe, "")
            .shown(column(Empty, "first-moment decay of AdamW")),
        row("beta2", At::Adam("beta2"), Decay, Language,
            "Second-moment decay of AdamW")
            .shown(column(Empty, "second-moment decay of AdamW")),
        row("eps", At::Adam("eps"), Positive, Recipe, "")
            .shown(column(Empty, "epsilon of AdamW, added to the root of the second moment")),

        row("auto-encoder", At::Model("auto_encoder"), Bool, Recipe, "")
            .shown(column(Empty, "true if the labels of all positions are decoded from the last hidden vector")),
        row("tokens-per-step", At::Rule, ANY, Recipe, ""),
        row("largest-batch", At::Rule, ANY, Recipe, ""),
        row("tokens-at-once", At::Rule, ANY, Recipe, ""),
        row("seed", At::Run("seed"), ANY, Training,
            "Seed of initial weights and dropout")
            .more(&[(LABELS, "Also seeds the examples, unless --protocol is reference."), (POOLED, "Also seeds the order of examples, and \
                generated examples, unless --protocol is reference."), (TEXT, "Also seeds the order of examples.")])
            .common()
            .decides(Seeds).listed(Always("seed"))
            .shown(column(Required, "seed of initial weights and dropout").role(Seed)),
        row("seeds", At::Others, CountOf("seed"), Training,
            "Number of seeds, counting up from the first").of_sweeps()
            .more(&[(EVERY, "Each seed draws initial weights and, except under --protocol reference, generated examples, unless \
                --data-seed fixes them")]),
    ])
};

impl Setting {
    /// Whether users set it for a task.
    pub fn is_of(&self, scope: &SettingScope) -> bool {
        match (self.at, self.kind) {
            (At::Task(field), _) => scope.fields.contains(&field),
            (_, ValueKind::Pair(names)) => {
                names.iter().all(|name| SETTINGS.find(name).is_some_and(|one| one.is_of(scope)))
            }
            _ => self.of.contains(&scope.objective),
        }
    }

    /// Whether trained weights fix the setting, so that a run which starts from them has theirs.
    pub fn is_of_weights(&self) -> bool {
        match self.at {
            At::Model(field) => !field.ends_with("dropout"),
            At::Task(field) => field == "vocab_size",
            At::Language(_) | At::Body(_) | At::TextOr(At::Language(_), _) => true,
            _ => false,
        }
    }

    /// Whether the setting has a flag.
    pub fn is_typed(&self) -> bool {
        self.group != HelpGroup::Recipe
    }

    /// JSON pointer of the setting in the config of a run of `objective`; `None` if such a config lacks the field.
    pub fn pointer(&self, objective: Objective) -> Option<String> {
        let at = match self.at {
            At::TextOr(text, other) => *if objective == Objective::NextToken { text } else { other },
            at => at,
        };
        let (room, field) = match at {
            At::Run(field) => ("", field),
            At::Task(field) => ("/task", field),
            At::Model(field) => ("/model", field),
            At::Classifier(field) => (if_objective(objective, Objective::Pooled, "/model/classifier")?, field),
            At::Language(field) => (if_objective(objective, Objective::NextToken, "/model/language")?, field),
            At::Body(field) => match objective {
                Objective::PerToken => ("/model", field),
                Objective::Pooled => ("/model/classifier", field),
                Objective::NextToken => ("/model/language", field),
            },
            At::Train(field) => ("/train", field),
            At::Adam(field) => (if_objective(objective, Objective::NextToken, "/train/adam")?, field),
            At::From(field) => (if_objective(objective, Objective::NextToken, "/from")?, field),
            At::TextOr(..) | At::Rule | At::Others => return None,
        };
        Some(format!("{room}/{field}"))
    }

    /// JSON pointers of the setting in the configs of all objectives.
    pub fn pointers(&self) -> BTreeSet<String> {
        let pointers = Objective::ALL.into_iter();
        pointers.filter_map(|objective| self.pointer(objective)).collect()
    }

    /// Name of the setting's column in a summary; `None` if it has no column.
    pub fn column(&self) -> Option<String> {
        match self.summary {
            Summary::AsFlag if !self.is_typed() || self.pointers().is_empty() => None,
            Summary::Column(SettingColumn { name, .. }) | Summary::In(name) if !name.is_empty() => {
                Some(name.to_owned())
            }
            _ => Some(self.name.replace('-', "_")),
        }
    }

    /// Names that the setting accepts for tasks of any of `objectives`; `None` unless its kind is a list of names.
    pub fn names(&self, objectives: &[Objective]) -> Option<Vec<&'static str>> {
        let names: &[&str] = match self.kind {
            ValueKind::OneOf(names) => names,
            ValueKind::Protocol => &Protocol::NAMES,
            _ => return None,
        };
        let taken = |name: &&&'static str| {
            let mut of = self.names_of.iter().filter(|(_, names)| names.contains(name));
            self.names_of.is_empty() || of.any(|(of, _)| objectives.iter().any(|one| of.contains(one)))
        };
        Some(names.iter().filter(taken).copied().collect())
    }

    /// Text of `--help`: the meaning for tasks of all `objectives`, and the accepted names.
    pub fn full_help(&self, objectives: &[Objective]) -> String {
        let more: Vec<&str> = self
            .more
            .iter()
            .filter(|(of, _)| objectives.iter().all(|one| of.contains(one)))
            .map(|(_, sentence)| *sentence)
            .collect();
        let names = self.names(objectives);
        let names = names.map(|names| format!(" [{}]", names.join(", ")));
        let names = names.unwrap_or_default();
        if more.is_empty() {
            format!("{}{names}", self.help)
        } else {
            format!("{}. {}{names}", self.help, more.join(" "))
        }
    }

    /// Parses `text` as a value of this setting.
    ///
    /// # Errors
    ///
    /// Fails with the expected form, without the setting's name. Ranges are checked by [`Self::check`].
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        self.kind.parse(text, self.names(EVERY).as_deref())
    }

    /// Checks that `value` is in range.
    ///
    /// # Errors
    ///
    /// Fails with the flag, the value and the range.
    pub fn check(&self, value: &Value) -> Result<()> {
        match self.kind.out_of_range(value) {
            Some(wanted) => refuse!(flag(format!("--{}", self.name)) = spelt(value), "must be {wanted}"),
            None => Ok(()),
        }
    }
}

/// Text of a value in a config.
pub fn spelt(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns `room`, the JSON pointer of a part of a config, if `objective` is `wanted`.
fn if_objective(objective: Objective, wanted: Objective, room: &'static str) -> Option<&'static str> {
    (objective == wanted).then_some(room)
}
