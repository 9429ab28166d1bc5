//! Sequences of launches as CUDA graphs.

use super::super::Recording;
use candle_core::cuda_backend::WrapErr;
use candle_core::{bail, Result};
use cudarc::driver::{sys, CudaGraph, CudaStream};
use std::sync::Arc;

struct Graph(CudaGraph);

/// A stream during capture. Capture must end even if the work fails or panics.
struct Captured<'a>(&'a Arc<CudaStream>);

impl Captured<'_> {
    fn end(&self) -> Result<Option<CudaGraph>> {
        use sys::CUgraphInstantiate_flags as Flags;
        let flags = Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        self.0.end_capture(flags).w()
    }
}

impl Drop for Captured<'_> {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Captures the launches of `work` without running them. `work` must free all memory that it allocates; the graph
/// allocates it again in each replay. Other threads may work meanwhile, except for operations that synchronise the
/// whole context.
pub(super) fn record(stream: &Arc<CudaStream>, work: &mut dyn FnMut() -> Result<()>) -> Result<Box<dyn Recording>> {
    use sys::CUstreamCaptureMode as Mode;
    stream.synchronize().w()?;
    stream.begin_capture(Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).w()?;
    let captured = Captured(stream);
    work()?;
    let graph = captured.end();
    std::mem::forget(captured);
    match graph? {
        Some(graph) => Ok(Box::new(Graph(graph))),
        None => bail!("nothing was captured"),
    }
}

impl Recording for Graph {
    fn replay(&self) -> Result<()> {
        self.0.launch().w()
    }

    fn nodes(&self) -> Result<usize> {
        use sys::CUgraphNodeType as Kind;
        let (graph, mut count) = (self.0.cu_graph(), 0);
        // SAFETY: without a destination, the driver writes the number of nodes, and then that many.
        let nodes = unsafe {
            sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &raw mut count).result().w()?;
            let mut nodes = vec![std::ptr::null_mut(); count];
            sys::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count).result().w()?;
            nodes
        };
        let works = |&node: &sys::CUgraphNode| {
            let mut kind = Kind::CU_GRAPH_NODE_TYPE_EMPTY;
            // SAFETY: the node belongs to the graph.
            unsafe { sys::cuGraphNodeGetType(node, &raw mut kind) }.result().w()?;
            let memory = [Kind::CU_GRAPH_NODE_TYPE_MEMCPY, Kind::CU_GRAPH_NODE_TYPE_MEMSET];
            Ok(kind == Kind::CU_GRAPH_NODE_TYPE_KERNEL || memory.contains(&kind))
        };
        let working = nodes.iter().map(works).collect::<Result<Vec<bool>>>()?;
        Ok(working.into_iter().filter(|&works| works).count())
    }
}
