//! Git repositories: clone, fetch and push by the smart HTTP protocol, and pages for browsers.

pub mod sandbox_repository;
pub mod browse;
pub mod http;
pub mod post_receive;
pub mod program;
pub mod repository;
