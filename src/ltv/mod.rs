//! The room `ltv`.
