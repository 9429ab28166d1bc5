//! Steps of whole batches on a GPU as one CUDA graph: launched one by one, the many small kernels of
//! a step cost more than they compute when d is small.
//!
//! Whatever changes from step to step lies in memory that stays: the batch, the rates, the step that
//! dropout masks are drawn for. It arrives in one copy, which the recording begins with. The first steps are made one launch at a
//! time, which loads kernels and fills the library's caches; then one is recorded. A step may be queued before the loss of the one
//! before it is read, so that the GPU has always something to do.

use super::adamw::AdamW;
use super::labelled::Labelled;
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, Mailbox, Recording, View, WARP};
use crate::model::Model;
use crate::nn::Cx;
use crate::ops;
use crate::tasks::Batch;
use candle_core::{bail, DType, Result};
use std::ops::Range;

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
    Recorded(Box<Recorded>),
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
    /// Where the recorded launches read the batch.
    _batch: Labelled,
    /// What a step has of its own, as [`Own::words`] orders it.
    words: Buffer,
    /// One number of f32.
    loss: Buffer,
    recording: Box<dyn Recording>,
    /// Of two steps, which may be under way at once.
    mail: [Mailbox; 2],
    /// The steps that were queued and not waited for.
    queued: Range<u64>,
}

/// What a step has of its own.
pub(super) struct Own<'a> {
    /// Its number.
    pub step: u64,
    /// What its launches read at [`AdamW::rates`].
    pub rates: [u32; 3],
    /// As many examples as the recorded batch has.
    pub batch: Batch<'a>,
}

impl Own<'_> {
    /// Its words, in the order of [`unpack`]'s places.
    fn words<T>(&self, of: impl FnOnce([&[u32]; 5]) -> T) -> T {
        let step = [self.step as u32, (self.step >> 32) as u32];
        let Batch {
            tokens,
            answers,
            positions,
        } = self.batch;
        of([&step, &self.rates, tokens, answers, positions])
    }
}

impl Recorded {
    /// Records a step on `batch`, which it keeps, without making it; `first` is what the first replay will have of its own.
    pub(super) fn new(
        gpu: Gpu,
        batch: Labelled,
        first: &Own,
        model: &Model,
        optimizer: &AdamW,
        cx: &Cx,
    ) -> Result<Self> {
        let zero = || -> Result<Buffer> {
            let zero = gpu.alloc(DType::F32, 1)?;
            gpu.write(&[0], zero.view())?;
            Ok(zero)
        };
        let (none_yet, loss) = (zero()?, zero()?);
        let words = gpu.upload(&first.words(|parts| parts.concat()))?;
        let begin = || unpack(&gpu, &words, first.step, optimizer, &batch);
        // The kernels that the steps before have not loaded; a recording should load none.
        begin()?;
        keep(&gpu, (&none_yet).into(), &loss)?;
        let work = || {
            begin()?;
            let found = batch.classify(model, cx)?.loss;
            gpu.with_tensor(Some(&found), |found| keep(&gpu, found.into(), &loss))?;
            optimizer.launch(&ops::backward(&found)?, loss.view())
        };
        let recording = gpu.record(work)?;
        let mail = || gpu.mailbox(words.len());
        Ok(Self {
            recording,
            mail: [mail()?, mail()?],
            gpu,
            _batch: batch,
            words,
            loss,
            queued: first.step..first.step,
        })
    }

    /// Steps that were queued and not waited for.
    pub(super) fn queued(&self) -> usize {
        (self.queued.end - self.queued.start) as usize
    }

    /// Begins a step, behind at most one that is not waited for.
    pub(super) fn queue(&mut self, own: &Own) -> Result<()> {
        if self.queued() == 0 {
            self.queued = own.step..own.step;
        }
        if own.step != self.queued.end || self.queued() == self.mail.len() {
            bail!("step {} is not the next to be queued", own.step);
        }
        let mail = &mut self.mail[(own.step % 2) as usize];
        own.words(|parts| mail.send(&parts, self.words.view()))?;
        self.recording.replay()?;
        self.gpu.step_is_written(own.step);
        mail.fetch(self.loss.view())?;
        self.queued.end += 1;
        Ok(())
    }

    /// The loss of the step that was queued first. Unless it is no number, the parameters have moved by the step's rates; if it is
    /// none, no step moves them any more.
    pub(super) fn wait(&mut self) -> Result<f64> {
        let Some(step) = self.queued.next() else {
            bail!("no step was queued");
        };
        Ok(f64::from(self.mail[(step % 2) as usize].wait()?))
    }
}

/// Puts what a step has of its own where its launches read it.
fn unpack(gpu: &Gpu, words: &Buffer, step: u64, optimizer: &AdamW, batch: &Labelled) -> Result<()> {
    let positions = batch.rows.as_ref().map(|rows| &rows.positions);
    let tensors = [Some(&batch.tokens), Some(&batch.answers), positions]
        .map(|x| Some(x?.storage_and_layout()));
    let views = tensors.each_ref().map(|held| {
        let view = held
            .as_ref()
            .map(|(storage, layout)| gpu.view(storage, layout));
        view.transpose()
    });
    let [tokens, answers, positions] = views;
    let own = [gpu.step(step)?, optimizer.rates()?].map(Some);
    let places = [own[0], own[1], tokens?, answers?, positions?];
    let counts = places.map(|place| place.as_ref().map_or(0, View::len));
    if counts.iter().sum::<usize>() != words.len() {
        bail!(
            "a step has {} words of its own, not {counts:?}",
            words.len()
        );
    }
    let most = counts.into_iter().max().unwrap_or_default();
    let grid = Grid::for_each_of(places.len(), most);
    let table = Arg::Table(places.map(Arg::from).into());
    let args = [&[words.into(), table], &counts.map(Arg::from)[..]].concat();
    gpu.launch(Kernel::new("recorded", "unpack"), grid, &args)
}

/// Puts a loss where it outlives the recording, unless one was no number before.
fn keep(gpu: &Gpu, loss: Arg, kept: &Buffer) -> Result<()> {
    let kernel = Kernel::new("recorded", "keep_loss");
    gpu.launch(kernel, Grid::of(1, WARP), &[loss, kept.into()])
}
