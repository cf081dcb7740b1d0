//! The anthill web server as a library. The binary only calls [`cli::run`].
//!
//! Modules are listed in the order of layers: a module may import only modules listed above the module, and
//! `tests/layers.rs` checks the order. ARCHITECTURE.md describes the modules.

pub mod limits;

pub mod base;
pub mod wire;
pub mod site;
pub mod tls;
pub mod upstream;
pub mod handler;
pub mod cache;
pub mod hits;
pub mod config;
pub mod world;
pub mod admin;
pub mod serve;
pub mod manager;
pub mod acme;
pub mod backup;
pub mod deploy;
pub mod control;
pub mod cli;
