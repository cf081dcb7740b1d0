//! Measures web servers side by side, and reports it.
pub mod catalogue;
pub mod contender;
pub mod machine;
pub mod nearest;
pub mod ports;
pub mod probe;
pub mod process;
pub mod program;
pub mod result;
pub mod site;
pub mod template;
