//! The binary: everything happens in the library's `cli`.

use std::process::ExitCode;
use std::thread;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Autograd walks its graph by recursion, and an LSTM's graph is as deep as its sequence is long.
const STACK: usize = 1 << 30; // reserved, not touched: the system hands out pages as they are used

fn main() -> ExitCode {
    dsf::alloc::keep_pages();
    let work = thread::Builder::new()
        .stack_size(STACK)
        .spawn(dsf::cli::main);
    match work.map(|thread| thread.join()) {
        Ok(Ok(code)) => ExitCode::from(code),
        Ok(Err(_)) => ExitCode::FAILURE, // the panic has already been printed
        Err(e) => {
            eprintln!("error: cannot start the main thread: {e}");
            ExitCode::FAILURE
        }
    }
}
