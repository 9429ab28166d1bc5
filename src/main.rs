//! The binary: everything happens in the library's `cli`.

use std::process::ExitCode;
use std::thread;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Bytes of the stack. Autograd walks its graph by recursion, and an LSTM's graph is as deep as its sequence is long.
/// Reserved, not touched: the system hands out pages as they are used.
const STACK: usize = 1 << 30;

fn main() -> ExitCode {
    dsf::alloc::keep_pages();
    let start = |bytes| {
        thread::Builder::new()
            .stack_size(bytes)
            .spawn(dsf::cli::main)
    };
    // Some clusters limit the address space: less serves all but long sequences of an LSTM.
    let work = start(STACK)
        .or_else(|_| start(STACK / 4))
        .or_else(|_| start(STACK / 16));
    match work.map(|thread| thread.join()) {
        Ok(Ok(code)) => ExitCode::from(code),
        Ok(Err(_)) => ExitCode::FAILURE, // the panic has already been printed
        Err(e) => {
            eprintln!("error: cannot start the main thread: {e}");
            ExitCode::FAILURE
        }
    }
}
