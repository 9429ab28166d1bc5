//! The room `train`.
