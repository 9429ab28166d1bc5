//! Files that a run writes while it is trained.

use crate::config::RunConfig;
use crate::error::Result;
use crate::store::{Losses, Outcome, RunDir, Weights};
use crate::train::Trainer;
use std::time::{Duration, Instant};

/// Default interval between checkpoints: the work that a kill may lose.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(30);
/// Shortest interval between checkpoints, as a multiple of the time that writing one takes.
const TIMES_AS_LONG: u32 = 50;

/// Weights that a run keeps, in addition to the best ones of a language model.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::cli) struct KeptWeights {
    /// Whether final weights are kept; a language model always keeps them.
    pub last: bool,
    /// Interval, in epochs, at which weights are kept, beginning with the initial ones.
    pub every: Option<usize>,
}

/// Writer of a run's files. Losses are flushed before each checkpoint, so that a killed run resumes with no losses
/// missing.
pub(super) struct RunRecorder<'a> {
    dir: &'a RunDir,
    /// Losses of every step, only for a language model, which also keeps its best weights.
    losses: Option<Losses>,
    kept: KeptWeights,
    /// Interval between checkpoints, if not the default.
    every: Option<Duration>,
    saved: Instant,
    /// Duration of writing the last checkpoint.
    took: Duration,
}

impl<'a> RunRecorder<'a> {
    /// Returns the recorder of a run that has made `steps` steps. Checkpoints are due after `every`, or by default
    /// after [`CHECKPOINT_EVERY`].
    pub fn new(
        dir: &'a RunDir,
        config: &RunConfig,
        steps: usize,
        every: Option<Duration>,
        kept: KeptWeights,
    ) -> Result<Self> {
        let language = config.task.entry()?.objective.is_language_model();
        Ok(Self {
            dir,
            kept: KeptWeights { last: kept.last || language, ..kept },
            losses: language.then(|| dir.losses(steps)).transpose()?,
            every,
            saved: Instant::now(),
            took: Duration::ZERO,
        })
    }

    /// Returns a warning about the files of an interrupted run.
    pub fn warning(&self) -> Option<String> {
        let missing = self.losses.as_ref().map_or(0, Losses::missing);
        (missing > 0)
            .then(|| format!("losses.csv lacks {missing} of the steps before the checkpoint; training goes on"))
    }

    /// Records the state before the first step of this process.
    pub fn start(&self, trainer: &Trainer) -> Result<()> {
        match trainer.progress().step {
            0 => self.snapshot(trainer),
            _ => Ok(()),
        }
    }

    pub fn step(&mut self, trainer: &Trainer, loss: f64, lr: f64) {
        if let Some(losses) = &mut self.losses {
            losses.push(trainer.progress().step, loss, lr);
        }
    }

    /// Records an epoch. The inner results belong to files that the next epoch rewrites. Fails if weights that are to
    /// be kept cannot be written, of the best epoch so far or of this one. Only repeating the epoch could produce them
    /// again, so the run must resume from an earlier checkpoint.
    pub fn epoch(&mut self, trainer: &Trainer) -> Result<[Result<()>; 2]> {
        let epochs = &trainer.progress().epochs;
        let chosen = trainer.selected().map(|epoch| epoch.epoch);
        if self.losses.is_some() && chosen == Some(epochs.len()) {
            self.weights(Weights::Best, trainer)?;
        }
        self.snapshot(trainer)?;
        Ok([self.dir.write_metrics(epochs), self.flush()])
    }

    pub fn is_due(&self) -> bool {
        let usual = CHECKPOINT_EVERY.max(TIMES_AS_LONG * self.took);
        self.saved.elapsed() >= self.every.unwrap_or(usual)
    }

    pub fn checkpoint(&mut self, trainer: &Trainer) -> Result<()> {
        let start = Instant::now();
        let written = self.flush().and_then(|()| {
            let write = |out: &mut dyn std::io::Write| trainer.write_checkpoint(out);
            self.dir.write_checkpoint(write)
        });
        self.saved = Instant::now();
        self.took = self.saved - start;
        written
    }

    /// Records the end of training. A run is only done if all its files are written; otherwise it stays unfinished,
    /// with a checkpoint if there is room for one.
    pub fn end(&mut self, trainer: &Trainer, outcome: Outcome) -> Result<()> {
        let written = self.dir.write_slices(&trainer.slices()).and_then(|()| match (self.kept.last, outcome) {
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

    /// Keeps the weights, if the number of epochs is a multiple of the interval.
    fn snapshot(&self, trainer: &Trainer) -> Result<()> {
        let epoch = trainer.progress().epochs.len();
        match self.kept.every {
            Some(every) if epoch.is_multiple_of(every) => {
                self.dir.write_snapshot(epoch, |out| trainer.write_weights(out))
            }
            _ => Ok(()),
        }
    }

    fn weights(&self, which: Weights, trainer: &Trainer) -> Result<()> {
        self.dir.write_weights(which, |out| trainer.write_weights(out))
    }
}
