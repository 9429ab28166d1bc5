//! The tasks of the Long Range Arena: labelled documents of bytes, from files or generated.

mod examples;

pub use examples::{Examples, Splits};
