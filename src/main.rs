//! The binary: everything happens in the library's `cli`.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: dsf::alloc::Allocator = dsf::alloc::Allocator;

fn main() -> ExitCode {
    dsf::alloc::keep_pages();
    match dsf::cli::in_thread(dsf::cli::main).map(|thread| thread.join()) {
        Ok(Ok(code)) => ExitCode::from(code),
        Ok(Err(_)) => ExitCode::FAILURE, // the panic has already been printed
        Err(e) => {
            eprintln!("error: cannot start the main thread: {e}");
            ExitCode::FAILURE
        }
    }
}
