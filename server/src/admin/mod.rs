//! Administration of a running server: the commands of the control socket, and the server's status with
//! its renderers. Plain types, without access to the server.

pub mod balancers;
pub mod command;
pub mod member_name;
pub mod metrics;
pub mod status;
pub mod text_table;
