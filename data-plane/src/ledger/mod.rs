//! Ledgers of the web: tables that all workers share, about requests, clients and connections.

pub mod access_log;
pub mod active_requests;
pub mod admission;
pub(crate) mod backend_queue;
pub mod body_memory;
pub mod change_tracker;
pub mod client_rate;
pub mod descriptors;
pub mod member_uses;
pub mod route_counters;
pub mod shared_limit;
pub mod stats;
