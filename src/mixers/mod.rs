//! The room `mixers`.
