//! The data plane of the anthill web server: workers, protocols and handlers.
//!
//! The package `anthill` has the control plane and the commands. The modules, called rooms, are listed from the bottom
//! up. ARCHITECTURE.md says what each room is for and what a room may import, and `tests/layers.rs` checks the imports.

#![forbid(unsafe_code)]
// Without releases, a value of `ReleaseSupport` is impossible, and the compiler sees that code with a value never runs.
#![cfg_attr(not(feature = "releases"), allow(unreachable_code, unused_variables))]

pub mod limits;

pub mod ledger;
pub mod site;
pub mod tls;
pub mod upstream;
pub mod handler;
pub mod cache;
pub mod hits;
pub mod world;
pub mod serve;
