//! Batches of sequences on the device, whose predictions are compared with labels.

use crate::model::LanguageModel;
use crate::nn::{Cx, Rows};
use crate::ops::Classified;
use crate::tasks::{Batch, Dataset, IdSlice, NO_ANSWER};
use candle_core::{Device, Result, Tensor};

/// Batch on the device, with the rows that carry a label.
pub struct Labelled {
    /// Token ids, `(batch, seq_len)`, u32.
    pub tokens: Tensor,
    /// Positions of the labels; `None` if every position has one.
    pub rows: Option<Rows>,
    /// Labels, `(batch · labels)`, u32; without those that are no answers.
    pub answers: Tensor,
    /// Indices of the answers among the labels of all sequences, u32; `None` if all are answers.
    answered: Option<Tensor>,
}

impl Labelled {
    /// Uploads `batch`, a part of `data`.
    pub fn new(batch: Batch, data: &Dataset, device: &Device) -> Result<Self> {
        let (seq_len, labels) = (data.seq_len(), data.labels_per_example());
        let size = batch.tokens.len() / seq_len;
        let positions = Tensor::from_slice(batch.positions, (size, labels), device)?;
        let is_answer = |(i, answer): (u32, &u32)| (*answer != NO_ANSWER).then_some((i, *answer));
        let answered: Vec<(u32, u32)> = (0..).zip(batch.answers).filter_map(is_answer).collect();
        let (indices, answers): (Vec<u32>, Vec<u32>) = answered.into_iter().unzip();
        let count = answers.len();
        let indices = (count < batch.answers.len()).then(|| Tensor::from_vec(indices, count, device));
        Ok(Self {
            tokens: Tensor::from_slice(batch.tokens, (size, seq_len), device)?,
            rows: Some(Rows { positions }),
            answers: Tensor::from_vec(answers, count, device)?,
            answered: indices.transpose()?,
        })
    }

    /// Tokens and answers that are on the device.
    pub fn of(tokens: Tensor, rows: Option<Rows>, answers: Tensor) -> Self {
        Self { tokens, rows, answers, answered: None }
    }

    /// Uploads `pieces` of a text, all of one length. All ids but the last are inputs; the last `scored` ids are the
    /// labels of the positions before them.
    pub(super) fn shifted(pieces: &[IdSlice], scored: usize, device: &Device) -> Result<Self> {
        let (count, inputs) = (pieces.len(), pieces.first().map_or(1, |ids| ids.len()) - 1);
        let cut =
            |from: usize, to: usize| -> Vec<u32> { pieces.iter().flat_map(|ids| ids.slice(from..to).iter()).collect() };
        let unscored = inputs - scored;
        let rows = || -> Result<Rows> {
            let positions = Tensor::arange(unscored as u32, inputs as u32, device)?;
            let positions = positions.broadcast_as((count, scored))?.contiguous()?;
            Ok(Rows { positions })
        };
        let tokens = Tensor::from_vec(cut(0, inputs), (count, inputs), device)?;
        let answers = Tensor::from_vec(cut(unscored + 1, inputs + 1), count * scored, device)?;
        Ok(Self::of(tokens, (unscored > 0).then(rows).transpose()?, answers))
    }

    /// Number of answers.
    pub(super) fn len(&self) -> usize {
        self.answers.elem_count()
    }

    /// Mean cross-entropy over the answers, and which of them are predicted correctly.
    pub fn classify(&self, model: &LanguageModel, cx: &Cx) -> Result<Classified> {
        let hidden = model.hidden(&self.tokens, self.rows.as_ref(), cx)?;
        match &self.answered {
            Some(answered) => {
                let answers = hidden.flatten_to(1)?.index_select(answered, 0)?;
                model.classify(&answers, &self.answers)
            }
            None => model.classify(&hidden, &self.answers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Io;
    use crate::nn::Params;
    use crate::recipes;
    use crate::tasks::Splits;
    use candle_core::DType;

    /// Labels without an answer change neither loss nor accuracy: they are those of the answers alone.
    #[test]
    fn labels_without_an_answer_do_not_count() {
        let run = recipes::run("mad", &[("preset", "smoke"), ("skill", "noisy-recall")]).unwrap();
        let Splits::PerToken { test, .. } = crate::tasks::load(&run.task, None).unwrap() else { unreachable!() };
        let io = Io::of(&run.task).unwrap();
        let model = LanguageModel::new(&run.model, io, &Params::seeded(1, DType::F32, &Device::Cpu)).unwrap();
        let (mut loss, mut correct, mut answers) = (0.0, Vec::new(), 0.0);
        for example in 0..test.len() {
            let batch = test.batch(example..example + 1);
            let tokens = Tensor::from_slice(batch.tokens, (1, test.seq_len()), &Device::Cpu).unwrap();
            let hidden = model.hidden(&tokens, None, &Cx::eval()).unwrap();
            for (position, answer) in batch.positions.iter().zip(batch.answers).filter(|(_, a)| **a != NO_ANSWER) {
                let hidden = hidden.narrow(1, *position as usize, 1).unwrap().contiguous().unwrap();
                let found = model.classify(&hidden, &Tensor::new(&[*answer], &Device::Cpu).unwrap()).unwrap();
                loss += f64::from(found.loss.to_scalar::<f32>().unwrap());
                correct.extend(found.correct.to_vec1::<f32>().unwrap());
                answers += 1.0;
            }
        }
        let all = Labelled::new(test.batch(0..test.len()), &test, &Device::Cpu).unwrap();
        assert_eq!(all.len(), correct.len());
        assert!(all.len() < test.len() * test.labels_per_example());
        let found = all.classify(&model, &Cx::eval()).unwrap();
        assert!((f64::from(found.loss.to_scalar::<f32>().unwrap()) - loss / answers).abs() < 1e-5);
        assert_eq!(found.correct.to_vec1::<f32>().unwrap(), correct);
    }
}
