//! One integration binary; a module a theme.

mod architecture;
mod cli;
mod contracts;
mod golden;
mod gradients;
mod kernels;
mod lemma2;
mod model;
mod parameters;
mod precision;
mod registry;
mod resume;
mod sources;
mod threads;
mod training;
mod world;
