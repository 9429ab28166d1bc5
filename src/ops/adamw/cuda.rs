//! Launches of the kernels of `cuda/adamw.cu`: one for up to 64 parameters.

use super::{AdamWRates, AdamWSettings, AdamWSlot, Moments};
use crate::gpu::sizes::adamw::{EACH, TENSORS, THREADS, WORDS};
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, View};
use candle_core::backprop::GradStore;
use candle_core::{bail, DType, Layout, Result, Storage, Tensor};
use std::ops::Deref;

/// Elements of a block.
const NUMBERS: usize = EACH * THREADS;

/// AdamW on parameters of one GPU: device memory and constants that the launches read in addition to parameters and
/// gradients.
pub struct AdamWKernels {
    gpu: Gpu,
    /// Values that change from step to step.
    rates: Buffer,
    /// Beta1, beta2 and eps.
    constants: [f32; 3],
    /// Descriptions of the blocks, one buffer for every 64 slots.
    blocks: Vec<Buffer>,
    clip: Option<Clip>,
}

/// Buffers of gradient clipping, shared by recorded launches.
struct Clip {
    /// Largest norm of the gradients.
    most: f32,
    /// Sum of squares of each block.
    parts: Buffer,
    /// Factor of all gradients: one f32.
    scale: Buffer,
}

impl AdamWKernels {
    /// Kernels for the parameters of `slots`, which lie on `gpu`.
    pub fn new(gpu: Gpu, settings: &AdamWSettings, slots: &[AdamWSlot]) -> Result<Self> {
        let blocks = |slots: &[AdamWSlot]| {
            let mut blocks = Vec::new();
            for (which, slot) in slots.iter().enumerate() {
                let count = slot.var.elem_count();
                let firsts = (0..count).step_by(NUMBERS);
                blocks.extend(firsts.flat_map(|first| [which, first, count, slot.decays.into()]));
            }
            let words: Result<Vec<u32>> = blocks.into_iter().map(word).collect();
            gpu.upload(&words?)
        };
        let blocks = slots.chunks(TENSORS).map(blocks).collect::<Result<Vec<_>>>()?;
        let parts: usize = blocks.iter().map(|blocks| blocks.len() / WORDS).sum();
        let clip = |most: f64| -> Result<Clip> {
            Ok(Clip { most: most as f32, parts: gpu.alloc(DType::F32, parts)?, scale: gpu.alloc(DType::F32, 1)? })
        };
        Ok(Self {
            rates: gpu.alloc(DType::F32, 3)?,
            constants: [settings.beta1, settings.beta2, settings.eps].map(|x| x as f32),
            clip: settings.clip.map(clip).transpose()?,
            blocks,
            gpu,
        })
    }

    /// The GPU of the parameters.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Sets the rates of all later launches.
    pub fn set_rates(&self, by: &AdamWRates) -> Result<()> {
        self.gpu.write(&by.words(), self.rates.view())
    }

    /// Device memory from which launches read their rates, in the order of [`AdamWRates::words`].
    pub fn rates(&self) -> View<'_> {
        self.rates.view()
    }

    /// Makes one step on every slot that has a gradient, or none if `loss` is given and not finite.
    pub fn step(&self, slots: &[AdamWSlot], grads: &GradStore, loss: Option<View>) -> Result<()> {
        let grad = |slot: &AdamWSlot| grads.get(&slot.var).map(Tensor::contiguous).transpose();
        let grads = slots.iter().map(grad).collect::<Result<Vec<_>>>()?;
        if let Some(clip) = &self.clip {
            self.launch_clip(&grads, clip)?;
        }
        let slots = slots.chunks(TENSORS).zip(grads.chunks(TENSORS));
        for ((slots, grads), blocks) in slots.zip(&self.blocks) {
            self.launch_table(slots, grads, blocks, loss)?;
        }
        Ok(())
    }

    /// Computes the factor of the gradients.
    fn launch_clip(&self, grads: &[Option<Tensor>], clip: &Clip) -> Result<()> {
        let mut first = 0;
        for (grads, blocks) in grads.chunks(TENSORS).zip(&self.blocks) {
            let grads = held(grads.iter().map(Option::as_ref).collect());
            let count = blocks.len() / WORDS;
            let parts = clip.parts.view().part(first, count);
            let args = [self.table(&grads)?, blocks.into(), parts.into()];
            let kernel = Kernel::new("adamw", "sum_squares");
            self.gpu.launch(kernel, Grid::of(count, THREADS), &args)?;
            first += count;
        }
        let parts = clip.parts.view();
        let sizes = [first.into(), clip.most.into()];
        let args = [&[parts.into(), clip.scale.view().into()], &sizes[..]].concat();
        let kernel = Kernel::new("adamw", "clip_scale");
        self.gpu.launch(kernel, Grid::of(1, THREADS), &args)
    }

    fn launch_table(
        &self,
        slots: &[AdamWSlot],
        grads: &[Option<Tensor>],
        blocks: &Buffer,
        loss: Option<View>,
    ) -> Result<()> {
        let vars = slots.iter().map(|slot| Some(slot.var.as_tensor()));
        let vars = held(vars.collect());
        let grads = held(grads.iter().map(Option::as_ref).collect());
        let moments = held(slots.iter().map(on_gpu).collect());
        let tables = [&vars, &grads, &moments].map(|tensors| self.table(tensors));
        let mut args = tables.into_iter().collect::<Result<Vec<Arg>>>()?;
        let scale = self.clip.as_ref().map(|clip| &clip.scale);
        args.extend([blocks.into(), (&self.rates).into(), scale.into()]);
        args.push(loss.into());
        args.extend(self.constants.map(Arg::from));
        let grid = Grid::of(blocks.len() / WORDS, THREADS);
        self.gpu.launch(Kernel::new("adamw", "step"), grid, &args)
    }

    /// Table argument of the tensors, padded with null pointers to [`TENSORS`].
    fn table<'a, G: Deref<Target = Storage>>(&self, held: &'a [Option<(G, &Layout)>]) -> Result<Arg<'a>> {
        let mut entries = Vec::new();
        for tensor in held {
            entries.push(match tensor {
                Some((storage, _)) if storage.dtype() != DType::F32 => {
                    bail!("adamw on a GPU works on f32, not on {:?}", storage.dtype())
                }
                Some((storage, layout)) => self.gpu.view(storage, layout)?.into(),
                None => Arg::Null,
            });
        }
        entries.resize(TENSORS, Arg::Null);
        Ok(Arg::Table(entries))
    }
}

fn on_gpu(slot: &AdamWSlot) -> Option<&Tensor> {
    match &slot.moments {
        Moments::Gpu(moments) => Some(moments),
        Moments::Cpu(_) => None,
    }
}

/// Storages of `tensors`, locked while a launch is made.
fn held<'a>(tensors: Vec<Option<&'a Tensor>>) -> Vec<Option<(impl Deref<Target = Storage> + 'a, &'a Layout)>> {
    let hold = |x: Option<&'a Tensor>| x.map(Tensor::storage_and_layout);
    tensors.into_iter().map(hold).collect()
}

fn word(size: usize) -> Result<u32> {
    u32::try_from(size).map_err(candle_core::Error::wrap)
}
