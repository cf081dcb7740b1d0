//! Administration of a running server: the commands of the control socket, and the server's status with
//! its renderers. Plain types, without access to the server.

pub mod active_requests;
pub mod backends;
pub mod balancers;
pub mod command;
pub mod edit_file;
pub mod edit_form;
pub mod edit_ledger;
pub mod edit_plan;
pub mod edit_report;
pub mod edit_value;
pub mod edited_balancer;
mod json_text;
pub(crate) mod limits;
pub mod member_name;
pub mod metrics;
pub mod overview;
pub mod problems;
pub mod status;
pub mod text_table;
pub mod value_text;
