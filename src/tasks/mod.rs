//! The room `tasks`.
