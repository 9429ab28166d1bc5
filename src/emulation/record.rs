//! Recorded launches. A CUDA graph owns the memory that was allocated during its capture; here that
//! memory is never freed (see [`crate::kept::keeping`]).

use super::Emulation;
use candle_core::{bail, Result};
use dsf_gpu::{Arg, Grid, Kernel, Product, Recording, View};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, ThreadId};

/// A recorded operation, with addresses that remain valid.
pub(super) enum Action {
    Launch(Kernel, Grid, Vec<Arg<'static>>),
    Multiply(Product<'static>, View<'static>),
    Copy(View<'static>, View<'static>),
}

/// Actions recorded so far, by recording thread, since each thread has its own stream on a GPU.
#[derive(Default)]
pub(super) struct Recorder(Mutex<HashMap<ThreadId, Vec<Action>>>);

impl Recorder {
    fn recordings(&self) -> MutexGuard<'_, HashMap<ThreadId, Vec<Action>>> {
        self.0.lock().unwrap()
    }

    /// Appends `action` to this thread's recording in progress; without one, returns it to be performed.
    pub(super) fn take(&self, action: Action) -> Option<Action> {
        match self.recordings().get_mut(&thread::current().id()) {
            Some(actions) => {
                actions.push(action);
                None
            }
            None => Some(action),
        }
    }

    /// Returns an error during a recording of this thread, since `what` cannot be captured in a CUDA graph.
    pub(super) fn refuse(&self, what: &str) -> Result<()> {
        match self.recordings().contains_key(&thread::current().id()) {
            true => bail!("{what} while launches are recorded"),
            false => Ok(()),
        }
    }

    pub(super) fn record(
        &self,
        machine: Emulation,
        work: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Box<dyn Recording>> {
        let own = thread::current().id();
        self.recordings().insert(own, Vec::new());
        let (worked, freed) = crate::kept::keeping(work);
        let actions = self.recordings().remove(&own).unwrap_or_default();
        worked?;
        if freed > 0 {
            bail!("{freed} pieces of memory from before a recording were freed in it, which a CUDA graph refuses");
        }
        Ok(Box::new(Recorded { machine, actions }))
    }
}

struct Recorded {
    machine: Emulation,
    actions: Vec<Action>,
}

impl Recording for Recorded {
    fn replay(&self) -> Result<()> {
        self.actions.iter().try_for_each(|a| self.machine.perform(a))
    }

    fn nodes(&self) -> Result<usize> {
        Ok(self.actions.len())
    }
}
