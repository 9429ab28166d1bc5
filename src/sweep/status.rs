//! State of the runs of a plan, read from the results folder alone.

use super::estimate::{self, EpochsLeft};
use crate::config::RunConfig;
use crate::error::Result;
use crate::store::{Cause, Column, Failure, LastHeartbeat, RunResult, Status, Store};

/// State of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunState {
    /// Not begun.
    ToDo,
    /// Begun, but no process works on it; with the number of completed epochs.
    Begun(usize),
    /// A process works on it.
    Running(LastHeartbeat),
    /// It failed.
    Failed(Failure),
    /// It has a result, diverged or not.
    Done(Box<RunResult>),
}

impl RunState {
    fn of(id: &str, store: &Store) -> Result<Self> {
        // Damaged results are listed as failures.
        let result = match store.result(id) {
            Ok(result) => result,
            Err(e) => return Ok(Self::Failed(Failure::of(&e))),
        };
        if let Some(result) = result {
            return Ok(match result.failure() {
                Some(failure) => Self::Failed(failure),
                None => Self::Done(Box::new(result)),
            });
        }
        let heard = store.beat(id)?.filter(LastHeartbeat::is_fresh);
        if let Some(heard) = heard {
            return Ok(Self::Running(heard));
        }
        let begun = store.status(id)? != Status::Missing;
        let epochs = store.epochs(id).map_or(0, |epochs| epochs.len());
        Ok(if begun { Self::Begun(epochs) } else { Self::ToDo })
    }

    /// Name in events and tables.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ToDo => "to-do",
            Self::Begun(_) => "begun",
            Self::Running(_) => "running",
            Self::Failed(_) => "failed",
            Self::Done(_) => "done",
        }
    }

    /// Number of completed epochs, if the run is unfinished.
    fn epochs(&self) -> Option<f64> {
        match self {
            Self::ToDo => Some(0.0),
            Self::Begun(epochs) => Some(*epochs as f64),
            Self::Running(heard) => Some(heard.beat.epochs_made()),
            Self::Failed(_) | Self::Done(_) => None,
        }
    }
}

/// A run and its state.
#[derive(Clone, Debug)]
pub struct RunWithState {
    /// The run.
    pub run: RunConfig,
    /// Its state.
    pub state: RunState,
}

/// All runs of a plan, in its order.
#[derive(Clone, Debug)]
pub struct Overview {
    /// The runs.
    pub runs: Vec<RunWithState>,
    /// Seconds that one worker needs for the rest if no run stops early; `None` without a completed epoch to estimate
    /// from.
    pub left: Option<f64>,
}

impl Overview {
    /// Determines the state of every run in `runs`.
    pub fn of(runs: &[RunConfig], store: &Store) -> Result<Self> {
        let see = |run: &RunConfig| Ok(RunWithState { state: RunState::of(&run.id(), store)?, run: run.clone() });
        let runs: Vec<RunWithState> = runs.iter().map(see).collect::<Result<_>>()?;
        let left = left(&runs)?;
        Ok(Self { runs, left })
    }

    /// Number of runs whose state satisfies `is`.
    pub fn count(&self, is: impl Fn(&RunState) -> bool) -> usize {
        self.runs.iter().filter(|seen| is(&seen.state)).count()
    }

    /// Whether all runs are done or failed.
    pub fn is_over(&self) -> bool {
        self.count(|state| state.epochs().is_some()) == 0
    }
}

fn left(runs: &[RunWithState]) -> Result<Option<f64>> {
    let (mut made, mut rest) = (Vec::new(), Vec::new());
    for RunWithState { run, state } in runs {
        if let RunState::Done(result) = state {
            let metrics = &result.metrics;
            let epochs = metrics.get(Column::EPOCHS_RUN).filter(|epochs| *epochs > 0.0);
            if let Some((epochs, seconds)) = epochs.zip(metrics.get(Column::SECONDS)) {
                made.push((EpochsLeft { run, epochs }, seconds));
            }
        }
        if let RunState::Running(heard) = state {
            let epochs = heard.beat.epochs_made();
            made.push((EpochsLeft { run, epochs }, heard.beat.seconds));
        }
        if let Some(over) = state.epochs() {
            let epochs = (run.train.epochs as f64 - over).max(0.0);
            rest.push(EpochsLeft { run, epochs });
        }
    }
    estimate::left(&made, &rest)
}

/// Returns those of `runs` that failed by one of `causes`, or by any if `causes` is empty.
pub fn failed(runs: &[RunConfig], store: &Store, causes: &[Cause]) -> Result<Vec<RunConfig>> {
    let mut found = Vec::new();
    for run in runs {
        let failure = store.result(&run.id())?.and_then(|result| result.failure());
        if failure.is_some_and(|failure| causes.is_empty() || causes.contains(&failure.cause)) {
            found.push(run.clone());
        }
    }
    Ok(found)
}
