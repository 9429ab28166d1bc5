//! The gated read-out of a gated recurrence, in one pass.

use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, View};
use crate::pointwise::{gelu, sigmoid, Gelu, Pointwise, Sigmoid};
use crate::runtime::autograd::{apply_one, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use crate::runtime::float::Float;
use crate::runtime::parallel::InParallel;
use crate::runtime::shape;
use crate::runtime::zeros::zeros;
use candle_core::{Result, Shape, Tensor};
use dsf_simd::simd;

/// Elements per task.
const CHUNK: usize = 1 << 14;

/// h gelu(g), times σ(z) if there is an output gate z; elementwise.
///
/// `h`, `gate` (g) and `output` (z) have the same shape, which is that of the result.
pub fn gated_readout(h: &Tensor, gate: &Tensor, output: Option<&Tensor>) -> Result<Tensor> {
    shape::expect(Readout::NAME, ("gate", gate), ("h", h), h.dims())?;
    if let Some(output) = output {
        shape::expect(Readout::NAME, ("output", output), ("h", h), h.dims())?;
    }
    if !runs_on(h) {
        return reference(h, gate, output);
    }
    let readout = Readout(h.shape().clone());
    match output {
        Some(output) => apply_one(readout, &[h, gate, output]),
        None => apply_one(readout, &[h, gate]),
    }
}

fn reference(h: &Tensor, gate: &Tensor, output: Option<&Tensor>) -> Result<Tensor> {
    let y = (h * gelu(gate)?)?;
    match output {
        Some(output) => y * sigmoid(output)?,
        None => Ok(y),
    }
}

struct Readout(Shape);

impl FusedOp for Readout {
    const NAME: &'static str = "gated_readout";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![self.0.clone()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let mut y = zeros(ins[0].len());
        let chunks = y.chunks_mut(CHUNK).enumerate();
        chunks.in_parallel(|(i, y)| match part(ins, i, y.len())[..] {
            [h, gate, output] => read_output(h, gate, output, y),
            [h, gate] => read(h, gate, y),
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
                read_output_back([h, gate, output, gy], [gh, gg, gz]);
            }
            (&[h, gate], [gh, gg]) => read_back([h, gate, gy], [gh, gg]),
            _ => unreachable!("two or three inputs"),
        });
        grads
    }

    fn launch(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        let mut y = gpu.alloc(ins[0].dtype(), ins[0].len())?;
        run(gpu, "forward", ins, &[(&mut y).into()])?;
        Ok(vec![y])
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (gpu, gy) = (call.gpu, call.only().grad);
        let grads = call.ins.iter().map(|x| gpu.alloc(x.dtype(), x.len()));
        let mut grads = grads.collect::<Result<Vec<_>>>()?;
        let mut to = grads.iter_mut();
        let to = [(); 3].map(|()| to.next().into());
        run(gpu, "backward", call.ins, &[&[gy.into()], &to[..]].concat())?;
        Ok(grads.into_iter().map(Some).collect())
    }
}

/// Launches a kernel with arguments h, g, z (null without an output gate), `args` and the number of
/// elements.
fn run(gpu: &Gpu, part: &str, ins: &[View], args: &[Arg]) -> Result<()> {
    /// Elements per thread; must equal that of `cuda/gated_readout.cu`.
    const EACH: usize = 4;
    let (io, count) = (ins[0].dtype(), ins[0].len());
    let output = ins.get(2).copied();
    let ins = [ins[0].into(), ins[1].into(), output.into()];
    let args = [&ins[..], args, &[count.into()]].concat();
    let kernel = Kernel::of("gated_readout", &format!("gated_readout_{part}"), io);
    gpu.launch(kernel, Grid::for_each(count.div_ceil(EACH)), &args)
}

/// Chunk `index` of every input.
fn part<'a, F>(ins: &[&'a [F]], index: usize, len: usize) -> Vec<&'a [F]> {
    ins.iter().map(|x| &x[index * CHUNK..][..len]).collect()
}

#[simd]
fn read<F: Float>(h: &[F], gate: &[F], y: &mut [F]) {
    for ((y, &h), &gate) in y.iter_mut().zip(h).zip(gate) {
        *y = h * Gelu::value(gate);
    }
}

#[simd]
fn read_output<F: Float>(h: &[F], gate: &[F], output: &[F], y: &mut [F]) {
    for (((y, &h), &gate), &z) in y.iter_mut().zip(h).zip(gate).zip(output) {
        *y = h * Gelu::value(gate) * Sigmoid::value(z);
    }
}

/// Reads h, g and the gradient; writes the gradients of h and g.
#[simd]
fn read_back<F: Float>([h, gate, gy]: [&[F]; 3], [gh, gg]: [&mut [F]; 2]) {
    let n = gy.len();
    let (h, gate, gh, gg) = (&h[..n], &gate[..n], &mut gh[..n], &mut gg[..n]);
    for i in 0..n {
        let value = Gelu::value(gate[i]);
        gh[i] = gy[i] * value;
        gg[i] = gy[i] * h[i] * Gelu::slope(gate[i], value);
    }
}

/// Reads h, g, z and the gradient; writes the gradients of h, g and z.
#[simd]
fn read_output_back<F: Float>([h, gate, z, gy]: [&[F]; 4], [gh, gg, gz]: [&mut [F]; 3]) {
    let n = gy.len();
    let (h, gate, z) = (&h[..n], &gate[..n], &z[..n]);
    let (gh, gg, gz) = (&mut gh[..n], &mut gg[..n], &mut gz[..n]);
    for i in 0..n {
        let (value, open) = (Gelu::value(gate[i]), Sigmoid::value(z[i]));
        gh[i] = gy[i] * value * open;
        gg[i] = gy[i] * h[i] * open * Gelu::slope(gate[i], value);
        gz[i] = gy[i] * h[i] * value * Sigmoid::slope(z[i], open);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::check::{self, Case};

    fn case(inputs: usize, count: usize) -> Case {
        let names = ["h", "gate", "output"];
        let case = Case::new(format!("{inputs} of {count}"));
        let add = |case: Case, name| case.normal(name, &[count]);
        names.into_iter().take(inputs).fold(case, add)
    }

    fn fused(ins: &[Tensor]) -> Result<Tensor> {
        gated_readout(&ins[0], &ins[1], ins.get(2))
    }

    #[test]
    fn fused_equals_reference() {
        for inputs in [2, 3] {
            let cases = [1, 2, 63, 64, 65, 1000].map(|count| case(inputs, count));
            check::agree(&cases, fused, |ins| super::reference(&ins[0], &ins[1], ins.get(2)));
        }
    }

    #[test]
    fn kernels_equal_the_reference() {
        for inputs in [2, 3] {
            let cases = [1, 63, 1000, 1025].map(|count| case(inputs, count));
            check::kernels_agree(&cases, fused, |ins| super::reference(&ins[0], &ins[1], ins.get(2)));
        }
    }

    #[test]
    fn gradients_are_finite_differences() {
        check::finite_differences(&case(2, 20), fused);
        check::finite_differences(&case(3, 20), fused);
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        check::same_bits(&case(2, 2 * CHUNK + 7), fused);
        check::same_bits(&case(3, 2 * CHUNK + 7), fused);
    }

    #[test]
    fn every_subset_of_inputs_can_be_tracked() {
        check::partial_tracking(&Case::new("2").normal("h", &[2, 3]).normal("g", &[2, 3]), fused);
    }

    #[test]
    fn a_wrong_shape_is_named() {
        let message = "gated_readout: gate has shape [2, 4], but h of shape [2, 3]";
        check::refuses(&[&[2, 3], &[2, 4]], fused, message);
    }
}
