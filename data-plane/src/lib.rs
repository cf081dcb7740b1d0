//! The data plane of the anthill web server: workers, protocols and handlers.
//!
//! The package `anthill` has the control plane and the commands. Modules are listed in the order of layers: a module
//! may import only modules listed above the module, and `tests/layers.rs` checks the order. ARCHITECTURE.md
//! describes the modules.

pub mod limits;

pub mod base;
pub mod wire;
pub mod store;
pub mod site;
pub mod tls;
pub mod upstream;
pub mod handler;
pub mod cache;
pub mod hits;
pub mod world;
pub mod serve;
