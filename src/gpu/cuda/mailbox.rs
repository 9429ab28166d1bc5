//! Page-locked host memory, which the driver copies from and to asynchronously.

use super::super::{Carrier, View};
use candle_core::cuda_backend::WrapErr;
use candle_core::{bail, Result};
use cudarc::driver::{result, CudaEvent, CudaStream};
use std::ptr::NonNull;
use std::sync::Arc;

/// The words for the GPU, followed by the number that comes back.
pub(super) struct Pinned {
    stream: Arc<CudaStream>,
    memory: NonNull<u32>,
    words: usize,
    /// Event recorded after the last copy.
    arrived: CudaEvent,
}

impl Pinned {
    pub(super) fn new(stream: Arc<CudaStream>, words: usize) -> Result<Self> {
        let arrived = stream.context().new_event(None).w()?;
        // SAFETY: no flags; the memory is freed once, in `drop`.
        let memory = unsafe { result::malloc_host(4 * (words + 1), 0) }.w()?;
        let Some(memory) = NonNull::new(memory.cast::<u32>()) else {
            bail!("the driver gave no page-locked memory");
        };
        // SAFETY: that many words were allocated, and nothing else refers to them.
        unsafe { memory.as_ptr().write_bytes(0, words + 1) };
        Ok(Self { stream, memory, words, arrived })
    }

    /// Address of the number that comes back.
    fn number(&self) -> *mut f32 {
        // SAFETY: one more word than `words` was allocated.
        unsafe { self.memory.as_ptr().add(self.words) }.cast()
    }
}

impl Carrier for Pinned {
    fn send(&mut self, parts: &[&[u32]], to: View) -> Result<()> {
        self.arrived.synchronize().w()?;
        // SAFETY: the memory and `to` both hold that many words. The previous copies are complete, since their event
        // was waited for; `drop` ensures that the memory outlives this copy.
        unsafe {
            let memory = std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.words);
            let mut rest = &mut *memory;
            for part in parts {
                let (to, behind) = rest.split_at_mut(part.len());
                to.copy_from_slice(part);
                rest = behind;
            }
            result::memcpy_htod_async(to.address(), memory, self.stream.cu_stream()).w()?;
        }
        self.arrived.record(&self.stream).w()
    }

    fn fetch(&mut self, from: View) -> Result<()> {
        // SAFETY: both sides hold one number; only `wait` reads it, after the event.
        unsafe {
            let number = std::slice::from_raw_parts_mut(self.number(), 1);
            result::memcpy_dtoh_async(number, from.address(), self.stream.cu_stream()).w()?;
        }
        self.arrived.record(&self.stream).w()
    }

    fn wait(&self) -> Result<f32> {
        self.arrived.synchronize().w()?;
        // SAFETY: the copy is complete.
        Ok(unsafe { self.number().read() })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`; no copy is pending after the event. Errors of the driver cannot be handled here.
        unsafe {
            let _ = self.arrived.synchronize();
            let _ = result::free_host(self.memory.as_ptr().cast());
        }
    }
}
