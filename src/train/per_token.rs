//! Labels at some positions of sequences of one length. The examples come in the same order every epoch, or every epoch
//! has new ones.

use super::labelled::Labelled;
use super::objective::{LabelMeans, MicroBatch, OneShape, ScoreSum, StepExamples, Tested, Trainee};
use crate::config::RunConfig;
use crate::model::{Io, LanguageModel};
use crate::nn::{Cx, Params};
use crate::tasks::{Dataset, ExampleSizes, Slices, Task};
use candle_core::{Device, Result, Tensor};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The objective of [`crate::tasks::Objective::PerToken`].
pub(super) struct PerToken<'a> {
    config: &'a RunConfig,
    /// Task of the run, which draws new examples.
    task: Box<dyn Task>,
    train: Cow<'a, Dataset>,
    /// Epoch of the training examples, counted from 0.
    epoch: usize,
    /// Empty if the test split decides when training stops.
    val: &'a Dataset,
    test: &'a Dataset,
    /// Slices of the test answers.
    slices: Option<Slices>,
    /// Class of each test answer, if the task reports the mean accuracy of classes.
    classes: Option<Vec<u32>>,
    device: Device,
    model: LanguageModel,
    /// Model of the same weights without gradients, for tests.
    tested: LanguageModel,
}

impl<'a> PerToken<'a> {
    pub fn new(
        config: &'a RunConfig,
        sizes: &ExampleSizes,
        [train, val, test]: [&'a Dataset; 3],
        params: &Params,
        device: &Device,
    ) -> Result<Self> {
        let io = Io::from(sizes);
        let task = config.task.read().map_err(candle_core::Error::wrap)?;
        Ok(Self {
            config,
            train: Cow::Borrowed(train),
            epoch: 0,
            val,
            test,
            slices: task.slices(test),
            classes: task.has_macro_accuracy().then(|| test.all_answers()),
            task,
            device: device.clone(),
            model: LanguageModel::new(&config.model, io, params)?,
            tested: LanguageModel::new(&config.model, io, &params.detached())?,
        })
    }
}

impl PerToken<'_> {
    /// Tests all of `data`. `read` receives a tensor `(answers)` for each batch, 1 where the answer is correct.
    fn score(&self, data: &Dataset, read: &mut dyn FnMut(&Tensor) -> Result<()>) -> Result<LabelMeans> {
        let mut sum = ScoreSum::default();
        let train = &self.config.train;
        let size = train.micro_batch.unwrap_or(train.batch_size);
        for first in (0..data.len()).step_by(size) {
            let range = first..(first + size).min(data.len());
            let batch = Labelled::new(data.batch(range), data, &self.device)?;
            let found = batch.classify(&self.tested, &Cx::eval())?;
            sum.add(&found, batch.len())?;
            read(&found.correct)?;
        }
        Ok(sum.score())
    }
}

impl Trainee for PerToken<'_> {
    fn begin_epoch(&mut self, epoch: usize) {
        if epoch != self.epoch {
            if let Some(fresh) = self.task.fresh(epoch) {
                self.train = Cow::Owned(fresh);
            }
            self.epoch = epoch;
        }
    }

    fn examples(&self) -> usize {
        self.train.len()
    }

    fn tokens(&self) -> usize {
        self.train.len() * self.train.seq_len()
    }

    fn state_size(&self) -> usize {
        // Test length, because the state size is reported beside the test accuracy.
        self.model.state_size(self.test.seq_len())
    }

    fn micro_batches(&self, step: &StepExamples) -> Vec<MicroBatch> {
        let examples: Vec<usize> = step.range.clone().collect();
        let most = self.config.train.micro_batch.unwrap_or(examples.len());
        MicroBatch::of_one_length(&examples, most, self.train.seq_len())
    }

    fn loss(&self, batch: &MicroBatch, cx: &Cx) -> Result<Tensor> {
        let first = batch.examples[0];
        let examples = self.train.batch(first..first + batch.examples.len());
        let labelled = Labelled::new(examples, &self.train, &self.device)?;
        Ok(labelled.classify(&self.model, cx)?.loss)
    }

    fn slices(&self) -> Option<&Slices> {
        self.slices.as_ref()
    }

    fn evaluate(&self) -> Result<Tested> {
        let val = self.val;
        let val = (!val.is_empty()).then(|| self.score(val, &mut |_| Ok(())));
        let mut correct = Vec::new();
        let mut read = |found: &Tensor| {
            correct.extend(found.flatten_all()?.to_vec1::<f32>()?);
            Ok(())
        };
        let test = match (&self.slices, &self.classes) {
            (None, None) => self.score(self.test, &mut |_| Ok(()))?,
            _ => self.score(self.test, &mut read)?,
        };
        let (slices, classes) = (self.slices.as_ref(), self.classes.as_ref());
        Ok(Tested {
            val: val.transpose()?,
            test,
            right: slices.map_or(Vec::new(), |slices| slices.right(&correct)),
            macro_accuracy: classes.map(|classes| macro_accuracy(classes, &correct)),
        })
    }

    fn one_shape(&self) -> Option<OneShape<'_>> {
        self.config.train.micro_batch.is_none().then_some(OneShape { model: &self.model, train: &self.train })
    }
}

/// Mean over the classes that occur in `classes`, the class of each answer, of the share of correct answers; `correct` is 1
/// for a correct answer and 0 for a wrong one.
fn macro_accuracy(classes: &[u32], correct: &[f32]) -> f64 {
    let mut found: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for (class, correct) in classes.iter().zip(correct) {
        let (right, answers) = found.entry(*class).or_default();
        (*right, *answers) = (*right + f64::from(*correct), *answers + 1.0);
    }
    let shares: f64 = found.values().map(|(right, answers)| right / answers).sum();
    shares / found.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::macro_accuracy;

    #[test]
    fn every_class_counts_as_much_as_any_other() {
        // Three of four answers of class 7 and none of class 2.
        let found = macro_accuracy(&[7, 7, 2, 7, 7], &[1.0, 0.0, 0.0, 1.0, 1.0]);
        assert_eq!(found, 0.375);
    }
}
