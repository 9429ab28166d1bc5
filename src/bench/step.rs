//! A training step as [`Trainer`] makes it, timed: batch, forward, backward, AdamW.

use super::export;
use super::floors;
use super::machine::Machine;
use super::ops::{PAIRS, TASKS, VOCABULARY};
use super::row::{Details, Kind, Report, Row};
use super::timer::Schedule;
use crate::config::{self, Precision, RunConfig, TaskConfig};
use crate::error::{ensure, Result};
use crate::mixers;
use crate::nn::Params;
use crate::recipes;
use crate::store;
use crate::tasks::{self, Objective, Splits};
use crate::train::Trainer;
use candle_core::{DType, Device};
use serde_json::json;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

/// Most timed steps: each has a batch of its own in memory.
const MOST_STEPS: usize = 1000;

/// How a step reaches a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Op by op.
    Launched,
    /// As replays of a recorded step, a CUDA graph.
    Recorded,
}

impl Form {
    pub fn name(self) -> &'static str {
        match self {
            Self::Launched => "launched",
            Self::Recorded => "recorded",
        }
    }

    pub fn prepare(self, trainer: &mut Trainer) {
        if self == Self::Recorded {
            trainer.record_steps();
        }
    }

    /// The forms that a machine can take; the last one is the fastest.
    pub fn of(machine: &Machine) -> &'static [Self] {
        match machine.is_cpu() {
            true => &[Self::Launched],
            false => &[Self::Launched, Self::Recorded],
        }
    }
}

/// Data of one task at a time: many models in a row are trained on the same.
#[derive(Default)]
pub struct DataCache(RefCell<Option<(TaskConfig, usize, Rc<Splits>)>>);

impl DataCache {
    /// `examples` examples to train on: those of the task where it draws them, else tokens that mean nothing.
    fn load(&self, task: &TaskConfig, examples: usize) -> Result<Rc<Splits>> {
        let mut held = self.0.borrow_mut();
        let same =
            |(of, count, _): &&(TaskConfig, usize, Rc<Splits>)| of == task && *count == examples;
        if let Some((.., data)) = held.as_ref().filter(same) {
            return Ok(Rc::clone(data));
        }
        let data = Rc::new(match task.entry()?.objective {
            Objective::PerToken => tasks::load(task, None)?,
            objective => Splits::placeholder(objective, &task.sizes()?, examples),
        });
        *held = Some((task.clone(), examples, Rc::clone(&data)));
        Ok(data)
    }
}

/// Training steps of a run, to be timed.
pub struct Step {
    config: RunConfig,
    schedule: Schedule,
    form: Form,
}

impl Step {
    /// The first steps of `config`, `steps` of them timed. Refuses sizes that cannot fit into memory.
    pub fn new(config: RunConfig, steps: usize) -> Result<Self> {
        let few = (1..=MOST_STEPS).contains(&steps);
        ensure!(few, flag "--steps" = steps, "must be 1 to {MOST_STEPS}");
        check_memory(&config)?;
        Self::scheduled(config, Schedule::single(steps), Form::Launched)
    }

    pub(super) fn scheduled(config: RunConfig, schedule: Schedule, form: Form) -> Result<Self> {
        let config = with_steps(config, schedule.calls())?;
        Ok(Self {
            config,
            schedule,
            form,
        })
    }

    /// The run whose steps they are.
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    /// Times the steps on the CPU.
    ///
    /// `export` names a safetensors file for what another program needs to make the same steps, see [`export`].
    pub fn report(&self, machine: &Machine, export: Option<&Path>) -> Result<Report> {
        let (model, batch) = (&self.config.model, self.config.train.batch_size);
        let (length, d, n) = (
            self.config.task.sizes()?.seq_len,
            model.d_model,
            model.d_state,
        );
        let case = format!("{} {batch},{length},{d},{n}", model.mixer);
        let row = Row::new(Kind::Step, case, DType::F32.as_str());
        machine.report(row, |row| {
            self.measure(row, machine, &DataCache::default(), export)
        })
    }

    pub(super) fn measure(
        &self,
        row: &mut Row,
        machine: &Machine,
        data: &DataCache,
        export: Option<&Path>,
    ) -> Result<Details> {
        let config = &self.config;
        let (model, train, task) = (&config.model, &config.train, &config.task);
        let sizes = task.sizes()?;
        let examples = self.schedule.calls() * train.batch_size;
        let data = data.load(task, examples)?;
        let mut trainer = Trainer::new(config, &data, &machine.device)?;
        if let Some(path) = export {
            export::export(path, config, &trainer, &data)?;
        }
        self.form.prepare(&mut trainer);
        let mut losses = Vec::new();
        let ((), timing) = machine.time(&self.schedule, &mut || {
            losses.push(trainer.step_ahead()?);
            Ok(())
        })?;
        let tokens = (train.batch_size * sizes.tokens_per_example()) as f64;
        let bytes = match train.precision {
            Precision::Bf16 => 2.0,
            Precision::F32 | Precision::Tf32 => 4.0,
        };
        machine.floor(row, |rates| floors::step(config, rates, bytes))?;
        if row.floor_seconds.is_none() {
            row.note = format!("no floor is stated for `{}`", model.mixer);
        }
        row.tokens = Some(tokens);
        row.elements = state_elements(config, tokens)?;
        row.loss = losses.last().copied();
        row.timed(&timing);
        let details = json!({
            "task": task.read()?.title(),
            "mixer": model.mixer,
            "variant": model.variant,
            "protocol": config.protocol.as_str(),
            "d": model.d_model,
            "n": model.d_state,
            "heads": model.n_heads,
            "layers": model.n_layers,
            "seq_len": sizes.seq_len,
            "kv_pairs": sizes.labels_per_example,
            "vocab_size": sizes.vocab_size,
            "batch_size": train.batch_size,
            "micro_batch": train.micro_batch,
            "embed_dropout": model.embed_dropout,
            "attn_dropout": model.attn_dropout,
            "lr": train.lr,
            "weight_decay": train.weight_decay,
            "steps": self.schedule.rounds,
            "parameters": trainer.parameters(),
            "first_loss": losses.first(),
            "losses": losses,
        });
        Ok(details.as_object().cloned().unwrap_or_default())
    }

    /// The losses of all steps, untimed.
    pub(super) fn losses(&self, device: &Device) -> Result<Vec<f64>> {
        let examples = self.schedule.calls() * self.config.train.batch_size;
        let data = DataCache::default().load(&self.config.task, examples)?;
        let mut trainer = Trainer::new(&self.config, &data, device)?;
        self.form.prepare(&mut trainer);
        let steps = 0..self.schedule.calls();
        steps.map(|_| trainer.step()).collect()
    }
}

/// `config` with data for `steps` steps, all of them at the peak rate.
fn with_steps(mut config: RunConfig, steps: usize) -> Result<RunConfig> {
    config.train.schedule = config::Schedule::CosinePerEpoch;
    if config.task.entry()?.objective == Objective::PerToken {
        let examples = steps.saturating_mul(config.train.batch_size);
        config.task.set("train_examples", examples);
        config.task.set("test_examples", 1);
        config.task.read()?.check()?;
    }
    Ok(config)
}

/// State entries that the steps of all layers walk through, B L N a layer; `None` where the state grows with
/// the sequence.
fn state_elements(config: &RunConfig, tokens: f64) -> Result<Option<f64>> {
    let model = &config.model;
    let params = Params::seeded(0, DType::F32, &Device::Cpu);
    let mixer = mixers::find(&model.mixer)?.build(model, &params)?;
    let [one, two] = [1, 2].map(|length| mixer.state_size(length));
    let all = (one * model.n_layers) as f64 * tokens;
    Ok((one == two).then_some(all))
}

/// Refuses what no step can do without: weights, moments and gradients, and in every layer the residual
/// stream and the mixer's inputs.
fn check_memory(config: &RunConfig) -> Result<()> {
    let (m, sizes) = (&config.model, config.task.sizes()?);
    let [d, n, layers] = [m.d_model, m.d_state, m.n_layers].map(|x| x as f64);
    let train = &config.train;
    let at_once = train.micro_batch.unwrap_or(train.batch_size);
    let tokens = at_once as f64 * sizes.tokens_per_example() as f64;
    let weights = sizes.vocab_size as f64 * d + layers * d * d;
    let needed = 4.0 * (4.0 * weights + tokens * layers * (2.0 * d + n));
    let remedy = "give a smaller --batch-size, --d or --n";
    store::check_memory(needed, "a step", remedy)
}

/// The sizes of a step: batch, length, width, states; key-value pairs; vocabulary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Size {
    sizes: [usize; 4],
    pairs: usize,
    vocabulary: usize,
}

/// A step that takes a moment, of an odd length.
pub(super) const SMALL: Size = Size {
    sizes: [6, 36, 24, 12],
    pairs: 4,
    vocabulary: 96,
};

/// The paper's tasks.
pub(super) fn of_the_paper() -> [Size; 4] {
    std::array::from_fn(|task| Size {
        sizes: TASKS[task],
        pairs: PAIRS[task],
        vocabulary: VOCABULARY,
    })
}

impl Size {
    /// `mixer B,L,d,n form`.
    pub fn case(self, mixer: &str, form: Form) -> String {
        let [b, l, d, n] = self.sizes;
        format!("{mixer} {b},{l},{d},{n} {}", form.name())
    }

    /// A run under the reference protocol, with its dropout or another.
    pub fn config(
        self,
        mixer: &str,
        precision: Precision,
        dropout: Option<f64>,
    ) -> Result<RunConfig> {
        let [batch, seq_len, d, n] = self.sizes;
        let numbers = [
            ("d", d),
            ("n", n),
            ("vocab-size", self.vocabulary),
            ("seq-len", seq_len),
            ("kv-pairs", self.pairs),
            ("train-examples", batch),
            ("test-examples", 1),
            ("epochs", 1),
            ("batch-size", batch),
        ];
        let numbers = numbers.map(|(name, number)| (name, number.to_string()));
        let dropout = dropout.map(|p| ("dropout", p.to_string()));
        let settings = numbers.iter().chain(&dropout);
        let mut settings: Vec<(&str, &str)> = settings.map(|(k, v)| (*k, v.as_str())).collect();
        settings.extend([
            ("mixer", mixer),
            ("lr", "1e-3"),
            ("precision", precision.as_str()),
        ]);
        recipes::run("mqar", &settings)
    }
}
