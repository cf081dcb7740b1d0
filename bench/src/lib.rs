//! Measures web servers side by side, and reports it.
pub mod machine;
pub mod process;
pub mod result;
