//! Passes on the CPU.

use super::Matmul;
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::gemm::{product, View};
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;

impl CpuOp for Matmul {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let [left, right, whole] = self.sizes();
        let mut y = zeros(ins[0].len() / left * whole);
        let pairs = ins[0].chunks(left).zip(ins[1].chunks(right));
        y.chunks_mut(whole).zip(pairs).in_parallel(|(y, (a, b))| {
            let (a, b) = (View::new(a, self.inner), View::new(b, self.columns));
            product(y, self.columns, a, b, false);
        });
        vec![y]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let [left, right, whole] = self.sizes();
        let [mut ga, mut gb] = [0, 1].map(|i| match call.needs_grad[i] {
            true => zeros(call.ins[i].len()),
            false => Vec::new(),
        });
        let gy = call.only().grad;
        ga.chunks_mut(left).zip(call.ins[1].chunks(right).zip(gy.chunks(whole))).in_parallel(|(ga, (b, gy))| {
            let (gy, b) = (View::new(gy, self.columns), View::new(b, self.columns));
            product(ga, self.inner, gy, b.t(), false);
        });
        gb.chunks_mut(right).zip(call.ins[0].chunks(left).zip(gy.chunks(whole))).in_parallel(|(gb, (a, gy))| {
            let (a, gy) = (View::new(a, self.inner), View::new(gy, self.columns));
            product(gb, self.columns, a.t(), gy, false);
        });
        vec![ga, gb]
    }
}

impl Matmul {
    /// Numbers of elements of a pair's factors and of its product.
    fn sizes(&self) -> [usize; 3] {
        let (rows, inner, columns) = (self.rows, self.inner, self.columns);
        [rows * inner, inner * columns, rows * columns]
    }
}
