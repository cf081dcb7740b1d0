//! The anthill web server as a library: the configuration, the control plane and the commands above the data plane.
//! The binary only calls [`cli::run`].
//!
//! Modules are listed in the order of layers: a module may import only modules listed above the module, and
//! `tests/layers.rs` checks the order. The package `anthill-data-plane` has the lowest layers. ARCHITECTURE.md
//! describes the modules.

// Without releases, a value of `ReleaseSupport` is impossible, and the compiler sees that code with a value never runs.
#![cfg_attr(not(feature = "releases"), allow(unreachable_code, unused_variables))]

pub use anthill_data_plane::{
    base, cache, handler, hits, limits, serve, site, store, tls, upstream, wire, world,
};

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
pub mod cli;
