//! The data plane of the anthill web server: workers, protocols and handlers.
//!
//! The package `anthill` has the control plane and the commands. Modules are listed in the order of layers: a module
//! may import only modules listed above the module, and `tests/layers.rs` checks the order. ARCHITECTURE.md
//! describes the modules.

// Without releases, a value of `ReleaseSupport` is impossible, and the compiler sees that code with a value never runs.
#![cfg_attr(not(feature = "releases"), allow(unreachable_code, unused_variables))]

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
