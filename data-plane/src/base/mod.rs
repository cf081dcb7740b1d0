//! Foundations without any knowledge of the web, used by all other modules.

pub mod client_rate;
pub mod clock;
pub mod digest;
pub mod hash;
pub mod change_tracker;
pub mod log;
pub mod thread_pool;
pub mod fair_share;
pub mod descriptors;
pub mod heap_sort;
pub mod stats;
pub mod route_counters;
pub mod active_requests;
pub mod machine;
pub mod sys;
pub mod task;
pub mod coarse_timer;
pub mod worker_number;
pub mod ip_endpoint;
pub mod number_text;
pub mod trusted_path;
pub mod visible_text;
pub mod atomic_file;
pub mod admission;
pub mod body_memory;
pub mod tar;
