//! Passes on the CPU.

use super::Readout;
use crate::pointwise::{Pointwise, Sigmoid};
use crate::runtime::autograd::{Backward, CpuOp, Forward};
use crate::runtime::float::Float;
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;
use dsf_simd::simd;

/// Elements per task.
pub(super) const CHUNK: usize = 1 << 14;

impl<P: Pointwise> CpuOp for Readout<P> {
    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let mut y = zeros(ins[0].len());
        let chunks = y.chunks_mut(CHUNK).enumerate();
        chunks.in_parallel(|(i, y)| match part(ins, i, y.len())[..] {
            [h, gate, output] => read_output::<P, F>(h, gate, output, y),
            [h, gate] => read::<P, F>(h, gate, y),
            _ => unreachable!("two or three inputs"),
        });
        vec![y]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let gy = call.only().grad;
        let mut grads: Vec<Vec<F>> = call.ins.iter().map(|x| zeros(x.len())).collect();
        let mut tos: Vec<_> = grads.iter_mut().map(|g| g.chunks_mut(CHUNK)).collect();
        let tasks: Vec<(&[F], Vec<&mut [F]>)> =
            gy.chunks(CHUNK).map(|gy| (gy, tos.iter_mut().filter_map(Iterator::next).collect())).collect();
        let tasks = tasks.into_iter().enumerate();
        tasks.in_parallel(|(i, (gy, mut to))| match (&part(call.ins, i, gy.len())[..], &mut to[..]) {
            (&[h, gate, output], [gh, gg, gz]) => {
                read_output_back::<P, F>([h, gate, output, gy], [gh, gg, gz]);
            }
            (&[h, gate], [gh, gg]) => read_back::<P, F>([h, gate, gy], [gh, gg]),
            _ => unreachable!("two or three inputs"),
        });
        grads
    }
}

/// Chunk `index` of every input.
fn part<'a, F>(ins: &[&'a [F]], index: usize, len: usize) -> Vec<&'a [F]> {
    ins.iter().map(|x| &x[index * CHUNK..][..len]).collect()
}

#[simd]
fn read<P: Pointwise, F: Float>(h: &[F], gate: &[F], y: &mut [F]) {
    for ((y, &h), &gate) in y.iter_mut().zip(h).zip(gate) {
        *y = h * P::value(gate);
    }
}

#[simd]
fn read_output<P: Pointwise, F: Float>(h: &[F], gate: &[F], output: &[F], y: &mut [F]) {
    for (((y, &h), &gate), &z) in y.iter_mut().zip(h).zip(gate).zip(output) {
        *y = h * P::value(gate) * Sigmoid::value(z);
    }
}

/// Reads h, g and the gradient; writes the gradients of h and g.
#[simd]
fn read_back<P: Pointwise, F: Float>([h, gate, gy]: [&[F]; 3], [gh, gg]: [&mut [F]; 2]) {
    let n = gy.len();
    let (h, gate, gh, gg) = (&h[..n], &gate[..n], &mut gh[..n], &mut gg[..n]);
    for i in 0..n {
        let value = P::value(gate[i]);
        gh[i] = gy[i] * value;
        gg[i] = gy[i] * h[i] * P::slope(gate[i], value);
    }
}

/// Reads h, g, z and the gradient; writes the gradients of h, g and z.
#[simd]
fn read_output_back<P: Pointwise, F: Float>([h, gate, z, gy]: [&[F]; 4], [gh, gg, gz]: [&mut [F]; 3]) {
    let n = gy.len();
    let (h, gate, z) = (&h[..n], &gate[..n], &z[..n]);
    let (gh, gg, gz) = (&mut gh[..n], &mut gg[..n], &mut gz[..n]);
    for i in 0..n {
        let (value, open) = (P::value(gate[i]), Sigmoid::value(z[i]));
        gh[i] = gy[i] * value * open;
        gg[i] = gy[i] * h[i] * open * P::slope(gate[i], value);
        gz[i] = gy[i] * h[i] * value * Sigmoid::slope(z[i], open);
    }
}
