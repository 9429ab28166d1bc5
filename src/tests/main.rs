//! One integration binary; a module a theme.

mod golden;
