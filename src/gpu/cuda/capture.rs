//! A sequence of launches as a CUDA graph.

use super::super::Recording;
use candle_core::cuda_backend::WrapErr;
use candle_core::{bail, Result};
use cudarc::driver::{sys, CudaGraph, CudaStream};
use std::sync::Arc;

struct Graph(CudaGraph);

/// Captures what `work` puts on the stream, without running it. `work` must free all memory that it
/// allocates; the graph allocates it anew in each replay.
pub(super) fn record(
    stream: &Arc<CudaStream>,
    work: &mut dyn FnMut() -> Result<()>,
) -> Result<Box<dyn Recording>> {
    use sys::CUgraphInstantiate_flags as Flags;
    use sys::CUstreamCaptureMode as Mode;
    stream.synchronize().w()?;
    stream
        .begin_capture(Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        .w()?;
    let worked = work();
    // The stream must leave capture mode even if `work` failed.
    let graph = stream
        .end_capture(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)
        .w();
    worked?;
    match graph? {
        Some(graph) => Ok(Box::new(Graph(graph))),
        None => bail!("nothing was captured"),
    }
}

impl Recording for Graph {
    fn replay(&self) -> Result<()> {
        self.0.launch().w()
    }
}
