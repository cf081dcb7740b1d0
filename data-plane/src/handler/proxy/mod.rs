//! Reverse proxy: requests answered by HTTP servers behind this server.

mod attempt;
mod body;
mod call;
mod call_connection;
mod call_failure;
mod cause;
mod content;
mod exchange;
mod h2_attempt;
mod h2_content;
mod h2_upload;
mod head_reader;
mod log;
mod memory;
mod origin;
mod place;
pub mod proxy_handler;
mod proxy_header;
mod request_head;
mod retry;
mod response_head;
pub mod route;
pub mod settings;
mod shortage;
mod transfer;
mod tunnel;
