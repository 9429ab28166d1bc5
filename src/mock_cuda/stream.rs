//! Streams, events and captures.

use crate::answer::{broken, Answer, Code};
use crate::kernel::Launch;
use crate::product::Product;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Instant;

/// Source of a copy to the device.
pub(crate) enum Source {
    /// Page-locked memory, read when the copy runs.
    Pinned(u64),
    /// Contents of pageable memory when the copy was queued.
    Staged(Vec<u8>),
}

impl Source {
    pub(crate) fn address(&self) -> *const u8 {
        match self {
            Self::Pinned(address) => *address as *const u8,
            Self::Staged(bytes) => bytes.as_ptr(),
        }
    }
}

/// Work of a stream, or a node of a graph.
pub(crate) enum Action {
    Launch(Launch),
    Multiply(Product),
    ToDevice {
        from: Source,
        to: u64,
        bytes: usize,
    },
    ToHost {
        from: u64,
        to: u64,
        bytes: usize,
    },
    OnDevice {
        from: u64,
        to: u64,
        bytes: usize,
    },
    Clear {
        at: u64,
        value: u8,
        bytes: usize,
    },
    /// Allocation in a graph.
    Allocate(u64),
    /// Free in a graph.
    Free(u64),
    /// Free outside of graphs.
    Release(u64),
    /// An event, by its handle.
    Record(u64),
    Replay(Arc<Vec<Action>>),
}

impl Action {
    /// Kind of the node with the number that `cuda.h` gives it.
    pub(crate) fn kind(&self) -> i32 {
        match self {
            Self::Launch(_) | Self::Multiply(_) => 0,
            Self::ToDevice { .. } | Self::ToHost { .. } | Self::OnDevice { .. } => 1,
            Self::Clear { .. } => 2,
            Self::Replay(_) => 4,
            Self::Record(_) => 7,
            Self::Allocate(_) => 10,
            Self::Free(_) | Self::Release(_) => 11,
        }
    }
}

/// A capture in progress.
pub(crate) struct Capture {
    pub(crate) thread: ThreadId,
    pub(crate) nodes: Vec<Action>,
    /// Memory that was allocated in it, and not freed yet.
    pub(crate) allocated: BTreeSet<u64>,
    /// All memory that was allocated in it.
    pub(crate) memory: Vec<u64>,
    /// Whether a call in it was refused.
    pub(crate) invalid: bool,
}

impl Capture {
    pub(crate) fn by_this_thread() -> Self {
        Self {
            thread: std::thread::current().id(),
            nodes: Vec::new(),
            allocated: BTreeSet::new(),
            memory: Vec::new(),
            invalid: false,
        }
    }
}

/// A stream, which runs what it holds when something waits for it.
pub(crate) struct Stream {
    pub(crate) context: u64,
    queue: VecDeque<Action>,
    /// Number of the first action in the queue.
    first: u64,
    pub(crate) capture: Option<Capture>,
}

impl Stream {
    pub(crate) fn of(context: u64) -> Self {
        Self { context, queue: VecDeque::new(), first: 0, capture: None }
    }

    /// Adds an action to the queue or to the capture, and returns the length of the queue.
    pub(crate) fn push(&mut self, action: Action) -> Answer<usize> {
        match &mut self.capture {
            Some(capture) if capture.invalid => return Err(Code::CaptureInvalidated.into()),
            Some(capture) => capture.nodes.push(action),
            None => self.queue.push_back(action),
        }
        Ok(self.queue.len())
    }

    /// Number of the last action that was queued.
    pub(crate) fn last(&self) -> u64 {
        self.first + self.queue.len() as u64
    }

    /// Takes the next action to run, up to number `last`.
    pub(crate) fn next(&mut self, last: u64) -> Option<Action> {
        if self.first >= last {
            return None;
        }
        let action = self.queue.pop_front()?;
        self.first += 1;
        Some(action)
    }

    /// Refuses what a capture of this stream forbids.
    pub(crate) fn outside_captures(&mut self, call: &str) -> Answer {
        match &mut self.capture {
            Some(capture) => {
                capture.invalid = true;
                Err(broken(Code::CaptureUnsupported, format!("{call}, while the stream is captured")))
            }
            None => Ok(()),
        }
    }
}

/// An event.
#[derive(Default)]
pub(crate) struct Event {
    /// Stream in which it was last recorded, and its place there.
    pub(crate) recorded: Option<(u64, u64)>,
    /// Time at which the stream passed it.
    pub(crate) passed: Option<Instant>,
}
