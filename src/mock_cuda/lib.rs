//! libcuda, libcublas and libcurand without a GPU. A program built with CUDA that opens this library under their names
//! runs on the CPU, from its first call of the driver to its last: our kernels by the emulation, Candle's and matrix
//! products by plain loops.
//!
//! Every call is held to CUDA's rules: an initialised driver and a current context, handles of the right kind that are
//! still open, arguments of the sizes in the machine code, memory that is allocated and freed once, and nothing in a
//! capture that a capture forbids. A broken rule is answered with the driver's error, and written as a line `fault: ...`
//! to the file in `DSF_MOCK_CUDA_LOG`, or to standard error. With that file, every graph is written as a line
//! `graph: ...` with its nodes by kind.
//!
//! Streams run late: what is queued starts when something waits for it, or when a stream holds thousands of actions, so
//! that a missing wait shows. A GPU would run it at any time between.
//!
//! Not checked are the order of streams among each other (memory of one may be used in another without a wait) and the
//! capture of events. Stricter than CUDA's is one rule: a graph must free what it allocates.
//!
//! | variable | meaning |
//! |---|---|
//! | `DSF_MOCK_CUDA_LOG` | file to which faults and graphs are appended |
//! | `DSF_MOCK_CUDA_GPUS` | number of GPUs, 1 if not set |
//! | `DSF_MOCK_CUDA_MEMORY` | bytes of memory per GPU, 8 GiB if not set |
//! | `DSF_MOCK_CUDA_TRACE` | name of a function of the driver: each call is written to the log with its stack |
//! | `DSF_MOCK_CUDA_SKIP` | if set, kernels and products do nothing, and memory is zero: to count nodes of large models |

#![allow(unsafe_code)] // takes raw addresses from its callers, as the libraries do for which it stands

mod answer;
mod array;
mod blas;
mod candle;
mod driver;
mod elf;
mod gpu;
mod graph;
mod kernel;
mod memory;
mod product;
mod random;
mod state;
mod stream;
