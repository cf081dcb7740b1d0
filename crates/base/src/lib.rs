//! Foundations without any knowledge of the web, used by all other modules.

pub mod limits;
pub mod clock;
pub mod counter;
pub mod digest;
pub mod hash;
pub mod log;
pub mod job_end;
pub mod thread_pool;
pub mod fair_share;
pub mod heap_sort;
pub mod machine;
pub mod sys;
pub mod task;
pub mod coarse_timer;
pub mod kernel_pipe;
pub mod worker_number;
pub mod client_history;
pub mod client_network;
pub mod network_table;
pub mod marks;
pub mod trusted_path;
pub mod folder_owner;
pub mod visible_text;
pub mod atomic_file;
pub mod call_shares;
pub mod tar;
