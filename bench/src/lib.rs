//! Measures web servers side by side, and reports it.
pub mod browser;
pub mod extrapolate;
pub mod published;
pub mod report;
pub mod result;
pub mod result_file;
pub mod statistics;
