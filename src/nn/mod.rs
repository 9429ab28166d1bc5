//! The room `nn`.
