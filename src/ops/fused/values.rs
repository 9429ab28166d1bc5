//! The storage of a fused op's values: a vector of numbers on the CPU, or a buffer of a GPU.

use super::leaves::{Accumulate, Leaves};
use super::producers::Registry;
use super::{Backward, Forward, FusedOp, Launch, LaunchBackward, Used};
use crate::gpu::{self, Buffer, Gpu, View};
use crate::ops::float::Float;
use candle_core::op::BackpropOp;
use candle_core::{bail, Layout, Result, Shape, Storage, Tensor, WithDType};
use std::ops::Deref;
use std::sync::LazyLock;

/// The gradient of an output and the output's value; `None` for an output that the loss does not
/// depend on.
pub(super) type Arrived<V> = Option<(V, Tensor)>;

/// The values of one tensor, all of one type and on one device.
pub(super) trait Values: Accumulate + Send + Sync + 'static {
    /// The outputs of fused ops that are still alive and whose gradients have this type.
    fn registry() -> &'static Registry<Self>;

    /// Calls `read` with this thread's gradients of variables.
    fn leaves<T>(read: impl FnOnce(&Leaves<Self>) -> T) -> T;

    /// The outputs of an op, followed by the tensors saved for its backward pass.
    fn forward<O: FusedOp>(op: &O, ins: &[Tensor], tracked: bool) -> Result<Vec<Self>>;

    /// A gradient for each input whose `needs_grad` is true.
    fn backward<O: FusedOp>(
        op: &O,
        ins: &[Tensor],
        outs: &[Arrived<Self>],
        saved: &[Self],
        needs_grad: &[bool],
    ) -> Result<Vec<Option<Self>>>;

    /// A copy of the values of a contiguous tensor.
    fn copy(of: &Tensor) -> Result<Self>;

    /// The storage of a candle tensor that holds these values.
    fn into_storage(self) -> Storage;

    /// A tensor outside any graph.
    fn into_tensor(self, shape: &Shape) -> Tensor {
        Tensor::from_storage(self.into_storage(), shape, BackpropOp::none(), false)
    }
}

macro_rules! on_the_cpu {
    ($float:ty) => {
        impl Accumulate for Vec<$float> {
            fn add(&mut self, more: Self) -> Result<()> {
                crate::ops::lanes::add_to(self, &more);
                Ok(())
            }
        }

        impl Values for Vec<$float> {
            fn registry() -> &'static Registry<Self> {
                static ALL: LazyLock<Registry<Vec<$float>>> = LazyLock::new(Registry::default);
                &ALL
            }

            fn leaves<T>(read: impl FnOnce(&Leaves<Self>) -> T) -> T {
                thread_local! {
                    static LEAVES: Leaves<Vec<$float>> = const { Leaves::new() };
                }
                LEAVES.with(read)
            }

            fn forward<O: FusedOp>(op: &O, ins: &[Tensor], tracked: bool) -> Result<Vec<Self>> {
                let guards: Vec<_> = ins.iter().map(Tensor::storage_and_layout).collect();
                let ins = &slices::<$float, _>(&guards)?;
                Ok(op.forward(Forward { ins, tracked }))
            }

            fn backward<O: FusedOp>(
                op: &O,
                ins: &[Tensor],
                outs: &[Arrived<Self>],
                saved: &[Self],
                needs_grad: &[bool],
            ) -> Result<Vec<Option<Self>>> {
                backward_on_cpu::<O, $float>(op, ins, outs, saved, needs_grad)
            }

            fn copy(of: &Tensor) -> Result<Self> {
                let (storage, layout) = of.storage_and_layout();
                Ok(slice::<$float>(&storage, layout)?.to_vec())
            }

            fn into_storage(self) -> Storage {
                Storage::Cpu(<$float>::to_cpu_storage_owned(self))
            }
        }
    };
}

on_the_cpu!(f32);
on_the_cpu!(f64);

fn backward_on_cpu<O: FusedOp, F: Float>(
    op: &O,
    ins: &[Tensor],
    outs: &[Arrived<Vec<F>>],
    saved: &[Vec<F>],
    needs_grad: &[bool],
) -> Result<Vec<Option<Vec<F>>>> {
    let guards: Vec<_> = ins.iter().map(Tensor::storage_and_layout).collect();
    let values = guards_of(outs);
    let used = used(outs, &values, |grad| &grad[..], slice::<F>)?;
    let grads = op.backward(Backward {
        ins: &slices::<F, _>(&guards)?,
        outs: &used,
        saved,
        needs_grad,
    });
    let where_needed = |(grad, &needs_grad): (Vec<F>, &bool)| needs_grad.then_some(grad);
    Ok(grads
        .into_iter()
        .zip(needs_grad)
        .map(where_needed)
        .collect())
}

impl Accumulate for Buffer {
    fn add(&mut self, more: Self) -> Result<()> {
        Buffer::add(self, &more)
    }
}

impl Values for Buffer {
    fn registry() -> &'static Registry<Self> {
        static ALL: LazyLock<Registry<Buffer>> = LazyLock::new(Registry::default);
        &ALL
    }

    fn leaves<T>(read: impl FnOnce(&Leaves<Self>) -> T) -> T {
        thread_local! {
            static LEAVES: Leaves<Buffer> = const { Leaves::new() };
        }
        LEAVES.with(read)
    }

    fn forward<O: FusedOp>(op: &O, ins: &[Tensor], tracked: bool) -> Result<Vec<Self>> {
        let gpu = &gpu_of(&ins[0])?;
        let guards: Vec<_> = ins.iter().map(Tensor::storage_and_layout).collect();
        let ins = &views(gpu, &guards)?;
        op.launch(Launch { gpu, ins, tracked })
    }

    fn backward<O: FusedOp>(
        op: &O,
        ins: &[Tensor],
        outs: &[Arrived<Self>],
        saved: &[Self],
        needs_grad: &[bool],
    ) -> Result<Vec<Option<Self>>> {
        let gpu = &gpu_of(&ins[0])?;
        let guards: Vec<_> = ins.iter().map(Tensor::storage_and_layout).collect();
        let values = guards_of(outs);
        let used = used(outs, &values, Buffer::view, |s, l| gpu.view(s, l))?;
        op.launch_backward(LaunchBackward {
            gpu,
            ins: &views(gpu, &guards)?,
            outs: &used,
            saved,
            needs_grad,
        })
    }

    fn copy(of: &Tensor) -> Result<Self> {
        let (storage, layout) = of.storage_and_layout();
        let gpu = gpu_of(of)?;
        gpu.copy(gpu.view(&storage, layout)?)
    }

    fn into_storage(self) -> Storage {
        Buffer::into_storage(self)
    }
}

fn gpu_of(x: &Tensor) -> Result<Gpu> {
    match gpu::of(x) {
        Some(gpu) => Ok(gpu),
        None => bail!("all inputs of an op must lie on the same GPU; one of them does not"),
    }
}

/// Read guards on the storages of the outputs that have a gradient.
fn guards_of<V>(outs: &[Arrived<V>]) -> Vec<Option<(impl Deref<Target = Storage> + '_, &Layout)>> {
    outs.iter()
        .map(|out| out.as_ref().map(|(_, value)| value.storage_and_layout()))
        .collect()
}

/// Each output that has a gradient: `read` maps its storage to a value, and `grad` maps its
/// gradient.
fn used<'a, V, G, T>(
    outs: &'a [Arrived<V>],
    values: &'a [Option<(G, &Layout)>],
    grad: impl Fn(&'a V) -> T,
    read: impl Fn(&'a Storage, &Layout) -> Result<T>,
) -> Result<Vec<Option<Used<T>>>>
where
    G: Deref<Target = Storage>,
{
    let used = |(out, value): (&'a Arrived<V>, &'a Option<(G, &Layout)>)| {
        let (Some((arrived, _)), Some((storage, layout))) = (out, value) else {
            return Ok(None);
        };
        let (value, grad) = (read(storage, layout)?, grad(arrived));
        Ok(Some(Used { value, grad }))
    };
    outs.iter().zip(values).map(used).collect()
}

/// The elements of tensors whose storages are held by guards `G`.
fn slices<'a, F, G>(guards: &'a [(G, &Layout)]) -> Result<Vec<&'a [F]>>
where
    F: WithDType,
    G: Deref<Target = Storage>,
{
    guards
        .iter()
        .map(|(storage, layout)| slice(storage, layout))
        .collect()
}

fn slice<'a, F: WithDType>(storage: &'a Storage, layout: &Layout) -> Result<&'a [F]> {
    match (storage, layout.contiguous_offsets()) {
        (Storage::Cpu(storage), Some((start, end))) => {
            Ok(&F::cpu_storage_as_slice(storage)?[start..end])
        }
        _ => bail!("a fused op on the CPU reads contiguous tensors of its own number type in memory of the CPU"),
    }
}

fn views<'a, G>(gpu: &Gpu, guards: &'a [(G, &Layout)]) -> Result<Vec<View<'a>>>
where
    G: Deref<Target = Storage>,
{
    guards
        .iter()
        .map(|(storage, layout)| gpu.view(storage, layout))
        .collect()
}
