//! One integration binary; a module a theme.

mod cli;
mod golden;
