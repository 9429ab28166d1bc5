//! What a run leaves on disk while it is trained.

use crate::config::RunConfig;
use crate::error::Result;
use crate::store::{Losses, Outcome, RunDir, Weights};
use crate::train::Trainer;
use std::time::{Duration, Instant};

/// A kill costs about this much work, ...
const CHECKPOINT_EVERY: Duration = Duration::from_secs(30);
/// ... or where writing takes long, so many times as long.
const TIMES_AS_LONG: u32 = 50;

/// Weights that a run leaves behind, beside the best of a language model.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::cli) struct Kept {
    /// Those at the end; a language model keeps them in any case.
    pub last: bool,
    /// Those at the start, and those after every so many epochs.
    pub every: Option<usize>,
}

/// The writer of a run's files. The losses of steps are in their file before a checkpoint is that knows of
/// them, so that none is missing after a kill.
pub(super) struct RunRecorder<'a> {
    dir: &'a RunDir,
    /// The loss of every step, of a language model alone; of such a model the best weights are kept, too.
    losses: Option<Losses>,
    /// Weights that are kept.
    kept: Kept,
    /// Time between checkpoints, if not the usual one.
    every: Option<Duration>,
    saved: Instant,
    /// Time that writing the last checkpoint took.
    took: Duration,
}

impl<'a> RunRecorder<'a> {
    /// The recorder of a run that has made `steps` steps so far. A checkpoint is due after `every`, or as
    /// [`CHECKPOINT_EVERY`] says.
    pub fn new(
        dir: &'a RunDir,
        config: &RunConfig,
        steps: usize,
        every: Option<Duration>,
        kept: Kept,
    ) -> Result<Self> {
        let language = config.task.entry()?.objective.is_language_model();
        Ok(Self {
            dir,
            kept: Kept {
                last: kept.last || language,
                ..kept
            },
            losses: language.then(|| dir.losses(steps)).transpose()?,
            every,
            saved: Instant::now(),
            took: Duration::ZERO,
        })
    }

    /// What the user should know of the files of an interrupted run.
    pub fn warning(&self) -> Option<String> {
        let missing = self.losses.as_ref().map_or(0, Losses::missing);
        (missing > 0).then(|| {
            format!(
                "losses.csv lacks {missing} of the steps before the checkpoint; training goes on"
            )
        })
    }

    /// Before the first step of this process.
    pub fn start(&self, trainer: &Trainer) -> Result<()> {
        match trainer.progress().step {
            0 => self.snapshot(trainer),
            _ => Ok(()),
        }
    }

    /// After a step.
    pub fn step(&mut self, trainer: &Trainer, loss: f64, lr: f64) {
        if let Some(losses) = &mut self.losses {
            losses.push(trainer.progress().step, loss, lr);
        }
    }

    /// After an epoch: whether each of the files could be written that the next epoch writes again.
    ///
    /// # Errors
    /// Where weights that are kept cannot be written, those of the best epoch so far or of this one: nothing but the
    /// epoch could make them again, so that the run must go on from a checkpoint before it.
    pub fn epoch(&mut self, trainer: &Trainer) -> Result<[Result<()>; 2]> {
        let epochs = &trainer.progress().epochs;
        let chosen = trainer.selected().map(|epoch| epoch.epoch);
        if self.losses.is_some() && chosen == Some(epochs.len()) {
            self.weights(Weights::Best, trainer)?;
        }
        self.snapshot(trainer)?;
        Ok([self.dir.write_metrics(epochs), self.flush()])
    }

    /// Whether a kill would cost too much work.
    pub fn is_due(&self) -> bool {
        let usual = CHECKPOINT_EVERY.max(TIMES_AS_LONG * self.took);
        self.saved.elapsed() >= self.every.unwrap_or(usual)
    }

    /// Writes a checkpoint.
    pub fn checkpoint(&mut self, trainer: &Trainer) -> Result<()> {
        let start = Instant::now();
        let written = self.flush();
        let written = written.and_then(|()| {
            let write = |out: &mut dyn std::io::Write| trainer.write_checkpoint(out);
            self.dir.write_checkpoint(write)
        });
        self.saved = Instant::now();
        self.took = self.saved - start;
        written
    }

    /// At the end of training. A run is done only if all that it leaves behind is there: where something cannot be
    /// written, it stays unfinished, behind a checkpoint if there is room for one.
    pub fn end(&mut self, trainer: &Trainer, outcome: Outcome) -> Result<()> {
        let slices = self.dir.write_slices(&trainer.slices());
        let written = slices.and_then(|()| match (self.kept.last, outcome) {
            (false, _) => Ok(()),
            (true, Outcome::Diverged) => self.flush(),
            (true, _) => {
                self.flush()?;
                self.weights(Weights::Last, trainer)
            }
        });
        written.or_else(|e| self.checkpoint(trainer).and(Err(e)))
    }

    fn flush(&mut self) -> Result<()> {
        self.losses.as_mut().map_or(Ok(()), Losses::flush)
    }

    /// Keeps the weights, if the epochs that are over are a multiple of those between two snapshots.
    fn snapshot(&self, trainer: &Trainer) -> Result<()> {
        let epoch = trainer.progress().epochs.len();
        match self.kept.every {
            Some(every) if epoch.is_multiple_of(every) => self
                .dir
                .write_snapshot(epoch, |out| trainer.write_weights(out)),
            _ => Ok(()),
        }
    }

    fn weights(&self, which: Weights, trainer: &Trainer) -> Result<()> {
        self.dir
            .write_weights(which, |out| trainer.write_weights(out))
    }
}
