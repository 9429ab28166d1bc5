//! The room `model`.
