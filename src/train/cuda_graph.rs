//! Steps of whole batches on a GPU as one CUDA graph: launched one by one, the many small kernels of
//! a step cost more than they compute when d is small.
//!
//! Whatever changes from step to step lies in memory that stays: the batch, the rates, the step that
//! dropout masks are drawn for. The first steps are made one launch at a time, which loads kernels
//! and fills the library's caches; then one is recorded.

use super::adamw::AdamW;
use super::labelled::Labelled;
use crate::gpu::{Gpu, Grid, Kernel, Recording, WARP};
use crate::model::Model;
use crate::nn::Cx;
use crate::ops;
use crate::tasks::Batch;
use candle_core::{DType, Result, Tensor};

/// Steps before the one that is recorded.
const WARM_UP: usize = 2;

/// How a trainer makes its steps.
#[derive(Default)]
pub(super) enum Steps {
    /// One launch at a time.
    #[default]
    Launched,
    /// Likewise, this many times more.
    WarmingUp(usize),
    /// By replays.
    Recorded(Recorded),
}

impl Steps {
    pub(super) fn to_be_recorded() -> Self {
        Self::WarmingUp(WARM_UP)
    }

    /// A step was made by launches.
    pub(super) fn launched(&mut self) {
        if let Self::WarmingUp(left) = self {
            *left = left.saturating_sub(1);
        }
    }

    /// Whether the next step of a whole batch is to be recorded.
    pub(super) fn are_warm(&self) -> bool {
        matches!(self, Self::WarmingUp(0))
    }
}

/// A step that can be made again.
pub(super) struct Recorded {
    gpu: Gpu,
    batch: Labelled,
    /// One number of f32.
    loss: Tensor,
    recording: Box<dyn Recording>,
}

impl Recorded {
    /// Records a step on `batch`, which it keeps, without making it.
    pub(super) fn new(
        gpu: Gpu,
        batch: Labelled,
        model: &Model,
        optimizer: &AdamW,
        cx: &Cx,
    ) -> Result<Self> {
        let loss = gpu.alloc(DType::F32, 1)?.into_tensor(1);
        // The one kernel that the steps before have not loaded; a recording should load none.
        keep(&gpu, &gpu.alloc(DType::F32, 1)?.into_tensor(1), &loss)?;
        let work = || {
            let found = batch.classify(model, cx)?.loss;
            keep(&gpu, &found, &loss)?;
            optimizer.launch(&ops::backward(&found)?, Some(&loss))
        };
        let recording = gpu.record(work)?;
        Ok(Self {
            recording,
            gpu,
            batch,
            loss,
        })
    }

    /// The loss on `batch`, which has as many examples as the recorded one, at step `step`. Unless
    /// it is no number, the parameters have moved by the rates that the optimiser was given.
    pub(super) fn replay(&self, batch: &Batch, step: u64) -> Result<f64> {
        let rows = self.batch.rows.as_ref();
        let positions = rows.map(|rows| (&rows.positions, batch.positions));
        let tensors = [
            (&self.batch.tokens, batch.tokens),
            (&self.batch.answers, batch.answers),
        ];
        for (tensor, values) in tensors.into_iter().chain(positions) {
            let (storage, layout) = tensor.storage_and_layout();
            self.gpu.write(values, self.gpu.view(&storage, layout)?)?;
        }
        self.gpu.set_step(step)?;
        self.recording.replay()?;
        Ok(f64::from(self.loss.to_vec1::<f32>()?[0]))
    }
}

/// Puts a loss where it outlives the recording.
fn keep(gpu: &Gpu, loss: &Tensor, kept: &Tensor) -> Result<()> {
    let ((from, from_layout), (to, to_layout)) =
        (loss.storage_and_layout(), kept.storage_and_layout());
    let args = [
        gpu.view(&from, from_layout)?.into(),
        gpu.view(&to, to_layout)?.into(),
    ];
    gpu.launch(Kernel::new("adamw", "keep_loss"), Grid::of(1, WARP), &args)
}
