//! Recorded launches. A CUDA graph owns the memory that was allocated during its capture; here that
//! memory is never freed (see [`crate::kept::keeping`]).

use super::Emulation;
use candle_core::{bail, Result};
use dsf_gpu::{Arg, Grid, Kernel, Product, Recording, View};
use std::sync::Mutex;

/// A recorded operation, with addresses that remain valid.
pub(super) enum Action {
    Launch(Kernel, Grid, Vec<Arg<'static>>),
    Multiply(Product<'static>, View<'static>),
    Copy(View<'static>, View<'static>),
}

/// The actions recorded so far, while a recording is in progress.
#[derive(Default)]
pub(super) struct Recorder(Mutex<Option<Vec<Action>>>);

impl Recorder {
    /// Appends `action` to the recording in progress; without one, returns it to be performed.
    pub(super) fn take(&self, action: Action) -> Option<Action> {
        match &mut *self.0.lock().unwrap() {
            Some(actions) => {
                actions.push(action);
                None
            }
            None => Some(action),
        }
    }

    /// An error during a recording: `what` cannot be captured in a CUDA graph.
    pub(super) fn refuse(&self, what: &str) -> Result<()> {
        match *self.0.lock().unwrap() {
            Some(_) => bail!("{what} while launches are recorded"),
            None => Ok(()),
        }
    }

    pub(super) fn record(
        &self,
        machine: Emulation,
        work: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Box<dyn Recording>> {
        *self.0.lock().unwrap() = Some(Vec::new());
        let (worked, freed) = crate::kept::keeping(work);
        let actions = self.0.lock().unwrap().take().unwrap_or_default();
        worked?;
        if freed > 0 {
            bail!("{freed} pieces of memory from before a recording were freed in it, which a CUDA graph refuses");
        }
        Ok(Box::new(Held { machine, actions }))
    }
}

struct Held {
    machine: Emulation,
    actions: Vec<Action>,
}

impl Recording for Held {
    fn replay(&self) -> Result<()> {
        self.actions
            .iter()
            .try_for_each(|a| self.machine.perform(a))
    }
}
