//! The server as a library; the binary is one screen on top of it.
//!
//! Each module may import only what stands above it in this list (`tests/layers.rs` holds that);
//! ARCHITECTURE.md is the map.

pub mod limits;

pub mod base;
pub mod cli;
pub mod config;
pub mod control;
pub mod handler;
pub mod serve;
pub mod site;
pub mod tls;
pub mod wire;
pub mod world;
