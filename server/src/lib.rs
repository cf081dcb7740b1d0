//! The anthill web server as a library: the configuration, the control plane and the commands above the data plane.
//! The binary only calls [`cli::run`].
//!
//! The modules, called rooms, are listed from the bottom up, above the rooms of the crate `data_plane`.
//! ARCHITECTURE.md says what each room is for and what a room may import, and `tests/layers.rs` checks the imports.

#![forbid(unsafe_code)]
// Without releases, a value of `ReleaseSupport` is impossible, and the compiler sees that code with a value never runs.
#![cfg_attr(not(feature = "releases"), allow(unreachable_code, unused_variables))]
#![cfg_attr(not(feature = "restart"), allow(unreachable_code, unused_variables))]
// A build without the manager leaves parts of the rooms below it unused. The full build shows what is dead.
#![cfg_attr(not(feature = "manager"), allow(dead_code))]

pub mod git;
pub mod config;
pub mod build;
pub mod admin;
pub mod manager;
pub mod acme;
pub mod backup;
pub mod deploy;
pub mod receive;
pub mod control;
#[cfg(feature = "restart")]
pub mod supervisor;
pub mod cli;
