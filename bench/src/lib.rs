//! Measures web servers side by side, and reports it.
pub mod extrapolate;
pub mod load;
pub mod progress;
pub mod result;
pub mod result_file;
pub mod rounds;
pub mod statistics;
