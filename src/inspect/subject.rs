//! The subject of an inspection: a layer's mixer with its weights and its input.

use super::gradients::StateGradients;
use super::room::{self, LayerSizes, Need};
use crate::config::{ModelConfig, RunConfig};
use crate::error::{ensure, refuse, Error, Result};
use crate::ltv::Ltv;
use crate::mixers::{self, Entry, Mixer, MixerSpec, BACKWARD};
use crate::model::weights::{Checkpoint, WeightValues};
use crate::model::{Classifier, Io, LanguageModel};
use crate::nn::Params;
use crate::ops::rng::Rng;
use crate::store::check_memory;
use crate::tasks::wikitext::{self, WikitextConfig};
use crate::tasks::{self, Splits, NO_ANSWER};
use candle_core::{DType, Device, Tensor};
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

/// Largest number of copies of fresh weights in memory at a time, and of constants.
const COPIES: [f64; 2] = [2.0, 3.0];

/// Number of random tokens unless a length is given.
const DRAWN: usize = 128;

/// A model with its weights, on the CPU.
pub struct Network {
    /// Name in reports.
    pub name: String,
    /// The run that trained the weights, or would.
    pub config: RunConfig,
    params: Params,
    pub(super) body: SubjectModel,
    /// Whether the weights are those of a pretrained model.
    pretrained: bool,
    /// Whether its subjects hold gradients through time.
    pub traced: bool,
}

/// Tokens of an input, with the answers that its loss is computed from.
pub(super) struct Example {
    pub tokens: Vec<u32>,
    pub answers: Answers,
}

/// Answers to an example.
pub(super) enum Answers {
    /// Labels at tokens, in their order: for text, the next token.
    Tokens(Vec<(usize, u32)>),
    /// Label of the document, or of two.
    Document { second: Option<Vec<u32>>, label: u32 },
}

/// The kinds of models.
pub(super) enum SubjectModel {
    Language(LanguageModel),
    /// Language model whose weights are read from their files block by block.
    Mapped(WeightValues),
    Classifier(Classifier),
}

impl SubjectModel {
    fn new(config: &RunConfig, params: &Params) -> Result<Self> {
        let (model, sizes) = (&config.model, config.task.sizes()?);
        Ok(match &model.classifier {
            Some(_) => Self::Classifier(Classifier::new(model, &sizes, params)?),
            None => Self::Language(LanguageModel::new(model, Io::from(&sizes), params)?),
        })
    }
}

/// Input of a network.
#[derive(Clone, Debug)]
pub enum NetworkInput<'a> {
    /// Normal random numbers as the input of each mixer; the length defaults to the task's.
    Random(Option<usize>),
    /// The first test example of the task, or its first tokens, read from a data folder if the task has files.
    Task(Option<usize>, Option<&'a Path>),
    /// Random tokens.
    Tokens(Option<usize>),
    /// A text for a language model, or its first tokens, with the data folder of its tokenizer.
    Text(Cow<'a, str>, Option<usize>, Option<&'a Path>),
}

/// Stage of an inspection.
pub enum InspectStage {
    /// All sizes are known, and nothing has been computed yet.
    Planned(InspectPlan),
    /// Mixer of the next layer, with its input.
    Layer(Box<Subject>),
}

/// Estimated cost of an inspection.
#[derive(Clone, Copy, Debug)]
pub struct InspectPlan {
    /// Layers to inspect, or passes of layers that have two.
    pub layers: usize,
    /// Tokens of the input.
    pub seq_len: usize,
    /// Bytes of memory.
    pub bytes: f64,
    /// Seconds on this machine.
    pub seconds: f64,
}

/// A layer's mixer and its input.
pub struct Subject {
    /// Name in reports.
    pub name: String,
    /// Name of its network, and its layer there, counted from 0.
    pub place: (String, usize),
    /// Row of the registry.
    pub entry: &'static Entry,
    /// The model that it is a part of.
    pub model: ModelConfig,
    /// Seed of random replacements for missing weights.
    pub seed: u64,
    /// The mixer.
    pub mixer: Box<dyn Mixer>,
    /// Its weights, by their names in the mixer.
    pub weights: HashMap<String, Tensor>,
    /// Its input u, `(L, d_model)`.
    pub u: Tensor,
    /// Whether it was read from the files of a pretrained model.
    pub pretrained: bool,
    /// Gradients through time of its layer, if they were asked for.
    pub gradients: Option<StateGradients>,
    /// The part of the layer that it is.
    pub pass: LayerPass,
    /// Whether its layer attends to all tokens at once; its passes then are the parts of one sum.
    pub sees_all: bool,
}

/// Part of a layer that a [`Subject`] is.
pub enum LayerPass {
    /// All of it.
    Whole,
    /// The forward pass of a layer that reads its input in both directions; of attention to all tokens, the sum over the
    /// tokens up to each one.
    Forward,
    /// The backward pass, whose tokens are in reverse order; of attention to all tokens, the sum over those after each one.
    Backward(Box<BothPasses>),
}

/// Layer that reads its input in both directions, beside its backward pass.
pub struct BothPasses {
    /// Name of the layer in reports.
    pub name: String,
    /// Its forward pass.
    pub forward: Subject,
    /// The mixer of both passes.
    pub mixer: Box<dyn Mixer>,
}

/// A system of the form (11) and its input.
pub struct Seen {
    /// The matrices, in factors.
    pub system: Ltv,
    /// Input of the system, `(L, width)`.
    pub input: Tensor,
    /// Description of the computation of the input from u; `None` if it is u itself.
    pub around: Option<&'static str>,
}

impl Network {
    /// Builds the freshly initialised model of `config`. Fails if the weights do not fit into memory.
    pub fn fresh(config: RunConfig, dtype: DType) -> Result<Self> {
        let counted = Params::without_values(dtype);
        SubjectModel::new(&config, &counted)?;
        let numbers = [counted.count(), counted.constants()].map(|count| count as f64);
        let copies = COPIES[0] * numbers[0] + COPIES[1] * numbers[1];
        check_memory(copies * dtype.size_in_bytes() as f64, &of_sizes(&config.model), "take a smaller --d or --n")?;
        let params = Params::seeded(config.seed, dtype, &Device::Cpu).detached();
        Self::new(config.model.mixer.clone(), config, params)
    }

    /// Builds the model of trained weights. Fails if the weights do not match the model.
    pub fn trained(found: Checkpoint, dtype: DType) -> Result<Self> {
        let params = Params::given(found.values.clone(), dtype, &Device::Cpu).detached();
        let config = found.config.clone();
        let mapped = Some(found.values.clone()).filter(WeightValues::is_mapped);
        let id = found.origin.run.clone();
        let of = match (found.architecture, found.place.file_name()) {
            (Some(_), Some(folder)) => folder.to_string_lossy().into_owned(),
            _ => id.unwrap_or_default(),
        };
        let name = format!("{} {of}", config.model.mixer);
        if let Some(values) = mapped {
            let (name, body) = (name.trim().to_owned(), SubjectModel::Mapped(values));
            return Ok(Self { name, config, params, body, pretrained: found.architecture.is_some(), traced: false });
        }
        Self::new(name.trim().to_owned(), config, params).map_err(|e| match e {
            Error::Tensor(e) => {
                let first = e.to_string();
                Error::data(&found.place, first.lines().next().unwrap_or(""))
            }
            other => other,
        })
    }

    fn new(name: String, config: RunConfig, params: Params) -> Result<Self> {
        let body = SubjectModel::new(&config, &params)?;
        Ok(Self { name, config, params, body, pretrained: false, traced: false })
    }

    /// Returns the mixers of all layers, or of these, counted from 0, with their inputs. Fails if there is no
    /// such layer, the input is not valid for the task, the memory does not suffice for `need`, or outputs alone are needed
    /// of attention to all tokens, which is not computed in time.
    pub fn subjects(&self, input: NetworkInput, layers: &[usize], need: Need) -> Result<Vec<Subject>> {
        let mut found = Vec::new();
        self.visit(input, layers, need, &mut |stage| {
            if let InspectStage::Layer(subject) = stage {
                found.push(*subject);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Same as [`Self::subjects`], one after the other, so that their weights need not be in memory together.
    pub fn visit(
        &self,
        input: NetworkInput,
        layers: &[usize],
        need: Need,
        visit: &mut dyn FnMut(InspectStage) -> Result<()>,
    ) -> Result<()> {
        if need == Need::Pass {
            check_direction(&self.config.model)?;
        }
        let count = self.config.model.n_layers;
        if let Some(layer) = layers.iter().find(|layer| **layer >= count) {
            refuse!(flag "--layer" = layer, "{} has layers 0 to {}", self.name, count - 1);
        }
        let chosen: Vec<usize> = if layers.is_empty() { (0..count).collect() } else { layers.to_vec() };
        let (read, gradients) = self.read(input, &chosen, need, visit)?;
        for (layer, u) in chosen.iter().zip(&read) {
            let subject = |pass| -> Result<Subject> {
                let subject = self.subject(*layer, u, pass)?;
                Ok(Subject { gradients: gradients.get(*layer).cloned(), ..subject })
            };
            if !self.config.model.is_bidirectional() {
                visit(InspectStage::Layer(Box::new(subject(LayerPass::Whole)?)))?;
                continue;
            }
            let whole = subject(LayerPass::Whole)?;
            // Whether there are systems does not depend on the number of tokens.
            if whole.sees_all && whole.mixer.ltv_of_both_sides(&u.narrow(0, 0, 1)?)?.is_none() {
                visit(InspectStage::Layer(Box::new(whole)))?;
                continue;
            }
            let [forward, beside] = [subject(LayerPass::Forward)?, subject(LayerPass::Forward)?];
            visit(InspectStage::Layer(Box::new(forward)))?;
            let both = BothPasses { name: self.name_of(*layer)?, forward: beside, mixer: self.mixer(*layer)? };
            visit(InspectStage::Layer(Box::new(subject(LayerPass::Backward(Box::new(both)))?)))?;
        }
        Ok(())
    }

    /// Parameters without any that were read before.
    pub(super) fn params(&self) -> Params {
        match &self.body {
            SubjectModel::Mapped(values) => Params::given(values.clone(), self.params.dtype(), &Device::Cpu).detached(),
            SubjectModel::Language(_) | SubjectModel::Classifier(_) => self.params.clone(),
        }
    }

    /// Inputs of the mixers of these layers, `(L, d_model)` each, and the gradients through time of all layers if they are
    /// traced.
    fn read(
        &self,
        input: NetworkInput,
        layers: &[usize],
        need: Need,
        visit: &mut dyn FnMut(InspectStage) -> Result<()>,
    ) -> Result<(Vec<Tensor>, Vec<StateGradients>)> {
        let (model, dtype) = (&self.config.model, self.params.dtype());
        if let NetworkInput::Random(length) = input {
            ensure!(
                !self.traced,
                flag "--gradients", "needs a loss, and random numbers have no answers; use --input task, or --text with a language model");
            let seq_len = match length {
                Some(length) => length,
                None => self.config.task.sizes()?.seq_len,
            };
            ensure!(seq_len > 0, flag "--seq-len" = seq_len, "must be at least 1");
            visit(InspectStage::Planned(self.plan(layers.len(), seq_len, need)?))?;
            let mut rng = Rng::new(self.config.seed, "inspect/input", 0);
            let count = seq_len * model.d_model;
            let values: Vec<f64> = (0..count).map(|_| rng.normals().0).collect();
            let u = Tensor::from_vec(values, (seq_len, model.d_model), &Device::Cpu)?;
            return Ok((vec![u.to_dtype(dtype)?; layers.len()], Vec::new()));
        }
        let example = self.example(input)?;
        visit(InspectStage::Planned(self.plan(layers.len(), example.tokens.len(), need)?))?;
        let gradients = if self.traced { self.state_gradients(&example)? } else { Vec::new() };
        let tokens = Tensor::from_slice(&example.tokens, (1, example.tokens.len()), &Device::Cpu)?;
        let of_layers = |of_all: Vec<Tensor>| layers.iter().map(|&layer| of_all[layer].clone()).collect::<Vec<_>>();
        let read = match &self.body {
            SubjectModel::Language(model) => of_layers(model.mixer_inputs(&tokens)?),
            SubjectModel::Classifier(classifier) => of_layers(classifier.mixer_inputs(&tokens)?),
            SubjectModel::Mapped(_) => {
                let io = Io::of(&self.config.task)?;
                LanguageModel::mixer_inputs_by_block(model, io, &|| self.params(), &tokens, layers)?
            }
        };
        let read = read.iter().map(|u| Ok(u.squeeze(0)?.contiguous()?)).collect::<Result<_>>()?;
        Ok((read, gradients))
    }

    /// Tokens of `input`, cut to its length, with their answers.
    pub(super) fn example(&self, input: NetworkInput) -> Result<Example> {
        if let NetworkInput::Text(_, Some(0), _) | NetworkInput::Tokens(Some(0)) | NetworkInput::Task(Some(0), _) =
            input
        {
            refuse!(flag "--seq-len" = 0, "must be at least 1");
        }
        let (mut example, length) = match input {
            NetworkInput::Text(text, length, data_dir) => (self.followed(self.encoded(&text, data_dir)?)?, length),
            NetworkInput::Tokens(length) => (self.followed(self.drawn(length)?)?, length),
            NetworkInput::Task(length, data_dir) => (self.first_tested(data_dir)?, length),
            NetworkInput::Random(_) => unreachable!("random numbers are no tokens"),
        };
        let most = self.config.task.sizes()?.longest().min(example.tokens.len());
        let length = length.unwrap_or(most);
        ensure!(
            (1..=most).contains(&length),
            flag "--seq-len" = length, "the input of {} has 1 to {most} tokens", self.name);
        example.tokens.truncate(length);
        if let Answers::Tokens(answers) = &mut example.answers {
            answers.retain(|(at, _)| *at < length);
        }
        Ok(example)
    }

    /// Tokens of a text, each answered by the next one if the model predicts text.
    fn followed(&self, tokens: Vec<u32>) -> Result<Example> {
        let next = tokens.iter().skip(1).copied().enumerate();
        let answers = next.filter(|_| self.predicts_text()).collect();
        Ok(Example { answers: Answers::Tokens(answers), tokens })
    }

    fn predicts_text(&self) -> bool {
        self.config.task.entry().is_ok_and(|task| task.objective.is_language_model())
    }

    /// Tokens drawn with equal probability, `length` of them, or [`DRAWN`] at most.
    fn drawn(&self, length: Option<usize>) -> Result<Vec<u32>> {
        let sizes = self.config.task.sizes()?;
        let count = length.unwrap_or(DRAWN).min(sizes.longest());
        let mut rng = Rng::new(self.config.seed, "inspect/tokens", 0);
        Ok((0..count).map(|_| (rng.uniform() * sizes.vocab_size as f64) as u32).collect())
    }

    fn encoded(&self, text: &str, data_dir: Option<&Path>) -> Result<Vec<u32>> {
        let task = &self.config.task;
        ensure!(
            self.predicts_text(),
            flag "--text", "needs a language model, but {} is a model of {}; use --input task for an example of that task", self.name, task.name());
        let settings: WikitextConfig = task.typed()?;
        let ids = wikitext::ids_for(&settings, text, data_dir)?;
        ensure!(
            !ids.is_empty(),
            flag "--text", "has no tokens; give at least one");
        Ok(ids)
    }

    /// The first test example.
    fn first_tested(&self, data_dir: Option<&Path>) -> Result<Example> {
        Ok(match tasks::load(&self.config.task, data_dir)? {
            Splits::PerToken { test, .. } => {
                let batch = test.batch(0..1);
                let labels = batch.positions.iter().zip(batch.answers).filter(|(_, label)| **label != NO_ANSWER);
                let answers = labels.map(|(at, label)| (*at as usize, *label)).collect();
                Example { tokens: batch.tokens.to_vec(), answers: Answers::Tokens(answers) }
            }
            Splits::Pooled(splits) => {
                let test = &splits.test;
                let document = |which| test.document(0, which).iter().map(|&token| u32::from(token)).collect();
                let second = (test.documents() > 1).then(|| document(1));
                Example { tokens: document(0), answers: Answers::Document { second, label: test.label(0).into() } }
            }
            Splits::NextToken(splits) => {
                let (text, all) = (&splits.test, splits.test.window(0).iter().collect::<Vec<u32>>());
                let answers = all[1..].iter().copied().enumerate().collect();
                Example { tokens: all[..text.seq_len()].to_vec(), answers: Answers::Tokens(answers) }
            }
        })
    }

    /// Cost of inspecting `layers` layers. Fails if the memory does not suffice.
    fn plan(&self, layers: usize, seq_len: usize, need: Need) -> Result<InspectPlan> {
        let model = &self.config.model.clone().one_way();
        let passes = if self.config.model.is_bidirectional() { 2 } else { 1 };
        let sizes = match &self.body {
            SubjectModel::Mapped(values) => values.sizes(),
            SubjectModel::Language(_) | SubjectModel::Classifier(_) => self.params.sizes(),
        };
        let parameters: usize = sizes.iter().filter(|(name, _)| name.contains(".mixer.")).map(|(_, size)| size).sum();
        let (layers, parameters) = (layers * passes, parameters / passes);
        let bytes = room::of_model(model, parameters, seq_len, need)?;
        let what = format!("--seq-len {seq_len} of {}", of_sizes(model));
        check_memory(bytes, &what, "take a smaller --seq-len, --d or --n")?;
        let all: usize = sizes.values().sum();
        let seconds = room::seconds(model, all, [layers, seq_len], need)?;
        Ok(InspectPlan { layers, seq_len, bytes, seconds })
    }

    /// Mixer of a layer.
    fn mixer(&self, layer: usize) -> Result<Box<dyn Mixer>> {
        let (entry, model) = mixers::of_layer(&self.config.model, layer)?;
        Ok(entry.build(MixerSpec::from(&*model).in_layer(layer), &self.scope(&self.params(), layer))?)
    }

    /// Parameters of the mixer of a layer.
    fn scope(&self, params: &Params, layer: usize) -> Params {
        params.scope("layers").scope(layer).scope("mixer")
    }

    /// Name of a layer in reports.
    fn name_of(&self, layer: usize) -> Result<String> {
        let (entry, model) = mixers::of_layer(&self.config.model, layer)?;
        let name = match model.n_layers {
            1 => self.name.clone(),
            _ => format!("{}, layer {layer}", self.name),
        };
        Ok(if entry.name == self.config.model.mixer { name } else { format!("{name} ({})", entry.name) })
    }

    /// The part `pass` of a layer, along the input u `(L, d_model)` of the layer.
    fn subject(&self, layer: usize, u: &Tensor, pass: LayerPass) -> Result<Subject> {
        let (entry, model) = mixers::of_layer(&self.config.model, layer)?;
        let spec = MixerSpec::from(&*model);
        let sees_all = spec.bidirectional && !entry.has_two_passes(&spec);
        let model = model.into_owned().one_way();
        let params = self.params();
        let scope = self.scope(&params, layer);
        let backward = matches!(pass, LayerPass::Backward(_));
        let apart = backward && !sees_all;
        let own = if apart { scope.apart(BACKWARD) } else { scope };
        let mixer = entry.build(MixerSpec::from(&model).in_layer(layer), &own)?;
        let shared = if apart { format!("{BACKWARD}.") } else { String::new() };
        let prefix = format!("layers.{layer}.mixer.{shared}");
        let of_mixer = |(name, var): (String, candle_core::Var)| {
            // A parameter that layers share is in no scope, or in that of the backward passes.
            let found = name.strip_prefix(&prefix).or_else(|| name.strip_prefix(&shared))?;
            let own = found.split_once('.').is_none_or(|(scope, _)| name.starts_with(&prefix) && scope != BACKWARD);
            own.then(|| (found.to_owned(), var.as_detached_tensor()))
        };
        let (suffix, u) = match pass {
            LayerPass::Whole => ("", u.clone()),
            LayerPass::Forward => (", forward", u.clone()),
            LayerPass::Backward(_) => (", backward", backwards(u)?),
        };
        Ok(Subject {
            name: self.name_of(layer)? + suffix,
            place: (format!("{}{suffix}", self.name), layer),
            entry,
            model,
            seed: self.config.seed,
            mixer,
            weights: params.vars().into_iter().filter_map(of_mixer).collect(),
            u,
            pretrained: self.pretrained,
            gradients: None,
            pass,
            sees_all,
        })
    }
}

/// The rows of x in reverse order.
pub fn backwards(x: &Tensor) -> candle_core::Result<Tensor> {
    let order: Vec<u32> = (0..x.dim(0)? as u32).rev().collect();
    x.index_select(&Tensor::new(order, x.device())?, 0)
}

/// Error if attention of `model` sees all tokens at once: it has no forward pass in time.
pub fn check_direction(model: &ModelConfig) -> Result<()> {
    for (entry, model, _) in mixers::of_model(model)? {
        let spec = MixerSpec::from(&*model);
        ensure!(
            !spec.bidirectional || entry.has_two_passes(&spec),
            flag "--bidirectional" = true, "mixer `{}` attends to all tokens at once, and has no pass in time; plain `dsf inspect` shows its kernel", entry.name
        );
    }
    Ok(())
}

/// Names a model in a message about its memory.
fn of_sizes(model: &ModelConfig) -> String {
    format!("{} with --d {} and --n {}", model.mixer, model.d_model, model.d_state)
}

impl Subject {
    /// Sizes for memory estimates.
    pub fn sizes(&self) -> LayerSizes<'_> {
        LayerSizes {
            entry: self.entry,
            model: &self.model,
            parameters: self.weights.values().map(Tensor::elem_count).sum(),
            seq_len: self.seq_len(),
        }
    }

    /// Its system along u or its inner system; otherwise the reason why there is neither.
    pub fn system(&self) -> Result<Result<Seen, &'static str>> {
        if self.sees_all {
            let of_both = |u: &Tensor| self.mixer.ltv_of_both_sides(u);
            let system = match &self.pass {
                LayerPass::Whole => None,
                LayerPass::Forward => of_both(&self.u)?.map(|[earlier, _]| earlier),
                LayerPass::Backward(_) => of_both(&backwards(&self.u)?)?.map(|[_, later]| later),
            };
            let seen = system.map(|system| Seen { system, input: self.u.clone(), around: None });
            return Ok(seen.ok_or_else(|| self.mixer.without_system()));
        }
        if let Some(system) = self.mixer.ltv(&self.u)? {
            return Ok(Ok(Seen { system, input: self.u.clone(), around: None }));
        }
        Ok(match self.mixer.inner(&self.u)? {
            Some(inner) => Ok(Seen { system: inner.system, input: inner.input, around: Some(inner.around) }),
            None => Err(self.mixer.without_system()),
        })
    }

    /// Replaces its maps by normal weights of unit gain and its biases by zeros, since small initial weights make every
    /// score nearly 0.
    pub fn of_unit_gain(self) -> Result<Self> {
        let scale = (self.model.d_model as f64).powf(-0.5);
        let seed = self.seed;
        let drawn = |(name, value): (&String, &Tensor)| {
            let name = name.clone();
            if value.rank() < 2 {
                return Ok((name, value.zeros_like()?));
            }
            let mut rng = Rng::new(seed, &format!("inspect/unit/{name}"), 0);
            let count = value.elem_count();
            let values: Vec<f64> = (0..count).map(|_| scale * rng.normals().0).collect();
            let drawn = Tensor::from_vec(values, value.shape(), value.device())?;
            Ok((name, drawn.to_dtype(value.dtype())?))
        };
        let weights: Result<HashMap<String, Tensor>> = self.weights.iter().map(drawn).collect();
        let weights = weights?;
        let params = Params::given(weights.clone(), self.u.dtype(), &Device::Cpu).detached();
        Ok(Self { mixer: self.entry.build(&self.model, &params)?, weights, ..self })
    }

    /// Tokens of its input.
    pub fn seq_len(&self) -> usize {
        self.u.dims()[0]
    }
}
