//! Checks training trajectories of the whole model under the reference protocol, step by step. As in training, loss and
//! gradients are computed at the labelled positions only; the first logits are computed at all positions.

use super::file::{distance, magnitude, GoldenFile};
use super::{gradients, mixer, Worst};
use crate::config::{Layout, ModelConfig, PositionEmbedding, StateMixer};
use crate::error::{refuse, Error, Result};
use crate::mixers::{Entry, Family};
use crate::model::{Io, LanguageModel};
use crate::nn::{Cx, Params, Rows};
use crate::train::{AdamW, Labelled};
use candle_core::backprop::GradStore;
use candle_core::{DType, Device, IndexOp, Tensor};

pub(super) fn check(file: &GoldenFile) -> Result<Option<Worst>> {
    let Some(found) = mixer::entry(file.metadata("mixer")?) else { return Ok(None) };
    let mut worst = Worst::default();
    for dtype in [DType::F64, DType::F32] {
        worst.merge(Trajectory::new(file, found, dtype)?.follow()?);
    }
    Ok(Some(worst))
}

struct Trajectory<'a> {
    file: &'a GoldenFile,
    dtype: DType,
    params: Params,
    model: LanguageModel,
    optimizer: AdamW,
    family: Family,
}

impl<'a> Trajectory<'a> {
    fn new(file: &'a GoldenFile, found: (&'static Entry, &str), dtype: DType) -> Result<Self> {
        let sizes = file.object("config")?;
        let (layout, state_mixer) = match file.metadata("state_mixer")? {
            "absent" => (Layout::Mamba, StateMixer::None),
            "None" => (Layout::Transformer, StateMixer::Identity),
            "mlp" => (Layout::Transformer, StateMixer::Mlp),
            other => refuse!("unknown state mixer `{other}`"),
        };
        let config = ModelConfig {
            n_layers: sizes.size("layers")?,
            layout,
            state_mixer,
            positions: file.metadata("positions")? == "True",
            position_embedding: PositionEmbedding::Learnt,
            ..mixer::model_config(found, &sizes)?
        };
        let io = Io { vocab_size: sizes.size("vocab")?, seq_len: sizes.size("L")? };
        let params = Params::given(file.under("init."), dtype, &Device::Cpu);
        let model = LanguageModel::new(&config, io, &params)?;
        Ok(Self {
            optimizer: AdamW::new(params.vars(), sizes.number("wd")?)?,
            family: found.0.family,
            file,
            dtype,
            params,
            model,
        })
    }

    fn what(&self, name: &str) -> String {
        format!("{} {name}", self.dtype.as_str())
    }

    fn follow(mut self) -> Result<Worst> {
        let mut worst = Worst::default();
        let batches = self.batches()?;
        let logits = self.full_logits(&batches[0])?;
        let wanted = self.file.tensor("logits0")?;
        let tolerance = 1e-5 * magnitude(wanted)?;
        worst.add(self.what("logits0"), distance(&logits, wanted)?, tolerance);
        for (step, (lr, wanted)) in self.file.vec("lr")?.iter().zip(self.file.vec("loss")?).enumerate() {
            let cx = Cx::train(0, step as u64);
            let loss = batches[step % batches.len()].classify(&self.model, &cx)?.loss;
            let value = loss.to_dtype(DType::F64)?.to_scalar::<f64>()?;
            worst.add(self.what(&format!("loss {step}")), (value - wanted).abs(), 1e-5 * wanted.abs());
            let grads = loss.backward()?;
            if step == 0 {
                worst.merge(self.first_gradients(&grads)?);
            }
            self.optimizer.step(&grads, *lr)?;
        }
        worst.merge(self.final_weights()?);
        Ok(worst)
    }

    /// Batches of an epoch, one per step.
    fn batches(&self) -> Result<Vec<Labelled>> {
        let (inputs, labels) = (self.file.tensor("inputs")?, self.file.tensor("labels")?);
        let (steps, _, _) = inputs.dims3()?;
        let batch = |step: usize| -> Result<Labelled> {
            let labels = labels.i(step)?.to_vec2::<i64>()?;
            let marked: Vec<Vec<(u32, u32)>> = labels
                .iter()
                .map(|row| {
                    let marked = (0u32..).zip(row).filter(|(_, label)| **label >= 0);
                    marked.map(|(i, label)| (i, *label as u32)).collect()
                })
                .collect();
            let (size, count) = (marked.len(), marked.first().map_or(0, Vec::len));
            if count == 0 || marked.iter().any(|m| m.len() != count) {
                return Err(Error::usage("all examples must have the same number of labels, at least one"));
            }
            let (positions, answers): (Vec<u32>, Vec<u32>) = marked.into_iter().flatten().unzip();
            let positions = Tensor::from_vec(positions, (size, count), &Device::Cpu)?;
            let answers = Tensor::from_vec(answers, size * count, &Device::Cpu)?;
            Ok(Labelled::of(inputs.i(step)?.to_dtype(DType::U32)?, Some(Rows { positions }), answers))
        };
        if steps == 0 {
            refuse!("there are no batches");
        }
        (0..steps).map(batch).collect()
    }

    fn full_logits(&self, batch: &Labelled) -> Result<Tensor> {
        let hidden = self.model.hidden(&batch.tokens, None, &Cx::eval())?;
        Ok(self.model.logits(&hidden)?)
    }

    fn first_gradients(&self, grads: &GradStore) -> Result<Worst> {
        let expected = self.file.under("grad0.");
        let what = |name: &str| self.what(&format!("grad0.{name}"));
        gradients(&expected, &self.params.vars(), grads, 1e-4, what)
    }

    fn final_weights(&self) -> Result<Worst> {
        let mut worst = Worst::default();
        for (name, var) in self.params.vars() {
            // Softmax's key bias does not affect the loss, so its gradient is zero up to rounding noise, which AdamW
            // amplifies.
            if self.family == Family::Attention && name.ends_with("mixer.bk") {
                continue;
            }
            let wanted = self.file.tensor(&format!("final.{name}"))?;
            worst.add(self.what(&format!("final.{name}")), distance(var.as_tensor(), wanted)?, 5e-5);
        }
        Ok(worst)
    }
}
