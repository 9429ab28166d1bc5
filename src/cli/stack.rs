//! Threads that train.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Bytes of the stack. Autograd walks its graph by recursion, and an LSTM's graph is as deep as its sequence is long.
/// Reserved, not touched: the system hands out pages as they are used.
const STACK: usize = 1 << 30;

/// Starts a thread that can train any model.
///
/// # Errors
/// Where the system refuses it even a sixteenth of the stack.
pub fn in_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Clone + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let start = |bytes| Builder::new().stack_size(bytes).spawn(work.clone());
    // Some clusters limit the address space: less serves all but long sequences of an LSTM.
    start(STACK)
        .or_else(|_| start(STACK / 4))
        .or_else(|_| start(STACK / 16))
}
