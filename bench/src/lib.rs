//! Measures web servers side by side, and reports it.
pub mod result;
