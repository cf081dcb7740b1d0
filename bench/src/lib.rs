//! Benchmark kit: measures web servers side by side and reports the results.
pub mod agreement;
pub mod browser;
pub mod catalogue;
pub mod cli;
pub mod compare;
pub mod contender;
pub mod cores;
pub mod driver;
pub mod extrapolate;
pub mod import;
pub mod interrupt;
pub mod load;
pub mod machine;
pub mod nearest;
pub mod page_load;
pub mod page_stage;
pub mod ports;
pub mod probe;
pub mod process;
pub mod program;
pub mod progress;
pub mod published;
pub mod report;
pub mod result;
pub mod result_file;
pub mod resume;
pub mod rounds;
pub mod site;
pub mod soundness;
pub mod stage;
pub mod statistics;
pub mod suite;
pub mod summary;
pub mod template;
pub mod work_folder;

/// Program name and version, written into every result.
pub const TOOL: &str = concat!("anthill-bench ", env!("CARGO_PKG_VERSION"));
