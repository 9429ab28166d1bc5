//! `dsf inspect`: mixers as dynamical systems.

use super::device::use_threads;
use super::results::ReportOutput;
use super::weights::is_id;
use super::{exit, hub, print, Global};
use crate::config::{whole, RunConfig};
use crate::error::{ensure, refuse, Error, Result};
use crate::files::{read_text, write_atomic};
use crate::inspect::{
    self, check_direction, Course, DrawOptions, Growing, Heads, InspectPlan, InspectStage, Need, Network, NetworkInput,
    Snapshot, Subject, View, ETAS,
};
use crate::mixers::{self, MIXERS};
use crate::model::weights::{is_pretrained, Checkpoint};
use crate::recipes;
use crate::report::{Format, Report};
use crate::store::{epochs, gigabytes, read_config, snapshots, Store, Weights};
use crate::sweep::estimate::duration;
use crate::tasks::wikitext::{TokenizerName, WikitextConfig};
use crate::tasks::Task;
use candle_core::DType;
use clap::{ArgAction, Args, Subcommand, ValueEnum};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Default rows and columns of a heatmap: on a terminal, and in a picture.
const CELLS: [u16; 2] = [16, 32];
/// Formats that contain all numbers unrounded; an HTML page includes its data.
const FOR_PROGRAMS: [&str; 3] = ["csv", "json", "html"];

#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_help = "Examples:\n  dsf inspect --mixer s6 --d 16 --n 8 --verify\n  dsf inspect 0123456789ab --to system.html\n  \
                  dsf inspect --compare linear,normalized,s6,ssd --d 64 --n 64\n  dsf inspect lemma1 --order 8"
)]
pub(super) struct InspectArguments {
    #[command(subcommand)]
    lemma: Option<Lemma>,
    #[command(flatten)]
    what: InspectSelection,
    /// Compare four ways of computing the output.
    ///
    /// Runs the recurrence (11), the kernel (12), the step-by-step form and the forward pass. Exits with code 4 if they
    /// differ by more than 1e-10 of the largest output (1e-5 in f32).
    #[arg(long)]
    verify: bool,
    /// Compare and time all algorithms of each mixer.
    ///
    /// Runs each mixer step by step, in chunks, or by all pairs of tokens, as far as it has these forms. Prints the
    /// differences of the outputs and the tokens per second; exits with code 4 if the outputs differ by more than
    /// --verify allows. Algorithms that would not fit into memory are left out.
    #[arg(long, conflicts_with_all = ["verify", "over_training", "gradients"])]
    engines: bool,
    /// Maximum rows and columns of heatmaps, 1 to 64 [default: 16 in text, 32 in pictures; CSV and JSON have all].
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=64), hide_short_help = true)]
    cells: Option<u16>,
    /// Also write the factors of Λ, B, C and D as arrays to this safetensors file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["engines", "over_training"], hide_short_help = true)]
    matrices: Option<PathBuf>,
    #[command(flatten)]
    form: ReportOutput,
}

/// Runs or mixers to inspect.
#[derive(Args)]
struct InspectSelection {
    /// Trained models: runs, files of weights, or pretrained models.
    ///
    /// A run is named by its id in --out, by the beginning of its id, or by its folder. Runs of a sweep keep no weights,
    /// except language models. A pretrained model is a folder of Hugging Face or a name on its hub, OWNER/NAME or
    /// OWNER/NAME@REVISION.
    #[arg(value_name = "RUN", conflicts_with_all = ["mixer", "d", "n", "heads", "variant", "options", "seed", "task", "bidirectional"])]
    runs: Vec<PathBuf>,
    /// Fresh models of these mixers, NAME or NAME/VARIANT.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    mixer: Vec<String>,
    /// Mixers as in --mixer and trained models as in RUN.
    #[arg(long, value_delimiter = ',', value_name = "NAME", conflicts_with_all = ["mixer", "runs"])]
    compare: Vec<String>,
    /// Also show each run's model with its initial weights.
    #[arg(long, requires = "runs", hide_short_help = true)]
    fresh: bool,
    /// Show each run over its epochs.
    ///
    /// Prints spectrum, horizon, rank and accuracy by epoch. The run must have kept its weights: train it with
    /// --snapshot-every.
    #[arg(long, requires = "runs", conflicts_with_all = ["fresh", "mixer"])]
    over_training: bool,
    /// Show gradients through time.
    ///
    /// Reads an example token by token and prints, for each layer, the norm of the gradient of the loss with respect to the
    /// state after each token, and the share of it that is left k tokens before an answer. Fresh models read an example
    /// of --task.
    #[arg(long, hide_short_help = true)]
    gradients: bool,
    /// Show only these layers, counted from 0.
    #[arg(long, value_name = "I", value_delimiter = ',', hide_short_help = true)]
    layer: Vec<usize>,
    /// Input of the mixers [default: by kind of model].
    ///
    /// By default, runs read an example of their task, pretrained models random tokens, and fresh models normal random
    /// numbers.
    #[arg(long, value_name = "HOW")]
    input: Option<InputKind>,
    /// Input text for language models, or a file that holds it.
    #[arg(long, value_name = "TEXT|FILE", conflicts_with = "input", hide_short_help = true)]
    text: Option<String>,
    /// Tokenizer of --text: bytes, gpt-neox, or a tokenizer.json [default: the model's].
    #[arg(long, value_name = "NAME|FILE", requires_all = ["text", "runs"], hide_short_help = true)]
    tokenizer: Option<TokenizerName>,
    /// Model width d of fresh models [default: 16].
    #[arg(long)]
    d: Option<String>,
    /// State expansion n of fresh models [default: 8].
    #[arg(long)]
    n: Option<String>,
    /// Heads of fresh models [default: 1].
    #[arg(long)]
    heads: Option<String>,
    /// Variant of fresh mixers [default: the variant of protocol `reference`].
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    variant: Option<String>,
    /// Option of the fresh mixers that have it.
    #[arg(long = "option", value_name = "NAME=VALUE", hide_short_help = true)]
    options: Vec<String>,
    /// Whether fresh models read their input in both directions: --task lra.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, hide_short_help = true)]
    bidirectional: bool,
    /// Seed of fresh weights and random inputs.
    #[arg(long, hide_short_help = true)]
    seed: Option<String>,
    /// Task whose examples fresh models read [default: mqar; wikitext for --text].
    #[arg(long, value_name = "TASK", hide_short_help = true)]
    task: Option<String>,
    /// Length of the input, in tokens [default: the task's length].
    #[arg(long, value_name = "L")]
    seq_len: Option<usize>,
    /// Folder of data [default: the folder of `dsf data fetch`].
    #[arg(long, value_name = "DIR", env = "DSF_DATA", hide_env_values = true, hide_short_help = true)]
    data_dir: Option<PathBuf>,
    /// Precision of the computation.
    #[arg(long, value_enum, default_value_t = FloatWidth::F64, hide_short_help = true)]
    precision: FloatWidth,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum InputKind {
    /// The first test example of the task, passed through the preceding layers.
    Task,
    /// Tokens drawn with equal probability from the vocabulary, passed through the preceding layers.
    Tokens,
    /// Standard normal numbers, at every layer.
    Random,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FloatWidth {
    /// 64 bits.
    F64,
    /// 32 bits, as in training.
    F32,
}

#[derive(Subcommand)]
enum Lemma {
    /// Lemma 1: compare softmax attention with its Taylor system.
    ///
    /// Prints the error, its bound and the number of features for each order of the truncated Taylor series.
    Lemma1 {
        /// Highest order P.
        #[arg(long, default_value_t = 8)]
        order: usize,
        /// Run of an attention mixer, to use its queries and keys [default: normal random numbers].
        run: Option<PathBuf>,
        /// Only this layer of the run, counted from 0.
        #[arg(long, value_name = "I", default_value_t = 0)]
        layer: usize,
        /// Number m of features of random queries and keys.
        #[arg(long, default_value_t = 4, value_parser = whole::<u16>(1..=256))]
        m: u16,
        /// Sequence length L of random queries and keys, in tokens.
        #[arg(long, value_name = "L", default_value_t = 16, value_parser = whole::<u16>(1..=1024))]
        seq_len: u16,
        /// Seed of random queries and keys.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        #[command(flatten)]
        form: ReportOutput,
    },
    /// Lemma 2: embed every mixer with n in one with a larger n'.
    ///
    /// Prints the difference of the outputs for every mixer, or for the mixer of a run.
    Lemma2 {
        /// Run whose weights are embedded [default: fresh weights of every mixer, with random noise].
        run: Option<PathBuf>,
        /// State expansion n of fresh mixers.
        #[arg(long, default_value = "4")]
        n: String,
        /// Larger state expansion n' [default: 2 n plus the number of heads].
        #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=65_536))]
        to_n: Option<u32>,
        #[command(flatten)]
        form: ReportOutput,
    },
    /// Equation (17): attention with any normaliser η(q, k).
    ///
    /// Shows it as a system of the form (11), verifies it, and prints the spread of the gate 1/η alone and in its
    /// product with the Λs.
    Eta {
        /// Run of an attention mixer, to use its queries, keys and values [default: fresh weights].
        run: Option<PathBuf>,
        /// Normalisers by name [default: all].
        #[arg(long, value_delimiter = ',', value_name = "NAME", long_help = etas())]
        eta: Vec<String>,
        /// Only this layer of the run, counted from 0.
        #[arg(long, value_name = "I", default_value_t = 0)]
        layer: usize,
        /// Model width d of fresh weights.
        #[arg(long, default_value = "16")]
        d: String,
        /// State expansion n of fresh weights: the width of queries and keys.
        #[arg(long, default_value = "8")]
        n: String,
        /// Heads of fresh weights.
        #[arg(long, default_value = "1")]
        heads: String,
        /// Length of the random input for fresh weights, in tokens.
        #[arg(long, value_name = "L", default_value_t = 32, value_parser = whole::<u16>(1..=1024))]
        seq_len: u16,
        #[command(flatten)]
        form: ReportOutput,
    },
    /// Identity (33): compare S6 with A = a I to the reversed sigmoid.
    ///
    /// Prints the difference between the transition of S6 with A = a I and the reversed sigmoid to the power a; and,
    /// under the zero-order hold, between the factor of its input and the gate that complements it (Gu & Dao 2023,
    /// theorem 1).
    Identity {
        /// The power a.
        #[arg(long, default_value_t = 1.7)]
        a: f64,
        #[command(flatten)]
        form: ReportOutput,
    },
}

pub(super) fn main(mut arguments: InspectArguments, global: &Global) -> Result<u8> {
    use_threads(global.threads()?)?;
    arguments.what.part();
    if let Some(lemma) = arguments.lemma {
        return lemma.show(global);
    }
    let (report, hold) = match (arguments.what.over_training, arguments.engines) {
        (true, _) => arguments.courses(global)?,
        (_, true) => arguments.timed(global)?,
        _ => arguments.systems(global)?,
    };
    arguments.form.write(&report, global)?;
    Ok(ended(hold))
}

/// Exit code for forms that are equal or not.
fn ended(equal: bool) -> u8 {
    match equal {
        true => exit::DONE,
        false => exit::CHECK_FAILED,
    }
}

/// Facts about the subjects of a report, for its heading.
struct Shown {
    /// d, n and L, as far as all have the same.
    sizes: Option<[Option<usize>; 3]>,
    /// Whether all are parts of pretrained models.
    pretrained: bool,
}

impl Default for Shown {
    fn default() -> Self {
        Self { sizes: None, pretrained: true }
    }
}

impl Shown {
    fn of(subjects: &[Subject]) -> Self {
        let mut shown = Self::default();
        subjects.iter().for_each(|subject| shown.add(subject));
        shown
    }

    fn add(&mut self, subject: &Subject) {
        let (model, seq_len) = (&subject.model, subject.seq_len());
        let own = [model.d_model, model.d_state, seq_len].map(Some);
        let sizes = self.sizes.get_or_insert(own);
        for (size, own) in sizes.iter_mut().zip(own) {
            *size = size.filter(|size| Some(*size) == own);
        }
        self.pretrained &= subject.pretrained;
    }
}

/// Options for showing systems in a format; `cells` overrides its rows and columns of heatmaps.
fn shown(format: &Format, cells: Option<u16>) -> DrawOptions {
    let usual = CELLS[usize::from(format.name != "text")];
    DrawOptions { cells: cells.unwrap_or(usual).into(), records: FOR_PROGRAMS.contains(&format.name) }
}

fn need(shown: DrawOptions) -> Need {
    match shown.records {
        true => Need::Records,
        false => Need::System,
    }
}

/// Whether all compared forms are equal.
fn hold<'a>(views: impl IntoIterator<Item = &'a View>) -> bool {
    let of_view = |view: &View| view.errors.into_iter().chain(view.both.as_ref().and_then(|both| both.errors));
    views.into_iter().all(|view| of_view(view).all(|errors| errors.hold()))
}

impl InspectArguments {
    /// Reports the systems, and whether their forms are equal.
    fn systems(&self, global: &Global) -> Result<(Report, bool)> {
        let shown = shown(self.form.format(global)?, self.cells);
        let (mut views, mut kept, mut sizes) = (Vec::new(), Vec::new(), Shown::default());
        self.what.visit(global, need(shown), &mut |subject| {
            sizes.add(&subject);
            views.push(View::of(&subject, self.verify)?);
            if self.matrices.is_some() {
                kept.push(subject);
            }
            Ok(())
        })?;
        if let Some(file) = &self.matrices {
            write_atomic(file, &inspect::matrices(&kept, file)?)?;
        }
        let heading = self.what.heading("Dynamical systems (11)", &sizes);
        let mut report = inspect::report(heading, &views, shown);
        report.notes.extend(self.unverified(&views));
        Ok((report, hold(&views)))
    }

    /// Times every engine, and reports whether their outputs are equal.
    fn timed(&self, global: &Global) -> Result<(Report, bool)> {
        let subjects = self.what.subjects(global, Need::Pass)?;
        let heading = self.what.heading("Algorithms of each mixer", &Shown::of(&subjects));
        inspect::engines(heading, &subjects)
    }

    /// Reports each run by epoch, and whether all forms are equal.
    fn courses(&self, global: &Global) -> Result<(Report, bool)> {
        let (mut courses, mut heading) = (Vec::new(), String::new());
        for run in &self.what.runs {
            let place = place(run, global)?;
            let mut seen = Vec::new();
            let mut name = String::new();
            for file in kept_by_epoch(&place)? {
                let found = Checkpoint::of_any_task(&file)?;
                let epoch = found.origin.epoch;
                let mut network = Network::trained(found, self.what.dtype())?;
                network.traced = self.what.gradients;
                let subjects = network.subjects(self.what.input()?, &self.what.layer, Need::System)?;
                heading = self.what.heading("Dynamical systems (11) over training", &Shown::of(&subjects));
                name.clone_from(&network.name);
                let views = self.views(&subjects)?;
                seen.push(Snapshot { epoch, views });
            }
            let accuracy = epochs(&place)?.iter().map(|row| row.accuracy).collect();
            courses.push(Course { name, accuracy, snapshots: seen });
        }
        let snapshots = courses.iter().flat_map(|course| &course.snapshots);
        let views: Vec<&View> = snapshots.flat_map(|snapshot| &snapshot.views).collect();
        let hold = hold(views.iter().copied());
        let mut report = inspect::over_training(heading, &courses);
        report.notes.extend(self.unverified(views.iter().copied()));
        if hold && views.iter().any(|view| view.is_verified()) {
            report.notes.push("recurrence, kernel, steps and forward pass are equal in every epoch shown".to_owned());
        }
        Ok((report, hold))
    }

    /// Says of which views --verify compared nothing.
    fn unverified<'a>(&self, views: impl IntoIterator<Item = &'a View>) -> Option<String> {
        let left = views.into_iter().filter(|view| self.verify && !view.is_verified());
        let left: BTreeSet<&str> = left.map(|view| view.name.as_str()).collect();
        let left = left.into_iter().collect::<Vec<_>>().join(", ");
        (!left.is_empty()).then(|| format!("not verified, since there is no system to compare: {left}"))
    }

    fn views(&self, subjects: &[Subject]) -> Result<Vec<View>> {
        subjects.iter().map(|subject| View::of(subject, self.verify)).collect()
    }
}

impl InspectSelection {
    /// Sorts what `--compare` names into mixers and trained models. A name of both is a mixer.
    fn part(&mut self) {
        for name in std::mem::take(&mut self.compare) {
            let place = Path::new(&name);
            let mixer = name.split('/').next().unwrap_or_default();
            let named = mixers::find(mixer).is_ok() && !place.exists();
            // A word that is neither is taken for a misspelt mixer.
            let word = !place.exists() && !name.contains('/') && !is_id(&name);
            match named || word {
                true => self.mixer.push(name),
                false => self.runs.push(name.into()),
            }
        }
    }

    fn dtype(&self) -> DType {
        match self.precision {
            FloatWidth::F64 => DType::F64,
            FloatWidth::F32 => DType::F32,
        }
    }

    /// Input of fresh models and of runs.
    fn input(&self) -> Result<NetworkInput<'_>> {
        self.input_or(if self.reads_random() { InputKind::Random } else { InputKind::Task })
    }

    /// Whether fresh models read random numbers unless another input is asked for: nothing else does, and no loss needs
    /// an example.
    fn reads_random(&self) -> bool {
        self.runs.is_empty() && !self.gradients
    }

    /// Input that was asked for, or the `usual` one.
    fn input_or(&self, usual: InputKind) -> Result<NetworkInput<'_>> {
        let data_dir = self.data_dir.as_deref();
        if let Some(text) = &self.text {
            let file = Path::new(text);
            let is_path = !text.contains(char::is_whitespace) && (text.contains('/') || file.extension().is_some());
            ensure!(!is_path || file.exists(), flag "--text" = text, "there is no such file; a text of one word has no `/` or `.`");
            let text = if file.is_file() { Cow::Owned(read_text(file)?) } else { Cow::Borrowed(text.as_str()) };
            return Ok(NetworkInput::Text(text, self.seq_len, data_dir));
        }
        Ok(match self.input.unwrap_or(usual) {
            InputKind::Random => NetworkInput::Random(self.seq_len),
            InputKind::Tokens => NetworkInput::Tokens(self.seq_len),
            InputKind::Task => NetworkInput::Task(self.seq_len, data_dir),
        })
    }

    fn heading(&self, what: &str, shown: &Shown) -> String {
        let input = match (&self.text, self.input) {
            (Some(_), _) => "a text",
            (None, Some(InputKind::Random)) => "normal random numbers",
            (None, Some(InputKind::Tokens)) => "random tokens",
            (None, Some(InputKind::Task)) => "a test example of the task",
            (None, None) if self.reads_random() => "normal random numbers",
            (None, None) if !self.mixer.is_empty() || self.fresh => "the usual input of each",
            (None, None) if shown.pretrained => "random tokens",
            (None, None) => "a test example of the task",
        };
        let sizes = ["d", "n", "L"].into_iter().zip(shown.sizes.unwrap_or_default());
        let sizes = sizes.filter_map(|(name, size)| Some(format!(", {name} = {}", size?)));
        format!("{what}, on {input}{}", sizes.collect::<String>())
    }

    fn subjects(&self, global: &Global, need: Need) -> Result<Vec<Subject>> {
        let mut subjects = Vec::new();
        self.visit(global, need, &mut |subject| {
            subjects.push(subject);
            Ok(())
        })?;
        Ok(subjects)
    }

    /// Passes every subject to `visit`, one after the other.
    fn visit(&self, global: &Global, need: Need, visit: &mut dyn FnMut(Subject) -> Result<()>) -> Result<()> {
        let mut progress = InspectProgress::new(global.silent());
        let visit = &mut |stage: InspectStage| match stage {
            InspectStage::Planned(plan) => {
                progress.begin(plan);
                Ok(())
            }
            InspectStage::Layer(subject) => {
                visit(*subject)?;
                progress.layer();
                Ok(())
            }
        };
        ensure!(
            !self.runs.is_empty() || !self.mixer.is_empty(),
            flag "--mixer", "nothing to inspect: give a run, or --mixer NAME for a fresh model"
        );
        for option in &self.options {
            let having = self.mixer.iter().map(|mixer| self.has(mixer, option));
            let having: Vec<bool> = having.collect::<Result<_>>()?;
            ensure!(
                self.mixer.len() == 1 || having.contains(&true),
                flag "--option" = option, "none of the mixers {} has this option in its variant", self.mixer.join(", "));
        }
        for mixer in &self.mixer {
            let mut network = Network::fresh(self.config(mixer)?, self.dtype())?;
            let mut name = vec![mixer.clone()];
            name.extend(self.options_of(mixer)?);
            network.name = name.join(", ");
            network.traced = self.gradients;
            network.visit(self.input()?, &self.layer, need, visit)?;
        }
        for run in &self.runs {
            let mut found = weights(run, global)?;
            if let Some(name) = &self.tokenizer {
                found.config.task = WikitextConfig { tokenizer: name.resolve()?.0, ..found.text()? }.config();
            }
            let config = found.config.clone();
            let usual = if found.architecture.is_some() { InputKind::Tokens } else { InputKind::Task };
            let mut network = Network::trained(found, self.dtype())?;
            network.traced = self.gradients;
            network.visit(self.input_or(usual)?, &self.layer, need, visit)?;
            if self.fresh {
                let mut network = Network::fresh(config, self.dtype())?;
                network.name += ", fresh";
                network.traced = self.gradients;
                network.visit(self.input_or(usual)?, &self.layer, need, visit)?;
            }
        }
        Ok(())
    }

    /// Splits `--mixer` into a mixer and its variant.
    fn named<'a>(&'a self, mixer: &'a str) -> (&'a str, Option<&'a str>) {
        match mixer.split_once('/') {
            Some((mixer, variant)) => (mixer, Some(variant)),
            None => (mixer, self.variant.as_deref()),
        }
    }

    /// Whether the mixer, in the requested variant, has the option in NAME=VALUE.
    fn has(&self, mixer: &str, option: &str) -> Result<bool> {
        let (mixer, variant) = self.named(mixer);
        let entry = mixers::find(mixer)?;
        let variant = variant.unwrap_or(entry.variants[0]);
        let name = option.split('=').next().unwrap_or_default();
        Ok(entry.options.iter().any(|option| option.name == name && option.is_of(variant)))
    }

    /// Returns the options that a mixer takes. A single mixer gets all of them, so that it can refuse unknown ones.
    fn options_of(&self, mixer: &str) -> Result<Vec<String>> {
        let mut taken = Vec::new();
        for option in &self.options {
            if self.mixer.len() == 1 || self.has(mixer, option)? {
                taken.push(option.clone());
            }
        }
        Ok(taken)
    }

    /// Returns the config of a run that would train a fresh model.
    fn config(&self, mixer: &str) -> Result<RunConfig> {
        let options = self.options_of(mixer)?;
        let (mixer, variant) = self.named(mixer);
        let usual = match self.text {
            Some(_) => "wikitext",
            None if self.bidirectional => "lra",
            None => "mqar",
        };
        let random = self.text.is_none() && self.input.map_or(!self.gradients, |input| input == InputKind::Random);
        let given = [("d", &self.d), ("n", &self.n), ("heads", &self.heads), ("seed", &self.seed)];
        let mut settings = vec![("preset", "smoke"), ("mixer", mixer)];
        if self.bidirectional {
            settings.extend([("bidirectional", "true"), ("d", "16"), ("n", "8"), ("heads", "1")]);
        }
        let given = given.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?)));
        settings.extend(given);
        settings.extend(variant.map(|variant| ("variant", variant)));
        settings.extend(options.iter().map(|option| ("option", option.as_str())));
        let length = self.seq_len.map(|length| length.to_string());
        match &length {
            _ if random => settings.push(("layers", "1")),
            Some(length) if self.text.is_none() => settings.push(("seq-len", length)),
            _ => {}
        }
        let task = self.task.as_deref().unwrap_or(usual);
        let found = recipes::run(task, &settings);
        // The smallest preset has too few tokens for long sequences, and no flag here asks for more.
        let short_of_tokens = |e: &Error| e.diagnostic().flag.as_deref() == Some("--vocab-size");
        match (found, self.seq_len) {
            (Err(e), Some(length)) if short_of_tokens(&e) => {
                let more = (2 * length).to_string();
                settings.push(("vocab-size", &more));
                recipes::run(task, &settings)
            }
            (found, _) => found,
        }
    }
}

/// Messages about an inspection that takes long, on stderr.
struct InspectProgress {
    quiet: bool,
    plan: Option<InspectPlan>,
    done: usize,
    begun: Instant,
    said: Instant,
}

impl InspectProgress {
    /// Shortest inspection that is announced, in seconds.
    const LONG: f64 = 5.0;
    /// Time between two messages.
    const PAUSE: Duration = Duration::from_secs(10);

    fn new(quiet: bool) -> Self {
        let now = Instant::now();
        Self { quiet, plan: None, done: 0, begun: now, said: now }
    }

    fn begin(&mut self, plan: InspectPlan) {
        *self = Self { plan: Some(plan), ..Self::new(self.quiet) };
        if plan.seconds >= Self::LONG && !self.quiet {
            print::message(&format!(
                "inspecting {} layers at {} tokens: about {}, and {} of memory",
                plan.layers,
                plan.seq_len,
                duration(plan.seconds),
                gigabytes(plan.bytes)
            ));
        }
    }

    fn layer(&mut self) {
        self.done += 1;
        let left = self.plan.map_or(0, |plan| plan.layers.saturating_sub(self.done));
        if self.quiet || left == 0 || self.said.elapsed() < Self::PAUSE {
            return;
        }
        self.said = Instant::now();
        let seconds = self.begun.elapsed().as_secs_f64() / self.done as f64 * left as f64;
        print::message(&format!("{} of {} layers, about {} left", self.done, self.done + left, duration(seconds)));
    }
}

/// Returns the folder of a run in the results folder, or the path `run` itself.
fn place(run: &Path, global: &Global) -> Result<PathBuf> {
    if run.exists() {
        return Ok(run.to_owned());
    }
    if let Some(folder) = hub::pretrained(run, global.quiet)? {
        return Ok(folder);
    }
    let store = Store::existing(&global.out)?;
    match store.find(&run.display().to_string())? {
        Some(id) => Ok(store.run_folder(&id)),
        None => refuse!(
            path run,
            "is no file or folder, and no run in {}; --out selects another results folder",
            global.out.display()
        ),
    }
}

/// Returns the per-epoch weights of the run in the folder `place`, ending with the final ones.
fn kept_by_epoch(place: &Path) -> Result<Vec<PathBuf>> {
    ensure!(
        place.is_dir(),
        flag "--over-training" = place.display(), "is a file, but --over-training needs a run folder");
    ensure!(
        !is_pretrained(place),
        flag "--over-training" = place.display(), "is a pretrained model, which has no weights by epoch");
    let mut files = snapshots(place)?;
    if files.is_empty() {
        let task = config_of(place)?.task;
        refuse!(
            path place,
            "has no weights by epoch; train the run again in another folder of results: `dsf {} --config {} \
             --snapshot-every 1 --out again`",
            task.name(),
            place.display()
        );
    }
    let epoch = |file: &PathBuf| Ok::<usize, Error>(Checkpoint::of_any_task(file)?.origin.epoch);
    let last = place.join(Weights::Last.file());
    if last.is_file() && epoch(&last)? > epoch(&files[files.len() - 1])? {
        files.push(last);
    }
    Ok(files)
}

/// Reads the config of the run in the folder `place`.
fn config_of(place: &Path) -> Result<RunConfig> {
    let config = place.join("config.json");
    if !config.is_file() {
        refuse!(
            path place,
            "is not a run folder: it contains neither {} nor config.json",
            Weights::Last.file()
        );
    }
    read_config(&config)
}

/// Opens the weights of a run in the results folder, of a run elsewhere, or of a file.
fn weights(run: &Path, global: &Global) -> Result<Checkpoint> {
    let place = place(run, global)?;
    let kept = [Weights::Best, Weights::Last];
    if place.is_dir() && !is_pretrained(&place) && !kept.iter().any(|which| place.join(which.file()).is_file()) {
        let task = config_of(&place)?.task;
        refuse!(
            path & place,
            "has no weights, since sweeps and earlier versions keep none; train the run again, in another folder of \
             results: `dsf {} --config {} --out again`",
            task.name(),
            place.display()
        );
    }
    Checkpoint::of_any_task(&place)
}

/// Returns layer `layer` of a run on the first test example of its task, in f64.
fn trained(run: &Path, layer: usize, global: &Global) -> Result<Subject> {
    let found = weights(run, global)?;
    check_direction(&found.config.model)?;
    let network = Network::trained(found, DType::F64)?;
    Ok(network.subjects(NetworkInput::Task(None, None), &[layer], Need::System)?.remove(0))
}

/// Help of `--eta`, which lists the normalisers.
fn etas() -> String {
    let rows = ETAS.iter().map(|eta| format!("\n  {:8}  {}", eta.name, eta.about));
    format!(
        "Normalisers by name [default: all]. z = w·u_i, with w from a run of normalized attention, or else random:{}",
        rows.collect::<String>()
    )
}

impl Lemma {
    fn show(self, global: &Global) -> Result<u8> {
        let mut equal = true;
        let (report, form) = match self {
            Self::Lemma1 { order, run, layer, m, seq_len, seed, form } => {
                let heads = match run {
                    Some(run) => Heads::of(&trained(&run, layer, global)?)?,
                    None => Heads::random(m.into(), seq_len.into(), seed),
                };
                (inspect::lemma1(&heads, order)?, form)
            }
            Self::Lemma2 { run, n, to_n, form } => {
                let subjects = match &run {
                    Some(run) => vec![trained(run, 0, global)?],
                    None => fresh(&n)?,
                };
                let growing = subjects.iter().map(|subject| Growing {
                    subject,
                    to: to_n.map_or(2 * subject.model.d_state + subject.model.n_heads, |n| n as usize),
                    moved: run.is_none(),
                });
                (inspect::lemma2(&growing.collect::<Vec<_>>())?, form)
            }
            Self::Eta { run, eta, layer, d, n, heads, seq_len, form } => {
                let subject = match &run {
                    Some(run) => trained(run, layer, global)?,
                    None => {
                        let sizes = [("d", d.as_str()), ("n", &n), ("heads", &heads)];
                        let network = Network::fresh(smoke(inspect::unnormalised().name, &sizes)?, DType::F64)?;
                        let read = NetworkInput::Random(Some(seq_len.into()));
                        network.subjects(read, &[0], Need::System)?.remove(0).of_unit_gain()?
                    }
                };
                let all = || ETAS.iter().map(|eta| eta.name.to_owned()).collect();
                let names = if eta.is_empty() { all() } else { eta };
                let views = inspect::etas(&subject, &names)?;
                equal = hold(&views);
                let heading = "Equation (17): attention with a normaliser η(q, k) as a system; queries and keys of";
                let heading = format!("{heading} {}", subject.name);
                let shown = shown(form.format(global)?, None);
                (inspect::report(heading, &views, shown), form)
            }
            Self::Identity { a, form } => {
                let model = |mixer: &str| Ok(smoke(mixer, &[])?.model);
                (inspect::identity(model, a, 16)?, form)
            }
        };
        form.write(&report, global)?;
        Ok(ended(equal))
    }
}

/// Returns a run with one layer and the smallest sizes.
fn smoke(mixer: &str, more: &[(&str, &str)]) -> Result<RunConfig> {
    let settings = [("preset", "smoke"), ("mixer", mixer), ("layers", "1")];
    recipes::run("mqar", &[&settings, more].concat())
}

/// Returns every mixer in every variant with state expansion `n`, on standard normal inputs.
fn fresh(n: &str) -> Result<Vec<Subject>> {
    let mut subjects = Vec::new();
    for entry in MIXERS {
        for variant in entry.variants {
            let config = smoke(entry.name, &[("n", n), ("d", "8"), ("variant", variant)])?;
            let mut network = Network::fresh(config, DType::F64)?;
            network.name = format!("{} ({variant})", entry.name);
            subjects.extend(network.subjects(NetworkInput::Random(Some(8)), &[], Need::System)?);
        }
    }
    Ok(subjects)
}
