//! Train and compare sequence mixers under one protocol, through one lens.
//!
//! A [`config::RunConfig`] goes in, rows of a CSV come out. Every mixer is a linear time-varying
//! system h_i = Λ_i h_{i-1} + B_i u_i, y_i = C_i h_i + D_i u_i (equation (11) of Sieber et al.,
//! NeurIPS 2024), and the shape of Λ decides which algorithm computes it.
//!
//! Rooms, in floor order; a room uses only rooms above it in this list:
//!
//! | floor | rooms |
//! |---|---|
//! | 0 | `error` `rng` `config` |
//! | 1 | `store` `tasks` `ops` |
//! | 2 | `report` `nn` `ltv` |
//! | 3 | `mixers` |
//! | 4 | `model` |
//! | 5 | `train` |
//! | 6 | `sweep` `golden` |
//! | 7 | `cli` |

#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod alloc;
pub mod config;
pub mod error;
pub mod rng;

pub mod ops;
pub mod store;
pub mod tasks;

pub mod ltv;
pub mod nn;
pub mod report;

pub mod mixers;

pub mod model;

pub mod train;

pub mod golden;
pub mod sweep;

pub mod cli;
