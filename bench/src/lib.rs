//! Measures web servers side by side, and reports it.
pub mod extrapolate;
pub mod result;
pub mod result_file;
pub mod statistics;
