//! The room `ops`.
