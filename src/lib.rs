//! Train and compare sequence mixers under one protocol, through one lens.
//!
//! A [`config::RunConfig`] goes in, rows of a CSV come out. Every mixer is a linear time-varying
//! system h_i = Λ_i h_{i-1} + B_i u_i, y_i = C_i h_i + D_i u_i (equation (11) of Sieber et al.,
//! NeurIPS 2024), and the shape of Λ decides which algorithm computes it.
//!
//! Rooms, in floor order; a room uses only rooms on lower floors, never its neighbours. `gpu` and `ops` are packages of
//! their own (`ops` stands on `fft`, another one), compiled for speed and once, so that a change of a command or a test
//! builds none of them again:
//!
//! | floor | rooms |
//! |---|---|
//! | 0 | `alloc` `error` `gpu` `guide` |
//! | 1 | `ops` |
//! | 2 | `cache` `config` `files` |
//! | 3 | `tasks` |
//! | 4 | `store` `fetch` `nn` `ltv` |
//! | 5 | `mixers` `export` |
//! | 6 | `model` `recipes` `report` |
//! | 7 | `train` |
//! | 8 | `sweep` `golden` `bench` `inspect` |
//! | 9 | `cli` |

pub use dsf_gpu as gpu;
pub mod alloc;
pub mod error;
pub mod guide;

pub use dsf_ops as ops;

pub mod cache;
pub mod config;
pub mod files;

pub mod tasks;

pub mod fetch;
pub mod ltv;
pub mod nn;
pub mod store;

pub mod export;
pub mod mixers;

pub mod model;
pub mod recipes;
pub mod report;

pub mod train;

pub mod bench;
pub mod golden;
pub mod inspect;
pub mod sweep;

pub mod cli;
