//! Threads for training.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Stack size in bytes. Autograd traverses its graph recursively, and the graph of an LSTM is as deep as its sequence
/// is long. The memory is only reserved; pages are allocated when they are used.
const STACK: usize = 1 << 30;

/// Starts a thread that can train any model. Fails if the system does not even grant a sixteenth of the stack.
pub fn in_thread<T: Send + 'static>(work: impl FnOnce() -> T + Clone + Send + 'static) -> io::Result<JoinHandle<T>> {
    let start = |bytes| Builder::new().stack_size(bytes).spawn(work.clone());
    // Some clusters limit the address space. A smaller stack suffices except for long sequences of an LSTM.
    start(STACK).or_else(|_| start(STACK / 4)).or_else(|_| start(STACK / 16))
}
