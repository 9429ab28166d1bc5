//! Train and compare sequence mixers under one protocol, through one lens.
//!
//! A [`config::RunConfig`] goes in, rows of a CSV come out. Every mixer is a linear time-varying
//! system h_i = Λ_i h_{i-1} + B_i u_i, y_i = C_i h_i + D_i u_i (equation (11) of Sieber et al.,
//! NeurIPS 2024), and the shape of Λ decides which algorithm computes it.
//!
//! Rooms, in floor order; a room uses only rooms on lower floors, never its neighbours:
//!
//! | floor | rooms |
//! |---|---|
//! | 0 | `alloc` `error` `rng` `gpu` |
//! | 1 | `cache` `config` `files` |
//! | 2 | `tasks` `ops` |
//! | 3 | `store` `fetch` `nn` `ltv` |
//! | 4 | `report` `mixers` |
//! | 5 | `model` `recipes` |
//! | 6 | `train` |
//! | 7 | `sweep` `golden` `bench` |
//! | 8 | `cli` |

#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod alloc;
pub mod error;
pub use dsf_gpu as gpu;
pub use dsf_ops::{self as ops, rng};

pub mod cache;
pub mod config;
pub mod files;

pub mod tasks;

pub mod fetch;
pub mod ltv;
pub mod nn;
pub mod store;

pub mod mixers;
pub mod report;

pub mod model;
pub mod recipes;

pub mod train;

pub mod bench;
pub mod golden;
pub mod sweep;

pub mod cli;
