//! The binary for GPUs, run on the mock driver; and the mock driver's own rules.
//!
//! `make test-cuda` builds the binary and names it in `DSF_CUDA`; without that variable, the tests that need it are
//! skipped. `DSF_MOCK_CUDA_ALL` trains every mixer in all precisions, launched and recorded.

mod program;
mod rules;
