//! Launches held back, to be made later and again. A GPU's graph owns the memory that was allocated
//! while it was captured; here nothing is freed meanwhile (see [`crate::alloc::keeping`]).

use super::super::{Arg, Grid, Kernel, Product, Recording, View};
use super::Emulation;
use candle_core::{bail, Result};
use std::sync::Mutex;

/// Something that the machine does, with addresses that stay.
pub(super) enum Action {
    Launch(Kernel, Grid, Vec<Arg<'static>>),
    Multiply(Product<'static>, View<'static>),
    Copy(View<'static>, View<'static>),
}

/// What is being recorded, if anything is.
#[derive(Default)]
pub(super) struct Recorder(Mutex<Option<Vec<Action>>>);

impl Recorder {
    /// Takes `action` for later, or gives it back to be done.
    pub(super) fn take(&self, action: Action) -> Option<Action> {
        match &mut *self.0.lock().unwrap() {
            Some(actions) => {
                actions.push(action);
                None
            }
            None => Some(action),
        }
    }

    /// What a GPU could not do while it captures.
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
        let worked = crate::alloc::keeping(work);
        let actions = self.0.lock().unwrap().take().unwrap_or_default();
        worked?;
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
