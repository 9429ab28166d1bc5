//! The storage of a fused op's values: a vector of numbers on the CPU, or a buffer of a GPU.

use super::leaves::{Accumulate, Leaves};
use super::producers::Registry;
use super::{Backward, CpuOp, CudaOp, Forward, Launch, LaunchBackward, Op, Used};
use crate::gpu::{self, Buffer, Gpu, View};
use crate::runtime::float::{in_single, Float};
use crate::runtime::maps::MAPS;
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

    /// The values of a contiguous tensor that nothing else holds, or a copy.
    fn of(x: Tensor) -> Result<Self>;

    /// The storage of a candle tensor that holds these values.
    fn into_storage(self) -> Result<Storage>;

    /// A tensor outside any graph.
    fn into_tensor(self, shape: &Shape) -> Result<Tensor> {
        let storage = self.into_storage()?;
        Ok(Tensor::from_storage(storage, shape, BackpropOp::none(), false))
    }
}

/// Type-erased interface of a fused op.
pub(super) trait Erased: Send + Sync {
    /// [`Op::NAME`].
    fn name(&self) -> &'static str;

    /// [`Op::SAVES_GRADIENTS`].
    fn saves_gradients(&self) -> bool;

    /// [`Op::out_shapes`].
    fn out_shapes(&self) -> Vec<Shape>;
}

impl<O: Op> Erased for O {
    fn name(&self) -> &'static str {
        O::NAME
    }

    fn saves_gradients(&self) -> bool {
        O::SAVES_GRADIENTS
    }

    fn out_shapes(&self) -> Vec<Shape> {
        Op::out_shapes(self)
    }
}

/// A fused op for values of one type, with its own type erased, so that the code that connects ops to Candle's graph is
/// compiled only once for all ops.
pub(super) trait OpOn<V>: Erased {
    /// The outputs, followed by what is saved for the backward pass if `tracked`.
    fn forward(&self, ins: &[Tensor], tracked: bool) -> Result<Vec<V>>;

    /// [`CpuOp::CONTINUES`]; false on a GPU.
    fn continues(&self) -> bool {
        false
    }

    /// A gradient for each input whose `needs_grad` is true.
    fn backward(&self, call: Return<V>) -> Result<Vec<Option<V>>>;
}

/// The arguments of [`OpOn::backward`], as in [`Backward`].
pub(super) struct Return<'a, V> {
    pub(super) ins: &'a [Tensor],
    pub(super) outs: &'a [Arrived<V>],
    pub(super) saved: &'a [V],
    pub(super) needs_grad: &'a [bool],
    pub(super) begun: &'a [Option<V>],
}

/// Implements the traits for vectors of `$float`. `$compute` evaluates its last argument with the number type that
/// stands for `$float` in the current instruction set.
macro_rules! on_the_cpu {
    ($float:ty, $compute:ident) => {
        impl Accumulate for Vec<$float> {
            const HELD: usize = 1;

            fn add(&mut self, more: &[Self]) -> Result<()> {
                for more in more {
                    $compute!(F => crate::runtime::lanes::add_to(F::wrap_mut(self), F::wrap_slice(more)));
                }
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

            fn of(x: Tensor) -> Result<Self> {
                let (storage, layout) = x.storage_and_layout();
                Ok(slice::<$float>(&storage, layout)?.to_vec())
            }

            fn into_storage(self) -> Result<Storage> {
                Ok(Storage::Cpu(<$float>::to_cpu_storage_owned(self)))
            }
        }

        impl<O: CpuOp> OpOn<Vec<$float>> for O {
            fn forward(&self, ins: &[Tensor], tracked: bool) -> Result<Vec<Vec<$float>>> {
                $compute!(F => forward_on_cpu::<F>(ins, tracked, &|call| CpuOp::forward(self, call)))
            }

            fn continues(&self) -> bool {
                O::CONTINUES
            }

            fn backward(&self, call: Return<Vec<$float>>) -> Result<Vec<Option<Vec<$float>>>> {
                $compute!(F => backward_on_cpu::<F>(call, &|call| CpuOp::backward(self, call)))
            }
        }
    };
}

macro_rules! in_double {
    ($number:ident => $value:expr) => {{
        type $number = f64;
        $value
    }};
}

on_the_cpu!(f32, in_single);
on_the_cpu!(f64, in_double);

fn forward_on_cpu<F: Float>(
    ins: &[Tensor],
    tracked: bool,
    run: &dyn Fn(Forward<F>) -> Vec<Vec<F>>,
) -> Result<Vec<Vec<F::Stored>>> {
    let guards: Vec<_> = ins.iter().map(Tensor::storage_and_layout).collect();
    let ins = &slices::<F, _>(&guards)?;
    let outs = run(Forward { ins, tracked });
    Ok(outs.into_iter().map(F::peel_vec).collect())
}

fn backward_on_cpu<F: Float>(
    call: Return<Vec<F::Stored>>,
    run: &dyn Fn(Backward<F>) -> Vec<Vec<F>>,
) -> Result<Vec<Option<Vec<F::Stored>>>> {
    let guards: Vec<_> = call.ins.iter().map(Tensor::storage_and_layout).collect();
    let values = guards_of(call.outs);
    let saved: Vec<&[F]> = call.saved.iter().map(|x| F::wrap_slice(x)).collect();
    let begun: Vec<_> = call.begun.iter().map(|grad| grad.as_ref().map(|grad| F::wrap_slice(grad))).collect();
    let grads = run(Backward {
        ins: &slices::<F, _>(&guards)?,
        outs: &used(call.outs, &values, |grad| F::wrap_slice(grad), slice::<F>)?,
        saved: &saved,
        needs_grad: call.needs_grad,
        begun: &begun,
    });
    let where_needed = |(grad, &needs_grad): (Vec<F>, &bool)| needs_grad.then(|| F::peel_vec(grad));
    Ok(grads.into_iter().zip(call.needs_grad).map(where_needed).collect())
}

impl Accumulate for Buffer {
    /// The first and those that one launch adds to it.
    const HELD: usize = 1 + MAPS;

    fn add(&mut self, more: &[Self]) -> Result<()> {
        Buffer::add(self, more)
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

    fn of(x: Tensor) -> Result<Self> {
        Buffer::of(&gpu_of(&x)?, x)
    }

    fn into_storage(self) -> Result<Storage> {
        Buffer::into_storage(self)
    }

    fn into_tensor(self, shape: &Shape) -> Result<Tensor> {
        Buffer::into_tensor(self, shape)
    }
}

impl<O: CudaOp> OpOn<Buffer> for O {
    fn forward(&self, ins: &[Tensor], tracked: bool) -> Result<Vec<Buffer>> {
        let gpu = &gpu_of(&ins[0])?;
        let guards: Vec<_> = ins.iter().map(Tensor::storage_and_layout).collect();
        let ins = &views(gpu, &guards)?;
        CudaOp::forward(self, Launch { gpu, ins, tracked })
    }

    fn backward(&self, call: Return<Buffer>) -> Result<Vec<Option<Buffer>>> {
        let gpu = &gpu_of(&call.ins[0])?;
        let guards: Vec<_> = call.ins.iter().map(Tensor::storage_and_layout).collect();
        let values = guards_of(call.outs);
        let call = LaunchBackward {
            gpu,
            ins: &views(gpu, &guards)?,
            outs: &used(call.outs, &values, Buffer::view, |s, l| gpu.view(s, l))?,
            saved: call.saved,
            needs_grad: call.needs_grad,
        };
        CudaOp::backward(self, call)
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
    outs.iter().map(|out| out.as_ref().map(|(_, value)| value.storage_and_layout())).collect()
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
    F: Float,
    G: Deref<Target = Storage>,
{
    guards.iter().map(|(storage, layout)| slice(storage, layout)).collect()
}

fn slice<'a, F: Float>(storage: &'a Storage, layout: &Layout) -> Result<&'a [F]> {
    match (storage, layout.contiguous_offsets()) {
        (Storage::Cpu(storage), Some((start, end))) => {
            Ok(F::wrap_slice(&F::Stored::cpu_storage_as_slice(storage)?[start..end]))
        }
        _ => bail!("a fused op on the CPU reads contiguous tensors of its own number type in memory of the CPU"),
    }
}

fn views<'a, G>(gpu: &Gpu, guards: &'a [(G, &Layout)]) -> Result<Vec<View<'a>>>
where
    G: Deref<Target = Storage>,
{
    guards.iter().map(|(storage, layout)| gpu.view(storage, layout)).collect()
}
