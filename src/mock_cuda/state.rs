//! Everything that the driver knows, and its handles.

use crate::answer::{broken, require, Answer, Code, Refusal};
use crate::graph::Graph;
use crate::kernel::{Function, Kernels, Module};
use crate::memory::Memory;
use crate::stream::{Action, Event, Source, Stream};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

/// The one driver of the process.
pub(crate) static DRIVER: LazyLock<Mutex<Driver>> = LazyLock::new(|| Mutex::new(Driver::new()));

thread_local! {
    /// Handle of this thread's context; 0: none.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// Objects of one kind, by handle. No two objects of a process have the same handle, so that one of another kind, or one
/// that was closed, is known.
pub(crate) struct Table<T> {
    kind: &'static str,
    open: HashMap<u64, T>,
}

impl<T> Table<T> {
    fn new(kind: &'static str) -> Self {
        Self { kind, open: HashMap::new() }
    }

    pub(crate) fn open(&mut self, object: T) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0x1000);
        let handle = NEXT.fetch_add(0x10, Ordering::Relaxed);
        self.open.insert(handle, object);
        handle
    }

    pub(crate) fn get(&mut self, handle: u64) -> Answer<&mut T> {
        self.open.get_mut(&handle).ok_or_else(|| missing(handle, self.kind))
    }

    pub(crate) fn close(&mut self, handle: u64) -> Answer<T> {
        self.open.remove(&handle).ok_or_else(|| missing(handle, self.kind))
    }

    pub(crate) fn handles(&self) -> Vec<u64> {
        let mut all: Vec<_> = self.open.keys().copied().collect();
        all.sort_unstable();
        all
    }
}

fn missing(handle: u64, kind: &str) -> Refusal {
    broken(Code::InvalidHandle, format!("{handle:#x} is no open {kind}"))
}

/// The primary context of a GPU.
pub(crate) struct Context {
    pub(crate) gpu: usize,
    /// Number of times that it is retained.
    pub(crate) retained: usize,
    /// Failure of a kernel, after which no call works.
    pub(crate) failed: Option<Code>,
}

/// State of the driver and of the two libraries.
pub(crate) struct Driver {
    pub(crate) initialised: bool,
    pub(crate) gpus: usize,
    /// Bytes of memory of each GPU.
    pub(crate) limit: usize,
    /// Whether kernels and products do nothing.
    pub(crate) skip: bool,
    pub(crate) memory: Memory,
    /// Page-locked memory of the host: its bytes by address.
    pub(crate) host: BTreeMap<u64, usize>,
    pub(crate) contexts: Table<Context>,
    pub(crate) streams: Table<Stream>,
    pub(crate) events: Table<Event>,
    /// Modules and kernels, each with its context.
    pub(crate) modules: Table<(u64, Module)>,
    pub(crate) functions: Table<(u64, Arc<Function>)>,
    pub(crate) graphs: Table<Graph>,
    pub(crate) executables: Table<Graph>,
    /// Kinds of nodes that were asked for.
    pub(crate) nodes: Table<i32>,
    pub(crate) blas: Table<crate::blas::Handle>,
    pub(crate) random: Table<()>,
    pub(crate) kernels: Kernels,
}

/// Whether `bytes` bytes are in one piece of the page-locked memory `host`.
pub(crate) fn is_pinned(host: &BTreeMap<u64, usize>, address: u64, bytes: usize) -> bool {
    let found = host.range(..=address).next_back();
    found.is_some_and(|(base, size)| address + bytes as u64 <= base + *size as u64)
}

fn variable(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

impl Driver {
    fn new() -> Self {
        let gpus = variable("DSF_MOCK_CUDA_GPUS").unwrap_or(1);
        let skip = std::env::var_os("DSF_MOCK_CUDA_SKIP").is_some();
        Self {
            initialised: false,
            gpus,
            limit: variable("DSF_MOCK_CUDA_MEMORY").unwrap_or(8 << 30),
            skip,
            memory: Memory::new(skip),
            host: BTreeMap::new(),
            contexts: Table::new("context"),
            streams: Table::new("stream"),
            events: Table::new("event"),
            modules: Table::new("module"),
            functions: Table::new("function"),
            graphs: Table::new("graph"),
            executables: Table::new("executable graph"),
            nodes: Table::new("node"),
            blas: Table::new("handle of cuBLAS"),
            random: Table::new("generator of cuRAND"),
            kernels: Kernels::default(),
        }
    }

    /// Checks that `cuInit` was called.
    pub(crate) fn ready(&self) -> Answer {
        match self.initialised {
            true => Ok(()),
            false => Err(broken(Code::NotInitialized, "cuInit has not been called")),
        }
    }

    /// Checks the number of a GPU.
    pub(crate) fn gpu(&self, number: i32) -> Answer<usize> {
        self.ready()?;
        let gpus = self.gpus;
        let found = usize::try_from(number).ok().filter(|&gpu| gpu < gpus);
        found.ok_or_else(|| broken(Code::InvalidDevice, format!("no GPU {number}: there are {gpus} GPUs")))
    }

    /// Handle of this thread's context.
    pub(crate) fn current_handle() -> u64 {
        CURRENT.get()
    }

    /// Makes a context current, or none.
    pub(crate) fn set_current(&mut self, context: u64) -> Answer {
        if context != 0 {
            self.contexts.get(context)?;
        }
        CURRENT.set(context);
        Ok(())
    }

    /// Checks that this thread has a context, and that no kernel has failed in it.
    pub(crate) fn current(&mut self) -> Answer<u64> {
        self.ready()?;
        let handle = CURRENT.get();
        if handle == 0 {
            return Err(broken(Code::InvalidContext, "this thread has no current context"));
        }
        let context = self.contexts.get(handle)?;
        if context.retained == 0 {
            return Err(broken(Code::InvalidContext, "the context of this thread was released"));
        }
        match context.failed {
            Some(code) => Err(code.into()),
            None => Ok(handle),
        }
    }

    /// Checks that an object of `owner`, a context, is used in the current one.
    pub(crate) fn same_context(&mut self, owner: u64, kind: &str) -> Answer {
        let current = self.current()?;
        match owner == current {
            true => Ok(()),
            false => Err(broken(Code::InvalidHandle, format!("the {kind} belongs to the context of another GPU"))),
        }
    }

    /// Checks that this thread has a context in which a call may work that a capture by this thread forbids.
    pub(crate) fn current_outside_captures(&mut self) -> Answer<u64> {
        let context = self.current()?;
        let thread = std::thread::current().id();
        for handle in self.streams.handles() {
            let stream = self.streams.get(handle)?;
            if let Some(capture) = stream.capture.as_mut().filter(|capture| capture.thread == thread) {
                capture.invalid = true;
                return Err(broken(Code::CaptureUnsupported, "this thread captures a stream, which forbids the call"));
            }
        }
        Ok(context)
    }

    /// Checks that `bytes` bytes of device memory may be used by what is queued now.
    pub(crate) fn usable(&self, address: u64, bytes: usize) -> Answer {
        let block = self.memory.holding(address, bytes)?;
        if block.context != Self::current_handle() {
            return Err(broken(Code::IllegalAddress, format!("{address:#x} is memory of another GPU")));
        }
        match block.freed {
            true => Err(broken(Code::IllegalAddress, format!("{address:#x} is memory that was freed"))),
            false => Ok(()),
        }
    }

    /// Runs everything that all streams hold.
    pub(crate) fn finish_all(&mut self) -> Answer {
        for stream in self.streams.handles() {
            self.finish(stream, u64::MAX)?;
        }
        Ok(())
    }

    /// Runs what a stream holds, up to the action with number `last`.
    pub(crate) fn finish(&mut self, stream: u64, last: u64) -> Answer {
        while let Some(action) = self.streams.get(stream)?.next(last) {
            if let Err(refusal) = self.perform(&action) {
                let context = self.streams.get(stream)?.context;
                self.contexts.get(context)?.failed = Some(refusal.code);
                return Err(refusal);
            }
        }
        Ok(())
    }

    /// Adds an action to a stream, or to the graph that the stream captures.
    pub(crate) fn queue(&mut self, stream: u64, action: Action) -> Answer {
        /// Actions that a stream holds before it must run, so that freed memory is returned.
        const MOST: usize = 4096;
        let owner = self.streams.get(stream)?.context;
        self.same_context(owner, "stream")?;
        let held = self.streams.get(stream)?.push(action)?;
        match held > MOST {
            true => self.finish(stream, u64::MAX),
            false => Ok(()),
        }
    }

    /// Runs an action.
    pub(crate) fn perform(&mut self, action: &Action) -> Answer {
        let memory = &mut self.memory;
        match action {
            Action::Launch(launch) => match self.skip {
                true => Ok(()),
                false => launch.run(memory, &self.kernels),
            },
            Action::Multiply(product) => match self.skip {
                true => Ok(()),
                false => product.run(memory),
            },
            Action::ToDevice { from, to, bytes } => {
                memory.check(*to, *bytes)?;
                if let Source::Pinned(address) = from {
                    let rule = "a copy from page-locked memory that was freed before it ran";
                    require(is_pinned(&self.host, *address, *bytes), Code::IllegalAddress, rule)?;
                }
                // SAFETY: both sides have that many bytes: the caller's is page-locked or was copied before.
                unsafe { std::ptr::copy_nonoverlapping(from.address(), *to as *mut u8, *bytes) };
                Ok(())
            }
            Action::ToHost { from, to, bytes } => {
                memory.check(*from, *bytes)?;
                // SAFETY: as above.
                unsafe { std::ptr::copy_nonoverlapping(*from as *const u8, *to as *mut u8, *bytes) };
                Ok(())
            }
            Action::OnDevice { from, to, bytes } => {
                memory.check(*from, *bytes)?;
                memory.check(*to, *bytes)?;
                // SAFETY: both allocations have that many bytes; they may overlap.
                unsafe { std::ptr::copy(*from as *const u8, *to as *mut u8, *bytes) };
                Ok(())
            }
            Action::Clear { at, value, bytes } => {
                memory.check(*at, *bytes)?;
                // SAFETY: the allocation has that many bytes.
                unsafe { (*at as *mut u8).write_bytes(*value, *bytes) };
                Ok(())
            }
            Action::Allocate(address) => memory.begin(*address),
            Action::Free(address) => memory.end(*address),
            Action::Release(address) => memory.release(*address),
            Action::Record(event) => {
                // A closed event is no fault: CUDA keeps it until its stream has passed.
                if let Ok(event) = self.events.get(*event) {
                    event.passed = Some(std::time::Instant::now());
                }
                Ok(())
            }
            Action::Replay(nodes) => {
                for node in nodes.iter() {
                    self.perform(node)?;
                }
                Ok(())
            }
        }
    }
}
