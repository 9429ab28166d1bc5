//! One integration binary; a module a theme.

mod architecture;
mod classifiers;
mod cli;
mod contracts;
mod faults;
mod generation;
mod golden;
mod gradients;
mod initial;
mod inspect;
mod kernels;
mod language;
mod lemma2;
mod lra_golden;
mod model;
mod modules;
mod parameters;
mod precision;
mod pytorch;
mod registry;
mod resume;
mod sources;
mod threads;
mod training;
mod wikitext_golden;
mod world;
