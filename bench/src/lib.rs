//! Benchmark kit: measures web servers side by side and reports the results.
//!
//! The library exists for the program `anthill-bench` and for the tests in `tests/`, which use the public modules.

#![forbid(unsafe_code)]

mod agreement;
pub mod browser;
pub mod catalogue;
pub mod cli;
mod compare;
pub mod contender;
mod cores;
mod driver;
mod extrapolate;
mod import;
mod interrupt;
mod load;
mod machine;
mod measurer;
mod members;
mod nearest;
mod page_load;
pub mod page_measurer;
mod ports;
mod probe;
mod process;
mod program;
mod progress;
mod published;
pub mod report;
pub mod result;
mod result_file;
mod resume;
mod rounds;
pub mod site;
mod soundness;
mod statistics;
mod suite;
mod summary;
mod template;
mod work_folder;

/// Program name and version, written into every result.
const TOOL: &str = concat!("anthill-bench ", env!("CARGO_PKG_VERSION"));
