//! Reverse proxy: requests answered by HTTP servers behind this server.

pub mod settings;
