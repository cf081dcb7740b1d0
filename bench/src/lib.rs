//! Measures web servers side by side, and reports it.
pub mod load;
pub mod result;
