//! The room `sweep`.
