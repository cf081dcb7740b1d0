//! Git repositories: clone, fetch and push by the smart HTTP protocol, and pages for browsers.

pub(crate) mod sandbox_repository;
pub mod browse;
pub(crate) mod http;
pub mod limits;
pub mod post_receive;
pub(crate) mod program;
pub(crate) mod repository;
