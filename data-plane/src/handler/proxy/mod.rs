//! Reverse proxy: requests answered by HTTP servers behind this server.

mod attempt;
mod body;
mod call;
mod call_connection;
mod content;
mod exchange;
mod failure;
pub mod forward_auth;
mod h2_attempt;
mod place;
pub mod proxy_handler;
mod request_head;
mod response_head;
pub mod route;
mod tunnel;
