//! Steps of whole batches on a GPU, replayed as one CUDA graph. At small d, launching the many small kernels of a step
//! one by one costs more than running them.
//!
//! The inputs of a step (the batch, the rates, the number from which dropout masks are drawn) lie in fixed memory and
//! arrive in one copy, the first thing that the graph does. The first steps are launched op by op, which loads kernels
//! and fills the caches of the libraries; the next step is recorded. A step may be queued before the loss of the
//! previous one is read, so that the GPU does not wait for the host.

use super::adamw::AdamW;
use super::labelled::Labelled;
use super::{Stepper, Trainer};
use crate::error;
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, Mailbox, Recording, View, WARP};
use crate::model::LanguageModel;
use crate::nn::Cx;
use crate::ops;
use crate::tasks::Batch;
use candle_core::{bail, DType, Result};
use std::cell::RefCell;
use std::ops::Range;

/// Steps launched op by op before one is recorded.
const WARM_UP: usize = 2;

/// Stepper that replays a CUDA graph once the first steps have been launched op by op.
pub(super) struct CudaGraph {
    gpu: Gpu,
    state: GraphState,
    /// Reason why a step could not be recorded, until it is reported.
    refusal: RefCell<Option<String>>,
}

enum GraphState {
    /// Steps are launched op by op, this many times more.
    WarmingUp(usize),
    /// Whole batches are replayed.
    Recorded(Box<RecordedStep>),
    /// All steps are launched op by op, because they have several shapes.
    Launched,
}

impl CudaGraph {
    pub(super) fn new(gpu: Gpu) -> Self {
        Self { gpu, state: GraphState::WarmingUp(WARM_UP), refusal: RefCell::default() }
    }

    /// Records the next step of `trainer` without making it.
    fn record(&mut self, trainer: &Trainer) -> Result<GraphState> {
        let Some(shape) = trainer.objective.one_shape() else {
            return Ok(GraphState::Launched);
        };
        let first = StepInputs {
            step: trainer.progress.step as u64,
            rates: [0; 3],
            batch: shape.train.batch(trainer.examples_at(0)),
        };
        let batch = Labelled::new(first.batch, shape.train, &trainer.device)?;
        let (gpu, cx) = (self.gpu.clone(), trainer.cx());
        let recorded = RecordedStep::new(gpu, batch, &first, shape.model, &trainer.optimizer, &cx)?;
        Ok(GraphState::Recorded(Box::new(recorded)))
    }
}

impl Trainer<'_> {
    /// Lets a step of a whole batch be recorded as a CUDA graph after the first steps; later whole batches replay it.
    /// It has no effect off a GPU or if whole batches differ in shape.
    pub fn record_steps(&mut self) {
        if let Some(gpu) = self.optimizer.gpu() {
            self.stepper = Box::new(CudaGraph::new(gpu.clone()));
        }
    }

    /// Returns, once, the reason why steps are not recorded although they should be.
    pub fn take_warning(&self) -> Option<String> {
        self.stepper.take_warning()
    }

    /// Number of launches, copies and clears that a replayed step consists of; `None` if no step is replayed.
    ///
    /// # Errors
    ///
    /// Fails if the driver does.
    pub fn graph_nodes(&self) -> error::Result<Option<usize>> {
        self.stepper.graph_nodes()
    }
}

impl Stepper for CudaGraph {
    fn step(&mut self, trainer: &mut Trainer) -> error::Result<f64> {
        let whole = trainer.is_whole(0);
        if whole && matches!(self.state, GraphState::WarmingUp(0)) {
            self.state = self.record(trainer).unwrap_or_else(|refusal| {
                self.refusal.replace(Some(refusal.to_string()));
                GraphState::Launched
            });
        }
        match &mut self.state {
            GraphState::Recorded(recorded) if whole => Ok(recorded.step(trainer)?),
            GraphState::WarmingUp(left) => {
                *left = left.saturating_sub(1);
                let mut loss = Ok(f64::NAN);
                self.gpu.warm_up(|| {
                    loss = trainer.accumulate();
                    Ok(())
                })?;
                loss
            }
            GraphState::Recorded(_) | GraphState::Launched => trainer.accumulate(),
        }
    }

    fn take_warning(&self) -> Option<String> {
        let refusal = self.refusal.take()?;
        let reason = refusal.lines().next().unwrap_or_default();
        Some(format!("steps are launched op by op, since none could be recorded: {reason}"))
    }

    fn graph_nodes(&self) -> error::Result<Option<usize>> {
        match &self.state {
            GraphState::Recorded(recorded) => Ok(Some(recorded.recording.nodes()?)),
            GraphState::WarmingUp(_) | GraphState::Launched => Ok(None),
        }
    }

    fn is_settled(&self) -> bool {
        !matches!(&self.state, GraphState::Recorded(recorded) if recorded.queued() > 0)
    }
}

/// One recorded step and the steps queued with it.
pub(super) struct RecordedStep {
    gpu: Gpu,
    /// Tensors from which the recorded launches read the batch; kept alive for them.
    _batch: Labelled,
    /// Inputs of a step, in the order of [`StepInputs::words`].
    words: Buffer,
    /// Loss of the last step: one f32.
    loss: Buffer,
    recording: Box<dyn Recording>,
    /// Staging buffers of the two steps that may be in flight at once.
    mail: [Mailbox; 2],
    /// Numbers of the steps that are queued and not yet waited for.
    queued: Range<u64>,
}

/// The inputs of one step.
struct StepInputs<'a> {
    /// Number of the step, from which dropout masks are drawn.
    step: u64,
    /// Words that the launches read at [`AdamW::rates`].
    rates: [u32; 3],
    /// Examples, as many as the recorded batch has.
    batch: Batch<'a>,
}

impl StepInputs<'_> {
    /// Passes the words of all inputs to `of`, in the order of the destinations in [`unpack`].
    fn words<T>(&self, of: impl FnOnce([&[u32]; 5]) -> T) -> T {
        let step = [self.step as u32, (self.step >> 32) as u32];
        let Batch { tokens, answers, positions } = self.batch;
        of([&step, &self.rates, tokens, answers, positions])
    }
}

impl RecordedStep {
    /// Records a step on `batch` without making it, and keeps `batch`; `first` holds the inputs of the first replay.
    fn new(
        gpu: Gpu,
        batch: Labelled,
        first: &StepInputs,
        model: &LanguageModel,
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
        // Loads the kernels that no earlier step has used: loading must not happen during a recording.
        begin()?;
        keep_loss(&gpu, (&none_yet).into(), &loss)?;
        let work = || {
            begin()?;
            let (found, kept) = gpu.offer_loss(&loss, || Ok(batch.classify(model, cx)?.loss))?;
            if !kept {
                gpu.with_tensor(Some(&found), |found| keep_loss(&gpu, found.into(), &loss))?;
            }
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

    /// Waits for the next step of `trainer`. Queues the following one first, unless the trainer needs the weights as
    /// they are after this step.
    fn step(&mut self, trainer: &mut Trainer) -> Result<f64> {
        if self.queued() == 0 {
            self.queue_ahead(trainer, 0)?;
        }
        if !trainer.settling.take() && trainer.is_whole(1) {
            self.queue_ahead(trainer, 1)?;
        }
        let loss = self.wait()?;
        while !loss.is_finite() && self.queued() > 0 {
            self.wait()?; // a step after a non-finite loss changes nothing
        }
        Ok(loss)
    }

    /// Queues the step that is `ahead` steps after the next one of this epoch.
    fn queue_ahead(&mut self, trainer: &mut Trainer, ahead: usize) -> Result<()> {
        let step = trainer.progress.step + ahead;
        let rates = trainer.optimizer.next_words(trainer.rate_of(step));
        let Some(shape) = trainer.objective.one_shape() else {
            bail!("only steps of one shape are recorded");
        };
        self.queue(&StepInputs { step: step as u64, rates, batch: shape.train.batch(trainer.examples_at(ahead)) })
    }

    /// Number of steps that are queued and not yet waited for.
    fn queued(&self) -> usize {
        (self.queued.end - self.queued.start) as usize
    }

    /// Queues a step. At most one other step may be pending.
    fn queue(&mut self, inputs: &StepInputs) -> Result<()> {
        let step = inputs.step;
        if self.queued() == 0 {
            self.queued = step..step;
        }
        if step != self.queued.end || self.queued() == self.mail.len() {
            bail!("step {step} is not the next to be queued");
        }
        let mail = &mut self.mail[(step % 2) as usize];
        inputs.words(|parts| mail.send(&parts, self.words.view()))?;
        self.recording.replay()?;
        self.gpu.step_is_written(step);
        mail.fetch(self.loss.view())?;
        self.queued.end += 1;
        Ok(())
    }

    /// Waits for the oldest queued step and returns its loss. If the loss is finite, the parameters have moved by that
    /// step; if not, neither this step nor a later one moves them.
    fn wait(&mut self) -> Result<f64> {
        let Some(step) = self.queued.next() else {
            bail!("no step was queued");
        };
        Ok(f64::from(self.mail[(step % 2) as usize].wait()?))
    }
}

/// Copies the inputs of a step to the memory from which its launches read them.
fn unpack(gpu: &Gpu, words: &Buffer, step: u64, optimizer: &AdamW, batch: &Labelled) -> Result<()> {
    let positions = batch.rows.as_ref().map(|rows| &rows.positions);
    let tensors = [Some(&batch.tokens), Some(&batch.answers), positions].map(|x| Some(x?.storage_and_layout()));
    let views = tensors.each_ref().map(|held| {
        let view = held.as_ref().map(|(storage, layout)| gpu.view(storage, layout));
        view.transpose()
    });
    let [tokens, answers, positions] = views;
    let [step, rates] = [gpu.step(step)?, optimizer.rates()?].map(Some);
    let places = [step, rates, tokens?, answers?, positions?];
    let counts = places.map(|place| place.as_ref().map_or(0, View::len));
    if counts.iter().sum::<usize>() != words.len() {
        bail!("the inputs of a step are {} words, not {counts:?}", words.len());
    }
    let most = counts.into_iter().max().unwrap_or_default();
    let grid = Grid::for_each_of(places.len(), most);
    let table = Arg::Table(places.map(Arg::from).into());
    let args = [&[words.into(), table], &counts.map(Arg::from)[..]].concat();
    gpu.launch(Kernel::new("recorded", "unpack"), grid, &args)
}

/// Copies a loss out of the recording's memory into `kept`, unless `kept` already holds a loss that is not finite.
fn keep_loss(gpu: &Gpu, loss: Arg, kept: &Buffer) -> Result<()> {
    let kernel = Kernel::new("recorded", "keep_loss");
    gpu.launch(kernel, Grid::of(1, WARP), &[loss, kept.into()])
}
