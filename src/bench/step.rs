//! A training step as [`Trainer`] makes it: batch, forward, backward, AdamW.

use super::clock::{timed, Timing};
use super::export::save;
use super::floors;
use super::machine::{self, Machine};
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::mixers;
use crate::nn::Params;
use crate::ops::taken as route;
use crate::store::peak_memory_bytes;
use crate::tasks::{self, Sizes, Splits};
use crate::train::Trainer;
use candle_core::{DType, Device, Tensor};
use serde::Serialize;
use std::path::Path;

/// Steps before the clock starts: the first touches fresh memory, the second finds it warm.
const WARM_UP: usize = 2;

/// Most timed steps: each has a batch of its own in memory.
const MOST_STEPS: usize = 1000;

/// A run of which only a few steps are made, with the data for them.
pub struct Step {
    config: RunConfig,
    sizes: Sizes,
    steps: usize,
}

impl Step {
    /// The first steps of `config`, `steps` of them timed. Refuses sizes that cannot fit into
    /// this machine's memory.
    pub fn new(config: RunConfig, steps: usize) -> Result<Self> {
        if !(1..=MOST_STEPS).contains(&steps) {
            return Err(Error::usage(format!(
                "--steps must be 1 to {MOST_STEPS}, not {steps}"
            )));
        }
        let sizes = config.task.sizes()?;
        fits(&config, &sizes)?;
        let mut config = config;
        let examples = (WARM_UP + steps).saturating_mul(config.train.batch_size);
        config.task.set("train_examples", examples);
        config.task.set("test_examples", 1);
        config.task.read()?.check()?;
        Ok(Self {
            config,
            sizes,
            steps,
        })
    }

    /// Makes the steps.
    ///
    /// `export` names a safetensors file for what another program needs to make the same steps:
    /// the weights before the first, `data.tokens` u32 and `data.labels` i64, (steps, B, L) each,
    /// a label being -100 where nothing is asked.
    pub fn measure(&self, threads: usize, export: Option<&Path>) -> Result<StepReport> {
        let machine = Machine::now(threads);
        let elements = self.state_elements()?;
        let data = tasks::load(&self.config.task, None)?;
        let mut trainer = Trainer::new(&self.config, &data, &Device::Cpu)?;
        if let Some(path) = export {
            self::export(path, &trainer, &data, self.config.train.batch_size)?;
        }
        let (mut losses, mut spans) = (Vec::new(), Vec::new());
        for _ in 0..WARM_UP + self.steps {
            let (loss, span) = timed(|| trainer.step())?;
            losses.push(loss);
            spans.push(span);
        }
        let time = Timing::of(&spans[WARM_UP..]);
        let floor = floors::step(&self.config, &floors::CORE, 4.0);
        let (config, sizes) = (&self.config, self.sizes);
        Ok(StepReport {
            bench: "step",
            mixer: config.model.mixer.clone(),
            variant: config.model.variant.clone(),
            protocol: config.protocol.as_str(),
            d: config.model.d_model,
            n: config.model.d_state,
            heads: config.model.n_heads,
            layers: config.model.n_layers,
            seq_len: sizes.seq_len,
            kv_pairs: sizes.labels_per_example,
            vocab_size: sizes.vocab_size,
            batch_size: config.train.batch_size,
            embed_dropout: config.model.embed_dropout,
            attn_dropout: config.model.attn_dropout,
            lr: config.train.lr,
            weight_decay: config.train.weight_decay,
            steps: self.steps,
            route: route(),
            tokens_per_cpu_second: self.tokens() / time.cpu_seconds,
            state_elements_per_cpu_second: elements.map(|e| e / time.cpu_seconds),
            floor_seconds: floor,
            fraction_of_floor: floor.map(|floor| floor / time.cpu_seconds),
            time,
            peak_memory_bytes: peak_memory_bytes(),
            parameters: trainer.parameters(),
            first_loss: losses[0],
            loss: losses[losses.len() - 1],
            losses,
            machine,
        })
    }

    fn tokens(&self) -> f64 {
        (self.config.train.batch_size * self.sizes.seq_len) as f64
    }

    /// State entries that a step walks through, B L N a layer; `None` where the state grows with
    /// the sequence.
    fn state_elements(&self) -> Result<Option<f64>> {
        let model = &self.config.model;
        let params = Params::seeded(0, DType::F32, &Device::Cpu);
        let mixer = (mixers::find(&model.mixer)?.build)(model, &params)?;
        let [one, two] = [1, 2].map(|length| mixer.state_size(length));
        let all = (one * model.n_layers) as f64 * self.tokens();
        Ok((one == two).then_some(all))
    }
}

/// Writes the weights as they are and the batches of all steps that there are data for.
pub(super) fn export(path: &Path, trainer: &Trainer, data: &Splits, batch: usize) -> Result<()> {
    let Splits::PerToken { train: data, .. } = data else {
        return Err(Error::usage(
            "only sequences with labels at some of their positions are exported",
        ));
    };
    let shape = (data.len() / batch, batch, data.seq_len());
    let tokens = Tensor::from_slice(data.tokens(), shape, &Device::Cpu)?;
    let labels = Tensor::from_vec(data.dense_labels(), shape, &Device::Cpu)?;
    let batches = [("data.tokens", tokens), ("data.labels", labels)];
    let batches = batches.map(|(name, x)| (name.to_owned(), x));
    let weights = trainer.weights().into_iter();
    let weights = weights.map(|(name, var)| Ok((name, var.to_device(&Device::Cpu)?)));
    let weights = weights.collect::<Result<Vec<_>>>()?;
    save(path, weights.into_iter().chain(batches).collect())
}

/// Refuses what no step can do without: weights, moments and gradients, and in every layer the
/// residual stream and the mixer's inputs.
fn fits(config: &RunConfig, sizes: &Sizes) -> Result<()> {
    let m = &config.model;
    let [d, n, layers] = [m.d_model, m.d_state, m.n_layers].map(|x| x as f64);
    let tokens = config.train.batch_size as f64 * sizes.seq_len as f64;
    let weights = sizes.vocab_size as f64 * d + layers * d * d;
    let needed = 4.0 * (4.0 * weights + tokens * layers * (2.0 * d + n));
    machine::fits(needed, "a step", "a smaller --batch-size, --d or --n")
}

/// What a training step takes, and of which kind it was.
#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    /// Always `step`.
    pub bench: &'static str,
    /// Mixer.
    pub mixer: String,
    /// Its variant.
    pub variant: String,
    /// Protocol around it.
    pub protocol: &'static str,
    /// Embedding width d.
    pub d: usize,
    /// State expansion n.
    pub n: usize,
    /// Heads s.
    pub heads: usize,
    /// Blocks.
    pub layers: usize,
    /// Sequence length L.
    pub seq_len: usize,
    /// Pairs k, which are the labelled positions of an example.
    pub kv_pairs: usize,
    /// Vocabulary V.
    pub vocab_size: usize,
    /// Examples a step B.
    pub batch_size: usize,
    /// Dropout on embeddings.
    pub embed_dropout: f64,
    /// Dropout on attention weights.
    pub attn_dropout: f64,
    /// Peak learning rate.
    pub lr: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Timed steps, after two that are not.
    pub steps: usize,
    /// How the ops were computed.
    pub route: &'static str,
    /// Of one step.
    #[serde(flatten)]
    pub time: Timing,
    /// B L over the CPU seconds.
    pub tokens_per_cpu_second: f64,
    /// State entries of all layers, forward and backward once each, over the CPU seconds; absent
    /// where the state grows with the sequence.
    pub state_elements_per_cpu_second: Option<f64>,
    /// CPU seconds below which no step of these sizes gets; absent for mixers without a formula.
    pub floor_seconds: Option<f64>,
    /// The floor over the median: 1 would be perfect.
    pub fraction_of_floor: Option<f64>,
    /// The most memory this process has held.
    pub peak_memory_bytes: Option<u64>,
    /// Trained numbers.
    pub parameters: usize,
    /// Loss of the first step, before any update.
    pub first_loss: f64,
    /// Loss of the last step.
    pub loss: f64,
    /// Losses of all steps, also those before the clock started.
    pub losses: Vec<f64>,
    /// Where it ran.
    #[serde(flatten)]
    pub machine: Machine,
}
