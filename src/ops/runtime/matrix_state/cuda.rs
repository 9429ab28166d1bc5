//! Common code of the launches: the events of `cuda/matrix_state.cuh`.

use super::StateSizes;
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, View};
use candle_core::{DType, Result};

impl StateSizes {
    /// The events of a sequence: each step with its query or, if times are given, a step or a query
    /// each.
    pub(crate) fn events(&self) -> usize {
        match self.rows {
            Some(_) => self.len + self.times.rows,
            None => self.len,
        }
    }

    /// The trailing arguments of the kernels.
    pub(crate) fn args(&self) -> [Arg<'static>; 7] {
        let sizes = [self.len, self.times.rows, self.heads, self.keys];
        let [len, rows, heads, keys] = sizes.map(Arg::from);
        let [values, decays, count] = [self.values, self.decays, self.events()].map(Arg::from);
        [len, rows, heads, keys, values, decays, count]
    }

    /// The events in their order, (B, events), if times are given.
    pub(crate) fn event_table(&self, gpu: &Gpu) -> Result<Option<Buffer>> {
        gpu.with_tensor(self.rows.as_ref(), |times| times.map(|times| self.ordered(gpu, times)).transpose())
    }

    fn ordered(&self, gpu: &Gpu, times: View) -> Result<Buffer> {
        let all = self.batch * self.events();
        let mut events = gpu.alloc(DType::U32, all)?;
        let sizes = [self.len, self.times.rows, all].map(Arg::from);
        let args = [&[times.into(), (&mut events).into()], &sizes[..]].concat();
        let kernel = Kernel::new("matrix_state", "matrix_state_events");
        gpu.launch(kernel, Grid::for_each(all), &args)?;
        Ok(events)
    }
}
