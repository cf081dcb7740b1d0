//! The server as a library; the binary is one screen on top of it.
//!
//! Each module may import only what stands above it in this list (`tests/layers.rs` holds that);
//! ARCHITECTURE.md is the map.

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
pub mod acme;
pub mod backup;
pub mod deploy;
pub mod control;
pub mod cli;
