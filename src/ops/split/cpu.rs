//! Passes on the CPU: each copies a whole to its parts, or parts to a whole.

use super::{Division, Join, Split};
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;

/// Numbers that a task copies, about.
const CHUNK: usize = 1 << 14;

impl CpuOp for Split {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        self.0.apart(ins[0])
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let grads = call.outs.iter().map(|out| out.map(|out| out.grad));
        vec![self.0.together(&grads.collect::<Vec<_>>())]
    }
}

impl CpuOp for Join {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        vec![self.0.together(&ins.iter().copied().map(Some).collect::<Vec<_>>())]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        self.0.apart(call.only().grad)
    }
}

impl Division {
    fn apart<F: Float>(&self, whole: &[F]) -> Vec<Vec<F>> {
        let (width, rows) = (self.width(), self.rows_of_task());
        let mut parts: Vec<Vec<F>> = self.widths().map(|part| zeros(self.rows() * part)).collect();
        let mut start = 0;
        let mut tasks = Vec::new();
        for (part, each) in parts.iter_mut().zip(self.widths()).filter(|(_, each)| *each > 0) {
            let from = whole.chunks(rows * width);
            tasks.extend(part.chunks_mut(rows * each).zip(from).map(|(to, from)| (to, from, start, each)));
            start += each;
        }
        tasks.into_iter().in_parallel(|(to, from, start, each)| {
            for (to, from) in to.chunks_exact_mut(each).zip(from.chunks_exact(width)) {
                to.copy_from_slice(&from[start..][..each]);
            }
        });
        parts
    }

    /// The whole, zero where a part is absent.
    fn together<F: Float>(&self, parts: &[Option<&[F]>]) -> Vec<F> {
        let (width, rows) = (self.width(), self.rows_of_task());
        let mut whole = zeros(self.rows() * width);
        whole.chunks_mut(rows * width).enumerate().in_parallel(|(task, to)| {
            for (row, mut to) in to.chunks_exact_mut(width).enumerate() {
                for (part, each) in parts.iter().zip(self.widths()) {
                    let (piece, behind) = to.split_at_mut(each);
                    if let Some(part) = part {
                        piece.copy_from_slice(&part[(task * rows + row) * each..][..each]);
                    }
                    to = behind;
                }
            }
        });
        whole
    }

    /// Elements of a row of the whole.
    fn width(&self) -> usize {
        self.widths().sum()
    }

    fn rows_of_task(&self) -> usize {
        (CHUNK / self.width()).max(1)
    }
}
